/* What the journal costs a fan-out, and what a replay of it costs.
 *
 * A root asks for N children at once, each answers in one cell; the model is scripted. The same run in
 * turns: kept in memory only; with a journal (in TMPDIR); with a journal that each step waits for
 * (`--sync`); then the journaled one replayed, its code run again (`--execute`) and not. Medians of ROUNDS,
 * until the run has ended and until it has been freed (its journal synced and closed), and this process's
 * CPU. The journal is measured beside the run in memory. A replay asks no model, so it is measured beside
 * the run in memory whose model has no latency: that is what the workers and the engine need. With 64
 * children workers are started ahead, so that starting them, most of the time, hides nothing.
 *
 *     bench_fanout [MANY=1000] [ROUNDS=5] [PYTHON=/usr/bin/python3]
 */
#include "rlmflow.h"

#include "measure.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 64, ROUNDS_MAX = 100 };

enum way { IN_MEMORY, JOURNALED, REPLAYED, EXECUTED, SYNCED, WAYS };

struct times {
    double ended_ms[ROUNDS_MAX], freed_ms[ROUNDS_MAX], cpu_ms[ROUNDS_MAX];
};

static const char *python = "/usr/bin/python3";

/* CPU that this process's children have used so far, in clock ticks; how many there are. */
static long long children_ticks(int *ret_n)
{
    char path[64];
    long long sum = 0;
    int pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    FILE *list = fopen(path, "r");
    *ret_n = 0;
    while (list && fscanf(list, "%d", &pid) == 1) {
        long long user = 0, system = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *stat = fopen(path, "r");
        if (stat && fscanf(stat, "%*d (%*[^)]) %*c%*d%*d%*d%*d%*d%*d%*d%*d%*d%*d%lld%lld", &user,
                           &system) == 2) {
            sum += user + system;
            ++*ret_n;
        }
        if (stat) {
            fclose(stat);
        }
    }
    if (list) {
        fclose(list);
    }
    return sum;
}

/* Until that many workers have been started ahead and have nothing more to do. */
static void settle_workers(rlm_loop *loop, int workers)
{
    enum { CALM_MS = 500 };
    long long before, now = -1;
    int n;
    do {
        before = now;
        settle(loop, CALM_MS);
        now = children_ticks(&n);
    } while (n < workers || now != before);
}

static void check(rlm_run *run, int children)
{
    char expected[16];
    snprintf(expected, sizeof expected, "%d", children);
    struct rlm_str answer = rlm_run_answer(run);
    if (answer.len != strlen(expected) || memcmp(answer.ptr, expected, answer.len) != 0) {
        fprintf(stderr, "the run ended with \"%.*s\" (%s %s)\n", (int)answer.len, answer.ptr,
                rlm_run_reason(run), rlm_run_message(run));
        exit(1);
    }
}

/* `journal`: to be written or, in a replay, to be read. */
static rlm_run *start(rlm_flow *flow, enum way way, const char *journal)
{
    rlm_run *run;
    rlm_error *err = NULL;
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    struct rlm_replay_options again = RLM_REPLAY_OPTIONS_INIT;
    bool replay = way == REPLAYED || way == EXECUTED;
    o.query = (struct rlm_str){"go", 2};
    o.journal = way == IN_MEMORY ? NULL : journal;
    o.sync = way == SYNCED;
    again.journal = journal;
    again.execute = way == EXECUTED;
    if (replay ? rlm_flow_replay(flow, &again, NULL, NULL, &run, &err)
               : rlm_run_start(flow, &o, NULL, NULL, &run, &err)) {
        fail(err);
    }
    return run;
}

static void
measure(rlm_flow *flow, enum way way, const char *journal, int children, struct times *t, int round)
{
    rlm_error *err = NULL;
    double cpu = cpu_s(RUSAGE_SELF);
    uint64_t begin_us = rlm_now_us();
    rlm_run *run = start(flow, way, journal);
    if (rlm_run_wait(run, &err)) {
        fail(err);
    }
    t->ended_ms[round] = (double)(rlm_now_us() - begin_us) / 1e3;
    check(run, children);
    rlm_run_free(run);
    t->freed_ms[round] = (double)(rlm_now_us() - begin_us) / 1e3;
    t->cpu_ms[round] = (cpu_s(RUSAGE_SELF) - cpu) * 1e3;
}

