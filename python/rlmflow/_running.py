"""Running a coroutine to its end from code that is not async: on a loop in the calling thread, so that hooks may ask
whoever sits there, or on a helper thread where the calling thread has a running loop."""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import signal
import sys
import threading
import types
import warnings
from typing import Any, Callable, Coroutine, Iterator, Optional

WAKE_S = 0.2  # a signal that comes just before a thread begins to wait does not wake it
LEFT_S = 2  # for which tasks that hooks leave behind are waited for

# What stands on the stack when none of the user's code does; 3.9 does not know the names of its own modules.
_PLUMBING = frozenset(getattr(sys, "stdlib_module_names", (
    "asyncio", "concurrent", "contextlib", "contextvars", "dataclasses", "inspect", "json", "queue", "selectors",
    "threading", "typing", "weakref"))) | {"rlmflow", "uvloop"}


class _Loop:
    """A thread's loop, kept from run to run: to make one takes as long as a whole turn of an agent."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.made_by = _maker()

    def __del__(self) -> None:
        if self.made_by[0] == os.getpid():
            self.loop.close()


class _Kept(threading.local):
    loop: Optional[_Loop] = None


_kept = _Kept()


def _maker() -> tuple:
    return os.getpid(), getattr(asyncio.events, "_event_loop_policy", None)


def close_kept_loop() -> None:
    """Of this thread."""
    _kept.loop = None


def run(coroutine: Coroutine) -> Any:
    """What the coroutine returns. On Ctrl-C it is cancelled, and KeyboardInterrupt is raised when it has come to its
    end; where code of the user's is at work, KeyboardInterrupt is raised there. A second one ends it at once."""
    return _run_in_thread(coroutine) if _is_in_a_loop() else _Runner(coroutine).run()


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
        return True
    except RuntimeError:
        return False


class _Runner:
    def __init__(self, coroutine: Coroutine):
        self.coroutine = coroutine
        self.loop: Any = None
        self.task: Any = None
        self.was_interrupted = self.was_given_up = False

    def run(self) -> Any:
        kept, _kept.loop = _kept.loop, None
        if kept is None or kept.made_by != _maker():
            kept = _Loop()
        self.loop = kept.loop
        self.task = self.loop.create_task(self.coroutine)
        try:
            with _interrupts(self.on_interrupt):
                result = self.loop.run_until_complete(self.task)
        except asyncio.CancelledError:
            if self.was_interrupted:
                raise KeyboardInterrupt from None
            raise
        finally:
            self.finish()
        if not self.is_used():
            _kept.loop = kept
        return result

    def is_used(self) -> bool:
        """Something of this run is left on the loop."""
        return bool(asyncio.all_tasks(self.loop) or getattr(self.loop, "_ready", True)
                    or getattr(self.loop, "_asyncgens", True) or getattr(self.loop, "_default_executor", True))

    def finish(self) -> None:
        if self.was_given_up:
            return
        if not self.task.done():  # an exception came from a callback, or a hook wants to leave the program
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                self.loop.run_until_complete(self.task)
        if self.is_used():
            self.loop.run_until_complete(self.clean_up())

    async def clean_up(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            late = (await asyncio.wait(left, timeout=LEFT_S))[1]
            if late:
                warnings.warn(f"{len(late)} tasks go on {LEFT_S} s after they were cancelled; they are given up")
        await self.loop.shutdown_asyncgens()

    def on_interrupt(self, number: int, frame: Optional[types.FrameType]) -> None:
        self.was_given_up = self.was_interrupted
        if self.was_interrupted or _is_foreign(frame):
            raise KeyboardInterrupt
        self.cancel()

    def cancel(self) -> None:
        """From any thread, or a handler of a signal."""
        self.was_interrupted = True
        if self.task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self.loop.call_soon_threadsafe(self.task.cancel)


def _is_foreign(frame: Optional[types.FrameType]) -> bool:
    """Whether code of the user's is at work on the loop."""
    while frame is not None and frame.f_code is not _Runner.run.__code__:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _PLUMBING:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _interrupts(handler: Callable) -> Iterator[None]:
    """Has Ctrl-C handled in the main thread, unless the program itself does."""
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.getsignal(signal.SIGINT)
        if not (before is signal.default_int_handler or _is_of_asyncio(before)):
            before = None
    if before is not None:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _is_of_asyncio(handler: Any) -> bool:
    return getattr(getattr(handler, "func", handler), "__module__", "") == "asyncio.runners"


def _run_in_thread(coroutine: Coroutine) -> Any:
    """Blocks the running loop meanwhile. A hook that blocks there hears of no Ctrl-C; a second one leaves it behind."""
    runner, context = _Runner(coroutine), contextvars.copy_context()
    outcome: concurrent.futures.Future = concurrent.futures.Future()

    def work() -> None:
        try:
            result = context.run(runner.run)
        except BaseException as e:
            outcome.set_exception(e)
        else:
            outcome.set_result(result)
        finally:
            close_kept_loop()

    def on_interrupt(number: int, frame: Optional[types.FrameType]) -> None:
        if runner.was_interrupted:
            raise KeyboardInterrupt
        runner.cancel()

    try:
        with _interrupts(on_interrupt):
            threading.Thread(target=work, name="rlmflow run", daemon=True).start()
            while not concurrent.futures.wait([outcome], WAKE_S).done:
                pass
            return outcome.result()
    except BaseException:
        if not outcome.done() and not runner.was_interrupted:  # a handler of the program's raised it here
            runner.cancel()
            concurrent.futures.wait([outcome])
        raise
    finally:
        del runner, outcome  # which hold an error with its graph
