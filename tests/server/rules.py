"""Rules: which request gets which answer.

A rule is a dict (JSON: an object). The first rule that matches answers; an unknown or ill-typed
field is a `ValueError` when the rules are set. With no rules at all every reply is "OK"; with rules
of which none matches the answer is a 400 that says so.

When it applies
  match            {"user", "system", "model": regex (re.search, DOTALL) over the last user message,
                    the system text, the model;
                    "api": "openai" | "anthropic";
                    "header": {name: regex}; "field": name or list of names the body must have;
                    "stream": bool; "nth": n or [first, last], of all model requests since the
                    reset, from 1; "input_tokens_over": n, true where prompt + max_tokens is larger}
  skip, times      not for the first `skip` matching requests; at most `times` times

What the model says
  reply            text; a list of texts, one for each use (the last repeats); or, in Python, a
                   callable taking the `ChatRequest` and returning text or a dict of more fields
  repeat           the text so many times over
  reasoning        text before the reply (reasoning_content deltas; Anthropic: a thinking block)
  reasoning_field  "reasoning_content" or "reasoning"
  tool_calls       list of {"name", "arguments": object or text, "id"}
  tool_calls_whole true: a call's arguments come in one delta
  finish_reason    instead of the true one
  ignore_max_tokens  true: max_tokens cuts nothing
  ignore_stream    true: answers with one JSON body although a stream was asked

How it is sent
  chunks           tokens an event (1), or a list of sizes in characters, used in turn (0: an empty
                   delta)
  first_byte_delay_ms, delay_ms   before the status line; before each event
  gate             a name: waits, before the status line, until it is released
  together         n: waits, before the status line, until n model requests are open at once
  split            n bytes, or "characters" (cuts inside each multi-byte character): each piece is
                   one HTTP chunk and one write
  split_pause_ms   between these pieces (0)
  each_write       true: every event is a write of its own even when there is no delay
  escape           true: JSON with \\uXXXX for all that is not ASCII
  sse              list of "crlf", "comments", "nospace"
  framing          "chunked" (streams; other bodies have a Content-Length), or "close": the end of
                   the connection ends the body
  close_after      true: `Connection: close`; "silent": closes without having said so
  null_first       true: the first delta has content null (OpenAI)
  usage            a dict that replaces fields; "missing", "negative", "absurd"
  usage_place      "own" (as OpenAI), "last" (in the chunk with the finish_reason, asked for or
                   not), "every" (so far, in every chunk)

What goes wrong. The numbers n count events of the stream sent before it; without a stream 0 is
after the head and anything larger in the middle of the body. -1: before the status line.
  cut_after, cut   n; "reset", "close" (the body has no end), "end" (a clean end, no [DONE])
  stall_after      n: then nothing more, until the client leaves
  error_after      n: an error event in the stream (without a stream: an error body with status
                   200); error_form: "openai", "openrouter", "llamacpp"
  invalid_json_after   n: an event that is not JSON (without a stream: half a body)
  status           an HTTP error status; error: a name of failures.ERRORS; message: another text
  retry_after, retry_after_ms   the header, as it stands
  html             true: a proxy's error page
  body, content_type   this body, as it stands, with this status (200)
  headers          more headers
"""

import re
import typing
from dataclasses import dataclass, field
from typing import Any

from . import failures

_MATCH = {
    "user": str, "system": str, "model": str, "api": str, "header": dict, "field": (str, list),
    "stream": bool, "nth": (int, list), "input_tokens_over": int,
}

_CHOICES = {
    "reasoning_field": ("reasoning_content", "reasoning"),
    "framing": ("chunked", "close"),
    "close_after": (False, True, "silent"),
    "usage_place": ("own", "last", "every"),
    "cut": ("reset", "close", "end"),
    "error_form": ("openai", "openrouter", "llamacpp"),
}

_SSE = {"crlf", "comments", "nospace"}
_USAGE = {"missing", "negative", "absurd"}


@dataclass
class Rule:
    """One rule; the module's text says what the fields mean."""

    match: dict = field(default_factory=dict)
    skip: int = 0
    times: int | None = None
    reply: Any = "OK"
    repeat: int = 1
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    tool_calls: list = field(default_factory=list)
    tool_calls_whole: bool = False
    finish_reason: str | None = None
    ignore_max_tokens: bool = False
    ignore_stream: bool = False
    chunks: int | list = 1
    first_byte_delay_ms: float = 0
    delay_ms: float = 0
    gate: str | None = None
    together: int = 0
    split: int | str | None = None
    split_pause_ms: float = 0
    each_write: bool = False
    escape: bool = False
    sse: list = field(default_factory=list)
    framing: str = "chunked"
    close_after: bool | str = False
    null_first: bool = False
    usage: dict | str | None = None
    usage_place: str = "own"
    cut_after: int | None = None
    cut: str = "reset"
    stall_after: int | None = None
    error_after: int | None = None
    error_form: str = "openai"
    invalid_json_after: int | None = None
    status: int | None = None
    error: str | None = None
    message: str | None = None
    retry_after: int | float | str | None = None
    retry_after_ms: int | None = None
    html: bool = False
    body: str | None = None
    content_type: str = "application/json"
    headers: dict = field(default_factory=dict)

    @property
    def fails(self):
        """True when the answer is an error or a fixed body instead of a reply."""
        return self.status is not None or self.error is not None or self.html or (
            self.body is not None)

    def reply_at(self, use, request):
        """The reply of the use-th use (from 0): text or, from a callable, text or a dict."""
        reply = self.reply
        if isinstance(reply, list):
            reply = reply[min(use, len(reply) - 1)]
        return reply(request) if callable(reply) else reply


