"""What the user's code does wrong in each place where it is asked: it is told by name, and nothing hangs."""
import asyncio
import dataclasses
import gc
import threading
import warnings

import pytest
import rlmflow
from leaks import wait_until
from test_flow import block

ANSWER = block("import asyncio\nawait our_tool()\ndone('answered')")


class Odd(BaseException):
    """No Exception."""


class Flow(rlmflow.Flow):
    """Has `act` done in the place `hook`; what it returns, unless None, is returned there."""

    def __init__(self, hook, act, **options):
        self.hook, self.act, self.asked, self.acts = hook, act, [], 0

        @rlmflow.tool("Ours.", proxy=True)
        async def our_tool():
            return await self.at("our_tool()")

        super().__init__(self.chat_sync if hook == "sync chat()" else self.chat, runtime=Runtime(self),
                         tools=[our_tool], **options)

    async def at(self, place, graph=None):
        if place == self.hook and self.acts == 0:
            self.acts += 1
            return await self.act(self, graph)

    def chat_sync(self, messages):
        self.asked.append(messages)
        made = asyncio.run(self.at("sync chat()"))
        return ANSWER if made is None else made

    async def chat(self, messages):
        self.asked.append(messages)
        made = await self.at("chat()")
        return ANSWER if made is None else made

    async def exec_turn(self, graph, code, *, replay=False):
        made = await self.at("exec_turn", graph)
        return await super().exec_turn(graph, code, replay=replay) if made is None else made

    async def messages(self, graph, *, force_final=False):
        made = await self.at("messages", graph)
        return super().messages(graph, force_final=force_final) if made is None else made

    async def build_system_prompt(self, graph):
        made = await self.at("build_system_prompt", graph)
        return super().build_system_prompt(graph) if made is None else made


class Runtime(rlmflow.LocalRuntime):
    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    async def open(self, graph):
        made = await self.flow.at("open", graph)
        return Backend(self.flow, await super().open(graph)) if made is None else made


class Backend(rlmflow.Backend):
    def __init__(self, flow, inner):
        self.flow, self.inner = flow, inner

    async def start(self, code):
        made = await self.flow.at("start")
        return await self.inner.start(code) if made is None else made

    async def resume(self, results):
        made = await self.flow.at("resume")
        return await self.inner.resume(results) if made is None else made

    async def close(self):
        await self.flow.at("close")
        await self.inner.close()


GATES = ["exec_turn", "messages", "build_system_prompt"]
ASKED = [*GATES, "chat()", "sync chat()", "open"]  # what ends the agent where it goes wrong
IN_CELLS = ["our_tool()", "start", "resume"]  # what the agent is told of, and goes on
ALL = [*ASKED, *IN_CELLS, "close"]


