"""What subclasses of Flow override: exec_turn, messages, build_system_prompt."""
import asyncio
import contextlib
import dataclasses
import re

import pytest
import rlmflow
from test_flow import Replies, block

TWO = block("x = 1\nprint('one', x)"), block("done(f'x is {x}')")


def test_exec_turn_gets_what_was_observed_before_the_agent_goes_on(runtime):
    seen = []

    class Watching(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            node = await super().exec_turn(graph, code.replace("'one'", "'uno'"), replay=replay)
            await asyncio.sleep(0.01)
            seen.append((graph.agent_id, node.type, node.output, [n.type for n in graph.nodes][-1]))
            return node

    client = Replies(*TWO)
    assert Watching(client, runtime=runtime).run("q") == "x is 1"
    assert seen == [("root", "exec_output", "uno 1\n", "exec_output"),
                    ("root", "done_output", "", "done_output")], seen
    assert "Your code was changed before it ran" in client.asked[1][-1]["content"]


def test_a_node_that_exec_turn_returns_is_appended_once(runtime):
    class Answering(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            if "print" in code:
                return rlmflow.ExecOutput(content="made up", output="made up")
            return rlmflow.DoneOutput(result="my own")

    client = Replies(*TWO)
    assert Answering(client, runtime=runtime).run("q") == "my own"
    assert client.asked[1][-1]["content"].startswith("made up")


@pytest.mark.parametrize("what, told", [
    ("raise KeyError('x')", "exec_turn raised KeyError: 'x'"),
    ("return None", "exec_turn raised TypeError: exec_turn returned NoneType; it must return the node"),
    ("await super(F, self).exec_turn(graph, code)\n  return await super(F, self).exec_turn(graph, code)",
     "exec_turn raised RuntimeError: exec_turn runs the code of a turn once"),
    ("return await super(F, self).exec_turn(graph, 5)",
     "exec_turn raised TypeError: the code of exec_turn is an int; it must be a str"),
    ("return rlmflow.ExecOutput(content=5)", "exec_turn raised TypeError: ExecOutput.content is an int; it must be a str"),
    ("return rlmflow.SupervisingOutput(waiting_on=5)", "TypeError: the agents of a SupervisingOutput are a list of their ids"),
])
def test_an_exec_turn_that_is_wrong_fails_its_agent(what, told, runtime):
    space = {"rlmflow": rlmflow}
    exec("class F(rlmflow.Flow):\n async def exec_turn(self, graph, code, *, replay=False):\n  " + what, space)
    with pytest.raises(rlmflow.RunEnded) as e:
        space["F"](Replies(*TWO), runtime=runtime).run("q")
    assert e.value.reason == "failed" and told in e.value.message


def test_exec_turn_of_each_child_has_its_own_graph(runtime):
    agents = []

    class Tree:
        def chat(self, messages):
            if "child task" in messages[1]["content"]:
                return block("done('c')")
            return block("done(str(await launch_subagents([{'query': 'child task'}] * 3)))")

    class Watching(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            agents.append((graph.agent_id, graph.depth))
            return await super().exec_turn(graph, code, replay=replay)

    assert Watching(Tree(), runtime=runtime).run("q") == "['c', 'c', 'c']"
    assert sorted(agents) == [("root", 0), ("root.child0", 1), ("root.child1", 1), ("root.child2", 1)]


def test_a_long_exec_turn_stops_no_sibling_and_no_stream(runtime):
    """The first child's goes on only when the stream has shown all that its siblings do."""
    async def main():
        others_are_done = asyncio.Event()

        class Slow(rlmflow.Flow):
            async def exec_turn(self, graph, code, *, replay=False):
                if graph.agent_id == "root.a":
                    await others_are_done.wait()
                return await super().exec_turn(graph, code, replay=replay)

        def chat(messages):
            if "child task" in messages[1]["content"]:
                return block("print('c')") if len(messages) == 2 else block("done('c')")
            return block("done(str(await launch_subagents([{'query': 'child task', 'name': n} for n in 'abc'])))")

        streamed = []
        async for event in Slow(chat, runtime=runtime, max_live=2, workers=1).run_streaming("q"):
            streamed.append((event.agent_id, event.node_type))
            if {("root.b", "done_output"), ("root.c", "done_output")} <= set(streamed):
                others_are_done.set()
        assert streamed.index(("root.a", "exec_action")) > streamed.index(("root.b", "done_output"))
        assert streamed[-1] == ("root", "done_output")

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_long_exec_turn_is_no_time_of_the_run(runtime, tmp_path):
    """While nobody works but a person who is asked, max_time stands still: the journal says for how long."""
    class Slow(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            if "print" in code:
                await asyncio.sleep(0.3)
            return await super().exec_turn(graph, code, replay=replay)

    assert Slow(Replies(*TWO), runtime=runtime, max_time=600).run("q", journal=tmp_path / "run.rlm") == "x is 1"
    stood = re.findall(rb'"still_ms":(\d+)', (tmp_path / "run.rlm" / "journal").read_bytes())
    assert stood and int(stood[-1]) >= 295


def test_messages_and_the_system_prompt_can_be_made_anew(runtime):
    class Terse(rlmflow.Flow):
        def build_system_prompt(self, graph):
            return f"You are {graph.agent_id}."

        async def messages(self, graph, *, force_final=False):
            messages = super().messages(graph, force_final=force_final)
            return [*messages, {"role": "user", "content": f"final: {force_final}"}]

    client = Replies(*TWO)
    assert Terse(client, runtime=runtime, max_iters=2).run("q") == "x is 1"
    assert client.asked[0][0] == {"role": "system", "content": "You are root."}
    assert [m[-1]["content"] for m in client.asked] == ["final: False", "final: True"]


def test_messages_that_raise_fail_the_agent(runtime):
    class Broken(rlmflow.Flow):
        def messages(self, graph, *, force_final=False):
            return 1 / 0

    with pytest.raises(rlmflow.RunEnded, match="messages raised ZeroDivisionError"):
        Broken(Replies(*TWO), runtime=runtime).run("q")


def test_a_reason_of_exec_turns_own_may_be_any_text(runtime):
    class Odd(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            return rlmflow.DoneOutput(reason="odd \ud800", content="why")

    with pytest.raises(rlmflow.RunEnded) as e:
        Odd(Replies(*TWO), runtime=runtime).run("q")
    assert e.value.reason == e.value.graph.reason == "odd \ud800"


# ---- what takes the place of the code


class Noting(rlmflow.Flow):
    """`first(graph)` is what stands in place of the code of the first turn; then all runs."""

    async def exec_turn(self, graph, code, *, replay=False):
        if len(graph.nodes) == 2:
            made = self.first(graph)
            if made is not None:
                return made
        return await super().exec_turn(graph, code, replay=replay)


@pytest.mark.parametrize("fields, told", [
    ({"error": "rejected"}, "rejected"),
    ({"error": "rejected", "output": "by rule 5"}, "by rule 5\nrejected"),
    ({"error": "rejected", "output": "by rule 5", "content": "no"}, "no"),
])
def test_a_node_without_content_shows_the_model_what_it_has(fields, told):
    client = Replies(block("1"), block("done('x')"))
    flow = Noting(client, runtime=rlmflow.LocalRuntime())
    flow.first = lambda graph: flow.append_node(graph, rlmflow.ErrorOutput(**fields))
    assert flow.run("q") == "x"
    assert client.asked[1][-1]["content"].split("\n[")[0] == told


def test_an_output_without_content_is_what_the_model_sees():
    client = Replies(block("1"), block("done('x')"))
    flow = Noting(client, runtime=rlmflow.LocalRuntime())
    flow.first = lambda graph: rlmflow.ExecOutput(output="made up")
    assert flow.run("q") == "x"
    assert client.asked[1][-1]["content"].startswith("made up\n[")


@pytest.mark.parametrize("runtime", [rlmflow.LocalRuntime, rlmflow.SubprocessRuntime])
@pytest.mark.parametrize("node", ["a note", rlmflow.ErrorOutput(content="careful", error="note"),
                                  rlmflow.DoneOutput(result="over", reason="answered")], ids=lambda n: type(n).__name__)
def test_code_does_not_run_behind_a_node_that_took_its_place(node, runtime, tmp_path):
    told = []

    class Both(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            self.append_node(graph, node if isinstance(node, str) else dataclasses.replace(node))
            try:
                return await super().exec_turn(graph, code, replay=replay)
            except RuntimeError as e:
                told.append(str(e))
                raise

    marker = tmp_path / "marker"
    flow = Both(Replies(block(f"open({str(marker)!r}, 'w').close()")), runtime=runtime())
    with contextlib.suppress(rlmflow.RunEnded):
        flow.run("q")
    assert told == ["a node was appended for this turn, in place of its code: that does not run any more"]
    assert not marker.exists()


@pytest.mark.parametrize("where", ["append_node", "exec_turn"])
def test_a_node_of_another_graph_is_not_dropped(where):
    foreign = rlmflow.Graph("another").nodes[0]
    flow = Noting(Replies(block("1")), runtime=rlmflow.LocalRuntime())
    flow.first = lambda graph: flow.append_node(graph, foreign) if where == "append_node" else foreign
    with pytest.raises(rlmflow.RunEnded, match=f"ValueError: the node '{foreign.id}' is of another graph; append a copy"):
        flow.run("q")


@pytest.mark.parametrize("index", [0, 1])
def test_a_node_from_before_the_turn_is_no_answer_to_it(index):
    flow = Noting(Replies(block("1")), runtime=rlmflow.LocalRuntime())
    flow.first = lambda graph: graph.nodes[index]
    with pytest.raises(rlmflow.RunEnded, match="exec_turn returned a node from before this turn, (user_query|llm_output)"):
        flow.run("q")


def test_a_node_that_is_there_already_stays_where_it_is():
    class Twice(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            node = await super().exec_turn(graph, code, replay=replay)
            return self.append_node(graph, node)

    graph = rlmflow.Graph("q")
    assert Twice(Replies(*TWO), runtime=rlmflow.LocalRuntime()).run(graph=graph) == "x is 1"
    assert [n.type for n in graph.nodes] == ["user_query", *["llm_output", "exec_action", "exec_output"],
                                             "llm_output", "exec_action", "done_output"]


def test_the_fields_of_nodes_have_names():
    for kind in (rlmflow.UserQuery, rlmflow.ErrorOutput, rlmflow.ExecOutput, rlmflow.DoneOutput, rlmflow.ExecAction):
        with pytest.raises(TypeError, match=f"the fields of {kind.__name__} are given by name; 'rejected' has none"):
            kind("rejected")
