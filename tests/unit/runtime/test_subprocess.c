/* Cells in child processes: how they run, are stopped and end. */
#include "real_worker.h"

/* ---- cells ------------------------------------------------------------------------------------ */

TEST(subprocess_runs_cells)
{
    begin_session();
    CHECK_TEXT(run("x = 41\nprint(x)"), "finished ok: 41\n|");
    CHECK_TEXT(run("x += 1\nprint(x)"), "finished ok: 42\n|");
    CHECK_TEXT(run("1/0"), "finished ZeroDivisionError: |");
    CHECK_TEXT(run("import os, sys; print(os.environ['TZ'], os.environ['PYTHONHASHSEED'], "
                   "sys.stdin.read() == '', '' in sys.path, os.environ.get('RLM_SOURCE_ROOT'))"),
               "finished ok: UTC 0 True False None\n|");
    end();
}

TEST(subprocess_answers_calls_in_any_order)
{
    begin_session();
    start("import asyncio\n"
          "async def one(p):\n"
          "    r = await llm_query(p)\n"
          "    print(p, r)\n"
          "await asyncio.gather(one('a'), one('b'), one('c'))\n"
          "print('end')");
    CHECK_CONTAINS(wait_for("suspended"), " 1 llm_query ");
    give(3, "\"C\"");
    give(1, "\"A\"");
    give(2, "\"B\"");
    CHECK_CONTAINS(wait_for("finished"), "finished ok: c C\na A\nb B\nend\n|");
    end();
}

TEST(subprocess_takes_results_during_computation)
{
    begin_session();
    start("import asyncio, time\n"
          "task = asyncio.ensure_future(llm_query('q'))\n"
          "await asyncio.sleep(0.01)\n"
          "end = time.monotonic() + 20\n"
          "while not task.done() and time.monotonic() < end:\n"
          "    sum(range(1000)); await asyncio.sleep(0)\n"
          "print(task.result())");
    CHECK_CONTAINS(wait_for("suspended"), "llm_query");
    give(1, "\"answer\"");
    CHECK_CONTAINS(wait_for("finished"), "finished ok: answer\n|");
    end();
}

TEST(subprocess_takes_results_while_it_computes_synchronously)
{
    begin_session();
    /* The second call is made and answered while the cell's own thread never stops. */
    start("import threading, time\n"
          "got = []\n"
          "th = threading.Thread(target=lambda: got.append(ask('x')))\n"
          "th.start()\n"
          "while not got: sum(range(100))\n"
          "th.join(); print(got)");
    CHECK_CONTAINS(wait_for("suspended"), " 1 ask []{\"what\":\"x\"}");
    give(1, "[1,2]");
    CHECK_CONTAINS(wait_for("finished"), "finished ok: [[1, 2]]\n|");
    end();
}

/* ---- clocks ----------------------------------------------------------------------------------- */

TEST(subprocess_interrupts_an_endless_loop_and_keeps_variables)
{
    t.exec_timeout_ms = 1000;
    begin_session();
    CHECK_CONTAINS(run("x = 5\nprint('begun')\nwhile True: pass"),
                   "finished CellInterrupted (exec_timeout): begun\n");
    CHECK_TEXT(run("print(x)"), "finished ok: 5\n|");
    end();
}

TEST(subprocess_interrupts_a_cell_that_burns_cpu)
{
    t.cpu_time_ms = 200;
    t.exec_timeout_ms = 100000;
    begin_session();
    CHECK_CONTAINS(run("while True: pass"), "finished CellInterrupted (cpu_time): ");
    end();
}

TEST(subprocess_ends_a_cell_that_catches_everything)
{
    t.exec_timeout_ms = 100;
    begin_session();
    /* By its interrupts or by the kill. */
    CHECK_CONTAINS(run("while True:\n"
                       "    try:\n"
                       "        while True: pass\n"
                       "    except BaseException: pass"),
                   "exec_timeout");
    end();
}

TEST(subprocess_kills_c_code_that_does_not_return)
{
    t.exec_timeout_ms = 100;
    begin_session();
    CHECK_CONTAINS(run("import ctypes, signal\n"
                       "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
                       "ctypes.PyDLL(None).sleep(1000)"),
                   "died exec_timeout in a cell: the cell ran too long (exec_timeout: 100 ms) and "
                   "did not end within 2 s of being interrupted");
    end();
}

