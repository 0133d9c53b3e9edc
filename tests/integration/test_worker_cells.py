"""What cells do and show, and how errors look."""
import subprocess
import time

import pytest
from worker_host import Host
from workers import TOOLS, echo, host, make_host, ok, python, shared  # noqa: F401


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


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_deleted_stream_comes_back(host, name):
    message = host.run("import sys\ndel sys.%s" % name)
    assert any("stdout or sys.stderr was left replaced" in note for note in message["notes"])
    assert ok(host.run("print('out')\nprint('err', file=sys.stderr)")) == "out\nerr\n"


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
