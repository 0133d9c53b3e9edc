"""Models: the engine's own clients, and what is asked of any object with `chat(messages)`."""
from __future__ import annotations

import inspect
import json
import os
from typing import Any, Dict, Optional, Tuple

from . import _engine

__all__ = ["AnthropicClient", "LLMClient", "OpenAIClient", "ScriptedClient"]

UNKNOWN_PRICE = (-1.0, -1.0, -1.0, -1.0)


class LLMClient:
    """Base for clients of your own; any object with `chat(messages) -> str`, sync or async, will do.

    `messages` are dicts of "role" and "content". `chat` gets `max_tokens=` if it takes it. What it returns
    may be a str, or an object with `.text` and `.usage`; otherwise usage is read from `self.last_usage`
    (`input_tokens`, `output_tokens`) after the call. A client that may be called by several threads at once
    says so with `thread_safe = True`; that matters only where usage is read from `last_usage`."""

    last_usage = None
    thread_safe = False
    model: str = ""
    #: US dollars for a million tokens: (input, cached input, cache write, output); None: by its name.
    price: Optional[Tuple[float, float, float, float]] = None

    def chat(self, messages: list, **options: Any) -> str:
        raise NotImplementedError


class _EngineClient:
    """A client in C: the engine asks it by itself, with streaming, retries and back-off."""

    model: str
    _model: Any


class OpenAIClient(_EngineClient):
    """Any server that speaks /chat/completions: OpenAI, llama.cpp, vLLM, Ollama, OpenRouter, ...

    `base_url` (the part before /chat/completions) and `api_key` come from OPENAI_BASE_URL and OPENAI_API_KEY
    unless given; a local server needs no key. Times are in seconds. `price`: US dollars for a million tokens
    (input, cached input, cache write, output); None: the built-in table. Nothing is sent before the first run."""

    _api, _variables = "openai", ("OPENAI_BASE_URL", "OPENAI_API_KEY")

    def __init__(self, model: str = "gpt-4o", *, base_url: Optional[str] = None, api_key: Optional[str] = None,
                 temperature: Optional[float] = None, reasoning_effort: Optional[str] = None,
                 headers: Optional[Dict[str, str]] = None, extra_body: Optional[dict] = None,
                 proxy: Optional[str] = None, ca_file: Optional[str] = None, stream: bool = True,
                 connect_timeout: float = 10, first_byte_timeout: float = 600, idle_timeout: float = 120,
                 price: Optional[Tuple[float, float, float, float]] = None):
        self.model = model
        self._model = _engine.Model.http(
            self._api, model, base_url or os.environ.get(self._variables[0]),
            api_key or os.environ.get(self._variables[1]), -1.0 if temperature is None else temperature,
            reasoning_effort, [f"{k}: {v}" for k, v in (headers or {}).items()],
            json.dumps(extra_body) if extra_body else None, proxy, ca_file, stream, round(connect_timeout * 1000),
            round(first_byte_timeout * 1000), round(idle_timeout * 1000), price or UNKNOWN_PRICE)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"


class AnthropicClient(OpenAIClient):
    """The Anthropic API (/v1/messages). Address and key come from ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY unless
    given; the rest is as of `OpenAIClient`."""

    _api, _variables = "anthropic", ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")

    def __init__(self, model: str = "claude-sonnet-4-20250514", **options: Any):
        super().__init__(model, **options)


class ScriptedClient(_EngineClient):
    """Answers from a file of replies (docs/scripted-model.md): for tests and demonstrations."""

    def __init__(self, path: "str | os.PathLike[str]"):
        self.model = f"script:{os.fspath(path)}"
        self._model = _engine.Model.scripted(os.fspath(path))


class Asked:
    """How to ask a client of the user's: what its `chat` takes, and where its usage is found."""

    def __init__(self, client: Any):
        if not callable(getattr(client, "chat", None)):
            raise TypeError(f"a client needs a chat(messages) method; {type(client).__name__} has none")
        self.client = client
        self.is_async = inspect.iscoroutinefunction(client.chat)
        self.takes_max_tokens = _takes(client.chat, "max_tokens")

    def call(self, messages: list, max_tokens: int) -> Any:
        if self.takes_max_tokens:
            return self.client.chat(messages, max_tokens=max_tokens)
        return self.client.chat(messages)

    def usage_of(self, reply: Any) -> Tuple[int, int, int]:
        """(input, cached, output) tokens; negative: unknown."""
        usage = getattr(reply, "usage", None)
        if usage is None:
            usage = getattr(self.client, "last_usage", None)
        if usage is None:
            return -1, 0, -1
        get = usage.get if isinstance(usage, dict) else lambda name, default: getattr(usage, name, default)
        given, made = get("input_tokens", None), get("output_tokens", None)
        if not isinstance(given, int) or not isinstance(made, int):
            return -1, 0, -1
        return given, get("cached_tokens", 0) or 0, made


def _takes(function: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def text_of(reply: Any) -> str:
    text = reply if isinstance(reply, str) else getattr(reply, "text", None)
    if not isinstance(text, str):
        raise TypeError(f"chat() returned a {type(reply).__name__}; it must return a str, or an object with .text")
    return text
