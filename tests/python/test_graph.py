"""Graphs at rest: made, copied, edited, saved."""
import asyncio
import json
import threading

import pytest
import rlmflow
from test_flow import Replies, block

PARENT = block("r = await launch_subagents([{'query': 'child task', 'name': w} for w in ('one', 'two')])\n"
               "print(r)"), block("done('-'.join(r))")


class Family:
    """The root launches two children, then answers."""

    def __init__(self):
        self.replies = list(PARENT)

    def chat(self, messages):
        if "child task" in messages[1]["content"]:
            return block("done('here')")
        return self.replies.pop(0)


@pytest.fixture
def family(runtime, tmp_path):
    """The graph of a run with a journal that has ended."""
    graph = rlmflow.Graph(query="root task", inputs={"text": "t\ud800", "data": (b"\x00", {1})})
    assert rlmflow.Flow(Family(), runtime=runtime).run(graph=graph, journal=tmp_path / "run.rlm") == "here-here"
    return graph


def ids(graph):
    return [n.id for n in graph.nodes]


def types(graph):
    return [n.type for n in graph.nodes]


def same(a, b, but=()):
    """Whether two graphs are the same, as data."""
    a, b = a.to_dict(), b.to_dict()
    for d in (a, b):
        for key in but:
            d.pop(key)
        for child in d["children"].values():
            child.pop("graph_id")
    return a == b


def test_a_tree_as_data_comes_back_whole(family):
    d = json.loads(json.dumps(family.to_dict()))
    again = rlmflow.Graph.from_dict(d)
    assert again.to_dict() == d and list(again.agents) == ["root", "root.one", "root.two"]
    assert again.inputs == family.inputs == {"text": "t\ud800", "data": (b"\x00", {1})}
    assert again.usage() == family.usage() and again.usage().calls == 4
    assert [n.waiting_on for n in again.nodes if n.type == "supervising_output"] == [["root.one", "root.two"]]
    assert again.graph_id == family.graph_id and again.result() == "here-here" and str(again) == str(family)


def test_dicts_may_leave_out_what_is_empty():
    graph = rlmflow.Graph.from_dict({"query": "q", "nodes": [{"type": "user_query", "content": "q"}]})
    assert (graph.agent_id, graph.model, graph.inputs, graph.output_schema) == ("root", "default", {}, None)
    assert graph.graph_id.startswith("g_") and graph.nodes[0].id.startswith("n_") and graph.children == {}
    for wrong in ({"nodes": [{"type": "no_such_type"}]}, {"children": {"x": {"agent_id": "elsewhere"}}}):
        with pytest.raises(ValueError):
            rlmflow.Graph.from_dict(wrong)


def test_saved_graphs_are_loaded(family, tmp_path):
    assert family.save(tmp_path / "of-run") == tmp_path / "of-run"
    family.fork().save(tmp_path / "of-copy")
    with pytest.raises(FileExistsError):
        family.save(tmp_path / "of-run")
    for name in ("of-run", "of-copy"):
        saved = json.loads((tmp_path / name / "graph.json").read_text())
        assert saved["agents"] == ["root", "root.one", "root.two"] and saved["metadata"]["result"] == "here-here"
        loaded = rlmflow.Graph.load(tmp_path / name)
        assert [ids(g) for g in loaded.walk()] == [ids(g) for g in family.walk()]
        assert loaded.result() == "here-here" and loaded.graph_id == saved["graph_id"]
    assert same(rlmflow.Graph.load(tmp_path / "run.rlm"), family)
    with pytest.raises(FileNotFoundError):
        rlmflow.Graph.load(tmp_path / "nothing")


def test_a_damaged_run_is_loaded_with_a_warning(family, tmp_path):
    journal = tmp_path / "run.rlm" / "journal"
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "journal").write_bytes(journal.read_bytes()[:-40])
    with pytest.warns(UserWarning, match="torn"):
        assert rlmflow.Graph.load(damaged).query == "root task"


