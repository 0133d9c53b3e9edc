/* A whole run through the public header: real sessions and a scripted model. `setup`, `start`, `finish`
 * and, at the end of the test, `teardown`. */
#pragma once

#include "base/str.h"
#include "harness.h"
#include "rlmflow.h"

#include <dirent.h>
#include <unistd.h>

struct setup {
    rlm_loop *loop;
    rlm_model *model;
    rlm_runtime *runtime;
    rlm_flow *flow;
    rlm_run *run;
    struct rlm_limits limits;
    int open_fds;
};

static inline int count_fds(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

static inline struct setup setup(const char *script, struct rlm_limits limits)
{
    /* What libuv opens once for the process is not counted. */
    rlm_loop *first;
    CHECK(rlm_loop_new(&first, NULL) == 0);
    rlm_loop_free(first);
    struct setup s = {.limits = limits, .open_fds = count_fds()};
    char path[256];
    snprintf(path, sizeof path, "%s/script", harness_directory());
    FILE *f = fopen(path, "w");
    fputs(script, f);
    fclose(f);
    rlm_error *err = NULL;
    struct rlm_subprocess_options sub = RLM_SUBPROCESS_OPTIONS_INIT;
    struct rlm_flow_options flow = RLM_FLOW_OPTIONS_INIT;
    sub.python = "/usr/bin/python3";
    CHECK(rlm_loop_new(&s.loop, &err) == 0);
    CHECK(rlm_model_new_scripted(s.loop, path, &s.model, &err) == 0);
    CHECK(rlm_runtime_new_subprocess(s.loop, &sub, &s.runtime, &err) == 0);
    flow.limits = limits;
    flow.model = s.model;
    flow.runtime = s.runtime;
    CHECK(rlm_flow_new(s.loop, &flow, &s.flow, &err) == 0);
    return s;
}

static inline void
start(struct setup *s, const char *journal, const struct rlm_run_events *events, void *arg)
{
    rlm_error *err = NULL;
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    o.query = (struct rlm_str){"do it", 5};
    o.journal = journal;
    if (rlm_run_start(s->flow, &o, events, arg, &s->run, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
}

static inline void finish(struct setup *s, const char *reason, const char *answer)
{
    CHECK(rlm_run_wait(s->run, NULL) == 0);
    if (strcmp(rlm_run_reason(s->run), reason) != 0) {
        harness_fail(__FILE__, __LINE__, "the run ended as %s: %s", rlm_run_reason(s->run),
                     rlm_run_message(s->run));
    }
    CHECK_STR(rlm_run_answer(s->run), answer);
}

/* Plays the run at `path` again, in the place of the one that there is; it is as recorded, or `differs`. */
static inline const struct rlm_replay_report *
replay_run(struct setup *s, const char *path, bool execute, bool differs)
{
    struct rlm_replay_options o = RLM_REPLAY_OPTIONS_INIT;
    rlm_run_free(s->run);
    o.journal = path;
    o.execute = execute;
    CHECK_INT(rlm_flow_replay(s->flow, &o, NULL, NULL, &s->run, NULL), 0);
    CHECK_INT(rlm_run_wait(s->run, NULL), 0);
    const struct rlm_replay_report *report = rlm_run_replay_report(s->run);
    if (report->diverged != differs) {
        harness_fail(__FILE__, __LINE__, "%s: %.*s, %.*s", report->diverged ? report->what : "same",
                     RLM_FMT(report->recorded), RLM_FMT(report->replayed));
    }
    return report;
}

/* Everything is given back: objects by the sanitizer's word, descriptors by counting. */
static inline void teardown(struct setup *s)
{
    rlm_run_free(s->run);
    rlm_flow_free(s->flow);
    rlm_runtime_free(s->runtime);
    rlm_model_free(s->model);
    rlm_loop_free(s->loop);
    CHECK_INT(count_fds(), s->open_fds);
}

static const struct rlm_limits defaults = RLM_LIMITS_INIT;
