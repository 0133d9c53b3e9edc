"""A whole recursive run over HTTP, with both APIs, streamed and not."""

import json

import pytest
from runs import command, go, look, mind  # noqa: F401

PLAN = """
halves = await launch_subagents([
    {"query": "count words", "name": "left", "inputs": {"text": INPUTS["book"][:len(book) // 2]}},
    {"query": "count words", "name": "right", "inputs": {"text": INPUTS["book"][len(book) // 2:]},
     "output_schema": {"type": "integer"}},
])
print(halves)
"""
CLOSE = """
one = await llm_query("first line: " + book[:9])
many = await llm_query_batched([f"number {i}" for i in range(5)])
done({"words": sum(int(h) for h in halves), "one": one, "many": many})
"""
SCHEMA = {"type": "object", "required": ["words", "one", "many"], "additionalProperties": False,
          "properties": {"words": {"type": "integer"}, "one": {"type": "string"},
                         "many": {"type": "array", "items": {"type": "string"}}}}
BOOK = "some words stand here\n" * 1000

WAYS = {
    "openai-stream": ("openai", {}),
    "openai-whole": ("openai", {"ignore_stream": True}),
    "anthropic-stream": ("anthropic", {}),
    "anthropic-whole": ("anthropic", {"ignore_stream": True}),
}


def echo(request):
    return "re: " + request.user


@pytest.mark.parametrize("way", WAYS)
def test_a_recursive_run_with_everything(go, server, tmp_path, way):
    api, fields = WAYS[way]
    schema, book = tmp_path / "schema.json", tmp_path / "book.txt"
    schema.write_text(json.dumps(SCHEMA))
    book.write_text(BOOK)
    run = go(mind({"tell": [PLAN, CLOSE],
                   "count": ["n = len(text.split()); print(n)", "done(n)"]}, query=echo, **fields),
             "--input", f"book=@{book}", "--schema", schema, "--max-budget", "1M",
             api=api, query="tell")
    assert run.code == 0, run.stderr
    assert json.loads(run.answer) == {"words": 4000, "one": "re: first line: some word",
                                      "many": [f"re: number {i}" for i in range(5)]}
    assert run.ends == {"root": "answered", "root.left": "answered", "root.right": "answered"}
    stats = server.stats()
    assert stats["statuses"] == {"200": stats["requests"]} and stats["requests"] == 12
    assert {r.api for r in server.requests} == {api}
    assert run.usage["calls"] == 12
    assert run.usage["input_tokens"] == stats["input_tokens"]
    assert run.usage["output_tokens"] == stats["output_tokens"]
    kinds = [n["type"] for n in run.nodes()]
    assert kinds == ["user_query", "llm_output", "exec_action", "supervising_output", "resume_action",
                     "exec_output", "llm_output", "exec_action", "done_output"]


def test_the_answer_of_a_child_with_a_schema_is_a_value(go):
    run = go(mind({"go": 'r, = await launch_subagents([{"query": "count", "output_schema":'
                         ' {"type": "array", "items": {"type": "integer"}}}])\n'
                         'done(repr((type(r).__name__, r)))', "count": "done([1, 2, 3])"}))
    assert run.answer == "('list', [1, 2, 3])"


def test_an_answer_that_fails_its_schema_is_an_error_in_the_code(go, server, tmp_path):
    """With the place as a JSON Pointer and what was expected there, in the code and to the model."""
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({
        "type": "object", "required": ["a"],
        "properties": {"a": {"type": "array", "items": {"type": "integer", "minimum": 3}},
                       "b/c": {"type": "string"}}}))
    run = go(mind({"go": ['done({"a": [3, 2]})',
                          'try: done({"a": 1})\nexcept Exception as e: print(type(e).__name__ + ":", e)',
                          'done({"a": [3], "b/c": None})', "done({})", 'done({"a": [3]})']}), "--schema", schema)
    assert (run.code, run.answer) == (0, '{"a":[3]}'), run.stderr
    raised, caught, escaped, missing = run.seen()
    refused = "ValueError: done() did not accept the answer: "
    assert refused + "at /a/1: expected at least 3, found 2" in raised, raised
    assert 'File "<cell 1>", line 1' in raised
    assert caught == refused + "at /a: expected an array, found 1"
    assert refused + "at /b~1c: expected a string, found null" in escaped, escaped
    assert refused in missing and '"a"' in missing, missing
    assert run.errors() == ["exec"] * 3
    for request, shown in zip(server.requests[1:], run.seen()):
        assert shown.splitlines()[-1] in request.body["messages"][-1]["content"]
    root, = run.nodes(type="done_output")
    assert root["result"] == '{"a":[3]}'


