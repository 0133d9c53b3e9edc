/* Worker processes: the interpreters they run in, those kept ready, many at once. */
#include "real_worker.h"

#include <fcntl.h>
#include <sys/stat.h>

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
    static const struct rlm_session_events events = {
        .ready = many_ready,
        .suspended = many_suspended,
        .finished = many_finished,
        .died = many_died,
    };
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
