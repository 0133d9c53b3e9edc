"""Objects of the package in the hands of other threads, of copy and pickle, and of loops that are closed; errors that can
hardly be told of."""
import asyncio
import copy
import pickle
import threading
import time

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


# ---- loops that are closed

class Closing:
    """A client whose agent asks a function that does not look async, and returns an awaitable when its loop is closed."""

    def __init__(self, kind):
        self.kind, self.may_return, self.calls = kind, threading.Event(), 0
        self.asked = threading.Event()

    def later(self, value):
        async def answer():
            return value

        self.calls += 1
        self.asked.set()
        assert self.may_return.wait(timeout=60)
        return answer()

    def chat(self, messages):
        code = block("done(str(ours()))")
        return self.later(code) if self.kind == "chat" and not self.calls else code


@pytest.mark.parametrize("kind", ["chat", "tool"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_awaitable_that_comes_when_the_loop_is_closed_is_awaited_by_the_next(kind, when):
    client = Closing(kind)

    @rlmflow.tool("Ours.", proxy=True)
    def ours():
        return client.later("ours") if kind == "tool" else "ours"

    flow = rlmflow.Flow(client, runtime=rlmflow.LocalRuntime(), tools=[ours], watch=lambda event, graph: None)
    graph = rlmflow.Graph("q")

    async def until_asked():
        while not client.asked.is_set():
            await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    task = loop.create_task(flow.arun(graph=graph))
    loop.run_until_complete(until_asked())
    if when == "before":  # the thread brings what is awaited while the loop is there, and does not turn
        brought = flow._drives.copy().pop().brought
        client.may_return.set()
        while not brought:
            time.sleep(0.01)
    loop.close()
    client.may_return.set()
    assert flow.run(graph=graph) == "ours" and client.calls == 1
    task._log_destroy_pending = False


# ---- errors that can hardly be told of

class Awkward(Exception):
    def __str__(self):
        raise KeyboardInterrupt("in __str__")


def fails(place, error, **options):
    """What a run tells of an error that is raised there."""
    def act(here):
        if here == place:
            raise error

    class Flow(rlmflow.Flow):
        async def exec_turn(self, graph, code, *, replay=False):
            act("exec_turn")
            return await super().exec_turn(graph, code, replay=replay)

        def messages(self, graph, *, force_final=False):
            act("messages")
            return super().messages(graph, force_final=force_final)

    class Runtime(rlmflow.LocalRuntime):
        async def open(self, graph):
            act("open")
            return await super().open(graph)

    @rlmflow.tool("Ours.", proxy=True)
    def ours():
        act("tool")

    def chat(messages):
        act("chat")
        return block("try:\n    ours()\nexcept Exception as e:\n    done(str(e))")

    try:
        return Flow(chat, runtime=Runtime(), tools=[ours], **options).run("q")
    except rlmflow.RunEnded as e:
        return e.message


PLACES = ["chat", "tool", "messages", "exec_turn", "open"]


@pytest.mark.parametrize("place", PLACES)
def test_a_message_is_told_whole_whatever_is_in_it(place):
    told = fails(place, ValueError("a\0b\ud800c"))
    assert "ValueError: a\\x00b" in told and told.endswith("c")


@pytest.mark.parametrize("place", PLACES)
def test_an_error_whose_str_fails_is_told_by_its_class(place):
    assert "Awkward: <its str() failed>" in fails(place, Awkward())
