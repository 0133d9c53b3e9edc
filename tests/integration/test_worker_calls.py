"""Host calls of a cell: awaited in every way, answered, given up, forgotten; `done`."""
import time

import pytest
from workers import echo, host, ok, python, shared  # noqa: F401


def test_calls_of_each_kind(host):
    assert ok(host.run("await llm_query('q', model='m')", echo)) == "'reply to q'\n"
    assert host.calls[0]["kwargs"] == {"model": "m"}
    assert ok(host.run("print(await llm_query_batched(['a', 'b']))", echo)) == "['reply to a', 'reply to b']\n"
    assert ok(host.run("r = await launch_subagents([{'query': 'x'}, {'query': 'y'}])\nr", echo)) == "['answer 0', 'answer 1']\n"
    assert host.calls[0]["args"] == [[{"query": "x"}, {"query": "y"}]]
    assert ok(host.run("budget()['tokens']", echo)) == "5\n"
    assert ok(host.run("search('q')['kwargs']", echo)) == "{'query': 'q'}\n"
    assert ok(host.run("(await fetch('u'))['kwargs']", echo)) == "{'url': 'u'}\n"


def test_asyncio_composes_calls_and_suspends_once(host):
    host.start("import asyncio\nprint(await asyncio.gather(*[llm_query(str(i)) for i in range(20)]))")
    kind, message = host.read()
    assert kind == "suspended" and len(message["calls"]) == 20 == len(message["pending"])
    for call in reversed(message["calls"]):
        host.resume({"id": call["id"], "value": call["args"][0]})
        if call is not message["calls"][0]:
            host.send("yield", {})
            kind, reply = host.read()
            assert kind == "suspended" and reply["calls"] == []
    kind, message = host.read()
    assert kind == "finished" and ok(message) == str([str(i) for i in range(20)]) + "\n"


@pytest.mark.parametrize("code", [
    "asyncio.run(llm_query('q'))",
    "async def m(): return await asyncio.create_task(llm_query('q'))\nasyncio.run(m())",
    "await asyncio.wait_for(llm_query('q'), 5)",
    "await asyncio.shield(llm_query('q'))",
    "await asyncio.create_task(llm_query('q'))",
    "asyncio.run(asyncio.wait_for(llm_query('q'), 5)) if True else await x",
    "async def o(): return asyncio.run(llm_query('q'))\nawait o()",
    "t = asyncio.ensure_future(llm_query('q'))\nawait asyncio.sleep(0)\nawait t",
    "asyncio.Runner().run(llm_query('q')) if hasattr(asyncio, 'Runner') else asyncio.run(llm_query('q'))",
    "l = asyncio.new_event_loop()\nl.run_until_complete(llm_query('q'))",
    "asyncio.run(asyncio.sleep(0))\nasyncio.get_event_loop().run_until_complete(llm_query('q'))",
    "await asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(llm_query('q')))",
])
def test_every_way_to_await(host, code):
    assert ok(host.run("import asyncio\n" + code, echo)) == "'reply to q'\n"
    assert asyncio_marks(host)


def asyncio_marks(host):
    return ok(host.run("asyncio.iscoroutinefunction(llm_query), asyncio.iscoroutine(c := llm_query('x')), c.close()")) \
        == "(True, True, None)\n"


def test_an_error_in_a_lost_task_shows_the_agents_lines(host):
    out = ok(host.run("import asyncio, gc\nasync def work(): 1/0\nt = asyncio.create_task(work())\n"
                      "await asyncio.sleep(0.01)\ndel t\ngc.collect()\nNone"))
    assert out.startswith("Task exception was never retrieved:\nTraceback") and "in work" in out and "<worker>" not in out


def test_an_error_in_a_thread_shows_the_agents_lines(host):
    out = ok(host.run("import threading\ndef work(): 1/0\nt = threading.Thread(target=work, name='T')\nt.start()\nt.join()"))
    assert out.startswith("Exception in thread T:\nTraceback") and "ZeroDivisionError" in out and "threading.py" not in out


def test_calls_from_threads_reach_their_threads(host):
    code = ("import threading, asyncio\nresults = {}\n"
            "def work(i):\n"
            "    if i % 2: results[i] = asyncio.run(llm_query(str(i)))\n"
            "    else: results[i] = search(str(i))['kwargs']['query']\n"
            "threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]\n"
            "for t in threads: t.start()\n"
            "for t in threads: t.join()\n"
            "sorted(results.items())")
    want = [(i, "reply to %d" % i if i % 2 else str(i)) for i in range(8)]
    assert ok(host.run(code, echo)) == repr(want) + "\n"


def test_timers_run_while_suspended_and_wake(host):
    host.start("import asyncio\ntry:\n    await asyncio.wait_for(llm_query('slow'), 0.2)\n"
               "except asyncio.TimeoutError: print('timeout')\nr = await llm_query('again')\nr")
    kind, message = host.read()
    assert kind == "suspended"
    first = message["calls"][0]["id"]
    kind, _ = host.read()
    assert kind == "wake"
    host.resume()
    kind, message = host.read()
    assert kind == "suspended" and message["pending"] == [message["calls"][0]["id"]]
    host.resume({"id": first, "value": "too late"}, {"id": message["calls"][0]["id"], "value": "in time"})
    kind, message = host.read()
    assert kind == "finished" and ok(message) == "timeout\n'in time'\n"