def _check(rule, where):
    for name, hint in Rule.__annotations__.items():
        value = getattr(rule, name)
        if hint is Any:
            continue
        kinds = typing.get_args(hint) or (hint,)
        if float in kinds:
            kinds += (int,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{where}: {name} is {value!r}")
    for name, choices in _CHOICES.items():
        if getattr(rule, name) not in choices:
            raise ValueError(f"{where}: {name} is {getattr(rule, name)!r}, not one of {choices}")
    replies = rule.reply if isinstance(rule.reply, list) else [rule.reply]
    if not replies or not all(isinstance(r, str) or callable(r) for r in replies):
        raise ValueError(f"{where}: reply is neither text, nor a list of texts, nor a callable")
    if not set(rule.sse) <= _SSE:
        raise ValueError(f"{where}: sse takes {sorted(_SSE)}")
    if isinstance(rule.usage, str) and rule.usage not in _USAGE:
        raise ValueError(f"{where}: usage takes a dict or one of {sorted(_USAGE)}")
    if rule.split is not None and rule.split != "characters" and not (
            isinstance(rule.split, int) and rule.split > 0):
        raise ValueError(f'{where}: split takes a number of bytes or "characters"')
    sizes = rule.chunks if isinstance(rule.chunks, list) else [rule.chunks or -1]
    if not all(isinstance(s, int) and s >= 0 for s in sizes) or not any(sizes):
        raise ValueError(f"{where}: chunks takes a number above 0 or a list of sizes")
    if rule.error is not None and rule.error not in failures.ERRORS:
        raise ValueError(f"{where}: error is not one of {sorted(failures.ERRORS)}")
    for call in rule.tool_calls:
        if not isinstance(call.get("name"), str) or set(call) - {"name", "arguments", "id"}:
            raise ValueError(f"{where}: a tool call takes name, arguments, id")


def _compile(match, where):
    """The conditions as a list of functions of a ChatRequest."""
    conditions = []
    for name, value in match.items():
        if name not in _MATCH:
            raise ValueError(f"{where}: match has no field {name!r}; it takes {sorted(_MATCH)}")
        if not isinstance(value, _MATCH[name]):
            raise ValueError(f"{where}: match.{name} is {value!r}")
        if name in ("user", "system", "model"):
            conditions.append(_matches_text(name, re.compile(value, re.DOTALL)))
        elif name == "header":
            for header, pattern in value.items():
                conditions.append(_matches_header(header.lower(), re.compile(pattern)))
        elif name == "field":
            names = [value] if isinstance(value, str) else value
            conditions.append(lambda r, names=names: all(n in r.body for n in names))
        elif name == "nth":
            first, last = (value, value) if isinstance(value, int) else value
            conditions.append(lambda r, a=first, b=last: a <= r.n <= b)
        elif name == "input_tokens_over":
            conditions.append(lambda r, v=value: r.input_tokens + (r.max_tokens or 0) > v)
        else:
            conditions.append(lambda r, n=name, v=value: getattr(r, n) == v)
    return conditions


def _matches_text(name, pattern):
    return lambda request: pattern.search(getattr(request, name)) is not None


def _matches_header(name, pattern):
    return lambda request: pattern.search(request.headers.get(name, "")) is not None


class RuleSet:
    """Rules with their uses counted."""

    def __init__(self, rules=()):
        self.rules = []
        self._conditions = []
        for index, given in enumerate(rules):
            where = f"rule {index}"
            if isinstance(given, Rule):
                rule = given
            elif isinstance(given, dict):
                unknown = set(given) - set(Rule.__annotations__)
                if unknown:
                    raise ValueError(f"{where}: unknown fields {sorted(unknown)}")
                rule = Rule(**given)
            else:
                raise ValueError(f"{where}: a rule is an object")
            _check(rule, where)
            try:
                self._conditions.append(_compile(rule.match, where))
            except re.error as exc:
                raise ValueError(f"{where}: {exc}") from exc
            self.rules.append(rule)
        self.restart()

    def restart(self):
        """Forgets the uses."""
        self._matched = [0] * len(self.rules)

    def choose(self, request):
        """(index, rule, how often it was used before) for a request; (None, None, 0): none."""
        for index, rule in enumerate(self.rules):
            if not all(holds(request) for holds in self._conditions[index]):
                continue
            use = self._matched[index] - rule.skip
            if rule.times is not None and use >= rule.times:
                continue
            self._matched[index] += 1
            if use >= 0:
                return index, rule, use
        return None, None, 0

    def changed(self, rule, fields):
        """A copy of a rule with fields that a callable returned."""
        known = {name: getattr(rule, name) for name in Rule.__annotations__}
        unknown = set(fields) - set(known)
        if unknown:
            raise ValueError(f"a callable returned unknown fields {sorted(unknown)}")
        result = Rule(**{**known, "reply": "", **fields})
        _check(result, "a callable's rule")
        return result
