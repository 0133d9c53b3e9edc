/* Finding things in a past, and letting go of it. */
#include "flow/past.h"

#include "flow/past_load.h"
#include "flow/record.h"
#include "flow/run.h"

#include <stdlib.h>

/* ---- finding --------------------------------------------------------------------------------- */

struct rlm_past *rlm_past_of(const struct rlm_past_run *past, const rlm_graph *g)
{
    return rlm_map_get(&past->agents, rlm_str_of(g->agent_id));
}

struct rlm_past_cell *rlm_past_cell(const struct rlm_past *past, int64_t number)
{
    for (size_t i = past->cells.len; i-- > 0;) {
        if (past->cells.items[i]->number == number) {
            return past->cells.items[i];
        }
    }
    return NULL;
}

const struct rlm_past_session *rlm_past_session(const struct rlm_past *past)
{
    return past->sessions.len ? &past->sessions.items[past->sessions.len - 1] : NULL;
}

struct rlm_past_cell *rlm_past_in_flight(const struct rlm_past *past)
{
    struct rlm_past_cell *last = past->cells.len ? past->cells.items[past->cells.len - 1] : NULL;
    return last && !last->end && !last->broken ? last : NULL;
}

const struct rlm_past_session *rlm_past_session_of(const struct rlm_past *past, int64_t number)
{
    for (size_t i = 0; i < past->sessions.len; i++) {
        if (past->sessions.items[i].number == number) {
            return &past->sessions.items[i];
        }
    }
    return NULL;
}

const struct rlm_past_gate *rlm_past_turn_gate(const struct rlm_past *past, uint32_t seq)
{
    const struct rlm_node *node =
        seq < past->graph->nodes.len ? past->graph->nodes.items[seq] : NULL;
    for (size_t i = past->gates.len; node && i-- > 0;) {
        if (rlm_str_is(past->gates.items[i].node, node->id)) {
            return &past->gates.items[i].gate;
        }
    }
    return NULL;
}

static bool is_in(const struct rlm_past_session *s, const struct rlm_past_cell *cell)
{
    bool there = cell->session == s->number;
    for (size_t i = 0; i < s->restored.len && !there; i++) {
        there = s->restored.items[i] == cell->number;
    }
    return there;
}

bool rlm_past_is_in(const struct rlm_past *past, int64_t session, const struct rlm_past_cell *cell)
{
    const struct rlm_past_session *s = rlm_past_session_of(past, session);
    return s && is_in(s, cell);
}

int rlm_past_namespace(const struct rlm_past *past,
                       struct rlm_past_cell ***ret_cells,
                       size_t *ret_n,
                       rlm_error **err)
{
    const struct rlm_past_session *s = rlm_past_session(past);
    size_t n = 0;
    struct rlm_past_cell **list = rlm_calloc(past->cells.len + 1, sizeof *list);
    if (!list) {
        return rlm_error_nomem(err);
    }
    for (size_t i = 0; s && !s->given_up && i < past->cells.len; i++) {
        struct rlm_past_cell *cell = past->cells.items[i];
        if (cell->end && !cell->broken && is_in(s, cell)) {
            list[n++] = cell;
        }
    }
    *ret_cells = list;
    *ret_n = n;
    return 0;
}

/* ---- calls that are made again --------------------------------------------------------------- */

struct rlm_past_call *rlm_past_match(const struct rlm_past_cell *cell,
                                     const struct rlm_host_call *call)
{
    char key[RLM_SHA256_HEX + 1];
    if (rlm_host_call_key(call, key) < 0) {
        return NULL;
    }
    for (size_t i = 0; i < cell->calls.len; i++) {
        struct rlm_past_call *was = cell->calls.items[i];
        if (!was->made_as && strcmp(was->key, key) == 0) {
            return was;
        }
    }
    return NULL;
}

struct rlm_call_result rlm_past_result(const struct rlm_past_call *call)
{
    struct rlm_call_result result = {.id = call->made_as, .value_json = call->value_json};
    if (call->error_type.len) {
        result.error_type = call->error_type.ptr;
        result.error_reason = call->error_reason.ptr;
        result.error_message = call->error_message;
    }
    return result;
}

void rlm_past_forget_calls(struct rlm_past_cell *cell)
{
    for (size_t i = 0; i < cell->calls.len; i++) {
        cell->calls.items[i]->made_as = 0;
    }
}

/* ---- beside the graph ------------------------------------------------------------------------ */

static bool ends_a_cell(const struct rlm_node *node)
{
    return node->type == RLM_EXEC_OUTPUT || node->type == RLM_ERROR_OUTPUT ||
           node->type == RLM_DONE_OUTPUT;
}

void rlm_past_find_ends(struct rlm_past *past)
{
    const rlm_graph *g = past->graph;
    for (size_t i = 0; i < past->cells.len; i++) {
        struct rlm_past_cell *cell = past->cells.items[i];
        size_t until = i + 1 < past->cells.len ? past->cells.items[i + 1]->action : g->nodes.len;
        for (size_t k = (size_t)cell->action + 1; k < until && k < g->nodes.len && !cell->end;
             k++) {
            cell->end = ends_a_cell(g->nodes.items[k]) ? g->nodes.items[k] : NULL;
        }
        if (cell->end && rlm_str_is(cell->end->error, "interrupted")) {
            cell->broken = true;
        }
    }
}

struct rlm_past *rlm_past_take(struct rlm_past_run *past_run, rlm_graph *g)
{
    struct rlm_past *past = rlm_map_remove(&past_run->agents, rlm_str_of(g->agent_id));
    if (past) { /* the graph may be another, or have been reopened since */
        past->graph = g;
        for (size_t i = 0; i < past->cells.len; i++) {
            past->cells.items[i]->end = NULL;
        }
        rlm_past_find_ends(past);
    }
    return past;
}

/* ---- the end --------------------------------------------------------------------------------- */

void rlm_past_cell_deinit(struct rlm_past_cell *cell)
{
    for (size_t k = 0; k < cell->calls.len; k++) {
        free(cell->calls.items[k]->replies.items);
    }
    free(cell->calls.items);
    free(cell->deliveries.items);
}

void rlm_past_agent_free(struct rlm_past *past)
{
    if (!past) {
        return;
    }
    for (size_t i = 0; i < past->sessions.len; i++) {
        free(past->sessions.items[i].restored.items);
    }
    for (size_t i = 0; i < past->cells.len; i++) {
        rlm_past_cell_deinit(past->cells.items[i]);
    }
    free(past->sessions.items);
    free(past->cells.items);
    free(past->turns.items);
    free(past->gates.items);
    rlm_arena_free(past->arena);
    free(past);
}

void rlm_past_free(struct rlm_past_run *past)
{
    if (!past) {
        return;
    }
    size_t pos = 0;
    void *value;
    while (rlm_map_next(&past->agents, &pos, NULL, &value)) {
        rlm_past_agent_free(value);
    }
    rlm_map_deinit(&past->agents);
    rlm_graph_free(past->root);
    free(past->lost_asks.items);
    free(past->input_lists.items);
    free(past->drives.items);
    rlm_arena_free(past->arena);
    free(past);
}
