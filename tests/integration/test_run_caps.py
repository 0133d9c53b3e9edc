"""Caps hold at any width: the server counts for itself, and its count never passes a cap."""

import json

import pytest
from runs import Text, command, go, look, mind  # noqa: F401

FLOOD = """
specs = [{"query": "work", "name": f"n{i}"} for i in range(64)]
results = await launch_subagents(specs)
failed = [r for r in results if isinstance(r, Failure)]
print(len(results), len(failed), sorted({f.reason for f in failed}))
done(len(failed))
"""
# A reply without code: the next turn follows without a session, so that thousands of calls are quick.
WORK = Text("I am thinking about it, and then some more, before I write any code. " * 3)
PRICE = {"m": {"input": 2.0, "output": 10.0}}


def worker(together=1, **fields):
    """The first `together` calls of children are answered once all of them are open."""
    def reply(request):
        first = 1 < request.n <= 1 + together
        return {"reply": WORK, "together": together if first else 0, **fields}

    return mind({"go": FLOOD, "work": reply})


@pytest.mark.parametrize("workers", [1, 8, 64])
@pytest.mark.parametrize("cap", ["budget", "cost"])
def test_64_children_never_pass_a_cap(make_server, run_rlmflow, command, look, workers, cap):
    server = make_server(worker(workers), prices=PRICE)
    flags = {"budget": ["--max-budget", "400k"], "cost": ["--max-cost", "1.50", "--price", "2/10"]}
    args, path = command(server, *flags[cap], "--workers", workers, "--max-output-tokens", "1000")
    run = look(run_rlmflow(*args), path)
    stats = server.stats()
    tokens = run.usage["input_tokens"] + run.usage["output_tokens"]
    if cap == "budget":
        assert tokens == stats["billed_tokens"] <= 400_000
        assert tokens > 0.95 * 400_000  # what is left over is less than one more call
    else:
        assert 0.95 * 1.50 < stats["cost_usd"] <= 1.50
        assert run.usage["cost"] == pytest.approx(stats["cost_usd"], rel=1e-6)
    assert stats["requests"] > 200 and set(stats["statuses"]) == {"200"}
    assert stats["max_concurrent"] == workers
    assert stats["over_max_tokens"] == 0
    ends = {agent: reason for agent, reason in run.ends.items() if agent != "root"}
    assert len(ends) == 64 and set(ends.values()) == {cap}
    # The root cannot ask again, but its first reply is paid for, so the code goes on to its end.
    assert run.answer == "64", run.stderr


@pytest.mark.parametrize("fields", [
    {"usage": "missing"}, {"usage": "negative"}, {"usage": "absurd"}, {"ignore_stream": True},
    {"usage": "missing", "ignore_stream": True}, {"usage_place": "every"}, {"chunks": 50},
], ids=lambda f: "-".join(f"{k}-{v}" for k, v in f.items()))
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_cap_holds_whatever_usage_is_reported(go, server, fields, api):
    if api == "anthropic" and "usage_place" in fields:
        fields = {"split": 7}
    run = go(worker(**fields), "--max-budget", "150k", "--workers", "16", api=api)
    stats = server.stats()
    assert stats["billed_tokens"] <= 150_000 and stats["requests"] > 10
    assert run.usage["input_tokens"] + run.usage["output_tokens"] <= 150_000
    assert "budget" in run.ends.values()


def test_a_server_that_ignores_max_tokens_is_cut(go, server):
    # Each reply would be 50,000 tokens; what passes the limit of a call is what was under way.
    run = go(mind({"go": {"reply": Text("word" * 50_000), "ignore_max_tokens": True, "delay_ms": 0.2}}),
             "--max-budget", "20k", "--max-output-tokens", "1000", "--max-iters", "4")
    stats = server.stats()
    assert run.code == 1
    assert stats["requests"] >= 1 and stats["outcomes"] == {"client_left": stats["requests"]}
    assert stats["over_max_tokens"] <= 3000 * stats["requests"]  # of 49,000 each
    assert stats["billed_tokens"] <= 20_000 + 3000 * stats["requests"]


@pytest.mark.parametrize("usage", [None, "missing"])
def test_a_server_that_ignores_max_tokens_and_sends_many_tokens_at_a_time_is_cut(go, server, usage):
    run = go(mind({"go": {"reply": Text("word" * 50_000), "ignore_max_tokens": True, "delay_ms": 1,
                          "chunks": 50, "usage": usage}}),
             "--max-budget", "30k", "--max-output-tokens", "500", "--max-iters", "9")
    stats = server.stats()
    assert run.code == 1 and run.ends == {"root": "budget"}
    assert stats["outcomes"] == {"client_left": stats["requests"]}
    assert stats["over_max_tokens"] <= 6000 * stats["requests"]  # of 49,500 each
    assert stats["billed_tokens"] <= 30_000 + 6000


def test_a_server_that_bills_more_input_than_expected_is_noticed_once(go, server):
    run = go(mind({"go": ["print(1)"] * 6 + ["done(1)"]}, usage={"prompt_tokens": 9000}),
             "--max-budget", "60k")
    assert run.stderr.count("billed 9000 input tokens") == 1
    # The second call is expected to cost as much, so a cap that would be passed refuses it.
    assert run.usage["input_tokens"] <= 60_000
    server.reset()
    run = go(mind({"go": ["print(1)"] * 6 + ["done(1)"]}, usage={"prompt_tokens": 9000}),
             "--max-budget", "20k")
    assert run.code == 1 and server.stats()["requests"] == 1