def test_a_query_with_a_schema_gives_a_value_or_says_why_not(go):
    code = ('S = {"type": "object", "required": ["n"]}\n'
            'good = await llm_query("good", output_schema=S)\n'
            'try: await llm_query("bad", output_schema=S)\n'
            'except HostCallError as e: bad = e.reason\n'
            'many = await llm_query_batched(["good", "bad", "prose"], output_schema=S)\n'
            'done(repr((good, bad, many[0], isinstance(many[1], Failure), many[1].reason, many[2])))')

    def query(request):
        if request.user.startswith("good"):
            return '```json\n{"n": 1}\n```'
        return '{"m": 1}' if request.user.startswith("bad") else 'Here you are: {"n": [2]}. Good luck!'

    run = go(mind({"go": code}, query=query))
    assert run.answer == repr(({"n": 1}, "schema", {"n": 1}, True, "schema", {"n": [2]})), run.stderr


def test_models_by_name(go, server):
    code = ('r = await launch_subagents([{"query": "who", "name": "a"},'
            ' {"query": "who", "name": "b", "model": "default"},'
            ' {"query": "who", "name": "c", "model": "small"},'
            ' {"query": "who", "name": "d", "model": "none such"}])\n'
            'q = [await llm_query("who", model=m) for m in ("default", "small", None)]\n'
            'try: await llm_query("who", model="none such")\n'
            'except Exception as e: print(e)\n'
            'print(r[3].reason, r[3].message)\n'
            'print(r[:3], q)')

    def child(request):
        return f"done({request.model!r})"

    run = go(mind({"go": [code, "done(1)"], "who": child}, query=lambda r: r.model),
             "--child-model", "small")
    shown = run.seen()[0]
    assert "['small', 'm', 'small'] ['m', 'small', 'm']" in shown, shown
    assert 'refused no model is named "none such"; the models are default, small' in shown
    assert shown.count('no model is named "none such"') == 2
    assert set(run.ends) == {"root", "root.a", "root.b", "root.c"}


def test_a_key_is_sent_and_the_server_checks_it(make_server, run_rlmflow, command):
    server = make_server(mind({"go": "done(1)"}), keys=["right"])
    for api, name in (("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")):
        args, _ = command(server, api=api)
        assert run_rlmflow(*args, env={name: "right"}).code == 0
        args, _ = command(server, api=api)
        r = run_rlmflow(*args, env={name: "wrong-key-1234"})
        assert r.code == 1 and "401" in r.stderr and "wrong-key-1234" not in r.stderr
    assert server.stats()["statuses"] == {"200": 2, "401": 2}


def test_code_in_a_native_tool_call_runs(go):
    call = {"name": "repl", "arguments": {"code": "done(6 * 7)"}}
    for api in ("openai", "anthropic"):
        run = go([{"reply": "", "tool_calls": [call]}], api=api)
        assert (run.code, run.answer) == (0, "42"), run.stderr


def test_code_of_a_native_tool_call_runs_and_not_a_block_beside_it(go):
    """Nor one inside it; and no word of blocks that did not run."""
    def plan(request):
        turn = sum(role == "assistant" for role, _ in request.messages)
        code = ['print("""\n```repl\nprint(1)\n```\n""")', "done('called')"][turn]
        return {"reply": "Such as:\n```repl\ndone('shown')\n```",
                "tool_calls": [{"name": "repl", "arguments": {"code": code}}]}

    for api in ("openai", "anthropic"):
        run = go([{"reply": plan}], api=api)
        assert (run.code, run.answer) == (0, "called"), run.stderr
        assert run.seen() == ["\n```repl\nprint(1)\n```"]


def test_reasoning_comes_beside_the_reply_and_is_not_run(go):
    for api in ("openai", "anthropic"):
        run = go(mind({"go": {"reply": "done('said')", "reasoning": "```repl\ndone('thought')\n```"}}),
                 api=api)
        assert run.answer == "said"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
def test_a_call_that_never_left_costs_nothing(run_rlmflow, look, tmp_path, url):
    path = tmp_path / "run.rlm"
    run = look(run_rlmflow("run", "go", "--model", "m", "--base-url", url, "-o", path), path)
    assert run.code == 1 and run.usage["calls"] >= 1
    assert run.usage["input_tokens"] == run.usage["output_tokens"] == 0
