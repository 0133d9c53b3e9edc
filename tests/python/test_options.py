"""Each option of a flow: its default, and a run in which it shows."""
import asyncio
import inspect
import threading

import pytest
import rlmflow
from test_flow import Replies, block

DEFAULTS = {
    "max_depth": 2, "max_iters": 20, "child_max_iters": None, "max_messages": None, "max_output_length": 4000,
    "max_query_chars": 2000, "max_budget": None, "max_cost": None, "max_time": None, "max_output_tokens": 8192,
    "exec_timeout": None, "workers": None, "max_live": 64, "max_agents": 1000, "llm_request_timeout": None,
    "system_prompt": None, "prompt_builder": None, "tools": None, "runtime": None, "llm_clients": None,
    "use_llm_query": True, "watch": None,
}
OF_RUNS = {"query": None, "graph": None, "inputs": None, "output_schema": None, "journal": None, "sync": False}
TO_RESUME = {"query": "", "restore": "auto", "cut": False, "sync": False}
STEPS = {"until": "done", "n": None}
METHODS = {"run": OF_RUNS, "arun": OF_RUNS, "run_streaming": {**OF_RUNS, **STEPS}, "parallel_run": STEPS,
           "parallel_stream": STEPS, "resume": TO_RESUME, "aresume": TO_RESUME, "replay": {"execute": False},
           "areplay": {"execute": False}, "exec_turn": {"replay": False}, "messages": {"force_final": False},
           "llm_client": {"model": "default"}, "add_tool": {"name": None}, "terminate": {"agent_ids": None},
           "close_repls": {"graph_id": None}, "merge": {"agent_id": None, "summary": None}, "fork": {"query": ""}}


def defaults_of(function):
    return {p.name: p.default for p in inspect.signature(function).parameters.values() if p.default is not p.empty}


def test_the_defaults_of_a_flow_and_of_its_methods():
    assert defaults_of(rlmflow.Flow) == DEFAULTS
    methods = {name: defaults_of(member) for name, member in vars(rlmflow.Flow).items()
               if not name.startswith("_") and inspect.isfunction(member)}
    assert {name: defaults for name, defaults in methods.items() if defaults} == METHODS


class Family(Replies):
    """The root has children, prints what they said, and answers with it; they do what `child` says."""

    def __init__(self, child=block("done('ok')"), n=2):
        super().__init__(block(f"parts = await launch_subagents([{{'query': 'child {n}'}}] * {n})\nprint(parts)"),
                         block("done(str(parts))"))
        self.child = child

    def chat(self, messages):
        return self.child if "child" in messages[1]["content"] else super().chat(messages)


def run(client, **options):
    """The graph of a run in this process, and why it ended."""
    graph = rlmflow.Graph("the task")
    options.setdefault("runtime", rlmflow.LocalRuntime())
    try:
        rlmflow.Flow(client, **options).run(graph=graph)
    except rlmflow.RunEnded:
        pass
    return graph, graph.reason


def replies_of(graph):
    return sum(isinstance(node, rlmflow.LLMOutput) for node in graph.nodes)


@pytest.mark.parametrize("depth, told", [(0, "max depth 0"), (1, "'ok', 'ok'")])
def test_max_depth(depth, told):
    assert told in run(Family(), max_depth=depth)[0].result()


def test_max_iters():
    graph, reason = run(Replies(*[block("x = 1")] * 3), max_iters=3)
    assert (reason, replies_of(graph)) == ("max_iters", 3)


def test_child_max_iters():
    graph, reason = run(Family(block("x = 1")), child_max_iters=1, max_iters=4)
    assert reason == "answered"
    assert [(g.reason, replies_of(g)) for g in graph.children.values()] == [("max_iters", 1)] * 2


def test_max_messages():
    client = Replies(*[block(f"print({i})") for i in range(6)], block("done(1)"))
    assert run(client, max_messages=4)[1] == "answered"
    assert [len(messages) for messages in client.asked] == [2, 4, 4, 4, 4, 4, 4]
    assert all("the task" in messages[1]["content"] for messages in client.asked)


