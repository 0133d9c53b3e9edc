"""The programs of examples/python print what they say that they print."""
import os
import re
import subprocess
import sys
import textwrap

import pytest
import rlmflow
from conftest import ROOT, make_package
from test_flow import Replies, block

PROGRAMS = sorted(p for p in (ROOT / "examples/python").glob("*.py") if p.name != "offline.py")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_an_example_prints_what_it_says(program, tmp_path):
    said = textwrap.dedent(re.search(r'^Prints:\n\n(.*?)"""', program.read_text(), re.M | re.S)[1])
    assert said.strip()
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(make_package()), "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, program], env={**env, **sanitizers()}, cwd=tmp_path, capture_output=True,
                          text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_the_program_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    """With a client in the place of the one that needs a key."""
    code = re.search(r"^```python\n(import rlmflow\n.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)[1]
    monkeypatch.setattr(rlmflow, "OpenAIClient", lambda model: Replies(block("done(str(len(book)))")))
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="no sandbox"):
        exec(code, {"text": "a book"})
    assert capsys.readouterr().out == "6\n" and (tmp_path / "book.rlm" / "journal").exists()


def sanitizers():
    return {name: os.environ[name] for name in ("LD_PRELOAD", "ASAN_OPTIONS") if name in os.environ}


def test_there_is_an_example_of_each_thing():
    assert [p.stem for p in PROGRAMS] == ["any_command", "corpus", "fork_and_compare", "host_tools", "resume",
                                          "reviewing", "structured_output"]