@pytest.mark.parametrize("give_up", [
    "try: await asyncio.wait_for(t, 0.1)\nexcept asyncio.TimeoutError: pass",
    "await asyncio.sleep(0.1)\nt.cancel()",
])
def test_a_call_that_is_given_up_is_told_at_the_next_suspension(host, give_up):
    host.start("import asyncio\nt = asyncio.create_task(llm_query('slow'))\n" + give_up + "\nawait asyncio.sleep(0.1)\n"
               "r = await llm_query('next')\nr")
    kind, message = host.read()
    slow = message["calls"][0]["id"]
    assert kind == "suspended" and "cancelled" not in message
    assert host.read()[0] == "wake"
    host.resume()
    assert host.read() == ("suspended", {"calls": [], "pending": [], "cancelled": [slow]})
    host.resume()
    kind, message = host.read()
    assert kind == "suspended" and "cancelled" not in message and message["pending"] == [slow + 1]
    host.resume({"id": slow + 1, "value": "v"})
    kind, message = host.read()
    assert kind == "finished" and ok(message) == "'v'\n" and "cancelled" not in message


def test_what_is_given_up_goes_with_what_is_new(host):
    host.start("import asyncio\nts = [asyncio.create_task(llm_query(str(i))) for i in range(3)]\nawait asyncio.sleep(0.1)\n"
               "ts[2].cancel(), ts[0].cancel()\nprint(await llm_query('next'), await ts[1])")
    kind, message = host.read()
    ids = [c["id"] for c in message["calls"]]
    assert host.read()[0] == "wake"
    host.resume()
    kind, message = host.read()
    assert kind == "suspended" and message["cancelled"] == [ids[0], ids[2]]
    assert sorted(message["pending"]) == [ids[1], ids[2] + 1]
    host.resume({"id": ids[0], "value": "late"}, {"id": ids[1], "value": "one"}, {"id": ids[2] + 1, "value": "next"})
    kind, message = host.read()
    assert kind == "finished" and ok(message) == "next one\n" and "cancelled" not in message


def test_the_end_of_a_cell_while_suspended_wakes(host):
    host.start("import asyncio\ntry: await asyncio.wait_for(llm_query('slow'), 0.1)\nexcept asyncio.TimeoutError: pass")
    kind, message = host.read()
    call = message["calls"][0]["id"]
    assert host.read()[0] == "wake"
    host.resume()
    kind, message = host.read()
    assert kind == "finished" and message["cancelled"] == [call]


def test_yield_is_answered_in_mid_computation(host):
    host.start("import threading, time\nx = []\nt = threading.Thread(target=lambda: x.append(search('q')))\nt.start()\n"
               "while not x: pass\nt.join()\n'done'")
    kind, message = host.read()
    assert kind == "suspended" and len(message["calls"]) == 1
    host.resume()
    times = []
    for _ in range(5):
        began = time.monotonic()
        host.send("yield", {})
        kind, reply = host.read()
        times.append(time.monotonic() - began)
        assert kind == "suspended" and reply == {"calls": [], "pending": [message["calls"][0]["id"]]}
        host.resume()
    host.resume({"id": message["calls"][0]["id"], "value": 1})
    kind, message = host.read()
    assert kind == "finished" and ok(message) == "'done'\n"


def test_a_yield_that_crosses_is_ignored(host):
    ok(host.run("1"))
    host.send("yield", {})
    assert ok(host.run("2")) == "2\n"


def test_errors_of_calls(host):
    def fail(kind):
        return lambda call: {"error": {"type": kind, "message": "why", "reason": "budget", "agent_id": "root.1"}}
    for kind in ("ValueError", "TypeError", "FileNotFoundError", "HostCallError", "ToolInterrupted"):
        message = host.run("await llm_query('q')", fail(kind))
        assert message["error"]["type"] == kind and message["error"]["message"] == "why"
        assert "await llm_query('q')" in message["error"]["traceback"] and "<worker>" not in message["error"]["traceback"]
    assert host.run("search('q')", fail("Strange"))["error"]["type"] == "HostCallError"
    assert ok(host.run("try: search('q')\nexcept HostCallError as e: print(e.reason, e.message, e.agent_id)",
                       fail("ToolInterrupted"))) == "budget why root.1\n"
    failure = {"$failure": {"reason": "budget", "message": "no more", "agent_id": "root.2"}}
    assert ok(host.run("r = await launch_subagents([{'query': 'x'}])\n"
                       "print(r[0], isinstance(r[0], Failure), r[0].reason, r[0].agent_id)\n"
                       "import pickle\npickle.loads(pickle.dumps(r[0])).message",
                       lambda call: {"value": [failure]})) == "[budget: no more] True budget root.2\n'no more'\n"


