"""What callers give that is wrong: it is told by the name of the argument, before a model is asked anything."""
import asyncio
import math
import re
from pathlib import Path

import pytest
import rlmflow
from rlmflow.testing import check_runtime
from test_flow import Replies, block

NUL, LONE = "a\0b", "a\ud800b"
HOLDS_NUL, HOLDS_LONE = "it holds a NUL, at 1", "it holds a lone surrogate, at 1"


class Unshowable:
    """Its repr() fails."""

    def __repr__(self):
        raise ValueError("no repr")


class Unasked:
    """A client that must not be asked."""

    def chat(self, messages):
        raise AssertionError("the model was asked")


def flow(**options):
    return rlmflow.Flow(Unasked(), **{"runtime": rlmflow.LocalRuntime(), **options})


def run(**given):
    return flow().run(**{"query": "q", **given})


def marked(**said):
    return rlmflow.tool(**{"name": "ours", "description": "d", "proxy": True, **said})(lambda a: a)


def check(made, told, kinds=(TypeError, ValueError)):
    """`made` is refused with a message that begins with `told`."""
    with pytest.raises(kinds, match="^" + re.escape(told)) as raised:
        made()
    assert type(raised.value) in (TypeError, ValueError)
    str(raised.value).encode()  # it can be printed


INTS = ["max_depth", "max_iters", "child_max_iters", "max_messages", "max_output_length", "max_query_chars",
        "max_output_tokens", "max_budget", "workers", "max_live", "max_agents"]
NUMBERS = ["max_cost", "max_time", "exec_timeout", "llm_request_timeout"]


@pytest.mark.parametrize("name", INTS)
@pytest.mark.parametrize("value", ["x", 1.5, True, 2**70, [], Unshowable()], ids=lambda v: type(v).__name__)
def test_a_limit_that_is_no_int_is_named(name, value):
    shown = "<an Unshowable whose repr() failed>" if isinstance(value, Unshowable) else repr(value)
    check(lambda: flow(**{name: value}), f"Flow: {name}={shown}: it must be ")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["x", math.nan, math.inf, -1, -0.5, 0, True, 1e30, 10**400, [], 1j], ids=repr)
def test_a_limit_that_is_no_number_is_named_in_the_unit_of_the_caller(name, value):
    shown = repr(value) if len(repr(value)) < 200 else repr(value)[:200] + "..."
    check(lambda: flow(**{name: value}), f"Flow: {name}={shown}: it must be ")


def test_a_limit_below_the_least_unit_is_that_unit_and_no_absent_one():
    limits = flow(**dict.fromkeys(NUMBERS, 1e-12))._checked_limits()
    assert [limits[name] for name in ("max_cost_nano", "max_time_ms", "exec_timeout_ms", "request_timeout_ms")] == [1] * 4
    assert marked(timeout=1e-12).__rlmflow_tool__.limits() == (0, 1, 0)
    assert marked(timeout=0).__rlmflow_tool__.limits() == (0, 0, 0)


def test_a_limit_that_is_set_later_is_checked_by_the_run():
    ours = flow()
    ours.max_time = "soon"
    check(lambda: ours.run("q"), "Flow: max_time='soon': it must be a number: seconds")


