"""The worker as a process: its ends, its streams, what it forks, what it runs out of."""
import signal
import time

import pytest
from worker_host import Ended, Host, SOURCE, stub
from workers import BIG, echo, host, make_host, ok, python, shared  # noqa: F401


def test_children_do_not_inherit_the_stream(host):
    out = ok(host.run("import os, subprocess\nprint(subprocess.run(['ls', '/proc/self/fd'], stdout=-1, close_fds=False).stdout)"))
    assert out == "b'0\\n1\\n2\\n3\\n'\n"


def test_a_forked_child_cannot_speak_for_the_session(host):
    code = ("import os, sys\npid = os.fork()\nif pid == 0:\n    print('child')\n    try: search('q')\n"
            "    except RuntimeError as e: print('refused')\n    sys.exit()\nos.waitpid(pid, 0)\nprint('parent')")
    assert ok(host.run(code)) == "child\nrefused\nparent\n"
    assert ok(host.run("print(1)")) == "1\n"
    host.run("sys.__stdout__ = sys.__stderr__ = sys.stdout = None\n"
             "if os.fork() == 0: search('q')\nos.wait()")
    assert ok(host.run("print(2)")) == "2\n"


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
