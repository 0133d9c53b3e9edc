#include "flow/restore.h"

#include "flow/call.h"
#include "flow/observe.h"

#include <stdio.h>

enum { NAMES_SHOWN = 60, TEXT_MAX = 1024 * 1024, ARGUMENTS_MAX = 64 * 1024 * 1024 };

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

/* ---- what is gone ---------------------------------------------------------------------------- */

/* Adds or removes the names that a list of a cell's metadata gives. */
static bool note_names(struct rlm_map *names, const rlm_json *list, bool bound)
{
    bool ok = true;
    for (uint32_t i = 0; ok && rlm_json_is(list, RLM_JSON_ARRAY) && i < list->count; i++) {
        rlm_str name = rlm_json_text(rlm_json_at(list, i), RLM_STR(""));
        if (bound) {
            ok = rlm_map_set(names, name, names) == 0;
        } else {
            rlm_map_remove(names, name);
        }
    }
    return ok;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names that these cells left bound, sorted, as "a, b, c". */
static int
add_names(struct rlm_past_cell *const *cells, size_t n_cells, struct rlm_buf *out, rlm_error **err)
{
    struct rlm_map names = {0};
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    bool ok = arena != NULL;
    for (size_t i = 0; ok && i < n_cells; i++) {
        const rlm_json *metadata;
        if (cells[i]->end && cells[i]->end->metadata.len &&
            rlm_json_parse(arena, cells[i]->end->metadata, &metadata, NULL) == 0) {
            ok = note_names(&names, rlm_json_get(metadata, "unbound"), false) &&
                 note_names(&names, rlm_json_get(metadata, "bound"), true);
        }
    }
    RLM_VEC(char *) list = {0};
    size_t pos = 0;
    rlm_str name;
    void *value;
    while (ok && rlm_map_next(&names, &pos, &name, &value)) {
        char **slot = rlm_vec_push(&list);
        ok = slot && (*slot = (char *)(uintptr_t)name.ptr);
    }
    if (list.len) {
        qsort(list.items, list.len, sizeof *list.items, by_text);
    }
    for (size_t i = 0; i < list.len && i < NAMES_SHOWN; i++) {
        rlm_buf_adds(out, i ? ", " : "");
        rlm_buf_adds(out, list.items[i]);
    }
    if (list.len > NAMES_SHOWN) {
        rlm_buf_addf(out, " and %zu more", list.len - NAMES_SHOWN);
    }
    free(list.items);
    rlm_map_deinit(&names);
    return ok ? rlm_buf_check(out, err) : rlm_error_nomem(err);
}

/* "These variables are gone: a, b, c." or nothing. */
static void
add_gone(struct rlm_past_cell *const *cells, size_t n_cells, struct rlm_buf *out, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf names = RLM_BUF(TEXT_MAX);
    if (add_names(cells, n_cells, &names, err) == 0 && names.len) {
        rlm_buf_adds(out, out->len ? " " : "");
        rlm_buf_adds(out, "These variables are gone: ");
        rlm_buf_add_str(out, rlm_buf_str(&names));
        rlm_buf_adds(out, ".");
    }
}

/* ---- a cell that was interrupted ------------------------------------------------------------- */

/* Whether the cell launched this child. */
static bool is_of_cell(const rlm_graph *child, const struct rlm_past_cell *cell)
{
    for (size_t i = 0; i < cell->calls.len; i++) {
        if (child->launch && child->launch == cell->calls.items[i]->first_id) {
            return true;
        }
    }
    return false;
}

/* The results of the cell's children as the JSON of RECOVERED, and a line on each. */
static int recover(struct rlm_agent *agent,
                   const struct rlm_past_cell *cell,
                   struct rlm_buf *lines,
                   rlm_error **err)
{
    rlm_auto_buf struct rlm_buf json = RLM_BUF(ARGUMENTS_MAX);
    struct rlm_json_writer w = {.buf = &json};
    size_t n = 0;
    rlm_json_begin(&w, '{');
    for (size_t i = 0; i < agent->graph->children.len; i++) {
        rlm_graph *g = agent->graph->children.items[i];
        struct rlm_agent *child = rlm_map_get(&agent->run->agents, rlm_str_of(g->agent_id));
        if (!child || !is_of_cell(g, cell)) {
            continue;
        }
        rlm_autofree char *value = rlm_child_value(child, err);
        if (!value) {
            return rlm_error_nomem(err);
        }
        rlm_json_member_raw(&w, g->name, rlm_str_of(value));
        rlm_buf_addf(lines, "%s%s (%s)", n++ ? ", " : "", g->name, rlm_graph_reason(g).ptr);
    }
    rlm_json_end(&w, '}');
    int r = rlm_buf_check(&json, err);
    if (r == 0 && n) {
        free(agent->recovered);
        agent->recovered = rlm_buf_take(&json);
    }
    return r;
}

/* Launches that stand open in the graph get their resume_action. */
static bool close_launches(struct rlm_agent *agent, const struct rlm_past_cell *cell)
{
    const rlm_graph *g = agent->graph;
    for (size_t i = cell->action; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        bool open = node->type == RLM_SUPERVISING_OUTPUT;
        for (size_t k = i + 1; open && k < g->nodes.len; k++) {
            const struct rlm_node *later = g->nodes.items[k];
            open = !(later->type == RLM_RESUME_ACTION && later->call_id == node->call_id);
        }
        struct rlm_node resume = {
            .type = RLM_RESUME_ACTION,
            .agents = node->agents,
            .n_agents = node->n_agents,
            .call_id = node->call_id,
        };
        if (open && !rlm_agent_append(agent, &resume)) {
            return false;
        }
    }
    return true;
}

static void observe_interrupted(struct rlm_agent *agent)
{
    struct rlm_past_cell *cell = agent->interrupted;
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    rlm_auto_buf struct rlm_buf lines = RLM_BUF(TEXT_MAX);
    rlm_error *err = NULL;
    rlm_buf_adds(&text,
                 "The run was stopped while this code was running, and goes on now. The code "
                 "was not run again: it may have run in part, and what it wrote to files or "
                 "sent elsewhere may be there.");
    if (agent->lost) {
        rlm_buf_adds(&text, " ");
        rlm_buf_adds(&text, agent->lost);
        free(rlm_steal(&agent->lost));
    }
    int r = recover(agent, cell, &lines, &err);
    if (r == 0 && agent->recovered) {
        rlm_buf_adds(&text, " RECOVERED holds what its sub-agents answered, by name: ");
        rlm_buf_add_str(&text, rlm_buf_str(&lines));
        rlm_buf_adds(&text, ".");
    }
    if (r == 0) {
        r = rlm_buf_check(&text, &err);
    }
    if (r < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    struct rlm_node node = {
        .type = RLM_ERROR_OUTPUT,
        .content = rlm_buf_str(&text),
        .error = RLM_STR("interrupted"),
    };
    if (close_launches(agent, cell) && rlm_agent_append(agent, &node)) {
        agent->interrupted = NULL;
        cell->broken = true;
        rlm_agent_set_state(agent, RLM_AGENT_READY);
        rlm_run_schedule(agent);
    }
}

void rlm_interrupted_step(struct rlm_agent *agent)
{
    for (size_t i = 0; i < agent->graph->children.len; i++) {
        const rlm_graph *g = agent->graph->children.items[i];
        const struct rlm_agent *child = rlm_map_get(&agent->run->agents, rlm_str_of(g->agent_id));
        if (child && !rlm_agent_finished(child) && is_of_cell(g, agent->interrupted)) {
            rlm_agent_set_state(agent, RLM_AGENT_WAITING);
            return;
        }
    }
    observe_interrupted(agent);
}

/* ---- the plan -------------------------------------------------------------------------------- */

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

static struct rlm_restore *
new_restore(struct rlm_agent *agent, struct rlm_past_cell *const *cells, size_t n_cells)
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
    if (!ok) {
        rlm_restore_free(restore);
        return NULL;
    }
    return restore;
}

static bool may_run_again(const struct rlm_agent *agent, const struct rlm_past_session *session)
{
    switch (agent->run->restore) {
    case RLM_RESTORE_REPLAY:
        return true;
    case RLM_RESTORE_FRESH:
        return false;
    case RLM_RESTORE_AUTO:
        break;
    }
    return !session->outside;
}

/* The namespace is not made again: the model is told at once, or with the interrupted cell. */
static bool give_up(struct rlm_agent *agent,
                    struct rlm_past_cell *const *cells,
                    size_t n_cells,
                    struct rlm_past_cell *in_flight)
{
    rlm_auto_buf struct rlm_buf gone = RLM_BUF(TEXT_MAX);
    rlm_error *err = NULL;
    agent->sessions = (int)rlm_past_session(agent->past)->number;
    agent->cell_open = in_flight != NULL;
    int r = rlm_record_session_ended(agent, RLM_SESSION_GIVEN_UP, RLM_STR("the run went on"));
    agent->cell_open = false;
    if (r < 0) {
        return false;
    }
    add_gone(cells, n_cells, &gone, &err);
    if (err) {
        rlm_run_fail(agent->run, err);
        return false;
    }
    if (in_flight) {
        agent->interrupted = in_flight;
        agent->lost = gone.len ? rlm_buf_take(&gone) : NULL;
        return true;
    }
    if (!gone.len) {
        return true;
    }
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    rlm_buf_adds(&text,
                 "The session in which your code ran has ended; a new one goes on from here. ");
    rlm_buf_add_str(&text, rlm_buf_str(&gone));
    enum rlm_node_type last = rlm_graph_current(agent->graph)->type;
    if (last == RLM_LLM_OUTPUT || last == RLM_EXEC_ACTION) {
        /* Code that was written before waits to run: it is told with what comes out. */
        agent->lost = rlm_buf_take(&text);
        return true;
    }
    struct rlm_node node = {
        .type = RLM_ERROR_OUTPUT,
        .content = rlm_buf_str(&text),
        .error = RLM_STR("session_lost"),
    };
    return rlm_agent_append(agent, &node);
}

bool rlm_restore_plan(struct rlm_agent *agent, struct rlm_past *past)
{
    struct rlm_past_cell **cells;
    size_t n = 0;
    rlm_error *err = NULL;
    rlm_past_agent_free(agent->past);
    agent->past = past;
    const struct rlm_past_session *session = rlm_past_session(past);
    struct rlm_past_cell *in_flight = rlm_past_in_flight(past);
    if (!session) {
        return true;
    }
    if (rlm_past_namespace(past, &cells, &n, &err) < 0) {
        rlm_run_fail(agent->run, err);
        return false;
    }
    bool ok = true;
    if (session->given_up || (!n && !in_flight)) {
        /* nothing is there to be made again */
    } else if (!may_run_again(agent, session)) {
        ok = give_up(agent, cells, n, in_flight);
    } else {
        agent->restore = new_restore(agent, cells, n);
        ok = agent->restore && (!in_flight || add_cell(agent->restore, in_flight));
        if (ok) {
            agent->restore->goes_on = in_flight != NULL;
        } else {
            rlm_run_fail_no_memory(agent->run);
        }
    }
    free(cells);
    return ok;
}

/* What the journal of the living run says of the agent. */
static struct rlm_past *read_past(struct rlm_agent *agent, rlm_error **err)
{
    struct rlm_past_run *all;
    if (rlm_past_load(rlm_run_path(agent->run), agent->run->blobs, &all, NULL, err) < 0) {
        return NULL;
    }
    struct rlm_past *past = rlm_past_take(all, agent->graph);
    rlm_past_free(all);
    return past;
}

bool rlm_restore_after_death(struct rlm_agent *agent, struct rlm_buf *text)
{
    if (!agent->run->journal) {
        rlm_buf_adds(text, " All variables are lost.");
        return true;
    }
    rlm_error *err = NULL;
    struct rlm_past *past = read_past(agent, &err);
    struct rlm_past_cell **cells = NULL;
    size_t n = 0;
    if (!past || rlm_past_namespace(past, &cells, &n, &err) < 0) {
        rlm_past_agent_free(past);
        rlm_run_fail(agent->run, err);
        return false;
    }
    rlm_past_agent_free(agent->past);
    agent->past = past;
    bool ok = true;
    if (!n) {
        rlm_buf_adds(text, " All variables are lost.");
    } else if (may_run_again(agent, rlm_past_session(past))) {
        agent->restore = new_restore(agent, cells, n);
        ok = agent->restore != NULL;
        rlm_buf_adds(text,
                     " The variables of the cells before it come back: those run again first.");
    } else {
        size_t before = text->len;
        add_gone(cells, n, text, &err);
        rlm_buf_adds(text, text->len == before ? " All variables are lost." : "");
        ok = !err && rlm_record_session_ended(agent, RLM_SESSION_GIVEN_UP, RLM_STR("it died")) == 0;
    }
    free(cells);
    if (!ok) {
        err ? rlm_run_fail(agent->run, err) : rlm_run_fail_no_memory(agent->run);
    }
    return ok;
}

bool rlm_restore_cells_of(struct rlm_agent *agent, const struct rlm_past_session *session)
{
    agent->restore = new_restore(agent, NULL, 0);
    bool ok = agent->restore != NULL;
    for (size_t i = 0; ok && i < session->restored.len; i++) {
        struct rlm_past_cell *cell = rlm_past_cell(agent->past, session->restored.items[i]);
        if (cell) {
            rlm_past_forget_calls(cell);
            ok = add_cell(agent->restore, cell);
        }
    }
    if (!ok) {
        rlm_run_fail_no_memory(agent->run);
    }
    return ok;
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

/* ---- running cells again --------------------------------------------------------------------- */

static bool is_last(const struct rlm_restore *restore)
{
    return restore->at + 1 == restore->cells.len;
}

static bool is_going_on(const struct rlm_restore *restore)
{
    return restore->goes_on && is_last(restore);
}

/* The cell cannot be brought back: the session is made anew without it and those behind it. */
static void diverge(struct rlm_agent *agent, const char *why)
{
    struct rlm_restore *old = agent->restore;
    struct rlm_past_cell *cell = old->cells.items[old->at];
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    rlm_error *err = NULL;
    rlm_run_notice(agent->run, "%s: cell %lld could not be restored: it %s", agent->graph->agent_id,
                   (long long)cell->number, why);
    if (agent->lost) { /* of a cell behind this one */
        rlm_buf_addf(&text, "%s ", agent->lost);
    }
    rlm_buf_addf(&text,
                 "Your session had to be made again, and cell %lld then %s: what it and later "
                 "cells did is not there.",
                 (long long)cell->number, why);
    add_gone(old->cells.items + old->at, old->cells.len - old->at, &text, &err);
    struct rlm_restore *shorter = err ? NULL : new_restore(agent, old->cells.items, old->at);
    if (!shorter) {
        rlm_error_free(err);
        rlm_run_fail_no_memory(agent->run);
        return;
    }
    if (old->goes_on) {
        agent->interrupted = old->cells.items[old->cells.len - 1];
    }
    free(agent->lost);
    agent->lost = rlm_buf_take(&text);
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
    if (agent->restore && agent->restore->running) {
        diverge(agent, "did not make a host call that it had made");
    }
}

static void start_cell(struct rlm_agent *agent);

static void finish_restore(struct rlm_agent *agent)
{
    struct rlm_restore *restore = rlm_steal(&agent->restore);
    if (restore->differ.len) {
        char *text = NULL;
        if (asprintf(&text,
                     "%s%sWhen the session was made again, %s printed something else than before.",
                     agent->lost ? agent->lost : "", agent->lost ? " " : "",
                     restore->differ.ptr) >= 0) {
            free(agent->lost);
            agent->lost = text;
        }
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

/* Hands over what was handed over next, when the calls are there. */
static void deliver(struct rlm_agent *agent)
{
    struct rlm_restore *restore = agent->restore;
    struct rlm_past_cell *cell = restore->cells.items[restore->at];
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
            rlm_timer_set(restore->patience, (uint64_t)agent->run->flow->limits.exec_timeout_ms);
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
    rlm_timer_stop(restore->patience);
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

/* Keeps a call until the cell is live. The next equal call is another one than `was`. */
static bool
hold(struct rlm_agent *agent, const struct rlm_host_call *call, struct rlm_past_call *was)
{
    struct rlm_restore *restore = agent->restore;
    rlm_auto_buf struct rlm_buf args = RLM_BUF(ARGUMENTS_MAX);
    rlm_auto_buf struct rlm_buf kwargs = RLM_BUF(ARGUMENTS_MAX);
    struct rlm_json_writer a = {.buf = &args}, k = {.buf = &kwargs};
    rlm_json_put(&a, call->args);
    rlm_json_put(&k, call->kwargs);
    struct held_call *slot = rlm_vec_push(&restore->held);
    rlm_error *err = NULL;
    int r = !slot ? rlm_error_nomem(&err) : rlm_buf_check(&args, &err);
    if (r == 0) {
        slot->was = was;
        if (was) {
            was->made_as = call->id;
        }
        slot->call.id = call->id;
        slot->call.name = rlm_arena_copy(restore->arena, call->name);
        rlm_str args_json = rlm_arena_copy(restore->arena, rlm_buf_str(&args));
        rlm_str kwargs_json = rlm_arena_copy(restore->arena, rlm_buf_str(&kwargs));
        if (!slot->call.name.ptr || !args_json.ptr || !kwargs_json.ptr) {
            r = rlm_error_nomem(&err);
        } else if ((r = rlm_json_parse(restore->arena, args_json, &slot->call.args, &err)) == 0) {
            r = rlm_json_parse(restore->arena, kwargs_json, &slot->call.kwargs, &err);
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