def test_the_last_turn_is_offered_when_the_budget_runs_low(go, server):
    def reply(request):
        if "This is your last turn" in request.user:
            return "done('the best I have')"
        return WORK

    run = go(mind({"go": reply}), "--max-budget", "20k", "--max-iters", "100")
    assert (run.code, run.answer) == (0, "the best I have"), run.stderr
    assert server.stats()["billed_tokens"] <= 20_000
    limits = [r.max_tokens for r in server.requests]
    assert set(limits[:-1]) == {8192} and 256 <= limits[-1] < 8192 and len(limits) > 2


def test_the_last_turn_is_offered_before_max_iters(go):
    def reply(request):
        return "done('last')" if "This is your last turn" in request.user else "print(1)"

    run = go(mind({"go": reply}), "--max-iters", "3")
    assert run.answer == "last" and len(run.nodes(type="llm_output")) == 3


def test_a_reply_that_is_paid_for_runs(go, server):
    # After the first turn nothing is left for another, but the reply of the first runs.
    run = go(mind({"go": "open('ran', 'w').close(); print('x')"}, usage={"prompt_tokens": 9000}),
             "--max-budget", "9500", "--max-output-tokens", "300")
    assert run.code == 1 and "budget" in run.stderr
    assert [n["type"] for n in run.nodes()][-2:] == ["exec_output", "done_output"]
    assert server.stats()["requests"] == 1


def test_a_call_that_can_never_fit_is_refused_before_it_is_sent(go, server):
    run = go(mind({"go": "done(1)"}), "--max-budget", "300")
    assert run.code == 1 and server.stats()["requests"] == 0
    assert "max_budget" in run.stderr and run.ends == {"root": "budget"}


def test_code_sees_what_is_left(go):
    code = "import json; b = budget(); print(json.dumps(b))"
    run = go(mind({"go": [code, code, "done(1)"]}), "--max-budget", "50k", "--max-iters", "9",
             "--max-time", "100s", "--max-cost", "1", "--price", "2/10")
    first, second = (json.loads(text) for text in run.seen())
    one, two = (n["usage"] for n in run.nodes(type="llm_output")[:2])
    assert first["tokens_used"] == one["input_tokens"] + one["output_tokens"]
    assert first["tokens_left"] == 50_000 - first["tokens_used"]
    assert second["tokens_used"] == first["tokens_used"] + two["input_tokens"] + two["output_tokens"]
    assert first["cost_used"] == pytest.approx(one["cost"])
    assert second["cost_left"] == pytest.approx(1 - one["cost"] - two["cost"])
    assert 0 < second["seconds_left"] <= first["seconds_left"] <= 100
    assert (first["turns_left"], second["turns_left"]) == (8, 7)
    assert (first["model_calls"], second["model_calls"]) == (1, 2)
    assert first["depth_left"] == 2 and first["agents_left"] == 999


def test_without_caps_nothing_is_left_to_say(go):
    run = go(mind({"go": "b = budget(); done(repr([b['tokens_left'], b['cost_left'], b['seconds_left']]))"}))
    assert run.answer == "[None, None, None]"


def test_failed_attempts_are_counted(go, server):
    rules = [{"status": 500, "times": 1, "match": {"user": "."}},
             {"cut_after": 20, "times": 1, "reply": "x" * 4000}]
    run = go(rules + mind({"go": "done(1)"}), "--max-budget", "50k")
    assert run.code == 0
    stats = server.stats()
    assert stats["requests"] == 3 and run.usage["calls"] == 3
    # The refused one costs nothing; the cut one is charged at its worst case.
    assert run.usage["input_tokens"] + run.usage["output_tokens"] >= stats["billed_tokens"]
    good = run.nodes(type="llm_output")[0]["usage"]
    assert run.usage["input_tokens"] > 2 * good["input_tokens"]
    assert "trying again" in run.stderr


def test_repeated_attempts_cannot_pass_a_cap(go, server):
    run = go([{"cut_after": 100, "reply": "x" * 4000}], "--max-budget", "4500",
             "--max-output-tokens", "500")
    assert run.code == 1 and server.stats()["requests"] == 1 and run.ends == {"root": "budget"}
    assert server.stats()["billed_tokens"] <= run.usage["input_tokens"] + run.usage["output_tokens"] <= 4500


def test_queries_count_and_fail_as_values(go, server):
    code = ('r = await llm_query_batched(["p" * 4000] * 40)\n'
            'bad = [x for x in r if isinstance(x, Failure)]\n'
            'print(len(r), len(bad) > 0, len(bad) < 40, {x.reason for x in bad})\n'
            'try: await llm_query("p" * 40000)\n'
            'except HostCallError as e: print(e.reason)\n'
            'done("ok")')
    run = go(mind({"go": code}, query="q" * 400), "--max-budget", "40k", "--workers", "64")
    assert (run.code, run.answer) == (0, "ok"), run.stderr
    assert server.stats()["billed_tokens"] <= 40_000
    done = run.nodes(type="done_output")[0]
    assert "40 True True {'budget'}" in done["output"] and done["output"].count("budget") == 2
    assert run.usage["calls"] == server.stats()["requests"]


def test_max_time_ends_a_run_in_all_its_agents(go, server):
    server_rules = mind({"go": FLOOD, "work": {"reply": "done(1)", "first_byte_delay_ms": 60_000}})
    run = go(server_rules, "--max-time", "1500ms", "--workers", "64")
    assert run.code == 1 and set(run.ends.values()) == {"time"} and len(run.ends) == 65
    assert "no answer: time" in run.stderr
    server.wait_idle()


def test_a_query_that_the_budget_cut_short_says_so(go):
    code = ('r = await llm_query("p" * 4000)\n'
            's = r if isinstance(r, str) else ""\n'
            'done(s[-60:])')
    run = go(mind({"go": code}, query="long " * 10000), "--max-budget", "12k")
    assert run.answer.endswith("[cut off here: the budget of the run allowed no more]")
