/* Sessions in child processes, with the worker as it is. */
#include "harness.h"

#include "base/error.h"
#include "base/loop.h"
#include "runtime/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    rlm_loop *loop;
    rlm_runtime *runtime;
    rlm_blobs *blobs;
    rlm_session *session;
    const char *python;
    const char *const *env;
    int spare;
    const char *const *input_blobs;
    rlm_str inputs; /* JSON object */
    uint64_t exec_timeout_ms, cpu_time_ms;
    struct rlm_buf told;
    pid_t pid;
    int64_t cell;
    int n_descriptors; /* before anything was made */
} t;

static int count_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count;
}

/* ---- events ----------------------------------------------------------------------------------- */

static void on_ready(void *arg, rlm_str json)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    const rlm_json *v;
    CHECK_INT(rlm_json_parse(a, json, &v, NULL), 0);
    t.pid = (pid_t)rlm_json_int(rlm_json_get(v, "pid"), 0);
    rlm_buf_addf(&t.told, "ready%s|",
                 rlm_json_bool(rlm_json_get(v, "mapped"), false) ? " mapped" : "");
}

static void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    rlm_buf_addf(&t.told, "suspended");
    for (size_t i = 0; i < n; i++) {
        struct rlm_json_writer w = {.buf = &t.told};
        rlm_buf_addf(&t.told, " %d %.*s ", (int)calls[i].id, RLM_FMT(calls[i].name));
        rlm_json_put(&w, calls[i].args);
        w.comma = false;
        rlm_json_put(&w, calls[i].kwargs);
    }
    rlm_buf_addf(&t.told, "|");
}

static void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    rlm_buf_addf(&t.told, "finished %s%s%s%s: %.*s|", how->error_type ? how->error_type : "ok",
                 how->clock ? " (" : "", how->clock ? how->clock : "", how->clock ? ")" : "",
                 RLM_FMT(how->output));
}

static void on_died(void *arg, const struct rlm_session_death *how)
{
    rlm_buf_addf(&t.told, "died %s%s: %.*s <%.*s>|", how->reason,
                 how->during_cell ? " in a cell" : "", RLM_FMT(how->message), (int)how->output.len,
                 how->output.ptr ? how->output.ptr : "");
}

static const struct rlm_session_events session_events = {on_ready, on_suspended, on_finished,
                                                         on_died};

/* ---- the engine's side ------------------------------------------------------------------------ */

static void stop(void *arg)
{
    rlm_loop_stop(arg);
}

static void run_ms(uint64_t ms)
{
    rlm_timer *timer = rlm_timer_new(t.loop, stop, t.loop);
    CHECK(timer != NULL);
    rlm_timer_set(timer, ms);
    rlm_loop_run(t.loop);
    rlm_timer_free(timer);
}

static const char *wait_for(const char *part)
{
    while (!t.told.ptr || !strstr(t.told.ptr, part)) {
        run_ms(1); /* the harness has the time limit */
    }
    static char *copy;
    free(copy);
    copy = strdup(t.told.ptr);
    rlm_buf_clear(&t.told);
    return copy;
}

static void begin(void)
{
    /* The first loop of a process opens what all of them share. */
    CHECK_INT(rlm_loop_new(&t.loop, NULL), 0);
    rlm_loop_free(t.loop);
    t.n_descriptors = count_descriptors();
    t.told = RLM_BUF(64 << 20);
    CHECK_INT(rlm_loop_new(&t.loop, NULL), 0);
    CHECK_INT(rlm_blobs_open(harness_directory(), &t.blobs, NULL), 0);
}

