"""Clients of the user's: of every shape, with usage, under limits."""
import asyncio
import functools
import json
import socket
import subprocess
import sys
import threading
import time
import types

import pytest
import rlmflow
from conftest import PYTHON, make_package
from test_flow import Replies, block

DONE = block("done('x')")
HALVES = DONE[:9], DONE[9:]


def run(client, runtime, **options):
    """The root's graph, and the answer."""
    graphs = []

    class Keeping(rlmflow.Flow):
        def messages(self, graph, *, force_final=False):
            graphs.append(graph)
            return super().messages(graph, force_final=force_final)

    answer = Keeping(client, runtime=runtime, **options).run("q")
    return next(g for g in graphs if g.agent_id == "root"), answer


# Shapes.

def text(messages):
    return DONE


def pieces(messages):
    yield from HALVES


async def async_text(messages):
    return DONE


async def async_pieces(messages):
    for piece in HALVES:
        await asyncio.sleep(0)
        yield piece


async def async_iterator(messages):
    return iter(HALVES)


async def async_stream(messages):
    return async_pieces(messages)


class AsyncCallable:
    async def __call__(self, messages):
        return DONE


class Stream:
    def __init__(self):
        self.closed, self.usage = False, {"input_tokens": 7, "output_tokens": 3}

    def __iter__(self):
        return iter(HALVES)

    def close(self):
        self.closed = True


class AsyncStream(Stream):
    __iter__ = None

    def __aiter__(self):
        return async_pieces(None)

    async def close(self):
        self.closed = True


def clients():
    yield "function", text
    yield "async function", async_text
    yield "async callable", AsyncCallable()
    yield "partial", functools.partial(lambda prefix, messages: prefix + DONE, "So: ")
    yield "async partial", functools.partial(lambda f, messages: f(messages), async_text)
    for chat in (text, pieces, async_text, async_pieces, async_iterator, async_stream, AsyncCallable(),
                 functools.partial(async_text), functools.partial(functools.partial(async_pieces)),
                 lambda messages: async_text(messages), lambda messages: async_pieces(messages),
                 lambda messages: Stream(), lambda messages: types.SimpleNamespace(text=DONE)):
        yield f"chat {getattr(chat, '__name__', type(chat).__name__)}", types.SimpleNamespace(chat=chat)


@pytest.mark.parametrize("client", [c for _, c in clients()], ids=[name for name, _ in clients()])
def test_a_client_of_any_shape_replies(client, runtime):
    graph, answer = run(client, runtime)
    assert answer == "x" and graph.nodes[1].content.endswith(DONE)


@pytest.mark.parametrize("returned, told", [
    (lambda: None, "TypeError: chat() returned a NoneType; it must return a str, an object with .text, or an"),
    (lambda: 3, "chat() returned an int"), (lambda: [DONE], "chat() returned a list"),
    (lambda: {"text": DONE}, "chat() returned a dict"),
    (lambda: iter([DONE, 3]), "chat() streamed an int; its pieces must be str")])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_no_reply_fails_the_agent_and_says_so(returned, told, is_async, runtime):
    async def chat(messages):
        return returned()

    client = chat if is_async else lambda messages: returned()
    with pytest.raises(rlmflow.RunEnded) as e:
        run(client, runtime)
    assert e.value.reason == "failed" and told in e.value.message


@pytest.mark.parametrize("client", [3, rlmflow.LLMClient, types.SimpleNamespace(chat="no function")])
def test_what_is_no_client_is_refused(client, runtime):
    with pytest.raises(TypeError, match="a client needs a chat"):
        rlmflow.Flow(client, runtime=runtime).run("q")


def failing_pieces(messages):
    yield DONE
    raise ValueError("the line is dead")


async def async_failing_pieces(messages):
    yield DONE
    raise ValueError("the line is dead")


@pytest.mark.parametrize("client", [failing_pieces, async_failing_pieces])
def test_a_stream_that_breaks_is_no_reply(client, runtime):
    with pytest.raises(rlmflow.RunEnded, match="ValueError: the line is dead") as e:
        run(client, runtime)
    assert [n.type for n in e.value.graph.nodes] == ["user_query", "done_output"]
    assert e.value.graph.usage().estimated


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_ends_when_no_more_is_wanted(is_async, runtime):
    """It would go on for ever: the engine cuts it at what it reserved."""
    ended = threading.Event()

    def endless(messages):
        try:
            yield DONE
            while True:
                yield "\nand so on"
        finally:
            ended.set()

    async def async_endless(messages):
        try:
            for piece in endless(messages):
                await asyncio.sleep(0)
                yield piece
        finally:
            ended.set()

    graph, answer = run(async_endless if is_async else endless, runtime, max_output_tokens=300)
    assert answer == "x" and ended.wait(10)
    assert graph.nodes[1].content.count("and so on") <= 300


