"""The model server against the official clients: whatever it says, they must understand."""

import json

import anthropic
import openai
import pytest

from clients import HI, ask, ask_claude, claude, open_ai, stream_claude, stream_text, text_of

__all__ = ["claude", "open_ai"]  # fixtures

TOOLS = [{"type": "function", "function": {
    "name": "python", "description": "Runs code.",
    "parameters": {"type": "object", "properties": {"code": {"type": "string"}}}}}]
ANTHROPIC_TOOLS = [{"name": "python", "description": "Runs code.", "input_schema": {
    "type": "object", "properties": {"code": {"type": "string"}}}}]
MIXED = "Größe: 漢字 🙂 = ½\n" * 3


# ---- replies ---------------------------------------------------------------------------------


def test_openai_whole_reply_and_usage(server, open_ai):
    server.set_rules([{"reply": MIXED}])
    reply = ask(open_ai)
    assert reply.choices[0].message.content == MIXED
    assert reply.choices[0].finish_reason == "stop"
    tokens = -(-len(MIXED.encode()) // 4)
    # "hi" is one token, a message 4, a request 3.
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (8, tokens)
    assert reply.usage.total_tokens == 8 + tokens
    [record] = server.requests
    assert (record.api, record.model, record.stream, record.status) == ("openai", "m", False, 200)
    assert (record.input_tokens, record.output_tokens) == (8, tokens)
    assert record.body["messages"] == HI
    assert record.headers["authorization"] == "Bearer test-key"


def test_openai_stream_has_usage_only_when_asked(server, open_ai):
    server.set_rules([{"reply": MIXED}])
    chunks = list(ask(open_ai, stream=True, stream_options={"include_usage": True}))
    assert stream_text(chunks) == MIXED
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 20
    assert all(c.usage is None for c in chunks[:-1])
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert all("usage" in c.model_fields_set for c in chunks), "null is said, not left out"
    chunks = list(ask(open_ai, stream=True))
    assert stream_text(chunks) == MIXED
    assert not any("usage" in c.model_fields_set for c in chunks)


def test_anthropic_whole_reply_and_usage(server, claude):
    server.set_rules([{"reply": MIXED}])
    reply = ask_claude(claude, system="Be brief.")
    assert text_of(reply) == MIXED
    assert (reply.stop_reason, reply.stop_sequence) == ("end_turn", None)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (8 + 4 + 3, 20)
    assert server.stats()["billed_tokens"] == 35


def test_anthropic_stream(server, claude):
    server.set_rules([{"reply": MIXED}])
    seen = [event.type for event in ask_claude(claude, stream=True)]
    assert seen[:2] == ["message_start", "content_block_start"]
    assert seen[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    reply = stream_claude(claude)
    assert text_of(reply) == MIXED and reply.stop_reason == "end_turn"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (8, 20)


def test_models_lists(make_server):
    server = make_server(models=["alpha", "beta"])
    client = openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0)
    assert [m.id for m in client.models.list()] == ["alpha", "beta"]
    assert client.models.retrieve("alpha").id == "alpha"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gamma")
    other = anthropic.Anthropic(base_url=server.anthropic_url, api_key="k", max_retries=0)
    assert [m.id for m in other.models.list()] == ["alpha", "beta"]
    assert other.models.retrieve("beta").display_name == "beta"
    with pytest.raises(anthropic.NotFoundError):
        other.models.retrieve("gamma")


@pytest.mark.parametrize("chunks", [1, 3, 1000, [1], [0, 5, 2]])
def test_chunk_sizes(server, open_ai, claude, chunks):
    server.set_rules([{"reply": MIXED, "chunks": chunks}])
    pieces = [c.choices[0].delta.content for c in ask(open_ai, stream=True)][1:-1]
    assert "".join(pieces) == MIXED
    if chunks == 1000:
        assert len(pieces) == 1
    elif chunks == [1]:
        assert len(pieces) == len(MIXED)
    elif chunks == [0, 5, 2]:
        assert [len(p) for p in pieces[:6]] == [0, 5, 2, 0, 5, 2]
    else:
        assert len(pieces) == -(-20 // chunks)
    assert text_of(stream_claude(claude)) == MIXED


@pytest.mark.parametrize("split", [1, 2, 7, "characters"])
@pytest.mark.parametrize("more", [{}, {"escape": True}, {"sse": ["crlf", "comments", "nospace"]},
                                  {"framing": "close"}])
def test_split_writes_and_styles(server, open_ai, claude, split, more):
    server.set_rules([{"reply": MIXED, "split": split, **more}])
    assert ask(open_ai).choices[0].message.content == MIXED
    assert stream_text(ask(open_ai, stream=True)) == MIXED
    assert text_of(ask_claude(claude)) == MIXED
    assert text_of(stream_claude(claude)) == MIXED


def test_delays_only_delay(server, open_ai, claude):
    server.set_rules([{"reply": "one two", "delay_ms": 2, "first_byte_delay_ms": 5}])
    assert stream_text(ask(open_ai, stream=True)) == "one two"
    assert ask(open_ai).choices[0].message.content == "one two"
    assert text_of(stream_claude(claude)) == "one two"
    for record in server.requests:
        assert record.finished_at - record.received_at >= 0.007


def test_empty_reply_and_null_content(server, open_ai, claude):
    server.set_rules([{"reply": "", "null_first": True}])
    chunks = list(ask(open_ai, stream=True))
    assert chunks[0].choices[0].delta.content is None and stream_text(chunks) == ""
    assert ask(open_ai).choices[0].message.content == ""
    assert ask_claude(claude).content == [] and stream_claude(claude).content == []


def test_ignored_stream(server, open_ai):
    server.set_rules([{"reply": "whole", "ignore_stream": True}])
    raw = open_ai.chat.completions.with_raw_response.create(model="m", messages=HI, stream=True)
    assert raw.headers["content-type"] == "application/json"
    assert json.loads(raw.http_response.read())["choices"][0]["message"]["content"] == "whole"


def test_reasoning(server, open_ai, claude):
    server.set_rules([{"reply": "answer", "reasoning": "thought about it"}])
    reply = ask(open_ai)
    assert reply.choices[0].message.reasoning_content == "thought about it"
    assert reply.usage.completion_tokens_details.reasoning_tokens == 4
    deltas = [c.choices[0].delta for c in ask(open_ai, stream=True)]
    assert "".join(getattr(d, "reasoning_content", "") for d in deltas) == "thought about it"
    assert "".join(d.content or "" for d in deltas) == "answer"
    for message in (ask_claude(claude), stream_claude(claude)):
        assert [b.type for b in message.content] == ["thinking", "text"]
        assert message.content[0].thinking == "thought about it" and message.content[0].signature


@pytest.mark.parametrize("whole", [False, True])
def test_tool_calls(server, open_ai, claude, whole):
    code = 'print("é🙂")\ndone(1)'
    server.set_rules([{"reply": "Let me run it.", "tool_calls_whole": whole,
                       "tool_calls": [{"name": "python", "arguments": {"code": code}},
                                      {"name": "python", "arguments": {"code": "2"}}]}])
    choice = ask(open_ai, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "Let me run it."
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"code": code}
    found = {}
    for chunk in ask(open_ai, tools=TOOLS, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            entry = found.setdefault(call.index, ["", 0, 0])
            entry[0] += call.function.arguments
            entry[1] += call.function.name == "python"
            entry[2] += 1
    assert [json.loads(entry[0]) for entry in found.values()] == [{"code": code}, {"code": "2"}]
    assert [entry[1] for entry in found.values()] == [1, 1]
    assert all(entry[2] == 1 if whole else entry[2] > 2 for entry in found.values())
    for message in (ask_claude(claude, tools=ANTHROPIC_TOOLS),
                    stream_claude(claude, tools=ANTHROPIC_TOOLS)):
        assert message.stop_reason == "tool_use"
        assert [b.input for b in message.content if b.type == "tool_use"] == [
            {"code": code}, {"code": "2"}]


def test_tool_results_are_accepted(server, open_ai, claude):
    server.set_rules([{"tool_calls": [{"name": "python", "arguments": {"code": "1"}}]}])
    message = ask(open_ai, tools=TOOLS).choices[0].message
    answered = HI + [message.to_dict(), {"role": "tool", "content": "1",
                                         "tool_call_id": message.tool_calls[0].id}]
    ask(open_ai, answered, tools=TOOLS)
    for wrong in (answered[:2], answered[:2] + HI, answered[:2] + HI + answered[2:]):
        with pytest.raises(openai.BadRequestError, match="must be followed by tool messages"):
            ask(open_ai, wrong, tools=TOOLS)
    reply = ask_claude(claude, tools=ANTHROPIC_TOOLS)
    answered = HI + [{"role": "assistant", "content": reply.content},
                     {"role": "user", "content": [
                         {"type": "tool_result", "tool_use_id": reply.content[-1].id,
                          "content": "1"}]}]
    ask_claude(claude, answered, tools=ANTHROPIC_TOOLS)
    with pytest.raises(anthropic.BadRequestError, match="without `tool_result` blocks"):
        ask_claude(claude, answered[:2] + HI, tools=ANTHROPIC_TOOLS)


# ---- max_tokens, stop, usage, cache ----------------------------------------------------------


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_max_tokens_cuts(server, open_ai, field):
    server.set_rules([{"reply": "é" * 100, "reasoning": "abcd"}])
    choice = ask(open_ai, **{field: 5}).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("é" * 8, "length")
    chunks = list(ask(open_ai, stream=True, **{field: 1}))
    assert stream_text(chunks) == "" and chunks[-1].choices[0].finish_reason == "length"
    assert [r.output_tokens for r in server.requests] == [5, 1]
    assert [r.max_tokens_field for r in server.requests] == [field, field]


def test_max_tokens_cuts_anthropic(server, claude):
    server.set_rules([{"reply": "x" * 100}])
    for message in (ask_claude(claude, max_tokens=5), stream_claude(claude, max_tokens=5)):
        assert (text_of(message), message.stop_reason) == ("x" * 20, "max_tokens")
        assert message.usage.output_tokens == 5


def test_server_that_ignores_max_tokens(server, open_ai):
    server.set_rules([{"reply": "word", "repeat": 50, "ignore_max_tokens": True}])
    assert ask(open_ai, max_tokens=5).choices[0].message.content == "word" * 50
    assert server.requests[0].over_max_tokens == 45 and server.stats()["over_max_tokens"] == 45


def test_stop(server, open_ai, claude):
    server.set_rules([{"reply": "one two three"}])
    choice = ask(open_ai, stop=[" three", " two"]).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("one", "stop")
    for message in (ask_claude(claude, stop_sequences=[" two"]),
                    stream_claude(claude, stop_sequences=[" two"])):
        assert (text_of(message), message.stop_reason) == ("one", "stop_sequence")
        assert message.stop_sequence == " two"


@pytest.mark.parametrize("usage, expected", [
    ("missing", None), ("negative", (-7, -3)), ("absurd", (10**12, 10**15)),
    ({"prompt_tokens": 5}, (5, 1))])
def test_false_usage(server, open_ai, usage, expected):
    server.set_rules([{"reply": "text", "usage": usage}])
    whole = ask(open_ai).usage
    streamed = list(ask(open_ai, stream=True, stream_options={"include_usage": True}))[-1].usage
    for given in (whole, streamed):
        seen = None if given is None else (given.prompt_tokens, given.completion_tokens)
        assert seen == expected
    assert [r.billed_tokens for r in server.requests] == [9, 9], "the account stays true"


def test_false_usage_anthropic(server, claude):
    server.set_rules([{"reply": "text", "usage": "absurd"}])
    assert ask_claude(claude).usage.output_tokens == 10**15
    assert stream_claude(claude).usage.input_tokens == 10**12
    server.set_rules([{"reply": "text", "usage": "missing"}])
    assert ask_claude(claude).usage is None
    for event in ask_claude(claude, stream=True):
        if event.type == "message_delta":
            assert event.usage is None
    assert server.stats()["billed_tokens"] == 4 * 9


@pytest.mark.parametrize("place", ["last", "every"])
def test_usage_places(server, open_ai, place):
    server.set_rules([{"reply": "four and eight", "usage_place": place}])
    chunks = list(ask(open_ai, stream=True))
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 4
    counts = [c.usage and c.usage.completion_tokens for c in chunks[:-1]]
    assert counts == ([0, 1, 2, 3, 4] if place == "every" else [None] * 5)


def test_openai_prompt_cache_and_cost(make_server):
    server = make_server(prices={"m": {"input": 2.0, "cached": 0.5, "output": 10.0}})
    client = openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0)
    long = [{"role": "system", "content": "s" * 8000}]
    assert ask(client, long + HI).usage.prompt_tokens_details.cached_tokens == 0
    second = ask(client, long + [{"role": "user", "content": "other"}])
    assert second.usage.prompt_tokens_details.cached_tokens == 2004 // 128 * 128 == 1920
    stats = server.stats()
    assert stats["cached_tokens"] == 1920
    plain = stats["input_tokens"] - 1920
    assert stats["cost_usd"] == pytest.approx((plain * 2.0 + 1920 * 0.5 + 2 * 10.0) / 1e6)


def test_anthropic_cache_control(server, claude):
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "s" * 8000, **mark}]
    first = ask_claude(claude, system=system).usage
    assert (first.cache_creation_input_tokens, first.cache_read_input_tokens) == (2004, 0)
    assert first.input_tokens == 8
    later = HI + [{"role": "assistant", "content": "yes"}, {"role": "user", "content": [
        {"type": "text", "text": "more", **mark}]}]
    second = stream_claude(claude, later, system=system).usage
    assert second.cache_read_input_tokens == 2004
    assert second.cache_creation_input_tokens == 5 + 5 + 5 and second.input_tokens == 3
    plain = ask_claude(claude, later[:1] + [later[1]] + HI, system="s" * 8000).usage
    assert (plain.cache_read_input_tokens, plain.cache_creation_input_tokens) == (0, 0)
    assert server.stats()["input_tokens"] == 2012 + 2022 + plain.input_tokens
    many = [{"type": "text", "text": "x", **mark}] * 5
    with pytest.raises(anthropic.BadRequestError, match="maximum of 4 blocks"):
        ask_claude(claude, [{"role": "user", "content": many}])


