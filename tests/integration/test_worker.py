"""The worker, driven over its protocol, on every Python that is here."""
import glob
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from worker_host import SOURCE, Ended, Host, stub  # noqa: E402

DEBIAN = "/usr/bin/python3"
BIG = {
    "ascii": "".join("line %d of a text\n" % i for i in range(4000)) + "NEEDLE",
    "latin": "".join("línea %d ü\n" % i for i in range(4000)) + "NEEDLE",
    "wide": "".join("行 %d of a text\n" % i for i in range(4000)) + "NEEDLE",
    "astral": "".join("🙂 %d of a text\n" % i for i in range(4000)) + "NEEDLE",
}


def interpreters():
    """Debian's, always, and any other version found on PATH or where pyenv keeps them."""
    found = {}
    for minor in range(8, 15):
        name = "python3.%d" % minor
        for path in [shutil.which(name)] + sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/" + name))):
            if path and minor not in found:
                found_one = subprocess.run([path, "-c", "import ctypes, sys; print(sys.executable)"],
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                if found_one.returncode == 0:
                    found[minor] = found_one.stdout.strip()
    paths = [DEBIAN] + [p for p in found.values() if os.path.realpath(p) != os.path.realpath(DEBIAN)]
    return paths


@pytest.fixture(params=interpreters(), scope="module",
                ids=lambda p: re.sub(r"^.*/(versions/)?", "", p.replace("/bin/", "-")) if p != DEBIAN else "debian")
def python(request):
    return request.param


INPUTS = {"text": "hello", "n": 7, "list": [1, 2], "class": "keyword", "print": "builtin", "two words": "x",
          "corpus": {"$blob": "b-ascii"}, "docs": {"$dir": {"name": "docs", "files": [["a.txt", 3], ["b.txt", 4]]}}}
TOOLS = [
    {"name": "search", "description": "Finds things.", "parameters": {
        "type": "object", "properties": {"query": {"type": "string", "description": "what to find"},
                                         "limit": {"type": "integer", "default": 5}},
        "required": ["query"]}},
    {"name": "fetch", "description": "Fetches.", "async": True,
     "parameters": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}},
]


def make_host(python, **members):
    members.setdefault("inputs", INPUTS)
    members.setdefault("tools", TOOLS)
    host = Host(python, **members)
    host.blob_with_descriptor("b-ascii", BIG["ascii"])
    return host.open()


class Shared:
    """One session for the tests of an interpreter, made anew after a test that broke it."""

    host = None

    def get(self, python):
        if self.host is None or self.host.broken:
            self.close()
            self.host = make_host(python)
        return self.host

    def close(self):
        if self.host is not None:
            self.host.close()


@pytest.fixture(scope="module")
def shared(python):
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def host(shared, python):
    host = shared.get(python)
    host.outputs.clear()
    yield host
    host.broken = host.broken or host.in_cell


def ok(message):
    assert message["error"] is None, message["error"]["traceback"]
    return message["output"]


def echo(call):
    """Answers any call with what it was given."""
    if call["name"] == "llm_query":
        return {"value": "reply to " + call["args"][0]}
    if call["name"] == "llm_query_batched":
        return {"value": ["reply to " + p for p in call["args"][0]]}
    if call["name"] == "launch_subagents":
        return {"value": ["answer %d" % i for i in range(len(call["args"][0]))]}
    if call["name"] == "budget":
        return {"value": {"tokens": 5}}
    if call["name"] == "read_input":
        return {"value": "content of " + call["args"][1]}
    return {"value": {"args": call["args"], "kwargs": call["kwargs"]}}


# ---- cells ---------------------------------------------------------------------------------------


