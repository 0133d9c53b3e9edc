"""Threads for what blocks."""
from __future__ import annotations

import collections
import queue
import threading
import warnings
from typing import Any, Callable, Deque, List

from .values import describe

IDLE_S = 1.0  # for which a thread waits for other work: to start one takes as long as a turn of an agent
MOST_GIVEN_UP = 64  # threads that are replaced while they go on


class _Threads:
    """Those of all pools of the process. They are daemons, so that one that never returns keeps no process from its
    end."""

    def __init__(self) -> None:
        self.work: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.idle = 0  # that no work has been put up for yet

    def run(self, function: Callable[[], None]) -> None:
        with self.lock:
            if self.idle:
                self.idle -= 1
                self.work.put(function)
                return
        threading.Thread(target=self.serve, args=[function], name="rlmflow", daemon=True).start()

    def serve(self, function: Any) -> None:
        while function is not None:
            function()
            del function
            with self.lock:
                self.idle += 1
            function = self.next()

    def next(self) -> Any:
        try:
            return self.work.get(timeout=IDLE_S)
        except queue.Empty:
            with self.lock:
                if self.idle:
                    self.idle -= 1
                    return None
            return self.work.get()  # put up just now


_threads = _Threads()


class _Work:
    """A call that waits for a thread, or has one."""

    def __init__(self, key: Any, function: Callable, args: tuple):
        self.key, self.function, self.args = key, function, args


class Pool:
    """At most `size` threads at once, for sync clients and tools. One whose call is
    given up does not count any more, and is gone when that returns."""

    def __init__(self, size: int):
        self.size = size
        self._waiting: Deque[_Work] = collections.deque()
        self._begun: List[_Work] = []
        self._lock = threading.Lock()
        self._running = self._given_up = 0

    def submit(self, key: Any, function: Callable, *args: Any) -> None:
        """`key` names the call for `give_up`."""
        with self._lock:
            self._waiting.append(_Work(key, function, args))
            if self._running == self.size:
                return
            self._running += 1
        _threads.run(self._serve)

    def give_up(self, key: Any) -> None:
        """Nobody waits for the call any more: if it has not begun, it does not."""
        with self._lock:
            waiting = [work for work in self._waiting if work.key == key]
            begun = [work for work in self._begun if work.key == key]
            if waiting:
                self._waiting.remove(waiting[0])
            if not begun or self._given_up == MOST_GIVEN_UP:
                return
            self._begun.remove(begun[0])
            self._given_up += 1
            if not self._waiting:
                self._running -= 1
                return
        _threads.run(self._serve)

    def close(self) -> None:
        """Nobody waits any more for what has not begun."""
        with self._lock:
            self._waiting.clear()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                work = self._waiting.popleft()
                self._begun.append(work)
            try:
                work.function(*work.args)
            except BaseException as e:  # the place of the call, and whoever waits for its answer, are let go of all the same
                warnings.warn(f"a call in a thread was not answered: {describe(e)}")
            with self._lock:
                if work not in self._begun:  # given up: another thread has this one's place
                    self._given_up -= 1
                    return
                self._begun.remove(work)
            del work
