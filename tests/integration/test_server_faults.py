"""The model server's failures and refusals, as the official clients see them."""

import json

import anthropic
import openai
import pytest

from clients import HI, ask, ask_claude, claude, open_ai, stream_claude, stream_text, text_of

__all__ = ["claude", "open_ai"]  # fixtures

# ---- errors by status ------------------------------------------------------------------------


@pytest.mark.parametrize("status, ours, theirs", [
    (400, openai.BadRequestError, anthropic.BadRequestError),
    (401, openai.AuthenticationError, anthropic.AuthenticationError),
    (403, openai.PermissionDeniedError, anthropic.PermissionDeniedError),
    (404, openai.NotFoundError, anthropic.NotFoundError),
    (429, openai.RateLimitError, anthropic.RateLimitError),
    (500, openai.InternalServerError, anthropic.InternalServerError),
    (503, openai.InternalServerError, anthropic.ServiceUnavailableError),
    (529, openai.InternalServerError, anthropic.OverloadedError),
])
def test_statuses(server, open_ai, claude, status, ours, theirs):
    server.set_rules([{"status": status, "message": "as told"}])
    with pytest.raises(ours) as caught:
        ask(open_ai)
    assert caught.value.status_code == status and caught.value.body["message"] == "as told"
    assert caught.value.request_id == "req_1"
    with pytest.raises(theirs) as caught:
        ask_claude(claude, stream=True)
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["message"] == "as told"
    assert server.stats()["statuses"] == {str(status): 2}
    assert server.stats()["billed_tokens"] == 0


def test_error_types(server, open_ai, claude):
    server.set_rules([{"status": 429, "times": 2}, {"status": 404, "times": 2},
                      {"status": 529, "times": 1}])
    with pytest.raises(openai.RateLimitError) as caught:
        ask(open_ai)
    assert caught.value.code == "rate_limit_exceeded"
    with pytest.raises(anthropic.RateLimitError, match="rate_limit_error"):
        ask_claude(claude)
    with pytest.raises(openai.NotFoundError, match="The model `m` does not exist") as caught:
        ask(open_ai)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(anthropic.NotFoundError, match="not_found_error.*model: m"):
        ask_claude(claude)
    with pytest.raises(anthropic.OverloadedError, match="overloaded_error"):
        ask_claude(claude)


def test_rate_limit_then_success_with_retries(server):
    server.set_rules([{"status": 429, "retry_after_ms": 2, "retry_after": 1, "times": 2},
                      {"reply": "at last"}])
    client = openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=2)
    assert ask(client).choices[0].message.content == "at last"
    assert [r.status for r in server.requests] == [429, 429, 200]
    assert [r.headers["x-stainless-retry-count"] for r in server.requests] == ["0", "1", "2"]
    server.reset()
    other = anthropic.Anthropic(base_url=server.anthropic_url, api_key="k", max_retries=2)
    assert text_of(stream_claude(other)) == "at last"
    assert [r.status for r in server.requests] == [429, 429, 200]


def test_retry_after_header(server, open_ai):
    server.set_rules([{"status": 429, "retry_after": "Wed, 21 Oct 2015 07:28:00 GMT",
                       "retry_after_ms": 1500, "times": 1},
                      {"status": 503, "retry_after": 7, "headers": {"X-More": "1"}}])
    with pytest.raises(openai.RateLimitError) as caught:
        ask(open_ai)
    assert caught.value.response.headers["retry-after"] == "Wed, 21 Oct 2015 07:28:00 GMT"
    assert caught.value.response.headers["retry-after-ms"] == "1500"
    with pytest.raises(openai.InternalServerError) as caught:
        ask(open_ai)
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.response.headers["x-more"] == "1"