def test_ready_says_who_it_is(host, python):
    version = subprocess.run([python, "-c", "import platform; print(platform.python_version())"],
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    assert host.ready["python"] == version.rstrip("+")
    assert host.ready["pid"] == host.process.pid
    assert host.ready["mapped"] is True, host.ready


def test_modules_are_prepared_when_they_come_at_last(python):
    """Looked for, and not imported; imported, and that failed; then imported."""
    with make_host(python) as host:
        ok(host.run("import importlib.util, sys\nimportlib.util.find_spec('asyncio')\nsys.modules['selectors'] = None"))
        assert host.run("import asyncio")["error"]["type"] in ("ImportError", "ModuleNotFoundError")
        ok(host.run("for name in [n for n in sys.modules if n.split('.')[0] in ('asyncio', 'selectors')]: del sys.modules[name]"))
        assert ok(host.run("await llm_query('q')", echo)) == "'reply to q'\n"


def test_a_session_imports_little(python):
    """What takes long to import waits for somebody who needs it."""
    heavy = ["ast", "asyncio", "ctypes", "enum", "inspect", "json", "random", "re", "socket", "threading", "traceback"]
    report = "import sys\nprint(*(m for m in %r if m in sys.modules))" % heavy
    bare = subprocess.run([python, "-s", "-c", report], stdout=subprocess.PIPE, text=True).stdout
    with Host(python, inputs={"text": "hello"}, tools=TOOLS) as host:
        assert ok(host.run("1 + 1")) == "2\n"
        assert ok(host.run("x = text\nprint(x)")) == "hello\n"
        assert ok(host.run(report)) == bare


def test_a_worker_that_waits_imports_meanwhile(python):
    """One that was started ahead has asyncio there before its session begins."""
    host = Host(python)
    while "_asyncio" not in open("/proc/%d/maps" % host.process.pid).read():
        time.sleep(0.01)
    with host:
        assert ok(host.run("import sys\nprint('asyncio' in sys.modules)")) == "True\n"
        assert ok(host.run("import asyncio\nawait asyncio.sleep(0)\nprint(await llm_query('q'))", echo)) == "reply to q\n"


@pytest.mark.parametrize("code, output", [
    ("print(1)", "1\n"),
    ("1 + 1", "2\n"),
    ("x = 5\nx * 2", "10\n"),
    ("None", ""),
    ("'a' + 'b'", "'ab'\n"),
    ("", ""),
    ("# nothing", ""),
    ("if 1: print('one')", "one\n"),
    ("a = 1; a", "1\n"),
    ("import asyncio\nawait asyncio.sleep(0)\n7", "7\n"),
    ("[await asyncio.sleep(0, i) for i in range(3)]", "[0, 1, 2]\n"),
    ("async def f(): return 9\nf()", "9\n"),
    ("import asyncio\nasync def g(): return 3\nprint(asyncio.run(g()))", "3\n"),
    ("import sys\nsys.stdout.write('é')\nsys.stderr.write('err')\nsys.stdout.buffer.write(b'\\xff!')\nNone", "éerr\\xff!"),
    ("print(sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.fileno(), sys.argv)", "False utf-8 1 ['']\n"),
    ("print('\\ud800')", "\ud800\n"),
    ("__name__", "'__main__'\n"),
    ("import __main__\n__main__.__dict__ is globals()", "True\n"),
    ("'' in sys.path", "False\n"),
])
def test_output_of_a_cell(host, code, output):
    assert ok(host.run("import sys, asyncio")) == ""
    assert ok(host.run(code)) == output


def test_errors_show_the_agents_own_lines(host):
    message = host.run("def f(x):\n    return 1 / x\n\nf(0)")
    error = message["error"]
    assert error["type"] == "ZeroDivisionError"
    n = message["cell"]
    assert 'File "<cell %d>", line 4, in <module>' % n in error["traceback"]
    assert "    return 1 / x" in error["traceback"]
    assert "worker" not in error["traceback"]
    again = host.run("x = 1\nf(0)")["error"]["traceback"]
    assert 'File "<cell %d>", line 2, in f' % n in again
    chained = host.run("try:\n    f(0)\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e")["error"]
    assert "direct cause" in chained["traceback"] and chained["message"] == "'k'"


def test_a_syntax_error_points_at_its_place(host):
    error = host.run("x = 1\nif x\n    y")["error"]
    assert error["type"] == "SyntaxError"
    assert "line 2" in error["traceback"] and "if x" in error["traceback"] and "^" in error["traceback"]
    assert "Traceback" not in error["traceback"]
    error = host.run("x = 1\nreturn x")["error"]
    assert error["type"] == "SyntaxError" and "    return x" in error["traceback"]
    assert host.run("a\0b")["error"]["type"] in ("SyntaxError", "ValueError")


@pytest.mark.parametrize("code, message", [
    ("import sys; sys.exit(3)", "SystemExit: 3"), ("exit()", "SystemExit"), ("raise SystemExit", "SystemExit")])
def test_exit_is_an_error_and_the_session_goes_on(host, code, message):
    error = host.run(code)["error"]
    assert error["type"] == "SystemExit"
    assert error["message"].startswith(message) and "the session goes on" in error["message"]
    assert host.run("input()")["error"]["type"] == "EOFError"


def test_an_echo_is_bounded_and_a_failing_repr_is_reported(host):
    out = ok(host.run("'z' * 10_000_000"))
    assert len(out) < 200_000 and "left out" in out
    message = host.run("class Bad:\n    def __repr__(self): raise RuntimeError('no')\nBad()")
    assert message["error"]["type"] == "RuntimeError"
    assert "Bad object" in message["output"]


def test_a_replaced_stdout_comes_back(host):
    message = host.run("import io, sys\nsys.stdout = io.StringIO()\nprint('lost')")
    assert any("stdout" in note for note in message["notes"])
    assert ok(host.run("print('back')")) == "back\n"
    assert ok(host.run("import contextlib\nb = io.StringIO()\n"
                       "with contextlib.redirect_stdout(b): print('in')\nb.getvalue()")) == "'in\\n'\n"


def test_the_main_module_is_the_agents(host):
    ok(host.run("import pickle, dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\ndef sq(x): return x*x"))
    assert ok(host.run("pickle.loads(pickle.dumps(P(3)))")) == "P(x=3)\n"
    assert ok(host.run("import multiprocessing as mp\nwith mp.get_context('fork').Pool(2) as p: print(p.map(sq, [1, 2, 3]))",
                       )) == "[1, 4, 9]\n"


def test_a_future_import_lasts(python):
    with make_host(python) as host:
        ok(host.run("from __future__ import annotations"))
        assert ok(host.run("def f(x: undefined): pass\nf.__annotations__")) == "{'x': 'undefined'}\n"


def test_random_is_seeded(python):
    outputs = set()
    for _ in range(2):
        with make_host(python, inputs={}) as host:
            outputs.add(ok(host.run("import random\nrandom.random()")))
    assert len(outputs) == 1
    with make_host(python, inputs={}, seed="ff") as host:
        assert ok(host.run("import random\nrandom.random()")) not in outputs


# ---- output --------------------------------------------------------------------------------------


def test_descriptors_and_prints_stand_in_order(host):
    code = ("import os, subprocess, time\n"
            "print('a')\nos.system('echo b')\nprint('c')\nsubprocess.run(['sh', '-c', 'echo d >&2'])\n"
            "print('e')\nos.write(1, b'f\\xff\\n')\nNone")
    assert ok(host.run(code)) == "a\nb\nc\nd\ne\nf\\xff\n"
    assert ok(host.run("os.read(0, 10)")) == "b''\n"


def test_asyncio_runs_processes(host):
    assert ok(host.run("import asyncio\np = await asyncio.create_subprocess_shell('echo hi', stdout=asyncio.subprocess.PIPE)\n"
                       "(await p.communicate())[0]")) == "b'hi\\n'\n"


def test_a_flood_keeps_head_and_tail(python):
    with make_host(python, limits={"output_bytes": 10000}) as host:
        message = host.run("print('HEAD', end='')\nfor i in range(50000): print('0123456789')\nprint('TAIL')")
        text = message["output"]
        assert text.startswith("HEAD01234") and text.endswith("TAIL\n")
        assert 10000 <= len(text) < 10200
        assert message["omitted"] == 4 + 50000 * 11 + 5 - 10000
        assert format(message["omitted"], ",") + " characters omitted" in text
        before = resident(host)
        message = host.run("s = 'x' * 100_000_000\nprint(s)\ndel s\nprint('end')")
        assert message["output"].endswith("end\n") and message["omitted"] == 100_000_005 - 10000
        message = host.run("import os\nos.system('yes 0123456789 2>/dev/null | head -c 20000000'); print('end')")
        assert message["output"].endswith("end\n") and message["omitted"] == 20_000_004 - 10000
        assert resident(host) < before + 50_000
        assert ok(host.run("print('small')")) == "small\n"


def resident(host):
    return int(re.search(r"VmRSS:\s+(\d+)", open("/proc/%d/status" % host.process.pid).read()).group(1))


def test_a_large_output_travels_as_a_body(host):
    assert ok(host.run("print('é' * 500_000)")) == "é" * 500_000 + "\n"


def test_output_is_shown_while_a_cell_runs(host):
    host.start("import time\nprint('early')\ntime.sleep(0.5)\nprint('late')")
    message = host.drive()
    assert message["output"] == "early\nlate\n"
    assert any(o["output"] == "early\n" and o["cell"] == message["cell"] for o in host.outputs)


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.execv('/bin/true', ['true'])"])
def test_what_was_flushed_is_not_lost_with_the_process(python, end):
    with make_host(python) as host:
        host.start("import os\nos.system('echo child')\nprint('flushed', flush=True)\n" + end)
        with pytest.raises(Ended):
            host.read()
        assert host.outputs[-1]["output"] == "child\nflushed\n"


def test_nothing_is_lost_with_os_exit(python):
    with make_host(python) as host:
        ok(host.run("import os, sys\nprint('other')"))
        for _ in range(2):
            ok(host.run("if os.fork() == 0:\n    print('child')\n    os._exit(3)\nos.wait()\nNone"))
        host.start("for i in range(1000): print(i % 10, end='', flush=True)\nsys.stderr.write('end')\nos._exit(0)")
        with pytest.raises(Ended):
            host.read()
        assert host.outputs[-1]["output"] == "0123456789" * 100 + "end"


def test_code_that_flushes_in_a_signal_handler_does_not_hang(host):
    """The handler may strike while the session sends."""
    code = ("import signal\ndef strike(*args):\n    print('.', end='', flush=True)\n"
            "    signal.setitimer(signal.ITIMER_REAL, 0.0003)\n"
            "signal.signal(signal.SIGALRM, strike)\nstrike()\n"
            "for i in range(300): search('q')\n"
            "signal.setitimer(signal.ITIMER_REAL, 0)\nNone")
    assert set(ok(host.run(code, echo))) == {"."}


def test_output_that_is_as_long_as_that_of_the_cell_before_is_shown(host):
    for word in ("first", "other"):
        host.run("import time\nprint(%r)\ntime.sleep(0.4)" % word)
        assert [o["output"] for o in host.outputs] == [word + "\n"]
        host.outputs.clear()


def test_a_background_thread_prints_into_the_next_cell(host):
    ok(host.run("import threading, time\ndef later():\n    time.sleep(0.2); print('later')\n"
                "t = threading.Thread(target=later); t.start()"))
    time.sleep(0.5)
    assert ok(host.run("print('now')")) == "later\nnow\n"


# ---- host calls ----------------------------------------------------------------------------------


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


# ---- done ----------------------------------------------------------------------------------------


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


# ---- interrupts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [
    "while True: pass",
    "import time\ntime.sleep(60)",
    "import subprocess\nsubprocess.run(['sleep', '60'])",
    "import asyncio\nawait asyncio.sleep(60)",
    "import asyncio\nasyncio.run(asyncio.sleep(60))",
    "import asyncio\nt = asyncio.create_task(asyncio.sleep(50))\nwhile True:\n    await asyncio.sleep(0)",
    "import signal\nsignal.signal(signal.SIGINT, lambda *a: None)\nimport threading\nthreading.Event().wait(60)",
    "while True: print('x', end='')",
    "while True:\n    try: import time; time.sleep(60)\n    except Exception: pass",
])
def test_an_interrupt_ends_the_cell_and_keeps_variables(host, code):
    host.start("kept = 41\n" + code)
    time.sleep(0.05)
    host.send("interrupt", {"reason": "exec_timeout", "message": "the cell ran for 2 s"})
    message = host.drive()
    assert message["error"]["type"] == "CellInterrupted" and message["error"]["message"] == "the cell ran for 2 s"
    assert ok(host.run("kept + 1")) == "42\n"


