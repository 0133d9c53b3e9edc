"""Flow: the policy and environment of runs."""
from __future__ import annotations

import contextlib
import json
import os
import warnings
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Coroutine, Dict, Iterable, List, Optional, Union

from . import _engine
from ._arguments import Arguments, Path
from ._asking import Asked, is_client
from ._limits import limits_of
from .clients import UNKNOWN_PRICE, _EngineClient
from .events import Event
from .graph import Graph, check_graph
from .nodes import Node, as_node
from .parallel import parallel_run, parallel_stream
from .prompts import DEFAULT_BUILDER, PromptBuilder
from .replay import ReplayReport
from .runtimes import Runtime, SubprocessRuntime
from .schema import Schema, StructuredOutputParser, json_schema_for
from .streaming import Stepper, Until, check_until
from .tools import Tool
from .values import printable, shown, to_json
from .watching import Watch, check_watch

if TYPE_CHECKING:
    from ._drive import Drive  # with asyncio, which is most of what an import would take

__all__ = ["Flow", "RunEnded"]

# Of enum rlm_input_kind and enum rlm_restore_mode, and what run.h has a run ask Python for.
_TEXT, _BYTES, _JSON, _FILE, _DIRECTORY = range(5)
_RESTORE = {"auto": 0, "replay": 1, "fresh": 2}
HOOK_EXEC_TURN, HOOK_EVENTS, HOOK_NEXT_STEP, HOOK_MESSAGES = 1, 2, 4, 8
_OF_FLOW, _OF_RUN, _OF_FORK = Arguments("Flow"), Arguments("a run"), Arguments("a fork")


class RunEnded(Exception):
    """A run ended without an answer. `reason` says why ("max_iters", "budget", "cost", "time", "terminated",
    "failed", "interrupted", "awaiting_approval"), `message` more of it, `graph` holds what was done, `path` is
    that of the journal, if there is one."""

    def __init__(self, reason: str, message: str, graph: Optional[Graph], path: Optional[str]):
        super().__init__(f"{reason}: {message}" if message else reason)
        self.reason, self.message, self.graph, self.path = reason, message, graph, path

    def __reduce__(self) -> tuple:
        return type(self), (self.reason, self.message, self.graph, self.path)