def test_max_output_length():
    for most, shown in (300, False), (6000, True):
        client = Replies(block("print('a' * 5000)"), block("done(1)"))
        run(client, max_output_length=most)
        assert ("a" * 5000 in client.asked[1][-1]["content"]) == shown


def test_max_query_chars():
    assert "[refused: query too long (7 chars > 6);" in run(Family(), max_query_chars=6)[0].result()
    assert run(Family(), max_query_chars=7)[0].result() == "['ok', 'ok']"


def test_max_agents():
    graph, _ = run(Family(), max_agents=2)
    assert len(graph.agents) == 2 and "'ok', '[refused: max_agents (2) reached]'" in graph.result()


class Counted(Replies):
    price = (1.0, 1.0, 1.0, 1.0)
    last_usage = {"input_tokens": 100, "output_tokens": 100}

    def chat(self, messages, max_tokens):
        self.asked.append(max_tokens)
        return block("x = 1")


def test_max_budget_and_max_cost():
    for options, reason in (({"max_budget": 20_000}, "budget"), ({"max_cost": 0.02}, "cost")):
        graph, ended = run(Counted(), max_iters=500, max_output_tokens=300, **options)
        assert ended == reason and 1000 < graph.total_tokens() <= 20_000


def test_max_output_tokens():
    client = Counted()
    run(client, max_iters=1, max_output_tokens=300)
    assert client.asked == [300]


async def never(messages):
    await asyncio.sleep(600)


@pytest.mark.parametrize("options, reason", [({"max_time": 0.05}, "time"), ({"llm_request_timeout": 0.05}, "failed")])
def test_times_of_a_run_and_of_a_call(options, reason):
    assert run(never, **options)[1] == reason


@pytest.mark.parametrize("of_runtime, of_flow", [(0.05, None), (600, 0.05)])
def test_exec_timeout_is_the_flows_or_the_runtimes(of_runtime, of_flow):
    client = Replies(block("while True: pass"), block("done(1)"))
    graph, _ = run(client, exec_timeout=of_flow, runtime=rlmflow.LocalRuntime(exec_timeout=of_runtime))
    assert [node.error for node in graph.nodes if isinstance(node, rlmflow.ErrorOutput)] == ["exec_timeout"]


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("option, other", [("workers", "max_live"), ("max_live", "workers")])
def test_workers_are_calls_of_models_at_once_and_max_live_sessions_at_work(option, other, most):
    as_many, now, seen, lock, too_many = threading.Barrier(most), [], [], threading.Lock(), threading.Event()

    @rlmflow.tool("Counts who is here.")
    def come():
        with lock:
            now.append(1)
            seen.append(len(now))
        if len(now) > most:
            too_many.set()
        as_many.wait(timeout=60)
        too_many.wait(timeout=0.1)  # for one more, which does not come
        with lock:
            now.pop()

    class Crowd(Family):
        async def chat(self, messages):
            if option == "workers" and "child" in messages[1]["content"]:
                await asyncio.get_running_loop().run_in_executor(None, come)
            return super().chat(messages)

    child = block("come()\ndone('ok')" if option == "max_live" else "done('ok')")
    graph, reason = run(Crowd(child, n=4), tools=[come], **{option: most, other: 8})
    assert graph.result() == str(["ok"] * 4) and max(seen) == most and not too_many.is_set()


def test_models_and_prompts():
    builder = rlmflow.PromptBuilder().section("only", "of the builder")
    for options, told in (({"system_prompt": "of the flow"}, "of the flow"),
                          ({"prompt_builder": builder}, "of the builder\n")):
        client = Replies(block("done(1)"))
        assert run(None, llm_clients={"default": client, "other": Replies()}, **options)[1] == "answered"
        assert client.asked[0][0] == {"role": "system", "content": told}


def test_tools_and_watch():
    told = []
    graph, _ = run(Replies(block("done(twice(4))")), tools=[rlmflow.tool("Twice n.", name="twice")(lambda n: 2 * n)],
                   watch=lambda event, graph: told.append(event.node_type))
    assert graph.result() == "8" and told[-1] == "done_output"
