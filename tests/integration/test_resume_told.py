"""What the model is told, word by word, of a session that ended before its agent did."""

import os
import shutil
import time

import pytest
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401

NOT_RUN_AGAIN = ("The run was stopped while this code was running, and goes on now. The code was not run "
                 "again: it may have run in part, and what it wrote to files or sent elsewhere may be there.")
NEW_SESSION = "The session in which your code ran has ended; a new one goes on from here."
LIMIT_S = 60  # a limit for what does not come, not a measure


def wait_for(holds, process):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it never came so far"
        time.sleep(0.005)


@pytest.fixture
def kill_at(server, start_rlmflow, command):
    """kill_at(rules, holds, *flags): starts a run and kills it when `holds` returns true; its path."""
    def start(rules, holds, *flags):
        server.set_rules(rules)
        args, path = command(server, *flags)
        process = start_rlmflow(*args)
        wait_for(holds, process)
        process.kill()
        process.communicate()
        return path
    return start


@pytest.fixture
def resume(server, run_rlmflow, look):
    """resume(path, rules, *flags): resumes it with rules; the Run."""
    def start(path, rules, *flags):
        server.reset()
        server.set_rules(rules)
        return look(run_rlmflow("resume", path, *flags), path)
    return start


def cut_after(run, tmp_path, kind, nth=0, name="cut", **members):
    """A copy of a run that ends with the nth record of that kind."""
    record = Journal(run.path).all(kind, **members)[nth]
    return cut(run.path, tmp_path / f"{name}.rlm", record.end)


# ---- fresh sessions: the default where effects reach outside ----

def test_a_cell_that_appends_to_a_file_is_not_run_twice(kill_at, resume, tmp_path):
    notes = tmp_path / "notes"
    rules = mind({"go": [
        "zebra = 1\nimport os\nant = [2]\ndef bee(): pass",
        f"cow = 3\nwith open({str(notes)!r}, 'a') as f: f.write('once\\n')\nimport time\ntime.sleep(1000)",
        "print('zebra' in globals(), 'cow' in globals())\nzebra = 5",
        "done(str(zebra))"]})
    path = kill_at(rules, notes.exists)
    run = resume(path, rules)
    assert run.answer == "5", run.stderr
    assert notes.read_text() == "once\n"
    assert run.errors() == ["interrupted"]
    assert run.seen()[1] == f"{NOT_RUN_AGAIN} These variables are gone: ant, bee, os, zebra."
    assert run.seen()[2] == "False False"


def test_a_cell_that_appends_to_a_file_runs_again_when_told_to(kill_at, resume, tmp_path):
    notes = tmp_path / "notes"
    rules = mind({"go": [f"with open({str(notes)!r}, 'a') as f: f.write('x\\n')\nprint(await llm_query('a'))",
                         "done('1')"]}, query=lambda request: {"reply": "", "gate": "never"})
    path = kill_at(rules, notes.exists)
    run = resume(path, mind({"go": [None, "done('1')"]}), "--restore", "replay")
    assert run.answer == "1", run.stderr
    assert notes.read_text() == "x\nx\n"
    assert run.seen() == ["noted"]


LAUNCH = ("x = 1",
          "got = await launch_subagents([{'query': 'work a', 'name': 'a'}, {'query': 'work b', 'name': 'b'},"
          " {'query': 'fail', 'name': 'c'}])\nprint(got)",
          "print(RECOVERED['a'], RECOVERED['b'], RECOVERED['c'].reason, sorted(RECOVERED))",
          "print(RECOVERED['a'])\ndone(RECOVERED['a'] + RECOVERED['b'])")
FAILS = {"status": 400, "message": "no"}


def test_what_finished_children_answered_is_recovered(go, resume, tmp_path):
    """Also of those that were in flight, and of their own children."""
    rules = mind({"go": list(LAUNCH), "fail": FAILS, "deep": ["d = 3", "done(str(d))"],
                  "work b": ["y = await launch_subagents([{'query': 'deep', 'name': 'd'}])", "done('B' + (y[0] if 'y' in "
                                "globals() else RECOVERED['d'] if 'RECOVERED' in globals() else '?'))"],
                  "work": ["z = 4", "done('A')"]})
    whole = go(rules)
    for kind, agent in (("child", None), ("cell_started", "root.b"), ("node", "root.b.d"),
                        ("call_finished", "root.b.d"), ("call_finished", "root.b")):
        members = {"agent": agent} if agent else {}
        nth = 1 if kind == "child" else 0
        copy = cut_after(whole, tmp_path, kind, nth, f"{kind}-{agent}", **members)
        started = {r["name"] for r in Journal(copy).all("child", parent="root")}
        run = resume(copy, rules)
        told = [text for text in run.seen() if text.startswith(NOT_RUN_AGAIN)]
        if started != {"a", "b", "c"}:
            assert told == [f"{NOT_RUN_AGAIN} These variables are gone: x. RECOVERED holds what its "
                            "sub-agents answered, by name: a (answered), b (answered)."], kind
            continue
        assert told == [f"{NOT_RUN_AGAIN} These variables are gone: x. RECOVERED holds what its sub-agents "
                        "answered, by name: a (answered), b (answered), c (failed)."], (kind, agent)
        b = run.nodes("root.b", "done_output")[0]["result"]
        assert run.answer == "A" + b, run.stderr
        assert run.seen()[2] == f"A {b} failed ['a', 'b', 'c']"
        launches = [n["call_id"] for n in run.nodes("root", "supervising_output")]
        assert launches == [n["call_id"] for n in run.nodes("root", "resume_action")]


