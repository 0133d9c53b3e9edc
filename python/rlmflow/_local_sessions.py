"""Local sessions: threads that take one after the other, and the place that each has in this process."""
from __future__ import annotations

import _thread
import builtins
import functools
import io
import itertools
import linecache
import os
import threading
import weakref
from typing import Any, Dict, List, Optional, Set

from . import _engine, _worker
from ._local_changes import CHANGES, OF_THREAD

IDLE_S = 1.0  # for which a thread waits for another session
COPIED = "a mapped text is never let go of, which a process that goes on after its session cannot afford"


class Imports:
    """As the worker's, for modules that have all been imported."""

    @staticmethod
    def when(name: str, action: Any) -> None:
        if name == "linecache":
            action(linecache)
        elif name == "inspect":
            import inspect

            action(inspect)
        elif name == "asyncio":
            import asyncio

            action(asyncio)


class Place:
    """Where a session runs: see `Process` of the worker. It changes nothing but its own thread."""

    imports = Imports()
    numbers = itertools.count(1)

    def __init__(self, agent_id: str):
        self.agent_id = agent_id
        self.monitor = monitor()
        self.cell_mark = " #%d" % next(self.numbers)
        self.cells: Any = None
        self.tools: Dict[str, Any] = {}

    def leave(self, status: int = 0) -> None:
        raise _worker.SessionOver

    close = leave

    def interrupt(self, session: Any) -> None:
        """Raises in the agent's code what ends the cell, or after the session's end what leaves the thread."""
        interrupt = session.interrupt
        if session.over:
            _engine.interrupt_thread(session.main_thread, _worker.SessionOver, _worker.__dict__, _worker.AGENT_BELOW)
        elif interrupt is not None:
            kind = _interruption(interrupt.get("message", ""))
            if _engine.interrupt_thread(session.main_thread, kind, _worker.__dict__, _worker.AGENT_BELOW):
                session.interrupt = None

    def leave_agent(self) -> None:
        """An interrupt that came too late strikes at the call of this."""

    def adopt(self, module: Any, keep: Any) -> dict:
        """The builtins of one session: the module's are everybody's."""
        return {**builtins.__dict__, _worker.KEEP: keep}

    def new_loop(self, asyncio: Any) -> Any:
        return asyncio.SelectorEventLoop()  # whatever the policy is: it makes the host calls

    def make_streams(self, session: Any) -> None:
        self.own = {"stdin": _worker.NoInput(io.BytesIO(), "utf-8"),
                    "stdout": _worker.OutputStream(session, 1, "<stdout>"),
                    "stderr": _worker.OutputStream(session, 2, "<stderr>")}
        self.streams = dict(self.own)

    def restore_streams(self) -> bool:
        if self.streams == self.own:
            return False
        self.streams = dict(self.own)
        return True


@functools.lru_cache(maxsize=16)
def _interruption(message: str) -> type:
    """The class of an interrupt with this message: what is raised from another thread has no arguments."""
    return type("CellInterrupted", (_worker.CellInterrupted,), {
        "__module__": "__main__", "__init__": lambda self: super(_worker.CellInterrupted, self).__init__(message)})


@functools.lru_cache(maxsize=None)
def monitor() -> Any:
    """One for all sessions of the process."""
    made = _worker.Monitor()
    thread = threading.Thread(target=made.run, name="rlmflow monitor", daemon=True)
    thread.start()
    os.register_at_fork(after_in_child=_forget_sessions)
    return made


def _forget_sessions() -> None:
    """In a forked child: the sessions are the parent's."""
    for session in monitor().sessions:
        _worker.forget_host(session)
        for name in ("stdout", "stderr"):
            stream = session.place.own[name]
            stream.write = stream.write_plainly
    if OF_THREAD.session is None and CHANGES.users:
        CHANGES.undo()


_OWN = os.path.dirname(os.__file__) + os.sep


def shown_file(name: str) -> str:
    """How a file of this process is called in tracebacks: those of agents have no name, and where the user's lie is
    none of an agent's business."""
    return name if name.startswith(("<", _OWN)) else os.path.basename(name)


_worker.shown_file = shown_file


# ---- one session


