"""The time limits of a model in whole runs: what they end, what they leave alone, and who hears of it.
(That each way of setting them is heard: test_cli_bounds.py.)"""

from runs import command, go, look, mind  # noqa: F401

SLOW = {"delay_ms": 100, "chunks": [8], "reply": "done('" + "x" * 200 + "')"}  # ~2.5 s in small steps


def test_a_reply_may_take_longer_than_any_limit_while_bytes_come(go, server):
    """Of the first byte's and the idle limit alike."""
    run = go(mind({"go": SLOW}), "--first-byte-timeout", "1500ms", "--idle-timeout", "1500ms")
    assert (run.code, run.answer) == (0, "x" * 200), run.stderr
    assert server.stats()["requests"] == 1 and "trying again" not in run.stderr
    record, = server.requests
    assert record.finished_at - record.received_at > 1.5


def test_a_model_that_begins_too_late_is_asked_again(go, server):
    late = {"reply": "x", "first_byte_delay_ms": 60_000, "times": 1}
    run = go([late, *mind({"go": "done('in time')"})], "--first-byte-timeout", "500ms", "--max-budget", "1M")
    assert (run.code, run.answer) == (0, "in time"), run.stderr
    assert "the first-byte timeout" in run.stderr and run.stderr.count("trying again") == 1
    assert server.wait_idle()["outcomes"] == {"answered": 1, "client_left": 1}
    assert run.usage["calls"] == 2  # what was sent may be billed
    assert run.usage["input_tokens"] > server.stats()["input_tokens"]


def test_a_query_that_stalls_is_asked_again(go, server):
    """The bytes that came are no answer."""
    def query(request):
        return {"reply": "said twice", "chunks": 1, **({"stall_after": 1} if request.n == 2 else {})}

    run = go(mind({"go": "done(await llm_query('q'))"}, query=query), "--idle-timeout", "500ms")
    assert (run.code, run.answer) == (0, "said twice"), run.stderr
    assert run.stderr.count("the idle timeout") == 1 and server.stats()["requests"] == 3
    assert server.wait_idle()["outcomes"] == {"answered": 2, "stalled": 1}


def test_a_model_that_stalls_again_and_again_fails_the_run(go, server):
    run = go(mind({"go": {"reply": "x" * 400, "stall_after": 2}}), "--idle-timeout", "300ms")
    assert run.code == 1 and run.ends == {"root": "failed"}
    assert "the idle timeout" in run.stderr.splitlines()[-1] and server.stats()["requests"] == 3
    assert run.nodes(type="llm_output") == [] and run.usage["calls"] == 3


def test_zero_is_no_limit(go):
    run = go(mind({"go": {"reply": "done('late')", "first_byte_delay_ms": 300}}),
             "--first-byte-timeout", "0", "--idle-timeout", "0", "--connect-timeout", "0")
    assert (run.code, run.answer) == (0, "late"), run.stderr
