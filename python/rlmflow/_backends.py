"""The backends of a run whose runtime overrides `open`: each session's questions, on the caller's event loop."""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import json
import threading
import warnings
from typing import Any, Callable, Dict, List, Optional, Set

from .sessions import Backend, CallResult, Finished, HostCall, SessionDied, Suspended, waiting
from .values import describe

OPEN, START, RESUME, CLOSE, INNER = range(5)
READY, FINISHED, SUSPENDED, DIED = range(4)  # outcomes of the inner session
CLOSE_S = 10

# What a hook raises to those who run it; all else is an answer of its own.
PASSING = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


def in_thread(function: Callable, *args: Any) -> "asyncio.Future":
    """Calls it in a daemon thread: one that never returns keeps neither the run nor the process."""
    future: concurrent.futures.Future = concurrent.futures.Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            result, error = context.run(function, *args), None
        except BaseException as e:
            result, error = None, e
        if not future.cancelled():
            try:
                future.set_exception(error) if error is not None else future.set_result(result)
            except concurrent.futures.InvalidStateError:
                pass  # cancelled just now

    threading.Thread(target=work, name="rlmflow-backend", daemon=True).start()
    return asyncio.wrap_future(future)


async def invoke(function: Callable, *args: Any) -> Any:
    """Calls a method of the user's, `def` or `async def`."""
    if inspect.iscoroutinefunction(function) or isinstance(getattr(function, "__self__", None), Inner):
        result = function(*args)
    else:
        result = await in_thread(function, *args)
    return await result if inspect.isawaitable(result) else result


class Inner(Backend):
    """The session that a wrapper delegates to. It is there when it has been awaited, or when the wrapper's `open` has
    returned."""

    def __init__(self, session: "Session"):
        self._session = session

    def __await__(self) -> Any:
        yield from asyncio.wrap_future(self._session.ready).__await__()
        return self

    def start(self, code: str) -> Any:
        return waiting(self._session.delegate("inner_start", code))

    def resume(self, results: List[CallResult]) -> Any:
        return waiting(self._session.delegate_resume(results))

    def close(self) -> Any:
        self._session.handle.inner_close()
        done: concurrent.futures.Future = concurrent.futures.Future()
        done.set_result(None)
        return waiting(done)


def _nobody(why: str) -> None:
    """Is told of a failure that no question waits for."""


class Session:
    """One backend of the user's and, if it has one, the session that it wraps."""

    def __init__(self, drive: Any, handle: Any, agent_id: str):
        self.drive: Any = drive
        self.handle, self.agent_id = handle, agent_id
        self.backend: Any = None
        self.inner: Optional[Inner] = None
        self.ready: concurrent.futures.Future = concurrent.futures.Future()
        self.outcome: Optional[concurrent.futures.Future] = None
        self.task: Optional[asyncio.Task] = None
        self.fail: Callable[[str], Any] = _nobody  # the question that the task answers
        self.answers: Dict[int, Any] = {}  # of done(), by call
        self.answer: Any = None

    # What the engine asks.

    async def open(self, step: int) -> None:
        runtime = self.drive.flow.runtime
        try:
            backend = await invoke(runtime.open, self.drive.root[self.agent_id])
            for name in ("start", "resume", "close"):
                if not callable(getattr(backend, name, None)):
                    raise TypeError(f"{type(runtime).__name__}.open returned {type(backend).__name__}, which has no "
                                    f"{name}()")
            self.backend = backend
            if self.inner is not None:
                await asyncio.wrap_future(self.ready)
            self.handle.opened(step)
        except PASSING:
            raise
        except BaseException as e:
            self.handle.fail(step, f"open raised {describe(e)}")

    async def ask(self, step: int, name: str, what: Any) -> None:
        method = getattr(self.backend, name)
        try:
            outcome = await invoke(method, what)
            if isinstance(outcome, Finished):
                self.handle.finished(step, json.dumps(outcome._json()))
            elif isinstance(outcome, Suspended):
                self.handle.suspended(step, json.dumps(outcome._json()))
            else:
                raise TypeError(f"{type(self.backend).__name__}.{name} returned {type(outcome).__name__}; it must "
                                "return a Finished or a Suspended")
        except PASSING:
            raise
        except BaseException as e:
            self.handle.fail(step, f"{name} raised {describe(e)}")

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
        gone = SessionDied("closed", "the session was closed")
        for future in (self.ready, self.outcome):
            if future is not None and not future.done():
                future.set_exception(gone)
        if self.backend is not None:
            try:
                await invoke(self.backend.close)
            except PASSING:
                raise
            except BaseException as e:
                warnings.warn(f"close of {type(self.backend).__name__} raised {describe(e)}")
        # It keeps nothing: the drive goes with its last graph, whoever has this, and no cycle waits for the collector.
        self.drive = self.backend = self.inner = self.outcome = self.task = None
        self.fail = _nobody

    # The session that it wraps.

    def open_inner(self, runtime: Any) -> Inner:
        self.drive.run.open_inner(self.handle, self.drive.backends.engine_runtime(runtime))
        self.inner = Inner(self)
        return self.inner

    def delegate(self, method: str, text: str) -> concurrent.futures.Future:
        outcome: concurrent.futures.Future = concurrent.futures.Future()
        self.outcome = outcome
        getattr(self.handle, method)(text)
        return outcome

    def delegate_resume(self, results: List[CallResult]) -> concurrent.futures.Future:
        for result in results:
            if not isinstance(result, CallResult):
                raise TypeError(f"results are CallResult, not {type(result).__name__}")
            if result.id in self.answers and result.error is None:
                self.answer = self.answers[result.id]
        return self.delegate("inner_resume", json.dumps([r._json() for r in results]))

    def on_inner(self, what: int, text: str) -> None:
        future = self.outcome if self.ready.done() else self.ready
        if future is None or future.done():
            return
        raw = json.loads(text)
        if what == READY:
            future.set_result(None)
        elif what == DIED:
            future.set_exception(SessionDied(raw["reason"], raw["message"], raw["output"]))
        elif what == FINISHED:
            future.set_result(Finished._of(raw, self.answer))
            self.answers, self.answer = {}, None
        else:
            calls = [HostCall._of(call, self.handle.read) for call in raw["calls"]]
            for call, one in zip(calls, raw["calls"]):
                if call.name == "done":
                    self.answers[call.id] = call.args[0] if one["args"] else call.kwargs.get("text")
            future.set_result(Suspended(calls, raw["pending"]))


