"""Values of 100 MB where only smaller ones are taken: each is refused with a message that names the
maximum, and nothing else suffers. (Inputs have their limits in test_cli_bounds.py, prompts of
llm_query in test_run_data.py.)"""

import json

import pytest
from runs import command, go, look, mind  # noqa: F401

HUGE = 100_000_000


@pytest.mark.parametrize("how", ["file", "stdin"])
def test_a_query_is_refused(run_rlmflow, server, command, tmp_path, how):
    server.set_rules(mind({"": "done(1)"}))
    (tmp_path / "query").write_bytes(b"q" * HUGE)
    args, path = command(server, query=f"@{tmp_path / 'query'}" if how == "file" else "-")
    r = run_rlmflow(*args, input=b"q" * HUGE if how == "stdin" else None)
    last = r.stderr.splitlines()[-1]
    assert (r.code, r.stdout) == (2, "") and len(r.stderr) < 2000
    assert "64.0 MiB" in last and "input" in last and ("stdin" if how == "stdin" else "query") in last, last
    assert server.stats()["requests"] == 0 and not path.exists()


def test_an_answer_is_refused_in_the_code(go):
    run = go(mind({"go": [f"done('x' * {HUGE})", f"r, = await launch_subagents([{{'query': 'work'}}])\ndone(r)"],
                   "work": [f"try: done(b'x' * {HUGE})\nexcept Exception as e: print(type(e).__name__, e)",
                            f"try: done(['x' * {HUGE}])\nexcept Exception as e: print(type(e).__name__, e)",
                            "done('small')"]}))
    assert (run.code, run.answer) == (0, "small"), run.stderr
    shown = run.seen()[0]
    assert "done() did not accept the answer: more than 67108864 bytes" in shown, shown
    assert run.errors() == ["exec"] and "<cell 1>" in shown and len(shown) < 1000
    for shown in run.seen("root.child0"):
        assert "ValueError" in shown and "67108864" in shown, shown


LINE = json.dumps({"choices": [{"index": 0, "delta": {"content": "x" * HUGE}, "finish_reason": "stop"}]})
WHOLE = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "x" * HUGE},
                                 "finish_reason": "stop"}]})


@pytest.mark.parametrize("rule, word", [
    ({"body": WHOLE}, "more than 67108864 bytes"), ({"body": f"data: {LINE}\n\n", "content_type": "text/event-stream"},
     "longer than 33554432 bytes"),
    ({"body": "x" * HUGE}, "no JSON"),
], ids=["whole", "one line", "no JSON"])
def test_a_reply_is_refused(go, server, rule, word):
    run = go([{**rule, "status": 200}])
    last = run.stderr.splitlines()[-1]
    assert run.code == 1 and len(run.stderr) < 5000
    assert word in last, last
    assert run.usage["calls"] == server.stats()["requests"]
    assert sum(p.stat().st_size for p in run.path.rglob("*") if p.is_file()) < 1 << 20


def test_a_line_of_output_is_cut_where_it_is_shown_and_kept(go):
    run = go(mind({"go": [f"print('begin' + 'x' * {HUGE} + 'end')", f"raise ValueError('begin' + 'x' * {HUGE} + 'end')",
                          f"'begin' + 'x' * {HUGE} + 'end'", "done(1)"]}))
    assert run.answer == "1" and run.errors() == ["exec"]
    printed, raised, value = run.seen()
    for shown in (printed, raised, value):
        assert "begin" in shown and "end" in shown and len(shown) < 25_000
    assert sum(p.stat().st_size for p in run.path.rglob("*") if p.is_file()) < 8 << 20
