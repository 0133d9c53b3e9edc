"""Resuming and replaying runs from Python."""
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import rlmflow
from conftest import PYTHON, make_package
from test_flow import Replies, block

TWO = block("x = 1\nprint('one', x)"), block("done(f'x is {x}')")

KILLED = """
import os, signal, sys
sys.path.insert(0, {site!r})
import rlmflow
class Client:
    asked = 0
    def chat(self, messages):
        Client.asked += 1
        if Client.asked == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return {first!r}
rlmflow.Flow(Client(), runtime=rlmflow.SubprocessRuntime(python={python!r})).run("q", journal={journal!r})
"""


def test_a_killed_run_goes_on_and_buys_nothing_twice(runtime, tmp_path):
    journal = str(tmp_path / "run.rlm")
    program = KILLED.format(site=str(make_package()), first=TWO[0], python=PYTHON, journal=journal)
    done = subprocess.run([sys.executable, "-c", program], timeout=60)
    assert done.returncode == -signal.SIGKILL
    client = Replies(TWO[1])
    flow = rlmflow.Flow(client, runtime=runtime)
    deadline = time.monotonic() + 10
    while True:
        try:
            assert flow.resume(journal, restore="replay") == "x is 1"
            break
        except BlockingIOError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert len(client.asked) == 1 and "one 1" in client.asked[0][-1]["content"]


def test_a_follow_up_is_asked_of_a_run_that_has_ended(runtime, tmp_path):
    flow = rlmflow.Flow(Replies(*TWO), runtime=runtime)
    flow.run("q", journal=tmp_path / "run.rlm")
    flow.llm = Replies(block("done(f'{x} more')"))
    assert flow.resume(tmp_path / "run.rlm", query="and more?", restore="replay") == "1 more"
    assert "and more?" in flow.llm.asked[0][-1]["content"]


def test_wrong_uses_of_resume_say_so(runtime, tmp_path):
    flow = rlmflow.Flow(Replies(*TWO), runtime=runtime)
    flow.run("q", journal=tmp_path / "run.rlm")
    with pytest.raises(ValueError, match="has ended with an answer"):
        flow.resume(tmp_path / "run.rlm")
    with pytest.raises(ValueError, match="restore='never' is none of auto, replay, fresh"):
        flow.resume(tmp_path / "run.rlm", restore="never")
    with pytest.raises(FileExistsError):
        flow.run("q", journal=tmp_path / "run.rlm")


@pytest.mark.parametrize("execute", [False, True])
def test_a_run_is_replayed_without_its_client_and_tools(execute, runtime, tmp_path):
    calls = []

    @rlmflow.tool("adds", proxy=True)
    def add(a: int, b: int) -> int:
        calls.append((a, b))
        return a + b

    flow = rlmflow.Flow(Replies(block("x = add(1, 2)\nprint(x)"), TWO[1]), runtime=runtime, tools=[add])
    assert flow.run("q", journal=tmp_path / "run.rlm") == "x is 3"
    report = flow.replay(tmp_path / "run.rlm", execute=execute)
    assert report.same and report.nodes == 7 and report.reason == "answered" and calls == [(1, 2)]
    assert (report.cells_run, report.cells_not_run) == ((2, 0) if execute else (0, 2))
    flow.system_prompt = "Another."
    report = flow.replay(tmp_path / "run.rlm")
    assert report.diverged and not report.same and "messages" in report.what and report.agent_id == "root"


@pytest.mark.parametrize("execute", [False, True])
def test_a_replay_reads_what_children_and_queries_answered(execute, runtime, tmp_path):
    """No model is asked for them again, and the root's cells see the same."""
    def chat(messages):
        asked.append(messages)
        task = next(m["content"] for m in messages if m["role"] == "user")
        if "child task" in task:
            return block("done(INPUTS['n'] * 2)")
        if "main" not in task:
            return f"re: {task}"
        return MAIN if messages[-1]["role"] == "user" and len(messages) == 2 else block("print(r, q)\ndone(str(r + q))")

    asked = []
    flow = rlmflow.Flow(chat, runtime=runtime)
    assert flow.run("main", journal=tmp_path / "run.rlm") == "['2', '4', 're: p']"
    bought = len(asked)
    report = flow.replay(tmp_path / "run.rlm", execute=execute)
    assert report.same and report.reason == "answered" and len(asked) == bought == 5
    assert (report.cells_run, report.cells_not_run) == ((4, 0) if execute else (0, 4))


MAIN = block("r = await launch_subagents([{'query': 'child task', 'inputs': {'n': n}} for n in (1, 2)])\n"
             "q = [await llm_query('p')]\nprint(r, q)")


def test_the_first_cell_that_printed_something_else_is_named(runtime, tmp_path):
    client = Replies(block("done((await launch_subagents([{'query': 'work', 'name': 'a'}]))[0])"),
                     block("print('same')"), block("import time\nprint(time.time_ns())"), block("done(1)"))
    flow = rlmflow.Flow(client, runtime=runtime)
    assert flow.run("q", journal=tmp_path / "run.rlm") == "1"
    report = flow.replay(tmp_path / "run.rlm", execute=True)
    assert not report.same and not report.diverged and report.outputs_differ == 1
    assert (report.first_output_agent_id, report.first_output_cell) == ("root.a", 2)


def test_gates_are_passed_in_a_replay_and_cannot_make_code_run(runtime, tmp_path):
    seen = []

    class Reviewing(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            seen.append((code, replay))
            if "print" in code and not replay:
                return rlmflow.ErrorOutput(content="no", output="no", error="rejected")
            return await super().exec_turn(graph, code, replay=replay)

    flow = Reviewing(Replies(TWO[0], block("done('gave up')")), runtime=runtime)
    assert flow.run("q", journal=tmp_path / "run.rlm") == "gave up"
    del seen[:]
    report = flow.replay(tmp_path / "run.rlm", execute=True)
    assert report.same and report.cells_run == 1
    assert [replay for _, replay in seen] == [True, True]
    assert os.listdir(tmp_path) == ["run.rlm"]


# ---- runs that are not there

@pytest.mark.parametrize("use", [
    lambda flow, path: flow.resume(path), lambda flow, path: flow.replay(path),
    lambda flow, path: flow.fork(path, "0", path.with_name("fork")), lambda flow, path: rlmflow.Graph.load(path),
], ids=["resume", "replay", "fork", "load"])
def test_a_run_that_is_not_there_is_told_of_alike(use, runtime, tmp_path):
    path = tmp_path / "no such run"
    with pytest.raises(FileNotFoundError, match=f"^there is no run at {path}$"):
        use(rlmflow.Flow(Replies(), runtime=runtime), path)
    assert not os.listdir(tmp_path)


def test_a_run_whose_directory_is_removed_under_it_says_so(runtime, tmp_path):
    path = tmp_path / "run.rlm"

    def chat(messages):
        shutil.rmtree(path)
        return block("print('x' * 100_000)")

    with pytest.raises(rlmflow.RunEnded, match=f"^failed: .*{path}/blobs was removed while it was in use"):
        rlmflow.Flow(chat, runtime=runtime).run("q", journal=path)