@pytest.mark.parametrize("code", ["search('q')", "await llm_query('q')",
                                  "import threading\nt = threading.Thread(target=quietly)\nt.start()\nt.join()"])
def test_an_interrupt_reaches_a_cell_that_waits_for_the_host(host, code):
    ok(host.run("def quietly():\n    try: search('q')\n    except ToolInterrupted: pass"))
    host.start(code)
    kind, message = host.read()
    assert kind == "suspended"
    host.resume()
    host.send("interrupt", {"reason": "stopped", "message": "stop"})
    message = host.drive()
    assert message["error"]["type"] == "CellInterrupted"
    assert len(message["cancelled"]) == 1


def test_an_interrupt_ends_a_suspended_cell(host):
    host.start("x = await llm_query('q')")
    kind, message = host.read()
    host.send("interrupt", {"reason": "stopped", "message": "stop"})
    assert host.read()[0] == "wake"
    host.resume()
    kind, finished = host.read()
    assert kind == "finished" and finished["error"]["type"] == "CellInterrupted"
    assert finished["cancelled"] == [message["calls"][0]["id"]]


def test_code_that_swallows_an_interrupt_gets_the_next(host):
    host.start("import time\nk = 0\nwhile k < 2:\n    try: time.sleep(60)\n    except BaseException: k += 1\nk")
    for _ in range(2):
        time.sleep(0.2)
        host.send("interrupt", {"reason": "exec_timeout", "message": "x"})
    assert ok(host.drive()) == "2\n"


