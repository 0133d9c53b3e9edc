"""Runtimes whose `open` is overridden: gates at the transport, and sessions that are no worker's."""
import asyncio
import contextlib
import io
import threading
import time

import pytest
import rlmflow
from conftest import PYTHON
from test_flow import Replies, block


class Gate(rlmflow.Backend):
    """Passes all on, and keeps what it saw; `on_start(code)` may return other code or a Finished."""

    def __init__(self, inner, saw, on_start=None):
        self.inner, self.saw, self.on_start = inner, saw, on_start

    def _look(self, outcome):
        if isinstance(outcome, rlmflow.Suspended):
            self.saw.append(("suspended", [(c.name, *(c.args or c.kwargs.values())) for c in outcome.calls]))
        else:
            self.saw.append(("finished", outcome.output, outcome.error, outcome.answer))
        return outcome

    async def start(self, code):
        self.saw.append(("start", code))
        code = self.on_start(code) if self.on_start else code
        return code if isinstance(code, rlmflow.Finished) else self._look(await self.inner.start(code))

    async def resume(self, results):
        self.saw.append(("resume", [r.error or r.value for r in results]))
        return self._look(await self.inner.resume(results))

    async def close(self):
        await self.inner.close()
        self.saw.append(("close",))


class SyncGate(Gate):
    def start(self, code):
        self.saw.append(("start", code))
        code = self.on_start(code) if self.on_start else code
        return code if isinstance(code, rlmflow.Finished) else self._look(self.inner.start(code))

    def resume(self, results):
        self.saw.append(("resume", [r.error or r.value for r in results]))
        return self._look(self.inner.resume(results))

    def close(self):
        self.inner.close()
        self.saw.append(("close",))


def gated(gate=Gate, on_start=None):
    """A runtime with such a gate, which keeps what the gates of all its sessions saw."""
    class Gated(rlmflow.SubprocessRuntime):
        saw = []
        opened = []

        def open(self, graph):
            self.opened.append((graph.agent_id, graph.depth))
            return gate(super().open(graph), self.saw, on_start)

    return Gated(python=PYTHON)


def run(runtime, *replies, **options):
    client = Replies(*replies)
    return rlmflow.Flow(client, runtime=runtime, **options).run("q"), client


@pytest.mark.parametrize("gate", [Gate, SyncGate])
def test_a_gate_sees_each_start_and_resume_and_the_acceptance_of_done(gate):
    runtime = gated(gate)
    answer, client = run(runtime, block("x = 6\nprint('one')"), block("print('two')\ndone(x * 7)"))
    assert answer == "42"
    assert "one" in client.asked[1][-1]["content"]
    assert runtime.opened == [("root", 0)]
    assert runtime.saw == [
        ("start", "x = 6\nprint('one')"), ("finished", "one\n", None, None),
        ("start", "print('two')\ndone(x * 7)"), ("suspended", [("done", 42)]), ("resume", [None]),
        ("finished", "two\n", None, 42), ("close",)]


@pytest.mark.parametrize("gate", [Gate, SyncGate])
def test_a_gate_rewrites_and_refuses_code(gate):
    def on_start(code):
        return rlmflow.Finished(error="not here") if "rm" in code else code.replace("uno", "one")

    answer, client = run(gated(gate, on_start), block("x = 'kept'"), block("rm('-rf')"), block("done(x + ' uno')"))
    assert answer == "kept one"  # and the session is the same
    assert "not here" in client.asked[2][-1]["content"]


def test_an_async_open_and_one_that_waits(runtime):
    class Slow(rlmflow.SubprocessRuntime):
        async def open(self, graph):
            await asyncio.sleep(0.01)
            inner = await super().open(graph)
            return Gate(inner, [])

    assert run(Slow(python=PYTHON), block("done('yes')"))[0] == "yes"