@pytest.mark.parametrize("error, pattern", [
    ("context_openai", r"maximum context length is 7 tokens.*resulted in 8 tokens"),
    ("context_openai_sum", r"maximum context length is 107 tokens.*requested 108 tokens"),
    ("context_llamacpp", r"request \(8 tokens\) exceeds the available context size \(7 tokens\)"),
    ("context_vllm", r"maximum context length is 107 tokens"),
    ("context_anthropic", r"prompt is too long: 8 tokens > 7 maximum"),
    ("context_anthropic_sum", r"exceed context limit: 8 \+ 100 > 107"),
])
def test_context_too_long(server, open_ai, claude, error, pattern):
    server.set_rules([{"error": error}])
    if "anthropic" in error:
        with pytest.raises(anthropic.BadRequestError, match=pattern):
            ask_claude(claude, max_tokens=100)
        return
    with pytest.raises(openai.BadRequestError, match=pattern) as caught:
        ask(open_ai, max_tokens=100)
    if error == "context_openai":
        assert caught.value.code == "context_length_exceeded"
    if error == "context_llamacpp":
        assert (caught.value.body["n_prompt_tokens"], caught.value.body["n_ctx"]) == (8, 7)
        assert caught.value.body["type"] == "exceed_context_size_error"


def test_context_limit_by_size(server, open_ai):
    server.set_rules([{"match": {"input_tokens_over": 100}, "error": "context_openai"}, {}])
    ask(open_ai, max_tokens=92)
    with pytest.raises(openai.BadRequestError, match="context length"):
        ask(open_ai, max_tokens=93)


def test_server_that_wants_the_other_token_field(server, open_ai):
    server.set_rules([
        {"match": {"field": "max_tokens"}, "error": "max_tokens_unsupported"}, {"reply": "fine"}])
    with pytest.raises(openai.BadRequestError, match="'max_completion_tokens' instead") as caught:
        ask(open_ai, max_tokens=5)
    assert (caught.value.param, caught.value.code) == ("max_tokens", "unsupported_parameter")
    assert ask(open_ai, max_completion_tokens=5).choices[0].message.content == "fine"


def test_quota_and_loading(server, open_ai):
    server.set_rules([{"error": "quota", "times": 1}, {"error": "loading"}])
    with pytest.raises(openai.RateLimitError) as caught:
        ask(open_ai)
    assert caught.value.code == "insufficient_quota"
    with pytest.raises(openai.InternalServerError, match="Loading model"):
        ask(open_ai)


def test_html_and_raw_bodies(server, open_ai, claude):
    server.set_rules([{"html": True, "times": 2},
                      {"body": "not json", "content_type": "text/plain", "times": 1},
                      {"body": "{", "status": 500}])
    for call, error in ((lambda: ask(open_ai), openai.InternalServerError),
                        (lambda: ask_claude(claude), anthropic.InternalServerError)):
        with pytest.raises(error) as caught:
            call()
        assert caught.value.status_code == 502
        assert "<h1>502 Bad Gateway</h1>" in caught.value.response.text
        assert caught.value.response.headers["content-type"] == "text/html"
    assert ask(open_ai) == "not json"
    with pytest.raises(openai.InternalServerError):
        ask(open_ai)


# ---- broken streams and bodies ---------------------------------------------------------------


@pytest.mark.parametrize("cut", ["reset", "close"])
@pytest.mark.parametrize("after", [-1, 0, 3])
def test_cut_streams(server, open_ai, claude, cut, after):
    server.set_rules([{"reply": "some words for a stream", "cut_after": after, "cut": cut}])
    seen = []
    with pytest.raises((openai.APIConnectionError, openai.APIError)) as caught:
        for chunk in ask(open_ai, stream=True):
            seen.append(chunk)
    assert not isinstance(caught.value, openai.APIStatusError)
    assert len(seen) == max(after, 0)
    with pytest.raises(Exception) as caught:
        for _ in ask_claude(claude, stream=True):
            pass
    assert not isinstance(caught.value, anthropic.APIStatusError)
    assert server.stats()["outcomes"] == {"cut": 2}
    assert server.requests[0].output_tokens == (2 if after == 3 else 0)
    with pytest.raises((openai.APIConnectionError, openai.APIError)):
        ask(open_ai)


def test_clean_end_without_done(server, open_ai):
    server.set_rules([{"reply": "some words", "cut_after": 2, "cut": "end"}])
    chunks = list(ask(open_ai, stream=True))
    assert stream_text(chunks) == "some" and len(chunks) == 2
    assert chunks[-1].choices[0].finish_reason is None


@pytest.mark.parametrize("form", ["openai", "openrouter"])
def test_error_in_stream(server, open_ai, form):
    server.set_rules([{"reply": "some words", "error_after": 2, "error_form": form,
                       "message": "broke down"}])
    seen = []
    with pytest.raises(openai.APIError, match="broke down"):
        for chunk in ask(open_ai, stream=True):
            seen.append(chunk)
    assert len(seen) == 2 and server.stats()["outcomes"] == {"error_in_stream": 1}