def run_session(engaged: "Engaged", rfd: int, wfd: int, agent_id: str) -> None:
    """The whole life of a session, in this thread."""
    place = Place(agent_id)
    session = _worker.Session(rfd, wfd, place)
    session.values.why, session.values.shared = COPIED, engaged.blobs
    place.make_streams(session)
    place.monitor.add(session)
    CHANGES.hold()
    OF_THREAD.session = session
    engaged.sessions.add(session)
    try:
        session.open()
        go_to(engaged.working_directory)
        place.tools = engaged.by_reference
        place.cells = _worker.open_session(session)
        _worker.run_cells(session, place.cells)
    except _worker.SessionOver:
        pass
    except BaseException as e:
        tell_failure(session, e)
    finally:
        OF_THREAD.session = None
        engaged.sessions.discard(session)
        end_session(session)
        CHANGES.release()


def go_to(directory: Optional[str]) -> None:
    """The thread's own working directory: first that of the process, for an earlier session left another."""
    if OF_THREAD.owns_directory:
        os.chdir("/proc/self/cwd")
        if directory is not None:
            os.chdir(directory)
    elif directory is not None:
        raise RuntimeError("this system gives threads no working directory of their own (unshare(CLONE_FS) is not "
                           "allowed): use LocalRuntime without working_directory, or SubprocessRuntime")


def tell_failure(session: Any, error: BaseException) -> None:
    known = isinstance(error, (OSError, RuntimeError))
    try:
        session.channel.fatal(_worker.describe_exception(error) if known else _worker.describe_failure(error))
    except _worker.SessionOver:
        pass


def end_session(session: Any) -> None:
    session.place.monitor.remove(session)
    if session.reader != session.main_thread:
        session.start_reading()  # the monitor is not at it any more
    with session.lock:
        session.in_cell = False
        session.abandon_calls()
    cells = session.place.cells
    if cells is not None:
        if cells.loop is not None and not cells.loop.is_closed():
            cells.loop.close()
        for name in cells.sources:
            linecache.cache.pop(name, None)
    close_channel(session.channel)


def close_channel(channel: Any) -> None:
    """Threads that the agent leaves behind find no descriptor, rather than one that has become another's."""
    with channel.send_lock:
        wfd, channel.wfd, channel.rfd = channel.wfd, -1, -1
    channel.socket.close()
    os.close(wfd)


# ---- threads


class Engaged:
    """What the sessions of one run share."""

    def __init__(self, working_directory: Optional[str], by_reference: Dict[str, Any]):
        self.working_directory = working_directory
        self.by_reference = by_reference
        self.sessions: Set[Any] = set()
        self.blobs: Dict[str, Any] = {}  # big inputs, of which there is one object for all sessions

    def abandoned(self) -> List[str]:
        return [s.place.agent_id for s in tuple(self.sessions) if s.over]


class Threads:
    """Daemon threads that wait for sessions. One that takes a session sees to it that another one waits."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.waiting = 0
        self.keys = itertools.count(1)
        self.engaged: Any = weakref.WeakValueDictionary()

    def engage(self, engaged: Engaged) -> Any:
        """A runtime of the engine's whose sessions come here."""
        key = next(self.keys)
        self.engaged[key] = engaged
        made = _engine.Runtime.local(key, engaged)
        self.ensure_one()
        return made

    def ensure_one(self) -> None:
        with self.lock:
            wanted = self.waiting == 0
            self.waiting += wanted
        if wanted:
            threading.Thread(target=self.serve, name="rlmflow session", daemon=True).start()

    def serve(self) -> None:
        try:
            _engine.own_directory()
            OF_THREAD.owns_directory = True
        except OSError:
            pass
        while True:
            offer = _engine.take_session(IDLE_S)
            with self.lock:
                if offer is not None or self.waiting > 1 or not self.engaged:
                    self.waiting -= 1
                    if offer is None:
                        return
            if offer is not None:
                self.ensure_one()
                self.take(*offer)
                with self.lock:
                    self.waiting += 1

    def take(self, key: int, rfd: int, wfd: int, agent_id: str) -> None:
        engaged = self.engaged.get(key)
        if engaged is None:
            os.close(rfd)
            os.close(wfd)
            return
        thread = threading.current_thread()
        thread.name = "rlmflow " + agent_id
        run_session(engaged, rfd, wfd, agent_id)
        thread.name = "rlmflow session"


THREADS = Threads()
