"""Streams of events, and runs that pause at a boundary."""
import asyncio

import pytest
import rlmflow
from test_flow import Replies, block

TWO = block("x = 1\nprint('one', x)"), block("done(f'x is {x}')")


async def collect(flow, *args, **kwargs):
    return [event async for event in flow.run_streaming(*args, **kwargs)]


def kinds(events):
    return [e.node_type if e.type == "append_node" else e.type for e in events]


def test_a_whole_run_is_its_events(runtime):
    flow = rlmflow.Flow(Replies(*TWO), runtime=runtime)
    events = asyncio.run(collect(flow, "q"))
    assert kinds(events) == ["graph_created", "user_query", "llm_output", "exec_action", "exec_output", "llm_output",
                             "exec_action", "done_output"]
    root = events[0].graph
    assert {e.graph_id for e in events} == {root.graph_id} and root.result() == "x is 1"
    assert [n.id for n in root.nodes] == [e.node_id for e in events[1:]]
    assert flow.runs == {}


def test_next_pauses_after_each_node_and_the_same_graph_goes_on(runtime):
    async def main():
        flow = rlmflow.Flow(Replies(*TWO), runtime=runtime)
        events = await collect(flow, "q", until="next")
        root = events[0].graph
        assert kinds(events) == ["graph_created", "user_query", "llm_output"] and len(root.nodes) == 2
        assert kinds(await collect(flow, graph=root, until="next", n=2)) == ["exec_action", "exec_output"]
        assert not root.finished
        assert kinds(await collect(flow, graph=root)) == ["llm_output", "exec_action", "done_output"]
        assert root.finished and flow.runs == {}
        assert await collect(flow, graph=root) == [] and await flow.arun(graph=root) == "x is 1"

    asyncio.run(main())


def test_a_paused_run_goes_on_in_arun_and_in_another_loop(runtime):
    flow = rlmflow.Flow(Replies(*TWO), runtime=runtime)
    root = asyncio.run(collect(flow, "q", until="next"))[0].graph
    assert flow.run(graph=root) == "x is 1"


@pytest.mark.parametrize("until, last", [("idle", "exec_output"), ("error", "error_output"),
                                         (lambda e, g: e.node_type == "exec_action", "exec_action")])
def test_boundaries(until, last, runtime):
    async def main():
        flow = rlmflow.Flow(Replies(block("1/0"), *TWO), runtime=runtime)
        events = await collect(flow, "q", until=until)
        assert events[-1].node_type == last
        assert await flow.arun(graph=events[0].graph) == "x is 1"

    asyncio.run(main())


def test_children_pause_too_while_their_parents_cell_waits(runtime):
    class Tree:
        def chat(self, messages):
            if "child task" in messages[1]["content"]:
                return block("print('c')") if len(messages) == 2 else block("done('c')")
            return block("done(str(await launch_subagents([{'query': 'child task'}] * 2)))")

    async def main():
        flow = rlmflow.Flow(Tree(), runtime=runtime)
        events = await collect(flow, "q", until="supervising")
        root = events[0].graph
        assert [g.current().type for g in root.walk()] == ["supervising_output", "done_output", "done_output"]
        assert kinds(await collect(flow, graph=root)) == ["resume_action", "done_output"]
        flow = rlmflow.Flow(Tree(), runtime=runtime)
        events = await collect(flow, "q", until="idle")
        assert [g.current().type for g in events[0].graph.walk()] == ["supervising_output"] + 2 * ["exec_output"]
        assert await flow.arun(graph=events[0].graph) == "['c', 'c']"

    asyncio.run(main())


def test_what_is_appended_between_two_streams_is_seen_by_the_model(runtime):
    async def main():
        client = Replies(*TWO)
        flow = rlmflow.Flow(client, runtime=runtime)
        root = (await collect(flow, "q", until="idle"))[0].graph
        node = flow.append_node(root, "and say it in Latin")
        assert node.id == root.current().id and node.seq == 4
        assert await flow.arun(graph=root) == "x is 1"
        assert "and say it in Latin" in client.asked[1][-1]["content"]

    asyncio.run(main())


def test_a_stream_that_is_closed_early_stops_its_run(runtime):
    async def main():
        flow = rlmflow.Flow(Replies(*TWO), runtime=runtime)
        stream = flow.run_streaming("q")
        async for event in stream:
            if event.node_type == "llm_output":
                break
        await stream.aclose()
        assert flow.runs == {} and len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_one_stream_at_a_time(runtime):
    async def main():
        flow = rlmflow.Flow(Replies(*TWO), runtime=runtime)
        async for event in flow.run_streaming("q"):
            if event.type == "graph_created":
                with pytest.raises(RuntimeError, match="already being streamed"):
                    await collect(flow, graph=event.graph)

    asyncio.run(main())


def test_a_graph_is_one_runs_from_its_beginning(runtime):
    async def main():
        flow, graph = rlmflow.Flow(Replies(*TWO), runtime=runtime), rlmflow.Graph("q")
        first = asyncio.ensure_future(flow.arun(graph=graph))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already being streamed"):
            await flow.arun(graph=graph)
        assert await first == graph.result() == "x is 1"

    asyncio.run(main())


@pytest.mark.parametrize("options", [{"until": "never"}, {"until": "next", "n": 0}, {"query": None}])
def test_wrong_boundaries_are_refused(options, runtime):
    with pytest.raises(ValueError):
        asyncio.run(collect(rlmflow.Flow(Replies(), runtime=runtime), **{"query": "q", **options}))
