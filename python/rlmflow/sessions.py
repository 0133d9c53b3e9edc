"""Sessions: what code runs in, and what a wrapper of them sees and says.

A runtime's `open(graph)` returns a backend, any object with

    start(code)      -> Finished | Suspended
    resume(results)  -> Finished | Suspended
    close()

each `def` or `async def`. A wrapper looks at what passes and hands it on to the backend that `super().open(graph)`
returned:

    class Gated(rlmflow.SubprocessRuntime):
        async def open(self, graph):
            return Gate(super().open(graph))

    class Gate(rlmflow.Backend):
        def __init__(self, inner):
            self.inner = inner

        async def start(self, code):
            if "rm -rf" in code:
                return rlmflow.Finished(error="this code was refused")
            return await self.inner.start(code)

        async def resume(self, results):
            return await self.inner.resume(results)

        async def close(self):
            await self.inner.close()

`done(...)` is a host call: a wrapper sees it among the calls of a Suspended, and its acceptance in `resume`. While a
wrapper has the word no clock of the cell runs. One that raises ends its session: the code under way becomes an
error_output, and the next runs in a new session. A plain `def` runs in a thread of its own, where the inner backend's
methods wait and return what came; elsewhere they are to be awaited.

What the engine made (calls, results, ends of cells) passes through unchanged: to change something, make a new
object. Values of 64 KiB and more are read when they are looked at.
"""
from __future__ import annotations

import json
import types
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from .values import _decode_object, to_json

__all__ = ["Backend", "CallError", "CallResult", "Finished", "HostCall", "SessionDied", "Suspended"]


class SessionDied(RuntimeError):
    """The session has ended by itself: its worker was killed, a limit ended it. `reason` is "exit", "signal",
    "exec_timeout", "cpu_time", "memory", ...; `message` says more, `output` is what the cell had printed."""

    def __init__(self, reason: str, message: str, output: str = ""):
        super().__init__(message)
        self.reason, self.message, self.output = reason, message, output

    def __reduce__(self) -> tuple:
        return type(self), (self.reason, self.message, self.output)


class CallError(NamedTuple):
    """What a host call raises in the agent's code: HostCallError, ValueError, TypeError, KeyError,
    FileNotFoundError or ToolInterrupted by `type`."""

    type: str
    message: str
    reason: str = ""
    agent_id: str = ""


def _decoded(raw: Any, read: Callable[[str], Any]) -> Any:
    """The value of a JSON tree in the encoding of docs/protocol.md."""
    def of_object(members: dict) -> Any:
        if len(members) == 1:
            (tag, inside), = members.items()
            if tag == "$blob":
                return read(inside)
            if tag == "$failure":
                return f"[{inside['reason']}: {inside['message']}]"
        return _decode_object(members)

    return json.loads(json.dumps(raw), object_hook=of_object)


