"""Several runs of one flow at once."""
import asyncio
import re

import pytest
import rlmflow
from test_flow import block


class Meeting:
    """Answers when all have asked: so it shows that they run at once."""

    def __init__(self, count):
        self.count, self.asked, self.all_here = count, 0, asyncio.Event()

    async def chat(self, messages):
        self.asked += 1
        if self.asked == self.count:
            self.all_here.set()
        await self.all_here.wait()
        return block(f"done({re.search('say ([a-z]+)', messages[1]['content'])[1]!r})")


def flow_of(client, **options):
    return rlmflow.Flow(client, runtime=rlmflow.LocalRuntime(), **options)


@pytest.mark.parametrize("as_function", [False, True])
def test_runs_go_on_at_once_and_their_graphs_keep_their_order(as_function):
    async def main():
        flow = flow_of(Meeting(3))
        runs = "say one", rlmflow.Graph("say two"), "say three"
        graphs = await (rlmflow.parallel_run(flow, *runs) if as_function else flow.parallel_run(*runs))
        assert [g.result() for g in graphs] == ["one", "two", "three"] and graphs[1] is runs[1]
        assert len({g.graph_id for g in graphs}) == 3 and flow.runs == {}

    asyncio.run(main())


@pytest.mark.parametrize("as_function", [False, True])
def test_events_of_all_runs_come_as_they_do(as_function):
    async def main():
        flow = flow_of(Meeting(2))
        graphs = [rlmflow.Graph("say one"), rlmflow.Graph("say two")]
        stream = rlmflow.parallel_stream(flow, *graphs) if as_function else flow.parallel_stream(*graphs)
        events = [e async for e in stream]
        for graph in graphs:
            assert [e.node_type or e.type for e in events if e.graph_id == graph.graph_id][-3:] == [
                "llm_output", "exec_action", "done_output"]
        first_replies = [i for i, e in enumerate(events) if e.node_type == "llm_output"]
        ends = [i for i, e in enumerate(events) if e.node_type == "done_output"]
        assert max(first_replies) < max(ends) and flow.runs == {} and len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_each_comes_to_its_boundary_and_goes_on():
    async def main():
        flow = flow_of(Meeting(2))
        graphs = await flow.parallel_run("say one", "say two", until="next")
        assert [g.current().type for g in graphs] == ["llm_output"] * 2
        assert [e.node_type async for e in flow.parallel_stream(*graphs, until="next", n=1)] == ["exec_action"] * 2
        assert [g.result() for g in await flow.parallel_run(*graphs)] == ["one", "two"]

    asyncio.run(main())


def test_a_run_without_an_answer_keeps_none_from_theirs():
    async def chat(messages):
        if "fail" in messages[1]["content"]:
            raise ValueError("no")
        return block("done('a')")

    graphs = asyncio.run(flow_of(chat).parallel_run("fail", "go on"))
    assert [(g.reason, g.result()) for g in graphs] == [("failed", ""), ("answered", "a")]


@pytest.mark.parametrize("how", ["parallel_run", "parallel_stream"])
def test_a_graph_is_given_once(how):
    async def main():
        flow, graph = flow_of(Meeting(1)), rlmflow.Graph("q")
        with pytest.raises(RuntimeError, match="already being streamed"):
            if how == "parallel_run":
                await flow.parallel_run(graph, graph)
            else:
                [e async for e in flow.parallel_stream(graph, graph)]
        with pytest.raises(ValueError, match="until='never'"):
            [e async for e in flow.parallel_stream(graph, until="never")]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["closed", "cancelled", "raises"])
def test_what_ends_early_stops_all(how):
    async def main():
        flow, started, error = flow_of(Meeting(3)), asyncio.Event(), ZeroDivisionError()  # the third never comes

        def until(event, graph):
            if how == "raises":
                raise error
            return False

        async def consume():
            stream = flow.parallel_stream("say one", "say two", until=until)
            try:
                async for event in stream:
                    started.set()
                    if how == "closed" and event.node_type == "user_query":
                        break
            finally:
                await stream.aclose()

        task = asyncio.ensure_future(consume())
        await started.wait()
        if how == "cancelled":
            task.cancel()
        outcome, = await asyncio.gather(task, return_exceptions=True)
        assert (outcome is error if how == "raises" else outcome is None or how == "cancelled"), outcome
        assert flow.runs == {} and len(asyncio.all_tasks()) == 1
        assert all(drive.run.has_ended() for drive in flow._drives)

    asyncio.run(main())


def test_cancelling_parallel_run_stops_all():
    async def main():
        client = Meeting(3)
        flow = flow_of(client)
        task = asyncio.ensure_future(flow.parallel_run("say one", "say two"))
        while client.asked < 2:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1 and all(drive.run.has_ended() for drive in flow._drives)

    asyncio.run(main())


def test_runs_that_delegate_share_no_workers_across_each_other():
    """Each run has `workers` of its own, so parents never wait for one another's children."""
    def chat(messages):
        if "child" in messages[1]["content"]:
            return block("done('c')")
        return block("done('-'.join(await launch_subagents([{'query': 'child'}] * 2)))")

    graphs = asyncio.run(flow_of(chat, workers=2).parallel_run(*["q"] * 4))
    assert [g.result() for g in graphs] == ["c-c"] * 4
