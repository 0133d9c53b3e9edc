"""How clients of the user's are asked: what their `chat` takes, what it returns, and where usage is found."""
from __future__ import annotations

import contextlib
import inspect
import threading
import types
import weakref
from typing import Any, FrozenSet, Iterator, Optional, Tuple

from .values import describe, kind_of

Usage = Tuple[int, int, int]  # input, cached, output tokens; negative: unknown
UNKNOWN_USAGE = (-1, 0, -1)
MOST_TOKENS = 2**53  # of a call; a number beyond it counts something else

_locks: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_locks_lock = threading.Lock()


def _lock_of(client: Any) -> Any:
    """One for each client, whatever runs ask it; whoever keeps it keeps the client too."""
    with _locks_lock:
        lock = _locks.get(id(client))
        if lock is None:
            lock = _locks[id(client)] = threading.Lock()
        return lock


class Asked:
    """A client as one run asks it."""

    def __init__(self, client: Any, *, is_capped: bool, timeout: Optional[float]):
        self.client = client
        self.chat = _chat_of(client)
        self.is_async = _is_async(self.chat)
        taken = _names_of(self.chat)
        self.takes_max_tokens = taken is None or "max_tokens" in taken
        self.options = {"timeout": timeout} if timeout is not None and (taken is None or "timeout" in taken) else {}
        self.is_serial = False
        self.learn()
        self.one_at_a_time = self.is_serial or (is_capped and not self.takes_max_tokens)
        self._lock, self._counts_lock = _lock_of(client), threading.Lock()
        self._begun = self._under_way = 0

    def learn(self) -> None:
        """Usage that is read from a client is the last call's: there must be one at a time then."""
        self.is_serial = (not self.is_async and not getattr(self.client, "thread_safe", False)
                          and getattr(self.client, "last_usage", None) is not None)

    def call(self, messages: list, max_tokens: int) -> Any:
        options = {**self.options, "max_tokens": max_tokens} if self.takes_max_tokens else self.options
        return self.chat(messages, **options)

    @contextlib.contextmanager
    def begin(self) -> Iterator["Call"]:
        """A call of a sync client, from its start until its usage has been read."""
        with self._lock if self.is_serial else contextlib.nullcontext():
            with self._counts_lock:
                self._begun += 1
                self._under_way += 1
                call = Call(self, self._begun, self._under_way == 1)
            try:
                yield call
            finally:
                with self._counts_lock:
                    self._under_way -= 1

    def usage_of(self, reply: Any) -> Usage:
        """What a reply object says, else the client."""
        own = _usage_in(getattr(reply, "usage", None))
        return _usage_in(getattr(self.client, "last_usage", None)) if own == UNKNOWN_USAGE else own


class Call:
    """One call of a sync client."""

    def __init__(self, asked: Asked, number: int, is_alone: bool):
        self.asked, self.number, self.is_alone = asked, number, is_alone

    def usage_of(self, reply: Any) -> Usage:
        """What `last_usage` says is not believed of a call beside which there were others."""
        asked = self.asked
        asked.learn()
        if not asked.is_serial or (self.is_alone and asked._begun == self.number):
            return asked.usage_of(reply)
        return _usage_in(getattr(reply, "usage", None))


def _usage_in(usage: Any) -> Usage:
    def get(*names: str) -> Any:
        found = (usage.get(n) if isinstance(usage, dict) else getattr(usage, n, None) for n in names)
        return next((n for n in found if isinstance(n, int) and not isinstance(n, bool) and abs(n) < MOST_TOKENS), None)

    given, made = get("input_tokens", "prompt_tokens"), get("output_tokens", "completion_tokens")
    return UNKNOWN_USAGE if given is None or made is None else (given, get("cached_tokens") or 0, made)


def is_client(client: Any) -> bool:
    return not isinstance(client, type) and (callable(getattr(client, "chat", None)) or callable(client))


def _chat_of(client: Any) -> Any:
    chat = getattr(client, "chat", None)
    return chat if callable(chat) else client


def _is_async(function: Any) -> bool:
    asks = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(is_async(f) for is_async in asks for f in (function, getattr(function, "__call__", None)))


_names: "weakref.WeakKeyDictionary[Any, Optional[FrozenSet[str]]]" = weakref.WeakKeyDictionary()


def _names_of(function: Any) -> "Optional[FrozenSet[str]]":
    """What it may be given by name; None: anything."""
    key = getattr(function, "__func__", function)
    if not isinstance(key, types.FunctionType):
        return _look_up_names(function)
    if key not in _names:
        _names[key] = _look_up_names(key)
    return _names[key]


def _look_up_names(function: Any) -> "Optional[FrozenSet[str]]":
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))


# What `chat` returned.

class WrongReply(TypeError):
    pass


def describe_failure(error: BaseException) -> str:
    return f"TypeError: {error}" if isinstance(error, WrongReply) else f"chat() raised {describe(error)}"


def is_async_reply(reply: Any) -> bool:
    return inspect.isawaitable(reply) or (hasattr(reply, "__aiter__") and not _has_text(reply))


def text_of(reply: Any, answer: Any) -> str:
    """The text; "" when its pieces have gone to the answer, each as it came, until no more was wanted."""
    if isinstance(reply, str):
        return reply
    if _has_text(reply):
        return reply.text
    if not hasattr(reply, "__iter__") or hasattr(reply, "__len__"):
        raise WrongReply(f"chat() returned {kind_of(reply)}; it must return a str, an object with .text, or "
                         "an iterator of str pieces")
    try:
        for piece in reply:
            if not answer.delta(_checked(piece)):
                break
    finally:
        if hasattr(reply, "close"):
            reply.close()
    return ""


async def text_of_async(reply: Any, answer: Any) -> str:
    """As text_of, of an async iterator."""
    try:
        async for piece in reply:
            if not answer.delta(_checked(piece)):
                break
    finally:
        close = getattr(reply, "aclose", None) or getattr(reply, "close", None)
        closing = close() if close else None
        if inspect.isawaitable(closing):
            await closing
    return ""


def _has_text(reply: Any) -> bool:
    return isinstance(getattr(reply, "text", None), str)


def _checked(piece: Any) -> str:
    if not isinstance(piece, str):
        raise WrongReply(f"chat() streamed {kind_of(piece)}; its pieces must be str")
    return piece