static void make_runtime(void)
{
    struct rlm_subprocess_options o = RLM_SUBPROCESS_OPTIONS_INIT;
    const char *python = getenv("RLM_TEST_PYTHON"); /* to try another than the system's */
    o.python = t.python ? t.python : python ? python : "/usr/bin/python3";
    o.spare = t.spare;
    o.env = t.env;
    rlm_autoerr rlm_error *err = NULL;
    rlm_runtime_new_subprocess(t.loop, &o, &t.runtime, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

static int try_open(rlm_error **err)
{
    static char json[4096];
    snprintf(
        json, sizeof json,
        "{\"protocol\":1,\"seed\":\"00\",\"agent_id\":\"root\",\"depth\":0,\"max_depth\":1,"
        "\"parent_agent_id\":\"\",\"env\":{},\"inputs\":%.*s,\"tools\":[{\"name\":\"ask\","
        "\"description\":\"asks\",\"parameters\":{\"type\":\"object\",\"properties\":{\"what\":"
        "{}},\"required\":[\"what\"]}}],\"file_tools\":false,\"output_schema\":false,"
        "\"limits\":{\"output_bytes\":1048576}}",
        t.inputs.ptr ? (int)t.inputs.len : 2, t.inputs.ptr ? t.inputs.ptr : "{}");
    struct rlm_session_options o = {
        .blobs = t.blobs,
        .open_json = rlm_str_of(json),
        .input_blobs = t.input_blobs,
        .exec_timeout_ms = t.exec_timeout_ms,
        .cpu_time_ms = t.cpu_time_ms,
        .open_timeout_ms = 20000,
    };
    return rlm_session_open(t.runtime, &o, &session_events, NULL, &t.session, err);
}

static void open_session(void)
{
    rlm_autoerr rlm_error *err = NULL;
    try_open(&err);
    CHECK_TEXT(rlm_error_message(err), "");
    wait_for("ready");
}

static void begin_session(void)
{
    begin();
    make_runtime();
    open_session();
}

/* True when no process of the group is left (one that is being reaped may still be). */
static bool group_is_gone(pid_t pid)
{
    for (int i = 0; i < 2000; i++) {
        if (kill(-pid, 0) < 0 && errno == ESRCH) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

static void end(void)
{
    rlm_session_close(t.session);
    rlm_runtime_free(t.runtime);
    rlm_blobs_free(t.blobs);
    rlm_loop_free(t.loop);
    rlm_buf_deinit(&t.told);
    if (t.pid) {
        CHECK(group_is_gone(t.pid));
    }
    CHECK_INT(count_descriptors(), t.n_descriptors);
}

static void start(const char *code)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_session_start(t.session, ++t.cell, rlm_str_of(code), &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

static const char *run(const char *code)
{
    start(code);
    return wait_for("|");
}

static void give(int64_t id, const char *value)
{
    struct rlm_call_result result = {.id = id, .value_json = rlm_str_of(value)};
    rlm_autoerr rlm_error *err = NULL;
    rlm_session_resume(t.session, &result, 1, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

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
    t.exec_timeout_ms = 200;
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
    t.exec_timeout_ms = 150;
    begin_session();
    start("print(await llm_query('q'))");
    wait_for("suspended");
    run_ms(500);
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
        "died exit in a cell: the worker ended with exit status 7 (os._exit or a crash); "
        "all variables are lost <");
    end();
}

TEST(subprocess_tells_a_kill_from_outside)
{
    begin_session();
    kill(t.pid, SIGKILL);
    CHECK_TEXT(wait_for("|"), "died signal: the worker was killed by signal 9 (SIGKILL); all "
                              "variables are lost <>|");
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

/* ---- inputs ----------------------------------------------------------------------------------- */

static long rss_anon_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "RssAnon: %ld", &kib) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return kib;
}

enum { BIG = 64 << 20 };

static void map_input(const char *prefix, const char *count_code, const char *expected)
{
    begin();
    char *value = malloc(BIG);
    memset(value, 'a', BIG);
    memcpy(value, prefix, strlen(prefix));
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(t.blobs, RLM_BLOB_TEXT, (rlm_str){value, BIG}, &blob, NULL), 0);
    free(value);
    const char *ids[] = {blob->id, NULL};
    char inputs[200];
    snprintf(inputs, sizeof inputs, "{\"big\":{\"$blob\":\"%s\"}}", blob->id);
    t.input_blobs = ids;
    t.inputs = rlm_str_of(inputs);
    make_runtime();
    open_session();
    long before = rss_anon_kib(t.pid);
    CHECK(before > 0);
    CHECK_TEXT(run(count_code), expected);
    long grown = rss_anon_kib(t.pid) - before;
    if (grown > 4096) {
        harness_fail(__FILE__, __LINE__, "RssAnon grew by %ld KiB", grown);
    }
    /* It goes back to the host by name. */
    start("await llm_query(INPUTS['big'])");
    const char *told = wait_for("suspended");
    CHECK_CONTAINS(told, "{\"$blob\":\"");
    CHECK_CONTAINS(told, blob->id);
    end();
}

TEST(subprocess_maps_a_big_input)
{
    map_input("xyz", "b = INPUTS['big']; print(type(b) is str, len(b), b.count('a'), b[:4])",
              "finished ok: True 67108864 67108861 xyza\n|");
}

TEST(subprocess_maps_a_big_wide_input)
{
    map_input("\xe2\x82\xac", "b = INPUTS['big']; print(type(b) is str, len(b), ascii(b[:2]))",
              "finished ok: True 67108862 '\\u20aca'\n|");
}

TEST(subprocess_takes_slices_as_blobs)
{
    begin_session();
    start("import asyncio\n"
          "text = 'ab\\u20ac' * 1000000\n"
          "r = await asyncio.gather(*[llm_query(text[i << 20:(i + 1) << 20]) for i in range(2)])\n"
          "print(r[0] == text[:1 << 20], r[1] is r[0])");
    const char *told = wait_for("suspended");
    CHECK_CONTAINS(told, "1 llm_query [{\"$blob\":\"");
    CHECK_CONTAINS(told, "2 llm_query [{\"$blob\":\"");
    char id[RLM_SHA256_HEX + 1] = {0};
    strncpy(id, strstr(told, "$blob") + 8, RLM_SHA256_HEX);
    const struct rlm_blob *blob = rlm_blobs_find(t.blobs, rlm_str_of(id));
    CHECK(blob != NULL);
    CHECK_INT(blob->chars, 1 << 20);
    /* And down again, the same for both. */
    char value[120];
    snprintf(value, sizeof value, "{\"$blob\":\"%s\"}", id);
    give(1, value);
    give(2, value);
    CHECK_CONTAINS(wait_for("finished"), "finished ok: True True\n|");
    end();
}

TEST(subprocess_queues_descriptors_for_a_worker_that_does_not_read)
{
    begin_session();
    start("import asyncio\n"
          "r = await asyncio.gather(*[llm_query(i) for i in range(3)])\n"
          "print(*map(len, r), r[1][-3:], r[2][-3:])");
    wait_for("suspended");
    char id[2][RLM_SHA256_HEX + 1], value[120];
    for (int i = 0; i < 2; i++) {
        char content[100000];
        memset(content, 'a' + i, sizeof content);
        const struct rlm_blob *blob;
        CHECK_INT(
            rlm_blobs_put(t.blobs, RLM_BLOB_TEXT, (rlm_str){content, sizeof content}, &blob, NULL),
            0);
        strcpy(id[i], blob->id);
    }
    /* The first result fills the way in, so that what follows has to wait in the queue. */
    CHECK_INT(kill(t.pid, SIGSTOP), 0);
    char *big = malloc(400003);
    memset(big, 'x', 400002);
    big[0] = big[400001] = '"';
    big[400002] = '\0';
    give(1, big);
    free(big);
    for (int i = 0; i < 2; i++) {
        snprintf(value, sizeof value, "{\"$blob\":\"%s\"}", id[i]);
        give(2 + i, value);
    }
    int waiting = count_descriptors();
    CHECK_INT(kill(t.pid, SIGCONT), 0);
    CHECK_CONTAINS(wait_for("finished"), "finished ok: 400000 100000 100000 aaa bbb\n|");
    CHECK(count_descriptors() < waiting);
    end();
}

TEST(subprocess_carries_large_messages_both_ways)
{
    begin_session();
    start("r = ask(['x' * 1000] * 2000)\nprint(len(r), r[-1])");
    const char *told = wait_for("suspended");
    CHECK(strlen(told) > 2000000);
    rlm_auto_buf struct rlm_buf value = RLM_BUF(8 << 20);
    rlm_buf_addc(&value, '[');
    for (int i = 0; i < 500000; i++) {
        rlm_buf_addf(&value, "%d,", i);
    }
    rlm_buf_adds(&value, "\"last\"]");
    give(1, value.ptr);
    CHECK_TEXT(wait_for("finished"), "finished ok: 500001 last\n|");
    /* Code that is larger than a frame, stopped before the worker can have read it all. */
    rlm_auto_buf struct rlm_buf code = RLM_BUF(8 << 20);
    rlm_buf_adds(&code, "print('begun')\nwhile True: pass\n");
    for (int i = 0; i < 100000; i++) {
        rlm_buf_adds(&code, "# a line of no consequence\n");
    }
    start(code.ptr);
    rlm_session_interrupt(t.session, "stop", RLM_STR("enough"), 20000);
    CHECK_CONTAINS(wait_for("finished"), "finished CellInterrupted: ");
    CHECK_TEXT(run("print(len(r))"), "finished ok: 500001\n|");
    end();
}

/* ---- interpreters ----------------------------------------------------------------------------- */

/* An executable script; its path. */
static const char *script(const char *name, const char *content)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", harness_directory(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    CHECK(fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content));
    close(fd);
    return path;
}

TEST(subprocess_names_a_missing_interpreter)
{
    begin();
    t.python = "python-that-is-not-there";
    make_runtime();
    rlm_error *err = NULL;
    CHECK_INT(try_open(&err), RLM_E_NOT_FOUND);
    CHECK_TEXT(rlm_error_message(err),
               "opening a session (subprocess): there is no Python interpreter "
               "\"python-that-is-not-there\" in PATH; install Python 3.8 or newer, or name another "
               "interpreter");
    rlm_error_free(err);
    end();
}

TEST(subprocess_names_a_missing_directory)
{
    begin();
    struct rlm_subprocess_options o = RLM_SUBPROCESS_OPTIONS_INIT;
    o.working_directory = "/no/such/place";
    rlm_error *err = NULL;
    CHECK_INT(rlm_runtime_new_subprocess(t.loop, &o, &t.runtime, &err), RLM_E_NOT_FOUND);
    CHECK_TEXT(
        rlm_error_message(err),
        "the working directory \"/no/such/place\" cannot be used: No such file or directory");
    rlm_error_free(err);
    end();
}

TEST(subprocess_tells_what_a_broken_interpreter_says)
{
    begin();
    t.python = script("broken", "#!/bin/sh\necho 'Fatal Python error: no encodings' >&2\nexit 3\n");
    make_runtime();
    CHECK_INT(try_open(NULL), 0);
    CHECK_TEXT(wait_for("died"),
               "died open: the worker ended with exit status 3 (os._exit or a "
               "crash) before it was ready: Fatal Python error: no encodings <>|");
    end();
}

TEST(subprocess_tells_that_a_version_is_too_old)
{
    begin();
    /* An interpreter that says it is 3.7, as its version_info would. */
    t.python = script("old", "#!/bin/sh\n"
                             "exec /usr/bin/python3 -c 'import sys\n"
                             "sys.version_info = (3, 7, 1)\n"
                             "sys.version = \"3.7.1 (default)\"\n"
                             "code, sys.argv = sys.argv[4], sys.argv[4:]\n"
                             "exec(code)' \"$@\"\n");
    make_runtime();
    CHECK_INT(try_open(NULL), 0);
    CHECK_CONTAINS(wait_for("died"),
                   "Python 3.8 or newer is needed; /usr/bin/python3 is 3.7.1 <>|");
    end();
}

TEST(subprocess_survives_a_worker_that_speaks_nonsense)
{
    begin();
    t.python = script("nonsense", "#!/bin/sh\nhead -c 100000 /dev/zero >&4\nexec sleep 100\n");
    make_runtime();
    CHECK_INT(try_open(NULL), 0);
    CHECK_CONTAINS(wait_for("died"), "died protocol: the worker broke the protocol");
    end();
}

static void check_hang_up(const char *closed)
{
    char text[64];
    begin();
    snprintf(text, sizeof text, "#!/bin/sh\nexec %s\nexec sleep 100\n", closed);
    t.python = script("mute", text);
    make_runtime();
    CHECK_INT(try_open(NULL), 0);
    CHECK_CONTAINS(wait_for("died"), "died open: the worker closed its connection");
    end();
}

TEST(subprocess_notices_a_worker_that_hangs_up)
{
    check_hang_up("3>&- 4>&-");
    check_hang_up("3>&-");
    check_hang_up("4>&-");
}

/* ---- spare workers ---------------------------------------------------------------------------- */

/* Whether a process runs (a zombie does not) with this in its command line. */
static bool runs(int pid, const char *part)
{
    char path[64], line[8192];
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    FILE *f = fopen(path, "r");
    size_t len = f ? fread(line, 1, sizeof line, f) : 0;
    if (f) {
        fclose(f);
    }
    return memmem(line, len, part, strlen(part)) != NULL;
}

/* Child processes: all, or only the workers; `*ret_first` (may be NULL) is the oldest of them. */
static int count_children(bool workers, pid_t *ret_first)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    int count = 0, pid;
    while (fscanf(f, "%d", &pid) == 1) {
        if (!workers || runs(pid, "rlmflow_worker")) {
            count++;
            if (ret_first && count == 1) {
                *ret_first = pid;
            }
        }
    }
    fclose(f);
    return count;
}

static int children(void)
{
    return count_children(false, NULL);
}

static int workers(void)
{
    return count_children(true, NULL);
}

static pid_t first_worker(void)
{
    pid_t pid = 0;
    count_children(true, &pid);
    return pid;
}

static void wait_for_workers(int count)
{
    while (workers() != count) {
        run_ms(1);
    }
}

TEST(subprocess_keeps_spare_workers)
{
    begin();
    t.spare = 2;
    make_runtime();
    wait_for_workers(2);
    run_ms(50);
    CHECK_INT(workers(), 2);
    pid_t spare = first_worker();
    open_session();
    CHECK_INT(t.pid, spare);
    wait_for_workers(3);
    run_ms(50);
    CHECK_INT(workers(), 3);
    CHECK_TEXT(run("print(1)"), "finished ok: 1\n|");
    end();
    CHECK_INT(children(), 0);
}

TEST(subprocess_replaces_spare_workers_that_die)
{
    begin();
    t.spare = 1;
    make_runtime();
    wait_for_workers(1);
    pid_t spare = first_worker();
    kill(spare, SIGKILL);
    for (pid_t now = spare; now == spare || now == 0; now = first_worker()) {
        run_ms(1);
    }
    open_session();
    CHECK_TEXT(run("print(1)"), "finished ok: 1\n|");
    end();
}

/* What agent code starts ends with the runtime, also in a session of its own. */
TEST(subprocess_leaves_nothing_that_the_code_started)
{
    begin();
    make_runtime();
    open_session();
    const char *said = run("import subprocess\n"
                           "p = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
                           "print(p.pid)");
    int pid = 0;
    CHECK_INT(sscanf(said, "finished ok: %d", &pid), 1);
    while (!runs(pid, "sleep")) {
        run_ms(1);
    }
    end();
    CHECK(!runs(pid, "sleep"));
}

TEST(subprocess_does_not_spin_on_a_broken_interpreter)
{
    begin();
    static char counter[200], content[500];
    snprintf(counter, sizeof counter, "%s/count", harness_directory());
    snprintf(content, sizeof content, "#!/bin/sh\necho x >> %s\nexit 1\n", counter);
    t.python = script("broken", content);
    t.spare = 1;
    make_runtime();
    run_ms(1000);
    struct stat st;
    CHECK_INT(stat(counter, &st), 0);
    CHECK(st.st_size >= 2 && st.st_size <= 2 * 5); /* at 0, 200, 600, 1400 ms */
    end();
}

/* ---- many at once ----------------------------------------------------------------------------- */

enum { MANY = 10, CELLS = 20 };

struct one {
    rlm_session *session;
    int64_t cell;
    int wrong;
    int *left;
};

static void next_cell(struct one *o)
{
    char code[64];
    snprintf(code, sizeof code, "x = await llm_query(%d)\nprint(x)", (int)++o->cell);
    CHECK_INT(rlm_session_start(o->session, o->cell, rlm_str_of(code), NULL), 0);
}

static void many_ready(void *arg, rlm_str json)
{
    next_cell(arg);
}

static void many_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    struct one *o = arg;
    for (size_t i = 0; i < n; i++) {
        int64_t asked = rlm_json_int(rlm_json_at(calls[i].args, 0), -1);
        char value[32];
        snprintf(value, sizeof value, "%d", (int)asked * 7);
        struct rlm_call_result result = {.id = calls[i].id, .value_json = rlm_str_of(value)};
        CHECK_INT(rlm_session_resume(o->session, &result, 1, NULL), 0);
    }
}