def test_an_interrupt_between_cells_is_ignored(host):
    ok(host.run("1"))
    host.send("interrupt", {"reason": "x", "message": "x"})
    assert ok(host.run("import time\ntime.sleep(0.05)\n2")) == "2\n"


# ---- values --------------------------------------------------------------------------------------


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


def test_a_large_call_of_another_thread_is_made_on_yield(host):
    """The monitor, which hears `yield`, reads the credit that its own message needs."""
    host.start("import asyncio, time\nt = asyncio.create_task(llm_query_batched(['p' * 1000] * 3000))\n"
               "await asyncio.sleep(0)\nend = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass\nr = await t\nlen(r)")
    time.sleep(0.1)
    host.send("yield", {})
    kind, message = host.read()
    assert kind == "suspended" and len(message["calls"]) == 1
    host.resume({"id": message["calls"][0]["id"], "value": [1, 2]})
    assert ok(host.drive(echo)) == "2\n"


# ---- inputs --------------------------------------------------------------------------------------


CHECK_TEXT = """
import gc, pickle, re, copy
big = INPUTS["big"]
plain = "".join(list(big))
gc.collect()
assert type(big) is str and big == plain and hash(big) == hash(plain) and len(big) == len(plain)
assert big[5:50] == plain[5:50] and big[-6:] == "NEEDLE" and big[100] == plain[100] and big[:] == plain
assert big.find("NEEDLE") == len(plain) - 6 and "NEEDLE" in big and big.count("line") == plain.count("line")
assert re.search("NEE(D)LE", big).start() == len(plain) - 6 and len(re.findall("\\\\d+", big)) == len(re.findall("\\\\d+", plain))
assert big.encode() == plain.encode() and {big: 1}[plain] == 1 and big in {plain}
assert pickle.loads(pickle.dumps(big)) == plain and copy.deepcopy(big) == plain and big.isascii() == plain.isascii()
assert big.upper() == plain.upper() and big.split() == plain.split() and big + "x" == plain + "x" and (big < "z") == (plain < "z")
assert "%s" % big == plain and f"{big}" == plain and str(big) == plain and big.strip() == plain.strip() and big.splitlines() == plain.splitlines()
assert open("/dev/null", "w", encoding="utf-8").write(big) == len(plain)
import json, hashlib
assert json.loads(json.dumps(big)) == plain and hashlib.sha256(big.encode()).digest() == hashlib.sha256(plain.encode()).digest()
for _ in range(3):
    junk = [[] for _ in range(10000)]; junk.append(junk); del junk; gc.collect()
grown = big; grown += "y"; assert grown == plain + "y" and big == plain
ns = {}; exec("x = 1", {big: 1}, ns)
big.zfill(3), big.join(["a", "b"]), big.translate({65: None}), big.partition("NEEDLE")
print("fine", sum(1 for c in big) == len(plain))
"""


