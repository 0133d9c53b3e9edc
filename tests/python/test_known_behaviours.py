"""Behaviours that programs rely on and that no other file of these tests is about (docs/inventory.md)."""
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
import rlmflow
from conftest import make_package
from rlmflow.watching import _tree_of
from test_flow import Replies, block
from test_known_faults import Minds, launch, run


def types(graph):
    return [n.type for n in graph.nodes]


def test_trajectories_have_the_nodes_that_they_are_known_by(runtime):
    alone = ["user_query", "llm_output", "exec_action", "done_output"]
    graph, answer = run(Replies(block("done('ok')")), runtime)
    assert (types(graph), answer) == (alone, "ok")
    client = Minds(child=[block("print('c')"), block("done('c')")], main=[launch({"query": "child"}, then="done(r[0])")])
    graph, answer = run(client, runtime)
    assert answer == "c" and types(graph) == ["user_query", "llm_output", "exec_action", "supervising_output",
                                              "resume_action", "done_output"]
    supervising, resumed = graph.nodes[3:5]
    assert supervising.waiting_on == resumed.resumed_from == ["root.child0"]
    child = graph["root.child0"]
    assert types(child) == alone[:3] + ["exec_output"] + alone[1:]
    assert [n.code for n in child.nodes if n.type == "exec_action"] == [
        n.code for n in child.nodes if n.type == "llm_output"] == ["print('c')", "done('c')"]


def test_a_graph_that_begins_a_run_takes_inputs_and_a_schema(runtime):
    graph = rlmflow.Graph(query="the query", inputs={"a": 1})
    client = Replies(block("print('seen', INPUTS)\ndone({'n': INPUTS['b']})"))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    answer = rlmflow.Flow(client, runtime=runtime).run(graph=graph, inputs={"b": 2}, output_schema=schema)
    assert json.loads(answer) == {"n": 2} and graph.inputs == {"a": 1, "b": 2} and graph.output_schema == schema
    assert graph.nodes[0].content == graph.query == "the query"
    assert graph.nodes[-1].output == "seen {'a': 1, 'b': 2}\n"


def test_a_child_has_the_model_of_its_spec(runtime):
    small = Replies(block("done('small')"))
    client = Replies(launch({"query": "child", "model": "small"}, {"query": "child", "model": "none"},
                            then="done(f'{r[0]} {r[1].message}')"))
    graph, answer = run(client, runtime, llm_clients={"small": small})
    assert answer.startswith("small ") and "default" in answer and "small" in answer and len(small.asked) == 1
    assert graph["root.child0"].model == "small" and graph["root.child0"].nodes[1].metadata["model"] == "small"


@pytest.mark.parametrize("local", [True, False])
def test_env_says_which_agent_it_is_and_the_programs_is_left_alone(local, runtime):
    show = "ENV['mine'] = 'kept'\n", "done(str([v for k, v in sorted(ENV.items())]))"
    client = Minds(child=[block(show[0]), block(show[1])], main=[launch({"query": "child"}, then="done(r[0])")])
    before = dict(os.environ)
    answer = run(client, rlmflow.LocalRuntime() if local else runtime, max_depth=3)[1]
    # AGENT_DEPTH, AGENT_ID, IS_ROOT, MAX_DEPTH, PARENT_AGENT_ID, and its own
    assert eval(answer) == ["1", "root.child0", "0", "3", "root", "kept"]
    assert dict(os.environ) == before


def test_two_graphs_are_streamed_at_once(runtime):
    both_ask = []

    class Meeting:
        async def chat(self, messages):
            if "child" in messages[1]["content"]:
                return block("done('c')")
            both_ask.append(messages)
            while len(both_ask) < 2:
                await asyncio.sleep(0.005)
            return launch({"query": "child"}, then="done(str(r))")

    async def stream(flow, graph):
        return [event.graph_id async for event in flow.run_streaming(graph=graph)]

    async def main():
        flow = rlmflow.Flow(Meeting(), runtime=runtime, workers=2)
        graphs = [rlmflow.Graph("one"), rlmflow.Graph("two")]
        ids = await asyncio.wait_for(asyncio.gather(*(stream(flow, graph) for graph in graphs)), 60)
        assert [set(of_one) for of_one in ids] == [{graph.graph_id} for graph in graphs]
        assert [graph.result() for graph in graphs] == ["['c']"] * 2 and flow.runs == {}

    asyncio.run(main())


def test_batched_queries_are_bounded_and_in_order(runtime):
    pair, lock, now, most = threading.Barrier(2), threading.Lock(), [], []

    class Meeting:
        def chat(self, messages):
            asked = messages[-1]["content"]
            if not asked.startswith("prompt"):
                return block("done(str(await llm_query_batched([f'prompt {i}' for i in range(6)])))")
            with lock:
                now.append(1)
                most.append(len(now))
            pair.wait(timeout=30)
            with lock:
                now.pop()
            return asked[-1]

    assert run(Meeting(), runtime, workers=2)[1] == str([str(i) for i in range(6)])
    assert max(most) == 2