def test_what_passes_through_is_unchanged():
    runtime = gated()
    big = "ä" * 100_000
    seen = []

    @rlmflow.tool("echo", proxy=True)
    def echo(value):
        seen.append(value)
        return value

    @rlmflow.tool("grows", proxy=True)
    def grow(text: str, times: int):
        return text * times

    code = ("values = [(1, {2}), b'\\x00', float('inf'), {3: 'x'}, '\\ud800']\n"
            "done((all(echo(v) == v for v in values), len(grow('ö', 90_000)), len(echo(INPUTS['big'][1:]))))")
    flow = rlmflow.Flow(Replies(block(code)), runtime=runtime, tools=[echo, grow])
    assert flow.run("q", inputs={"big": big}).startswith("(True, 90000, ")
    assert seen[:5] == [(1, {2}), b"\x00", float("inf"), {3: "x"}, "\ud800"]
    calls = [s[1][0] for s in runtime.saw if s[0] == "suspended"]
    assert [c[1] for c in calls[:5]] == seen[:5]  # the gate may look at all of them
    assert calls[6] == ("echo", big[1:])
    results = [s[1][0] for s in runtime.saw if s[0] == "resume"]
    assert results[:6] == seen[:5] + ["ö" * 90_000]


def test_the_exception_of_a_tool_passes_through_a_gate():
    @rlmflow.tool("fails", proxy=True)
    def fails():
        raise KeyError("k")

    runtime = gated()
    code = "try:\n    fails()\nexcept HostCallError as e:\n    done(str(e))"
    flow = rlmflow.Flow(Replies(block(code)), runtime=runtime, tools=[fails])
    assert flow.run("q") == "KeyError: 'k'"
    assert [s for s in runtime.saw if s[0] == "resume"][0][1][0].message == "KeyError: 'k'"


def test_three_children_each_with_a_gate_of_its_own():
    class Tree:
        def chat(self, messages):
            if "child task" in messages[1]["content"]:
                return block("done(INPUTS['word'].upper())")
            return block("r = await launch_subagents([{'query': 'child task', 'inputs': {'word': w}}"
                         " for w in ('a', 'b', 'c')])\ndone('-'.join(r))")

    runtime = gated()
    assert rlmflow.Flow(Tree(), runtime=runtime).run("q") == "A-B-C"
    assert sorted(runtime.opened) == [("root", 0)] + [(f"root.child{i}", 1) for i in range(3)]
    assert [s[0] for s in runtime.saw].count("close") == 4
    assert ("resume", [["A", "B", "C"]]) in runtime.saw


def test_a_result_that_comes_while_the_code_computes_is_delivered_in_mid_cell():
    @rlmflow.tool("slow", proxy=True)
    async def slow():
        await asyncio.sleep(0.1)
        return "slow"

    @rlmflow.tool("quick", proxy=True)
    async def quick():
        return "quick"

    code = ("import asyncio\n"
            "got = []\n"
            "async def ask():\n"
            "    got.append(await slow())\n"
            "task = asyncio.ensure_future(ask())\n"
            "print(await quick())\n"
            "while not got:\n"  # the loop is never idle
            "    await asyncio.sleep(0)\n"
            "done(got[0])")
    flow = rlmflow.Flow(Replies(block(code)), runtime=gated(), tools=[slow, quick], exec_timeout=20)
    assert flow.run("q") == "slow"


def test_no_clock_runs_while_a_gate_thinks():
    def on_start(code):
        time.sleep(0.6)
        return code

    assert run(gated(SyncGate, on_start), block("done('in time')"), exec_timeout=0.3)[0] == "in time"


def test_the_clock_of_the_wrapped_session_ends_a_cell():
    answer, client = run(gated(), block("x = 1\nwhile True: pass"), block("done(x)"), exec_timeout=0.3)
    assert answer == "1"
    assert "exec_timeout" in client.asked[1][-1]["content"]


def test_the_death_of_the_wrapped_worker_passes_through():
    runtime = gated()
    answer, client = run(runtime, block("x = 1"), block("import os\nos._exit(3)"), block("done('x' in globals())"))
    assert answer == "False"
    told = client.asked[2][-1]["content"]
    assert "exit" in told and "new session" in told and "SessionDied" not in told
    assert len(runtime.opened) == 2