TEST(subprocess_counts_no_time_while_a_call_is_open)
{
    t.exec_timeout_ms = 1000;
    begin_session();
    start("print(await llm_query('q'))");
    wait_for("suspended");
    run_ms(1300);
    give(1, "\"late\"");
    CHECK_TEXT(wait_for("|"), "finished ok: late\n|");
    end();
}

/* ---- ends ------------------------------------------------------------------------------------- */

TEST(subprocess_tells_an_exit)
{
    begin_session();
    CHECK_CONTAINS(
        run("import os; print('bye', flush=True); os._exit(7)"),
        "died exit in a cell: the worker ended with exit status 7 (os._exit or a crash) <");
    end();
}

TEST(subprocess_tells_a_kill_from_outside)
{
    begin_session();
    kill(t.pid, SIGKILL);
    CHECK_TEXT(wait_for("|"), "died signal: the worker was killed by signal 9 (SIGKILL) <>|");
    end();
}

TEST(subprocess_tells_a_crash)
{
    begin_session();
    CHECK_CONTAINS(run("import ctypes; ctypes.string_at(8)"),
                   "died signal in a cell: the worker was killed by signal 11 (SIGSEGV)");
    end();
}

TEST(subprocess_survives_a_flood_of_output)
{
    begin_session();
    start("import sys\nfor i in range(2000): sys.stdout.write('x' * 100000)\nprint('end')");
    const char *told = wait_for("finished");
    CHECK_CONTAINS(told, "finished ok: xxxx");
    CHECK_CONTAINS(told, "characters omitted");
    CHECK_CONTAINS(told, "xxend\n|");
    CHECK(strlen(told) < (2 << 20));
    CHECK_TEXT(run("print(1)"), "finished ok: 1\n|");
    end();
}

TEST(subprocess_survives_a_flood_of_output_of_a_child)
{
    begin_session();
    const char *told = run("import subprocess; print(subprocess.run('yes | head -c 20000000; echo "
                           "end', shell=True).returncode)");
    CHECK_CONTAINS(told, "finished ok: y\ny\n");
    CHECK_CONTAINS(told, "end\n");
    end();
}

TEST(subprocess_ends_a_session_whose_code_forges_frames)
{
    begin_session();
    CHECK_CONTAINS(run("import os\n"
                       "for fd in os.listdir('/proc/self/fd'):\n"
                       "    if int(fd) < 3: continue\n"
                       "    try:\n"
                       "        if os.readlink('/proc/self/fd/' + fd).startswith('pipe:'): "
                       "os.write(int(fd), b'\\x02\\0\\0\\0\\x07' + b'\\0' * 11 + b'{}')\n"
                       "    except OSError: pass\n"
                       "import time; time.sleep(10)"),
                   "died protocol in a cell: the worker broke the protocol and was ended: a frame "
                   "came with sequence 0 instead of ");
    end();
}

TEST(subprocess_ends_a_session_that_closes_one_way)
{
    begin_session();
    CHECK_CONTAINS(run("import os, socket, time\n"
                       "for fd in map(int, os.listdir('/proc/self/fd')):\n"
                       "    if fd < 3: continue\n"
                       "    try: socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_WR)\n"
                       "    except OSError: pass\n"
                       "time.sleep(1000)"),
                   "died exit in a cell: the worker closed its connection and was killed");
    end();
}

TEST(subprocess_leaves_no_process_behind)
{
    begin_session();
    CHECK_CONTAINS(run("import subprocess, os\n"
                       "p = subprocess.Popen(['sleep', '1000'])\n"
                       "q = os.fork() or os.execvp('sleep', ['sleep', '1000'])\n"),
                   "finished ok");
    end();
}

TEST(subprocess_leaves_no_process_behind_when_it_dies)
{
    begin_session();
    pid_t pid = t.pid;
    CHECK_CONTAINS(run("import subprocess, os\n"
                       "p = subprocess.Popen(['sleep', '1000'])\n"
                       "os._exit(0)"),
                   "died exit");
    CHECK(group_is_gone(pid));
    end();
}
