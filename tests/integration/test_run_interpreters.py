"""A whole run on every interpreter that is here, chosen with --python; which these are stands in the
tests' ids and in the last lines of the report."""

import re
import subprocess

import pytest
from runs import command, go, look, mind  # noqa: F401
from workers import interpreters

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


def version(path):
    asked = subprocess.run([path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"],
                           capture_output=True, text=True)
    return asked.stdout.strip()


@pytest.mark.parametrize("python", interpreters(), ids=version)
def test_a_recursive_run(go, tmp_path, python):
    (tmp_path / "text").write_text("ä" + "x" * 100_000)
    full = version(python)
    short = full.rpartition(".")[0]
    run = go(mind({"go": [CODE, "raise KeyError('k')", "done([read_file('made'), q])"], "work": WORK},
                  query="reply"),
             "--python", python, "--cwd", tmp_path, "--input", f"text=@{tmp_path / 'text'}")
    assert (run.code, run.answer) == (0, f"['{short} 100000', 'reply']"), run.stderr
    first, second = run.seen()
    assert first.splitlines() == [f"({full.replace('.', ', ')}) 100000", "division by zero"]
    assert re.search(r'File "<cell 2>", line 1', second) and "KeyError: 'k'" in second
    assert run.errors() == ["exec"]