@pytest.mark.parametrize("what, told", [
    ("raise PermissionError('not today')", "start raised PermissionError: not today"),
    ("return 'text'", "Wrong.start returned str; it must return a Finished or a Suspended"),
    ("return rlmflow.Suspended()", "suspended without waiting for a call"),
    ("return rlmflow.Suspended(pending=[7])", "waits for call 7, which is not open"),
    ("return rlmflow.Suspended(['f'])", "Suspended.calls are HostCall, not str"),
    ("return rlmflow.Suspended([rlmflow.HostCall(0, 'f')])", "a call came with id 0 after 0"),
    ("return rlmflow.Suspended([rlmflow.HostCall(1, 'f', [object()])])", "an argument of f()[0] is an object"),
    ("return await self.inner.resume([])", "start raised ValueError: resuming the inner session"),
])
@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_gate_that_is_wrong_ends_the_session_and_the_run_goes_on(kind, what, told):
    space = {"rlmflow": rlmflow, "Gate": Gate}
    exec(f"class Wrong(Gate):\n {kind} start(self, code):\n"
         "  if 'wrong' not in code: return self.inner.start(code)\n  "
         + what.replace("await " if kind == "def" else "\0", ""), space)
    if kind == "async def":
        space["Wrong"].start = _awaiting(space["Wrong"].start)
    runtime = gated(space["Wrong"])
    answer, client = run(runtime, block("x = 1"), block("'wrong'"), block("done('x' in globals())"))
    assert answer == "False"
    assert told in client.asked[2][-1]["content"], client.asked[2][-1]["content"]
    assert "new session" in client.asked[2][-1]["content"]
    assert len(runtime.opened) == 2 and runtime.saw.count(("close",)) == 2


def _awaiting(start):
    async def awaited(self, code):
        made = await start(self, code)
        return await made if asyncio.isfuture(made) else made
    return awaited


@pytest.mark.parametrize("returned, told", [
    ("1 / 0", "open raised ZeroDivisionError"),
    ("None", "R.open returned NoneType, which has no start()"),
    ("(super().open(graph), super().open(graph))", "open raised ValueError: opening the inner session"),
])
def test_an_open_that_is_wrong_fails_its_agent(returned, told):
    space = {"rlmflow": rlmflow}
    exec(f"class R(rlmflow.SubprocessRuntime):\n def open(self, graph):\n  return {returned}", space)
    with pytest.raises(rlmflow.RunEnded) as e:
        run(space["R"](python=PYTHON), block("done(1)"))
    assert e.value.reason == "failed" and told in e.value.message


def test_a_wrapped_runtime_that_cannot_open_says_why():
    class R(rlmflow.SubprocessRuntime):
        def open(self, graph):
            return super().open(graph)

    with pytest.raises(rlmflow.RunEnded, match="no Python interpreter"):
        run(R(python="/nowhere/python"), block("done(1)"))


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_gate_that_never_returns_ends_with_its_run(kind):
    closed, release = [], threading.Event()

    class Stuck(rlmflow.Backend):
        async def start(self, code):
            await asyncio.sleep(3600)

        def close(self):
            closed.append(True)

    class SyncStuck(Stuck):
        def start(self, code):
            release.wait()

    class R(rlmflow.Runtime):
        def open(self, graph):
            return (Stuck if kind == "async" else SyncStuck)()

    async def main():
        flow = rlmflow.Flow(Replies(block("1")), runtime=R())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(flow.arun("q"), 0.5)

    try:
        asyncio.run(main())
    finally:
        release.set()
    assert closed == [True]


