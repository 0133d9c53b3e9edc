"""Values, both ways."""
import struct
import time

import pytest
from worker_host import END
from workers import BIG, echo, host, ok, python, shared  # noqa: F401


@pytest.mark.parametrize("expression, encoded", [
    ("None", None), ("[True, 1, 1.5, 'é']", [True, 1, 1.5, "é"]), ("10**30", 10 ** 30), ("b'ab'", {"$bytes": "YWI="}),
    ("(1, (2,))", {"$tuple": [1, {"$tuple": [2]}]}), ("{3}", {"$set": [3]}),
    ("frozenset([3])", {"$frozenset": [3]}),
    ("float('inf')", {"$float": "inf"}), ("-float('inf')", {"$float": "-inf"}), ("float('nan')", {"$float": "nan"}),
    ("{'a': 1}", {"a": 1}), ("{1: 2}", {"$dict": [[1, 2]]}), ("{'$a': 1}", {"$dict": [["$a", 1]]}),
    ("'\\ud800x'", "\ud800x"), ("corpus", {"$blob": "b-ascii"}), ("{'c': corpus}", {"c": {"$blob": "b-ascii"}}),
    ("INPUTS['docs']", {"$dir": {"name": "docs"}}),
    ("type('S', (str,), {})('x')", "x"), ("type('I', (int,), {})(3)", 3), ("type('D', (dict,), {})(a=1)", {"a": 1}),
])
def test_values_both_ways(host, expression, encoded):
    assert ok(host.run("search(%s)\nNone" % expression, lambda call: {"value": None})) == ""
    assert host.calls[0]["kwargs"] == {"query": encoded}
    if isinstance(encoded, dict) and "$dir" in encoded:
        return
    out = ok(host.run("v = search(1)\nw = %s\nprint(type(v) is type(w) or isinstance(w, type(v)), v == w or v != v)" % expression,
                      lambda call: {"value": encoded}))
    assert out == "True True\n"


@pytest.mark.parametrize("expression, kind, text", [
    ("[1, {'a': object()}]", "TypeError", 'query[1]["a"] is an object'),
    ("len", "TypeError", "query is a builtin_function_or_method"),
    ("__import__('datetime').date(2020, 1, 1)", "TypeError", ".isoformat()"),
    ("__import__('pathlib').Path('x')", "TypeError", "str()"),
    ("__import__('decimal').Decimal(1)", "TypeError", "str()"),
    ("range(3)", "TypeError", "list()"),
    ("cyclic", "ValueError", "query[0][0] contains itself"),
    ("deep", "ValueError", "nested more than 100 deep"),
    ("llm_query('x')", "TypeError", "await"),
])
def test_what_cannot_be_sent_is_named(host, expression, kind, text):
    ok(host.run("cyclic = [[]]\ncyclic[0].append(cyclic)\ndeep = []\nfor _ in range(200): deep = [deep]"))
    error = host.run("search(%s)" % expression)["error"]
    assert error["type"] == kind and text in error["message"], error


def test_paths_name_the_spec(host):
    error = host.run("await launch_subagents([{}, {}, {'inputs': {'table': object()}}])")["error"]
    assert error["type"] == "TypeError" and error["message"].startswith('specs[2]["inputs"]["table"] is an object')


@pytest.mark.parametrize("name", sorted(BIG))
def test_large_values_stream(host, name):
    sample = BIG[name][:100]
    taken = []

    def take(call):
        taken.append(host.value(call["kwargs"]["query"]))
        return {"value": None}

    ok(host.run("big = %r * 20000\nsearch(big)\nNone" % sample, take))
    assert taken[0] == sample * 20000
    ok(host.run("search(big.encode())\nNone", take))
    assert taken[1] == (sample * 20000).encode()


def test_a_call_of_many_small_values_travels_as_a_body(host):
    ok(host.run("r = await llm_query_batched(['p' * 1000] * 3000)\nNone", lambda call: {"value": ["x" * 1000] * 3000}))
    assert host.calls[0]["args"] == [["p" * 1000] * 3000]
    assert ok(host.run("len(r), r[-1] == 'x' * 1000")) == "(3000, True)\n"


def test_a_large_call_of_a_thread_and_what_crosses_it(host):
    """The thread waits for credit while the host, which has not heard of the call, wants the word back, and
    while another thread has a call as large, and output is to be shown: whoever reads the stream must get
    to the credit."""
    host.start("import threading\n"
               "threads = [threading.Thread(target=search, args=(['%0100d' % i for i in range(20000)],))"
               " for _ in range(2)]\n"
               "for t in threads: t.start()\n"
               "while any(t.is_alive() for t in threads): print(end='.')\n'all are back'")
    sent = 0
    while sent < 1 << 20:
        kind, flags, stream, payload = host.read_frame()
        if kind == "body":
            assert not flags & END
            sent += len(payload)
            host.values.setdefault(("open", stream), []).append(payload)
    host.window[stream] = 1 << 20
    host.send("yield", {})
    time.sleep(0.4)  # it is taken in before the credit comes; and what was printed is due
    host.send_raw("credit", struct.pack("<I", 1 << 20), 0, stream)
    assert "all are back" in ok(host.drive(lambda call: {"value": None}))
    assert [len(call["kwargs"]["query"]) for call in host.calls] == [20000, 20000]


def test_a_large_call_of_another_thread_is_made_on_yield(host):
    """The monitor, which hears `yield`, reads the credit that its own message needs."""
    host.start("import asyncio, time\nt = asyncio.create_task(llm_query_batched(['p' * 1000] * 3000))\n"
               "await asyncio.sleep(0)\nprint('made', flush=True)\n"
               "end = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass\nr = await t\nlen(r)")
    assert host.read_frame()[0] == "output"
    host.send("yield", {})
    kind, message = host.read()
    assert kind == "suspended" and len(message["calls"]) == 1
    host.resume({"id": message["calls"][0]["id"], "value": [1, 2]})
    assert ok(host.drive(echo)) == "made\n2\n"
