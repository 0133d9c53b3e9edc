/* What a cell costs: `print(1)` in a warm session against a bare Python that reads a line from a pipe,
 * executes it with its output captured and writes that back. Both in turn, in the same run, so that
 * the machine's mood hits both. Once with everything on one processor, where a round trip is two
 * switches, and once with the host on one and the interpreters on another, where it is two wake-ups.
 * Then the time to open a session, with and without a spare worker.
 *
 *     bench_exec [ROUNDS [PYTHON]]
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/loop.h"
#include "base/process.h"
#include "runtime/runtime.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 50, OPENINGS = 15 };

static rlm_loop *loop;
static const char *python = "/usr/bin/python3";

__attribute__((noreturn)) static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_exec: %s: %s\n", what, why);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *values, size_t n)
{
    qsort(values, n, sizeof *values, by_size);
    return values[n / 2];
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the bare interpreter --------------------------------------------------------------------- */

static const char bare_source[] = "import sys, io, contextlib\n"
                                  "space = {}\n"
                                  "for line in sys.stdin.buffer:\n"
                                  "    out = io.StringIO()\n"
                                  "    with contextlib.redirect_stdout(out):\n"
                                  "        exec(compile(line, '<cell>', 'exec'), space)\n"
                                  "    sys.stdout.write(out.getvalue())\n"
                                  "    sys.stdout.flush()\n";

static struct {
    rlm_process *process;
    int to, from;
} bare;

static void start_bare(void)
{
    int in[2], out[2];
    if (pipe2(in, 02000000) < 0 || pipe2(out, 02000000) < 0) {
        fail("pipe", "no pipe");
    }
    const char *argv[] = {python, "-u", "-c", bare_source, NULL};
    const char *env[] = {NULL, NULL, NULL};
    static char path[8192], home[4096];
    snprintf(path, sizeof path, "PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    snprintf(home, sizeof home, "HOME=%s", getenv("HOME") ? getenv("HOME") : "/");
    env[0] = path;
    env[1] = home;
    int fds[] = {in[0], out[1], 2};
    struct rlm_process_options o = {.argv = argv, .env = env, .child_fds = fds, .n_child_fds = 3};
    rlm_error *err = NULL;
    if (rlm_process_start(loop, &o, NULL, NULL, &bare.process, &err) < 0) {
        fail("starting the bare interpreter", rlm_error_message(err));
    }
    close(in[0]);
    close(out[1]);
    bare.to = in[1];
    bare.from = out[0];
}

static uint64_t bare_round(void)
{
    char answer[16];
    uint64_t start = now_ns();
    if (write(bare.to, "print(1)\n", 9) != 9 || read(bare.from, answer, sizeof answer) != 2) {
        fail("the bare interpreter", "no answer");
    }
    return now_ns() - start;
}

/* ---- the session ------------------------------------------------------------------------------ */

static struct {
    rlm_runtime *runtime;
    rlm_blobs *blobs;
    rlm_session *session;
    int64_t cell;
    bool ready;
} warm;

static void on_ready(void *arg, rlm_str json)
{
    warm.ready = true;
    rlm_loop_stop(loop);
}

static void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    fail("the session", "a call");
}

static void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    if (how->error_type || how->output.len != 2 || how->output.ptr[0] != '1') {
        fail("the session", "a wrong answer");
    }
    rlm_loop_stop(loop);
}

static void on_died(void *arg, const struct rlm_session_death *how)
{
    fail("the session died", how->message.ptr);
}

static void open_session(void)
{
    static const struct rlm_session_events events = {
        .ready = on_ready, .suspended = on_suspended, .finished = on_finished, .died = on_died};
    struct rlm_session_options o = {
        .blobs = warm.blobs,
        .open_json = RLM_STR("{\"protocol\":1,\"seed\":\"00\",\"agent_id\":\"root\",\"depth\":0,"
                             "\"max_depth\":1,\"parent_agent_id\":\"\",\"env\":{},\"inputs\":{},"
                             "\"tools\":[],\"file_tools\":false,\"output_schema\":false,"
                             "\"limits\":{\"output_bytes\":1048576}}"),
        .exec_timeout_ms = 120000,
        .cpu_time_ms = 300000,
        .open_timeout_ms = 30000,
    };
    rlm_error *err = NULL;
    warm.ready = false;
    if (rlm_session_open(warm.runtime, &o, &events, NULL, &warm.session, &err) < 0) {
        fail("opening", rlm_error_message(err));
    }
    while (!warm.ready) {
        rlm_loop_run(loop);
    }
}