@pytest.mark.parametrize("made, told", [
    (lambda: flow(system_prompt=5), "Flow: system_prompt=5: it must be a str"),
    (lambda: flow(system_prompt=NUL), f"Flow: system_prompt='a\\x00b': {HOLDS_NUL}"),
    (lambda: flow(system_prompt=LONE), f"Flow: system_prompt='a\\ud800b': {HOLDS_LONE}"),
    (lambda: flow(prompt_builder=5), "Flow: prompt_builder=5: it must be a PromptBuilder"),
    (lambda: flow(prompt_builder=rlmflow.PromptBuilder), "Flow: prompt_builder=<class 'rlmflow.prompts.PromptBuilder'>: "),
    (lambda: flow(runtime=5), "Flow: runtime=5: it must be a Runtime"),
    (lambda: flow(runtime=Unshowable()), "Flow: runtime=<an Unshowable whose repr() failed>: it must be a Runtime"),
    (lambda: flow(watch=Unshowable()), "Flow: watch=<an Unshowable whose repr() failed> is none of True"),
    (lambda: flow(tools=5), "Flow: tools=5: it must be a list of functions"),
    (lambda: flow(tools=[Unshowable()]), "a tool is a function, not <an Unshowable"),
    (lambda: flow(llm_clients=5), "Flow: llm_clients=5: it must be a dict"),
    (lambda: flow(llm_clients={5: Unasked()}), "Flow: a name in llm_clients=5: it must be a str"),
    (lambda: flow(llm_clients={NUL: Unasked()}), f"Flow: a name in llm_clients='a\\x00b': {HOLDS_NUL}"),
    (lambda: flow(llm_clients={LONE: Unasked()}), f"Flow: a name in llm_clients='a\\ud800b': {HOLDS_LONE}"),
    (lambda: rlmflow.Flow(Unshowable(), runtime=rlmflow.LocalRuntime()).run("q"),
     "llm_client('default') is <an Unshowable"),
    (lambda: run(query=5), "a run: query=5: it must be a str"),
    (lambda: run(graph=5), "graph=5: it must be a Graph"),
    (lambda: run(inputs=[1]), "a run: inputs=[1]: it must be a dict"),
    (lambda: run(inputs={5: 1}), "a run: a name in inputs=5: it must be a str"),
    (lambda: run(inputs={NUL: 1}), f"a run: a name in inputs='a\\x00b': {HOLDS_NUL}"),
    (lambda: run(inputs={LONE: 1}), f"a run: a name in inputs='a\\ud800b': {HOLDS_LONE}"),
    (lambda: run(inputs={"f": Path(NUL)}), "a run: inputs['f']='a\\x00b': it holds a NUL"),
    (lambda: run(inputs={"v": {Unshowable(): 1}}), "a key of input 'v' is an Unshowable"),
    (lambda: run(journal=5), "a run: journal=5: it must be a path"),
    (lambda: run(journal=b"bytes"), "a run: journal=b'bytes': it must be a path"),
    (lambda: run(journal=""), "a run: journal='': it is empty"),
    (lambda: run(journal=NUL), f"a run: journal='a\\x00b': {HOLDS_NUL}"),
    (lambda: run(journal=LONE), f"a run: journal='a\\ud800b': {HOLDS_LONE}"),
    (lambda: run(output_schema="{"), "the schema is a str, but no JSON text: "),
    (lambda: run(output_schema={"type": object()}), "the schema cannot be said in JSON: "),
    (lambda: run(output_schema=Unshowable()), "<an Unshowable whose repr() failed> is no schema"),
    (lambda: flow().resume(None), "a run: journal=None: it must be a path"),
    (lambda: flow().resume("no run", query=5), "a run: query=5: it must be a str"),
    (lambda: flow().resume("no run", restore=[]), "a run: restore=[] is none of auto"),
    (lambda: flow().replay(NUL), f"a run: journal='a\\x00b': {HOLDS_NUL}"),
    (lambda: flow().fork(5, "1", "new"), "a fork: source=5: it must be a path"),
    (lambda: flow().fork("old", 5, "new"), "a fork: node=5: it must be a str"),
    (lambda: flow().fork("old", "1", LONE), f"a fork: journal='a\\ud800b': {HOLDS_LONE}"),
    (lambda: flow().terminate("root"), "terminate: agent_ids='root': it must be a list of str"),
    (lambda: asyncio.run(flow().parallel_run(5)), "graph=5: it must be a Graph"),
    (lambda: asyncio.run(flow().parallel_run("q", until=Unshowable())), "a stream: until=<an Unshowable"),
    (lambda: asyncio.run(flow().parallel_run("q", n="x")), "a stream: n='x': it must be an int"),
    (lambda: flow().append_node(5, "x"), "graph=5: it must be a Graph"),
    (lambda: flow().append_node(rlmflow.Graph(), 5), "a node is a Node or a str, not an int"),
])
def test_what_a_flow_is_given_is_named(made, told):
    check(made, told)


@pytest.mark.parametrize("said, told", [
    ({"name": 5}, "the tool 5: name=5: it must be a str"),
    ({"name": NUL}, f"the tool 'a\\x00b': name='a\\x00b': {HOLDS_NUL}"),
    ({"name": LONE}, f"the tool 'a\\ud800b': name='a\\ud800b': {HOLDS_LONE}"),
    ({"description": 5}, "tool: description=5: it must be a str"),
    ({"description": NUL}, f"the tool 'ours': description='a\\x00b': {HOLDS_NUL}"),
    ({"description": LONE}, f"the tool 'ours': description='a\\ud800b': {HOLDS_LONE}"),
    ({"timeout": "x"}, "the tool 'ours': timeout='x': it must be a number: seconds of a call"),
    ({"timeout": -1}, "the tool 'ours': timeout=-1: it must be 0 or more: seconds of a call"),
    ({"timeout": math.nan}, "the tool 'ours': timeout=nan: it must be a finite number"),
    ({"max_calls": "x"}, "the tool 'ours': max_calls='x': it must be an int"),
    ({"max_result_bytes": -1}, "the tool 'ours': max_result_bytes=-1: it must be 0 or more"),
])
def test_what_is_said_of_a_tool_is_checked_where_it_is_said(said, told):
    check(lambda: marked(**said), told)


