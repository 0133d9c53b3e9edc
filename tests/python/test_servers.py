"""The engine's own clients, from Python: whole runs against a model server that counts and fails on purpose."""
import types

import pytest
import rlmflow
from server import ModelServer
from test_flow import block

PARTS = block("parts = await launch_subagents([{'query': 'count', 'inputs': {'text': t}} for t in ('a b', 'c')])\n"
              "more = await llm_query_batched(['first', 'second'])\n"
              "print(parts, more)")
CLIENTS = {"openai": rlmflow.OpenAIClient, "anthropic": rlmflow.AnthropicClient}


def think(request):
    task = request.messages[0 if request.messages[0][0] == "user" else 1][1]
    if not task.startswith("Task: "):
        return f"re: {task}"
    if "count" in task:
        return block("done(len(text.split()))")
    return PARTS if request.messages[-1][1] == task else block("done(f'{parts} {more}')")


def client_for(api, server, **options):
    return CLIENTS[api]("a-model", api_key="sk-test", **options,
                        base_url=server.base_url if api == "openai" else server.anthropic_url)


def ended(flow):
    """The answer, or how the run ended; and its graph."""
    graph = rlmflow.Graph(query="tell")
    try:
        return flow.run(graph=graph), graph
    except rlmflow.RunEnded as e:
        return str(e), e.graph


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", CLIENTS)
def test_a_recursive_run_is_answered_and_counted(api, stream, runtime):
    with ModelServer([{"reply": think, "delay_ms": 1}]) as server:
        answer, graph = ended(rlmflow.Flow(client_for(api, server, stream=stream), runtime=runtime))
        stats, requests = server.stats(), server.requests
    assert answer == "['2', '1'] ['re: first', 're: second']"
    assert stats["statuses"] == {"200": 6} and {(r.api, r.model) for r in requests} == {(api, "a-model")}
    assert {r.stream for r in requests} == {stream}
    usage = graph.usage()
    assert (usage.calls, usage.input_tokens, usage.output_tokens, usage.estimated) == (
        6, stats["input_tokens"], stats["output_tokens"], False)
    assert [g.usage(recursive=False).calls for g in graph.walk()] == [4, 1, 1]


FAILURES = {"overloaded": {"status": 503}, "too many": {"status": 429, "retry_after": 0}, "cut": {"cut_after": 2}}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("api", CLIENTS)
def test_a_call_that_fails_is_made_again(api, failure, runtime):
    with ModelServer([{"reply": think, "times": 1, **FAILURES[failure]}, {"reply": think}]) as server:
        answer, graph = ended(rlmflow.Flow(client_for(api, server), runtime=runtime))
        assert server.stats()["requests"] == 7
    assert answer == "['2', '1'] ['re: first', 're: second']"
    assert [n.type for n in graph.nodes if n.type == "error_output"] == []


@pytest.mark.parametrize("api", CLIENTS)
def test_a_call_that_is_refused_fails_its_agent_at_once(api, runtime):
    with ModelServer([{"status": 401, "message": "this key is of yesterday"}]) as server:
        told, graph = ended(rlmflow.Flow(client_for(api, server), runtime=runtime))
        assert server.stats()["requests"] == 1
    assert told.startswith("failed: ") and "this key is of yesterday" in told
    assert graph.reason == "failed" and graph.usage().output_tokens == 0


@pytest.mark.parametrize("api", CLIENTS)
def test_a_child_that_is_refused_is_a_value_to_its_parent(api, runtime):
    rules = [{"match": {"user": "count"}, "status": 400, "message": "not this one"}, {"reply": think}]
    with ModelServer(rules) as server:
        answer, graph = ended(rlmflow.Flow(client_for(api, server), runtime=runtime))
    assert answer.count("not this one") == 2 and "re: second" in answer
    assert [g.reason for g in graph.walk()] == ["answered", "failed", "failed"]


def test_address_and_key_come_from_the_environment(runtime, monkeypatch):
    for api, client in CLIENTS.items():
        with ModelServer([{"reply": block("done('found')")}], keys=["sk-of-the-environment"]) as server:
            address = server.base_url if api == "openai" else server.anthropic_url
            monkeypatch.setenv(f"{api.upper()}_BASE_URL", address)
            monkeypatch.setenv(f"{api.upper()}_API_KEY", "sk-of-the-environment")
            assert rlmflow.Flow(client("a-model"), runtime=runtime).run("q") == "found"


@pytest.mark.parametrize("api", CLIENTS)
def test_options_of_a_client_are_sent(api, runtime):
    options = [{}, {"max_tokens": 300, "top_p": 0.25}, {"max_tokens": 10**6}, {"top_p": 1, "extra_body": {"top_p": 0}}]
    with ModelServer([{"reply": block("done('found')")}]) as server:
        for given in options:
            flow = rlmflow.Flow(client_for(api, server, **given), runtime=runtime, max_output_tokens=700)
            assert flow.run("q") == "found"
        bodies = [r.body for r in server.requests]
    assert [(b.get("max_tokens"), b.get("top_p")) for b in bodies] == [(700, None), (300, 0.25), (700, None), (700, 0)]


def test_timeout_takes_the_place_of_the_three(monkeypatch):
    made = []
    engine = types.SimpleNamespace(Model=types.SimpleNamespace(http=lambda *given: made.append(given[11:14])))
    monkeypatch.setattr(rlmflow.clients, "_engine", engine)
    for given in {}, {"timeout": 2.5, "idle_timeout": 7}, {"timeout": 0}, {"connect_timeout": 1}:
        rlmflow.AnthropicClient("m", **given)
    assert made == [(10000, 600000, 120000), (2500, 2500, 2500), (0, 0, 0), (1000, 600000, 120000)]
    with pytest.raises(ValueError, match="timeout=-1: it must be 0 or more"):
        rlmflow.OpenAIClient("m", timeout=-1)
