/* A run from its first turn to its end. What comes before: run_start.c, resume.c, replay.c. */
#include "flow/run.h"

#include "flow/ask.h"
#include "flow/record.h"
#include "flow/replay.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- events ---------------------------------------------------------------------------------- */

void rlm_run_emit(
    rlm_run *run, enum rlm_event_type type, rlm_graph *g, const struct rlm_node *node, rlm_str text)
{
    const struct rlm_flow_hooks *hooks = &run->flow->hooks;
    struct rlm_event event = {.type = type, .graph = g, .node = node, .text = text};
    if (hooks->event_committed && type <= RLM_EVENT_REMOVE_CHILD && !run->replay) {
        hooks->event_committed(hooks->arg, run, &event);
    }
    if (run->events.event) {
        run->events.event(run->arg, run, &event);
    }
}

void rlm_run_notice(rlm_run *run, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len >= 0) {
        rlm_run_emit(run, RLM_EVENT_NOTICE, NULL, NULL, (rlm_str){text, (size_t)len});
        free(text);
    }
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void set_text(char **text, const char *value)
{
    free(*text);
    *text = rlm_strdup(value);
}

static void set_reason(rlm_run *run, rlm_str reason)
{
    rlm_str word = reason.len ? reason : RLM_STR("failed");
    snprintf(run->reason, sizeof run->reason, "%.*s", RLM_FMT(word));
}

void rlm_run_halt_because(rlm_run *run, const char *reason, const char *message)
{
    if (!run->stopping) {
        run->stopping = true;
        set_reason(run, rlm_str_of(reason));
        set_text(&run->message, message);
        rlm_run_poke(run);
    }
}

void rlm_run_fail(rlm_run *run, rlm_error *err)
{
    if (!run->stopping) {
        rlm_run_halt_because(run, "failed", rlm_error_message(err));
        run->error = rlm_steal(&err);
    }
    rlm_error_free(err);
}

void rlm_run_fail_no_memory(rlm_run *run)
{
    rlm_error *err = NULL;
    rlm_error_nomem(&err);
    rlm_run_fail(run, err);
}

void rlm_run_halt(rlm_run *run, const char *reason)
{
    rlm_run_halt_because(run, reason, "");
}

void rlm_run_stop(rlm_run *run)
{
    rlm_run_halt(run, "interrupted");
}

void rlm_run_root_ended(rlm_run *run)
{
    const struct rlm_node *last = rlm_graph_current(run->root);
    if (!run->stopping && last && last->type == RLM_DONE_OUTPUT) {
        set_reason(run, last->reason);
        if (!rlm_str_is(last->reason, "answered")) {
            free(run->message);
            run->message = rlm_strndup(last->content.ptr, last->content.len);
        }
        run->stopping = true;
    }
    rlm_run_poke(run);
}

int rlm_run_terminate(rlm_run *run, const char *agent_id, rlm_error **err)
{
    struct rlm_agent *agent = rlm_map_get(&run->agents, rlm_str_of(agent_id ? agent_id : "root"));
    if (!agent) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "no agent is named \"%s\"", agent_id);
    }
    if (!rlm_agent_finished(agent) && !run->stopping) {
        rlm_agent_finish(agent, "terminated", RLM_STR(""), RLM_STR(""),
                         RLM_STR("terminated by the user"));
    }
    return 0;
}

/* ---- sessions and chats that are let go of --------------------------------------------------- */

enum { MOST_IDLE = 64, IDLE_MS = 50 };

void rlm_run_close_session(rlm_run *run, rlm_session *session)
{
    rlm_session **slot = rlm_vec_push(&run->closing);
    if (slot) {
        *slot = session;
    } else {
        rlm_session_close(session);
    }
    rlm_run_poke(run);
}

static void close_idle(void *arg)
{
    rlm_run *run = arg;
    for (size_t i = 0; i < run->idle.len; i++) {
        rlm_session_close(run->idle.items[i]);
    }
    run->idle.len = 0;
}

void rlm_run_retire_session(rlm_run *run, rlm_session *session)
{
    bool later = run->idle.len < MOST_IDLE && !rlm_session_closes_early(session);
    rlm_session **slot = later ? rlm_vec_push(&run->idle) : NULL;
    if (!slot) {
        rlm_run_close_session(run, session);
        return;
    }
    *slot = session;
    rlm_timer_set(run->idle_timer, IDLE_MS);
}

