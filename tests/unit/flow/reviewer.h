/* Somebody who reviews: what hooks are asked is noted, and answered as a test says. The clock can be
 * advanced. */
#pragma once

#include "whole_run.h"

#include "base/loop.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A clock that can be advanced: the engine and its event loop read this one. */
static int64_t advanced_s;

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *t)
{
    int r = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE) {
        t->tv_sec += advanced_s;
    }
    return r;
}

enum { HOUR_S = 3600, MOST = 16 };

enum answer { LATER, ALLOW, REWRITE, REJECT, POSTPONE };

/* What a test says at its gates, and what it was asked. */
struct reviewer {
    enum answer turn, call, model; /* LATER keeps the question */
    const char *agent;             /* turns of this one; others are allowed */
    int skip;                      /* the first turns of that one are allowed too */
    const char *only;              /* the same for host calls, by name */
    const char *text;              /* of a rewrite or a rejection */
    rlm_gate *kept[MOST];
    int n_kept, turns, calls, models, cancelled, commits, replayed;
    char asked[4096];
};

static inline void give(struct reviewer *r, enum answer how, rlm_gate *gate)
{
    struct rlm_str text = {r->text ? r->text : "", r->text ? strlen(r->text) : 0};
    switch (how) {
    case LATER:
        CHECK(r->n_kept < MOST);
        r->kept[r->n_kept++] = gate;
        break;
    case ALLOW:
        rlm_gate_allow(gate, "tester");
        break;
    case REWRITE:
        rlm_gate_rewrite(gate, "tester", text);
        break;
    case REJECT:
        rlm_gate_reject(gate, "tester", text);
        break;
    case POSTPONE:
        rlm_gate_postpone(gate, "nobody is here");
        break;
    }
}

static inline void note(struct reviewer *r, const char *what, struct rlm_str text)
{
    size_t len = strlen(r->asked);
    snprintf(r->asked + len, sizeof r->asked - len, "%s %.*s\n", what, RLM_FMT(text));
}

static inline void cancelled(void *arg)
{
    ((struct reviewer *)arg)->cancelled++;
}

static inline void
exec_turn(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str code, bool replay)
{
    struct reviewer *r = arg;
    r->turns++;
    r->replayed += replay;
    note(r, rlm_graph_agent_id(g), code);
    rlm_gate_on_cancel(gate, cancelled, r);
    bool meant = !r->agent || strcmp(rlm_graph_agent_id(g), r->agent) == 0;
    meant = meant && r->skip-- <= 0;
    give(r, meant ? r->turn : ALLOW, gate);
}

static inline void model_call(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str call_json)
{
    struct reviewer *r = arg;
    r->models++;
    note(r, rlm_graph_agent_id(g), call_json);
    rlm_gate_on_cancel(gate, cancelled, r);
    give(r, memmem(call_json.ptr, call_json.len, "\"turn\":0", 8) ? r->model : ALLOW, gate);
}

static inline void host_call(void *arg,
                             rlm_gate *gate,
                             rlm_graph *g,
                             struct rlm_str name,
                             struct rlm_str arguments_json,
                             bool replay)
{
    struct reviewer *r = arg;
    (void)g;
    r->calls++;
    r->replayed += replay;
    bool meant = !r->only || rlm_str_is(name, r->only);
    if (meant) {
        note(r, "call", name);
        note(r, "with", arguments_json);
        rlm_gate_on_cancel(gate, cancelled, r);
    }
    give(r, meant ? r->call : ALLOW, gate);
}

static inline void event_committed(void *arg, rlm_run *run, const struct rlm_event *event)
{
    (void)run;
    ((struct reviewer *)arg)->commits += event->type == RLM_EVENT_APPEND_NODE;
}

enum { TURN = 1, CALL = 2, MODEL = 4 };

static inline void hook(struct setup *s, struct reviewer *r, int which)
{
    struct rlm_flow_hooks hooks = RLM_FLOW_HOOKS_INIT;
    hooks.arg = r;
    hooks.exec_turn = which & TURN ? exec_turn : NULL;
    hooks.host_call = which & CALL ? host_call : NULL;
    hooks.model_call = which & MODEL ? model_call : NULL;
    hooks.event_committed = event_committed;
    CHECK_INT(rlm_flow_set_hooks(s->flow, &hooks, NULL), 0);
}

static inline void turn_until_asked(struct setup *s, struct reviewer *r, int n)
{
    while (r->n_kept < n) {
        CHECK(rlm_loop_turn(s->loop));
        CHECK(!rlm_run_has_ended(s->run));
    }
}

/* Lets an hour pass, and everything happen that would happen in it. */
static inline void an_hour_later(struct setup *s)
{
    for (int i = 0; i < 40; i++) {
        advanced_s += i == 20 ? HOUR_S : 0;
        rlm_loop_dispatch(s->loop);
        usleep(1000);
    }
}

static inline const struct rlm_node *node(const struct setup *s, const char *agent, size_t i)
{
    const struct rlm_node *n = rlm_graph_node(rlm_graph_agent(rlm_run_graph(s->run), agent), i);
    CHECK(n != NULL);
    return n;
}

static inline const char *journal(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/run.rlm", harness_directory());
    return path;
}

/* Whether the journal's file holds a text. */
static inline bool is_recorded(const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/journal", journal());
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    static char all[1 << 20];
    size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    return memmem(all, n, text, strlen(text)) != NULL;
}

/* Plays the run again; `code`: 0, or that it must differ. */
static inline void replay(struct setup *s, bool execute, bool differs)
{
    replay_run(s, journal(), execute, differs);
}

static inline void resume(struct setup *s)
{
    struct rlm_resume_options o = RLM_RESUME_OPTIONS_INIT;
    rlm_error *err = NULL;
    rlm_run_free(s->run);
    o.journal = journal();
    o.restore = RLM_RESTORE_REPLAY;
    if (rlm_flow_resume(s->flow, &o, NULL, NULL, &s->run, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
}

static inline const char *state(const struct setup *s, const char *agent)
{
    static const char *const names[] = {[RLM_AGENT_GATED] = "gated",
                                        [RLM_AGENT_WAITING] = "waiting",
                                        [RLM_AGENT_FINISHED] = "finished"};
    enum rlm_agent_state now =
        rlm_run_agent_state(s->run, rlm_graph_agent(rlm_run_graph(s->run), agent));
    return names[now] ? names[now] : "at work";
}
