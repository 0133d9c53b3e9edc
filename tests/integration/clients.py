"""The official clients on a test's server, as fixtures, and short calls of them."""

import anthropic
import openai
import pytest

HI = [{"role": "user", "content": "hi"}]
@pytest.fixture
def open_ai(server):
    with openai.OpenAI(base_url=server.base_url, api_key="test-key", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(server):
    with anthropic.Anthropic(base_url=server.anthropic_url, api_key="test-key",
                             max_retries=0) as client:
        yield client


def ask(client, messages=HI, **options):
    return client.chat.completions.create(model="m", messages=messages, **options)


def ask_claude(client, messages=HI, max_tokens=1000, **options):
    return client.messages.create(model="m", messages=messages, max_tokens=max_tokens, **options)


def stream_text(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def stream_claude(client, messages=HI, max_tokens=1000, **options):
    with client.messages.stream(model="m", messages=messages, max_tokens=max_tokens,
                                **options) as stream:
        return stream.get_final_message()


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")
