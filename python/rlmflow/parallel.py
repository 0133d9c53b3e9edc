"""Several runs of one flow at once."""
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, AsyncIterator, List, Optional, Union

from .events import Event
from .graph import Graph, check_graph
from .streaming import Until, check_until

if TYPE_CHECKING:
    import asyncio

    from .flow import Flow

__all__ = ["parallel_run", "parallel_stream"]


def _graphs(runs: "tuple[Union[str, Graph], ...]") -> List[Graph]:
    graphs = [Graph(run) if isinstance(run, str) else run for run in runs]
    seen: set = set()
    for graph in graphs:
        check_graph(graph)
        if graph.graph_id in seen:
            raise RuntimeError(f"graph {graph.graph_id} is already being streamed: it is given twice")
        seen.add(graph.graph_id)
    return graphs


async def parallel_stream(flow: "Flow", *runs: Union[str, Graph], until: Until = "done",
                          n: Optional[int] = None) -> AsyncIterator[Event]:
    """The events of several runs of `flow`, each as it comes: `graph_id` says whose it is. A run is a query, or
    a graph as `Flow.run_streaming` takes it; `until` and `n` are its too, for each. Closed early, or when one
    of the streams raises, it stops all runs that go on."""
    import asyncio

    check_until(until, n)
    graphs = _graphs(runs)
    # Bounded, so that whoever is slow to take events holds the streams, not memory.
    events: "asyncio.Queue[Any]" = asyncio.Queue(maxsize=len(graphs) + 1)

    async def pump(graph: Graph) -> None:
        stream: Any = flow.run_streaming(graph=graph, until=until, n=n)
        try:
            async for event in stream:
                await events.put(event)
        finally:
            await stream.aclose()

    async def pump_and_end(graph: Graph) -> None:
        try:
            await pump(graph)
        except Exception as e:
            await events.put(e)
        else:
            await events.put(None)

    tasks = [asyncio.ensure_future(pump_and_end(graph)) for graph in graphs]
    try:
        left = len(tasks)
        while left:
            event = await events.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                left -= 1
            else:
                yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def parallel_run(flow: "Flow", *runs: Union[str, Graph], until: Until = "done",
                       n: Optional[int] = None) -> List[Graph]:
    """The graphs of several runs of `flow`, in the order in which they were given, when all have ended or come
    to the boundary `until` for the `n`th time. One that ended without an answer says why in its `reason`; the
    others go on. Cancelled, it stops all."""
    graphs = _graphs(runs)
    if until in ("done", "finished") and n is None:
        await _all_answers(flow, graphs)
        return graphs
    stream: Any = parallel_stream(flow, *graphs, until=until, n=n)
    async for _ in stream:
        pass
    return graphs


async def _all_answers(flow: "Flow", graphs: List[Graph]) -> None:
    import asyncio

    from .flow import RunEnded

    async def one(graph: Graph) -> None:
        with contextlib.suppress(RunEnded):
            await flow.arun(graph=graph)

    tasks = [asyncio.ensure_future(one(graph)) for graph in graphs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