static void report(const char *what, struct times *t, struct times *beside, int rounds)
{
    double ended = median(t->ended_ms, rounds), freed = median(t->freed_ms, rounds);
    double cpu = median(t->cpu_ms, rounds);
    printf("  %-18s %9.1f ms", what, ended);
    printf(beside ? ", ratio %.2f" : "            ",
           ended / (beside ? median(beside->ended_ms, rounds) : 1));
    printf("; freed %9.1f ms", freed);
    printf(beside ? ", ratio %.2f" : "            ",
           freed / (beside ? median(beside->freed_ms, rounds) : 1));
    printf("; engine's CPU %8.1f ms\n", cpu);
}

/* The five ways in turns. Replays are not made where the model has a latency. */
static void compare(int children, int delay_ms, bool ahead, int rounds)
{
    static struct times all[WAYS];
    rlm_loop *loop;
    rlm_runtime *runtime;
    rlm_flow *flow;
    rlm_error *err = NULL;
    struct rlm_subprocess_options s = RLM_SUBPROCESS_OPTIONS_INIT;
    struct rlm_flow_options f = RLM_FLOW_OPTIONS_INIT;
    char script[1024];
    snprintf(script, sizeof script,
             "@reply agent=root delay=%dms\n```repl\n"
             "r = await launch_subagents([{\"query\": \"q\"}] * %d)\n"
             "done(sum(x == \"x\" for x in r))\n```\n"
             "@reply delay=%dms\n```repl\ndone(\"x\")\n```\n",
             delay_ms, children, delay_ms);
    s.python = python;
    s.spare = ahead ? children + 1 : 0;
    f.limits.workers = f.limits.max_live = WIDTH;
    f.limits.max_agents = children + 1;
    if (rlm_loop_new(&loop, &err) || rlm_runtime_new_subprocess(loop, &s, &runtime, &err)) {
        fail(err);
    }
    f.model = scripted(loop, script);
    f.runtime = runtime;
    if (rlm_flow_new(loop, &f, &flow, &err)) {
        fail(err);
    }
    for (int i = 0; i < rounds; i++) {
        const char *journal = NULL;
        for (enum way way = IN_MEMORY; way < WAYS; way++) {
            if (delay_ms && (way == REPLAYED || way == EXECUTED)) {
                continue;
            }
            if (way == JOURNALED || way == SYNCED) {
                if (journal) {
                    scratch_remove();
                }
                journal = scratch_path();
            }
            settle_workers(loop, s.spare);
            measure(flow, way, journal, children, &all[way], i);
        }
        scratch_remove();
    }
    printf("1 + %d agents, %d at a time, a model of %d ms%s\n", children, WIDTH, delay_ms,
           ahead ? ", workers started ahead" : "");
    report("in memory", &all[IN_MEMORY], NULL, rounds);
    report("journal", &all[JOURNALED], &all[IN_MEMORY], rounds);
    report("journal, --sync", &all[SYNCED], &all[IN_MEMORY], rounds);
    if (!delay_ms) {
        report("replay --execute", &all[EXECUTED], &all[IN_MEMORY], rounds);
        report("replay", &all[REPLAYED], &all[IN_MEMORY], rounds);
    }
    rlm_flow_free(flow);
    rlm_runtime_free(runtime);
    rlm_model_free(f.model);
    rlm_loop_free(loop);
}

int main(int argc, char **argv)
{
    int many = argc > 1 ? atoi(argv[1]) : 1000, rounds = argc > 2 ? atoi(argv[2]) : 5;
    python = argc > 3 ? argv[3] : python;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    compare(64, 50, true, rounds);
    compare(64, 0, true, rounds);
    compare(many, 0, false, rounds);
    return 0;
}
