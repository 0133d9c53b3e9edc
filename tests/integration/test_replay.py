"""A recorded run again, without its model: the same, or the first difference at the right place."""

import pytest
from journal import Journal, cut
from runs import command, go, look, mind  # noqa: F401
from test_resume import ANSWER, INPUT, story, whole  # noqa: F401


def replay(run_rlmflow, path, *flags, code=0):
    result = run_rlmflow("replay", path, "-q", *flags, timeout=20)
    assert result.code == code, result.stderr
    return result.stderr


@pytest.mark.parametrize("flags", [(), ("--execute",)])
def test_a_run_is_replayed_with_its_server_gone(whole, server, run_rlmflow, flags):
    server.stop()
    said = replay(run_rlmflow, whole.path, *flags)
    assert f"{len(whole.ends) * 3 + 2} cells ran" in said if flags else "0 cells ran" in said, said


@pytest.mark.parametrize("flags", [(), ("--execute",)])
def test_what_every_kill_leaves_can_be_replayed(whole, tmp_path, server, run_rlmflow, flags):
    server.stop()
    for record in Journal(whole.path).records[1:-2:3]:
        copy = cut(whole.path, tmp_path / f"cut{record.end}.rlm", record.end)
        replay(run_rlmflow, copy, *flags)


def test_resumed_runs_are_replayed(whole, tmp_path, server, run_rlmflow):
    for record in Journal(whole.path).records[8:-2:9]:
        for mode in ("replay", "fresh"):
            copy = cut(whole.path, tmp_path / f"{mode}{record.end}.rlm", record.end)
            server.set_rules(story())
            run_rlmflow("resume", copy, "-q", "--restore", mode, "--max-iters", "7")
            replay(run_rlmflow, copy)
            replay(run_rlmflow, copy, "--execute")
