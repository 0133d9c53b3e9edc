"""Where a stream of events pauses its run."""
from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Union

from ._arguments import Arguments
from .events import AppendNode, Event

if TYPE_CHECKING:
    import asyncio

    from ._drive import Drive

Until = Union[str, Callable[[Event, Any], Any]]

_NODES = {"idle": ("exec_output", "done_output"), "error": ("error_output",), "supervising": ("supervising_output",)}
UNTIL = ("done", "finished", "next", *_NODES)


def check_until(until: Until, n: "int | None") -> int:
    """The number of passes; ValueError for what is no boundary."""
    checked = Arguments("a stream")
    if not callable(until):
        checked.choice("until", until, (*UNTIL, "a callable of (event, graph)"))
    return checked.whole("n", n, 1, what="how many boundaries the stream passes") or 1


class Stepper:
    """Holds each agent at a boundary, and tells when all that are not finished are held."""

    def __init__(self, until: Until, passes: int):
        import asyncio

        self.until, self.passes = until, passes
        self.queue: "asyncio.Queue[Event | Exception | None]" = asyncio.Queue()
        self.at_boundary: Dict[str, bool] = {}

    def is_boundary(self, event: Event, drive: "Drive") -> bool:
        if callable(self.until):
            passes = self.until(event, drive.root)
            if inspect.isawaitable(passes):
                raise TypeError("until returned an awaitable; it is a plain function of (event, graph)")
            return bool(passes)
        if self.until == "next":
            return event.node_type != "user_query"  # the task, which was there before
        return event.node_type in _NODES.get(self.until, ())

    def watch(self, event: "Event | None", drive: "Drive") -> None:
        """An event has come; None: an agent is held."""
        try:
            if isinstance(event, AppendNode) and self.is_boundary(event, drive):
                self.at_boundary[event.agent_id] = True
        except Exception as e:  # of the user's `until`
            self.queue.put_nowait(e)
        self.queue.put_nowait(event)

    def may_step(self, agent_id: str) -> bool:
        return not self.at_boundary.get(agent_id)

    async def events(self, drive: "Drive") -> AsyncIterator[Event]:
        """Events until the last boundary, or the end of the run."""
        while True:
            if self.queue.empty() and drive.ended.done():
                return
            if self.queue.empty() and drive.is_settled() and self.queue.empty():
                self.passes -= 1
                if self.passes == 0:
                    return
                self.at_boundary.clear()
                drive.release()
            event = await self.queue.get()
            if isinstance(event, Exception):
                raise event
            if event is not None:
                yield event