static void session_round_once(void)
{
    rlm_error *err = NULL;
    if (rlm_session_start(warm.session, ++warm.cell, RLM_STR("print(1)"), &err) < 0) {
        fail("starting a cell", rlm_error_message(err));
    }
    rlm_loop_run(loop);
}

static uint64_t session_round(void)
{
    uint64_t start = now_ns();
    session_round_once();
    return now_ns() - start;
}

static void new_runtime(int spare)
{
    struct rlm_subprocess_options o = RLM_SUBPROCESS_OPTIONS_INIT;
    rlm_error *err = NULL;
    o.spare = spare;
    o.python = python;
    if (rlm_runtime_new_subprocess(loop, &o, &warm.runtime, &err) < 0) {
        fail("the runtime", rlm_error_message(err));
    }
}

static void wait_ms(uint64_t ms)
{
    rlm_timer *t = rlm_timer_new(loop, (rlm_callback)(void *)rlm_loop_stop, loop);
    rlm_timer_set(t, ms);
    rlm_loop_run(loop);
    rlm_timer_free(t);
}

static double opening_ms(int spare)
{
    uint64_t times[OPENINGS];
    new_runtime(spare);
    for (int i = 0; i < OPENINGS; i++) {
        if (spare) {
            wait_ms(300); /* until the next one has imported everything */
        }
        uint64_t start = now_ns();
        open_session();
        times[i] = now_ns() - start;
        rlm_session_close(warm.session);
    }
    rlm_runtime_free(warm.runtime);
    return (double)median(times, OPENINGS) / 1e6;
}

/* ---- both ------------------------------------------------------------------------------------- */

static void use_processors(const cpu_set_t *set)
{
    if (sched_setaffinity(0, sizeof *set, set) < 0) {
        fail("choosing processors", "not allowed");
    }
}

/* Prints a line for the host on one processor and the interpreters on another, or the same. */
static void compare(const char *where, int host, int interpreters, size_t rounds)
{
    cpu_set_t before, set;
    uint64_t *bare_ns = rlm_calloc(rounds, sizeof *bare_ns);
    uint64_t *session_ns = rlm_calloc(rounds, sizeof *session_ns);
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&set);
    CPU_SET(interpreters, &set);
    use_processors(&set);
    start_bare();
    new_runtime(0);
    open_session();
    CPU_ZERO(&set);
    CPU_SET(host, &set);
    use_processors(&set);
    for (int i = 0; i < 200; i++) {
        bare_round();
        session_round();
    }
    for (size_t at = 0; at < rounds; at += BATCH) {
        for (size_t i = at; i < at + BATCH; i++) {
            bare_ns[i] = bare_round();
        }
        for (size_t i = at; i < at + BATCH; i++) {
            session_ns[i] = session_round();
        }
    }
    rlm_session_close(warm.session);
    rlm_runtime_free(warm.runtime);
    rlm_process_free(bare.process);
    close(bare.to);
    close(bare.from);
    use_processors(&before);
    double b = (double)median(bare_ns, rounds) / 1e3, s = (double)median(session_ns, rounds) / 1e3;
    printf("print(1), %s, median of %zu: session %.1f us, bare interpreter %.1f us, ratio %.2f\n",
           where, rounds, s, b, s / b);
    printf("  90th percentile: session %.1f us, bare interpreter %.1f us\n",
           (double)session_ns[rounds * 9 / 10] / 1e3, (double)bare_ns[rounds * 9 / 10] / 1e3);
    free(bare_ns);
    free(session_ns);
}

int main(int argc, char **argv)
{
    size_t rounds = argc > 1 ? (size_t)atol(argv[1]) : 5000;
    python = argc > 2 ? argv[2] : python;
    rounds = rounds < BATCH ? BATCH : rounds / BATCH * BATCH;
    rlm_error *err = NULL;
    cpu_set_t all;
    if (rlm_loop_new(&loop, &err) < 0 || rlm_blobs_open(NULL, &warm.blobs, &err) < 0) {
        fail("starting", rlm_error_message(err));
    }
    sched_getaffinity(0, sizeof all, &all);
    int first = 0, second;
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    for (second = first + 1; second < CPU_SETSIZE && !CPU_ISSET(second, &all);) {
        second++;
    }
    compare("one processor", first, first, rounds);
    if (second < CPU_SETSIZE) {
        compare("two processors", first, second, rounds);
    }
    printf("opening a session, median of %d: %.1f ms; with a spare worker %.2f ms\n", OPENINGS,
           opening_ms(0), opening_ms(1));
    rlm_blobs_free(warm.blobs);
    rlm_loop_free(loop);
    return 0;
}
