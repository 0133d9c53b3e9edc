"""What the engine asks of Python while a run goes on, on the caller's event loop."""
from __future__ import annotations

import asyncio
import json
from typing import Any, Callable, Dict

from . import _engine
from .clients import text_of
from .values import from_json, to_json

HOOK_EXEC_TURN, HOOK_MODEL_CALL, HOOK_HOST_CALL, HOOK_EVENTS, HOOK_ALL_EVENTS = 1, 2, 4, 8, 16

# Of enum rlm_code: failures of a client that the engine tries again.
E_TIMEOUT, E_UNREACHABLE, E_RATE_LIMIT, E_SERVER, E_INVAL = -11, -13, -15, -16, -2
_RETRIED = {"RateLimitError": E_RATE_LIMIT, "InternalServerError": E_SERVER, "APIConnectionError": E_UNREACHABLE,
            "RemoteProtocolError": E_UNREACHABLE, "ConnectError": E_UNREACHABLE, "ReadError": E_UNREACHABLE}


def describe(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _code_of(error: BaseException) -> int:
    for e in (error, error.__cause__):
        for kind in type(e).__mro__:
            if kind.__name__ in _RETRIED:
                return _RETRIED[kind.__name__]
    return E_INVAL


class Drive:
    """One run: takes the engine's requests as they come and answers each in a task or a thread of the pool."""

    def __init__(self, run: "_engine.Run", *, clients: list, tools: list, pool: Any,
                 exec_turn: Callable, on_event: Callable):
        self.run = run
        self.clients, self.tools, self.pool = clients, tools, pool
        self.exec_turn, self.on_event = exec_turn, on_event
        self.loop = asyncio.get_running_loop()
        self.ended = self.loop.create_future()
        self.tasks: Dict[Any, asyncio.Task] = {}
        self.loop.add_reader(run.fileno(), self.take)

    async def wait(self) -> None:
        """Until the run has ended. Cancelled, it stops the run where it is and waits for that."""
        try:
            await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            self.run.stop()
            await self.ended
            raise
        finally:
            self.loop.remove_reader(self.run.fileno())
            for task in self.tasks.values():
                task.cancel()

    def take(self) -> None:
        for kind, *rest in self.run.take():
            getattr(self, "on_" + kind)(*rest)

    def start(self, answer: Any, coroutine: Any) -> None:
        task = self.loop.create_task(coroutine)
        self.tasks[answer] = task
        task.add_done_callback(lambda _: self.tasks.pop(answer, None))

    # Requests.

    def on_ended(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def on_cancel(self, answer: Any) -> None:
        task = self.tasks.get(answer)
        if task is not None:
            task.cancel()

    def on_event(self, line: str) -> None:
        self.on_event(json.loads(line))

    def on_chat(self, answer: Any, index: int, messages: list, max_tokens: int, agent_id: str, turn: int) -> None:
        asked = self.clients[index]
        if asked.is_async:
            self.start(answer, self.chat_async(answer, asked, messages, max_tokens))
        else:
            self.pool.submit(chat_in_thread, answer, asked, messages, max_tokens)

    async def chat_async(self, answer: Any, asked: Any, messages: list, max_tokens: int) -> None:
        try:
            reply = await asked.call(messages, max_tokens)
            answer.reply(text_of(reply), None, *asked.usage_of(reply))
        except Exception as e:
            answer.fail(describe(e), _code_of(e))

    def on_tool(self, answer: Any, index: int, arguments: str, agent_id: str) -> None:
        tool = self.tools[index]
        kwargs = from_json(arguments)
        if tool.metadata.is_async:
            self.start(answer, self.tool_async(answer, tool, kwargs))
        else:
            self.pool.submit(tool_in_thread, answer, tool, kwargs)

    async def tool_async(self, answer: Any, tool: Any, kwargs: dict) -> None:
        try:
            answer.value(to_json(await tool.function(**kwargs), f"what {tool.metadata.name}() returned"))
        except Exception as e:
            answer.fail(describe(e))

    def on_exec_turn(self, answer: Any, agent_id: str, code: str, replay: bool) -> None:
        self.start(answer, self.exec_turn(answer, agent_id, code, replay))


def chat_in_thread(answer: Any, asked: Any, messages: list, max_tokens: int) -> None:
    try:
        reply = asked.call(messages, max_tokens)
        answer.reply(text_of(reply), None, *asked.usage_of(reply))
    except BaseException as e:
        answer.fail(describe(e), _code_of(e))


def tool_in_thread(answer: Any, tool: Any, kwargs: dict) -> None:
    try:
        answer.value(to_json(tool.function(**kwargs), f"what {tool.metadata.name}() returned"))
    except BaseException as e:
        answer.fail(describe(e))