def test_a_docstring_is_checked_where_it_becomes_a_description():
    def ours():
        "a\ud800b"

    check(lambda: flow(tools=[ours]), f"the tool 'ours': description='a\\ud800b': {HOLDS_LONE}")


SUBPROCESS, COMMAND, OPENAI = rlmflow.SubprocessRuntime, rlmflow.CommandRuntime, rlmflow.OpenAIClient


@pytest.mark.parametrize("made, told", [
    (lambda: SUBPROCESS(python=5), "SubprocessRuntime: python=5: it must be a str"),
    (lambda: SUBPROCESS(env=5), "SubprocessRuntime: env=5: it must be a dict"),
    (lambda: SUBPROCESS(env={"A": 5}), "SubprocessRuntime: env['A']=5: names and values of variables must be str"),
    (lambda: SUBPROCESS(env={"A=B": "c"}), "SubprocessRuntime: a name in env='A=B': 'A=B' cannot be a variable"),
    (lambda: SUBPROCESS(env={"A": NUL}), f"SubprocessRuntime: env['A']=...: {HOLDS_NUL}"),
    (lambda: SUBPROCESS(working_directory=5), "SubprocessRuntime: working_directory=5: it must be a path"),
    (lambda: SUBPROCESS(working_directory=LONE), f"SubprocessRuntime: working_directory='a\\ud800b': {HOLDS_LONE}"),
    (lambda: SUBPROCESS(spare=-1), "SubprocessRuntime: spare=-1: it must be 0 or more"),
    (lambda: SUBPROCESS(exec_timeout="x"), "SubprocessRuntime: exec_timeout='x': it must be a number: seconds of a cell"),
    (lambda: COMMAND(5), "CommandRuntime: argv=5: it must be a list of the words of a command"),
    (lambda: COMMAND(["ssh", NUL]), f"CommandRuntime: argv[1]='a\\x00b': {HOLDS_NUL}"),
    (lambda: COMMAND(["ssh"], workdir=NUL), f"CommandRuntime: workdir='a\\x00b': {HOLDS_NUL}"),
    (lambda: rlmflow.LocalRuntime(exec_timeout=-1), "LocalRuntime: exec_timeout=-1: it must be more than 0"),
    (lambda: rlmflow.LocalRuntime().register_tools(5), "register_tools: fns=5: it must be a list of functions"),
    (lambda: OPENAI(5), "OpenAIClient: model=5: it must be a str"),
    (lambda: OPENAI("m", base_url=5), "OpenAIClient: base_url=5: it must be a str"),
    (lambda: OPENAI("m", api_key=NUL), f"OpenAIClient: api_key=...: {HOLDS_NUL}"),
    (lambda: OPENAI("m", headers=5), "OpenAIClient: headers=5: it must be a dict"),
    (lambda: OPENAI("m", headers={"A": NUL}), f"OpenAIClient: headers['A']=...: {HOLDS_NUL}"),
    (lambda: OPENAI("m", temperature="x"), "OpenAIClient: temperature='x': it must be a number"),
    (lambda: OPENAI("m", extra_body=5), "OpenAIClient: extra_body=5: it must be a dict"),
    (lambda: OPENAI("m", extra_body={"a": object()}), "extra_body cannot be said in JSON: "),
    (lambda: OPENAI("m", idle_timeout=-1), "OpenAIClient: idle_timeout=-1: it must be 0 or more: seconds; 0: no limit"),
    (lambda: OPENAI("m", price=(1, 2)), "OpenAIClient: price=(1, 2): it must be four numbers"),
    (lambda: OPENAI("m", price=(1, 2, 3, -4)), "OpenAIClient: price=(1, 2, 3, -4): it must be four numbers"),
    (lambda: rlmflow.ScriptedClient(5), "ScriptedClient: path=5: it must be a path"),
    (lambda: rlmflow.ScriptedClient(text=5), "ScriptedClient: text=5: it must be a str"),
    (lambda: rlmflow.PromptBuilder([5]), "PromptBuilder: sections[0]=5: it must be a Section"),
    (lambda: rlmflow.DEFAULT_BUILDER.section(5), "a section of a prompt: name=5: it must be a str"),
    (lambda: rlmflow.DEFAULT_BUILDER.section("a", level="x"), "a section of a prompt: level='x': it must be an int"),
    (lambda: rlmflow.StructuredOutputParser()(5, {}), "StructuredOutputParser: content=5: it must be a str"),
    (lambda: rlmflow.ConsumerGroup(5), "ConsumerGroup: consumers=5: it must be a list of consumers"),
    (lambda: rlmflow.ConsumerGroup([5]), "ConsumerGroup: 5 is no consumer: it has no handle(event, graph)"),
    (lambda: rlmflow.render_tree(5), "graph=5: it must be a Graph"),
    (lambda: check_runtime(5), "check_runtime: runtime=5: it must be a Runtime"),
    (lambda: check_runtime(SUBPROCESS(), text_size="x"), "check_runtime: text_size='x': it must be an int: characters"),
    (lambda: check_runtime(SUBPROCESS(), without=5), "check_runtime: without=5: it must be a list of str"),
    (lambda: rlmflow.code_block(5), "code_block: reply=5: it must be a str"),
])
def test_what_runtimes_clients_and_prompts_are_given_is_named(made, told):
    check(made, told)


