"""Objects of the package in the hands of other threads, of copy and pickle, and of loops that are closed."""
import copy
import pickle
import threading

import pytest
import rlmflow
from test_flow import block

DONE = block("done('a')")


def ended(query="q", **options):
    """The graph of a run that has ended."""
    graph = rlmflow.Graph(query, **options)
    rlmflow.Flow(lambda messages: DONE, runtime=rlmflow.LocalRuntime()).run(graph=graph)
    return graph


def test_threads_that_read_the_nodes_at_once_see_each_once():
    graph, both = ended(), threading.Barrier(2, timeout=10)

    class Look:
        """Two threads have asked before one is answered."""

        def __init__(self, look):
            self.look = look

        def nodes(self, start):
            texts = self.look.nodes(start)
            both.wait()
            return texts

    look, graph._look = graph._look, Look(graph._look)
    seen = []
    threads = [threading.Thread(target=lambda: seen.append([n.id for n in graph.nodes])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    graph._look = look
    assert len(set(seen[0])) == 4 and seen == [seen[0], seen[0]] == [[n.id for n in graph.nodes]] * 2


# ---- copies

@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))],
                         ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("make, message", [(lambda: None, ""), (lambda: None, "why"), (ended, "why")],
                         ids=["bare", "said", "graph"])
def test_a_run_ended_goes_to_other_processes(again, make, message):
    graph = make()
    e = again(rlmflow.RunEnded("max_iters", message, graph, "path"))
    assert (e.reason, e.message, e.path) == ("max_iters", message, "path")
    assert str(e) == ("max_iters: why" if message else "max_iters")
    assert (e.graph and e.graph.to_dict()) == (graph and graph.to_dict())


def test_a_structured_output_error_goes_to_other_processes():
    with pytest.raises(rlmflow.StructuredOutputError) as raised:
        rlmflow.StructuredOutputParser()("{}", {"type": "object", "required": ["a"]})
    e = pickle.loads(pickle.dumps(raised.value))
    assert str(e) == str(raised.value) and e.content == "{}" and e.schema == raised.value.schema
    assert str(e.cause) == str(raised.value.cause)


def test_a_session_died_goes_to_other_processes():
    e = pickle.loads(pickle.dumps(rlmflow.SessionDied("memory", "it took too much", "printed")))
    assert (e.reason, str(e), e.output) == ("memory", "it took too much", "printed")


@pytest.mark.parametrize("again", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))], ids=["deepcopy", "pickle"])
def test_a_graph_is_copied_to_one_at_rest(again):
    graph = ended()
    made = again(graph)
    assert made.to_dict() == graph.to_dict()
    made.append("more")
    assert len(made.nodes) == 5 and len(graph.nodes) == 4


def test_a_copy_of_a_sub_agents_graph_is_in_a_copy_of_its_tree():
    graph = rlmflow.Graph.from_dict({"query": "q", "children": {"root.kid": {"agent_id": "root.kid", "query": "k"}}})
    kid = copy.deepcopy(graph["root.kid"])
    assert kid.to_dict() == graph["root.kid"].to_dict() and kid.parent_agent_id == "root"
    assert kid["root"].to_dict() == graph.to_dict()


def test_a_copy_of_a_graph_whose_run_has_not_begun_begins_one():
    graph = copy.deepcopy(rlmflow.Graph("q", inputs={"n": 41}))
    flow = rlmflow.Flow(lambda messages: block("done(str(n + 1))"), runtime=rlmflow.LocalRuntime())
    assert flow.run(graph=graph) == "42" and graph.inputs == {"n": 41}
