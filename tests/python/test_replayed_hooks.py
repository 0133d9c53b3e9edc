"""exec_turn in replays, where it decides nothing; and answers that outlive the run that asked for them."""
import asyncio
import gc
import subprocess
import sys
import warnings

import pytest
import rlmflow
from conftest import PYTHON, SITE
from test_flow import Replies, block

CODES = {"one turn": ["done('x')"], "turns": ["print('one')", "print('risky')", "print('three')", "done('x')"]}
ANSWERS = ("chat", "tool", "exec_turn", "messages", "next_step")


def runtime_of(kind):
    return rlmflow.LocalRuntime() if kind == "local" else rlmflow.SubprocessRuntime(python=PYTHON)


class Watching(rlmflow.Flow):
    """Keeps, of each turn, what the override saw; in replays in a list of their own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = {False: [], True: []}

    async def exec_turn(self, graph, code, *, replay=False):
        node = await self.decide(graph, code, replay)
        await asyncio.sleep(0)  # the replay may be turns ahead
        assert graph.nodes[node.seq].id == node.id
        self.seen[replay].append((code, node.seq, node.type, node.content))
        return node

    async def execute(self, graph, code, replay):
        return await super().exec_turn(graph, code, replay=replay)


class Passing(Watching):
    async def decide(self, graph, code, replay):
        return await self.execute(graph, code, replay)


class Rewriting(Watching):
    async def decide(self, graph, code, replay):
        return await self.execute(graph, code.replace("risky", "harmless"), replay)


class Rejecting(Watching):
    def rejects(self, code, replay):
        return "risky" in code

    async def decide(self, graph, code, replay):
        if self.rejects(code, replay):
            return self.append_node(graph, rlmflow.ErrorOutput(content="no", error="rejected"))
        return await self.execute(graph, code, replay)


class RejectingOnce(Rejecting):
    """As in the users' document: what is replayed is let pass."""

    def rejects(self, code, replay):
        return not replay and "risky" in code


class Keeping(Passing):
    """Somebody keeps the answers of its turns for longer than the run."""

    async def decide(self, graph, code, replay):
        self.seen["answers"] = [*self.seen.get("answers", ()), graph._drive.turns["root"].answer]
        return await super().decide(graph, code, replay)