def test_variables_of_a_session_that_ended_between_cells_are_named(go, resume, tmp_path):
    rules = mind({"go": ["x = 1\ny = 2", "del y\nz = 3", "print(sorted(n for n in 'xyz' if n in globals()))",
                         "done('1')"]})
    whole = go(rules)
    asked = Journal(whole.path).all("reserve")[2]
    run = resume(cut(whole.path, tmp_path / "asked.rlm", asked.end), rules)
    assert run.errors() == ["session_lost"]
    assert run.nodes(type="error_output")[0]["content"] == f"{NEW_SESSION} These variables are gone: x, z."
    assert "--restore replay runs their code again" in run.stderr
    assert run.seen()[-1] == "[]" and run.answer == "1"
    # With code that waits to run: it is told with what comes out.
    replied = Journal(whole.path).all("node", type="llm_output")[2]
    run = resume(cut(whole.path, tmp_path / "replied.rlm", replied.end), rules)
    assert not run.errors()
    assert run.seen()[2] == f"[]\n[{NEW_SESSION} These variables are gone: x, z.]"
    # A session without variables is not missed.
    first = Journal(whole.path).all("node", type="llm_output")[0]
    run = resume(cut(whole.path, tmp_path / "first.rlm", first.end), rules)
    assert not run.errors() and run.seen() == whole.seen()


# ---- restored sessions ----

@pytest.mark.replayed("steps", "a cell prints the time")
def test_a_restored_cell_that_prints_something_else_is_told(go, resume, tmp_path):
    rules = mind({"go": ["import time\nprint(time.time_ns())\nx = 7", "print(object())", "print(x)", "done('1')"]})
    whole = go(rules)
    copy = cut_after(whole, tmp_path, "node", 2, type="llm_output")
    run = resume(copy, rules, "--restore", "replay")
    assert run.answer == "1" and run.seen()[:2] == whole.seen()[:2]
    assert run.seen()[2] == ("7\n[When the session was made again, cell 1 printed something else than "
                             "before.]")


@pytest.mark.replayed("recorded", "its cells look at a file that comes later")
def test_a_restored_cell_that_fails_where_it_had_not_is_told(go, resume, tmp_path):
    marker = tmp_path / "marker"
    rules = mind({"go": [f"import os\nif os.path.exists({str(marker)!r}): 1 / 0\nx = 7", "print('x' in globals())",
                         "done('1')"]})
    whole = go(rules)
    copy = cut_after(whole, tmp_path, "node", 1, type="llm_output")
    marker.touch()
    run = resume(copy, rules, "--restore", "replay")
    assert run.seen()[1] == ("False\n[When the session was made again, cell 1 printed something else than "
                             "before.]")


DIVERGED = ("Your session had to be made again, and cell 2 then {}: what it and later cells did is not there."
            " These variables are gone: y.")


@pytest.mark.replayed("recorded", "its cells look at a file that comes later")
@pytest.mark.parametrize("code, why", [
    ("y = await llm_query('b' if there() else 'a')", "called llm_query(), which it had not done"),
    ("y = 1 if there() else await llm_query('a')", "ended without a host call that it had made"),
    ("y = 1\nif there(): os._exit(7)\nawait llm_query('a')", "ended its session (the worker ended with exit status "
                                                             "7 (os._exit or a crash))"),
])
def test_a_restored_cell_that_does_something_else_is_left_out_and_told(go, resume, tmp_path, server, code, why):
    marker = tmp_path / "marker"
    rules = mind({"go": [f"import os\nx = 5\ndef there(): return os.path.exists({str(marker)!r})", code, "z = 1",
                         "print(x, 'y' in globals(), 'z' in globals())", "done(str(x))"]})
    whole = go(rules)
    copy = cut_after(whole, tmp_path, "node", 3, type="llm_output")
    marker.touch()
    run = resume(copy, rules, "--restore", "replay")
    assert run.answer == "5", run.stderr
    told = DIVERGED.format(why).replace("y.", "y, z.")
    assert run.seen()[3] == f"5 False False\n[{told}]"
    assert len(server.requests) == 1  # the last turn: nothing was asked in the restore


