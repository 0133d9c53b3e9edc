"""What the engine asks of Python while a run goes on, on the caller's event loop."""
from __future__ import annotations

import asyncio
import inspect
import json
import warnings
from typing import Any, Dict, Optional

from . import _engine
from ._asking import is_async_reply, text_of, text_of_async
from ._backends import Backends
from ._pool import Pool
from .events import event_from_dict
from .graph import Graph
from .nodes import DoneOutput, Node, node_for_engine, node_from_json
from .values import describe, from_json, to_json

HOOK_EXEC_TURN, HOOK_EVENTS, HOOK_NEXT_STEP, HOOK_MESSAGES = 1, 2, 4, 8

TURNS_END_S = 10

# Of enum rlm_code: failures of a client that the engine tries again, and one that it does not.
E_UNREACHABLE, E_RATE_LIMIT, E_SERVER, E_INVAL = -13, -15, -16, -2
_RETRIED = {"RateLimitError": E_RATE_LIMIT, "InternalServerError": E_SERVER, "APIConnectionError": E_UNREACHABLE,
            "RemoteProtocolError": E_UNREACHABLE, "ConnectError": E_UNREACHABLE, "ReadError": E_UNREACHABLE}


def code_of(error: BaseException) -> int:
    for e in (error, error.__cause__):
        for kind in type(e).__mro__:
            if kind.__name__ in _RETRIED:
                return _RETRIED[kind.__name__]
    return E_INVAL


class Turn:
    """The code of one reply, while the flow's `exec_turn` has it."""

    def __init__(self, answer: Any, code: str, replay: bool):
        self.answer, self.code, self.replay = answer, code, replay
        self.observed: Optional[asyncio.Future] = None
        self.step: Any = None  # the question of next_step behind the observation

    async def run(self, code: str) -> Node:
        """Has the engine run the code; the node that it observes."""
        if self.observed is not None:
            raise RuntimeError("exec_turn runs the code of a turn once")
        self.observed = asyncio.get_running_loop().create_future()
        self.answer.decide(*(("allow", None, "") if code == self.code else ("rewrite", None, code)))
        return await self.observed

    def observe(self, node: Node) -> None:
        if self.observed is not None and not self.observed.done():
            self.observed.set_result(node)


