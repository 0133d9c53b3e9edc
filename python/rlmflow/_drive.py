"""What the engine asks of Python while a run goes on, on the caller's event loop."""
from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import itertools
import json
import warnings
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from . import _engine
from ._asking import describe_failure, is_async_reply, text_of, text_of_async
from ._backends import PASSING, Backends
from ._pool import Pool
from ._tool_calls import ToolCall
from .events import event_from_dict
from .graph import Graph
from .nodes import DoneOutput, Node, node_for_engine, node_from_json
from .values import describe, kind_of, printable, shown
from .watching import Watcher

TURNS_END_S = 10
LOOP_CLOSED = "was at work on an event loop that has been closed"
_WITHIN_A_TURN = ("llm_output", "exec_action", "supervising_output", "resume_action")
BLAME_S = 0.05  # in which whoever drives the run hears of a cancellation that has come to a hook first

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
    """The code of one reply, while the flow's `exec_turn` has it.

    A replay waits for no gate: it may be turns ahead of the hook, so what was recorded is kept for when it is asked."""

    def __init__(self, answer: Any, agent_id: str, code: str, replay: bool):
        self.answer, self.agent_id, self.code, self.replay = answer, agent_id, code, replay
        self.recorded: Optional[Node] = None  # in a replay: what was observed then
        self.is_past = False  # the same: nothing more comes
        self.observed: Optional[asyncio.Future] = None
        self.was_appended = False  # a node, in place of the code
        self.is_running = False  # the code: from `run` until its node has come
        self.step: Any = None  # the question of next_step behind the observation
        self.failure: Optional[str] = None

    async def run(self, code: str) -> Node:
        """Has the engine run the code; the node that it observes."""
        if self.observed is not None:
            raise RuntimeError("exec_turn runs the code of a turn once")
        if self.was_appended:
            raise RuntimeError("a node was appended for this turn, in place of its code: that does not run any more")
        if not isinstance(code, str):
            raise TypeError(f"the code of exec_turn is {kind_of(code)}; it must be a str")
        self.answer.decide(*(("allow", None, "") if code == self.code else ("rewrite", None, code)))
        self.observed = asyncio.get_running_loop().create_future()
        self.is_running = True
        self.look_at_record()
        return await self.observed

    def observe(self, node: Node) -> None:
        self.is_running = False
        if self.observed is not None and not self.observed.done():
            self.observed.set_result(node)

    def record(self, node: Node) -> None:
        """A node has come in a replay."""
        if self.recorded is None and node.type not in _WITHIN_A_TURN:
            self.recorded = node
            self.look_at_record()

    def end_record(self) -> None:
        self.is_past = True
        self.look_at_record()

    def look_at_record(self) -> None:
        if self.recorded is not None:
            self.observe(self.recorded)
        elif self.is_past and self.observed is not None:
            self.is_running = False
            self.observed.set_exception(RuntimeError("the recording ends before what this code did"))


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
        self.watcher: Optional[Watcher] = None
        self.attached = False  # somebody drives it
        self.is_stopping = False
        self.tasks: Dict[Any, Tuple[asyncio.Task, Callable[[str], Any]]] = {}  # and whom to tell of its failure
        self.blamed: List[Callable[[str], Any]] = []  # whom to tell of a failure, if nothing else was cancelled
        self.judgement: Optional[asyncio.TimerHandle] = None
        self.given_up: Set[Any] = set()  # answers whose tasks the engine, or the end of the run, has cancelled
        self.turns: Dict[str, Turn] = {}  # of each agent, the one that exec_turn has
        self.ahead: Dict[str, Deque[Turn]] = {}  # of a replay, those that wait for it
        self.brought: Deque[tuple] = collections.deque()  # by threads, to be started
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
        self.watcher = Watcher(self.flow.watch, self) if self.flow.watch else None
        self.loop.add_reader(self.run.fileno(), self.take)
        self.attached, self.is_stopping = True, False
        self.judge_later()
        if self.tasks or self.backends is not None:
            self.give_up_closed_loop()
        self.start_brought()

    def give_up_closed_loop(self) -> None:
        """The loop that the run was on has been closed under it: what was asked there is not answered there."""
        tasks, self.tasks = self.tasks, {}
        self.given_up.clear()
        for turn in self.turns.values():
            if turn.observed is not None:
                turn.observed = self.loop.create_future()
        for _, fail in tasks.values():
            fail(LOOP_CLOSED)
        if self.backends is not None:
            self.backends.give_up_closed_loop(LOOP_CLOSED)

    def detach(self) -> None:
        if not self.loop.is_closed():
            self.loop.remove_reader(self.run.fileno())
        self.attached = False
        self.judge_later()  # whoever keeps the loop would keep this
        if self.watcher is not None:
            self.watcher.close()
            self.watcher = None  # it keeps this

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
        loop = self.loop
        try:
            await asyncio.shield(self.ended)
            await self.finish_turns()
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            if self.loop is loop:  # else this was left on a closed one, and the run has gone on elsewhere
                await self.end()

    async def stop(self) -> None:
        """Stops the run where it is and waits for that, cancelled or not: the engine sees to it that it is soon."""
        self.is_stopping = True
        self.run.stop()
        if self.run.has_ended():
            self.take()
            self.on_ended()
        cancelled = False
        while not self.ended.done():
            try:
                await asyncio.shield(self.ended)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def end(self) -> None:
        """The run has ended, or nobody waits for that."""
        try:
            await self.end_backends()
        finally:
            self.close()

    async def finish_turns(self) -> None:
        """Lets the overrides that have what was observed come to their end."""
        until = self.loop.time() + TURNS_END_S
        while True:
            tasks = [self.tasks[t.answer][0] for t in self.turns.values() if t.answer in self.tasks]
            if not tasks:
                return
            if (await asyncio.wait(tasks, timeout=until - self.loop.time()))[1]:
                warnings.warn(f"exec_turn has not returned {TURNS_END_S} s after the end of the run; it is cancelled")
                return

    async def end_backends(self) -> None:
        """Lets backends close that the end of the run closes."""
        backends, self.backends = self.backends, None
        if backends is not None:
            await backends.end()

    def close(self) -> None:
        self.detach()
        self.blamed.clear()
        for answer, (task, _) in list(self.tasks.items()):
            if not task.get_loop().is_closed():
                self.given_up.add(answer)  # nobody is to blame
                task.cancel()
        while self.brought:  # too late
            self.brought.popleft()[1].close()
        self.pool.close()
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

    def start(self, answer: Any, coroutine: Any, fail: Callable[[str], Any]) -> None:
        """Has a coroutine answer. `fail` is told "was cancelled" of one that is, by others than the engine, unless it is
        all that is cancelled."""
        if not self.attached:  # it was asked too late
            coroutine.close()
            return
        task = self.loop.create_task(coroutine)
        self.tasks[answer] = task, fail
        task.add_done_callback(lambda task: self.end_task(answer, task, fail))

    def start_from_thread(self, answer: Any, coroutine: Any, fail: Callable[[str], Any]) -> None:
        """As `start`, by any thread. If the loop has been closed, the next one that drives the run has it answer."""
        self.brought.append((answer, coroutine, fail))
        with contextlib.suppress(RuntimeError):  # it has been closed
            self.loop.call_soon_threadsafe(self.start_brought)

    def start_brought(self) -> None:
        while self.attached and self.brought:
            self.start(*self.brought.popleft())

    def end_task(self, answer: Any, task: asyncio.Task, fail: Callable[[str], Any]) -> None:
        del self.tasks[answer]
        if answer in self.given_up:
            self.given_up.remove(answer)
        elif task.cancelled():
            self.blame(fail)
        else:
            task.exception()  # of KeyboardInterrupt and SystemExit whoever runs the loop hears

    def blame(self, fail: Callable[[str], Any]) -> None:
        """A hook was cancelled, and not by the engine."""
        self.blamed.append(fail)
        self.judge_later()

    def judge_later(self) -> None:
        if self.judgement is not None:
            self.judgement.cancel()
        self.judgement = self.loop.call_later(BLAME_S, self.judge) if self.attached and self.blamed else None

    def judge(self) -> None:
        self.judgement = None
        while self.blamed:
            fail = self.blamed.pop()
            if not self.is_stopping:
                fail("was cancelled")

    def release(self) -> None:
        """Lets all agents that are held go on."""
        held, self.held = self.held, {}
        for answer in held.values():
            answer.decide("allow", None, "")

    def append(self, agent_id: str, node: Node) -> None:
        """Puts a node at the end of an agent's trajectory, while it waits for a gate, and fills in what the
        graph knows of it."""
        turn = self.turns.get(agent_id)
        if turn is not None and turn.replay:
            made = self.appended_then(turn, node)
        else:
            made = node_from_json(self.run.append(agent_id, node_for_engine(node)))
        if turn is not None and turn.observed is None:
            turn.was_appended = True
        node.id, node.agent_id, node.seq, node.time_us = made.id, made.agent_id, made.seq, made.time_us

    def appended_then(self, turn: Turn, node: Node) -> Node:
        """What a replay has for a node that a hook appends again."""
        if turn.recorded is None:
            self.run.has_ended()  # the engine has come to the end of its step: what that made is in the port
            self.take()
        made = turn.recorded
        if made is None or type(made) is not type(node) or made.metadata.get("by") != "program":
            raise ValueError(f"a replay appends nothing: no {type(node).__name__} was appended here in the recording")
        return made

    def fail(self, agent_id: str, message: str) -> None:
        """Ends an agent as failed."""
        try:
            self.append(agent_id, DoneOutput(reason="failed", content=printable(message)))
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
        for turn in (*self.turns.values(), *itertools.chain(*self.ahead.values())):
            if turn.replay:
                turn.end_record()
        if self.stepper is not None:
            self.stepper.watch(None, self)

    def on_cancel(self, answer: Any) -> None:
        if answer in self.tasks:
            self.given_up.add(answer)
            self.tasks[answer][0].cancel()
        else:
            self.pool.give_up(answer)

    def on_event(self, line: str) -> None:
        event = event_from_dict(json.loads(line), self.root)
        if event.node is not None and event.agent_id in self.turns:
            self.take_node(event.agent_id, event.node)
        if self.watcher is not None:
            self.watcher.event(event)
        if self.stepper is not None:
            self.stepper.watch(event, self)

    def on_next_step(self, answer: Any, agent_id: str) -> None:
        turn = self.turns.get(agent_id)
        if turn is not None and turn.is_running:
            node = self.root[agent_id].nodes[-1]
            if node.type in ("exec_output", "error_output"):
                turn.step = answer
                self.observe(turn, node)
                return
        self.step(answer, agent_id)

    def take_node(self, agent_id: str, node: Node) -> None:
        """A node has come while the agent's code is in `exec_turn`."""
        turn = (self.ahead.get(agent_id) or [self.turns[agent_id]])[-1]
        if turn.replay:
            turn.record(node)
        elif node.terminal:
            self.observe(turn, node)

    def observe(self, turn: Turn, node: Node) -> None:
        turn.observe(node)
        if turn.failure is not None:
            self.end_turn(turn)

    def step(self, answer: Any, agent_id: str) -> None:
        if self.stepper is None or self.stepper.may_step(agent_id):
            answer.decide("allow", None, "")
        else:
            self.held[agent_id] = answer
            self.stepper.watch(None, self)  # it may have been the last to be held

    def on_chat(self, answer: Any, index: int, messages: list, max_tokens: int, agent_id: str, turn: int) -> None:
        asked = self.clients[index]
        if asked.is_async:
            self.start_chat(self.start, answer, self.chat_async(answer, asked, messages, max_tokens))
        else:
            self.pool.submit(answer, answer_by, answer, lambda: self.chat_in_thread(asked, messages, max_tokens, answer))

    def start_chat(self, start: Callable, answer: Any, coroutine: Any) -> None:
        start(answer, coroutine, lambda why: answer.fail(f"chat() {why}"))

    async def chat_async(self, answer: Any, asked: Any, messages: list, max_tokens: int) -> None:
        try:
            await self.take_async(answer, asked, asked.call(messages, max_tokens))
        except PASSING:
            raise
        except BaseException as e:
            answer.fail(describe_failure(e), code_of(e))

    async def take_async(self, answer: Any, asked: Any, reply: Any) -> None:
        """What has been returned by a call that is async."""
        try:
            reply = await reply if inspect.isawaitable(reply) else reply
            if is_async_reply(reply):
                answer.reply(await text_of_async(reply, answer), None, *asked.usage_of(reply))
            elif isinstance(reply, str):
                answer.reply(reply, None, *asked.usage_of(reply))
            else:  # an iterator may block
                self.pool.submit(answer, answer_by, answer, lambda: (text_of(reply, answer), asked.usage_of(reply)))
        except PASSING:
            raise
        except BaseException as e:
            answer.fail(describe_failure(e), code_of(e))

    def chat_in_thread(self, asked: Any, messages: list, max_tokens: int, answer: Any) -> Any:
        with asked.begin() as call:
            reply = asked.call(messages, max_tokens)
            if is_async_reply(reply):  # of a function that does not look async
                self.start_chat(self.start_from_thread, answer, self.take_async(answer, asked, reply))
                return None
            return text_of(reply, answer), call.usage_of(reply)

    def on_tool(self, answer: Any, index: int, arguments: str, agent_id: str) -> None:
        ToolCall(self, answer, self.tools[index], arguments).begin()

    def on_exec_turn(self, answer: Any, agent_id: str, code: str, replay: bool) -> None:
        turn = Turn(answer, agent_id, code, replay)
        if replay and agent_id in self.turns:
            self.ahead.setdefault(agent_id, collections.deque()).append(turn)
        else:
            self.begin_turn(turn)

    def begin_turn(self, turn: Turn) -> None:
        self.turns[turn.agent_id] = turn

        def fail(why: str) -> None:
            turn.failure = f"exec_turn {why}"
            self.end_turn(turn)

        self.start(turn.answer, self.exec_turn(turn), fail)

    async def exec_turn(self, turn: Turn) -> None:
        graph = self.root[turn.agent_id]
        before = {n.id for n in graph.nodes}
        try:
            node = self.flow.exec_turn(graph, turn.code, replay=turn.replay)
            node = await node if inspect.isawaitable(node) else node
            if not isinstance(node, Node):
                raise TypeError(f"exec_turn returned {type(node).__name__}; it must return the node that it appended "
                                "or that super().exec_turn(...) returned")
            if not turn.replay:
                self.take_returned(graph, before, node)
        except PASSING:
            if turn.answer in self.given_up:
                self.turns.pop(turn.agent_id, None)
            raise
        except BaseException as e:
            turn.failure = f"exec_turn raised {describe(e)}"
        self.end_turn(turn)

    def take_returned(self, graph: Graph, before: Set[str], node: Node) -> None:
        """What `exec_turn` returned: a node of this turn, or one that is to be appended."""
        nodes = graph.nodes
        if node.id in before:
            raise ValueError(f"exec_turn returned a node from before this turn, {node.type} {node.id}; it must return "
                             "the node that it appended or that super().exec_turn(...) returned")
        if all(node.id != n.id for n in nodes) and not nodes[-1].terminal:
            self.flow.append_node(graph, node)

    def end_turn(self, turn: Turn) -> None:
        if turn.failure is not None:
            if turn.is_running:
                return  # once its node has come
            if not turn.replay:
                self.fail(turn.agent_id, turn.failure)
            elif getattr(turn.recorded, "content", None) != turn.failure:
                warnings.warn(f"in a replay, where what was recorded stands, {turn.failure}")
        self.turns.pop(turn.agent_id, None)
        if turn.observed is None:
            turn.answer.decide("skip", None, "")
        if turn.step is not None:
            self.step(turn.step, turn.agent_id)
        ahead = self.ahead.get(turn.agent_id)
        if ahead:
            self.begin_turn(ahead.popleft())

    def on_messages(self, answer: Any, agent_id: str, messages: str, final: bool) -> None:
        graph = self.root[agent_id]
        projected: list = json.loads(messages)
        graph._messages, hook = projected, "build_system_prompt"

        def fail(why: str) -> None:
            answer.decide("reject", None, f"{hook} {why}")

        async def make() -> None:
            nonlocal hook
            try:
                if self.flow._makes_system_prompt() and projected[0]["role"] == "system":
                    prompt = self.flow.build_system_prompt(graph)
                    prompt = await prompt if inspect.isawaitable(prompt) else prompt
                    projected[0]["content"] = _checked_prompt(prompt)
                hook = "messages"
                made = self.flow.messages(graph, force_final=final)
                made = await made if inspect.isawaitable(made) else made
                answer.decide("rewrite", None, json.dumps(_checked_messages(made)))
            except PASSING:
                raise
            except BaseException as e:
                fail(f"raised {describe(e)}")

        self.start(answer, make(), fail)


def _checked_prompt(prompt: Any) -> str:
    if not isinstance(prompt, str):
        raise TypeError(f"build_system_prompt returned {type(prompt).__name__}; it must return a str")
    return prompt


def _checked_messages(messages: Any) -> list:
    if not isinstance(messages, (list, tuple)) or not all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
            for m in messages):
        raise TypeError(f"messages returned {shown(messages)}; it must return a list of dicts with a \"role\" and a "
                        "\"content\", both str")
    return list(messages)


def answer_by(answer: Any, ask: Any) -> None:
    """Answers with the (text, usage) that a function returns; None: it is answered elsewhere."""
    try:
        made = ask()
        if made is not None:
            answer.reply(made[0], None, *made[1])
    except BaseException as e:
        answer.fail(describe_failure(e), code_of(e))
