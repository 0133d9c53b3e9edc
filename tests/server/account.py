"""What the server counts for itself, whatever usage a rule makes it report.

`Account.stats()` gives the totals, every `Record` one request. Tokens are those of tokens.py.
`output_tokens` are what was handed to the connection; what a provider would bill is
`input_tokens + output_tokens`, where input includes cached tokens and cache writes.
"""

import hashlib
import time
from collections import Counter, OrderedDict, deque

MAX_CACHE_ENTRIES = 100_000
OPENAI_CACHE_STEP_TOKENS = 128

_SUMS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
         "reasoning_tokens", "events", "over_max_tokens", "bytes_in", "bytes_out")


class Record:
    """One request. `outcome` is None while it is open, then "answered", "error" (an HTTP error),
    "error_in_stream", "cut", "stalled" (until the client left) or "client_left". Times are seconds
    of the monotonic clock."""

    FIELDS = ("n", "api", "method", "path", "headers", "body", "connection", "model", "stream",
              "rule", "status", "outcome", "error", "max_tokens", "max_tokens_field", "concurrent",
              "received_at", "finished_at", "stalled") + _SUMS
    __slots__ = FIELDS

    def __init__(self, **known):
        for name in self.FIELDS:
            setattr(self, name, 0 if name in _SUMS else None)
        for name, value in known.items():
            setattr(self, name, value)

    @property
    def billed_tokens(self):
        """What a provider would bill, in tokens."""
        return self.input_tokens + self.output_tokens

    def to_json(self):
        """The record as a dict."""
        return {**{name: getattr(self, name) for name in self.FIELDS},
                "billed_tokens": self.billed_tokens}


class PromptCache:
    """Which beginnings of prompts a provider would have cached, by model.

    OpenAI: every boundary of a message is remembered, and the longest known one of at least
    `min_tokens` counts, rounded down to 128 tokens. Anthropic: only what ends at a `cache_control`
    is remembered; the longest known beginning before the last mark is read, and what follows it up
    to that mark is a cache write.
    """

    def __init__(self, min_tokens=1024):
        self.min_tokens = min_tokens
        self._known = OrderedDict()

    def clear(self):
        """Forgets everything."""
        self._known.clear()

    def _add(self, key):
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > MAX_CACHE_ENTRIES:
            self._known.popitem(last=False)

    def look_up(self, request):
        """(tokens read, tokens written) for a request, which is then remembered."""
        chain = hashlib.blake2b(f"{request.api}\0{request.model}".encode(), digest_size=16)
        anthropic = request.api == "anthropic"
        last = max((i for i, s in enumerate(request.segments) if s[2]), default=-1)
        total = read = marked = 0
        keys = []
        for index, (tokens, text, mark) in enumerate(request.segments):
            chain.update(b"%d:" % len(text))
            chain.update(text)
            total += tokens
            if total < self.min_tokens or (anthropic and index > last):
                continue
            key = chain.digest()
            if key in self._known:
                read = total
            if mark or not anthropic:
                keys.append(key)
                marked = total
        for key in keys:
            self._add(key)
        if anthropic:
            return read, marked - read
        return read // OPENAI_CACHE_STEP_TOKENS * OPENAI_CACHE_STEP_TOKENS, 0


class Account:
    """Totals and records since the last reset. At most `max_records` records are kept, the newest,
    and of these the newest bodies, as far as `max_body_bytes` goes (0: none; an older record's body
    is None); the totals go on."""

    def __init__(self, max_records=20_000, max_body_bytes=256 << 20, prices=None):
        self.max_records = max_records
        self.max_body_bytes = max_body_bytes
        self.prices = prices or {}
        self.open_requests = 0
        self.open_connections = 0
        self.next_n = 1
        self.clear()

    def clear(self):
        """Starts anew. Requests that are open stay open, but count no more in the totals."""
        self.records = deque(maxlen=self.max_records)
        self._with_body = deque()
        self._body_bytes = 0
        self.sums = Counter()
        self.statuses = Counter()
        self.outcomes = Counter()
        self.requests = 0
        self.cost_usd = 0.0
        self.stalls = 0
        self.connections = 0
        self.max_connections = self.open_connections
        self.max_concurrent = self.open_requests
        self._open = set()
        self.next_n = 1

    def connection_opened(self):
        """Counts a connection."""
        self.connections += 1
        self.open_connections += 1
        self.max_connections = max(self.max_connections, self.open_connections)

    def connection_closed(self):
        """Counts the end of a connection."""
        self.open_connections -= 1

    def begin(self, record):
        """Notes a request to a model."""
        self.open_requests += 1
        self.max_concurrent = max(self.max_concurrent, self.open_requests)
        self.requests += 1
        record.n = self.next_n
        self.next_n += 1
        record.concurrent = self.open_requests
        record.received_at = time.monotonic()
        self.records.append(record)
        self._open.add(record)

    def keep_body(self, record, body):
        """Keeps a body, and drops the oldest ones that it leaves no room for."""
        record.body = body
        if not record.bytes_in:
            return
        self._with_body.append(record)
        self._body_bytes += record.bytes_in
        while self._body_bytes > self.max_body_bytes:
            oldest = self._with_body.popleft()
            oldest.body = None
            self._body_bytes -= oldest.bytes_in

    def stall(self):
        """Notes that an answer stalls; its request stays open."""
        self.stalls += 1

    def finish(self, record, outcome):
        """Notes its end, once; called before the last bytes go out, so that whoever has read an
        answer finds it counted."""
        if record.outcome is not None:
            return
        record.outcome = outcome
        record.finished_at = time.monotonic()
        self.open_requests -= 1
        if record not in self._open:
            return
        self._open.discard(record)
        if record.max_tokens is not None:
            record.over_max_tokens = max(0, record.output_tokens - record.max_tokens)
        for name in _SUMS:
            self.sums[name] += getattr(record, name)
        self.statuses[str(record.status)] += 1
        self.outcomes[outcome] += 1
        self.cost_usd += self.cost(record)

    def cost(self, record):
        """US dollars of a request by `prices`: {model: {input, cached, cache_write, output}} in
        dollars for a million tokens; 0 for a model without a price."""
        price = self.prices.get(record.model)
        if not price:
            return 0.0
        plain = record.input_tokens - record.cached_tokens - record.cache_write_tokens
        return (plain * price["input"]
                + record.cached_tokens * price.get("cached", price["input"])
                + record.cache_write_tokens * price.get("cache_write", price["input"])
                + record.output_tokens * price["output"]) / 1e6

    def stats(self):
        """The totals, as a dict for JSON. Tokens are those of finished requests."""
        sums = {name: self.sums[name] for name in _SUMS}
        return {
            "requests": self.requests, "open_requests": self.open_requests,
            "max_concurrent": self.max_concurrent, **sums,
            "billed_tokens": sums["input_tokens"] + sums["output_tokens"],
            "cost_usd": self.cost_usd,
            "stalls": self.stalls,
            "statuses": dict(self.statuses), "outcomes": dict(self.outcomes),
            "connections": self.connections, "open_connections": self.open_connections,
            "max_connections": self.max_connections,
            "records_dropped": max(0, self.requests - len(self.records)),
        }
