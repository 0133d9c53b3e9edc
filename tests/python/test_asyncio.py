"""The engine and event loops: run() wherever it is called, Ctrl-C, and tasks that are cancelled at any moment."""
import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import rlmflow
from leaks import assert_comes_back_to, when_at_rest
from test_flow import AsyncReplies, Replies, block

import uvloop

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
TWO = block("x = 1\nprint('one', x)"), block("done(f'x is {x}')")


@pytest.fixture
def nothing_leaks(monkeypatch):
    monkeypatch.setattr("rlmflow._backends.CLOSE_S", 0.1)
    for module in ("_pool", "_local_sessions"):  # whose threads are waited for
        monkeypatch.setattr(f"rlmflow.{module}.IDLE_S", 0.05)
    for kind in LOOPS:  # what each makes once
        LOOPS[kind]().close()
    rlmflow.Flow(Replies(*TWO), runtime=rlmflow.LocalRuntime()).run("q")
    before = when_at_rest()
    yield
    assert_comes_back_to(before)


def run_on(kind, coroutine):
    loop = LOOPS[kind]()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


class WhereAsked(rlmflow.Flow):
    """Keeps the thread and the loop in which hooks are asked."""

    async def exec_turn(self, graph, code, *, replay=False):
        self.where = threading.current_thread(), asyncio.get_running_loop()
        return await super().exec_turn(graph, code, replay=replay)


@pytest.mark.parametrize("client", [Replies, AsyncReplies])
@pytest.mark.parametrize("kind", LOOPS)
def test_run_in_a_running_loop_blocks_it_and_uses_another(kind, client, nothing_leaks):
    async def main():
        own, ticks = asyncio.get_running_loop(), []
        own.call_soon(ticks.append, 1)
        flow = WhereAsked(client(*TWO), runtime=rlmflow.LocalRuntime())
        assert flow.run("q") == "x is 1" and ticks == []
        thread, loop = flow.where
        assert thread.name == "rlmflow run" and loop is not own and asyncio.get_running_loop() is own
        await asyncio.sleep(0)
        assert ticks == [1]

    run_on(kind, main())


@pytest.mark.parametrize("kind", LOOPS)
def test_arun_and_streams_on_the_callers_loop(kind):
    async def main():
        flow = WhereAsked(AsyncReplies(*TWO, *TWO), runtime=rlmflow.LocalRuntime())
        assert await flow.arun("q") == "x is 1"
        assert flow.where == (threading.current_thread(), asyncio.get_running_loop())
        assert [e.node_type async for e in flow.run_streaming("q")][-1] == "done_output"

    run_on(kind, main())


def test_run_with_uvloop_as_the_policy():
    code = ("import asyncio, rlmflow, uvloop, warnings\nwarnings.simplefilter('ignore')\n"
            "asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())\n"
            "class F(rlmflow.Flow):\n  async def exec_turn(self, graph, code, *, replay=False):\n"
            "    print(type(asyncio.get_running_loop()).__module__)\n"
            "    return await super().exec_turn(graph, code, replay=replay)\n"
            "print(F(lambda m: '```repl\\ndone(\"a\")\\n```', runtime=rlmflow.LocalRuntime()).run('q'))")
    done = in_process(code)
    assert done.communicate(timeout=60)[0].split() == ["uvloop", "a"]