class Drive:
    """One run: takes the engine's requests as they come and answers each in a task or a thread of the pool.

    With a `stepper` (streaming.py) agents are held at its boundaries until `release`; without one they go on.
    When the run has ended it may be asked more, as long as a graph of it is held by somebody: with the last the
    run goes, and its session."""

    def __init__(self, flow: Any, run: "_engine.Run", *, clients: list, tools: list, graph: Optional[Graph] = None):
        self.flow, self.run = flow, run
        self.clients, self.tools = clients, tools
        self.pool: Any = None
        self.stepper: Any = None
        self.attached = False  # somebody drives it
        self.tasks: Dict[Any, asyncio.Task] = {}
        self.turns: Dict[str, Turn] = {}
        self.backends: Optional[Backends] = None  # of a runtime whose `open` is overridden
        self.held: Dict[str, Any] = {}
        self._root: Optional[Graph] = None
        self._given = graph  # becomes the root
        self.graph_id = ""
        self.attach()

    def attach(self) -> None:
        """Begins to take requests on the running loop."""
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future = self.loop.create_future()
        if self.pool is None:
            self.pool = Pool(self.flow.workers or 8)
        self.loop.add_reader(self.run.fileno(), self.take)
        self.attached = True

    def detach(self) -> None:
        self.loop.remove_reader(self.run.fileno())
        self.attached = False

    def ask(self, query: str, hooks: int) -> None:
        """The run has ended and goes on with another query, driven by the running loop."""
        self.attach()
        try:
            self.run.ask(query, hooks)
        except BaseException:
            self.close()
            raise

    @property
    def root(self) -> Graph:
        """The root of the tree, which is there when the inputs have been taken in."""
        if self._root is None:
            look = self.run.graph()
            if look is None:
                raise LookupError("the run has no graph: its inputs are being taken in, or were refused")
            self._root = self._given or Graph.__new__(Graph)
            self._root._look_at(look, self)
            self.graph_id = self._root.graph_id
            self.flow.runs[self.graph_id] = self
        return self._root

    def let_go(self) -> Optional[Graph]:
        """The run has ended, or was given up: its root, which the drive keeps no more."""
        root = None
        if self.run.graph() is not None:
            root = self.root
            self.flow.runs.pop(self.graph_id, None)
        self._root = self._given = None
        return root

    async def wait(self) -> None:
        """Until the run has ended. Cancelled, it stops the run where it is and waits for that."""
        try:
            await asyncio.shield(self.ended)
            await self.finish_turns()
        except asyncio.CancelledError:
            self.run.stop()
            await self.ended
            raise
        finally:
            await self.end_backends()
            self.close()

    async def finish_turns(self) -> None:
        """Lets the overrides that have what was observed come to their end."""
        tasks = [self.tasks[t.answer] for t in self.turns.values() if t.answer in self.tasks]
        if tasks:
            late = (await asyncio.wait(tasks, timeout=TURNS_END_S))[1]
            if late:
                warnings.warn(f"exec_turn has not returned {TURNS_END_S} s after the end of the run; it is cancelled")

    async def end_backends(self) -> None:
        """Lets backends close that the end of the run closes."""
        backends, self.backends = self.backends, None
        if backends is not None:
            await backends.end()

    def close(self) -> None:
        self.detach()
        for task in list(self.tasks.values()):
            task.cancel()
        self.pool.shutdown()
        self.pool = self.stepper = None

    def is_settled(self) -> bool:
        """All agents that are not finished are held at a boundary. The question of one may still be in the port."""
        if not self.held or self.tasks or not self.run.is_held():
            return False
        self.take()
        return not self.tasks and self.run.is_held()

    def take(self) -> None:
        for kind, *rest in self.run.take():
            getattr(self, "on_" + kind)(*rest)

    def start(self, answer: Any, coroutine: Any) -> None:
        task = self.loop.create_task(coroutine)
        self.tasks[answer] = task
        task.add_done_callback(lambda _: self.tasks.pop(answer, None))

    def release(self) -> None:
        """Lets all agents that are held go on."""
        held, self.held = self.held, {}
        for answer in held.values():
            answer.decide("allow", None, "")

    def append(self, agent_id: str, node: Node) -> None:
        """Puts a node at the end of an agent's trajectory, while it waits for a gate, and fills in what the
        graph knows of it."""
        made = node_from_json(self.run.append(agent_id, node_for_engine(node)))
        node.id, node.agent_id, node.seq, node.time_us = made.id, made.agent_id, made.seq, made.time_us

    def fail(self, agent_id: str, message: str) -> None:
        """Ends an agent as failed."""
        try:
            self.append(agent_id, DoneOutput(reason="failed", content=message))
        except (LookupError, ValueError, BlockingIOError):
            pass  # it has ended meanwhile

    # Requests.

    def on_backend(self, handle: Any, question: int, step: int, text: str) -> None:
        if self.backends is None:
            self.backends = Backends(self)
        self.backends.take(handle, question, step, text)

    def on_ended(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if self.stepper is not None:
            self.stepper.watch(None, self)

    def on_cancel(self, answer: Any) -> None:
        task = self.tasks.get(answer)
        if task is not None:
            task.cancel()

    def on_event(self, line: str) -> None:
        event = event_from_dict(json.loads(line), self.root)
        if event.node is not None and event.node.terminal and event.agent_id in self.turns:
            self.turns[event.agent_id].observe(event.node)
        if self.stepper is not None:
            self.stepper.watch(event, self)

    def on_next_step(self, answer: Any, agent_id: str) -> None:
        turn = self.turns.get(agent_id)
        if turn is not None and turn.observed is not None and not turn.observed.done():
            node = self.root[agent_id].nodes[-1]
            if node.type in ("exec_output", "error_output"):
                turn.step = answer
                turn.observe(node)
                return
        self.step(answer, agent_id)

    def step(self, answer: Any, agent_id: str) -> None:
        if self.stepper is None or self.stepper.may_step(agent_id):
            answer.decide("allow", None, "")
        else:
            self.held[agent_id] = answer
            self.stepper.watch(None, self)  # it may have been the last to be held

    def on_chat(self, answer: Any, index: int, messages: list, max_tokens: int, agent_id: str, turn: int) -> None:
        asked = self.clients[index]
        if asked.is_async:
            self.start(answer, self.chat_async(answer, asked, messages, max_tokens))
        else:
            self.pool.submit(answer_by, answer, lambda: self.chat_in_thread(asked, messages, max_tokens, answer))

    async def chat_async(self, answer: Any, asked: Any, messages: list, max_tokens: int) -> None:
        try:
            await self.take_async(answer, asked, asked.call(messages, max_tokens))
        except Exception as e:
            answer.fail(describe(e), code_of(e))

    async def take_async(self, answer: Any, asked: Any, reply: Any) -> None:
        """What has been returned by a call that is async."""
        try:
            reply = await reply if inspect.isawaitable(reply) else reply
            if is_async_reply(reply):
                answer.reply(await text_of_async(reply, answer), None, *asked.usage_of(reply))
            elif isinstance(reply, str):
                answer.reply(reply, None, *asked.usage_of(reply))
            else:  # an iterator may block
                self.pool.submit(answer_by, answer, lambda: (text_of(reply, answer), asked.usage_of(reply)))
        except Exception as e:
            answer.fail(describe(e), code_of(e))

    def chat_in_thread(self, asked: Any, messages: list, max_tokens: int, answer: Any) -> Any:
        with asked.begin() as call:
            reply = asked.call(messages, max_tokens)
            if is_async_reply(reply):  # of a function that does not look async
                self.loop.call_soon_threadsafe(self.start, answer, self.take_async(answer, asked, reply))
                return None
            return text_of(reply, answer), call.usage_of(reply)

    def on_tool(self, answer: Any, index: int, arguments: str, agent_id: str) -> None:
        tool = self.tools[index]
        kwargs = from_json(arguments)
        if tool.takes_directory:
            kwargs["working_directory"] = self.flow.runtime.working_directory
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
        self.start(answer, self.exec_turn(Turn(answer, code, replay), agent_id))

    async def exec_turn(self, turn: Turn, agent_id: str) -> None:
        self.turns[agent_id] = turn
        graph = self.root[agent_id]
        try:
            node = self.flow.exec_turn(graph, turn.code, replay=turn.replay)
            node = await node if inspect.isawaitable(node) else node
            if not isinstance(node, Node):
                raise TypeError(f"exec_turn returned {type(node).__name__}; it must return the node that it appended "
                                "or that super().exec_turn(...) returned")
            current = graph.nodes[-1]
            if node.id != current.id and not current.terminal and not turn.replay:
                self.append(agent_id, node)
        except Exception as e:
            self.fail(agent_id, f"exec_turn raised {describe(e)}")
        finally:
            del self.turns[agent_id]
        if turn.observed is None:
            turn.answer.decide("skip", None, "")
        if turn.step is not None:
            self.step(turn.step, agent_id)

    def on_messages(self, answer: Any, agent_id: str, messages: str, final: bool) -> None:
        self.start(answer, self.make_messages(answer, agent_id, messages, final))

    async def make_messages(self, answer: Any, agent_id: str, messages: str, final: bool) -> None:
        graph = self.root[agent_id]
        graph._messages = json.loads(messages)
        try:
            made = self.flow.messages(graph, force_final=final)
            made = await made if inspect.isawaitable(made) else made
            answer.decide("rewrite", None, json.dumps(made))
        except Exception as e:
            answer.decide("reject", None, f"messages raised {describe(e)}")


def answer_by(answer: Any, ask: Any) -> None:
    """Answers with the (text, usage) that a function returns; None: it is answered elsewhere."""
    try:
        made = ask()
        if made is not None:
            answer.reply(made[0], None, *made[1])
    except BaseException as e:
        answer.fail(describe(e), code_of(e))


def tool_in_thread(answer: Any, tool: Any, kwargs: dict) -> None:
    try:
        answer.value(to_json(tool.function(**kwargs), f"what {tool.metadata.name}() returned"))
    except BaseException as e:
        answer.fail(describe(e))
