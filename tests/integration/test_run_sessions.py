"""Sessions that die, hang, flood, or are killed: the model is told, the run goes on, nothing is left."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from program import Result
from runs import command, descendants, go, look, mind  # noqa: F401


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def wait_until(holds, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "this never came to hold"
        time.sleep(0.005)


def rss_kib(pid, field="VmHWM"):
    found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


@pytest.mark.parametrize("code, kind, words", [
    ("import sys; sys.exit(3)", "exec", ["SystemExit", "3"]),
    ("import sys; print('before'); sys.exit()", "exec", ["before"]),
    ("raise SystemExit('no')", "exec", ["no"]),
    ("import os; print('before'); os._exit(7)", "exit",
     ["before", "7", "variables are lost"]),
    ("import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.SIGKILL)", "signal",
     ["before", "SIGKILL", "variables are lost"]),
    ("import ctypes; ctypes.string_at(0)", "signal", ["SIGSEGV", "variables are lost"]),
    ("import os\nfor fd in range(3, 64):\n    try: os.close(fd)\n    except OSError: pass", None, ["(no output)"]),
    ("import os; os.closerange(3, 1 << 20)", "exit", ["closed descriptors", "variables are lost"]),
    ("raise KeyboardInterrupt", "exec", ["KeyboardInterrupt"]),
    ("def f(): return f()\nf()", "exec", ["RecursionError"]),
    ("raise BaseException('odd')", "exec", ["odd"]),
    ("raise MemoryError", "exec", ["MemoryError"]),
], ids=range(12))
def test_a_cell_that_ends_its_session(go, code, kind, words):
    run = go(mind({"go": [code, "done('still here')"]}))
    assert (run.code, run.answer) == (0, "still here"), run.stderr
    shown, = run.seen()
    assert all(w in shown for w in words), shown
    assert run.errors() == ([kind] if kind else [])


def test_variables_live_through_exit_and_errors_but_not_through_a_death(go):
    run = go(mind({"go": ["x = 1", "import sys; sys.exit(1)", "1 / 0", "print('x is', x)",
                          "import os; os._exit(1)", "print('x' in globals())", "done('end')"]}))
    assert run.answer == "end"
    assert run.seen()[3].startswith("x is 1") and run.seen()[5].startswith("False")


def test_an_endless_loop_ends_at_its_limit_and_keeps_its_variables(go):
    run = go(mind({"go": ["n = 0\nwhile True: n += 1", "print(n > 0)", "done('end')"]}), "--exec-timeout", "1s")
    assert run.answer == "end" and run.errors() == ["exec_timeout"]
    assert "1 s" in run.seen()[0] and run.seen()[1].startswith("True")


def test_a_loop_that_refuses_to_end_is_killed(go):
    code = ("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "while True:\n    try: time.sleep(1)\n    except BaseException: pass")
    run = go(mind({"go": [code, "done('end')"]}), "--exec-timeout", "300ms")
    assert run.answer == "end" and run.errors() == ["exec_timeout"]
    assert "variables are lost" in run.seen()[0]


@pytest.mark.replayed("recorded", "the code answers with a process id")
def test_processes_of_a_cell_end_with_the_run(go):
    """Also those in a session of their own, that ignore signals and hold the pipes."""
    code = ("import subprocess\n"
            "p = [subprocess.Popen(['/bin/sh', '-c', 'trap \"\" TERM INT HUP; sleep 1000'],"
            " start_new_session=True) for _ in range(3)]\n"
            "done(p[0].pid)")
    run = go(mind({"go": code}))
    assert run.code == 0
    wait_until(lambda: not alive(int(run.answer)))


def test_a_cell_that_waits_for_a_process_ends_at_its_limit(go):
    run = go(mind({"go": ["import subprocess; subprocess.run(['sleep', '1000'])", "done('end')"]}),
             "--exec-timeout", "300ms")
    assert run.answer == "end" and run.errors() == ["exec_timeout"]


def test_cpu_time_is_a_limit_of_its_own(go):
    run = go(mind({"go": ["while True: pass", "done('end')"]}), "--cpu-time", "1s", "--exec-timeout", "60s")
    assert run.answer == "end" and run.errors() == ["cpu_time"], run.seen()


FLOODS = [
    "while True: print('x' * 10000)",
    "import sys\nwhile True: sys.stderr.write('y' * 100)",
    "import os\nwhile True: os.write(1, b'z' * 65536)",
    "import subprocess; subprocess.run('yes', shell=True)",
]


@pytest.mark.replayed("steps", "how much is printed up to the limit is chance")
@pytest.mark.parametrize("code", FLOODS, ids=range(4))
def test_an_endless_print_is_bounded_in_engine_and_worker(start_rlmflow, server, command, code):
    server.set_rules(mind({"go": [code, "done('end')"]}))
    args, path = command(server, "--exec-timeout", "1500ms")
    process = start_rlmflow(*args)
    engine = worker = 0
    while process.poll() is None:
        try:
            engine = max(engine, rss_kib(process.pid))
            worker = max([worker] + [rss_kib(p) for p in descendants(process.pid)])
        except OSError:
            pass
        time.sleep(0.02)
    out, err = process.communicate()
    assert (process.returncode, out) == (0, b"end\n"), err
    assert worker and engine < 100 << 10 and worker < 100 << 10, (engine, worker)
    run_path = sum(p.stat().st_size for p in Path(path).rglob("*") if p.is_file())
    assert run_path < 20 << 20


def test_a_worker_that_is_killed_from_outside(start_rlmflow, server, command, look):
    server.set_rules(mind({"go": ["print('in'); import time; time.sleep(100)", "done('went on')"]}))
    args, path = command(server)
    process = start_rlmflow(*args, "--json")
    while b'"exec_action"' not in process.stdout.readline():
        pass
    wait_until(lambda: descendants(process.pid))
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and b'"answer":"went on"' in out, err
    run = look(Result(out, err, process.returncode), path)
    assert run.errors() == ["signal"] and "SIGKILL" in run.seen()[0]


def test_a_memory_hog_is_an_error_that_the_model_sees(go):
    code = ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))\n"
            "x = []\nwhile True: x.append(b'x' * (10 << 20))")
    run = go(mind({"go": [code, "x = None; done('end')"]}))
    assert run.answer == "end" and "MemoryError" in run.seen()[0]


def test_kill_9_of_the_engine_leaves_no_worker_and_loses_nothing(start_rlmflow, server, command,
                                                                 run_rlmflow):
    code = ("import subprocess, time\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
            "r = await launch_subagents([{'query': 'work'} for _ in range(4)])")
    work = "import time\nprint('written')\ntime.sleep(1000)"
    server.set_rules(mind({"go": ["print('first turn')", code], "work": work}))
    args, path = command(server)
    process = start_rlmflow(*args, "--json", "-q")
    begun = 0
    while begun < 4:
        line = process.stdout.readline()
        assert line
        begun += b'"exec_action"' in line and b"root.child" in line
    wait_until(lambda: len(descendants(process.pid)) >= 5)
    below = descendants(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    began = time.monotonic()
    wait_until(lambda: not any(map(alive, below)), timeout_s=10)
    took = time.monotonic() - began
    process.communicate()
    assert took < 5  # the promise is 1 s; this only tells it from never
    view = run_rlmflow("view", path, "--json")
    assert view.code == 0 and "first turn" in view.stdout
    assert view.stdout.count('"type":"exec_action"') == 6


@pytest.mark.replayed("recorded", "the directory is gone")
def test_a_working_directory_that_vanishes(go, workspace):
    code = "import os, shutil\nshutil.rmtree(os.getcwd())\nprint('gone')"
    folder = workspace.base / "work"
    folder.mkdir()
    run = go(mind({"go": [code, "import os\ntry: os.getcwd()\nexcept FileNotFoundError: print('missing')",
                          "r, = await launch_subagents([{'query': 'work'}])\nprint(repr(r))", "done('end')"],
                   "work": "done('child ran')"}), "--cwd", folder)
    assert run.code == 0 and run.answer == "end", run.stderr
    assert run.seen()[1].startswith("missing")
    assert all(word in run.seen()[2] for word in ("work", "failed", "No such file")), run.seen()[2]


def test_a_working_directory_that_was_never_there(run_rlmflow, server, command):
    server.set_rules(mind({"go": "done(1)"}))
    args, _ = command(server, "--cwd", "/nonexistent/folder")
    r = run_rlmflow(*args)
    assert r.code in (1, 2) and "/nonexistent/folder" in r.stderr.splitlines()[-1]


def test_agent_code_cannot_end_the_run_of_its_engine(go):
    """It runs as the same user, so it can send signals; an ordinary mistake must not reach us."""
    code = "import os, signal\nos.killpg(0, signal.SIGTERM)\nimport time; time.sleep(5)"
    run = go(mind({"go": [code, "done('end')"]}))
    assert (run.code, run.answer) == (0, "end"), run.stderr


def test_asking_for_input_is_an_error_and_no_hang(go):
    run = go(mind({"go": ["input('really? ')", "import sys; print(repr(sys.stdin.read()))", "done('end')"]}))
    assert run.answer == "end" and "EOF" in run.seen()[0] and "''" in run.seen()[1]


@pytest.mark.replayed("recorded", "how many calls there are up to the limit is chance")
def test_endless_calls_to_the_host_end_at_the_limit_too(go):
    run = go(mind({"go": ["while True: budget()", "import asyncio\nwhile True: await llm_query_batched([])",
                          "while True:\n    try: await launch_subagents(3)\n    except Exception: pass",
                          "done('end')"]}), "--exec-timeout", "500ms")
    assert run.answer == "end" and run.errors() == ["exec_timeout"] * 3
    assert sum(p.stat().st_size for p in run.path.rglob("*") if p.is_file()) < 64 << 20


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_an_interrupt_ends_children_calls_and_loops(start_rlmflow, server, command, run_rlmflow, times):
    code = ("print('before')\n"
            "r = await launch_subagents([{'query': 'loop'}, {'query': 'ask'}, {'query': 'think'}])")
    server.set_rules(mind({"go": ["print('first turn')", code],
                           "loop": ("while True:\n    try:\n        while True: pass\n"
                                    "    except BaseException: pass"),
                           "ask": "await llm_query('slow')",
                           "think": {"reply": "done(1)", "stall_after": 2}},
                          query={"reply": "x", "stall_after": 0}))
    args, path = command(server)
    process = start_rlmflow(*args)
    server.wait_for(lambda stats: stats["stalls"] == 2)
    wait_until(lambda: len(descendants(process.pid)) >= 3)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == b"", err
    server.wait_idle()
    view = run_rlmflow("view", path, "--json")
    assert view.code == 0 and "first turn" in view.stdout and '"root.child2"' in view.stdout