class Flow:
    """Runs agents: `llm` is their model (a client of this package, or any object with `chat(messages)`).

    Limits hold for a whole tree of agents: `max_depth` of sub-agents, `max_agents` in a run, `max_iters` model
    replies of one agent (`child_max_iters` of a sub-agent), `max_budget` tokens, `max_cost` US dollars,
    `max_time` seconds (None: not capped), `max_messages` that a model is sent (None: not capped; the task and
    the newest stay), `max_output_tokens` of one reply, `max_output_length` characters of a cell's output that
    the model is shown (0: all), `max_query_chars` of a sub-agent's query, `exec_timeout` seconds of a cell
    (None: the runtime's, else 120), `workers` model calls at once (None: 8), `max_live` sessions at work at
    once.

    No clock runs against an agent while `exec_turn` has its code: `max_time` stands still while every agent
    that has not ended waits there, for a person perhaps. It goes on while a client, a tool or `Runtime.open` is
    waited for. `llm_request_timeout`: seconds of one model call, which fails then and is not tried again (None:
    what the client itself says).

    `tools`: functions that agents may call, as `add_tool` takes them.
    `llm_clients` are more models by name, which agents may ask for; its "default" takes the place of `llm`.
    `runtime`: where agents' code runs. Without one it is `SubprocessRuntime()`, with a warning.

    `system_prompt` is a text for all agents, else `prompt_builder` makes it. `use_llm_query` has no effect:
    agents always have `llm_query`. `watch`: True shows each run's tree of agents as it grows (on a terminal or
    in a notebook live, else as lines on stderr); a function of (event, graph), or a `StreamConsumer`, is told
    of each change. One that raises is told nothing more, with a warning.

    An option that no run could have is a TypeError or ValueError that names it."""

    output_parser = StructuredOutputParser()

    def __init__(self, llm: Any, *, max_depth: int = 2, max_iters: int = 20, child_max_iters: Optional[int] = None,
                 max_messages: Optional[int] = None, max_output_length: int = 4000, max_query_chars: int = 2000,
                 max_budget: Optional[int] = None, max_cost: Optional[float] = None,
                 max_time: Optional[float] = None, max_output_tokens: int = 8192,
                 exec_timeout: Optional[float] = None, workers: Optional[int] = None, max_live: int = 64,
                 max_agents: int = 1000, llm_request_timeout: Optional[float] = None,
                 system_prompt: Optional[str] = None, prompt_builder: Optional[PromptBuilder] = None,
                 tools: Optional[list] = None, runtime: Optional[Runtime] = None,
                 llm_clients: Optional[Dict[str, Any]] = None, use_llm_query: bool = True, watch: Watch = None):
        self.llm = llm
        self.llm_clients = dict(_OF_FLOW.mapping("llm_clients", llm_clients))
        self.max_depth, self.max_iters, self.child_max_iters = max_depth, max_iters, child_max_iters
        self.max_messages, self.max_output_length = max_messages, max_output_length
        self.max_query_chars, self.max_output_tokens = max_query_chars, max_output_tokens
        self.max_budget, self.max_cost, self.max_time = max_budget, max_cost, max_time
        self.exec_timeout, self.workers = exec_timeout, workers
        self.max_live, self.max_agents = max_live, max_agents
        self.llm_request_timeout = llm_request_timeout
        self.system_prompt, self.prompt_builder = system_prompt, prompt_builder
        self.runtime = runtime if runtime is not None else _default_runtime()
        self.watch = watch
        self.runs: Dict[str, Drive] = {}  # by graph id, those that go on
        self._drives: "weakref.WeakSet[Drive]" = weakref.WeakSet()  # also of runs that have ended and may be asked more
        self.tools: Dict[str, Tool] = {}
        self._checked_limits()
        for fn in _OF_FLOW.listed("tools", tools or (), "functions"):
            self.add_tool(fn)

    def add_tool(self, fn: Any, *, name: Optional[str] = None) -> None:
        """Makes the function `fn` callable by the agents of later runs, as `name` or its own. ValueError: its
        name is taken by the engine, or it cannot go into sessions of the runtime (see `tool`)."""
        made = Tool(fn, name)
        made.check()
        self.runtime._source_of(made)
        self.tools[made.metadata.name] = made

    def remove_tool(self, name: str) -> "Optional[Callable]":
        """Takes a tool of this flow from later runs; the function, or None if there was none."""
        tool = self.tools.pop(name, None)
        return None if tool is None else tool.function

    # Runs.

    def run(self, query: Optional[str] = None, *, graph: Optional[Graph] = None, inputs: Optional[dict] = None,
            output_schema: Optional[Schema] = None, journal: Optional[Path] = None, sync: bool = False) -> str:
        """The answer to `query`. See `arun`.

        Hooks, async tools and async clients run on an event loop in this thread; in a thread whose loop is
        running (a notebook, another async program) that is blocked meanwhile, and they run on a loop of a
        helper thread. Ctrl-C stops the run where it is, and KeyboardInterrupt is raised; a second one does so
        at once."""
        return _run(self.arun(query, graph=graph, inputs=inputs, output_schema=output_schema,
                              journal=journal, sync=sync))

    async def arun(self, query: Optional[str] = None, *, graph: Optional[Graph] = None,
                   inputs: Optional[dict] = None, output_schema: Optional[Schema] = None, journal: Optional[Path] = None,
                   sync: bool = False) -> str:
        """The answer to `query`; JSON text under an `output_schema` (a JSON Schema as a mapping or text, a
        pydantic model class or TypeAdapter). `inputs` go to the root by name: str, bytes, `os.PathLike` (a file
        or directory), or anything that JSON can say. `journal` is the path of the run, which must not exist;
        None: in memory, and with the process the run is gone: nothing can be resumed, replayed or forked, and a
        session that dies comes back without its variables. `sync`: each step waits until it is on the disk, so
        that a machine that stops loses none, not only a process that is killed. Raises `RunEnded` when there is
        no answer.

        Cancelled, it stops the run where it is; `resume` goes on with one that has a journal.

        `graph`: a new one, `Graph(query=...)`, becomes that of the run; one that a stream has paused goes on;
        one whose run has ended is asked `query` next, with its limits and clients, and the agent's variables
        are there (see `close_repls`)."""
        check_graph(graph, optional=True)
        if graph is not None and graph._drive is not None and query is None and graph._has_ended():
            return _answer_of(graph._drive, graph)
        drive = self._resolve(query, graph, inputs, output_schema, journal, sync)
        drive.stepper = None
        drive.release()
        return await self._finish(drive)

    async def _finish(self, drive: Drive) -> str:
        loop, root = drive.loop, None
        try:
            await drive.wait()
        finally:
            if drive.loop is loop:
                root = drive.let_go()
        return _answer_of(drive, root)

    def terminate(self, agent_ids: Optional[Iterable[str]] = None) -> None:
        """Ends agents of the runs that go on, with all below them: those with these `agent_ids`, or all. They
        end with the reason "terminated"; from any thread."""
        ids = [None] if agent_ids is None else Arguments("terminate").texts("agent_ids", agent_ids) or []
        for drive in list(self._drives):
            for agent_id in ids:
                with contextlib.suppress(LookupError):  # it is another run's
                    drive.run.terminate(agent_id)

    def close_repls(self, graph_id: Optional[str] = None) -> None:
        """Ends the sessions that runs which have ended keep for further queries: those of the graph
        `graph_id`, or all.
        They also end when no graph of their run is held any more."""
        for drive in list(self._drives):
            if graph_id in (None, drive.graph_id) and drive.run.has_ended():
                drive.run.close_sessions()

    def resume(self, journal: Path, *, query: str = "", restore: str = "auto", cut: bool = False,
               sync: bool = False) -> str:
        """The answer of a run that was stopped or killed. See `aresume`."""
        return _run(self.aresume(journal, query=query, restore=restore, cut=cut, sync=sync))

    async def aresume(self, journal: Path, *, query: str = "", restore: str = "auto", cut: bool = False,
                      sync: bool = False) -> str:
        """Goes on with the run at `journal` from whatever it holds, under this flow's limits, clients and
        tools: replies that were paid for are used, answered calls are not made again. `query`: a follow-up for
        one that has ended. `restore`: "replay" runs the cells of lost sessions again, with the recorded answers
        to their calls; "fresh" tells the model which variables are gone; "auto" is the one or the other by
        whether their effects stayed inside. `cut`: where the journal is damaged before its end, goes on from
        there. `sync` as in `arun`."""
        mode = _RESTORE[_OF_RUN.choice("restore", restore, _RESTORE)]
        _OF_RUN.string("query", query, False)
        path = _OF_RUN.run("journal", journal)
        drive = self._begin(lambda run: run.resume(path, query, cut, sync, mode))
        return await self._finish(drive)

    def replay(self, journal: Path, *, execute: bool = False) -> ReplayReport:
        """Runs the recorded run at `journal` again, without a model, a tool or a file. See `areplay`."""
        return _run(self.areplay(journal, execute=execute))

    async def areplay(self, journal: Path, *, execute: bool = False) -> ReplayReport:
        """Runs the run recorded at `journal` again and compares each step; `exec_turn` is passed with
        `replay=True`. `execute`: cells run again also where their effects may reach outside."""
        path = _OF_RUN.run("journal", journal)
        drive = self._begin(lambda run: run.replay(path, execute))
        try:
            await drive.wait()
        finally:
            drive.let_go()
        outcome = drive.run.outcome()
        if outcome["reason"] == "failed" and outcome["code"]:
            raise RunEnded("failed", outcome["message"], None, path)
        return ReplayReport(reason=outcome["reason"], **drive.run.report())

    async def run_streaming(self, query: Optional[str] = None, *, graph: Optional[Graph] = None,
                            inputs: Optional[dict] = None, output_schema: Optional[Schema] = None, journal: Optional[Path] = None,
                            sync: bool = False, until: Until = "done", n: Optional[int] = None
                            ) -> AsyncIterator[Event]:
        """The changes of the graph as they come: `async for event in flow.run_streaming("...")`. What begins
        and limits the run, see `arun`.

        `until` says where each agent pauses: "next" after one node, "idle" after its code has run without an
        error, "error" after one, "supervising" when it waits for sub-agents, a callable of (event, root graph)
        where it returns true; "done" nowhere. When all agents have come there `n` times (once unless given) the
        stream ends and the run is held: the same `graph`, given again, goes on, and may have been appended to
        meanwhile. A stream that is closed early stops its run."""
        passes = check_until(until, n)
        check_graph(graph, optional=True)
        if graph is not None and query is None and graph._has_ended():
            return
        drive = self._resolve(query, graph, inputs, output_schema, journal, sync, HOOK_NEXT_STEP | HOOK_EVENTS)
        stepper = drive.stepper = Stepper(until, passes)
        drive.release()
        try:
            async for event in stepper.events(drive):
                yield event
            if drive.ended.done():
                await drive.finish_turns()
        except BaseException:
            await drive.stop()
            raise
        finally:
            if drive.ended.done():
                try:
                    await drive.end()
                finally:
                    drive.let_go()
            else:
                drive.detach()

    def parallel_stream(self, *runs: Union[str, Graph], until: Until = "done", n: Optional[int] = None
                        ) -> AsyncIterator[Event]:
        """The events of several runs at once. See `rlmflow.parallel_stream`."""
        return parallel_stream(self, *runs, until=until, n=n)

    async def parallel_run(self, *runs: Union[str, Graph], until: Until = "done", n: Optional[int] = None) -> List[Graph]:
        """The graphs of several runs at once. See `rlmflow.parallel_run`."""
        return await parallel_run(self, *runs, until=until, n=n)

    def _resolve(self, query: Optional[str], graph: Optional[Graph], inputs: Optional[dict],
                 output_schema: Optional[Schema], journal: Optional[Path], sync: bool, hooks: int = 0) -> Drive:
        """The drive of a graph that is held or asked more, or of a new run."""
        _OF_RUN.string("query", query)
        path = _OF_RUN.path("journal", journal)
        inputs = None if inputs is None else dict(_OF_RUN.mapping("inputs", inputs))
        if graph is not None and graph._drive is not None:
            return self._go_on(graph._drive, query, graph, (inputs, output_schema, journal), hooks)
        if graph is not None:
            query, inputs, output_schema = graph._begin(query, inputs, output_schema)
        if query is None:
            raise ValueError("a run needs a query, or a graph to go on with")
        taken = [(_OF_RUN.prose("a name in inputs", name, False), *_input(name, value))
                 for name, value in (inputs or {}).items()]
        schema = None if output_schema is None else json.dumps(json_schema_for(output_schema))
        return self._begin(lambda run: run.start(query, taken, schema, path, sync, _RESTORE["auto"]), hooks, graph)

    def _go_on(self, drive: Drive, query: Optional[str], graph: Graph, given: tuple, hooks: int) -> Drive:
        if drive.flow is not self:
            raise ValueError(f"graph {graph.graph_id} is not of a run of this flow")
        if drive.attached and not drive.loop.is_closed():
            raise RuntimeError(f"graph {graph.graph_id} is already being streamed")
        if any(value is not None for value in given):
            raise ValueError("a run that goes on keeps its inputs, its output_schema and its journal: none can be "
                             "given anew; begin another run for that")
        if drive.run.has_ended():
            drive.ask(query or "", hooks | self._hooks())
        elif query is not None:
            raise ValueError(f"the run of graph {graph.graph_id} has not ended: append_node() puts a query to it")
        else:
            drive.attach()
        return drive

    def _begin(self, start: Callable, hooks: int = 0, graph: Optional[Graph] = None) -> Drive:
        from ._drive import Drive

        run, clients, tools = self._new_run(hooks)
        drive = Drive(self, run, clients=clients, tools=tools, graph=graph)
        try:
            start(run)
        except BaseException:
            drive.close()
            raise
        self._drives.add(drive)
        if graph is not None:
            graph._drive = drive  # it is this run's, though there is no more to see of it yet
        return drive

    def fork(self, source: "Union[Path, Graph]", node: str, journal: Path, *, query: str = "") -> str:
        """A new run at `journal`, which must not exist, that is the run `source` (its path, or a graph of a run
        with a journal) up to a node: its id, "AGENT:SEQ", "AGENT:turnN", or SEQ or "turnN" of the root. A
        `query` is asked behind it. Returns the path, with which `resume` goes on. FileNotFoundError: there is
        no such run; KeyError: no such node; ValueError: there is nothing to do behind it."""
        path = source._journal() if isinstance(source, Graph) else source
        if isinstance(source, Graph) and path is None:
            raise ValueError("the graph's run has no journal; Graph.fork() makes a copy to look at and edit")
        node, made = _OF_FORK.text("node", node, False), _OF_FORK.path("journal", journal, False)
        _OF_FORK.string("query", query, False)
        _engine.fork_run(_OF_FORK.run("source", path), node, made, query)
        return made

    async def merge(self, parent: Graph, child: Graph, *, agent_id: Optional[str] = None,
                    summary: "Union[str, Callable[[Graph], str], None]" = None) -> None:
        """Takes what came of `child`, a fork of the tree `parent`, back in there, at the agent `agent_id`
        (None: the one whose graph `parent` is): one node with `summary`, else with the branch's result. See
        `Graph.merge`."""
        check_graph(parent, "parent")
        check_graph(child, "child")
        if agent_id is not None:
            parent, child = parent[agent_id], child[agent_id]
        parent.merge(child, summary=summary)

    # What subclasses may override.

    async def exec_turn(self, graph: Graph, code: str, *, replay: bool = False) -> Node:
        """Runs the code of a reply in the agent's session and returns the node that was observed.

        Override it to look at code before it runs: call `await super().exec_turn(graph, code, replay=replay)`
        with this or other code, or append a node of your own with `append_node` and return it: then nothing
        runs. It may take as long as it likes; no clock of the run stands against it."""
        turn = graph._drive.turns[graph.agent_id] if graph._drive else None
        if turn is None:
            raise RuntimeError("exec_turn runs in a run, for the agent whose turn it is")
        return await turn.run(code)

    def append_node(self, graph: Graph, node: "Node | str") -> Node:
        """Puts a node at the end of the agent's trajectory, and returns it; a str becomes a `UserQuery`. An `ExecOutput`
        or `ErrorOutput` without `content` shows the model its `output` and `error`. It is for `exec_turn`, for a run
        that is held, and for a graph at rest. A node that is in the graph already stays as it is; ValueError for one
        of another graph: a copy without its `id` can be appended.

        In a replay nothing is appended: the node gets the place of the one that was. ValueError: none was."""
        check_graph(graph)
        node = as_node(node)
        if not node.id:
            if graph._drive is None:
                graph.append(node)
            else:
                graph._drive.append(graph.agent_id, node)
        elif all(node.id != n.id for n in graph.nodes):
            raise ValueError(f"the node {shown(node.id)} is of another graph; append a copy of it with id=\"\"")
        return node

    def messages(self, graph: Graph, *, force_final: bool = False) -> list:
        """The messages that the agent's model is sent: dicts of "role" and "content". `force_final`: it is the
        agent's last turn. Override it, also as `async def`, to send others."""
        return list(graph._messages or ())

    def build_system_prompt(self, graph: Graph) -> str:
        """The system prompt of an agent: `system_prompt`, else what `prompt_builder` or the engine makes.
        Override it, also as `async def`, to make it for each turn anew."""
        if self.system_prompt is not None:
            return self.system_prompt
        return (self.prompt_builder or DEFAULT_BUILDER).build(self, graph)

    def llm_client(self, model: str = "default") -> Any:
        """The client of a model; it is asked for once in a run. ValueError for a name that is not
        configured."""
        clients = {"default": self.llm, **self.llm_clients}
        if model not in clients:
            raise ValueError(f"no model is named {shown(model)}; the models are: {', '.join(sorted(clients))}")
        return clients[model]

    def _makes_system_prompt(self) -> bool:
        return self._is_overridden("build_system_prompt") or (
            self.prompt_builder is not None and self.system_prompt is None)

    def _is_overridden(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(Flow, name)

    def _hooks(self) -> int:
        hooks = 0
        if self._is_overridden("exec_turn"):
            hooks |= HOOK_EXEC_TURN | HOOK_NEXT_STEP | HOOK_EVENTS
        if self._is_overridden("messages") or self._makes_system_prompt():
            hooks |= HOOK_MESSAGES
        if self.watch:
            hooks |= HOOK_EVENTS
        return hooks

    def _new_run(self, hooks: int = 0) -> tuple:
        limits = self._checked_limits()
        self.runtime._check_can_open()
        clients: list = []
        models = []
        for name in {"default": None, **self.llm_clients}:
            client = self.llm_client(name)
            engine = client._model if isinstance(client, _EngineClient) else None
            if engine is None and not is_client(client):
                raise TypeError(f"llm_client({name!r}) is {shown(client)}; a client needs a chat(messages) method, or is "
                                "a function")
            asked = client if engine else Asked(
                client, is_capped=bool(self.max_budget or self.max_cost), timeout=self.llm_request_timeout)
            price = Arguments(f"the client of model {name!r}").price("price", getattr(client, "price", None), UNKNOWN_PRICE)
            models.append((name, printable(str(getattr(client, "model", "") or type(client).__name__)), engine, price,
                           not engine and asked.one_at_a_time))
            clients.append(asked)
        tools = [t for t in {**self.runtime.tools, **self.tools}.values() if not t.is_built_in]
        custom = self.runtime._as_custom()
        run = _engine.Run(models=models, tools=[t.for_engine(self.runtime._source_of(t)) for t in tools],
                          limits=limits,
                          runtime=None if custom else self.runtime._engine_runtime(tools),
                          custom=custom or (None, None),
                          system_prompt=self.system_prompt, hooks=hooks | self._hooks(), child_model=None)
        return run, clients, tools

    def _checked_limits(self) -> Dict[str, int]:
        """Of the next run, which may be given all that this flow has: what no run could have is raised with its
        name."""
        _OF_FLOW.prose("system_prompt", self.system_prompt)
        for name in self.llm_clients:
            _OF_FLOW.text("a name in llm_clients", name, False)
        if not isinstance(self.runtime, Runtime):
            raise _OF_FLOW.wrong("runtime", self.runtime, "it must be a Runtime, as SubprocessRuntime() is", TypeError)
        builder = self.prompt_builder
        if builder is not None and (isinstance(builder, type) or not callable(getattr(builder, "build", None))):
            raise _OF_FLOW.wrong("prompt_builder", self.prompt_builder, "it must be a PromptBuilder", TypeError)
        check_watch(self.watch)
        return limits_of(self, _OF_FLOW)


def _run(coroutine: Coroutine) -> Any:
    from . import _running

    try:
        return _running.run(coroutine)
    except RunEnded as e:
        raise e.with_traceback(None)  # asyncio's frames hold the task, and that holds the error with its graph


def _default_runtime() -> Runtime:
    warnings.warn("agents' code runs in plain child processes, which can do what you can do: this version of rlmflow "
                  "has no sandbox. Say runtime=rlmflow.SubprocessRuntime() to agree.", stacklevel=3)
    return SubprocessRuntime()


def _answer_of(drive: Drive, graph: Optional[Graph]) -> str:
    outcome = drive.run.outcome()
    if outcome["reason"] != "answered":
        raise RunEnded(outcome["reason"], outcome["message"], graph, outcome["path"])
    return outcome["answer"]


def _input(name: str, value: Any) -> tuple:
    if isinstance(value, str):
        return _TEXT, value, None
    if isinstance(value, (bytes, bytearray)):
        return _BYTES, bytes(value), None
    if isinstance(value, os.PathLike):
        path = _OF_RUN.path(f"inputs[{name!r}]", value, False)
        return (_DIRECTORY if os.path.isdir(path) else _FILE), path, None
    return _JSON, to_json(value, f"input {name!r}"), None
