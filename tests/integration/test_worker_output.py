"""What cells print: order, limits, what is shown meanwhile and what is not lost."""
import re
import time

import pytest
from worker_host import Ended
from workers import echo, host, make_host, ok, python, shared  # noqa: F401


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


@pytest.mark.parametrize("code", [
    "os.close(1)\nos.close(2)",
    "os.dup2(os.open('/dev/null', os.O_WRONLY), 1)",
    "os.close(2)\nmine = open('/dev/null', 'w')\nassert mine.fileno() == 2",
])
def test_descriptors_that_a_cell_has_closed_or_redirected_come_back(python, code):
    with make_host(python) as host:
        message = host.run("import os\n" + code)
        assert message["error"] is None
        assert message["notes"] == [
            "descriptor 1 or 2 was left closed or redirected; the session's own are back"]
        message = host.run("os.system('echo out; echo err >&2')")
        assert (message["output"], message["notes"]) == ("out\nerr\n0\n", [])


def test_descriptors_that_are_redirected_for_a_while_are_let_be(host):
    message = host.run("import os\nreader, writer = os.pipe()\nsaved = os.dup(1)\nos.dup2(writer, 1)\n"
                       "os.system('echo aside')\nos.dup2(saved, 1)\nos.close(saved)\nos.system('echo back')\n"
                       "os.read(reader, 100)")
    assert (message["output"], message["notes"]) == ("back\nb'aside\\n'\n", [])


def test_many_threads_that_print_at_once_lose_nothing(host):
    text = ok(host.run("import threading\n"
                       "def say(i):\n    for _ in range(500): print('<%d>' % i, end='')\n"
                       "threads = [threading.Thread(target=say, args=(i,)) for i in range(50)]\n"
                       "for t in threads: t.start()\nfor t in threads: t.join()"))
    said = re.findall(r"<\d+>", text)
    assert "".join(said) == text and sorted(said) == sorted("<%d>" % i for i in range(50) for _ in range(500))


def test_threads_that_go_on_printing_lose_nothing_and_hinder_no_cell(python):
    with make_host(python, limits={"output_bytes": 1 << 24}) as host:
        messages = [host.run(code, echo) for code in (
            "import os, threading\nstop = False\ncounts = [0] * 20\n"
            "def say(i):\n    while not stop:\n        print('x', end='')\n        counts[i] += 1\n"
            "threads = [threading.Thread(target=say, args=(i,)) for i in range(20)]\n"
            "for t in threads: t.start()\nprint('[begun]')",
            "search('q')\nprint('[called]')", "await llm_query('q')\nprint('[awaited]')",
            "os.system('echo [shell]')\nNone",
            "stop = True\nfor t in threads: t.join()\nprint('[end]', sum(counts))")]
        texts = [ok(message) for message in messages]
        for word, text in zip("begun called awaited shell end".split(), texts):
            assert "[%s]" % word in text
        told = int(texts[-1].split("[end] ")[1])
        assert told == sum(text.count("x") for text in texts) + sum(m["omitted"] for m in messages)
        assert ok(host.run("print('quiet')")) == "quiet\n"


def test_a_loop_that_prints_leaves_other_threads_their_turn(host):
    """Each look at the pipe of descriptors 1 and 2 lets go of the interpreter's lock for a moment, and makes
    those who wait for it begin anew: it is theirs only if there is time enough between two looks."""
    code = ("import sys, time\nlooks = []\nhas_piped = sys.stdout.output.has_piped\n"
            "def look(timeout):\n    looks.append(time.monotonic())\n    return has_piped(timeout)\n"
            "sys.stdout.output.has_piped = look\nwhile len(looks) < 100: print(end='.')\n"
            "sys.stdout.output.has_piped = has_piped\n"
            "min(b - a for a, b in zip(looks, looks[1:])) >= 2 * sys.getswitchinterval()")
    assert ok(host.run(code)).lstrip(".") == "True\n"
