"""A whole run on every interpreter that is here, chosen with --python; which these are stands in the
tests' ids and in the last lines of the report."""

import re

import pytest
from pythons import interpreters, version
from runs import command, go, look, mind  # noqa: F401

CODE = """
import asyncio, sys
print(sys.version_info[:3], text.count("x"))
specs = [{"query": "work", "inputs": {"part": text[1:]}}] * 2
r, q = await asyncio.gather(launch_subagents(specs), llm_query("q"))
write_file("made", r[0])
try:
    1 / 0
except ZeroDivisionError as e:
    print(e)
"""
WORK = "import sys\ndone(f'{sys.version_info[0]}.{sys.version_info[1]} {len(part)}')"


def full(python):
    return ".".join(map(str, version(python)))


@pytest.mark.parametrize("python", interpreters(), ids=full)
def test_a_recursive_run(go, tmp_path, python):
    (tmp_path / "text").write_text("ä" + "x" * 100_000)
    major, minor, micro = version(python)
    run = go(mind({"go": [CODE, "raise KeyError('k')", "done([read_file('made'), q])"], "work": WORK},
                  query="reply"),
             "--python", python, "--cwd", tmp_path, "--input", f"text=@{tmp_path / 'text'}")
    assert (run.code, run.answer) == (0, f"['{major}.{minor} 100000', 'reply']"), run.stderr
    first, second = run.seen()
    assert first.splitlines() == [f"({major}, {minor}, {micro}) 100000", "division by zero"]
    assert re.search(r'File "<cell 2>", line 1', second) and "KeyError: 'k'" in second
    assert run.errors() == ["exec"]


NO_PYTHON = {
    "it ends at once": ("exit 0", "the worker ended with exit status 0"),
    "it says why": ("echo no Python >&2\nexit 3", "the worker ended with exit status 3 .*: no Python"),
    "it dies": ("kill -9 $$", "the worker was killed by signal 9"),
    "it is a program of another kind": ("exec cat", "the worker (ended|closed)"),
}


def program_that(does, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("what", NO_PYTHON)
def test_a_program_that_is_no_python_is_found_before_a_model_call(go, server, tmp_path, what):
    does, said = NO_PYTHON[what]
    python = program_that(does, tmp_path)
    run = go(mind({"go": "done(1)"}), "--python", python)
    assert run.code == 1 and run.usage["calls"] == server.stats()["requests"] == 0, run.stderr
    said = r"no session opens \(the interpreter must be Python 3\.8 or newer\): " + said
    assert re.search(said, run.stderr), run.stderr


@pytest.mark.parametrize("restore", ["replay", "fresh"])
def test_it_is_found_before_a_resumed_run_pays_for_more(go, server, run_rlmflow, tmp_path, restore):
    run = go(mind({"go": ["x = 1", "done(x)"]}), "--max-iters", "1")
    assert run.ends == {"root": "max_iters"} and server.stats()["requests"] == 1, run.stderr
    python = program_that("exit 0", tmp_path)
    r = run_rlmflow("resume", run.path, "--max-iters", "2", "--restore", restore, "--python", python)
    assert r.code == 1 and "no session opens" in r.stderr and server.stats()["requests"] == 1, r.stderr
    r = run_rlmflow("resume", run.path, "--max-iters", "2", "--restore", restore, "--python", "python3")
    assert (r.stdout == "1\n") == (restore == "replay") and server.stats()["requests"] >= 2, r.stderr
