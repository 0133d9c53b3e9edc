"""--restore ask: a person says whether code runs again; where nobody can be asked it does not."""

import pytest
from journal import Journal
from replies import cell
from terminals import person  # noqa: F401

ASK = (b"The run's code may have changed things outside its session. Run it again to get its variables "
       rb"back \[r\], or go on without them \[f\]\? $")
GONE = ("The session in which your code ran has ended; a new one goes on from here. "
        "These variables are gone: f, x.")


@pytest.fixture
def left(run_rlmflow, scripted_model, tmp_path):
    """The path of a run that a limit ended when its session had an x, and a log of each time its cell ran."""
    path, log = tmp_path / "run.rlm", tmp_path / "log"
    model = scripted_model([
        ({"turn": 1}, cell(f"with open({str(log)!r}, 'a') as f: f.write('ran ')\nx = 'there'")),
        ({"turn": 2}, cell("print('going on')")), ({}, cell("done(globals().get('x', 'gone'))"))])
    r = run_rlmflow("run", "go", "--model", model, "--max-iters", "1", "-q", "-o", path)
    assert r.code == 1 and log.read_text() == "ran ", r.stderr
    return path


def resumed(path, answer):
    """It went on so: with its variable from a cell that ran once more, or told that it is gone."""
    journal = Journal(path)
    again = answer == "there"
    told = [r["content"] for r in journal.all("node", type="error_output")]
    assert told == ([] if again else [GONE])
    assert (path.parent / "log").read_text() == ("ran ran " if again else "ran ")
    assert [bool(r["restored"]) for r in journal.all("session_opened")] == [False, again]


ARGUMENTS = ("--restore", "ask", "--max-iters", "9", "-q")


@pytest.mark.parametrize("typed, answer", [(["r\n"], "there"), (["f\n"], "gone"), (["y\n", "\n", "r\n"], "there"),
                                           (["no\n", "f\n"], "gone"), (["\x04"], "gone")],
                         ids=["again", "fresh", "twice asked, again", "once asked, fresh", "no answer"])
def test_a_person_says_whether_code_runs_again(person, left, typed, answer):
    p = person("resume", left, *ARGUMENTS)
    for keys in typed:
        p.sees(ASK)
        assert not Journal(left).all("resumed"), "it went on without an answer"
        p.types(keys)
    assert p.end(0)[0] == answer
    assert p.text.count(b"[f]?") == len(typed)
    resumed(left, answer)


def test_where_nobody_can_be_asked_sessions_start_anew(run_rlmflow, left):
    r = run_rlmflow("resume", left, *ARGUMENTS)
    assert (r.code, r.stdout) == (0, "gone\n"), r.stderr
    assert "--restore ask: there is no terminal to ask on; sessions start anew" in r.stderr
    resumed(left, "gone")
