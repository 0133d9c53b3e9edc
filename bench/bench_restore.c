/* Restore of a session: the same cells straight in a session, in a run, and again in a resumed run.
 *
 * A run of one agent (scripted model without latency, a journal in TMPDIR) runs N cells, and is stopped
 * in a later one; then it is resumed with RLM_RESTORE_REPLAY. Timed is, by the clock of the worker, from a
 * cell before the N to one behind them: in a session that gets these cells and nothing else, in the
 * run, and in the restored session. In turns, medians; speeds are ratios, more is better. Beside that:
 * when the session was back where it had been, from the call that resumes the run, the reading of its
 * journal and the start of a worker included.
 *
 *     bench_restore [ROUNDS=9] [PYTHON=/usr/bin/python3]
 */
#include "rlmflow.h"
#include "runtime/runtime.h"

#include "measure.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 100 };

static rlm_loop *loop;
static rlm_runtime *runtime;
static const char *python = "/usr/bin/python3";
static int took_fd; /* a file in which cells say how long they took */
static char last_cell[200];
static const char first_cell[] = "import time\nbegan = time.monotonic()";

static double took_ms(void)
{
    char text[64] = "";
    if (pread(took_fd, text, sizeof text - 1, 0) <= 0 || ftruncate(took_fd, 0) < 0) {
        fprintf(stderr, "the last cell has not said how long it took\n");
        exit(1);
    }
    return atof(text) * 1e3;
}

/* ---- straight in a session ------------------------------------------------------------------- */

struct straight {
    rlm_session *session;
    const char *code;
    int64_t n, at; /* the cell that comes next */
    bool ended;
};

/* As soon as the session is there or the cell before has ended. */
static void next_cell(struct straight *s)
{
    rlm_error *err = NULL;
    const char *code = s->at == 0 ? first_cell : s->at <= s->n ? s->code : last_cell;
    if (s->at > s->n + 1) {
        s->ended = true;
    } else if (rlm_session_start(s->session, ++s->at, rlm_str_of(code), &err)) {
        fail(err);
    }
}

static void on_ready(void *arg, rlm_str json)
{
    (void)json;
    next_cell(arg);
}

static void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    (void)arg, (void)calls, (void)n;
}

static void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    if (how->error_type) {
        fprintf(stderr, "a cell failed: %s\n", how->error_type);
        exit(1);
    }
    next_cell(arg);
}

static void on_died(void *arg, const struct rlm_session_death *how)
{
    (void)arg;
    fprintf(stderr, "the session died: %.*s\n", (int)how->message.len, how->message.ptr);
    exit(1);
}

static double straight_ms(const char *code, int n)
{
    static const struct rlm_session_events events = {
        .ready = on_ready, .suspended = on_suspended, .finished = on_finished, .died = on_died};
    struct straight s = {.code = code, .n = n};
    rlm_blobs *blobs;
    rlm_error *err = NULL;
    struct rlm_session_options o = {
        .open_json = RLM_STR("{\"protocol\":1,\"seed\":\"00\",\"agent_id\":\"root\",\"depth\":0,"
                             "\"max_depth\":1,\"parent_agent_id\":\"\",\"env\":{},\"inputs\":{},"
                             "\"tools\":[],\"file_tools\":false,\"output_schema\":false,"
                             "\"limits\":{\"output_bytes\":1048576}}"),
        .exec_timeout_ms = 120000,
        .cpu_time_ms = 300000,
        .open_timeout_ms = 30000,
    };
    if (rlm_blobs_open(NULL, &blobs, &err)) {
        fail(err);
    }
    o.blobs = blobs;
    if (rlm_session_open(runtime, &o, &events, &s, &s.session, &err)) {
        fail(err);
    }
    while (!s.ended) {
        rlm_loop_turn(loop);
    }
    rlm_session_close(s.session);
    rlm_blobs_free(blobs);
    return took_ms();
}

/* ---- in a run, and again --------------------------------------------------------------------- */

struct watch {
    bool waiting; /* the last cell waits for its model */
    bool restoring;
    uint64_t ready_us; /* the session is back where it was */
};

static void on_event(void *arg, rlm_run *run, const struct rlm_event *event)
{
    struct watch *w = arg;
    if (event->type == RLM_EVENT_STATE) {
        enum rlm_agent_state state = rlm_run_agent_state(run, event->graph);
        if (w->restoring && state != RLM_AGENT_RESTORING) {
            w->ready_us = rlm_now_us();
        }
        w->restoring = state == RLM_AGENT_RESTORING;
        w->waiting = state == RLM_AGENT_WAITING;
    }
}