def test_nodes_are_put_in_and_taken_out():
    graph = rlmflow.Graph("q")
    first = graph.nodes[0]
    event = graph.append(rlmflow.ExecOutput(content="out", output="out", metadata={"by": "me"}))
    assert event.type == "append_node" and event.node.metadata == {"by": "me"} and event.graph_id == graph.graph_id
    node = rlmflow.ErrorOutput(content="wrong", error="exec")
    event = graph.inject(node, at=first)
    assert (event.type, event.index, node.seq, node.agent_id) == ("insert_node", 1, 1, "root") and node.id
    assert graph.prepend("before").node.type == "user_query"
    assert [n.content for n in graph.nodes] == ["before", "q", "wrong", "out"]
    event = graph.replace(node, rlmflow.ExecOutput(content="right"))
    assert (event.type, event.node.content, event.replaced_node.content, event.replaced_node_id) == (
        "replace_node", "right", "wrong", node.id)
    assert graph.remove_node(first.id).node_id == first.id
    assert [n.content for n in graph.nodes] == ["before", "right", "out"] and [n.seq for n in graph.nodes] == [0, 1, 2]
    graph.append(rlmflow.DoneOutput(result="r", reason="answered"))
    assert graph.finished and graph.result() == "r"
    with pytest.raises(ValueError, match="only a user_query may follow it"):
        graph.append(rlmflow.ExecOutput(content="late"))
    with pytest.raises(KeyError):
        graph.inject("x", at=node)
    with pytest.raises(ValueError, match="mode='over' is none of after, before, replace"):
        graph.inject("x", mode="over")
    with pytest.raises(ValueError, match="without saying which"):
        graph.inject("x", mode="replace")
    with pytest.raises(KeyError):
        graph.append("x", agent_id="root.nobody")


def test_a_run_that_is_kept_refuses_edits_and_its_copy_takes_them(family):
    before = family.to_dict()
    for edit in (lambda g: g.append("x"), lambda g: g.rewind(g.nodes[1].id), lambda g: g.remove_child("root.one"),
                 lambda g: g.apply({"type": "append_node"})):
        with pytest.raises(ValueError, match="edit a copy: fork"):
            edit(family)
    copy = family.fork()
    assert same(copy, family, but=["graph_id"]) and copy.graph_id != family.graph_id
    copy.append("more")
    assert family.to_dict() == before and len(copy.nodes) == len(family.nodes) + 1


def test_rewinding_takes_the_children_along(family):
    copy = family.fork()
    child = copy["root.one"]
    supervising = next(n for n in copy.nodes if n.type == "supervising_output")
    event = copy.rewind(supervising.id)
    assert event.type in ("remove_node", "remove_child")
    assert types(copy) == ["user_query", "llm_output", "exec_action"] and copy.children == {} and len(copy.agents) == 1
    for gone in (lambda: child.nodes, child.current, lambda: child.children, lambda: child.append("x"), child.fork):
        with pytest.raises(KeyError, match="root.one"):
            gone()
    with pytest.raises(ValueError, match="is the first node"):
        copy.rewind(copy.nodes[0].id)
    with pytest.raises(KeyError):
        copy.rewind(supervising.id)


def test_what_follows_an_injected_node_may_go_with_its_children(family):
    copy = family.fork()
    action = next(n for n in copy.nodes if n.type == "exec_action")
    copy.inject(rlmflow.ErrorOutput(content="not like this", error="rejected"), at=action, truncate="descendants")
    assert types(copy) == ["user_query", "llm_output", "exec_action", "error_output"] and copy.children == {}
    copy.replace(copy.nodes[1], "instead", truncate="descendants")
    assert [n.content for n in copy.nodes] == ["root task", "instead"]
    with pytest.raises(ValueError, match="truncate='all'"):
        copy.inject("x", truncate="all")


def test_rewinding_a_child_takes_its_parent_back(family):
    copy = family.fork()
    copy.rewind(copy["root.two"].nodes[1].id, agent_id="root.two")
    assert types(copy["root.two"]) == ["user_query"] and types(copy)[-1] == "supervising_output"


def test_forks_are_cut_before_or_behind_a_node(family):
    at = family.nodes[2]
    assert ids(family.fork(from_node_id=at.id)) == ids(family)[:2]
    assert ids(family.fork(from_node_id=at.id, keep_anchor=True)) == ids(family)[:3]
    child = family["root.one"].nodes[-1]
    assert not family.fork(from_node_id=child.id, agent_id="root.one")["root.one"].finished
    with pytest.raises(KeyError):
        family.fork(from_node_id=child.id)


