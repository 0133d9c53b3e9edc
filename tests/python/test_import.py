"""What `import rlmflow` takes in, which is nearly all of what it takes in time (bench/peers.py)."""
import json
import subprocess
import sys

from conftest import SITE

# asyncio is more than all the rest; it comes with the first run.
DEAR = {"asyncio", "concurrent.futures", "ctypes", "email", "http.client", "logging", "multiprocessing", "pathlib",
        "socket", "sqlite3", "ssl", "subprocess", "tempfile", "unittest", "rlmflow._drive", "rlmflow._backends",
        "rlmflow._worker"}
PROGRAM = "before = set(sys.modules); import rlmflow, json; print(json.dumps(sorted(set(sys.modules) - before)))"


def modules_of(program):
    path = f"import sys; sys.path.insert(0, {str(SITE)!r}); "
    told = subprocess.run([sys.executable, "-S", "-c", path + program], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    return set(json.loads(told.stdout))


def test_an_import_takes_nothing_dear_and_nothing_of_others():
    modules = modules_of(PROGRAM)
    assert "rlmflow._engine" in modules and not modules & DEAR
    own = set(sys.stdlib_module_names) | {"rlmflow", "org"}  # pickle and copy look for Jython's "org"
    assert {name.partition(".")[0] for name in modules} <= own


def test_every_name_of_the_package_is_there_at_once():
    names = "import rlmflow, json; print(json.dumps([n for m in list(sys.modules.values()) if m.__name__.startswith(" \
        "'rlmflow.') for n in getattr(m, '__all__', ()) if not hasattr(rlmflow, n)]))"
    assert modules_of(names) == set()
