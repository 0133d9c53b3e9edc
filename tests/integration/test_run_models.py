"""Models that fail: each gets a clear message, a right exit code, and costs no more than it must."""

import re
import socket

import pytest
from runs import command, go, look, mind  # noqa: F401

OK = mind({"go": "done('fine')"})
CHILD = mind({"go": 'r, = await launch_subagents([{"query": "work"}])\n'
                    'done(repr((isinstance(r, Failure), r.reason, r.message)))',
              "work": {"status": 401}})


def test_an_unreachable_model(run_rlmflow, look, tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    path = tmp_path / "run.rlm"
    r = run_rlmflow("run", "go", "--model", "m", "--base-url", f"http://{address}/v1", "-o", path)
    assert r.code == 1 and r.stdout == ""
    assert r.stderr.count("trying again") == 2
    last = r.stderr.splitlines()[-1]
    assert last.startswith("rlmflow: no answer: failed: ") and address in last and "connect" in last, last
    assert look(r, path).ends == {"root": "failed"}


def test_a_host_that_is_not_there(run_rlmflow):
    r = run_rlmflow("run", "go", "--model", "m", "--base-url", "http://nowhere.invalid/v1")
    assert r.code == 1 and "nowhere.invalid" in r.stderr.splitlines()[-1]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("status, tried, word", [
    (401, 1, "401"), (403, 1, "403"), (404, 1, "404"), (400, 1, "400"), (429, 3, "429"), (500, 3, "500"),
    (503, 3, "503"),
])
def test_an_error_of_the_server(go, server, api, status, tried, word):
    rule = {"status": status, "message": "because of this", "retry_after_ms": 1}
    run = go([rule], api=api)
    assert run.code == 1 and run.stdout == ""
    assert server.stats()["requests"] == tried
    last = run.stderr.splitlines()[-1]
    assert "no answer: failed" in last and word in last and "because of this" in last, last
    assert run.ends == {"root": "failed"}


def test_a_server_that_has_answered_gets_more_patience(go, server):
    run = go(mind({"go": ["print(1)", {"status": 500, "retry_after_ms": 1}]}))
    assert run.code == 1 and server.stats()["requests"] == 1 + 8


@pytest.mark.parametrize("rule", [
    {"status": 429, "retry_after_ms": 1}, {"status": 500}, {"html": True}, {"error": "loading"},
    {"cut_after": 3, "reply": "x" * 400}, {"cut_after": 0}, {"cut_after": -1},
    {"cut_after": 3, "cut": "close", "reply": "x" * 400}, {"cut_after": 3, "cut": "end", "reply": "x" * 400},
    {"error_after": 2, "reply": "x" * 400}, {"error_after": 1, "ignore_stream": True},
    {"invalid_json_after": 2, "reply": "x" * 400}, {"invalid_json_after": 1, "ignore_stream": True},
    {"cut_after": 1, "ignore_stream": True, "reply": "x" * 400}, {"body": "not JSON at all"},
], ids=lambda v: repr(v)[:50])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_what_passes_is_tried_again(go, server, rule, api):
    run = go([{**rule, "times": 1}] + OK, api=api)
    assert (run.code, run.answer) == (0, "fine"), run.stderr
    assert server.stats()["requests"] == 2 == run.usage["calls"]
    assert run.stderr.count("trying again in") == 1
    assert len(run.nodes(type="llm_output")) == 1


@pytest.mark.parametrize("rule, word", [
    ({"cut_after": 5, "reply": "x" * 400}, "cut|ended|reset|closed"),
    ({"invalid_json_after": 2, "reply": "x" * 400}, "JSON"),
    ({"html": True}, "502"),
    ({"body": "hello"}, "JSON"),
    ({"error_after": 2, "reply": "x" * 400}, "error"),
], ids=lambda v: repr(v)[:30])
def test_what_does_not_pass_is_said(go, rule, word):
    run = go([rule])
    last = run.stderr.splitlines()[-1]
    assert run.code == 1 and last.startswith("rlmflow: no answer: failed: ")
    assert any(w in last for w in word.split("|")), last


def test_a_stalled_stream_ends_with_the_time_of_the_run(go, server):
    run = go(mind({"go": {"reply": "x" * 400, "stall_after": 3}}), "--max-time", "700ms")
    assert run.code == 1 and run.ends == {"root": "time"}
    assert server.wait_idle()["outcomes"] == {"stalled": 1}
    assert run.usage["calls"] == 1 and run.usage["input_tokens"] > 0  # what was sent may be billed


def test_a_spent_quota_is_not_asked_again(go, server):
    run = go([{"error": "quota"}])
    assert run.code == 1 and server.stats()["requests"] == 1 and "quota" in run.stderr


def test_a_failed_child_is_a_value(go):
    run = go(CHILD)
    assert run.code == 0 and run.answer.startswith("(True, 'failed', ") and "401" in run.answer
    assert run.ends == {"root": "answered", "root.child0": "failed"}


def test_a_failed_query_is_an_exception_or_a_value(go):
    code = ('try: await llm_query("a")\n'
            'except HostCallError as e: print(e.reason, "401" in str(e))\n'
            'x, y = await llm_query_batched(["a", "b"])\n'
            'done(repr((x, isinstance(x, Failure), y)))')

    def query(request):
        return {"status": 401} if request.user == "a" else {"reply": "said"}

    run = go(mind({"go": code}, query=query))
    assert run.code == 0 and run.answer.endswith("True, 'said')"), (run.answer, run.stderr)
    assert "failed True" in run.nodes()[-1]["output"]


def test_the_field_of_the_limit_is_found(go, server):
    for error in ("max_tokens_unsupported", "max_completion_tokens_unknown"):
        field = "max_tokens" if error == "max_tokens_unsupported" else "max_completion_tokens"
        server.reset()
        rules = [{"error": error, "match": {"field": field}}]
        run = go(rules + mind({"go": ["print(1)", "print(2)", "done('fine')"]}), "--max-budget", "100k")
        assert (run.code, run.answer) == (0, "fine"), run.stderr
        assert server.stats()["statuses"].get("400", 0) <= 1


# ---- back-off ----

def test_a_pause_is_shared_by_all_calls_to_a_model(go, server):
    """One 429 with a pause: of 16 calls none is made before it is over."""
    code = ('r = await llm_query_batched([f"q{i}" for i in range(16)])\n'
            'done(len([x for x in r if x == "said"]))')

    def query(request):
        return {"status": 429, "retry_after": 1} if request.n == 2 else "said"

    run = go(mind({"go": code}, query=query), "--workers", "1")
    assert (run.code, run.answer) == (0, "16")
    records = sorted(server.requests, key=lambda r: r.received_at)
    refused = records[1]
    assert refused.status == 429 and len(records) == 1 + 1 + 16
    assert records[2].received_at - refused.finished_at >= 0.95
    assert run.stderr.count("trying again in 1.0 s") == 1


def test_the_calls_under_way_at_a_429_are_not_made_again_before_its_pause(go, server):
    code = ('r = await llm_query_batched([f"q{i}" for i in range(16)])\n'
            'done(len([x for x in r if x == "said"]))')

    def query(request):
        if request.n <= 9:  # the first wave of 8: all are refused at once
            return {"status": 429, "retry_after": 1, "together": 8}
        return "said"

    run = go(mind({"go": code}, query=query), "--workers", "8")
    assert (run.code, run.answer) == (0, "16"), run.stderr
    records = sorted(server.requests, key=lambda r: r.received_at)
    refused = [r for r in records if r.status == 429]
    assert len(refused) == 8 and len(records) == 1 + 8 + 16
    last = max(r.finished_at for r in refused)
    assert min(r.received_at for r in records[9:]) - last >= 0.9


def test_the_stalls_of_one_call_are_not_what_another_waits_for(go, server):
    """Six pauses after stalls, in a row; then another call meets its first failure."""
    code = ("out = []\n"
            "for i in range(3): out += await launch_subagents([{'query': 'work'}])\n"
            "done(str(len(out)) + await llm_query('q'))")
    first = iter([{"status": 500}])
    run = go(mind({"go": code, "work": {"reply": "x" * 400, "stall_after": 3}},
                  query=lambda request: next(first, "said")),
             "--child-model", "other", "--idle-timeout", "100ms")
    assert (run.code, run.answer) == (0, "3said"), run.stderr
    waits = re.findall(r"^(.*); trying again in ([\d.]+) s", run.stderr, re.M)
    assert [("stalled" in why) for why, _ in waits] == [True] * 6 + [False], run.stderr
    assert float(waits[-1][1]) <= 0.5


def test_a_long_pause_can_be_interrupted_by_max_time(go, server):
    run = go([{"status": 429, "retry_after": 300}], "--max-time", "600ms")
    assert run.code == 1 and run.ends == {"root": "time"} and server.stats()["requests"] == 1