def test_a_client_of_the_user_is_told_of_its_price_and_may_have_any_name():
    class Client(Replies):
        model = "a\0b\ud800"
        price = (1, 2)

    client = Client(block("done('ok')"))
    ours = rlmflow.Flow(client, runtime=rlmflow.LocalRuntime())
    check(lambda: ours.run("q"), "the client of model 'default': price=(1, 2): it must be four numbers")
    client.price = None
    assert ours.run("q") == "ok"


# ---- graphs

def tree(**members):
    return lambda: rlmflow.Graph.from_dict(members)


def node(**members):
    return tree(nodes=[{"type": "user_query", "content": "q"}, {"type": "llm_output", **members}])


def child(**members):
    return tree(children={"a": {"children": {"b": {}}, **members}})


@pytest.mark.parametrize("made, told", [
    (lambda: rlmflow.Graph.from_dict(5), "the tree is an int; it must be a dict"),
    (tree(query=5), "the tree: its query is an int; it must be a str"),
    (tree(agent_id=5), "the tree: its agent_id is an int; it must be a str"),
    (tree(inputs=5), "the tree: its inputs is an int; it must be a dict"),
    (tree(inputs={"a": object()}), "the tree cannot be said in JSON: "),
    (tree(output_schema=5), "the tree: its output_schema is an int"),
    (tree(call="x"), "the tree: its call is a str; it must be an int"),
    (tree(nodes=5), "the tree: its nodes is an int; it must be a list"),
    (tree(nodes=[5]), "the tree.nodes[0] is an int; it must be a dict"),
    (tree(nodes=[{}]), "the tree.nodes[0]: its type is None; it must be one of user_query, "),
    (tree(nodes=[{"type": []}]), "the tree.nodes[0]: its type is []; it must be one of user_query, "),
    (node(content=5), "the tree.nodes[1]: its content is an int; it must be a str"),
    (node(id=5), "the tree.nodes[1]: its id is an int; it must be a str"),
    (node(time_us="x"), "the tree.nodes[1]: its time_us is a str; it must be an int"),
    (node(metadata=5), "the tree.nodes[1]: its metadata is an int; it must be a dict"),
    (node(metadata={"a": object()}), "the tree.nodes[1] cannot be said in JSON: "),
    (node(usage=5), "the tree.nodes[1]: its usage is an int; it must be a dict"),
    (node(waiting_on=[5]), "the tree.nodes[1]: its waiting_on is [5]; it must be a list of agents' ids"),
    (tree(children=5), "the tree: its children is an int; it must be a dict"),
    (tree(children={"a": 5}), "the tree.children['a'] is an int; it must be a dict"),
    (child(), "the tree.children['a']: its agent_id is ''; that of a child of root begins with 'root.'"),
    (child(agent_id="root.a"), "the tree.children['a'].children['b']: its agent_id is ''"),
    (lambda: rlmflow.node_from_dict(5), "a node is described by a dict, not by an int"),
])
def test_a_dict_that_is_no_tree_is_told_with_the_place(made, told):
    check(made, told)


GRAPH = rlmflow.Graph("q")
APPEND = {"type": "append_node", "agent_id": "root"}