def test_anthropic_cache_control_of_the_request(server, claude):
    long = [{"role": "user", "content": "s" * 8000}]
    first = ask_claude(claude, long, cache_control={"type": "ephemeral", "ttl": "1h"}).usage
    assert first.cache_creation_input_tokens == 2004
    again = ask_claude(claude, long + [{"role": "assistant", "content": "yes"}] + HI,
                       cache_control={"type": "ephemeral"}).usage
    assert (again.cache_read_input_tokens, again.cache_creation_input_tokens) == (2004, 10)
    with pytest.raises(anthropic.BadRequestError, match="ephemeral"):
        ask_claude(claude, extra_body={"cache_control": {"type": "long"}})


# ---- rules -----------------------------------------------------------------------------------


def test_rules_match(server, open_ai, claude):
    server.set_rules([
        {"match": {"header": {"X-Agent": "^root$"}}, "reply": "header"},
        {"match": {"model": "^big"}, "reply": "model"},
        {"match": {"system": "pirate"}, "reply": "system"},
        {"match": {"user": r"a.b", "api": "anthropic"}, "reply": "anthropic"},
        {"match": {"user": r"a.b"}, "reply": "user"},
        {"match": {"stream": True}, "reply": "stream"},
        {"match": {"field": ["temperature"]}, "reply": "field"},
        {"match": {"input_tokens_over": 5000}, "reply": "long"},
        {"match": {"nth": [9, 9]}, "reply": "ninth"},
    ])

    def content(text, **options):
        return ask(open_ai, [{"role": "user", "content": text}],
                   **options).choices[0].message.content

    assert content("x", extra_headers={"x-agent": "root"}) == "header"
    assert open_ai.chat.completions.create(
        model="big-1", messages=HI).choices[0].message.content == "model"
    assert ask(open_ai, [{"role": "system", "content": "a pirate"}] + HI
               ).choices[0].message.content == "system"
    assert text_of(ask_claude(claude, [{"role": "user", "content": "a\nb"}])) == "anthropic"
    assert content("a\nb") == "user"
    assert stream_text(ask(open_ai, stream=True)) == "stream"
    assert content("x", temperature=0.5) == "field"
    assert content("x", max_tokens=5000) == "long"
    assert content("x") == "ninth"
    with pytest.raises(openai.BadRequestError, match="no rule of the test server"):
        content("x")
    assert [r.rule for r in server.requests] == [0, 1, 2, 3, 4, 5, 6, 7, 8, None]


