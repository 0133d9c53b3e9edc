"""What is changed in this process while local sessions live, so that code of a session meets its own streams and
loops, and all other code what it had. Everything is put back when the last one has ended."""
from __future__ import annotations

import _thread
import asyncio
import sys
import threading
import warnings
from typing import Any

from . import _worker

STREAMS = ("stdin", "stdout", "stderr")


class _OfThread(_thread._local):
    session: Any = None
    owns_directory = False


OF_THREAD = _OfThread()


def current() -> Any:
    """The session that the calling thread belongs to, or None."""
    return OF_THREAD.session


class Route:
    """Stands where `print()` and `input()` find a stream of `sys`, and hands on to the thread's own."""

    def __init__(self, name: str):
        self.name = name
        self.outside: Any = None

    def target(self) -> Any:
        session = OF_THREAD.session
        return self.outside if session is None else session.place.streams[self.name]

    def set_target(self, stream: Any) -> None:
        session = OF_THREAD.session
        if session is None:
            self.outside = stream
        else:
            session.place.streams[self.name] = stream

    def write(self, text: str) -> Any:
        return self.target().write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target(), name)


ROUTES = {name: Route(name) for name in STREAMS}


def _property(route: Route) -> property:
    return property(lambda _: route.target(), lambda _, stream: route.set_target(stream))


# `sys.stdout = ...`, as contextlib.redirect_stdout does it, is for the session alone that does it.
_RoutedSys = type("module", (type(sys),), {name: _property(route) for name, route in ROUTES.items()})


class Changes:
    """Counts who needs them: sessions, and threads that agents' code has started."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.users = 0
        self.make_in_asyncio, self.undo_in_asyncio = _worker.changes_of_asyncio(current, asyncio)

    def hold(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.make()

    def release(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.undo()

    def make(self) -> None:
        for name, route in ROUTES.items():
            route.outside = sys.__dict__[name]
        self.sys_class, sys.__class__ = sys.__class__, _RoutedSys
        sys.__dict__.update(ROUTES)
        self.make_in_asyncio()
        self.thread_start, threading.Thread.start = threading.Thread.start, _start_thread
        self.warn, warnings._warn_unawaited_coroutine = warnings._warn_unawaited_coroutine, _note_unawaited

    def undo(self) -> None:
        """A `print()` of another thread may have found a route just now: they go on to lead outside."""
        sys.__dict__.update((name, route.outside) for name, route in ROUTES.items())
        sys.__class__ = self.sys_class
        self.undo_in_asyncio()
        if threading.Thread.start is _start_thread:
            threading.Thread.start = self.thread_start
        warnings._warn_unawaited_coroutine = self.warn


CHANGES = Changes()


def _start_thread(thread: threading.Thread) -> None:
    """`Thread.start`: a thread that a session's code starts belongs to the session."""
    session = OF_THREAD.session
    if session is not None:
        run = thread.run

        def run_in_session() -> None:
            del thread.run
            CHANGES.hold()
            OF_THREAD.session = session
            try:
                run()
            except BaseException:
                _worker.show_thread_error(threading.ExceptHookArgs((*sys.exc_info(), thread)))
            finally:
                OF_THREAD.session = None
                CHANGES.release()

        thread.run = run_in_session
    CHANGES.thread_start(thread)


def _note_unawaited(coroutine: Any) -> None:
    session = OF_THREAD.session
    cells = None if session is None else session.place.cells  # none yet: it is somebody else's
    if cells is None:
        CHANGES.warn(coroutine)
    else:
        cells.note_unawaited(coroutine)
