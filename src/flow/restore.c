/* Cells run again in a new session, with the answers that are recorded. */
#include "flow/restore.h"

#include "flow/call.h"
#include "flow/observe.h"

#include <stdio.h>

enum { TEXT_MAX = 1024 * 1024, ARGUMENTS_MAX = 64 * 1024 * 1024 };

/* A call of the cell in flight that has no recorded answer: it waits until the cell is live. */
struct held_call {
    struct rlm_host_call call;
    struct rlm_past_call *was; /* NULL: not made before */
};

struct rlm_restore {
    RLM_VEC(struct rlm_past_cell *) cells;
    RLM_VEC(int64_t) numbers; /* of the cells */
    bool goes_on;             /* the last one was in flight */
    bool running;             /* the cell `at` is in the session */
    size_t at;
    size_t delivered; /* deliveries of that cell */
    bool answered;    /* it was told that its answer was accepted */
    RLM_VEC(struct held_call) held;
    rlm_arena *arena; /* of what is held */
    rlm_timer *patience;
    struct rlm_buf differ; /* the numbers of cells that printed something else */
};

void rlm_restore_free(struct rlm_restore *restore)
{
    if (restore) {
        free(restore->cells.items);
        free(restore->numbers.items);
        free(restore->held.items);
        rlm_arena_free(restore->arena);
        rlm_timer_free(restore->patience);
        rlm_buf_deinit(&restore->differ);
        free(restore);
    }
}

static void patience_is_over(void *arg);

static bool add_cell(struct rlm_restore *restore, struct rlm_past_cell *cell)
{
    struct rlm_past_cell **slot = rlm_vec_push(&restore->cells);
    int64_t *number = slot ? rlm_vec_push(&restore->numbers) : NULL;
    if (number) {
        *slot = cell;
        *number = cell->number;
    }
    return number != NULL;
}

struct rlm_restore *rlm_restore_new(struct rlm_agent *agent,
                                    struct rlm_past_cell *const *cells,
                                    size_t n_cells,
                                    struct rlm_past_cell *in_flight)
{
    struct rlm_restore *restore;
    if (!RLM_NEW(restore)) {
        return NULL;
    }
    restore->differ = RLM_BUF(TEXT_MAX);
    restore->arena = rlm_arena_new(0);
    restore->patience = rlm_timer_new(agent->run->loop, patience_is_over, agent);
    bool ok = restore->arena && restore->patience;
    for (size_t i = 0; ok && i < n_cells; i++) {
        ok = add_cell(restore, cells[i]);
    }
    if (ok && in_flight) {
        restore->goes_on = true;
        ok = add_cell(restore, in_flight);
    }
    if (!ok) {
        rlm_restore_free(restore);
        return NULL;
    }
    return restore;
}

const int64_t *rlm_restore_cells(const struct rlm_restore *restore, size_t *ret_n)
{
    *ret_n = restore ? restore->numbers.len : 0;
    return restore ? restore->numbers.items : NULL;
}

bool rlm_restore_goes_on(const struct rlm_restore *restore)
{
    return restore && restore->goes_on;
}

static bool is_last(const struct rlm_restore *restore)
{
    return restore->at + 1 == restore->cells.len;
}

static bool is_going_on(const struct rlm_restore *restore)
{
    return restore->goes_on && is_last(restore);
}

/* ---- the end of a restore -------------------------------------------------------------------- */

/* The cell cannot be brought back: the session is made anew without it and those behind it. */
static void diverge(struct rlm_agent *agent, const char *why)
{
    struct rlm_restore *old = agent->restore;
    struct rlm_past_cell *cell = old->cells.items[old->at];
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    rlm_error *err = NULL;
    rlm_run_notice(agent->run, "%s: cell %lld could not be restored: it %s", agent->graph->agent_id,
                   (long long)cell->number, why);
    rlm_buf_addf(&text,
                 "Your session had to be made again, and cell %lld then %s: what it and later "
                 "cells did is not there.",
                 (long long)cell->number, why);
    rlm_restore_put_gone(old->cells.items + old->at, old->cells.len - old->at, &text, &err);
    struct rlm_restore *shorter =
        err ? NULL : rlm_restore_new(agent, old->cells.items, old->at, NULL);
    if (!shorter) {
        rlm_error_free(err);
        rlm_run_fail_no_memory(agent->run);
        return;
    }
    if (old->goes_on) {
        agent->interrupted = old->cells.items[old->cells.len - 1];
    }
    rlm_restore_tell(agent, rlm_buf_str(&text));
    agent->restore = shorter;
    for (size_t i = 0; i < shorter->cells.len; i++) {
        rlm_past_forget_calls(shorter->cells.items[i]);
    }
    if (agent->session) {
        rlm_run_close_session(agent->run, rlm_steal(&agent->session));
        agent->session_ready = false;
    }
    rlm_restore_free(old);
    if (!shorter->cells.len) {
        rlm_restore_free(rlm_steal(&agent->restore));
    }
    rlm_run_schedule(agent);
}