def test_wrong_arguments_are_type_errors_at_once(host):
    for code, part in (
            ("await launch_subagents({'query': 'x'})", "takes a list of specs"),
            ("await launch_subagents('x')", "takes a list of specs"),
            ("await llm_query_batched('x')", "takes a list of prompts"),
            ("search()", "search() missing a required argument: 'query'"),
            ("search('q', limits=3)", "search() got an unexpected keyword argument 'limits'"),
            ("r = launch_subagents([{'query': 'x'}])\nr[0]", "launch_subagents(...) must be awaited"),
            ("for a in launch_subagents([]): pass", "launch_subagents(...) must be awaited")):
        error = host.run(code, echo)["error"]
        assert error["type"] == "TypeError" and part in error["message"], error
    assert "limit=5" in ok(host.run("import inspect\nprint(inspect.signature(search))"))
    assert "what to find" in ok(host.run("help(search)"))


def test_forgotten_coroutines_are_awaited_or_named(host):
    message = host.run("answer = llm_query('q')\nprint('end')", echo)
    assert ok(message) == "end\n" and "`answer`" in message["notes"][0], message
    assert ok(host.run("answer")) == "'reply to q'\n"
    message = host.run("async def mine(): pass\nmine()\nNone")
    assert any("mine" in note and "never" in note for note in message["notes"]), message


@pytest.mark.parametrize("code, note", [
    ("for i in range(200): launch_subagents([{'query': str(i)}])\n1/0",
     "200 times: launch_subagents(...) was not awaited and did nothing"),
    ("waiting = [llm_query(str(i)) for i in range(200)]",
     "200 times: llm_query(...) was not awaited; it ran at the end of the cell and its result is lost; write "
     "`... = await llm_query(...)`"),
])
def test_what_was_forgotten_often_is_said_once(host, code, note):
    assert host.run(code, echo)["notes"] == [note]


def test_notes_of_a_cell_are_bounded(host):
    """Each of these is another one."""
    message = host.run("waiting = [llm_query(str(i)) for i in range(200)]\nNone",
                       lambda call: {"error": {"type": "ValueError", "message": call["args"][0]}})
    assert len(message["notes"]) == 21 and "failed: ValueError: 19" in message["notes"][19]
    assert message["notes"][20] == "180 more notes were left out"


def test_tasks_are_cancelled_at_the_end(host):
    host.start("import asyncio\nasync def forever():\n    try: await llm_query('x')\n    finally: print('cleaned')\n"
               "t = asyncio.create_task(forever())\nawait asyncio.sleep(0.2)")
    kind, message = host.read()
    assert kind == "suspended"
    call = message["calls"][0]["id"]
    assert host.read()[0] == "wake"
    host.resume()
    kind, message = host.read()
    assert kind == "finished" and message["cancelled"] == [call] and message["output"] == "cleaned\n"
    assert any("forever" in note for note in message["notes"])


def test_done_unwinds_past_ordinary_handlers(host):
    message = host.run("try:\n    try: done(5)\n    except Exception: print('caught')\nfinally: print('finally')\n"
                       "print('after')", lambda call: {"value": None})
    assert ok(message) == "finally\n"
    assert host.calls[0]["args"] == [5] and host.calls[0]["kwargs"] == {"text": "5"}


def test_after_done_every_call_ends_the_cell(host):
    message = host.run("try: done('a')\nexcept BaseException as e: print(type(e).__name__)\n"
                       "try: search('q')\nexcept BaseException as e: print(type(e).__name__)\n"
                       "await llm_query('x')\nprint('never')", lambda call: {"value": None})
    assert ok(message) == "CellEnded\nCellEnded\n" and len(host.calls) == 1
    assert ok(host.run("await llm_query('next cell')", echo)) == "'reply to next cell'\n"


def test_done_in_a_task_ends_the_cell(host):
    began = time.monotonic()
    message = host.run("import asyncio\nasync def work(): done('x')\nt = asyncio.create_task(work())\n"
                       "await asyncio.sleep(30)", lambda call: {"value": None})
    assert message["error"] is None and time.monotonic() - began < 20


@pytest.mark.parametrize("wait", ["time.sleep(60)", "await asyncio.sleep(60)", "while True: pass"])
def test_done_in_a_thread_ends_the_cell(host, wait):
    message = host.run("import asyncio, threading, time\nt = threading.Thread(target=done, args=('x',))\nt.start()\n" + wait,
                       lambda call: {"value": None})
    assert message["error"] is None and message["output"] == ""
    assert ok(host.run("await llm_query('q')", echo)) == "'reply to q'\n"


def test_a_refused_answer_is_an_error_at_the_call(host):
    message = host.run("done({1})", lambda call: {"error": {"type": "ValueError", "message": "does not fit"}})
    assert message["error"]["type"] == "ValueError" and host.calls[0]["args"] == [{"$set": [1]}]
    host.run("done(object)", lambda call: {"value": None})
    assert host.calls[0]["args"] == [] and host.calls[0]["kwargs"] == {"text": "<class 'object'>"}