def test_error_in_stream_llamacpp_field(server, open_ai):
    server.set_rules([{"reply": "some words", "error_after": 1, "error_form": "llamacpp"}])
    raw = open_ai.chat.completions.with_raw_response.create(model="m", messages=HI, stream=True)
    events = raw.http_response.read().decode().split("\n\n")
    assert events[1].startswith('error: {"error":{"code":500') and events[2:] == [""]


def test_error_in_stream_anthropic(server, claude):
    server.set_rules([{"reply": "some words", "error_after": 4}])
    seen = []
    with pytest.raises(anthropic.APIStatusError, match="Overloaded") as caught:
        for event in ask_claude(claude, stream=True):
            seen.append(event.type)
    assert caught.value.body["error"]["type"] == "overloaded_error"
    # The client hides the ping, which is the third event.
    assert seen == ["message_start", "content_block_start", "content_block_delta"]


def test_invalid_json(server, open_ai, claude):
    server.set_rules([{"reply": "some words", "invalid_json_after": 2}])
    with pytest.raises(json.JSONDecodeError):
        list(ask(open_ai, stream=True))
    with pytest.raises(json.JSONDecodeError):
        ask(open_ai)
    with pytest.raises(json.JSONDecodeError):
        list(ask_claude(claude, stream=True))


def test_invalid_json_stands_between_sound_events(server, open_ai):
    server.set_rules([{"reply": "some words", "invalid_json_after": 2}])
    raw = open_ai.chat.completions.with_raw_response.create(model="m", messages=HI, stream=True)
    events = raw.http_response.read().decode().split("\n\n")
    assert events[2] == 'data: {"choices":[{"delta":{"content":'
    rest = [json.loads(e[6:]) for e in events[:2] + events[3:-2]]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in rest) == "some words"
    assert events[-2:] == ["data: [DONE]", ""]


def test_client_that_leaves_is_billed_for_what_it_got(server, open_ai):
    server.set_rules([{"reply": "word", "repeat": 100_000, "ignore_max_tokens": True,
                       "each_write": True}])
    stream = ask(open_ai, stream=True, max_tokens=3)
    seen = [next(stream) for _ in range(20)]
    stream.close()
    open_ai.close()
    stats = server.wait_idle()
    [record] = server.requests
    assert record.outcome == "client_left" and stats["outcomes"] == {"client_left": 1}
    assert len(seen) - 1 <= record.output_tokens < 100_000
    assert record.over_max_tokens == record.output_tokens - 3


# ---- what is refused -------------------------------------------------------------------------


def user(content):
    return {"role": "user", "content": content}


ASSISTANT = {"role": "assistant", "content": "yes"}

OPENAI_REFUSED = [
    ({"messages": []}, "empty array"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "Supported values are: 'system'"),
    ({"messages": [user("")]}, "must not be empty"),
    ({"messages": [user(None)]}, "expected a string, got null"),
    ({"messages": [user([])]}, "expected a string"),
    ({"messages": [{"role": "user", "text": "x"}]}, r"messages\[0\].text"),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]}, "preceding message"),
    ({"extra_body": {"max_token": 5}}, "Unknown parameter: 'max_token'.*'max_tokens'"),
    ({"extra_body": {"temprature": 1}}, "'temperature'"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 5}, "at the same time"),
    ({"temperature": 2.5}, "temperature"), ({"temperature": "1"}, "temperature"),
    ({"top_p": -0.1}, "top_p"), ({"n": 2}, "n"), ({"stop": ["a"] * 5}, "stop"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"tools": []}, "tools"), ({"tool_choice": "auto"}, "tool_choice"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"), ({"model": ""}, "model parameter"),
]


@pytest.mark.parametrize("options, problem", OPENAI_REFUSED)
def test_openai_refuses(server, open_ai, options, problem):
    with pytest.raises(openai.BadRequestError, match=problem) as caught:
        open_ai.chat.completions.create(**{"model": "m", "messages": HI, **options})
    assert caught.value.body["type"] == "invalid_request_error"
    assert [r.outcome for r in server.requests] == ["error"]


