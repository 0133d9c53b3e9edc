"""Flow.run with clients and tools of the user's."""
import asyncio
import sys
import threading

import pytest
import rlmflow


def block(code):
    return f"```repl\n{code}\n```"


class Replies:
    """Answers with these replies in turn, and keeps what it was asked."""

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []

    def chat(self, messages):
        self.asked.append(messages)
        return self.replies.pop(0)


class AsyncReplies(Replies):
    async def chat(self, messages):
        await asyncio.sleep(0)
        return super().chat(messages)


@pytest.mark.parametrize("kind", [Replies, AsyncReplies])
def test_a_client_of_the_user_answers_turn_by_turn(kind, runtime):
    client = kind(block("x = len(INPUTS['text'])\nprint('seen', x)"), block("done(f'{x} characters')"))
    assert rlmflow.Flow(client, runtime=runtime).run("count", inputs={"text": "äöü\ud800"}) == "4 characters"
    first, second = client.asked
    assert [m["role"] for m in second] == ["system", "user", "assistant", "user"]
    assert "count" in first[1]["content"] and "seen 4" in second[3]["content"]


def test_sessions_run_in_the_interpreter_of_the_program_if_it_is_one(monkeypatch):
    def of_session():
        client = Replies(block("import sys\ndone(sys.executable)"))
        return rlmflow.Flow(client, runtime=rlmflow.SubprocessRuntime()).run("q")

    assert of_session() == sys.executable
    for other in ("", None, "/bin/cat", "/no/such/python3"):
        monkeypatch.setattr(sys, "executable", other)
        assert rlmflow.SubprocessRuntime().python is None and "python" in of_session()
    assert rlmflow.SubprocessRuntime(python="/bin/cat").python == "/bin/cat"


def test_inputs_cross_as_what_they_are(runtime, tmp_path):
    (tmp_path / "file").write_text("in a file")
    inputs = {"b": b"\x00\xff", "n": {"deep": [1, 2.5, None, (True, "x")]}, "f": tmp_path / "file"}
    client = Replies(block("done(repr((INPUTS['b'], INPUTS['n'], INPUTS['f'])))"))
    assert rlmflow.Flow(client, runtime=runtime).run("q", inputs=inputs) == repr(
        (inputs["b"], inputs["n"], "in a file"))
    with pytest.raises(TypeError, match=r"input 'o'\['k'\]\[1\] is an object"):
        rlmflow.Flow(Replies(), runtime=runtime).run("q", inputs={"o": {"k": [1, object()]}})


def test_sync_and_async_tools_run_on_the_host(runtime):
    threads = []

    @rlmflow.tool("adds", proxy=True)
    def add(a: int, b: int = 5) -> int:
        threads.append(threading.current_thread())
        return a + b

    @rlmflow.tool("waits", proxy=True)
    async def wait(word: str):
        await asyncio.sleep(0.01)
        return {"word": word, "bytes": b"\x00"}

    code = "done(repr((add(2), add(2, b=3), await wait('w'))))"
    flow = rlmflow.Flow(Replies(block(code)), runtime=runtime, tools=[add, wait])
    assert flow.run("q") == repr((7, 5, {"word": "w", "bytes": b"\x00"}))
    assert threading.main_thread() not in threads


def test_a_tool_that_raises_is_an_error_in_the_agents_code(runtime):
    @rlmflow.tool("fails", proxy=True)
    def fail():
        raise KeyError("no such thing")

    code = "try:\n    fail()\nexcept HostCallError as e:\n    done(str(e))"
    assert rlmflow.Flow(Replies(block(code)), runtime=runtime, tools=[fail]).run("q") == "KeyError: 'no such thing'"


def test_a_run_without_an_answer_raises_with_reason_and_graph(runtime):
    client = Replies(block("print(1)"), block("print(2)"))
    with pytest.raises(rlmflow.RunEnded) as e:
        rlmflow.Flow(client, runtime=runtime, max_iters=2).run("q")
    assert e.value.reason == "max_iters"
    types = [n.type for n in e.value.graph.nodes]
    assert types == ["user_query", "llm_output", "exec_action", "exec_output", "llm_output", "exec_action",
                     "exec_output", "done_output"]
    assert e.value.graph.nodes[3].output == "1\n" and e.value.graph.finished
    assert e.value.graph.result() == "" and e.value.graph.reason == "max_iters"


def test_a_client_that_raises_fails_its_agent(runtime):
    class Broken:
        def chat(self, messages):
            raise ValueError("out of words")

    with pytest.raises(rlmflow.RunEnded, match=r"failed: chat\(\) raised ValueError: out of words"):
        rlmflow.Flow(Broken(), runtime=runtime).run("q")


def test_children_are_graphs_below_their_parent(runtime, tmp_path):
    class Tree:
        def chat(self, messages):
            if "child task" in messages[1]["content"]:
                return block("done(INPUTS['word'].upper())")
            return block("r = await launch_subagents([{'query': 'child task', 'name': w, 'inputs': {'word': w}}"
                         " for w in ('one', 'two')])\ndone('-'.join(r))")

    flow = rlmflow.Flow(Tree(), runtime=runtime, workers=2)
    assert flow.run("root task", journal=tmp_path / "run.rlm") == "ONE-TWO"
    assert (tmp_path / "run.rlm" / "journal").exists()


def test_cancelling_the_task_stops_the_run(runtime):
    started = threading.Event()

    class Slow:
        async def chat(self, messages):
            started.set()
            await asyncio.sleep(60)

    async def main():
        task = asyncio.ensure_future(rlmflow.Flow(Slow(), runtime=runtime).arun("q"))
        while not started.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_run_in_memory_says_what_it_cannot_bring_back(runtime, tmp_path):
    client = Replies(block("x = 1"), block("import os\nos._exit(3)"), block("done(str('x' in globals()))"))
    flow, graph = rlmflow.Flow(client, runtime=runtime), rlmflow.Graph("q")
    assert flow.run(graph=graph) == "False"
    assert "All variables are lost." in client.asked[2][-1]["content"]
    with pytest.raises(ValueError, match="the graph's run has no journal; Graph.fork"):
        flow.fork(graph, "0", tmp_path / "fork.rlm")
    fork = graph.fork(from_node_id=graph.nodes[-1].id)
    assert fork.current().type == "exec_action" and graph.finished