static void many_finished(void *arg, const struct rlm_cell_finished *how)
{
    struct one *o = arg;
    char expected[32];
    int len = snprintf(expected, sizeof expected, "%d\n", (int)o->cell * 7);
    o->wrong += !rlm_str_eq(how->output, (rlm_str){expected, (size_t)len});
    if (o->cell < CELLS) {
        next_cell(o);
        return;
    }
    rlm_session_close(o->session);
    if (--*o->left == 0) {
        rlm_loop_stop(t.loop);
    }
}

static void many_died(void *arg, const struct rlm_session_death *how)
{
    harness_fail(__FILE__, __LINE__, "%.*s", RLM_FMT(how->message));
}

TEST(subprocess_runs_many_sessions_at_once)
{
    static const struct rlm_session_events events = {many_ready, many_suspended, many_finished,
                                                     many_died};
    static struct one all[MANY];
    int left = MANY;
    begin();
    t.spare = 3;
    make_runtime();
    struct rlm_session_options o = {
        .blobs = t.blobs,
        .open_json = RLM_STR("{\"protocol\":1,\"seed\":\"00\",\"agent_id\":\"root\",\"depth\":0,"
                             "\"max_depth\":1,\"parent_agent_id\":\"\",\"env\":{},\"inputs\":{},"
                             "\"tools\":[],\"file_tools\":false,\"output_schema\":false,"
                             "\"limits\":{\"output_bytes\":1048576}}"),
    };
    for (int i = 0; i < MANY; i++) {
        all[i].left = &left;
        rlm_error *err = NULL;
        rlm_session_open(t.runtime, &o, &events, &all[i], &all[i].session, &err);
        CHECK_TEXT(rlm_error_message(err), "");
    }
    rlm_loop_run(t.loop);
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(all[i].wrong, 0);
        CHECK_INT(all[i].cell, CELLS);
    }
    end();
    CHECK_INT(children(), 0);
}
