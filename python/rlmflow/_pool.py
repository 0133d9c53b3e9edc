"""Threads for what blocks."""
from __future__ import annotations

import queue
import threading
from typing import Any, Callable


class Pool:
    """At most `size` threads, made as needed, for sync clients and tools. They are daemons, so that one that
    never returns keeps no process from its end; what they run raises nothing."""

    def __init__(self, size: int):
        self.size = size
        self._work: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._idle = 0

    def submit(self, function: Callable, *args: Any) -> None:
        self._work.put((function, args))
        with self._lock:
            if self._idle:
                self._idle -= 1  # it takes this up
                return
            if self._threads == self.size:
                return
            self._threads += 1
        threading.Thread(target=self._serve, name="rlmflow", daemon=True).start()

    def shutdown(self) -> None:
        """Ends the threads once all work has been done; does not wait for it."""
        with self._lock:
            for _ in range(self._threads):
                self._work.put(None)

    def _serve(self) -> None:
        for function, args in iter(self._work.get, None):
            function(*args)
            del function, args
            with self._lock:
                self._idle += 1