void rlm_run_drop_chat(rlm_run *run, rlm_chat *chat)
{
    rlm_chat **slot = rlm_vec_push(&run->finished_chats);
    if (slot) {
        *slot = chat;
    } else {
        rlm_chat_free(chat);
    }
    rlm_run_poke(run);
}

static void let_go(rlm_run *run)
{
    for (size_t i = 0; i < run->closing.len; i++) {
        rlm_session_close(run->closing.items[i]);
    }
    run->closing.len = 0;
    for (size_t i = 0; i < run->finished_chats.len; i++) {
        rlm_chat_free(run->finished_chats.items[i]);
    }
    run->finished_chats.len = 0;
}

/* ---- turns ----------------------------------------------------------------------------------- */

void rlm_run_poke(rlm_run *run)
{
    rlm_defer_schedule(run->turn);
}

void rlm_run_schedule(struct rlm_agent *agent)
{
    rlm_run *run = agent->run;
    if (agent->scheduled || rlm_agent_finished(agent)) {
        return;
    }
    struct rlm_agent **slot = rlm_vec_push(&run->ready);
    if (!slot) {
        rlm_run_fail_no_memory(run);
        return;
    }
    *slot = agent;
    agent->scheduled = true;
    rlm_run_poke(run);
}

static void drop_all(rlm_run *run)
{
    size_t pos = 0;
    void *agent;
    while (rlm_map_next(&run->agents, &pos, NULL, &agent)) {
        rlm_agent_drop(agent);
    }
    let_go(run);
    rlm_timer_stop(run->ask_timer);
    rlm_timer_stop(run->time_limit);
}

static void end(rlm_run *run)
{
    if (run->ended) {
        return;
    }
    rlm_run_stop_clock(run);
    run->ended = true;
    run->stopping = true;
    atomic_store(&run->reads_canceled, true);
    drop_all(run);
    if (run->root) {
        rlm_record_end(run);
        /* One that was stopped is asked nothing more: whoever wants to go on with it may. */
        if (run->journal && !rlm_graph_finished(run->root)) {
            rlm_journal_unlock(run->journal);
        }
    }
    if (run->events.ended) {
        run->events.ended(run->arg, run);
    }
}

/* Takes the steps of every agent that is ready, and what became possible by them. */
static void turn_now(rlm_run *run)
{
    let_go(run);
    rlm_asks_send(run);
    /* With `sync` a second round would act on records of the first that are not on disk yet. */
    bool again = true;
    while (again && run->ready.len && !run->stopping) {
        again = !run->sync || !run->journal;
        __typeof__(run->ready) ready = run->ready;
        memset(&run->ready, 0, sizeof run->ready);
        for (size_t i = 0; i < ready.len; i++) {
            ready.items[i]->scheduled = false;
            if (!run->stopping) {
                rlm_agent_step(ready.items[i]);
            }
        }
        free(ready.items);
    }
    if (!run->stopping) {
        rlm_asks_pump(run);
    }
    if (run->replay && !run->stopping) {
        rlm_replay_look_for_end(run);
    }
    rlm_run_hold_clock(run);
    if (run->stopping && *run->reason) {
        end(run);
    }
}

static void flushed(void *arg, int result)
{
    rlm_run *run = arg;
    run->flushing = false;
    if (result < 0) {
        rlm_error *err = NULL;
        rlm_error_set(&err, result, "the journal %s could not be written to disk",
                      rlm_run_path(run));
        rlm_run_fail(run, err);
    }
    turn_now(run);
}

static void turn(void *arg)
{
    rlm_run *run = arg;
    if (run->flushing) {
        return;
    }
    if (run->ended) {
        let_go(run); /* of a session that was kept */
        return;
    }
    /* With `sync` nothing acts on a record before it is on disk. */
    if (run->sync && run->journal && (run->ready.len || run->unsent_asks) && !run->stopping) {
        rlm_error *err = NULL;
        if (rlm_journal_flush(run->journal, flushed, run, &err) == 0) {
            run->flushing = true;
            return;
        }
        rlm_run_fail(run, err);
    }
    turn_now(run);
}

int rlm_run_wait(rlm_run *run, rlm_error **err)
{
    while (!run->ended) {
        if (!rlm_loop_turn(run->loop) && !run->ended) {
            return rlm_error_set(err, RLM_E_INVAL,
                                 "the run waits for nothing; this is a fault of rlmflow");
        }
    }
    return 0;
}

/* ---- made and freed -------------------------------------------------------------------------- */