def test_runs_in_threads_that_are_not_the_main_one():
    flow = rlmflow.Flow(lambda messages: block("done(INPUTS['n'])"), runtime=rlmflow.LocalRuntime())
    answers = {}
    threads = [threading.Thread(target=lambda n=n: answers.update({n: [flow.run("q", inputs={"n": str(n)})
                                                                       for _ in range(3)]})) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {n: [str(n)] * 3 for n in range(4)}


def test_run_leaves_the_threads_event_loop_and_its_handlers_as_they_were():
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        assert rlmflow.Flow(Replies(*TWO), runtime=rlmflow.LocalRuntime()).run("q") == "x is 1"
        assert asyncio.get_event_loop() is loop and not loop.is_closed()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert signal.getsignal(signal.SIGINT) is before


def test_tasks_that_hooks_leave_behind_end_with_the_run():
    ended = []

    class Leaving(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            async def leftover():
                try:
                    await asyncio.sleep(3600)
                finally:
                    ended.append(code)

            asyncio.ensure_future(leftover())
            return await super().exec_turn(graph, code, replay=replay)

    assert Leaving(Replies(*TWO), runtime=rlmflow.LocalRuntime()).run("q") == "x is 1" and len(ended) == 2


# ---- Ctrl-C


def in_process(code):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


# What the process does when the signal comes: a client, tools, a Flow, the cell.
PROGRAM = """
import asyncio, os, sys, threading, time
import rlmflow
def say(): os.write(1, b"here\\n")
def wait(): say(); time.sleep(3600)
async def wait_async():
    asyncio.get_running_loop().call_later(0.01, os.write, 1, b"here\\n")
    await asyncio.sleep(3600)
class Client:
    def chat(self, messages):
        if {point!r} == "chat": threading.Event().wait(wait())
        return "```repl\\n" + {cell!r} + "\\n```"
class AsyncClient(Client):
    async def chat(self, messages):
        if {point!r} == "async chat": await wait_async()
        return super().chat(messages)
@rlmflow.tool("waits", proxy=True)
def a_tool(): wait()
@rlmflow.tool("waits", proxy=True)
async def an_async_tool(): await wait_async()
@rlmflow.tool("tells", proxy=True)
def tell(): say()
class Flow(rlmflow.Flow):
    async def exec_turn(self, graph, code, *, replay=False):
        if {point!r} == "gate": await wait_async()
        if {point!r} == "blocking gate": wait()
        if {point!r} == "input": say(); input()
        return await super().exec_turn(graph, code, replay=replay)
flow = Flow(AsyncClient() if {point!r} != "chat" else Client(), runtime=rlmflow.{runtime}(),
            tools=[a_tool, an_async_tool, tell])
async def main(): flow.run("q", journal={journal!r})
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", len([t for t in threading.enumerate() if t.name == "rlmflow run"]))
"""
POINTS = {"chat": "", "async chat": "", "tool": "a_tool()", "async tool": "await an_async_tool()", "gate": "print(1)",
          "blocking gate": "print(1)", "input": "print(1)", "cell": "tell()\nwhile True: pass", "child":
          "tell()\nawait launch_subagents([{'query': 'tell and wait'}])"}


CALLS = {"plain": "flow.run('q', journal={!r})", "in a loop": "asyncio.run(main())"}
# A thread that blocks hears of nothing, unless it is the main one.
COMBINED = [(p, c) for p in POINTS for c in CALLS if c == "plain" or p not in ("blocking gate", "input")]


@pytest.mark.parametrize("point, call", COMBINED)
def test_ctrl_c_stops_a_run_that_can_be_resumed(point, call, tmp_path):
    journal = str(tmp_path / "run.rlm")
    runtime = "SubprocessRuntime" if point in ("cell", "child") else "LocalRuntime"
    program = PROGRAM.format(point=point, cell=POINTS[point], journal=journal, runtime=runtime,
                             call=CALLS[call].format(journal))
    process = in_process(program)
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    with process:
        assert (process.stdout.read(), process.stderr.read()) == ("interrupted 0\n", "")
    flow = rlmflow.Flow(lambda messages: block("done('resumed')"), runtime=rlmflow.LocalRuntime(), tools=resumed_tools())
    assert flow.resume(journal) == "resumed"


def resumed_tools():
    return [rlmflow.tool("does", name=name, proxy=True)(lambda: None) for name in ("a_tool", "an_async_tool", "tell")]


STUBBORN = """
import signal, rlmflow._drive, rlmflow._running
rlmflow._running.LEFT_S = 3600
async def wait_async():
    asyncio.get_running_loop().call_later(0.01, os.write, 1, b"here\\n")
    while True:
        try: await asyncio.sleep(3600)
        except asyncio.CancelledError: say()
if {itself!r}:  # in the task of the run, which the first has cancelled
    async def end(drive): os.kill(os.getpid(), signal.SIGINT)
    rlmflow._drive.Drive.end = end
"""


@pytest.mark.parametrize("itself", [False, True], ids=["from outside", "from the run"])
def test_a_second_ctrl_c_ends_at_once(itself, tmp_path):
    program = PROGRAM.format(point="gate", cell="print(1)", journal=str(tmp_path / "run.rlm"), runtime="LocalRuntime", call="flow.run('q')")
    process = in_process(program.replace("class Client:", STUBBORN.format(itself=itself) + "class Client:", 1))
    for _ in range(1 if itself else 2):
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
    *cancelled, last = process.communicate(timeout=60)[0].splitlines()
    assert last == "interrupted 0" and set(cancelled) <= {"here"}  # how often by then is chance


# ---- cancelled tasks


class Moment:
    """A flow that comes to a place and stays there."""

    def __init__(self, place, path):
        self.place, self.path, self.release = place, path, threading.Event()
        self.loop, self.here = asyncio.get_running_loop(), asyncio.Event()
        moment = self

        class Client:
            def chat(self, messages):
                moment.block("chat")
                return "```repl\n" + moment.cell() + "\n```"

        class AsyncClient(Client):
            async def chat(self, messages):
                await moment.wait("async chat")
                return super().chat(messages)

        class Flow(rlmflow.Flow):
            async def exec_turn(self, graph, code, *, replay=False):
                await moment.wait("gate")
                node = await super().exec_turn(graph, code, replay=replay)
                await moment.wait("behind the end")
                return node

            async def messages(self, graph, *, force_final=False):
                await moment.wait("messages")
                return super().messages(graph, force_final=force_final)

        class Runtime(rlmflow.LocalRuntime):
            async def open(self, graph):  # while the model is asked
                while place == "open" and graph.nodes[-1].type != "llm_output":
                    await asyncio.sleep(0.001)
                await moment.wait("open")
                return Backend(await super().open(graph))

        class Backend(rlmflow.Backend):
            def __init__(self, inner):
                self.inner = inner

            async def start(self, code):
                await moment.wait("start")
                return await self.inner.start(code)

            async def resume(self, results):
                await moment.wait("resume")
                return await self.inner.resume(results)

            async def close(self):
                await moment.wait("close")

        async def an_async_tool():
            await moment.wait("async tool")

        is_wrapped = place in ("open", "start", "resume", "close")
        kind = Runtime if is_wrapped else rlmflow.LocalRuntime if place != "cell" else rlmflow.SubprocessRuntime
        self.flow = (Flow if place in ("gate", "messages", "behind the end") else rlmflow.Flow)(
            (Client if place == "chat" else AsyncClient)(), runtime=kind(), tools=[
                rlmflow.tool("does", name="a_tool", proxy=True)(lambda: moment.block("tool")),
                rlmflow.tool("does", name="an_async_tool", proxy=True)(an_async_tool),
                rlmflow.tool("does", name="tell", proxy=True)(lambda: moment.tell("cell"))])

    def cell(self):
        return {"tool": "a_tool()", "async tool": "await an_async_tool()", "resume": "tell()\ndone('a')",
                "cell": "tell()\nwhile True: pass", "child": "await launch_subagents([{'query': 'q'}])"
                }.get(self.place, "done('a')")

    def tell(self, place):
        if place == self.place:
            self.loop.call_soon_threadsafe(self.here.set)

    def block(self, place):
        if place == self.place:
            self.tell(place)
            self.release.wait()

    async def wait(self, place):
        if place == self.place:
            self.here.set()
            await asyncio.sleep(3600)


PLACES = ["chat", "async chat", "tool", "async tool", "gate", "messages", "open", "start", "resume", "cell",
          "behind the end", "close"]


@pytest.mark.parametrize("streams", [False, True], ids=["arun", "run_streaming"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.filterwarnings("ignore:1 backends were not closed")
def test_a_task_is_cancelled_wherever_it_is(place, streams, nothing_leaks, tmp_path):
    path = tmp_path / "run.rlm"

    async def stream(flow):
        return [e async for e in flow.run_streaming("q", journal=path)]

    async def main():
        moment = Moment(place, path)
        task = asyncio.ensure_future(stream(moment.flow) if streams else moment.flow.arun("q", journal=path))
        await asyncio.wait([task, asyncio.ensure_future(moment.here.wait())], return_when="FIRST_COMPLETED")
        assert not task.done(), task
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as e:
            await task
        moment.release.set()
        assert moment.flow.runs == {}
        return e

    error = asyncio.run(main())  # noqa: F841  who keeps it keeps no run from going on
    flow = rlmflow.Flow(lambda messages: block("done('resumed')"), runtime=rlmflow.LocalRuntime(), tools=resumed_tools())
    if place in ("behind the end", "close"):
        assert rlmflow.Graph.load(path).result() == "a"
    else:  # code that was not started yet runs then
        assert flow.resume(path) == ("a" if place in ("gate", "open") else "resumed")


def test_a_task_is_cancelled_before_it_begins(nothing_leaks, tmp_path):
    async def main():
        flow = rlmflow.Flow(Replies(), runtime=rlmflow.LocalRuntime())
        task = asyncio.ensure_future(flow.arun("q", journal=tmp_path / "run.rlm"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert flow.runs == {} and not (tmp_path / "run.rlm").exists()

    asyncio.run(main())


def test_a_task_is_cancelled_after_any_number_of_steps_of_the_loop(nothing_leaks, tmp_path):
    async def main(steps):
        flow = rlmflow.Flow(AsyncReplies(*TWO), runtime=rlmflow.LocalRuntime())
        task = asyncio.ensure_future(flow.arun("q", journal=tmp_path / f"{steps}.rlm"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        outcome, = await asyncio.gather(task, return_exceptions=True)
        assert outcome == "x is 1" or isinstance(outcome, asyncio.CancelledError), outcome
        assert flow.runs == {} and len(asyncio.all_tasks()) == 1
        return outcome

    for steps in [*range(16), *range(16, 512, 31)]:
        cancelled = isinstance(asyncio.run(main(steps)), asyncio.CancelledError)
        path = tmp_path / f"{steps}.rlm"  # of a run that was not begun nothing is kept
        if cancelled and not (path.exists() and rlmflow.Graph.load(path).finished):
            flow = rlmflow.Flow(lambda messages: block("done('resumed')"), runtime=rlmflow.LocalRuntime())
            answer = flow.resume(path) if path.exists() else flow.run("q", journal=path)
            assert answer in ("resumed", "x is 1")


def test_cancelled_twice_while_it_stops(nothing_leaks):
    async def main():
        moment = Moment("close", None)
        task = asyncio.ensure_future(moment.flow.arun("q"))
        await moment.here.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