def test_cells_of_siblings_run_at_the_same_time(runtime, tmp_path):
    """Each writes a file, and waits for those of the others."""
    code = block(f"import os, time\nopen({str(tmp_path)!r} + '/' + ENV['RLMFLOW_AGENT_ID'], 'w').close()\n"
                 f"while len(os.listdir({str(tmp_path)!r})) < 3:\n    time.sleep(0.005)\ndone('met')")
    client = Minds(child=[code], main=[launch(*[{"query": "child"}] * 3)])
    assert run(client, runtime, exec_timeout=60)[1] == "['met', 'met', 'met']"


SAVES = """
import resource, signal, sys
sys.path.insert(0, {site!r})
import rlmflow
nodes = [{{"type": "exec_output", "content": "x" * 1000}} for _ in range(1000)]
graph = rlmflow.Graph.from_dict({{"query": "q", "nodes": [{{"type": "user_query", "content": "q"}}, *nodes]}})
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))
graph.save({path!r}, metadata={{"note": "n"}})
"""


def test_a_save_that_a_crash_interrupts_leaves_no_half_of_a_tree(tmp_path):
    """The kernel kills the process in the middle of a file."""
    path = tmp_path / "saved"

    def save(most):
        program = SAVES.format(site=str(make_package()), most=most, path=str(path))
        return subprocess.run([sys.executable, "-c", program], timeout=60).returncode

    assert save(500_000) == -signal.SIGXFSZ and os.listdir(tmp_path) and not path.exists()
    assert save(100_000_000) == 0 and len(rlmflow.Graph.load(path).nodes) == 1001