# Usage.

def counted(input_tokens, output_tokens, **more):
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens, **more}
    return types.SimpleNamespace(text=DONE, usage=usage)


@pytest.mark.parametrize("reply, expected", [
    (counted(70, 8, cached_tokens=20), (70, 8, 20, False)),
    (types.SimpleNamespace(text=DONE, usage=types.SimpleNamespace(prompt_tokens=70, completion_tokens=8)),
     (70, 8, 0, False)),
    (types.SimpleNamespace(text=DONE, usage=rlmflow.LLMUsage(70, 8)), (70, 8, 0, False)),
    (types.SimpleNamespace(text=DONE, usage=rlmflow.LLMUsage(2**70, 8)), None),
    (Stream(), (7, 3, 0, False)), (AsyncStream(), (7, 3, 0, False)), (DONE, None), (counted("many", 8), None),
    (counted(-5, 8), None)])
def test_usage_is_what_the_reply_says(reply, expected, runtime):
    graph, _ = run(lambda messages: reply, runtime)
    usage = graph.usage()
    assert usage.calls == 1
    if expected is None:
        assert usage.estimated and usage.input_tokens > 500
    else:
        assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.estimated) == expected
    assert getattr(reply, "closed", True)


class Counting:
    """The root asks for eight prompts at once; each call of these counts what no other does."""
    model = "counting"

    def __init__(self, thread_safe=False):
        self.thread_safe, self.under_way, self.most = thread_safe, 0, 0
        self.lock, self.local, self.both = threading.Lock(), threading.local(), threading.Barrier(2)

    def chat(self, messages):
        number = int(messages[-1]["content"][1:]) if len(messages) == 1 else 0
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.note({"input_tokens": 1 + number, "output_tokens": 1})
        time.sleep(0.005)  # in which others would count, were they let in
        if number and self.thread_safe:
            self.both.wait(10)  # there are two at once
        with self.lock:
            self.under_way -= 1
        return f"reply {number}" if number else block(
            "done(str(await llm_query_batched([f'p{i}' for i in range(1, 9)])))")

    def note(self, usage):
        self.last_usage = usage


class SafelyCounting(Counting):
    last_usage = property(lambda self: getattr(self.local, "usage", None))

    def note(self, usage):
        self.local.usage = usage


@pytest.mark.parametrize("kind", [Counting, SafelyCounting])
def test_usage_of_a_client_is_read_where_nobody_else_can_have_counted(kind, runtime):
    client = kind(thread_safe=kind is SafelyCounting)
    graph, answer = run(client, runtime)
    assert answer == str([f"reply {i}" for i in range(1, 9)])
    assert (client.most > 1) == (kind is SafelyCounting)
    usage = graph.usage()
    assert (usage.calls, usage.input_tokens, usage.output_tokens, usage.estimated) == (9, sum(range(1, 10)), 9, False)


def test_a_count_that_may_be_anothers_is_not_believed(runtime):
    """Nothing tells that this client counts until two calls of it have been made at once."""
    both = threading.Barrier(2)
    code = block("done(str(await llm_query_batched(['a', 'b'], model='late')))")

    def root(messages):
        return types.SimpleNamespace(text=code, usage={"input_tokens": 50, "output_tokens": 10})

    class Late:
        def chat(self, messages):
            both.wait(10)
            self.last_usage = {"input_tokens": 10, "output_tokens": 1}
            return "reply"

    graph, answer = run(root, runtime, llm_clients={"late": Late()})
    assert answer == "['reply', 'reply']"
    assert graph.usage().estimated and graph.usage().calls == 3


# What `chat` is given.

def test_chat_gets_what_it_takes(runtime):
    got = []

    def takes_both(messages, *, timeout=None, max_tokens=1):
        got.append((timeout, max_tokens))
        return DONE

    def takes_all(messages, **options):
        got.append((options.get("timeout"), options.get("max_tokens")))
        return DONE

    for client in (takes_both, takes_all):
        run(client, runtime, llm_request_timeout=5.5, max_output_tokens=777)
    run(takes_both, runtime)
    assert got == [(5.5, 777), (5.5, 777), (None, 8192)]


