"""How sessions are opened: workers that were started ahead, and seeds."""

import time
from pathlib import Path

import pytest
from program import Result
from runs import command, descendants, go, look, mind  # noqa: F401

PID = "import os\ndone(os.getpid())"
LAUNCH = ("import os\n"
          "r = await launch_subagents([{'query': 'work'}, {'query': 'work'}])\n"
          "done(' '.join([str(os.getpid()), *r]))")


def workers(pid):
    """Process ids of the workers below a program."""
    found = set()
    for below in descendants(pid):
        try:
            if b"rlmflow_worker" in Path(f"/proc/{below}/cmdline").read_bytes():
                found.add(below)
        except OSError:
            pass
    return found


def workers_before_the_first_reply(start_rlmflow, server, args, expected):
    """(the run's Result, the workers while its first model call was unanswered)."""
    process = start_rlmflow(*args)
    server.wait_for(lambda stats: stats["open_requests"] == 1)
    deadline = time.monotonic() + 20
    while len(found := workers(process.pid)) < expected:
        assert time.monotonic() < deadline, f"only {len(found)} workers"
        time.sleep(0.01)
    server.release("first")
    out, err = process.communicate(timeout=60)
    return Result(out, err, process.returncode), found


@pytest.mark.replayed("recorded", "the code answers with process ids")
def test_spare_workers_are_started_ahead_and_used_once(start_rlmflow, server, command):
    """The root's own worker is started while its model thinks; those of its children are spare ones."""
    server.set_rules(mind({"go": {"reply": LAUNCH, "gate": "first"}, "work": PID}))
    args, _ = command(server, "--spare", "3")
    result, found = workers_before_the_first_reply(start_rlmflow, server, args, expected=4)
    assert result.code == 0, result.stderr
    used = [int(pid) for pid in result.stdout.split()]
    assert len(set(used)) == 3
    assert set(used) <= found, (used, found)


@pytest.mark.replayed("recorded", "the code answers with process ids")
def test_without_spare_nothing_is_started_that_is_not_needed(start_rlmflow, server, command):
    server.set_rules(mind({"go": {"reply": LAUNCH, "gate": "first"}, "work": PID}))
    args, _ = command(server)
    result, found = workers_before_the_first_reply(start_rlmflow, server, args, expected=1)
    root, *children = [int(pid) for pid in result.stdout.split()]
    assert found == {root} and len(children) == 2, (result.stdout, found)


NUMBERS = "import random\nprint('numbers', random.random(), random.random())"


def numbers(shown):
    found = [line for line in shown.splitlines() if line.startswith("numbers")]
    assert len(found) == 1, shown
    return found[0]


def test_seeds_differ_among_agents_and_last_for_an_agents_sessions(go):
    """Also after the first session has drawn numbers and died; hashes of texts are the same anywhere."""
    launch = NUMBERS + ("\nr = await launch_subagents([{'query': 'work'}, {'query': 'work'}])\n"
                        "print(hash('text') == int(r[0]) == int(r[1]))")
    work = NUMBERS + "\ndone(hash('text'))"
    turns = {"go": [launch, "import os; os._exit(1)", NUMBERS, "done(1)"], "work": work}
    run = go(mind(turns))
    assert run.answer == "1" and run.seen()[0].endswith("True"), run.stderr
    root = numbers(run.seen()[0])
    children = [numbers(run.nodes(f"root.child{i}")[-1]["output"]) for i in (0, 1)]
    assert len({root, *children}) == 3
    assert run.errors() == ["exit"] and numbers(run.seen()[2]) == root
    again = go(mind(turns))
    assert numbers(again.seen()[0]) != root  # another run