ANTHROPIC_REFUSED = [
    ({"messages": []}, "at least one message"),
    ({"messages": [ASSISTANT]}, "first message must use"),
    ({"messages": HI + HI}, "roles must alternate"),
    ({"messages": HI + [ASSISTANT, ASSISTANT]}, "roles must alternate"),
    ({"messages": [{"role": "system", "content": "x"}]}, "top-level `system`"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "Unexpected role"),
    ({"messages": [user("")]}, "must have non-empty content"),
    ({"messages": [user([])]}, "must have non-empty content"),
    ({"messages": [user([{"type": "text", "text": ""}])]}, "must be non-empty"),
    ({"messages": [user("  \n")]}, "non-whitespace"),
    ({"messages": HI + [{"role": "assistant", "content": "so: "}]}, "trailing whitespace"),
    ({"messages": [user([{"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}])]},
     "cache_control cannot be set"),
    ({"messages": [user([{"type": "text", "text": "x", "cache_control": {"type": "long"}}])]},
     "ephemeral"),
    ({"messages": [{"role": "user", "content": "x", "name": "n"}]}, "Extra inputs"),
    ({"extra_body": {"max_token": 5}}, "max_token: Extra inputs.*max_tokens"),
    ({"extra_body": {"temperature": 0.5}}, "temperature: Extra inputs"),
    ({"max_tokens": 0}, "greater than or equal to 1"),
    ({"system": [{"type": "text", "text": ""}]}, "system: text content blocks"),
    ({"tools": [{"name": "x"}]}, "input_schema"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "must be greater than"),
]


@pytest.mark.parametrize("options, problem", ANTHROPIC_REFUSED)
def test_anthropic_refuses(server, claude, options, problem):
    with pytest.raises(anthropic.BadRequestError, match=problem) as caught:
        claude.messages.create(**{"model": "m", "messages": HI, "max_tokens": 10, **options})
    assert caught.value.body["error"]["type"] == "invalid_request_error"


def test_anthropic_versions(server):
    def client(version):
        return anthropic.Anthropic(base_url=server.anthropic_url, api_key="k", max_retries=0,
                                   default_headers={"anthropic-version": version})

    ask_claude(client("2023-06-01"), extra_body={"temperature": 0.5, "top_k": 5})
    with pytest.raises(anthropic.BadRequestError, match="range"):
        ask_claude(client("2023-06-01"), extra_body={"temperature": 1.5})
    with pytest.raises(anthropic.BadRequestError, match="not a valid version"):
        ask_claude(client("1999-01-01"))


def test_keys(make_server):
    server = make_server(keys=["right"])

    def clients(key):
        return (openai.OpenAI(base_url=server.base_url, api_key=key, max_retries=0),
                anthropic.Anthropic(base_url=server.anthropic_url, api_key=key, max_retries=0))

    good, good_too = clients("right")
    ask(good)
    ask_claude(good_too)
    bearer = anthropic.Anthropic(base_url=server.anthropic_url, auth_token="right", max_retries=0)
    ask_claude(bearer)
    bad, bad_too = clients("wrong")
    for call, error in ((lambda: ask(bad), openai.AuthenticationError),
                        (lambda: bad.models.list(), openai.AuthenticationError),
                        (lambda: ask_claude(bad_too), anthropic.AuthenticationError)):
        with pytest.raises(error):
            call()


def test_lenient_and_alternating_servers(make_server):
    lenient = make_server(allow_fields=None, alternate=True)
    client = openai.OpenAI(base_url=lenient.base_url, api_key="k", max_retries=0)
    system = [{"role": "system", "content": "x"}]
    ask(client, system + HI + [ASSISTANT] + HI, extra_body={"chat_template_kwargs": {}, "top_k": 3})
    for messages in (HI + HI, system + [ASSISTANT], HI + [ASSISTANT, ASSISTANT]):
        with pytest.raises(openai.BadRequestError, match="must alternate"):
            ask(client, messages)
    some = make_server(allow_fields=["top_k"], models=["known"])
    client = openai.OpenAI(base_url=some.base_url, api_key="k", max_retries=0)
    with pytest.raises(openai.NotFoundError):
        ask(client, extra_body={"top_k": 3})
    with pytest.raises(openai.BadRequestError):
        ask(client, extra_body={"top_x": 3})