@pytest.fixture(scope="module")
def big_texts(python):
    names = ["%s_%s" % (name, how) for name in BIG for how in ("mapped", "streamed")]
    host = Host(python, inputs={name: {"$blob": name} for name in names})
    for name in names:
        text = BIG[name.split("_")[0]]
        (host.blob_with_descriptor if name.endswith("mapped") else host.blob_streamed)(name, text)
    yield host.open()
    host.close()


@pytest.mark.parametrize("how", ["mapped", "streamed"])
@pytest.mark.parametrize("name", sorted(BIG))
def test_a_big_text_behaves_like_any(big_texts, how, name):
    name = "%s_%s" % (name, how)
    digest = hashlib.sha256(BIG[name.split("_")[0]].encode()).hexdigest()
    assert ok(big_texts.run(CHECK_TEXT.replace('"big"', repr(name)))) == "fine True\n"
    assert ok(big_texts.run("hashlib.sha256(%s.encode()).hexdigest()" % name)) == repr(digest) + "\n"


def test_a_mapped_text_takes_no_memory_of_its_own(python):
    host = Host(python, inputs={"big": {"$blob": "h1"}})
    try:
        host.blob_with_descriptor("h1", "x" * 40_000_000)
        host.open()
        assert ok(host.run("len(big), big.count('x')")) == "(40000000, 40000000)\n"
        anonymous = int(re.search(r"RssAnon:\s+(\d+)", open("/proc/%d/status" % host.process.pid).read()).group(1))
        assert anonymous < 40_000
    finally:
        host.close()


def test_bytes_inputs_and_small_descriptors(python):
    host = Host(python, inputs={"data": {"$blob": "h1"}, "empty": {"$blob": "h2"}, "tiny": {"$blob": "h3"}})
    try:
        data = bytes(range(256)) * 1000
        host.blob_with_descriptor("h1", data)
        host.blob_with_descriptor("h2", "")
        host.blob_streamed("h3", b"tiny")
        host.open()
        assert ok(host.run("data == bytes(range(256)) * 1000, empty, tiny")) == "(True, '', b'tiny')\n"
    finally:
        host.close()