def test_checkpoints_are_come_back_to():
    graph = rlmflow.Graph("q")
    checkpoint = graph.checkpoint()
    assert graph.revert(checkpoint) is None and checkpoint.position == 1
    graph.append("one"), graph.append("two")
    event = graph.revert(checkpoint)
    assert (event.type, event.subtree, len(graph.nodes)) == ("remove_node", True, 1)
    graph.replace(graph.nodes[0], "another")
    with pytest.raises(ValueError):
        graph.revert(checkpoint)


def test_branches_are_merged(family):
    branch = family.fork(from_node_id=family.nodes[6].id)  # behind the first cell
    parent = branch.fork()
    branch.append(rlmflow.DoneOutput(result="from the branch", reason="answered"))
    assert "from the branch" in parent.merge(branch).node.content
    event = parent.merge(branch, summary=lambda g: g.result().upper())
    assert event.node.content == "FROM THE BRANCH" and parent.current().type == "exec_output"
    with pytest.raises(ValueError):
        parent.merge(rlmflow.Graph("unrelated"))


def test_a_flow_merges_branches_too(family):
    flow, parent = rlmflow.Flow(str, runtime=rlmflow.LocalRuntime()), family.fork()
    parent.rewind(parent.nodes[6].id)
    branch = parent.fork()
    for graph, result in ((branch, "of the root"), (branch["root.one"], "of the child")):
        graph.append("more?")
        graph.append(rlmflow.DoneOutput(result=result, reason="answered"))
    asyncio.run(flow.merge(parent, branch))
    assert "of the root" in parent.current().content and "of the child" not in str(parent["root.one"].nodes)
    asyncio.run(flow.merge(parent, branch, agent_id="root.one", summary=lambda g: f"{g.agent_id}: {g.result()}"))
    assert parent["root.one"].current().content == "root.one: of the child"
    with pytest.raises(TypeError, match="child=3: it must be a Graph"):
        asyncio.run(flow.merge(parent, 3))
    with pytest.raises(KeyError):
        asyncio.run(flow.merge(parent, branch, agent_id="root.nobody"))


def test_merging_leaves_the_children_of_the_branch_behind(family):
    parent = family.fork(from_node_id=family.nodes[1].id)  # before the launch
    assert list(family.agents) == ["root", "root.one", "root.two"] and list(parent.agents) == ["root"]
    assert "here-here" in parent.merge(family.fork()).node.content
    assert list(parent.agents) == ["root"] and list(family.agents) == ["root", "root.one", "root.two"]


def test_the_events_of_a_run_make_its_graph_again(runtime):
    async def main():
        flow = rlmflow.Flow(Family(), runtime=runtime)
        return [event async for event in flow.run_streaming("root task")]

    events = asyncio.run(main())
    launched = [(e.child.agent_id, e.parent_agent_id) for e in events if isinstance(e, rlmflow.AddChild)]
    assert launched == [("root.one", "root"), ("root.two", "root")]
    copy = rlmflow.apply_graph_action(None, events[0])
    for event in events[1:]:
        assert rlmflow.apply_graph_action(copy, event) is copy
    assert same(copy, events[0].graph)
    with pytest.raises(ValueError, match="out of order"):
        copy.apply(events[1])
    copy.remove_child("root.one")
    assert list(copy.agents) == ["root", "root.two"]
    with pytest.raises(KeyError):
        copy.remove_child("root.one")


def test_the_events_of_edits_make_them_elsewhere(family):
    here = family.fork()
    there = rlmflow.Graph.from_dict(here.to_dict())
    assert same(here, there)
    edits = {"append_node": lambda: here.append("more?"),
             "insert_node": lambda: here.inject(rlmflow.ExecOutput(content="out"), at=here.nodes[0]),
             "replace_node": lambda: here.replace(here.nodes[1], rlmflow.ErrorOutput(content="wrong", error="exec")),
             "remove_node": lambda: here.remove_node(here.nodes[1].id),
             "remove_child": lambda: here.remove_child("root.two")}
    for kind, edit in edits.items():
        event = edit()
        assert event.type == kind and not same(here, there)
        assert rlmflow.apply_graph_action(there, event) is there and same(here, there), kind
    assert (event.agent_id, event.child_agent_id, event.parent_agent_id) == ("root.two", "root.two", "root")
    here.append("and more?")
    there = rlmflow.Graph.from_dict(here.to_dict())
    event = here.rewind(here.nodes[-2].id)
    there.apply(event)
    assert event.subtree and same(here, there)


