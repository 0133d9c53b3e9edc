"""Runs that have ended are asked more."""
import asyncio
import gc
import time
from pathlib import Path

import pytest
import rlmflow
from test_flow import Replies, block

TWO = block("x = 41\ndone('first')"), block("done(f'{x + 1}')")


async def collect(flow, *args, **kwargs):
    return [event async for event in flow.run_streaming(*args, **kwargs)]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pid):
    until = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("journal", [False, True])
def test_a_graph_is_asked_more_and_its_variables_are_there(journal, runtime, tmp_path):
    path = tmp_path / "run.rlm" if journal else None
    client = Replies(*TWO, block("done(f'{x + 2}')"))
    flow, graph = rlmflow.Flow(client, runtime=runtime), rlmflow.Graph(query="q", inputs={"n": (1, b"2")})
    assert flow.run(graph=graph, journal=path) == "first"
    assert flow.run(graph=graph) == "first" and len(client.asked) == 1
    assert flow.run(graph=graph, query="and now?") == "42"
    assert flow.run("and then?", graph=graph) == "43"
    assert [n.content for n in graph.nodes if n.type == "user_query"] == ["q", "and now?", "and then?"]
    assert "and then?" in client.asked[2][-1]["content"] and graph.inputs == {"n": (1, b"2")}
    assert graph.finished and graph.result() == "43" and flow.runs == {}
    if journal:
        report = flow.replay(path, execute=True)
        assert (report.reason, report.cells_run, report.diverged) == ("answered", 3, False)


def test_a_follow_up_after_a_run_that_ended_without_an_answer(runtime):
    flow = rlmflow.Flow(Replies(block("x = 41"), TWO[1]), runtime=runtime, max_iters=1)
    with pytest.raises(rlmflow.RunEnded) as e:
        flow.run("q")
    assert flow.run(graph=e.value.graph, query="and now?") == "42"


def test_a_follow_up_is_streamed_and_stepped(runtime):
    async def main():
        flow, graph = rlmflow.Flow(Replies(*TWO), runtime=runtime), rlmflow.Graph("q")
        assert await flow.arun(graph=graph) == "first"
        events = await collect(flow, "more", graph=graph, until="next")
        assert [e.node_type for e in events] == ["user_query", "llm_output"] and events[0].graph_id == graph.graph_id
        assert flow.runs[graph.graph_id].graph_id == graph.graph_id
        with pytest.raises(ValueError, match="has not ended: append_node"):
            await flow.arun("too soon", graph=graph)
        assert await flow.arun(graph=graph) == "42"

    asyncio.run(main())


def test_overrides_see_follow_ups(runtime):
    class Rewriting(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            return await super().exec_turn(graph, code.replace("+ 1", "+ 2"), replay=replay)

    flow, graph = Rewriting(Replies(*TWO), runtime=runtime), rlmflow.Graph("q")
    assert [flow.run(graph=graph), flow.run("more", graph=graph)] == ["first", "43"]


def test_sessions_end_with_the_graph_or_when_they_are_closed(runtime):
    first = block("import os\nx = 41\ndone(str(os.getpid()))")
    flow = rlmflow.Flow(Replies(first, first, first, block("done(str('x' in globals()))")), runtime=runtime)
    graphs = [rlmflow.Graph("q") for _ in range(3)]
    pids = [flow.run(graph=graph) for graph in graphs]
    flow.close_repls(graphs[0].graph_id)
    wait_for_end(pids[0])
    del graphs[1]
    gc.collect()
    wait_for_end(pids[1])
    assert is_alive(pids[2])
    flow.close_repls()
    wait_for_end(pids[2])
    assert flow.run("more", graph=graphs[0]) == "False"
    assert [n.error for n in graphs[0].nodes if n.type == "error_output"] == ["session_lost"]


def test_what_a_follow_up_cannot_have(runtime):
    flow, graph = rlmflow.Flow(Replies(*TWO), runtime=runtime), rlmflow.Graph("q")
    flow.run(graph=graph)
    for given in ({"inputs": {"x": 1}}, {"output_schema": {"type": "string"}}, {"journal": "elsewhere.rlm"}):
        with pytest.raises(ValueError, match="keeps its inputs, its output_schema and its journal"):
            flow.run("more", graph=graph, **given)
    with pytest.raises(ValueError, match="not of a run of this flow"):
        rlmflow.Flow(Replies(), runtime=runtime).run("more", graph=graph)
    with pytest.raises(ValueError, match="query is empty"):
        flow.run("", graph=graph)
    assert flow.run("more", graph=graph) == "42"


def test_a_resumed_run_is_asked_more(runtime, tmp_path):
    path = tmp_path / "run.rlm"
    rlmflow.Flow(Replies(TWO[0]), runtime=runtime).run("q", journal=path)
    with pytest.raises(rlmflow.RunEnded) as e:
        rlmflow.Flow(Replies(block("x = 41")), runtime=runtime, max_iters=1).resume(path, query="more")
    graph = e.value.graph
    graph._drive.clients[0].client.replies.append(TWO[1])
    assert graph._drive.flow.run("and more", graph=graph) == "42"


def test_a_session_goes_with_the_error_of_its_run(runtime):
    flow = rlmflow.Flow(Replies(block("x = 1")), runtime=runtime, max_iters=1)
    gc.disable()
    try:
        with pytest.raises(rlmflow.RunEnded) as e:
            flow.run("q")
        assert len(flow._drives) == 1 and e.value.graph.nodes[-1].reason == "max_iters"
        del e
        assert len(flow._drives) == 0
    finally:
        gc.enable()
