"""The server on a thread of its own, for tests; `serve` runs it in the calling thread."""

import asyncio
import threading
import time

from .account import Account, PromptCache
from .app import App, Options

BACKLOG = 4096


class ModelServer:
    """A model server inside this process.

        with ModelServer(rules=[{"reply": "hello"}]) as server:
            client = openai.OpenAI(base_url=server.base_url, api_key="any")

    `rules`: see rules.py. `keys`, `models`, `allow_fields`, `alternate`: see app.Options. `prices`:
    see account.Account.cost. `cache_min_tokens`: the shortest prompt beginning that is cached.
    `max_records`, `max_body_bytes`: see account.Account. `base_url` is for clients that append
    /chat/completions, `anthropic_url` for those that append /v1/messages.
    """

    def __init__(self, rules=(), *, port=0, host="127.0.0.1", keys=None, models=None,
                 allow_fields=(), alternate=False, prices=None, cache_min_tokens=1024,
                 max_records=20_000, max_body_bytes=256 << 20):
        keys, models = (None if v is None else tuple(v) for v in (keys, models))
        allow_fields = None if allow_fields is None else tuple(allow_fields)
        self.app = App(Options(keys, models, allow_fields, alternate),
                       Account(max_records, max_body_bytes, prices), PromptCache(cache_min_tokens))
        self.app.set_rules(rules)
        self.host = host
        self.port = port
        self._loop = None
        self._thread = None
        self._problem = None

    @property
    def url(self):
        """The address of the test's own routes (/stats, ...)."""
        return f"http://{self.host}:{self.port}"

    @property
    def base_url(self):
        """The part before /chat/completions."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self):
        """The part before /v1/messages."""
        return self.url

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, exc_type, exc, trace):
        self.stop()
        if exc_type is None and self.app.faults:
            raise AssertionError("the test server or a rule's callable failed:\n"
                                 + "\n".join(self.app.faults))

    def start(self):
        """Binds the port and starts the thread."""
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="model server", daemon=True)
        self._thread.start()
        ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem

    def stop(self):
        """Drops all connections and ends the thread."""
        if self._thread is None or not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, ready):
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            listener = loop.run_until_complete(self.listen())
        except OSError as exc:
            self._problem = exc
            ready.set()
            loop.close()
            return
        ready.set()
        try:
            loop.run_forever()
        finally:
            listener.close()
            loop.run_until_complete(self._drop())
            loop.close()

    async def listen(self):
        """Binds the port in the running loop and returns the asyncio server."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            self.app.make_connection, self.host, self.port, backlog=BACKLOG)
        self.port = listener.sockets[0].getsockname()[1]
        return listener

    async def _drop(self):
        for connection in list(self.app.connections):
            connection.transport.abort()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def _call(self, function, *args):
        """Runs a function on the loop's thread and returns its result."""
        async def run():
            return function(*args)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def stats(self):
        """The totals (see account.py)."""
        return self._call(self.app.account.stats)

    @property
    def requests(self):
        """The records (see account.Record), oldest first."""
        return self._call(lambda: list(self.app.account.records))

    def set_rules(self, rules):
        """Replaces the rules; ValueError when one is wrong."""
        self._call(self.app.set_rules, rules)

    def reset(self):
        """Forgets records, totals, uses of rules, gates, prompt cache; the rules stay."""
        self._call(self.app.reset)

    def release(self, gate):
        """Lets through whoever waits at a gate of a rule."""
        self._call(self.app.release, gate)

    def wait_for(self, holds, timeout_s=20):
        """Waits until `holds(stats)` is true and returns these stats; AssertionError after
        `timeout_s`. For what the server learns late, such as a client that left."""
        deadline = time.monotonic() + timeout_s
        while True:
            stats = self.stats()
            if holds(stats):
                return stats
            if time.monotonic() > deadline:
                raise AssertionError(f"this never came to hold; the last stats: {stats}")
            time.sleep(0.005)

    def wait_idle(self, timeout_s=20):
        """Waits until no request is open and returns the stats."""
        return self.wait_for(lambda stats: stats["open_requests"] == 0, timeout_s)