def outcome(flow, graph=None):
    """The answer and what was told: to the caller, to the model or in warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer, told = flow.run(None if graph else "q", graph=graph), ""
        except rlmflow.RunEnded as e:
            answer, told = e.reason, e.message
    assert flow.acts == 1
    told += "".join(str(w.message) for w in caught if issubclass(w.category, UserWarning))
    return answer, told + "".join(m["content"] for messages in flow.asked[1:] for m in messages[2:])


def assert_told(flow, *words):
    answer, told = outcome(flow)
    assert answer == ("failed" if flow.hook in ASKED else "answered"), told
    assert all(word in told for word in words), told


async def raises(flow, graph):
    raise KeyError("not today")


async def raises_odd(flow, graph):
    raise Odd("not today")


@pytest.mark.parametrize("act, kind", [(raises, "KeyError"), (raises_odd, "Odd")], ids=["Exception", "BaseException"])
@pytest.mark.parametrize("hook", ALL)
def test_one_that_raises_is_named(hook, act, kind):
    named = {"sync chat()": "chat()", "our_tool()": ""}.get(hook, hook)  # the traceback names the tool
    assert_told(Flow(hook, act), named, f"{kind}: ", "not today")


@pytest.mark.parametrize("hook", ALL)
def test_one_that_cancels_itself_is_named(hook):
    async def act(flow, graph):
        asyncio.current_task().cancel()
        await asyncio.sleep(3600)

    named = {"sync chat()": "chat() raised CancelledError", "close": ""}.get(hook, f"{hook} was cancelled")
    assert_told(Flow(hook, act), named)


@pytest.mark.parametrize("hook", [h for h in ALL if h not in ("close", "our_tool()")])
def test_one_that_returns_something_else_is_named(hook):
    async def act(flow, graph):
        return 42

    named = {"sync chat()": "chat()", "start": "Backend.start", "resume": "Backend.resume", "open": "Runtime.open"}
    told = "messages returned 42" if hook == "messages" else f"{named.get(hook, hook)} returned "
    assert_told(Flow(hook, act), told, "" if hook == "messages" else "int", "must return" if hook != "open" else "start()")


def test_a_tool_that_returns_what_cannot_cross_is_named():
    async def act(flow, graph):
        return object()

    assert_told(Flow("our_tool()", act), "what the tool our_tool returned is an object")


@pytest.mark.parametrize("how", ["run", "arun", "run_streaming"])
@pytest.mark.parametrize("hook", ALL)
def test_one_that_runs_another_flow_gets_its_answer(hook, how):
    inner_answers = []

    async def act(flow, graph):
        inner = rlmflow.Flow(lambda messages: block("done('inner')"), runtime=rlmflow.LocalRuntime())
        if how == "run":
            inner_answers.append(inner.run("q"))
        elif how == "arun":
            inner_answers.append(await inner.arun("q"))
        else:
            inner_answers.append([e async for e in inner.run_streaming("q")][-1].node.result)

    assert outcome(Flow(hook, act))[0] == "answered" and inner_answers == ["inner"]


@pytest.mark.parametrize("how", ["run", "arun", "run_streaming"])
@pytest.mark.parametrize("hook", [*GATES, "open"])
def test_one_that_runs_its_own_graph_is_refused(hook, how):
    async def act(flow, graph):
        if how == "run":
            flow.run(graph=graph)
        elif how == "arun":
            await flow.arun(graph=graph)
        else:
            [e async for e in flow.run_streaming(graph=graph)]

    assert_told(Flow(hook, act), f"{hook} raised RuntimeError: graph", "is already being streamed")


@pytest.mark.parametrize("hook", ALL)
def test_one_that_closes_the_sessions_ends_none_that_are_used(hook):
    async def act(flow, graph):
        flow.close_repls()

    assert outcome(Flow(hook, act))[0] == "answered"


@pytest.mark.parametrize("hook", [h for h in ALL if h != "close"])
def test_one_that_terminates_the_run_ends_it(hook):
    async def act(flow, graph):
        flow.terminate()

    assert outcome(Flow(hook, act))[0] == "terminated"


async def never_returns(flow, graph):
    await asyncio.sleep(3600)


@pytest.mark.parametrize("hook", ["chat()", "open", *IN_CELLS])
def test_one_that_never_returns_meets_max_time(hook):
    assert outcome(Flow(hook, never_returns, max_time=0.2))[0] == "time"


@pytest.mark.parametrize("hook", [h for h in ALL if h not in ("sync chat()", "close")])
def test_one_that_never_returns_is_cancelled_with_its_run(hook):
    async def main():
        here = asyncio.Event()

        async def act(flow, graph):
            here.set()
            await asyncio.sleep(3600)

        task = asyncio.ensure_future(Flow(hook, act).arun("q"))
        await here.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


@pytest.mark.parametrize("hook", [h for h in ALL if h not in ("sync chat()", "close")])
def test_one_whose_loop_is_closed_is_named_and_the_run_goes_on_elsewhere(hook):
    here = threading.Event()

    async def act(flow, graph):
        here.set()
        await asyncio.sleep(3600)

    async def until_there():
        while not here.is_set():
            await asyncio.sleep(0.01)

    flow, graph, loop = Flow(hook, act, max_time=60), rlmflow.Graph("q"), asyncio.new_event_loop()
    task = loop.create_task(flow.arun(graph=graph))
    loop.run_until_complete(until_there())
    loop.close()
    if hook != "open":  # now or later: the tasks that were left behind go while the run goes on
        del task
        gc.collect()
    answer, told = outcome(flow, graph=graph)
    named = "exec_turn" if hook in IN_CELLS else hook  # it waits for the cell
    assert (answer, flow.runs) == ("failed", {}) and f"{named} was at work on an event loop that has been closed" in told


def test_a_close_that_never_returns_is_left_behind(monkeypatch):
    monkeypatch.setattr("rlmflow._backends.CLOSE_S", 0.1)
    answer, told = outcome(Flow("close", never_returns))
    assert answer == "answered" and "1 backends were not closed within 0.1 s" in told


def test_an_exec_turn_that_never_returns_after_the_end_is_left_behind(monkeypatch):
    monkeypatch.setattr("rlmflow._drive.TURNS_END_S", 0.1)

    class Late(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            await super().exec_turn(graph, code, replay=replay)
            await asyncio.sleep(3600)

    before = set(threading.enumerate())
    with pytest.warns(UserWarning, match="exec_turn has not returned 0.1 s after the end of the run"):
        assert Late(lambda messages: block("done('a')"), runtime=rlmflow.LocalRuntime()).run("q") == "a"
    # What it held is let go of, and with the last graph the session ends.
    wait_until(lambda: not [t for t in set(threading.enumerate()) - before if t.name == "rlmflow root"])


@pytest.mark.parametrize("at_once", [False, True])
def test_an_exec_turn_that_is_left_behind_fails_no_follow_up(at_once, monkeypatch):
    monkeypatch.setattr("rlmflow._drive.TURNS_END_S", 0.1)
    turns = []

    class Late(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            turns.append(code)
            if len(turns) == 2:
                await asyncio.sleep(0.2)  # at a gate, for longer than it takes to tell who was cancelled
            node = await super().exec_turn(graph, code, replay=replay)
            await asyncio.sleep(3600 if len(turns) == 1 else 0)
            return node

    async def main():
        flow, graph = Late(lambda messages: block("done('a')"), runtime=rlmflow.LocalRuntime()), rlmflow.Graph("q")
        with pytest.warns(UserWarning, match="exec_turn has not returned"):
            assert await flow.arun(graph=graph) == "a"
        if not at_once:
            await asyncio.sleep(0.01)
        assert await flow.arun("more", graph=graph) == "a"

    asyncio.run(main())


def test_a_hook_that_swallows_its_cancellation_is_given_up(monkeypatch):
    monkeypatch.setattr("rlmflow._running.LEFT_S", 0.1)
    monkeypatch.setattr("rlmflow._drive.TURNS_END_S", 0.1)

    class Stubborn(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            await super().exec_turn(graph, code, replay=replay)
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass

    with pytest.warns(UserWarning, match="1 tasks go on 0.1 s after they were cancelled"):
        assert Stubborn(lambda messages: block("done('a')"), runtime=rlmflow.LocalRuntime()).run("q") == "a"


def test_an_exec_turn_that_gives_up_waiting_fails_its_agent_once_the_code_has_ended():
    class Hasty(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            return await asyncio.wait_for(super().exec_turn(graph, code, replay=replay), 0.05)

    flow = Hasty(lambda messages: block("import time\ntime.sleep(0.3)\nprint('late')"), runtime=rlmflow.LocalRuntime())
    with pytest.raises(rlmflow.RunEnded, match="exec_turn raised TimeoutError") as e:
        flow.run("q")
    assert [n.output for n in e.value.graph.nodes if n.type == "exec_output"] == ["late\n"]


# ---- what is asked where the run is driven

class Broken(rlmflow.Flow):
    def __init__(self, made):
        self.made = made
        super().__init__(None, runtime=rlmflow.LocalRuntime())

    def llm_client(self, model="default"):
        return self.made()


@pytest.mark.parametrize("made, error, told", [
    (lambda: 1 / 0, ZeroDivisionError, "division by zero"),
    (lambda: None, TypeError, r"llm_client\('default'\) is None; a client needs a chat\(messages\) method"),
    (lambda: int, TypeError, r"llm_client\('default'\) is <class 'int'>"),
])
def test_an_llm_client_that_is_wrong_is_told_where_the_run_begins(made, error, told):
    with pytest.raises(error, match=told):
        Broken(made).run("q")


async def awaitable(event, graph):
    return True


@pytest.mark.parametrize("until, error, told", [
    (lambda event, graph: 1 / 0, ZeroDivisionError, "division by zero"),
    (lambda event: True, TypeError, "positional argument"),
    (awaitable, TypeError, "until returned an awaitable"),
])
@pytest.mark.filterwarnings("ignore:coroutine 'awaitable' was never awaited")
def test_an_until_that_is_wrong_ends_the_stream_and_stops_its_run(until, error, told):
    async def main():
        flow = rlmflow.Flow(lambda messages: block("done('a')"), runtime=rlmflow.LocalRuntime())
        with pytest.raises(error, match=told):
            async for _ in flow.run_streaming("q", until=until):
                pass
        assert flow.runs == {} and len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_an_until_may_run_another_flow():
    async def main():
        flow = rlmflow.Flow(lambda messages: block("done('a')"), runtime=rlmflow.LocalRuntime())
        answers = []
        async for event in flow.run_streaming("q", until=lambda e, g: answers.append(flow.run("inner"))):
            pass
        assert event.node.result == "a" and answers == ["a"] * 4  # one for each node

    asyncio.run(main())


def test_an_append_node_that_raises_is_the_exec_turns_error():
    class NoAppending(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            return self.append_node(graph, rlmflow.ExecOutput(output="x"))

        def append_node(self, graph, node):
            raise PermissionError("no nodes")

    with pytest.raises(rlmflow.RunEnded, match="exec_turn raised PermissionError: no nodes"):
        NoAppending(lambda messages: block("done('a')"), runtime=rlmflow.LocalRuntime()).run("q")


# ---- overrides that would go on for ever


@pytest.mark.parametrize("answer", ["a str", "a query", "an error"])
@pytest.mark.parametrize("agent", ["root", "root.c"])
def test_turns_are_counted_whatever_takes_the_place_of_their_code(agent, answer):
    nodes = {"a str": "please do not", "a query": rlmflow.UserQuery(content="please do not"),
             "an error": rlmflow.ErrorOutput(error="rejected")}
    calls = []

    def chat(messages):
        calls.append(1)
        assert len(calls) < 20
        child = "child task" in messages[1]["content"]
        return block("1" if child or agent == "root" else
                     "r = await launch_subagents([{'query': 'child task', 'name': 'c'}])\ndone(r[0].reason)")

    class Refusing(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            if graph.agent_id == agent:
                return self.append_node(graph, nodes[answer] if answer == "a str" else dataclasses.replace(nodes[answer]))
            return await super().exec_turn(graph, code, replay=replay)

    flow = Refusing(chat, runtime=rlmflow.LocalRuntime(), max_iters=3)
    if agent == "root":
        graph = rlmflow.Graph("q")
        for more in (None, "and now?"):  # a follow-up has turns of its own
            calls.clear()
            with pytest.raises(rlmflow.RunEnded, match="max_iters: no answer after 3 turns"):
                flow.run(more, graph=graph)
            assert len(calls) == 3
    else:
        assert flow.run("q") == "max_iters" and len(calls) == 1 + 3
