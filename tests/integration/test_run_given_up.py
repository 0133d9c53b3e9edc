"""Calls that the code gives up in mid-cell: they end at once, and cost nothing more."""

import pytest
from runs import command, go, look, mind, task_of  # noqa: F401

SLOW = {"reply": "late", "gate": "never"}


def slow_or_quick(request):
    return SLOW if task_of(request) == "slow" else "quick"


GIVEN_UP = [
    "try: await asyncio.wait_for({call}, 0.3)\nexcept asyncio.TimeoutError: print('gave up')\n",
    "t = asyncio.create_task({call})\nawait asyncio.sleep(0.3)\nt.cancel()\nprint('gave up')\n",
    "t = asyncio.create_task({call})\nawait asyncio.sleep(0.3)\nt.cancel()\nprint('gave up')\nawait asyncio.sleep(0.5)\n",
]


@pytest.mark.parametrize("code", GIVEN_UP, ids=["timeout", "cancel", "rest"])
@pytest.mark.parametrize("call", ["llm_query('slow')", "llm_query_batched(['slow', 'slow'])",
                                  "launch_subagents([{'query': 'slow'}])"], ids=["query", "batch", "launch"])
def test_a_call_that_is_given_up_frees_its_model_call(go, code, call):  # noqa: F811
    """There is room for one model call only, and the one of the cancelled task never ends."""
    code = "import asyncio\n" + code.format(call=call) + "print(await llm_query('other'))"
    run = go(mind({"go": [code, "done('end')"], "slow": [SLOW]}, query=slow_or_quick), "--workers", "1",
             timeout=30)
    assert run.answer == "end", run.stderr
    assert run.seen()[0].startswith("gave up\nquick")
    if "launch" in call:
        types = [n["type"] for n in run.nodes()]
        assert types.index("resume_action") < types.index("exec_output")
        assert {end for agent, end in run.ends.items() if agent != "root"} == {"terminated"}