class HostCall:
    """What agent code asks the host for: `done`, `launch_subagents`, `llm_query`, a proxied tool: its `name`,
    with `args` and `kwargs` as they were passed. `id` is a positive int; ids ascend in a session."""

    __slots__ = ("id", "name", "_args", "_kwargs", "_raw", "_read")

    def __init__(self, id: int, name: str, args: Iterable[Any] = (), kwargs: Optional[Mapping[str, Any]] = None):
        self.id, self.name = id, name
        self._args: Optional[Tuple[Any, ...]] = tuple(args)
        self._kwargs: Optional[Mapping[str, Any]] = types.MappingProxyType(dict(kwargs or {}))
        self._raw: Any = None
        self._read: Any = None

    @classmethod
    def _of(cls, raw: dict, read: Callable[[str], Any]) -> "HostCall":
        self = cls(raw["id"], raw["name"])
        self._raw, self._read, self._args, self._kwargs = raw, read, None, None
        return self

    @property
    def args(self) -> Tuple[Any, ...]:
        """The positional arguments, read when they are first asked for."""
        if self._args is None:
            self._args = tuple(_decoded(self._raw["args"], self._read))
        return self._args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The arguments by name, read when they are first asked for."""
        if self._kwargs is None:
            self._kwargs = types.MappingProxyType(
                {k: _decoded(v, self._read) for k, v in self._raw["kwargs"].items()})
        return self._kwargs

    def _json(self) -> dict:
        if self._raw is not None:
            return self._raw
        where = f"an argument of {self.name}()"
        return {"id": self.id, "name": self.name, "args": json.loads(to_json(list(self.args), where)),
                "kwargs": {k: json.loads(to_json(v, where)) for k, v in self.kwargs.items()}}

    def __repr__(self) -> str:
        return f"HostCall({self.id}, {self.name!r}, {self.args!r}, {dict(self.kwargs)!r})"


class CallResult:
    """The answer to the host call `id`: a value, or an error (a `CallError`, an exception or a text)."""

    __slots__ = ("id", "error", "_value", "_raw", "_read")

    def __init__(self, id: int, value: Any = None, error: "Union[None, CallError, BaseException, str]" = None):
        self.id, self._value = id, value
        self._raw: Any = None
        self._read: Any = None
        self.error = error if error is None or isinstance(error, CallError) else (
            CallError("HostCallError", error) if isinstance(error, str)
            else CallError(type(error).__name__, str(error)))

    @classmethod
    def _of(cls, raw: dict, read: Callable[[str], Any]) -> "CallResult":
        error = raw.get("error")
        self = cls(raw["id"], error=error and CallError(error["type"], error["message"], error["reason"],
                                                        error["agent_id"]))
        self._raw, self._read = raw, read
        return self

    @property
    def value(self) -> Any:
        """A failed child or prompt is the text that the agent sees."""
        if self._raw is not None and self.error is None:
            return _decoded(self._raw["value"], self._read)
        return self._value

    def _json(self) -> dict:
        if self._raw is not None:
            return self._raw
        if self.error is not None:
            return {"id": self.id, "error": self.error._asdict()}
        return {"id": self.id, "value": json.loads(to_json(self._value, "the value of a result"))}

    def __repr__(self) -> str:
        what = f"error={self.error!r}" if self.error else f"{self.value!r}"
        return f"CallResult({self.id}, {what})"


class Finished:
    """The end of a cell: what it printed (`output`), its error as the model is shown it (None: it ended well),
    and the answer that the host accepted in it."""

    __slots__ = ("output", "error", "answer", "_raw")

    def __init__(self, output: str = "", error: Optional[str] = None, answer: Any = None):
        self.output, self.error, self.answer = output, error, answer
        self._raw: Optional[dict] = None

    @classmethod
    def _of(cls, raw: dict, answer: Any) -> "Finished":
        error = raw.get("error")
        self = cls(raw["output"], error and (error["traceback"] or error["message"]), answer)
        self._raw = raw
        return self

    def _json(self) -> dict:
        """What was made by the engine keeps its details, unless output or error were changed."""
        raw = self._raw or {}
        error = raw.get("error")
        shown = error and (error["traceback"] or error["message"])
        if self.error != shown:
            error = None if self.error is None else {"type": "Error", "message": str(self.error), "traceback": ""}
        return {**raw, "output": self.output, "error": error}

    def __repr__(self) -> str:
        return f"Finished({self.output!r}, {self.error!r}, {self.answer!r})"


class Suspended:
    """A cell that waits: `calls` are new, `pending` the ids of all that are unanswered (None: all that were not
    answered yet). A call that `pending` leaves out is given up."""

    __slots__ = ("calls", "pending")

    def __init__(self, calls: Iterable[HostCall] = (), pending: Optional[Iterable[int]] = None):
        self.calls: List[HostCall] = list(calls)
        self.pending: Optional[List[int]] = None if pending is None else list(pending)

    def _json(self) -> dict:
        for call in self.calls:
            if not isinstance(call, HostCall):
                raise TypeError(f"Suspended.calls are HostCall, not {type(call).__name__}")
        made: dict = {"calls": [c._json() for c in self.calls]}
        if self.pending is not None:
            made["pending"] = self.pending
        return made

    def __repr__(self) -> str:
        return f"Suspended({self.calls!r}, {self.pending!r})"


class Backend:
    """A live session of one agent. Subclass it, or write any object with these three methods, each `def` or
    `async def`. It is asked one thing at a time."""

    def start(self, code: str) -> Any:
        """Runs `code` as a cell: `Finished`, or `Suspended` while host calls are unanswered."""
        raise NotImplementedError

    def resume(self, results: List[CallResult]) -> Any:
        """Goes on with a suspended cell, with the results that came meanwhile; there may be none."""
        raise NotImplementedError

    def close(self) -> Any:
        """Ends the session, whatever it does."""


def waiting(future: Any) -> Any:
    """On an event loop something to await, elsewhere what the future brings."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return future.result()
    return asyncio.wrap_future(future)
