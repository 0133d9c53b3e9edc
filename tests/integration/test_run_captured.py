"""What a cell's code prints past Python, and what it does to the descriptors of its worker."""

import pytest
from runs import command, go, look, mind  # noqa: F401

LOAD = "import ctypes, os\nlibc = ctypes.CDLL(None)\nerr = ctypes.c_void_p.in_dll(libc, 'stderr')\n"


def outputs(go, *cells):
    """What each of the cells printed, run one after the other."""
    run = go(mind({"go": [LOAD, *cells, "done('end')"]}))
    assert (run.code, run.answer, run.errors()) == (0, "end", []), run.stderr
    return [n.get("output", "") for n in run.nodes(type="exec_output")][1:]


def test_what_c_code_prints_is_output(go):
    """Also what libc holds back in its own buffer, and each in the cell that printed it."""
    first, second, third = outputs(
        go, "x = libc.printf(b'printf %d\\n', ctypes.c_int(42))", "x = libc.printf(b'no end of line')",
        "x = libc.fprintf(err, b'stderr\\n'), libc.puts(b'puts')\nx = libc.write(1, b'write\\n', 6)")
    assert (first, second) == ("printf 42\n", "no end of line")
    assert sorted(third.split()) == ["puts", "stderr", "write"]


def test_what_child_processes_print_is_output(go):
    shell, forked = outputs(go, "x = os.system('echo out; echo err >&2')",
                            "pid = os.fork()\nif pid == 0:\n    os.write(1, b'forked\\n')\n    os._exit(0)\n"
                            "x = os.waitpid(pid, 0)")
    assert (sorted(shell.split()), forked) == (["err", "out"], "forked\n")


def test_what_c_code_prints_before_done_is_kept(go):
    run = go(mind({"go": LOAD + "libc.printf(b'in the end')\ndone(1)"}))
    assert run.answer == "1" and run.nodes()[-1]["output"] == "in the end"


def test_a_flood_of_printf_is_cut(go):
    flood = "for i in range(300_000): x = libc.printf(b'line %d\\n', ctypes.c_int(i))"
    run = go(mind({"go": [LOAD + flood, "done(1)"]}))
    shown, = run.seen()
    assert "line 0\n" in shown and "line 299999" in shown and len(shown) < 5000, shown[-300:]
    assert "characters left out" in shown


REPLACED = "[sys.stdout or sys.stderr was left replaced; the session's own are back]"
REDIRECTED = "[descriptor 1 or 2 was left closed or redirected; the session's own are back]"


@pytest.mark.parametrize("code, said", [
    ("os.closerange(3, 64)", "(no output)"), ("os.close(0)", "(no output)"),
    ("sys.stdout.close(); sys.stderr.close()", "(no output)"),
    ("sys.stdout = None", REPLACED), ("sys.stdout = sys.stderr = open(os.devnull, 'w')", REPLACED),
    ("del sys.stdout, sys.stderr", REPLACED), ("os.close(1); os.close(2)", REDIRECTED),
    ("y = os.dup2(os.open(os.devnull, os.O_WRONLY), 1)", REDIRECTED),
])
def test_a_session_goes_on_when_code_closes_what_is_not_the_workers(go, code, said):
    """And prints again, in the next cell at the latest, as does what it starts."""
    run = go(mind({"go": [f"import os, sys\nx = 5\n{code}", "print('x is', x)\ny = os.system('echo a child')",
                          "done(x)"]}))
    assert (run.code, run.answer, run.errors()) == (0, "5", []), run.stderr
    assert run.seen() == [said, "x is 5\na child"]


def test_a_worker_whose_stream_is_closed_is_a_death_that_is_said(go):
    run = go(mind({"go": ["import os\nx = 5\nos.closerange(3, 1 << 20)", "print('x' in globals())",
                          "done('end')"]}))
    assert (run.code, run.answer) == (0, "end"), run.stderr
    assert run.errors() == ["exit"] and "All variables are lost" in run.seen()[0]
    assert run.seen()[1].startswith("False")