@pytest.mark.replayed("recorded", "its cells look at a file that comes later")
def test_a_restored_cell_that_waits_for_what_was_never_answered_is_left_out_and_told(go, resume, tmp_path):
    marker = tmp_path / "marker"
    rules = mind({"go": [f"import asyncio, os\nx = 5\ndef there(): return os.path.exists({str(marker)!r})",
                         "y = asyncio.create_task(llm_query('a'))\nawait asyncio.wait([y], timeout=0.2)\n"
                         "if there(): await y", "print(x, 'y' in globals())", "done(str(x))"]},
                 query=lambda request: {"reply": "", "gate": "never"})
    copy = cut_after(go(rules), tmp_path, "node", 2, type="llm_output")
    marker.touch()
    run = resume(copy, rules, "--restore", "replay", "--exec-timeout", "2s", "--max-time", "60s")
    assert run.answer == "5", run.stderr
    assert run.seen()[2] == "5 False\n[" + DIVERGED.format("did not end, as it had") + "]"


def test_a_call_that_was_too_large_is_refused_again(go, resume, tmp_path):
    """It stands in the journal without its arguments."""
    rules = mind({"go": ["x = 5", "try:\n    await llm_query_batched(['y' * 1000] * 20_000)\n"
                         "except ValueError as e:\n    x = str(e)", "print(x)", "done('1')"]})
    whole = go(rules)
    assert whole.answer == "1" and "16 MiB" in whole.seen()[2], whole.stderr
    for kind, nth in (("call_started", 0), ("call_finished", 0), ("call_delivered", 0), ("cell_started", 2)):
        run = resume(cut_after(whole, tmp_path, kind, nth, f"{kind}{nth}"), rules, "--restore", "replay")
        assert run.seen() == whole.seen(), (kind, run.stderr)


@pytest.mark.replayed("recorded", "its cells look at a file that comes later")
def test_a_cell_in_flight_that_does_something_else_is_interrupted(go, resume, tmp_path, server):
    marker = tmp_path / "marker"
    rules = mind({"go": [f"import os\nx = 5\ndef there(): return os.path.exists({str(marker)!r})",
                         "y = await llm_query('b' if there() else 'a')\nw = await llm_query('c')", "done(str(x))"]})
    whole = go(rules)
    copy = cut_after(whole, tmp_path, "call_delivered")
    marker.touch()
    run = resume(copy, rules, "--restore", "replay", "--exec-timeout", "2s")
    assert run.answer == "5", run.stderr
    assert run.errors() == ["interrupted"]
    assert run.seen()[1] == NOT_RUN_AGAIN + " " + DIVERGED.format("did not make a host call that it had made").replace(
        " These variables are gone: y.", "")


@pytest.mark.replayed("recorded", "its cells look at a file that comes later")
def test_an_agent_that_waits_for_what_its_lost_cell_launched_takes_no_place(go, resume, tmp_path):
    """There is one, and the child needs it."""
    marker = tmp_path / "marker"
    rules = mind({"go": [f"import os\nawait llm_query('x' if os.path.exists({str(marker)!r}) else 'y')\n"
                         "r = await launch_subagents([{'query': 'work', 'name': 'a'}])\ndone(r[0])",
                         "done(RECOVERED['a'] + '!')"], "work": ["done('A')"]})
    copy = cut_after(go(rules), tmp_path, "node", agent="root.a", type="user_query")
    marker.touch()
    late = resume(shutil.copytree(copy, tmp_path / "late.rlm"), mind({"work": {"reply": "", "gate": "never"}}),
                  "--restore", "replay", "--exec-timeout", "1s", "--max-live", "1", "--max-time", "5s")
    assert late.nodes("root.a", "done_output")[0]["content"] == "max_time passed", late.stderr
    run = resume(copy, rules, "--restore", "replay", "--exec-timeout", "2s", "--max-live", "1",
                 "--max-time", "60s")
    assert run.answer == "A!", run.stderr


@pytest.mark.replayed("recorded", "its cells count how often they ran")
def test_two_restores_that_fail_are_both_told(go, resume, tmp_path):
    """Cell 2 does something else only when the session is made a second time."""
    count = tmp_path / "count"
    look = (f"import os\ndef times():\n    with open({str(count)!r}, 'a') as f: f.write('x')\n"
            f"    return os.path.getsize({str(count)!r})\nx = 5")
    rules = mind({"go": [look, "n = times()\ny = await llm_query('a') if n < 3 else 0",
                         "z = await llm_query('b' if n == 2 else 'c')",
                         "print(x, 'y' in globals(), 'z' in globals())", "done(str(x))"]})
    whole = go(rules)
    copy = cut_after(whole, tmp_path, "node", 3, type="llm_output")
    run = resume(copy, rules, "--restore", "replay")
    assert run.answer == "5", run.stderr
    gone = ("Your session had to be made again, and cell {} then {}: what it and later cells did is not there."
            " These variables are gone: {}.")
    assert run.seen()[3] == ("5 False False\n[" + gone.format(3, "called llm_query(), which it had not done", "z")
                             + " " + gone.format(2, "ended without a host call that it had made", "n, y") + "]")
