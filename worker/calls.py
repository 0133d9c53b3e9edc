"""One host call, from when it is made until its waiter has the answer."""
import sys

from .errors import make_error


class Call:
    """A host call that waits for its answer; `event` or `future` is its waiter's."""

    __slots__ = ("id", "body", "loop", "future", "event", "done", "value", "error")

    def __init__(self, body):
        self.id = 0
        self.body = body
        self.loop = self.future = self.event = self.error = self.value = None
        self.done = False

    def answer(self, value, error):
        """Hands the result to its waiter, in whatever thread that is."""
        self.value = value
        self.error = error
        self.done = True
        if self.event is not None:
            self.event.release()
        elif self.future is not None:
            if asyncio_running_loop() is self.loop or self.loop.is_closed():
                self.settle()
            else:
                try:
                    self.loop.call_soon_threadsafe(self.settle)
                except RuntimeError:
                    pass

    def settle(self):
        if not self.future.done() and not self.loop.is_closed():
            self.future.set_result(None)

    def result(self):
        if self.error is not None:
            raise make_error(self.error)
        return self.value


def asyncio_running_loop():
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio is not None else None