class Evaluating(rlmflow.Backend):
    """A wholly custom backend: it runs the code itself, a call of `ask(...)` at a time."""

    def __init__(self):
        self.space, self.calls = {}, 0

    def start(self, code):
        if code.startswith("ask "):
            return self._call("ask", code[4:])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, self.space)
        if "answer" in self.space:
            self.answer = self.space.pop("answer")
            return self._call("done", self.answer)
        return rlmflow.Finished(out.getvalue())

    def _call(self, name, *args):
        self.calls += 1
        self.waits = name
        return rlmflow.Suspended([rlmflow.HostCall(self.calls, name, args, {"text": "?"} if name == "done" else {})])

    def resume(self, results):
        if not results:
            return rlmflow.Suspended()  # still waits
        if self.waits == "done":
            return rlmflow.Finished("", answer=self.answer)
        return rlmflow.Finished(f"asked and got {results[0].value!r}")

    def close(self):
        self.space = None


def test_a_wholly_custom_backend_evaluates_code_itself():
    backends = []

    class R(rlmflow.Runtime):
        def open(self, graph):
            backends.append(Evaluating())
            return backends[-1]

    @rlmflow.tool("asks", proxy=True)
    async def ask(word: str):
        await asyncio.sleep(0.25)  # the backend is asked for its word meanwhile
        return word * 2

    client = Replies(block("x = 20\nprint('x is', x)"), block("ask ab"), block("answer = str(x + 1)"))
    assert rlmflow.Flow(client, runtime=R(), tools=[ask]).run("q") == "21"
    assert "x is 20" in client.asked[1][-1]["content"]
    assert "asked and got 'abab'" in client.asked[2][-1]["content"]
    assert len(backends) == 1 and backends[0].space is None


def test_an_error_of_a_custom_backend_is_an_observation():
    class R(rlmflow.Runtime):
        def open(self, graph):
            return Evaluating()

    client = Replies(block("print('before')\n1 / 0"), block("answer = 'went on'"))
    assert rlmflow.Flow(client, runtime=R()).run("q") == "went on"
    assert "start raised ZeroDivisionError: division by zero" in client.asked[1][-1]["content"]


def test_a_runtime_may_wrap_another():
    class Chosen(rlmflow.Runtime):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.saw = inner, []

        def open(self, graph):
            return Gate(self.inner.open(graph), self.saw)

    inner = gated()
    outer = Chosen(inner)
    assert run(outer, block("done('both')"))[0] == "both"
    assert ("start", "done('both')") in outer.saw and ("start", "done('both')") in inner.saw
    outer = Chosen(rlmflow.LocalRuntime())
    assert run(outer, block("done('local')"))[0] == "local"
    assert ("finished", "", None, "local") in outer.saw


def test_a_gate_answers_a_call_of_its_own():
    class Answering(Gate):
        async def start(self, code):
            outcome = await self.inner.start(code)
            while isinstance(outcome, rlmflow.Suspended) and outcome.calls and outcome.calls[0].name == "secret":
                outcome = await self.inner.resume([rlmflow.CallResult(outcome.calls[0].id, "from the gate")])
            return outcome

    @rlmflow.tool("never runs", proxy=True)
    def secret():
        raise AssertionError

    flow = rlmflow.Flow(Replies(block("done(secret())")), runtime=gated(Answering), tools=[secret])
    assert flow.run("q") == "from the gate"


def test_restored_cells_pass_the_gate_again(tmp_path):
    flow = rlmflow.Flow(Replies(block("x = 20")), runtime=gated(), max_iters=1)
    with pytest.raises(rlmflow.RunEnded):
        flow.run("q", journal=tmp_path / "run.rlm")
    runtime = gated()
    flow = rlmflow.Flow(Replies(block("done(x + 1)")), runtime=runtime)
    assert flow.resume(tmp_path / "run.rlm", query="and then?", restore="replay") == "21"
    assert [s[1] for s in runtime.saw if s[0] == "start"] == ["x = 20", "done(x + 1)"]
    assert rlmflow.Flow(Replies(), runtime=runtime).replay(tmp_path / "run.rlm").same


def test_open_outside_of_a_run_says_so(runtime):
    graphs = []

    class Keeping(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            graphs.append(graph)
            return await super().exec_turn(graph, code, replay=replay)

    Keeping(Replies(block("done(1)")), runtime=runtime).run("q")
    with pytest.raises(RuntimeError, match="open opens the session of an agent whose run asks for it"):
        runtime.open(graphs[0])