class Backends:
    """All of one drive."""

    def __init__(self, drive: Any):
        self.drive = drive
        self.sessions: Dict[Any, Session] = {}
        self.opening: Dict[str, Session] = {}  # by agent
        self.closing: Set[asyncio.Task] = set()
        self.wrapped: Dict[Any, Any] = {}  # runtimes whose sessions are wrapped, as the engine knows them

    def engine_runtime(self, runtime: Any) -> Any:
        if runtime not in self.wrapped:
            self.wrapped[runtime] = runtime._engine_runtime(self.drive.tools)
        return self.wrapped[runtime]

    def take(self, handle: Any, question: int, step: int, text: str) -> None:
        if question == OPEN:
            session = self.sessions[handle] = self.opening[text] = Session(self.drive, handle, text)
            self.begin(session, step, "open", self.open(session, step))
            return
        session = self.sessions[handle]
        if question == START:
            self.begin(session, step, "start", session.ask(step, "start", text))
        elif question == RESUME:
            results = [CallResult._of(raw, handle.read) for raw in json.loads(text)]
            self.begin(session, step, "resume", session.ask(step, "resume", results))
        elif question == INNER:
            session.on_inner(step, text)
        else:
            del self.sessions[handle]
            task = self.drive.loop.create_task(session.close())
            self.closing.add(task)
            task.add_done_callback(self.closing.discard)

    async def open(self, session: Session, step: int) -> None:
        try:
            await session.open(step)
        finally:
            if self.opening.get(session.agent_id) is session:
                del self.opening[session.agent_id]

    def begin(self, session: Session, step: int, name: str, coroutine: Any) -> None:
        def fail(why: str) -> None:
            if session.drive is not None:
                session.handle.fail(step, f"{name} {why}")

        session.fail = fail
        session.task = self.drive.loop.create_task(coroutine)
        session.task.add_done_callback(lambda task: self.drive.blame(fail) if task.cancelled() else task.exception())

    def give_up_closed_loop(self, why: str) -> None:
        self.closing.clear()
        for session in self.sessions.values():
            if session.task is not None and not session.task.done():
                session.task = None
                session.fail(why)

    async def end(self) -> None:
        """Waits for those that the end of the run closes."""
        if self.closing:
            late = (await asyncio.wait(set(self.closing), timeout=CLOSE_S))[1]
            for task in late:
                task.cancel()
            if late:
                warnings.warn(f"{len(late)} backends were not closed within {CLOSE_S} s of the end of the run")


def open_inner(runtime: Any, graph: Any) -> Inner:
    """What Runtime.open does."""
    backends = graph._drive and graph._drive.backends
    session = backends and backends.opening.get(graph.agent_id)
    if session is None:
        raise RuntimeError("open opens the session of an agent whose run asks for it")
    return session.open_inner(runtime)
