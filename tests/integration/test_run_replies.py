"""Replies as models write them: what runs, what is said of it, and what a reply costs."""

import pytest
from runs import Text, command, go, look, mind  # noqa: F401


@pytest.mark.parametrize("reply, answer", [
    ("```repl\ndone('plain')\n```", "plain"),
    ("I will answer now.\n\n```repl\ndone('prose')\n```\nThat is all.", "prose"),
    ("```python\ndone('python')\n```", "python"),
    ("```py\ndone('py')\n```", "py"),
    ("  ```repl\n  done('indented')\n  ```", "indented"),
    ("```repl\ndone('unclosed')", "unclosed"),
    ("~~~repl\ndone('tildes')\n~~~", "tildes"),
    ("````repl\ndone('four')\n````", "four"),
    ("```repl\r\ndone('crlf')\r\n```\r\n", "crlf"),
    ("<think>\n```repl\ndone('thought')\n```\n</think>\n```repl\ndone('said')\n```", "said"),
    ("```repl\nx = '''\n```sh\nls\n```\n'''\ndone(x.strip())\n```", "```sh\nls\n```"),
    ("```repl\ndone('a ```fence``` inside')\n```", "a ```fence``` inside"),
], ids=lambda v: repr(v)[:40])
def test_code_is_found(go, reply, answer):
    run = go(mind({"go": Text(reply)}), "--max-iters", "2")
    assert (run.code, run.answer) == (0, answer), run.stderr
    assert len(run.nodes(type="llm_output")) == 1
    assert run.nodes(type="llm_output")[0]["content"] == reply


def test_of_two_blocks_the_first_runs_and_the_model_is_told(go):
    run = go(mind({"go": [Text("```repl\nprint('first')\n```\nand\n```repl\nprint('second')\n```"),
                          "done(1)"]}))
    shown, = run.seen()
    assert "first" in shown and "second" not in shown.split("[")[0] and "[" in shown, shown


def test_reasoning_alone_is_no_code_and_never_run(go, workspace):
    run = go(mind({"go": [Text("<think>\n```repl\nopen('ran', 'w')\n```\n</think>"), "done(1)"]}))
    assert run.answer == "1" and not (workspace.cwd / "ran").exists()
    assert run.errors() == ["no_code"]


@pytest.mark.parametrize("reply", ["", "   \n", "I cannot do that."], ids=repr)
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_reply_without_code_is_answered_with_what_to_write(go, reply, api, server):
    run = go(mind({"go": [Text(reply), "done('then')"]}), api=api)
    assert (run.code, run.answer) == (0, "then"), run.stderr
    assert run.errors() == ["no_code"] and "```repl" in run.seen()[0]
    # What was sent after it is what a strict server takes: no message is empty.
    assert server.stats()["statuses"] == {"200": 2}


def test_output_of_blanks_alone_does_not_end_the_run(go, server):
    run = go(mind({"go": ["print(' \\t ')", "done('then')"]}), api="anthropic")
    assert (run.code, run.answer) == (0, "then"), run.stderr


def test_only_prose_ends_at_max_iters(go):
    run = go(mind({"go": Text("Let me think.")}), "--max-iters", "3")
    assert run.code == 1 and run.ends == {"root": "max_iters"} and run.errors() == ["no_code"] * 3
    assert "\nrlmflow: no answer after 3 turns (max_iters)\n" in run.stderr


@pytest.mark.parametrize("api, reason", [("openai", "length"), ("anthropic", "max_tokens")])
def test_a_reply_cut_by_its_length_is_said(go, api, reason):
    run = go(mind({"go": ["# " + "long " * 4000, "done('then')"]}), "--max-output-tokens", "300", api=api)
    assert run.answer == "then"
    assert run.nodes(type="llm_output")[0]["metadata"]["finish_reason"] == reason
    assert "cut off at its length limit" in run.seen()[0]


def test_code_with_a_syntax_error_is_an_error_with_its_line(go):
    run = go(mind({"go": ["x = 1\nif True print(1)", "done('then')"]}))
    assert run.answer == "then" and run.errors() == ["exec"]
    assert "SyntaxError" in run.seen()[0] and "line 2" in run.seen()[0]


def test_a_traceback_names_the_cell_and_the_line(go):
    run = go(mind({"go": ["def f():\n    return 1 / 0", "f()", "done('then')"]}))
    assert run.answer == "then"
    shown = run.seen()[1]
    assert "<cell 1>" in shown and "line 2" in shown and "<cell 2>" in shown and "ZeroDivisionError" in shown


def test_an_error_behind_much_output_is_seen(go):
    run = go(mind({"go": ["for i in range(9000): print('line', i)\nraise ValueError('at the end')",
                          "done('then')"]}))
    shown, = run.seen()
    assert shown.startswith("line 0\n") and "line 8999" in shown and "ValueError: at the end" in shown
    assert len(shown) < 6000 and "left out" in shown
