"""What both APIs have in common: a request that was understood, and a rule's reply to it."""

import difflib
import json
import math
import re
from dataclasses import dataclass, field

from . import tokens

MAX_REPLY_CHARS = 64 << 20

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class ApiError(Exception):
    """A request that the API refuses: HTTP status and JSON body."""

    def __init__(self, status, body):
        super().__init__(body)
        self.status = status
        self.body = body


@dataclass
class ChatRequest:
    """A valid request. `system` and `user` are the texts of the system messages and of the last
    user message; `messages` are (role, text); `segments` are (tokens, bytes, a cache mark ends
    here) in the order of the prompt. `n` counts model requests from 1."""

    api: str
    model: str
    body: dict
    headers: dict
    system: str = ""
    user: str = ""
    messages: list = field(default_factory=list)
    segments: list = field(default_factory=list)
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    max_tokens_field: str | None = None
    stop: list = field(default_factory=list)
    n: int = 0

    def add_message(self, role, blocks):
        """Adds a message of (text, cache mark) blocks."""
        extra = tokens.MESSAGE_TOKENS
        for text, mark in blocks or [("", False)]:
            key = f"{role}\0{text}".encode("utf-8")
            self.segments.append((tokens.count(text) + extra, key, mark))
            extra = 0
        text = "".join(text for text, _ in blocks)
        self.messages.append((role, text))
        if role in ("system", "developer"):
            self.system += text
        elif role == "user":
            self.user = text

    @property
    def input_tokens(self):
        """Tokens of the whole prompt."""
        return sum(segment[0] for segment in self.segments) + tokens.REQUEST_TOKENS


@dataclass
class Reply:
    """What is answered, after max_tokens and stop. `finish` is "stop", "length", "tool_calls",
    "stop_sequence" or what a rule says."""

    reasoning: str
    text: str
    calls: list
    finish: str
    stop_sequence: str | None
    reasoning_tokens: int
    output_tokens: int


def load_json(data):
    """The JSON of a body; ValueError for what the services refuse too: other encodings than UTF-8,
    NaN, and lone surrogates."""
    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    text = data.decode("utf-8")
    value = json.loads(text, parse_constant=refuse)
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def is_int(value):
    """An integer that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value):
    """A finite number that is no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def nearest(name, known):
    """A known name that `name` may be a misspelling of, or None."""
    found = difflib.get_close_matches(name, known, n=1)
    return found[0] if found else None


def make_reply(rule, text, request):
    """The reply of a rule whose text was chosen."""
    if len(text) * rule.repeat > MAX_REPLY_CHARS:
        raise ValueError("the reply is too long")
    text = text * rule.repeat
    finish, stop_sequence = "tool_calls" if rule.tool_calls else "stop", None
    found = [(text.find(s), s) for s in request.stop if s in text]
    if found:
        at, stop_sequence = min(found)
        text, finish = text[:at], "stop_sequence"
    left = math.inf
    if request.max_tokens is not None and not rule.ignore_max_tokens:
        left = request.max_tokens

    def take(part):
        nonlocal left, finish, stop_sequence
        size = tokens.count(part)
        if size > left:
            part, size = tokens.first(part, left), left
            finish, stop_sequence = "length", None
        left -= size
        return part, size

    reasoning, reasoning_tokens = take(rule.reasoning)
    text, text_tokens = take(text)
    calls, call_tokens = [], 0
    for index, call in enumerate(rule.tool_calls):
        if finish == "length":
            break
        arguments = call.get("arguments", {})
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        arguments, size = take(arguments)
        call_tokens += size
        prefix = "toolu" if request.api == "anthropic" else "call"
        calls.append({"id": call.get("id", f"{prefix}_{request.n}_{index}"), "name": call["name"],
                      "arguments": arguments})
    return Reply(reasoning, text, calls, rule.finish_reason or finish, stop_sequence,
                 reasoning_tokens, reasoning_tokens + text_tokens + call_tokens)


def text_pieces(rule, text):
    """The text in the pieces of the rule's `chunks`."""
    if isinstance(rule.chunks, int):
        return tokens.pieces(text, rule.chunks)
    result, at, turn = [], 0, 0
    while at < len(text):
        size = rule.chunks[turn % len(rule.chunks)]
        result.append(text[at : at + size])
        at += size
        turn += 1
    return result


class TokenMeter:
    """How many tokens more each piece of one text brings, whatever the pieces are."""

    def __init__(self):
        self._bytes = 0

    def add(self, piece):
        """Tokens that begin in the piece."""
        before = (self._bytes + 3) // 4
        self._bytes += len(piece.encode("utf-8"))
        return (self._bytes + 3) // 4 - before


class Sse:
    """Events as bytes, in the style of a rule."""

    def __init__(self, rule):
        self._nl = "\r\n" if "crlf" in rule.sse else "\n"
        self._colon = ":" if "nospace" in rule.sse else ": "
        self._comment = f": still here{self._nl}{self._nl}" if "comments" in rule.sse else ""
        self._encode = json.JSONEncoder(ensure_ascii=rule.escape, separators=(",", ":")).encode

    def json(self, value):
        """A value as JSON text."""
        return self._encode(value)

    def event(self, data, name=None, field_name="data"):
        """An event of ready text."""
        head = f"event{self._colon}{name}{self._nl}" if name else ""
        text = f"{self._comment}{head}{field_name}{self._colon}{data}{self._nl}{self._nl}"
        return text.encode("utf-8", "surrogatepass")