def test_inputs_are_bound_and_cannot_be_changed(host):
    assert ok(host.run("text, n, list(INPUTS)[:3]")) == "('hello', 7, ['text', 'n', 'list'])\n"
    assert ok(host.run("print is INPUTS['print'], INPUTS['two words']")) == "(False, 'x')\n"
    for code in ("INPUTS['x'] = 1", "del INPUTS['text']", "INPUTS.update(a=1)", "INPUTS.pop('text')", "INPUTS.clear()"):
        error = host.run(code)["error"]
        assert error["type"] == "TypeError" and "INPUTS cannot be changed" in error["message"]
    error = host.run("INPUTS['nope']")["error"]
    assert error["type"] == "KeyError" and "text" in error["message"]


@pytest.mark.parametrize("code, line", [
    ("x = 1\ntext = text.upper()\nprint('not reached')", 2),
    ("text += 'x'", 1), ("text: str = 'x'", 1), ("for text in 'ab':\n    print('not reached')", 1),
    ("for n in range(3): pass", 1), ("with open('/dev/null') as text:\n    print('not reached')", 1),
    ("import os as text", 1), ("from os import path as text", 1), ("def text(): pass", 1), ("class text: pass", 1),
    ("(text := 'x')", 1), ("if (text := 'x'):\n    print('not reached')", 1), ("del text", 1),
    ("a, (text, b) = 1, (2, 3)", 1), ("[text for q in 'a' if (text := q)]", 1),
    ("def f():\n    global text\n    text = 5\nf()", 3),
    ("try: 1/0\nexcept Exception as text: print('not reached')", 2),
    ("if 1:\n    text = 2\n    print('not reached')", 2),
    ("async def llm_query(p): return 1", 1), ("INPUTS = {}", 1), ("done = True", 1), ("budget = 3", 1),
    ("text = await llm_query('q')", 1),
])
def test_the_names_of_inputs_keep_their_values(host, code, line):
    message = host.run(code, echo)
    assert message["error"] and message["error"]["type"] == "InputNameError", message
    assert "another name" in message["error"]["message"] and "not reached" not in message["output"]
    assert 'line %d, in' % line in message["error"]["traceback"]
    assert ok(host.run("text, n, callable(done), type(INPUTS).__name__, callable(budget)")) == "('hello', 7, True, 'Inputs', True)\n"


@pytest.mark.parametrize("code", [
    "text = INPUTS['text']", "def f(text): text = text.upper(); return text\nf('x')\nNone", "[text for text in 'ab']\nNone",
    "class C:\n    text = 1", "f = lambda text: text", "def g():\n    n = 1\n    return n\ng()\nNone", "c = type('C', (), {})()\nc.text = 1",
    "mytext = 1",
])
def test_local_names_are_free(host, code):
    assert ok(host.run(code)) == ""
    assert ok(host.run("text")) == "'hello'\n"


def test_names_changed_by_a_trick_are_restored(host):
    message = host.run("globals()['text'] = 5")
    assert any("`text`" in note for note in message["notes"]) and ok(host.run("text")) == "'hello'\n"


def test_a_directory_is_read_when_asked(host):
    assert ok(host.run("len(docs), list(docs), docs.sizes['b.txt'], 'a.txt' in docs")) == "(2, ['a.txt', 'b.txt'], 4, True)\n"
    assert ok(host.run("docs['a.txt'] + docs['a.txt']", echo)) == "'content of a.txtcontent of a.txt'\n"
    assert [c["args"] for c in host.calls] == [["docs", "a.txt"]]
    assert host.run("docs['no']")["error"]["type"] == "KeyError"
    assert ok(host.run("dict(docs.items())", echo)) == "{'a.txt': 'content of a.txt', 'b.txt': 'content of b.txt'}\n"
    assert len(host.calls) == 1


def test_env(host):
    assert ok(host.run("ENV")) == "{'RLMFLOW_AGENT_ID': 'root'}\n"
    assert ok(host.run("import os\nsorted(k for k in os.environ if k.startswith('RLM'))")) == "[]\n"


def test_a_mapping_that_fails_is_replaced_by_a_copy(python):
    """The same worker with a layout check that cannot hold."""
    broken = SOURCE.replace('"a", (1, False): "\\xe9"', '"\\xe9", (1, False): "a"')
    assert broken != SOURCE
    host = Host(python, source=broken, inputs={"big": {"$blob": "h1"}})
    try:
        host.blob_with_descriptor("h1", BIG["latin"])
        host.open()
        assert host.ready["mapped"] is False and host.ready["why"]
        assert ok(host.run(CHECK_TEXT)) == "fine True\n"
    finally:
        host.close()


# ---- file tools ----------------------------------------------------------------------------------