/* Until the last cell waits for its model; there the run is stopped. */
static void drive(rlm_run *run, const struct watch *w)
{
    while (!w->waiting && !rlm_run_has_ended(run)) {
        rlm_loop_turn(loop);
    }
    if (!w->waiting) {
        fprintf(stderr, "the run ended: %s %s\n", rlm_run_reason(run), rlm_run_message(run));
        exit(1);
    }
    rlm_run_free(run);
}

struct times {
    double straight_ms[ROUNDS_MAX], run_ms[ROUNDS_MAX], restored_ms[ROUNDS_MAX],
        ready_ms[ROUNDS_MAX];
};

static void measure(rlm_flow *flow, const char *code, int n, struct times *t, int round)
{
    static const struct rlm_run_events events = {.event = on_event};
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    struct rlm_resume_options again = RLM_RESUME_OPTIONS_INIT;
    struct watch first = {0}, second = {0};
    rlm_run *run;
    rlm_error *err = NULL;
    t->straight_ms[round] = straight_ms(code, n);
    o.query = (struct rlm_str){"go", 2};
    o.journal = again.journal = scratch_path();
    again.restore = RLM_RESTORE_REPLAY;
    if (rlm_run_start(flow, &o, &events, &first, &run, &err)) {
        fail(err);
    }
    drive(run, &first);
    t->run_ms[round] = took_ms();
    uint64_t start_us = rlm_now_us();
    if (rlm_flow_resume(flow, &again, &events, &second, &run, &err)) {
        fail(err);
    }
    drive(run, &second);
    t->ready_ms[round] = (double)(second.ready_us - start_us) / 1e3;
    t->restored_ms[round] = took_ms();
    scratch_remove();
}

static void compare(const char *what, const char *code, int n, int rounds)
{
    static struct times t;
    rlm_flow *flow;
    rlm_error *err = NULL;
    struct rlm_flow_options f = RLM_FLOW_OPTIONS_INIT;
    char script[1024];
    /* The cell that awaits stands by itself: the first of a session loads asyncio. */
    snprintf(script, sizeof script,
             "@reply turn=1\n```repl\n%s\n```\n"
             "@reply turn=0 delay=60m\nnever\n"
             "@reply turn=2-%d\n```repl\n%s\n```\n"
             "@reply turn=%d\n```repl\n%s\n```\n"
             "@reply\n```repl\nawait llm_query(\"wait\")\n```\n",
             first_cell, n + 1, code, n + 2, last_cell);
    f.model = scripted(loop, script);
    f.runtime = runtime;
    f.limits.max_iters = n + 4;
    if (rlm_flow_new(loop, &f, &flow, &err)) {
        fail(err);
    }
    for (int i = 0; i < rounds; i++) {
        measure(flow, code, n, &t, i);
    }
    double straight = median(t.straight_ms, rounds), first = median(t.run_ms, rounds);
    double restored = median(t.restored_ms, rounds);
    printf("%d cells, %s: straight in a session %.1f ms, in the run %.1f ms, restored %.1f ms\n", n,
           what, straight, first, restored);
    printf("  speed of restore: %.2f of the session's, %.2f of the run's; ready %.1f ms after the "
           "call\n",
           straight / restored, first / restored, median(t.ready_ms, rounds));
    rlm_flow_free(flow);
    rlm_model_free(f.model);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    python = argc > 2 ? argv[2] : python;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    struct rlm_subprocess_options s = RLM_SUBPROCESS_OPTIONS_INIT;
    rlm_error *err = NULL;
    s.python = python;
    took_fd = memfd_create("took", MFD_CLOEXEC);
    snprintf(last_cell, sizeof last_cell,
             "open(\"/proc/%d/fd/%d\", \"w\").write(str(time.monotonic() - began))", getpid(),
             took_fd);
    if (took_fd < 0 || rlm_loop_new(&loop, &err) ||
        rlm_runtime_new_subprocess(loop, &s, &runtime, &err)) {
        fail(err);
    }
    compare("trivial", "print(1)", 1000, rounds);
    compare("some ms each", "x = sum(range(200000))\nprint(x)", 200, rounds);
    rlm_runtime_free(runtime);
    rlm_loop_free(loop);
    return 0;
}