def test_each_call_is_bounded_in_time(runtime):
    cancelled = threading.Event()

    async def never(messages):
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with pytest.raises(rlmflow.RunEnded, match="the model has not replied within 0.05 s"):
        run(never, runtime, llm_request_timeout=0.05)
    assert cancelled.is_set()
    with pytest.raises(ValueError, match="request_timeout"):
        run(never, runtime, llm_request_timeout=-1)


def test_clients_of_the_engine_are_bounded_in_time_too(runtime):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = rlmflow.OpenAIClient("m", base_url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        with pytest.raises(rlmflow.RunEnded, match="the model has not replied within 0.05 s"):
            run(client, runtime, llm_request_timeout=0.05)


def test_a_client_that_never_returns_keeps_neither_run_nor_process(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""
import sys, threading
sys.path.insert(0, {str(make_package())!r})
import rlmflow
try:
    rlmflow.Flow(lambda messages: threading.Event().wait(), llm_request_timeout=0.05,
                 runtime=rlmflow.SubprocessRuntime(python={PYTHON!r})).run("q")
except rlmflow.RunEnded as e:
    print(e)
""")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert "failed: the model has not replied within 0.05 s" in done.stdout, done.stderr


def test_clients_are_asked_for_once_in_a_run(runtime):
    made = []

    class Making(rlmflow.Flow):
        def llm_client(self, model="default"):
            made.append(model)
            return Replies("small") if model == "small" else super().llm_client(model)

    client = Replies(block("print(await llm_query('p', model='small'))"), block("done('x')"))
    flow = Making(client, runtime=runtime, llm_clients={"small": None}, use_llm_query=True)
    assert flow.run("q") == "x" and made == ["default", "small"]
    assert "small" in client.asked[1][-1]["content"]
    with pytest.raises(ValueError, match="no model is named 'big'; the models are: default, small"):
        flow.llm_client("big")
    assert rlmflow.Flow(None, runtime=runtime, llm_clients={"default": client}).llm_client() is client


# Caps.

class Billed:
    """Bills a token a byte, for replies of `size` tokens, or as many as it may make. The root launches 64 children."""

    def __init__(self, size=None):
        self.size, self.billed, self.worst = size, 0, 0
        self.under_way = self.most = 0
        self.lock = threading.Lock()
        if size is None:
            self.chat = self.bounded

    def bounded(self, messages, max_tokens):
        return self.reply(messages, max_tokens)

    def chat(self, messages):
        return self.reply(messages, self.size)

    def reply(self, messages, made):
        given = len(json.dumps(messages))
        with self.lock:
            self.billed += given + made
            self.worst = max(self.worst, given + made)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        child = "child task" in messages[1]["content"]
        code = block("done('c')" if child else
                     "r = await launch_subagents([{'query': 'child task'}] * 64)\n"
                     "done(str(sum(x == 'c' for x in r)) + ' of ' + str(len(r)))")
        text = code + "\n" + "x" * (made - len(code))
        with self.lock:
            self.under_way -= 1
        return types.SimpleNamespace(text=text, usage={"input_tokens": given, "output_tokens": made})


@pytest.mark.parametrize("width", [1, 8, 64])
def test_children_never_pass_a_cap_at_any_width(width):
    client = Billed()
    answer = rlmflow.Flow(client, runtime=rlmflow.LocalRuntime(), workers=width, max_live=width,
                          max_budget=150_000, max_output_tokens=2000).run("q")
    answered = int(answer.split()[0])
    assert answer == f"{answered} of 64" and 10 < answered < 64
    assert 100_000 < client.billed <= 150_000


@pytest.mark.parametrize("width", [1, 64])
def test_one_call_passes_a_cap_if_replies_cannot_be_bounded(width):
    client = Billed(size=9000)
    answer = rlmflow.Flow(client, runtime=rlmflow.LocalRuntime(), workers=width, max_live=width, max_budget=150_000,
                          max_output_tokens=500).run("q")
    assert 5 < int(answer.split()[0]) < 64 and client.most == 1
    assert 130_000 < client.billed < 150_000 + client.worst