def test_file_tools(host, tmp_path):
    ok(host.run("import os\nos.chdir(%r)" % str(tmp_path)))
    assert ok(host.run("print(write_file('d/a.txt', 'é\\r\\nb\\n'))")) == "Wrote 6 bytes to d/a.txt\n"
    assert (tmp_path / "d/a.txt").read_bytes() == "é\r\nb\n".encode()
    assert ok(host.run("read_file('d/a.txt'), line_count('d/a.txt'), read_lines('d/a.txt', 0, 1)")) == "('é\\r\\nb\\n', 2, 'é\\r')\n"
    assert ok(host.run("print(append_file('d/a.txt', 'c'))")) == "Appended 1 bytes to d/a.txt\n"
    assert ok(host.run("print(edit_file('d/a.txt', ('b', 'B'), ('c', 'C')))")) == "Applied 2 edits to d/a.txt\n"
    assert (tmp_path / "d/a.txt").read_bytes() == "é\r\nB\nC".encode()
    assert "anchor not found" in host.run("edit_file('d/a.txt', ('B', 'x'), ('zz', 'y'))")["error"]["message"]
    ok(host.run("write_file('d/t.txt', 'xx')\nNone"))
    assert "appears 2x" in host.run("edit_file('d/t.txt', ('x', 'y'))")["error"]["message"]
    assert ok(host.run("edit_file('d/t.txt', ('x', 'y'), replace_all=True)\nread_file('d/t.txt')")) == "'yy'\n"
    assert ok(host.run("ls(), ls('d'), ls('d/a.txt')")) == "(['d'], ['d/a.txt', 'd/t.txt'], ['d/a.txt'])\n"
    assert ok(host.run("ls(%r)" % str(tmp_path / "d"))) == repr([str(tmp_path / "d/a.txt"), str(tmp_path / "d/t.txt")]) + "\n"
    (tmp_path / "d" / "bin").write_bytes(b"\xff\xfeB")
    assert ok(host.run("print(grep('[By]', '.'))")) == "d/a.txt:2: B\nd/t.txt:1: yy\n"
    assert ok(host.run("print(grep('[By]', max_results=1))")) == "d/a.txt:2: B\n"
    (tmp_path / "raw").write_bytes(b"a\xff\r\n")
    ok(host.run("write_file('raw2', read_file('raw'))\nNone"))
    assert (tmp_path / "raw2").read_bytes() == b"a\xff\r\n"
    assert host.run("read_file('missing')")["error"]["type"] == "FileNotFoundError"
    ok(host.run("os.chdir('/')"))


def test_no_file_tools_unless_asked(python):
    with make_host(python, file_tools=False) as host:
        assert host.run("read_file")["error"]["type"] == "NameError"


# ---- the process ---------------------------------------------------------------------------------


def test_children_do_not_inherit_the_stream(host):
    out = ok(host.run("import os, subprocess\nprint(subprocess.run(['ls', '/proc/self/fd'], stdout=-1, close_fds=False).stdout)"))
    assert out == "b'0\\n1\\n2\\n3\\n'\n"


def test_a_forked_child_cannot_speak_for_the_session(host):
    code = ("import os, sys\npid = os.fork()\nif pid == 0:\n    print('child')\n    try: search('q')\n"
            "    except RuntimeError as e: print('refused')\n    sys.exit()\nos.waitpid(pid, 0)\nprint('parent')")
    assert ok(host.run(code)) == "child\nrefused\nparent\n"
    assert ok(host.run("print(1)")) == "1\n"