static void patience_is_over(void *arg)
{
    struct rlm_agent *agent = arg;
    struct rlm_restore *restore = agent->restore;
    if (restore && restore->running) {
        bool has_all = restore->delivered == restore->cells.items[restore->at]->deliveries.len;
        diverge(agent,
                has_all ? "did not end, as it had" : "did not make a host call that it had made");
    }
}

static void finish_restore(struct rlm_agent *agent)
{
    struct rlm_restore *restore = rlm_steal(&agent->restore);
    if (restore->differ.len) {
        rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
        rlm_buf_addf(&text,
                     "When the session was made again, %s printed something else than before.",
                     restore->differ.ptr);
        rlm_restore_tell(agent, rlm_buf_str(&text));
    }
    rlm_restore_free(restore);
    rlm_run_schedule(agent);
}

/* All that the cell had been given it has again: from here on it is live. */
static void go_live(struct rlm_agent *agent)
{
    struct rlm_restore *restore = rlm_steal(&agent->restore);
    struct rlm_past_cell *cell = restore->cells.items[restore->at];
    agent->cell = cell->number;
    agent->cell_open = true;
    agent->again = cell;
    rlm_agent_set_state(agent, RLM_AGENT_RUNNING);
    for (size_t i = 0; i < restore->held.len && agent->session; i++) {
        struct held_call *held = &restore->held.items[i];
        if (held->was) {
            held->was->made_as = 0; /* the next to be matched with what was recorded */
        }
        rlm_calls_begin(agent, &held->call, 1);
    }
    rlm_restore_free(restore);
}

/* ---- running cells --------------------------------------------------------------------------- */

/* How long the cell went on after the last that it was given. */
static uint64_t went_on_ms(const struct rlm_agent *agent, const struct rlm_past_cell *cell)
{
    const rlm_graph *g = agent->graph;
    int64_t since_us = 0;
    if (cell->deliveries.len) {
        since_us = cell->deliveries.items[cell->deliveries.len - 1].time_us;
    }
    if (!since_us && cell->action < g->nodes.len) {
        since_us = g->nodes.items[cell->action]->time_us;
    }
    int64_t took_us = cell->end && since_us ? cell->end->time_us - since_us : 0;
    return took_us > 0 ? (uint64_t)took_us / 1000 : 0;
}

/* Hands over what was handed over next, when the calls are there. */
static void deliver(struct rlm_agent *agent)
{
    struct rlm_restore *restore = agent->restore;
    struct rlm_past_cell *cell = restore->cells.items[restore->at];
    uint64_t timeout_ms = (uint64_t)agent->run->flow->limits.exec_timeout_ms;
    while (restore->delivered < cell->deliveries.len) {
        const struct rlm_past_delivery *d = &cell->deliveries.items[restore->delivered];
        struct rlm_call_result *results = rlm_calloc(d->n_calls + 1, sizeof *results);
        bool all = results != NULL;
        for (size_t i = 0; all && i < d->n_calls; i++) {
            all = d->calls[i]->made_as != 0;
            results[i] = rlm_past_result(d->calls[i]);
        }
        if (!all) {
            free(results);
            rlm_timer_set(restore->patience, timeout_ms);
            return;
        }
        for (size_t i = 0; i < d->n_calls; i++) {
            restore->answered |= rlm_str_is(d->calls[i]->name, "done") && !results[i].error_type;
        }
        rlm_error *err = NULL;
        restore->delivered++;
        int r = rlm_session_resume(agent->session, results, d->n_calls, &err);
        free(results);
        if (r < 0) {
            rlm_run_fail(agent->run, err);
            return;
        }
    }
    /* No clock of the session's runs while a call is open that was never answered. */
    rlm_timer_set(restore->patience, timeout_ms + went_on_ms(agent, cell));
    if (restore->answered) {
        rlm_session_unwind(agent->session);
    }
    if (is_going_on(restore)) {
        go_live(agent);
    }
}

