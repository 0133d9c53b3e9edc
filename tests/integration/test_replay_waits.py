"""Replays in which somebody waits: for sub-agents that the parent went on without, for what never comes."""

import pytest
from journal import Journal, rewrite
from runs import command, go, look, mind, task_of  # noqa: F401

pytestmark = pytest.mark.replayed("never", "each test replays its runs itself")
QUICK, STALLED = "done('q')", {"reply": "late", "gate": "never"}
SPECS = "launch_subagents([{'query': 'slow', 'name': 'slow'}, {'query': 'quick', 'name': 'quick'}])"
AHEAD = "import asyncio, os\nt = asyncio.ensure_future(" + SPECS + ")\n"
WAIT = "await asyncio.sleep(0.01)\nwhile not os.path.exists(FLAG): await asyncio.sleep(0.01)\n"


def replay(run_rlmflow, path, *flags, code=0):
    result = run_rlmflow("replay", path, "-q", *flags, timeout=60)
    assert result.code == code, result.stderr
    return result.stderr


LEFT = {
    "the cell ends": [AHEAD + WAIT + "print('over')", "done('end')"],
    "an answer": [AHEAD + WAIT + "done('end')"],
    "the call is given up": [AHEAD + WAIT + "t.cancel()\nprint(await launch_subagents([{'query': 'quick'}]))",
                             "done('end')"],
}


@pytest.mark.parametrize("flags", [(), ("--execute",)], ids=["record", "execute"])
@pytest.mark.parametrize("name", LEFT)
def test_sub_agents_that_are_left_come_as_far_as_they_had_come(go, tmp_path, run_rlmflow, name, flags):
    """The slow one is in its second cell when its parent goes on. What tells the parent so is there at once
    when the run is replayed."""
    flag = f"FLAG = {str(tmp_path / 'flag')!r}\n"
    slow = ["n = 1", flag + "open(FLAG, 'w')\nimport time\ntime.sleep(100)"]
    run = go(mind({"go": [flag + LEFT[name][0], *LEFT[name][1:]], "slow": slow, "quick": QUICK}))
    assert run.answer == "end" and run.ends["root.slow"] == "terminated", run.stderr
    assert len(run.nodes("root.slow", "llm_output")) == 2
    told = replay(run_rlmflow, run.path, *flags)
    assert "as recorded" in told, told


def test_a_cell_that_waits_for_ever_is_a_difference(go, tmp_path, run_rlmflow):
    """For a call that the recording never answered: the code had gone on without it."""
    marker = tmp_path / "marker"
    code = ("import asyncio, os\nt = asyncio.create_task(llm_query('slow'))\nawait asyncio.sleep(0.1)\n"
            f"if os.path.exists({str(marker)!r}): await t\nprint('went on')")
    run = go(mind({"go": [code, "done('end')"]},
                  query=lambda request: STALLED if task_of(request) == "slow" else "quick"), "--exec-timeout", "2s")
    assert run.answer == "end", run.stderr
    replay(run_rlmflow, run.path, "--execute")
    marker.touch()
    told = replay(run_rlmflow, run.path, "--execute", code=1)
    assert "differs: root, turn 1, cell 1: a cell that waits, and does not end" in told, told


def test_a_cell_that_waits_for_a_call_that_it_does_not_make_is_a_difference(go, tmp_path, run_rlmflow):
    marker = tmp_path / "marker"
    code = ("import asyncio, os\nt = asyncio.create_task(llm_query('second'))\n"
            f"if not os.path.exists({str(marker)!r}): await llm_query('first')\nprint(await t)")
    query = {"first": "1st", "second": {"reply": "2nd", "first_byte_delay_ms": 700}}
    run = go(mind({"go": [code, "done('end')"]}, query=lambda request: query[task_of(request)]), "--exec-timeout", "2s")
    assert run.answer == "end", run.stderr
    replay(run_rlmflow, run.path, "--execute")
    marker.touch()
    told = replay(run_rlmflow, run.path, "--execute", code=1)
    assert "differs: root, turn 1, cell 1: a host call that was made, and is not\n  - llm_query[\"first\"]" in told, told


CONTRADICTIONS = {
    "a call delivered twice": lambda r: {**r.members, "calls": r["calls"] * 2} if r.kind == "call_delivered" else r.members,
    "an answer that no call gave": lambda r: None if r.get("name") == "done" else r.members,
    "an answer to a call of another cell": lambda r: {**r.members, "cell": 9} if r.kind == "call_finished" else r.members,
}


@pytest.mark.parametrize("flags", [(), ("--execute",)], ids=["record", "execute"])
@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_records_that_contradict_each_other_end_a_replay(go, tmp_path, run_rlmflow, name, flags):
    run = go(mind({"go": ["print(await llm_query('a'))", "done('end')"]}), "--exec-timeout", "2s")
    assert Journal(run.path).all("call_delivered")
    copy = rewrite(run.path, tmp_path / "copy.rlm", CONTRADICTIONS[name])
    told = replay(run_rlmflow, copy, *flags, code=1)
    assert "differs: root, turn " in told, told