def test_a_run_is_forked_and_goes_on(family, runtime, tmp_path):
    flow = rlmflow.Flow(Replies(block("done(r[0])")), runtime=runtime)
    node = family.nodes[-3].id  # the second reply
    assert flow.fork(tmp_path / "run.rlm", family.nodes[4].id, tmp_path / "fork.rlm") == str(tmp_path / "fork.rlm")
    assert flow.resume(tmp_path / "fork.rlm", restore="replay") == "here"
    assert family._drive.flow.fork(family, node, tmp_path / "other.rlm", query="") == str(tmp_path / "other.rlm")
    assert rlmflow.Graph.load(tmp_path / "other.rlm").nodes[-1].id == node
    with pytest.raises(KeyError):
        flow.fork(family, "n_none", tmp_path / "third.rlm")
    with pytest.raises(ValueError, match="no journal"):
        flow.fork(rlmflow.Graph("q"), "0", tmp_path / "third.rlm")


def test_pages_and_trees_are_shown(family, tmp_path):
    html = family.to_html(tmp_path / "run.html")
    assert html.startswith("<!") and "root.two" in html and (tmp_path / "run.html").read_text().startswith("<!")
    assert "root task" in family.fork().to_html()
    lines = str(family).splitlines()
    assert "root task" in lines[0] and len(lines) >= 3
    assert [sum(name in line for line in lines) for name in ("one", "two")] == [1, 1]


def test_a_graph_with_more_than_a_query_begins_no_run(family, runtime):
    flow = rlmflow.Flow(Replies(block("done(repr(INPUTS))")), runtime=runtime)
    with pytest.raises(ValueError, match="begins with a query alone"):
        flow.run(graph=family.fork())
    graph = rlmflow.Graph.from_dict(rlmflow.Graph("q").to_dict())
    with pytest.raises(ValueError, match="has a query already"):
        flow.run("another", graph=graph)
    assert flow.run(graph=graph, inputs={"x": 1}) == "{'x': 1}" and graph.finished


def test_a_held_run_is_appended_to_and_a_tree_at_rest_too(runtime):
    async def main():
        flow = rlmflow.Flow(Replies(block("x = 1"), block("done('ok')")), runtime=runtime)
        events = [e async for e in flow.run_streaming("q", until="idle")]
        graph = events[0].graph
        with pytest.raises(ValueError, match="append_node"):
            graph.append("and this")
        flow.append_node(graph, "and this")
        assert await flow.arun(graph=graph) == "ok"
        assert [n.content for n in graph.nodes if n.type == "user_query"] == ["q", "and this"]
        at_rest = rlmflow.Graph("q")
        assert flow.append_node(at_rest, rlmflow.ExecOutput(content="x")).seq == 1 and len(at_rest.nodes) == 2

    asyncio.run(main())


def test_threads_edit_one_tree():
    graph = rlmflow.Graph("q")
    anchor = graph.nodes[0]
    threads = [threading.Thread(target=lambda: [graph.inject("x", at=anchor) for _ in range(50)]) for _ in range(4)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        seqs = [n.seq for n in graph.nodes]
        assert seqs == list(range(len(seqs)))
    assert len(graph.nodes) == 201 and len(set(ids(graph))) == 201


@pytest.mark.parametrize("agent_id", ["root\0", "root\ud800", "\ud800", ""])
def test_an_id_that_no_agent_has_is_in_no_graph(agent_id):
    graph = rlmflow.Graph("q")
    assert agent_id not in graph
    with pytest.raises(KeyError):
        graph[agent_id]


def test_an_id_of_an_agent_may_be_any_text():
    graph = rlmflow.Graph("q", agent_id="odd \ud800")
    assert graph.agent_id == "odd \ud800" and graph["odd \ud800"].nodes == graph.nodes
    graph.append(rlmflow.SupervisingOutput(waiting_on=["odd \ud800.ä"]))
    assert graph.current().waiting_on == ["odd \ud800.ä"]