@pytest.mark.parametrize("made, told", [
    (lambda: rlmflow.Graph(5), "Graph: query=5: it must be a str"),
    (lambda: rlmflow.Graph("q", inputs=5), "Graph: inputs=5: it must be a dict"),
    (lambda: rlmflow.Graph("q", agent_id=NUL), f"Graph: agent_id='a\\x00b': {HOLDS_NUL}"),
    (lambda: rlmflow.Graph("q", model=LONE), f"Graph: model='a\\ud800b': {HOLDS_LONE}"),
    (lambda: rlmflow.Graph("q", graph_id=5), "Graph: graph_id=5: it must be a str"),
    (lambda: GRAPH.apply(5), "an event is an Event, a dict or a line of JSON, not an int"),
    (lambda: GRAPH.apply({"type": object()}), "the event cannot be said in JSON: "),
    (lambda: GRAPH.apply({"type": "append_node"}), 'the event has no "agent_id"'),
    (lambda: GRAPH.apply({**APPEND, "node": {}}), "the event's node has no type that is known"),
    (lambda: GRAPH.apply({**APPEND, "node": {"type": "user_query", "seq": 1}}), 'the event\'s node has no "id"'),
    (lambda: GRAPH.apply({**APPEND, "node": {"type": "user_query", "id": "n"}}), 'the event\'s node has no "seq"'),
    (lambda: GRAPH.apply({**APPEND, "node": {"type": "user_query", "id": "n", "seq": 1, "content": 5}}),
     'the member "content": a text is neither a string nor a blob'),
    (lambda: GRAPH.apply(rlmflow.AppendNode("g", "root", 5)), "a node is a Node or a str, not an int"),
    (lambda: rlmflow.apply_graph_action(5, {}), "graph=5: it must be a Graph"),
    (lambda: GRAPH.revert(5), "Graph: checkpoint=5: it must be one that checkpoint() returned"),
    (lambda: GRAPH.revert(rlmflow.GraphCheckpoint("root", -1, "d")), "Graph: position of the checkpoint=-1: "),
    (lambda: GRAPH.revert(rlmflow.GraphCheckpoint("root", 2**80, "d")), "Graph: position of the checkpoint=12089"),
    (lambda: GRAPH.revert(rlmflow.GraphCheckpoint("root", 1, 5)), "Graph: digest of the checkpoint=5: it must be a str"),
    (lambda: GRAPH.inject(5), "a node is a Node or a str, not an int"),
    (lambda: GRAPH.inject("x", at=5), "Graph: at=5: it must be a str"),
    (lambda: GRAPH.inject("x", mode=[]), "Graph: mode=[] is none of after, before, replace"),
    (lambda: GRAPH.inject("x", agent_id=5), "Graph: agent_id=5: it must be a str"),
    (lambda: GRAPH.inject(rlmflow.UserQuery(metadata=5)), "UserQuery.metadata is an int; it must be a dict"),
    (lambda: GRAPH.inject(rlmflow.UserQuery(metadata={"a": object()})), "UserQuery.metadata['a'] is an object: only"),
    (lambda: GRAPH.inject(rlmflow.ResumeAction(resumed_from=[NUL])), f"ResumeAction: an agent's id='a\\x00b': {HOLDS_NUL}"),
    (lambda: GRAPH.remove_node(NUL), f"Graph: node_id='a\\x00b': {HOLDS_NUL}"),
    (lambda: GRAPH.rewind(5), "Graph: node_id=5: it must be a str"),
    (lambda: GRAPH.merge(5), "branch=5: it must be a Graph"),
    (lambda: GRAPH.merge(GRAPH, summary=5), "Graph: summary=5: it must be a str"),
    (lambda: GRAPH.fork(from_node_id=5), "Graph: from_node_id=5: it must be a str"),
    (lambda: GRAPH[5], "Graph: agent_id=5: it must be a str"),
    (lambda: GRAPH.save(5), "Graph: path=5: it must be a path"),
    (lambda: GRAPH.save("saved", metadata=5), "Graph: metadata=5: it must be a dict"),
    (lambda: GRAPH.to_html(5), "Graph: path=5: it must be a path"),
    (lambda: rlmflow.Graph.load(None), "Graph: path=None: it must be a path"),
    (lambda: rlmflow.Graph.load(LONE), f"Graph: path='a\\ud800b': {HOLDS_LONE}"),
])
def test_what_a_graph_is_given_is_named(made, told):
    check(made, told)
    assert len(GRAPH.nodes) == 1