def test_rules_uses_lists_and_callables(server, open_ai):
    def shout(request):
        return {"reply": request.user.upper(), "finish_reason": "length"}

    server.set_rules([
        {"reply": ["first", "second"], "times": 3},
        {"reply": lambda request: f"{request.n} {request.model}", "times": 1},
        {"reply": "late", "skip": 1, "times": 1},
        {"reply": shout},
    ])
    choices = [ask(open_ai).choices[0] for _ in range(7)]
    assert [c.message.content for c in choices] == [
        "first", "second", "second", "4 m", "HI", "late", "HI"]
    assert choices[-1].finish_reason == "length"
    server.reset()
    assert ask(open_ai).choices[0].message.content == "first"


@pytest.mark.parametrize("rule, problem", [
    ({"replly": "x"}, "unknown fields"), ({"match": {"usr": "x"}}, "no field 'usr'"),
    ({"match": {"user": "("}}, "unterminated"), ({"times": "2"}, "times"),
    ({"status": True}, "status"), ({"reply": 3}, "reply"), ({"split": 0}, "split"),
    ({"chunks": [0]}, "chunks"), ({"error": "nope"}, "error"), ({"cut": "off"}, "cut"),
    ({"usage": "odd"}, "usage"), ({"sse": ["loud"]}, "sse"), (3, "a rule is an object")])
def test_wrong_rules_are_refused(server, rule, problem):
    with pytest.raises(ValueError, match=problem):
        server.set_rules([rule])


def test_fault_of_a_callable_is_loud(capfd):
    from server import ModelServer

    def broken(request):
        raise KeyError("a fault of the test")

    with pytest.raises(AssertionError, match="a fault of the test"):
        with ModelServer([{"reply": broken}]) as server:
            client = openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0)
            with pytest.raises(openai.APIConnectionError):
                ask(client)
    assert "a fault of the test" in capfd.readouterr().err