static void start_cell(struct rlm_agent *agent)
{
    struct rlm_restore *restore = agent->restore;
    struct rlm_past_cell *cell = restore->cells.items[restore->at];
    rlm_error *err = NULL;
    restore->running = true;
    restore->delivered = 0;
    restore->answered = false;
    int r = cell->recovered.len ? rlm_session_recover(agent->session, cell->recovered, &err) : 0;
    if (r == 0) {
        r = rlm_session_start(agent->session, cell->number, cell->code, &err);
    }
    if (r < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    deliver(agent);
}

void rlm_restore_ready(struct rlm_agent *agent)
{
    rlm_agent_set_state(agent, RLM_AGENT_RESTORING);
    start_cell(agent);
}

/* ---- host calls ------------------------------------------------------------------------------ */

/* Keeps a call until the cell is live. The next equal call is another one than `was`. */
static bool
hold(struct rlm_agent *agent, const struct rlm_host_call *call, struct rlm_past_call *was)
{
    struct rlm_restore *restore = agent->restore;
    struct held_call *slot = rlm_vec_push(&restore->held);
    rlm_error *err = NULL;
    int r =
        slot ? rlm_host_call_copy(restore->arena, call, &slot->call, &err) : rlm_error_nomem(&err);
    if (r == 0) {
        slot->was = was;
        if (was) {
            was->made_as = call->id;
        }
    }
    if (r < 0) {
        rlm_run_fail(agent->run, err);
    }
    return r == 0;
}

/* After an accepted answer every call is refused, then as now. */
static void refuse(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    struct rlm_call_result result = {
        .id = call->id,
        .error_type = "CellEnded",
        .error_reason = "answered",
        .error_message = RLM_STR("the answer was given already"),
    };
    rlm_error *err = NULL;
    if (rlm_session_resume(agent->session, &result, 1, &err) < 0) {
        rlm_run_fail(agent->run, err);
    }
}

void rlm_restore_suspended(struct rlm_agent *agent,
                           const struct rlm_host_call *calls,
                           size_t n_calls)
{
    struct rlm_restore *restore = agent->restore;
    struct rlm_past_cell *cell = restore->cells.items[restore->at];
    for (size_t i = 0; i < n_calls; i++) {
        if (restore->answered) {
            refuse(agent, &calls[i]);
            continue;
        }
        struct rlm_past_call *was = rlm_past_match(cell, &calls[i]);
        if (was && was->delivered) {
            was->made_as = calls[i].id;
        } else if (is_going_on(restore)) {
            if (!hold(agent, &calls[i], was)) {
                return;
            }
        } else if (was) {
            was->made_as = calls[i].id; /* it was never answered: the cell ended before */
        } else {
            char why[200];
            snprintf(why, sizeof why, "called %.*s(), which it had not done",
                     calls[i].name.len > 60 ? 60 : (int)calls[i].name.len, calls[i].name.ptr);
            diverge(agent, why);
            return;
        }
    }
    deliver(agent);
}

void rlm_restore_given_up(struct rlm_agent *agent, const int64_t *ids, size_t n_ids)
{
    struct rlm_restore *restore = agent->restore;
    for (size_t i = 0; i < n_ids; i++) {
        for (size_t k = 0; k < restore->held.len; k++) {
            if (restore->held.items[k].call.id == ids[i]) {
                rlm_vec_remove(&restore->held, k);
                break;
            }
        }
    }
}

/* ---- the end of a cell ----------------------------------------------------------------------- */

void rlm_restore_finished(struct rlm_agent *agent, const struct rlm_cell_finished *how)
{
    struct rlm_restore *restore = agent->restore;
    struct rlm_past_cell *cell = restore->cells.items[restore->at];
    restore->running = false;
    rlm_timer_stop(restore->patience);
    if (restore->delivered < cell->deliveries.len || is_going_on(restore)) {
        diverge(agent, "ended without a host call that it had made");
        return;
    }
    bool failed = how->error_type != NULL, failed_then = cell->end->type == RLM_ERROR_OUTPUT;
    if (!rlm_output_is_same(how->output, cell->end->output) || failed != failed_then) {
        rlm_buf_addf(&restore->differ, "%scell %lld", restore->differ.len ? ", " : "",
                     (long long)cell->number);
    }
    restore->at++;
    if (restore->at == restore->cells.len) {
        finish_restore(agent);
    } else {
        start_cell(agent);
    }
}

void rlm_restore_died(struct rlm_agent *agent, const struct rlm_session_death *how)
{
    char why[400];
    snprintf(why, sizeof why, "ended its session (%.*s)",
             how->message.len > 300 ? 300 : (int)how->message.len, how->message.ptr);
    rlm_run_close_session(agent->run, rlm_steal(&agent->session));
    agent->session_ready = false;
    diverge(agent, why);
}
