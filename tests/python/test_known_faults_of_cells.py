"""More faults that engines of this kind are known for, each shown to be gone: cells that end the program, caps
that are passed, text that arrives changed, code that is not found in a reply, secrets that agents can read."""
import os
import threading
import types

import pytest
import rlmflow
from test_flow import Replies, block
from test_known_faults import Minds, launch, run

# Cells.


def test_a_cell_without_an_end_is_ended_and_the_model_is_told(runtime):
    client = Replies(block("x = 1\nwhile True: pass"), block("done(x)"))
    assert run(client, runtime, exec_timeout=0.3)[1] == "1"
    assert "exec_timeout" in client.asked[1][-1]["content"]


@pytest.mark.parametrize("code, told", [("import sys\nsys.exit(3)", "SystemExit"), ("import os\nos._exit(7)", "7")])
def test_a_cell_that_exits_ends_itself_alone(code, told, runtime):
    client = Replies(block(code), block("done('still here')"))
    assert run(client, runtime)[1] == "still here"
    assert told in client.asked[1][-1]["content"]


def test_two_hundred_children_in_one_directory_all_answer(tmp_path):
    child = block("me = ENV['RLMFLOW_AGENT_ID']\nopen(me, 'w').write('c')\ndone(open(me).read())")
    client = Minds(child=[child], main=[launch(*["{'query': 'child'}"] * 200, then="done(str(r.count('c')))")])
    runtime = rlmflow.LocalRuntime(working_directory=tmp_path)
    assert run(client, runtime, workers=16)[1] == "200"
    assert len(os.listdir(tmp_path)) == 200


def test_children_that_print_at_once_print_to_themselves():
    printing = block("for i in range(5):\n    print(ENV['RLMFLOW_AGENT_ID'], i)\n    await llm_query('pause')")
    client = Minds(child=[printing, block("done('c')")], pause=["p"], main=[
        launch(*[{"query": "child"}] * 4, then="print('own', r)", more="print('before')\n"), block("done('x')")])
    graph, _ = run(client, rlmflow.LocalRuntime())
    for child in graph.children.values():
        assert child.nodes[3].output == "".join(f"{child.agent_id} {i}\n" for i in range(5))
    shown = client.asked[-1][-1]["content"]
    assert "before" in shown and "own ['c', 'c', 'c', 'c']" in shown


def test_an_error_is_shown_with_its_line_however_much_was_printed(runtime):
    code = "for i in range(9000):\n    print('line', i)\nraise LookupError('lost')"
    client = Replies(block(code), block("done(1)"))
    run(client, runtime)
    shown = client.asked[1][-1]["content"]
    assert "line 0\n" in shown and "line 8999" in shown and "line 3" in shown and "LookupError: lost" in shown
    assert len(shown) < 6000


# Caps.


class Spending:
    """Its replies are as long as they may be; the root launches eight children, which never answer."""

    def __init__(self, price=None):
        self.price, self.spent, self.lock = price, 0, threading.Lock()

    def chat(self, messages, max_tokens):
        given = sum(len(m["content"]) for m in messages)
        with self.lock:
            self.spent += given + max_tokens
        reply = block("print(1)") if "child" in messages[1]["content"] else launch(
            *["{'query': 'child'}"] * 8, then="print([x.reason for x in r])")
        return types.SimpleNamespace(text=reply + "x" * (max_tokens - len(reply)),
                                     usage={"input_tokens": given, "output_tokens": max_tokens})


def test_eight_children_at_once_never_pass_a_cap_on_tokens(runtime):
    client = Spending()
    with pytest.raises(rlmflow.RunEnded) as e:
        run(client, runtime, max_budget=60_000, max_output_tokens=1000, workers=8)
    assert e.value.reason == "budget"
    assert 50_000 < e.value.graph.total_tokens() == client.spent <= 60_000


def test_eight_children_at_once_never_pass_a_cap_on_money(runtime):
    client = Spending(price=(1, 1, 1, 1))
    with pytest.raises(rlmflow.RunEnded) as e:
        run(client, runtime, max_cost=0.06, max_output_tokens=1000, workers=8)
    assert e.value.reason == "cost"
    assert e.value.graph.usage().cost == pytest.approx(client.spent / 1e6) and 0.05 < client.spent / 1e6 <= 0.06


