/* What the engine itself costs: CPU of this process, a turn and a child, with a journal.
 *
 * The model is scripted and has no latency, so what is counted is the engine, the scripted model, the
 * journal (in TMPDIR) and the starting of worker processes, until the run has been freed; the workers'
 * own CPU is not (it is shown beside it). The floor is the CPU that this process spends on starting as
 * many bare `python3 -c pass` processes.
 *
 *     bench_engine [CHILDREN=1000] [TURNS=1000] [PYTHON=/usr/bin/python3]
 */
#include "base/process.h"
#include "rlmflow.h"

#include "measure.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *python = "/usr/bin/python3";

struct cost {
    double engine_s, workers_s, wall_s;
};

static struct cost run(const char *script, int max_agents, int max_iters)
{
    rlm_loop *loop;
    rlm_runtime *runtime;
    rlm_flow *flow;
    rlm_run *r;
    rlm_error *err = NULL;
    struct rlm_subprocess_options s = RLM_SUBPROCESS_OPTIONS_INIT;
    struct rlm_flow_options f = RLM_FLOW_OPTIONS_INIT;
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    s.python = python;
    f.limits.max_agents = max_agents;
    f.limits.max_iters = max_iters;
    f.limits.workers = 64;
    o.query = (struct rlm_str){"go", 2};
    o.journal = scratch_path();
    if (rlm_loop_new(&loop, &err) || rlm_runtime_new_subprocess(loop, &s, &runtime, &err)) {
        fail(err);
    }
    f.model = scripted(loop, script);
    f.runtime = runtime;
    double engine = cpu_s(RUSAGE_SELF), workers = cpu_s(RUSAGE_CHILDREN);
    uint64_t start = rlm_now_us();
    if (rlm_flow_new(loop, &f, &flow, &err) || rlm_run_start(flow, &o, NULL, NULL, &r, &err) ||
        rlm_run_wait(r, &err)) {
        fail(err);
    }
    double wall_s = (double)(rlm_now_us() - start) / 1e6;
    if (strcmp(rlm_run_reason(r), "answered") != 0) {
        fprintf(stderr, "%s: %s\n", rlm_run_reason(r), rlm_run_message(r));
        exit(1);
    }
    rlm_run_free(r);
    struct cost cost = {cpu_s(RUSAGE_SELF) - engine, 0, wall_s};
    rlm_flow_free(flow);
    rlm_runtime_free(runtime);
    rlm_model_free(f.model);
    rlm_loop_free(loop);
    scratch_remove();
    cost.workers_s = cpu_s(RUSAGE_CHILDREN) - workers;
    return cost;
}

static int left;

static void exited(void *arg, const struct rlm_process_exit *how)
{
    (void)arg, (void)how;
    left--;
}

/* CPU of this process for starting and reaping one bare interpreter. */
static double bare_start_us(int n)
{
    rlm_loop *loop;
    rlm_error *err = NULL;
    const char *const argv[] = {python, "-S", "-c", "pass", NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    struct rlm_process_options o = {.argv = argv, .env = env};
    if (rlm_loop_new(&loop, &err)) {
        fail(err);
    }
    double before = cpu_s(RUSAGE_SELF);
    for (int i = 0; i < n; i++) {
        rlm_process *p;
        left = 1;
        if (rlm_process_start(loop, &o, exited, NULL, &p, &err) < 0) {
            fail(err);
        }
        while (left) {
            rlm_loop_turn(loop);
        }
        rlm_process_free(p);
    }
    double cost = cpu_s(RUSAGE_SELF) - before;
    rlm_loop_free(loop);
    return cost / n * 1e6;
}

int main(int argc, char **argv)
{
    int children = argc > 1 ? atoi(argv[1]) : 1000, turns = argc > 2 ? atoi(argv[2]) : 1000;
    python = argc > 3 ? argv[3] : python;
    char script[2048];
    snprintf(script, sizeof script,
             "@reply agent=root turn=1\n```repl\n"
             "r = await launch_subagents([{\"query\": \"q\"} for i in range(%d)])\n"
             "done(sum(x == \"x\" for x in r))\n```\n"
             "@reply agent=root.*\n```repl\ndone(\"x\")\n```\n",
             children);
    struct cost c = run(script, children + 1, 20);
    printf("child, one turn (%d, 64 live):   engine %.0f us, worker %.1f ms, wall %.1f ms\n",
           children, c.engine_s / children * 1e6, c.workers_s / children * 1e3,
           c.wall_s / children * 1e3);
    printf("  floor: starting a bare python3:   %.0f us of this process\n", bare_start_us(100));
    snprintf(script, sizeof script,
             "@reply turn=1-%d\n```repl\nprint(1)\n```\n@reply\n```repl\ndone(1)\n```\n",
             turns - 1);
    c = run(script, 10, turns);
    printf("turn of one agent (%d turns):    engine %.0f us, worker %.0f us, wall %.0f us\n", turns,
           c.engine_s / turns * 1e6, c.workers_s / turns * 1e6, c.wall_s / turns * 1e6);
    snprintf(script, sizeof script,
             "@reply turn=1-99\n```repl\nprint(1)\n```\n@reply\n```repl\ndone(1)\n```\n");
    c = run(script, 10, 100);
    printf("turn of one agent (100 turns):     engine %.0f us, worker %.0f us, wall %.0f us\n",
           c.engine_s / 100 * 1e6, c.workers_s / 100 * 1e6, c.wall_s / 100 * 1e6);
    return 0;
}
