"""The package as it is installed: wheels that Debian's tools build and that the newest ones build, each installed into
environments of their own and used there. The newest tools come from PyPI."""
import functools
import re
import shutil
import subprocess
import zipfile

import pytest
from conftest import PYTHON, ROOT
from pythons import interpreters, version

# Of the process, in an empty directory: a flow with sessions here, one with sessions in child processes,
# and what another interpreter of the process is told.
PROGRAM = r'''
import sys
import rlmflow

class Client:
    def chat(self, messages):
        if "child" in messages[1]["content"]:
            return "```repl\ndone(str(len(text)))\n```"
        return ("```repl\nparts = [{'query': 'child', 'inputs': {'text': text[i:]}} for i in range(3)]\n"
                "done(' '.join(await launch_subagents(parts)))\n```")

for runtime in (rlmflow.LocalRuntime(), rlmflow.SubprocessRuntime(python=sys.executable)):
    print(rlmflow.Flow(Client(), runtime=runtime).run("root", inputs={"text": "x" * 1000}), flush=True)
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
run(interpreters.create(), """
import os
try:
    import rlmflow
except ImportError as e:
    os.write(1, str(e).encode())
""")
print()
print(rlmflow.__version__, rlmflow.__file__)
'''
ANSWERS = ["1000 999 998"] * 2
FILES = {path.name for path in (ROOT / "python" / "rlmflow").iterdir() if path.is_file()} | {"_worker.py"}
PLATFORM = "linux_x86_64"


PYTHONS = [python for python in interpreters() if version(python) >= (3, 9)]  # Debian's at least


def tag_for(python):
    """Of the wheel: all from 3.11 on take the same."""
    minor = version(python)[1]
    return "cp311-abi3" if minor >= 11 else f"cp3{minor}-cp3{minor}"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What a user has: the tree without what was built in it."""

    def built(folder, names):
        return [name for name in names if name in (".git", "__pycache__") or
                (name.startswith("build") and folder == str(ROOT))]

    return shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "rlmflow", ignore=built)


def build(python, source, folder, *arguments):
    made = subprocess.run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, *arguments, source],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1200)
    assert made.returncode == 0, made.stdout
    wheel, = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel_for(source, tmp_path_factory):
    """wheel_for(tag): built by the newest that takes it, which has most that the oldest has not."""
    builders = {tag_for(python): python for python in sorted(PYTHONS, key=version)}
    return functools.lru_cache(None)(lambda tag: build(builders[tag], source, tmp_path_factory.mktemp("wheels")))


def check_contents(wheel, extension):
    """One extension, the files of the package, and nothing else but what is said about it."""
    with zipfile.ZipFile(wheel) as opened:
        said = "rlmflow-0.1.0.dist-info/"
        names = set(opened.namelist())
        assert names == {"rlmflow/" + name for name in FILES | {extension}} | {
            said + name for name in ("METADATA", "WHEEL", "RECORD", "LICENSE")}
        assert opened.read(said + "LICENSE") == (ROOT / "LICENSE").read_bytes()
        metadata = opened.read(said + "METADATA").decode()
        head = metadata.partition("\n\n# rlmflow\n")[0]
        assert re.findall(r"^(Name|Version|Requires-Python): (.*)$", head, re.M) == [
            ("Name", "rlmflow"), ("Version", "0.1.0"), ("Requires-Python", ">=3.9")]
        assert "\nClassifier: Typing :: Typed\n" in head and "Requires-Dist" not in head
        assert (ROOT / "README.md").read_text() in metadata
        tag, = re.findall(r"^Tag: (.*)$", opened.read(said + "WHEEL").decode(), re.M)
    assert wheel.name == f"rlmflow-0.1.0-{tag}.whl"


def check_use(python, wheel, folder):
    """In a new environment of this interpreter, and from a directory where nothing of the source can be found."""
    venv, empty = folder / "venv", folder / "empty"
    empty.mkdir()
    subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True)
    subprocess.run([python, "-m", "pip", "--python", venv / "bin" / "python", "install", "-q", "--no-index", wheel],
                   check=True)
    used = subprocess.run([venv / "bin" / "python", "-c", PROGRAM], cwd=empty, capture_output=True, text=True, timeout=120,
                          env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
    *answers, refusal, where = used.stdout.splitlines() or [used.stderr, ""]
    assert answers == ANSWERS and where.startswith(f"0.1.0 {venv}/lib/"), used.stdout + used.stderr
    assert re.search("no sub-interpreter can import it$|does not support loading in subinterpreters$", refusal)
    assert not used.stderr and not list(empty.iterdir())


def test_debians_tools_build_one_for_debians_python(source, tmp_path):
    """Without the network."""
    wheel = build(PYTHON, source, tmp_path / "wheels", "--no-build-isolation", "--no-index")
    assert wheel.name == f"rlmflow-0.1.0-cp311-cp311-{PLATFORM}.whl"
    check_contents(wheel, "_engine.cpython-311-x86_64-linux-gnu.so")
    check_use(PYTHON, wheel, tmp_path)


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: "%d.%d" % version(python)[:2])
def test_newer_tools_build_one_for_each_python_before_3_11_and_one_for_all_others(wheel_for, tmp_path, python):
    tag = tag_for(python)
    wheel = wheel_for(tag)
    assert wheel.name == f"rlmflow-0.1.0-{tag}-{PLATFORM}.whl"
    minor = version(python)[1]
    check_contents(wheel, "_engine.abi3.so" if minor >= 11 else f"_engine.cpython-3{minor}-x86_64-linux-gnu.so")
    check_use(python, wheel, tmp_path)
