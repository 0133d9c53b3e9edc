"""Values that are too large or too many for one record are the agent's mistake, not the run's end."""

import pytest
from runs import command, go, look, mind  # noqa: F401

NUMBERS = 2_500_000  # as JSON more than 16 MiB


@pytest.mark.parametrize("call", [
    f"done(list(range({NUMBERS})))",
    f"await launch_subagents([{{'query': 'work', 'inputs': {{'a': tuple(range({NUMBERS}))}}}}])",
    "await llm_query_batched(['x' * 60000] * 300)",
], ids=["done", "launch_subagents", "llm_query_batched"])
def test_arguments_too_large_for_a_record_raise(go, call):
    run = go(mind({"go": f"try:\n    {call}\nexcept ValueError as e:\n    message = str(e)\ndone(message)",
                   "work": "done('never')"}))
    assert run.code == 0, run.stderr
    assert "16 MiB" in run.answer
    assert set(run.ends) == {"root"}


def test_a_sub_agent_gets_many_small_values(go):
    """Their tree needs more memory than their text."""
    run = go(mind({"go": "r = await launch_subagents(\n"
                         "    [{'query': 'work', 'inputs': {'a': list(range(1_000_000))}}])\n"
                         "done(r[0])",
                   "work": "done(str(sum(a)))"}))
    assert run.answer == str(sum(range(1_000_000))), run.stderr