@pytest.mark.parametrize("kind", ["local", "subprocess"])
@pytest.mark.parametrize("turns", CODES)
@pytest.mark.parametrize("override", [Passing, Rewriting, Rejecting, RejectingOnce, Keeping])
@pytest.mark.parametrize("execute", [False, True], ids=["recorded", "executed"])
def test_an_override_sees_in_a_replay_what_was_observed(execute, override, turns, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("rlmflow._drive.TURNS_END_S", 3600)  # nothing waits for that
    flow = override(Replies(*map(block, CODES[turns])), runtime=runtime_of(kind))
    assert flow.run("q", journal=tmp_path / "run.rlm") == "x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = flow.replay(tmp_path / "run.rlm", execute=execute)
    assert report.same and report.reason == "answered", report
    assert flow.seen[True] == flow.seen[False] and len(flow.seen[True]) == len(CODES[turns])
    answers = flow.seen.get("answers", [])
    del flow
    gc.collect()
    for answer in answers:
        answer.decide("reject", None, "too late")
    del answers
    gc.collect()


@pytest.mark.parametrize("order", ["run first", "answer first", "used last"])
@pytest.mark.parametrize("execute", [False, True], ids=["recorded", "executed"])
def test_a_replay_ends_with_its_questions_open(execute, order, tmp_path, monkeypatch):
    monkeypatch.setattr("rlmflow._drive.TURNS_END_S", 0.05)
    kept = []

    class Hanging(Passing):
        async def decide(self, graph, code, replay):
            if replay:
                kept.append(graph._drive.turns["root"].answer)
                kept.append(graph._drive.run)
                await asyncio.sleep(3600)
            return await super().decide(graph, code, replay)

    flow = Hanging(Replies(block("done('x')")), runtime=rlmflow.LocalRuntime())
    flow.run("q", journal=tmp_path / "run.rlm")
    with pytest.warns(UserWarning, match="exec_turn has not returned 0.05 s after the end of the run"):
        assert flow.replay(tmp_path / "run.rlm", execute=execute).same
    del flow
    answer, run = kept
    kept.clear()
    if order == "answer first":
        del answer
        gc.collect()
        del run
    else:
        del run
        gc.collect()
        if order == "used last":
            use(answer)
    gc.collect()


def test_a_replay_that_would_be_rejected_now_says_so(tmp_path):
    client = Replies(*map(block, CODES["turns"]))
    rlmflow.Flow(client, runtime=rlmflow.LocalRuntime()).run("q", journal=tmp_path / "run.rlm")
    flow = Rejecting(client, runtime=rlmflow.LocalRuntime())
    with pytest.warns(UserWarning, match="in a replay, where what was recorded stands, exec_turn raised ValueError: a "
                                         "replay appends nothing: no ErrorOutput was appended here in the recording"):
        assert flow.replay(tmp_path / "run.rlm").same
    assert [code for code, *_ in flow.seen[True]] == ["print('one')", "print('three')", "done('x')"]


def test_a_recording_that_ends_before_the_code_has_run_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr("rlmflow._drive.TURNS_END_S", 3600)
    calls = []

    async def wait():
        calls.append(asyncio.get_running_loop().create_future())
        run.cancel()
        await calls[0]

    async def stopped():
        nonlocal run
        run = asyncio.ensure_future(flow.arun("q", journal=tmp_path / "run.rlm"))
        await asyncio.wait([run])

    run = None
    flow = Passing(Replies(block("wait()")), runtime=runtime_of("subprocess"), tools=[rlmflow.tool(proxy=True)(wait)])
    asyncio.run(stopped())
    assert len(calls) == 1 and run.cancelled()
    with pytest.warns(UserWarning, match="RuntimeError: the recording ends before what this code did"):
        assert flow.replay(tmp_path / "run.rlm").reason == "end of the recording"


# ---- answers that outlive their run


def ask_and_leave(kind, flow_class=rlmflow.Flow):
    """The answer that the engine waits for when a run is stopped at a question of this kind."""
    from rlmflow import _drive

    kept = []

    async def main():
        asked = asyncio.Event()

        def note(self, answer, *rest):
            kept.append((self.run, answer))
            asked.set()

        async def chat(messages):
            return block("wait()")

        def wait():
            raise AssertionError("the question is answered by nobody")

        class Asking(flow_class):
            if kind == "exec_turn":
                async def exec_turn(self, graph, code, *, replay=False):
                    raise AssertionError("not asked")
            if kind == "messages":
                def messages(self, graph, *, force_final=False):
                    raise AssertionError("not asked")

        flow = Asking(chat, runtime=rlmflow.SubprocessRuntime(python=sys.executable), tools=[rlmflow.tool(proxy=True)(wait)])
        own, name = getattr(_drive.Drive, "on_" + kind), "on_" + kind
        setattr(_drive.Drive, name, note)
        try:
            if kind == "next_step":
                stream = flow.run_streaming("q", until="next").__aiter__()
                run = asyncio.ensure_future(stream.__anext__())
                run = asyncio.ensure_future(drain(stream, run))
            else:
                run = asyncio.ensure_future(flow.arun("q"))
            await asked.wait()
            run.cancel()
            await asyncio.wait([run])
        finally:
            setattr(_drive.Drive, name, own)

    async def drain(stream, first):
        await first
        async for _ in stream:
            pass

    asyncio.run(main())
    return kept


def use(answer):
    for what in ("allow", "rewrite", "reject", "skip", "postpone"):
        answer.decide(what, None, "")
    answer.reply("text", None, 1, 1, 1)
    assert answer.delta("piece") is False
    answer.value("1")
    answer.fail("too late", -2)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("order", ["run first", "answer first", "used last", "in a cycle"])
def test_no_order_of_ends_touches_what_is_gone(order, kind):
    kept = ask_and_leave(kind)
    assert kept
    runs, answers = [r for r, _ in kept], [a for _, a in kept]
    kept.clear()
    if order == "in a cycle":
        cycle = [runs, answers]
        cycle.append(cycle)
        del cycle
    elif order == "answer first":
        del answers
    else:
        runs.clear()
        gc.collect()
        for answer in answers if order == "used last" else ():
            use(answer)
    gc.collect()


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_process_ends_with_answers_that_are_kept(kind, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path[:0] = {[str(SITE), *sys.path]!r}\nimport test_replayed_hooks as t\n"
                      f"kept = t.ask_and_leave({kind!r})\nassert kept\nsys.kept = [a for _, a in kept]\nprint('here')\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "here\n", done.stderr
