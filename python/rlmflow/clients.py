"""Models: the engine's own clients, and the base of those of the user's."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from . import _engine
from ._arguments import Arguments
from .nodes import LLMUsage
from .values import plain_json

__all__ = ["AnthropicClient", "LLMClient", "LLMUsage", "OpenAIClient", "ScriptedClient"]

UNKNOWN_PRICE = (-1.0, -1.0, -1.0, -1.0)
MOST_TIMEOUT = 10**6  # seconds, which is more than eleven days


def _header_lines(checked: Arguments, headers: Any) -> List[str]:
    lines = []
    for name, value in checked.mapping("headers", headers).items():
        checked.text("a name in headers", name, False)
        text = checked.prose(f"headers[{name!r}]", value, False, secret=True)
        lines.append(f"{name}: {text}")
    return lines


class LLMClient:
    """Base for clients of your own; any object with a `chat(messages)`, or a function, will do.

    `messages` are dicts of "role" and "content". `chat` may be sync (it then runs on a thread of the flow's) or
    async. It returns a str, an object with `.text`, or an iterator of str pieces, sync or async, which streams:
    when no more is wanted it is closed. It gets `max_tokens=` and `timeout=` (seconds) if it takes them. One
    that takes no `max_tokens` cannot be held to what is left of a `max_budget` or `max_cost`; under these its
    calls are made one at a time, so that no more than one passes the cap.

    Usage is `.usage` of what was returned, else `last_usage` of the client, read after the call in the thread
    that made it: `input_tokens` and `output_tokens` (and `cached_tokens`, of the input), as attributes or a
    dict. Without either it is estimated from the bytes, on the high side. A sync client with `last_usage` is
    asked by one thread at a time unless it says `thread_safe = True`."""

    last_usage: Any = None
    thread_safe: bool = False
    model: str = ""
    #: US dollars for a million tokens: (input, cached input, cache write, output); None: by its name.
    price: Optional[Tuple[float, float, float, float]] = None

    def chat(self, messages: list, **options: Any) -> Any:
        """The model's reply to `messages`."""
        raise NotImplementedError


class _EngineClient:
    """A client in C: the engine asks it by itself, with streaming, retries and back-off."""

    model: str
    _model: Any


class OpenAIClient(_EngineClient):
    """Any server that speaks /chat/completions: OpenAI, llama.cpp, vLLM, Ollama, OpenRouter, ... `model`: its
    name there.

    `base_url` (the part before /chat/completions) and `api_key` come from OPENAI_BASE_URL and OPENAI_API_KEY
    unless given; a local server needs no key. `price`: US dollars for a million tokens (input, cached input,
    cache write, output); None: the built-in table. Nothing is sent before the first run.

    `temperature`, `top_p` and `reasoning_effort` are sent if they are given, and what is in `extra_body` is
    added to each request's body. `max_tokens` of one reply: what the flow allows (`max_output_tokens`, what is
    left of a budget) unless that is less. `headers` are sent too. `proxy`: the address of one; None: as
    HTTPS_PROXY and the like say. `ca_file`: certificates to trust; None: the system's. `stream`: replies come
    in pieces.

    Seconds, 0 without a limit: `connect_timeout`; `first_byte_timeout` until a reply begins; `idle_timeout`
    between the bytes of one that has begun. `timeout` takes the place of all three."""

    _api, _variables = "openai", ("OPENAI_BASE_URL", "OPENAI_API_KEY")

    def __init__(self, model: str = "gpt-4o", *, base_url: Optional[str] = None, api_key: Optional[str] = None,
                 temperature: Optional[float] = None, top_p: Optional[float] = None,
                 max_tokens: Optional[int] = None, reasoning_effort: Optional[str] = None,
                 headers: Optional[Dict[str, str]] = None, extra_body: Optional[dict] = None,
                 proxy: Optional[str] = None, ca_file: Optional[str] = None, stream: bool = True,
                 connect_timeout: float = 10, first_byte_timeout: float = 600, idle_timeout: float = 120,
                 timeout: Optional[float] = None,
                 price: Optional[Tuple[float, float, float, float]] = None):
        checked = Arguments(type(self).__name__)
        body = dict(checked.mapping("extra_body", extra_body))
        self.model = model

        if top_p is not None:
            body.setdefault("top_p", checked.number("top_p", top_p, "as the API takes it", True))

        def timeout_ms(name: str, value: Any) -> int:
            name, value = (name, value) if timeout is None else ("timeout", timeout)
            return checked.milliseconds(name, value, "seconds; 0: no limit", MOST_TIMEOUT, True) or 0

        self._model = _engine.Model.http(
            self._api, checked.text("model", model, False),
            checked.text("base_url", base_url or os.environ.get(self._variables[0])),
            checked.text("api_key", api_key or os.environ.get(self._variables[1]), secret=True),
            -1.0 if temperature is None else checked.number("temperature", temperature, "as the API takes it", True),
            checked.text("reasoning_effort", reasoning_effort), _header_lines(checked, headers),
            plain_json(body, "extra_body") if body else None, checked.text("proxy", proxy),
            checked.path("ca_file", ca_file), stream, timeout_ms("connect_timeout", connect_timeout),
            timeout_ms("first_byte_timeout", first_byte_timeout), timeout_ms("idle_timeout", idle_timeout),
            checked.price("price", price, UNKNOWN_PRICE), checked.whole("max_tokens", max_tokens, 1) or 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"


class AnthropicClient(OpenAIClient):
    """The Anthropic API (/v1/messages). Address and key come from ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
    unless given; the rest, the `options` too, is as of `OpenAIClient`."""

    _api, _variables = "anthropic", ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")

    def __init__(self, model: str = "claude-sonnet-4-20250514", max_tokens: Optional[int] = None, **options: Any):
        super().__init__(model, max_tokens=max_tokens, **options)


class ScriptedClient(_EngineClient):
    """Answers from a file of replies (docs/scripted-model.md), or from such a `text`, of which `path` is then
    the name: for tests and demonstrations."""

    def __init__(self, path: "str | os.PathLike[str]" = "text", *, text: Optional[str] = None):
        checked = Arguments(type(self).__name__)
        name: Any = checked.path("path", path, False)
        self.model = f"script:{name}"
        self._model = _engine.Model.scripted(name, checked.string("text", text))