int rlm_run_new(rlm_flow *flow,
                const struct rlm_run_events *events,
                void *arg,
                rlm_run **ret_run,
                rlm_error **err)
{
    rlm_run *run;
    if (!RLM_NEW(run)) {
        return rlm_error_nomem(err);
    }
    flow->runs++;
    run->flow = flow;
    run->loop = flow->loop;
    run->events = events ? *events : (struct rlm_run_events){0};
    run->arg = arg;
    run->ledger.max_tokens = flow->limits.max_budget;
    run->ledger.max_cost_nano = flow->limits.max_cost_nano;
    run->turn = rlm_defer_new(run->loop, turn, run);
    run->idle_timer = rlm_timer_new(run->loop, close_idle, run);
    run->ask_timer = rlm_timer_new(run->loop, (rlm_callback)rlm_asks_pump, run);
    run->time_limit = rlm_timer_new(run->loop, rlm_run_time_is_over, run);
    run->tool_calls = rlm_calloc(flow->tools.list.len + 1, sizeof *run->tool_calls);
    if (!run->turn || !run->ask_timer || !run->idle_timer || !run->time_limit || !run->tool_calls) {
        rlm_run_free(run);
        return rlm_error_nomem(err);
    }
    *ret_run = run;
    return 0;
}

void rlm_run_free(rlm_run *run)
{
    if (!run) {
        return;
    }
    if (!run->ended && run->root) {
        run->events = (struct rlm_run_events){0};
        run->stopping = true;
        drop_all(run);
    }
    atomic_store(&run->reads_canceled, true);
    size_t pos = 0;
    void *agent;
    while (rlm_map_next(&run->agents, &pos, NULL, &agent)) {
        rlm_agent_free(agent);
    }
    while (run->reads) {
        rlm_loop_turn(run->loop);
    }
    rlm_inputs_free(run->inputs);
    let_go(run);
    close_idle(run);
    rlm_map_deinit(&run->agents);
    rlm_map_deinit(&run->recorded_blobs);
    free(run->tool_calls);
    free(run->ready.items);
    free(run->slot_queue.items);
    free(run->asks.items);
    free(run->closing.items);
    free(run->idle.items);
    free(run->finished_chats.items);
    rlm_defer_free(run->turn);
    rlm_timer_free(run->ask_timer);
    rlm_timer_free(run->idle_timer);
    rlm_timer_free(run->time_limit);
    if (run->journal && rlm_journal_records(run->journal) == 0) {
        rlm_journal_discard(run->journal);
    } else if (run->journal) {
        rlm_journal_close(run->journal);
    } else if (run->blobs) {
        rlm_blobs_free(run->blobs);
    }
    rlm_graph_free(run->root);
    rlm_replay_free(run->replay);
    free(run->query);
    free(run->output_schema);
    free(run->program);
    free(run->message);
    rlm_error_free(run->error);
    run->flow->runs--;
    free(run);
}

/* ---- what is known of it --------------------------------------------------------------------- */

bool rlm_run_has_ended(const rlm_run *run)
{
    return run->ended;
}

rlm_graph *rlm_run_graph(rlm_run *run)
{
    return run->root;
}

enum rlm_agent_state rlm_run_agent_state(const rlm_run *run, const rlm_graph *g)
{
    const struct rlm_agent *agent = rlm_map_get(&run->agents, rlm_str_of(g->agent_id));
    return agent ? agent->state : RLM_AGENT_FINISHED;
}

rlm_str rlm_run_answer(const rlm_run *run)
{
    return run->root ? rlm_graph_result(run->root) : RLM_STR("");
}

const char *rlm_run_reason(const rlm_run *run)
{
    return run->ended ? run->reason : "";
}

const char *rlm_run_message(const rlm_run *run)
{
    return run->message ? run->message : "";
}

const rlm_error *rlm_run_error(const rlm_run *run)
{
    return run->error;
}

struct rlm_usage rlm_run_usage(const rlm_run *run)
{
    return run->ledger.settled;
}

const char *rlm_run_path(const rlm_run *run)
{
    return run->journal ? rlm_journal_path(run->journal) : NULL;
}

int rlm_run_check_kept(const rlm_run *run, rlm_error **err)
{
    return run->journal ? rlm_journal_check_place(run->journal, err) : 0;
}

uint64_t rlm_run_disk_bytes(const rlm_run *run)
{
    return run->journal ? rlm_journal_disk_bytes(run->journal) : 0;
}