@pytest.mark.parametrize("how", ["close", "eof", "eof in a cell", "exit", "crash"])
def test_ends_of_the_process(python, how):
    host = make_host(python, inputs={})
    try:
        if how == "close":
            host.send("close", {})
        elif how == "eof":
            host.socket.shutdown(1)
        elif how == "eof in a cell":
            host.start("while True: pass")
            time.sleep(0.1)
            host.socket.shutdown(1)
        elif how == "exit":
            host.start("import os\nos._exit(3)")
        else:
            host.start("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        with pytest.raises(Ended):
            while True:
                host.read()
        assert host.process.wait(10) == {"exit": 3, "crash": -signal.SIGSEGV}.get(how, 0)
    finally:
        host.close()


def test_close_writes_out_open_files(python, tmp_path):
    path = tmp_path / "out"
    with make_host(python, inputs={}) as host:
        ok(host.run("f = open(%r, 'w')\nf.write('kept')" % str(path)))
        assert path.read_text() == ""
        host.send("close", {})
        assert host.process.wait(10) == 0
    assert path.read_text() == "kept"


def test_a_warm_interpreter_forks_sessions(python):
    program = stub().replace('m.protocol=(r,w);', '') + (
        "\nm.preload()\npid=os.fork()\n"
        "if pid==0: m.serve(r,w)\n"
        "os.close(r)\nos.waitpid(pid,0)\n")
    with Host(python, program=program, inputs={}) as host:
        assert ok(host.run("await llm_query('q')", echo)) == "'reply to q'\n"
        assert ok(host.run("import os\nos.getpid() != %d" % host.process.pid)) == "True\n"
        host.send("close", {})
        assert host.process.wait(10) == 0


@pytest.mark.parametrize("way", ["local", "pipes", "socket"])
def test_over_streams_of_each_kind(python, way):
    host = Host(python, way=way, inputs={"big": {"$blob": "h1"}})
    try:
        host.blob_streamed("h1", BIG["wide"])
        host.open()
        assert ok(host.run("len(big)")) == "%d\n" % len(BIG["wide"])
        assert ok(host.run("await llm_query('q')", echo)) == "'reply to q'\n"
        host.start("import time\ntime.sleep(60)")
        time.sleep(0.1)
        host.send("interrupt", {"reason": "x", "message": "x"})
        assert host.drive()["error"]["type"] == "CellInterrupted"
    finally:
        host.close()


EXHAUST = ("import os, resource\nkept = 'kept'\nlimit = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
           "resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))")


@pytest.mark.parametrize("code, kind, words", [
    ("1/0", "ZeroDivisionError", 'File "<cell 2>", line 1, in <module>'),
    ("def f():\n    return open('/dev/null')\nf()", "OSError", 'File "<cell 2>", line 2, in f'),
    ("await llm_query('q')", "OSError", "Too many open files"),
    ("def f(:", "SyntaxError", ""),
])
def test_without_descriptors_errors_are_the_agents_and_the_session_lives(python, code, kind, words):
    """The first error of a session would import what shows it."""
    with make_host(python) as host:
        ok(host.run(EXHAUST))
        error = host.run(code, echo)["error"]
        assert error["type"] == kind and words in error["traceback"] and "<worker>" not in error["traceback"]
        if kind == "OSError":
            assert "as many files open as it may (3); close files" in error["traceback"]
        assert ok(host.run("resource.setrlimit(resource.RLIMIT_NOFILE, limit)\nkept")) == "'kept'\n"
        assert ok(host.run("await llm_query('q')", echo)) == "'reply to q'\n"


def test_a_text_that_comes_when_there_is_no_descriptor_left(python):
    with make_host(python) as host:
        ok(host.run(EXHAUST))
        host.start("search('q')")
        host.read()
        host.blob_with_descriptor("b-late", BIG["wide"])
        with pytest.raises(AssertionError, match=r"fatal.*as many files open as it may \(3\); close files"):
            host.read()


def test_a_result_for_which_there_is_no_memory(python):
    code = ("import resource\npages = int(open('/proc/self/statm').read().split()[0])\n"
            "resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (8 << 20),) * 2)\nsearch('q')")
    with make_host(python) as host:
        host.start(code)
        call, = host.read()[1]["calls"]
        with pytest.raises(AssertionError, match="no memory left"):
            try:
                host.resume({"id": call["id"], "value": "x" * (40 << 20)})
            except BrokenPipeError:
                pass
            host.read()


def test_a_worker_that_cannot_even_start_says_why(python, tmp_path):
    said = tmp_path / "said"
    program = ("import os, resource\nos.dup2(os.open(%r, os.O_CREAT | os.O_WRONLY), 2)\n"
               "free = os.dup(2)\nos.close(free)\n"
               "resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1,) * 2)\n" % str(said)) + stub()
    host = Host(python, program=program)
    try:
        with pytest.raises((Ended, BrokenPipeError)):
            host.open()
        assert host.process.wait(10) == 1
        assert said.read_text().startswith("the session's process has as many files open as it may (")
    finally:
        host.close()


def test_sync_answers_with_what_was_received(host):
    host.send("sync", {"received": 0})
    assert host.read() == ("sync", {"received": host.sent})


def test_a_wrong_sequence_is_fatal(python):
    host = make_host(python, inputs={})
    try:
        host.sent += 5
        host.send("start", {"cell": 1, "code": ""})
        with pytest.raises(AssertionError, match="fatal"):
            host.read()
    finally:
        host.close()


def test_without_epoll(python):
    """A worker needs no more than poll."""
    with make_host(python, source="import select\ndel select.epoll\n" + SOURCE) as host:
        assert ok(host.run("print(await llm_query('q'))", echo)) == "reply to q\n"
        assert ok(host.run("import os\nos.system('echo a')\nprint(search('q')['kwargs'])", echo)) == "a\n{'query': 'q'}\n"
        for code in ("while True: pass", "import asyncio\nawait asyncio.sleep(60)"):
            host.start(code)
            time.sleep(0.1)
            host.send("interrupt", {"reason": "x", "message": "x"})
            assert host.drive()["error"]["type"] == "CellInterrupted"