def test_a_saved_tree_has_the_layout_that_is_known(runtime, tmp_path):
    client = Minds(child=[block("done('c')")], main=[launch({"query": "child", "name": "auth"}, then="done(r[0])")])
    graph, _ = run(client, runtime)
    with pytest.raises(TypeError):
        graph.save(tmp_path / "saved", metadata={"what": object()})
    graph.save(tmp_path / "saved", metadata={"note": "ä", "tries": 3})

    def read(name):
        return json.loads((tmp_path / "saved" / name).read_text())

    manifest = read("graph.json")
    assert (manifest["root_agent_id"], manifest["agents"]) == ("root", ["root", "root.auth"])
    assert manifest["graph_id"] == graph.graph_id and manifest["metadata"]["result"] == "c"
    assert (manifest["metadata"]["note"], manifest["metadata"]["tries"]) == ("ä", 3) and manifest["metadata"]["saved_at"]
    assert read("agents/root/agent.json")["query"] == "main"
    assert read("agents/root/auth/agent.json")["parent_agent_id"] == "root"
    lines = (tmp_path / "saved/agents/root/auth/session.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines] == types(graph["root.auth"])
    latest = read("agents/root/latest.json")
    assert (latest["type"], latest["terminal"], latest["result"]) == ("done_output", True, "c")


def test_a_checkpoint_of_one_agent_leaves_its_siblings(runtime):
    client = Minds(child=[block("done('c')")], main=[launch({"query": "child"}, {"query": "child"})])
    graph = run(client, runtime)[0].fork()
    checkpoint = graph.checkpoint(agent_id="root.child0")
    graph.append("more", agent_id="root.child0")
    other = graph["root.child1"].to_dict()
    graph.revert(checkpoint)
    assert graph["root.child0"].result() == "c" and graph["root.child1"].to_dict() == other


def test_a_callable_sees_what_children_do(runtime):
    client = Minds(child=[block("done('c')")], main=[launch({"query": "child"}, then="done(r[0])")])

    async def main():
        flow = rlmflow.Flow(client, runtime=runtime)
        ends = []

        def until(event, root):
            if event.node_type == "done_output":
                ends.append((event.agent_id, root.agent_id))
            return event.node_type == "done_output"

        events = [e async for e in flow.run_streaming("main", until=until)]
        assert ends[0] == ("root.child0", "root")
        assert await flow.arun(graph=events[0].graph) == "c"

    asyncio.run(main())


def test_workers_bound_async_clients_too(runtime):
    class Counting:
        now = most = 0

        async def chat(self, messages):
            if "child" not in messages[1]["content"]:
                return launch(*[{"query": "child"}] * 6, then="done(str(len(r)))")
            self.now += 1
            self.most = max(self.most, self.now)
            while self.most < 2:
                await asyncio.sleep(0.005)
            for _ in range(50):  # a third would come in
                await asyncio.sleep(0)
            self.now -= 1
            return block("done('c')")

    client = Counting()
    assert run(client, runtime, workers=2)[1] == "6" and client.most == 2


def test_a_fork_and_its_origin_have_variables_of_their_own(runtime, tmp_path):
    flow = rlmflow.Flow(Replies(block("x = [1]"), block("done(str(x))"), block("done(str(x))")), runtime=runtime)
    graph = rlmflow.Graph("q")
    assert flow.run(graph=graph, journal=tmp_path / "run.rlm") == "[1]"
    nodes = len(graph.nodes)
    flow.fork(graph, "turn1", tmp_path / "fork.rlm")
    other = rlmflow.Flow(Replies(block("x.append(2)\ndone(str(x))")), runtime=runtime)
    assert other.resume(tmp_path / "fork.rlm", restore="replay") == "[1, 2]"
    assert len(graph.nodes) == nodes
    assert flow.run("and now?", graph=graph) == "[1]"


def test_a_deep_tree_is_forked_cut_saved_and_loaded(runtime, tmp_path):
    leaf = [block("done('leaf')")]
    client = Minds(leaf=leaf, left=[launch({"query": "leaf"}, {"query": "leaf"}, then="done('+'.join(r))")],
                   right=[launch({"query": "leaf"}, then="done(r[0])")],
                   main=[launch({"query": "left", "name": "a"}, {"query": "right", "name": "b"}, then="done(str(r))")])
    graph, _ = run(client, runtime)
    agents = ["root", "root.a", "root.a.child0", "root.a.child1", "root.b", "root.b.child0"]
    assert list(graph.agents) == agents and [g.depth for g in graph.walk()] == [0, 1, 2, 2, 1, 2]
    fork = graph.fork()
    assert {g.graph_id for g in fork.walk()} == {fork.graph_id} != {graph.graph_id}
    fork.save(tmp_path / "saved")
    assert list(rlmflow.Graph.load(tmp_path / "saved").agents) == agents
    launched = next(n for n in fork["root.a"].nodes if n.type == "supervising_output")
    fork.rewind(launched.id, agent_id="root.a")
    assert list(fork.agents) == ["root", "root.a", "root.b", "root.b.child0"]
    assert list(graph.agents) == agents


def test_a_session_takes_few_descriptors(runtime):
    def count():
        return len(os.listdir("/proc/self/fd"))

    most, there = [], threading.Barrier(8)

    @rlmflow.tool("waits for all", proxy=True)
    def look():
        there.wait(timeout=60)
        most.append(count())

    client = Minds(child=[block("look()\ndone('c')")], main=[launch(*[{"query": "child"}] * 8)])
    run(Replies(block("done(1)")), runtime, tools=[look])
    before = count()
    run(client, runtime, tools=[look], workers=8)
    assert max(most) - before < 8 * 10


@pytest.mark.parametrize("end, kind", [("os._exit(3)", "exit"), ("os.kill(os.getpid(), 9)", "signal")])
def test_the_death_of_a_session_is_an_observation_of_its_own_kind(end, kind, runtime):
    graph = rlmflow.Graph("q")
    client = Replies(block("x = 1"), block(f"import os\n{end}"), block("done('x' in globals())"))
    assert rlmflow.Flow(client, runtime=runtime).run(graph=graph) == "False"
    assert [(n.type, n.error) for n in graph.nodes if isinstance(n, rlmflow.ErrorOutput)] == [("error_output", kind)]


def test_a_reply_without_code_is_an_error_of_its_own_kind(runtime):
    assert rlmflow.code_block("The answer is 4, I think.") == ""
    graph = rlmflow.Graph("q")
    client = Replies("The answer is 4, I think.", block("done(4)"))
    assert rlmflow.Flow(client, runtime=runtime).run(graph=graph) == "4"
    assert [n.error for n in graph.nodes if isinstance(n, rlmflow.ErrorOutput)] == ["no_code"]
    assert "```repl" in client.asked[1][-1]["content"]


def test_a_tree_says_who_waits_asks_and_runs():
    """Where it is shown live."""
    roots, seen = [], []

    @rlmflow.tool("Looks.")
    def look():
        seen.append(_tree_of(roots[0], 80, 24, color=False))

    class Client(Replies):
        def chat(self, messages):
            if "child" in messages[1]["content"]:
                look()
                return block("look()\ndone(1)")
            return super().chat(messages)

    client = Client(block("look()\nr = await launch_subagents([{'query': 'child'}])"), block("done(r)"))
    flow = rlmflow.Flow(client, runtime=rlmflow.LocalRuntime(), tools=[look],
                        watch=lambda event, graph: roots.append(graph))
    flow.run("q")
    flow.close_repls()  # the session has the tool, and that the graph, which keeps the session
    states = [re.findall("waiting|asking|running|answered", tree) for tree in [*seen, str(roots[0])]]
    assert states == [["running"], ["waiting", "asking"], ["waiting", "running"], ["answered", "answered"]], seen
