"""Threads for what blocks."""
from __future__ import annotations

import collections
import queue
import threading
from typing import Any, Callable, Deque

IDLE_S = 1.0  # for which a thread waits for other work: to start one takes as long as a turn of an agent


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


class Pool:
    """At most `size` threads at once, for sync clients and tools; what they run raises nothing."""

    def __init__(self, size: int):
        self.size = size
        self._waiting: Deque[tuple] = collections.deque()
        self._lock = threading.Lock()
        self._running = 0

    def submit(self, function: Callable, *args: Any) -> None:
        with self._lock:
            self._waiting.append((function, args))
            if self._running == self.size:
                return
            self._running += 1
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
                function, args = self._waiting.popleft()
            function(*args)
            del function, args