def test_a_cap_on_money_holds_where_the_provider_names_no_cost(runtime):
    class Named(Replies):
        model = "gpt-4o"  # which has a price in the built-in table
        last_usage = {"input_tokens": 1000, "output_tokens": 1000}

        def chat(self, messages, max_tokens):
            return super().chat(messages)

    with pytest.raises(rlmflow.RunEnded) as e:
        run(Named(*[block("print(1)")] * 99), runtime, max_cost=0.20, max_iters=99)
    assert e.value.reason == "cost" and 0.01 < e.value.graph.usage().cost <= 0.20
    unknown = Replies()
    with pytest.raises((ValueError, rlmflow.RunEnded), match="price"):
        run(unknown, runtime, max_cost=0.20)
    assert unknown.asked == []


# Text.


def test_ends_of_lines_are_as_they_were_given(runtime):
    text = "a\r\nb\rc\n\x00\x0b\u2028d" * 100
    code = block(f"done(str(INPUTS['text'] == {text!r}) + str(len(INPUTS['text'])))")
    assert run(Replies(code), runtime, inputs={"text": text})[1] == f"True{len(text)}"


def test_a_lone_surrogate_ends_no_run(runtime):
    graph, answer = run(Replies(block("print(INPUTS['t'])"), block("done(INPUTS['t'] + '\\udc00')")), runtime,
                        inputs={"t": "a\ud800b"}, query="main \ud801")
    assert answer == "a\ud800b\udc00" and graph.query == "main \ud801"


def test_a_big_input_is_shared_and_not_copied(runtime, tmp_path):
    size = 64 << 20
    with open(tmp_path / "big", "wb") as file:
        file.write(b"0123456789abcdef" * (size >> 4))
    private = ("private = sum(int(line.split()[1]) for line in open('/proc/self/smaps_rollup')"
               " if line.startswith('Private'))\n")
    child = block(private + "done(f'{INPUTS[\"big\"].count(\"f\")} {private < 40_000}')")
    client = Minds(child=[child], main=[
        launch(*["{'query': 'child', 'inputs': {'big': INPUTS['big']}}"] * 3, more=private,
               then="done(f'{set(r)} {len(INPUTS[\"big\"])} {private < 40_000}')")])
    assert run(client, runtime, inputs={"big": tmp_path / "big"})[1] == (
        f"{{'{size >> 4} True'}} {size} True")


# Replies.


def test_an_answer_may_hold_a_fence(runtime):
    code = 'done("""Use it so:\n```python\nprint(1)\n```\nThat is all.""")'
    assert run(Replies(block(code)), runtime)[1] == "Use it so:\n```python\nprint(1)\n```\nThat is all."


@pytest.mark.parametrize("reply", ["```python\ndone('ran')\n```", "```Python\ndone('ran')\n```",
                                   "```py\ndone('ran')\n```", "```repl\ndone('ran')", "1. So:\n   ```repl\n   done('ran')\n   ```",
                                   "~~~repl\ndone('ran')\n~~~", "```repl\r\ndone('ran')\r\n```\r\n",
                                   "```repl\ndone('ran')```", "```repl  \ndone('ran')\n```\ntrailing"])
def test_blocks_are_found_however_they_are_fenced(reply, runtime):
    graph, answer = run(Replies(reply), runtime)
    assert answer == "ran" and rlmflow.code_block(reply) == graph.nodes[1].code


def test_where_no_code_is_there_is_no_block():
    assert rlmflow.code_block("Nothing to run.") == rlmflow.code_block("") == ""
    assert rlmflow.code_block(block("x = '\ud800\0'")) == "x = '\ud800\0'"
    with pytest.raises(TypeError):
        rlmflow.code_block(None)


def test_reasoning_is_never_run(runtime):
    client = Replies("<think>\n" + block("done('thought')") + "\n</think>\n" + block("done('said')"))
    assert run(client, runtime)[1] == "said"
    client = Replies("<think>\n" + block("done('thought')") + "\n</think>\nNothing else.", block("done('said')"))
    assert run(client, runtime)[1] == "said"


# Secrets.


def test_no_key_of_the_hosts_is_in_a_session(runtime, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret too")
    code = block("import os\ndone(str(sorted(n for n in os.environ if not n.startswith('RLMFLOW_'))))")
    names = eval(run(Replies(code), runtime)[1])
    assert set(names) <= {"HOME", "LANG", "LC_CTYPE", "PATH", "PYTHONHASHSEED", "TZ"} and "PATH" in names
