/* The cells of a replay: those that run again, those that are taken from the record, and their calls. */
#include "flow/call.h"
#include "flow/replay.h"
#include "flow/restore.h"

enum { TEXT_MAX = 64 * 1024 * 1024 };

/* ---- from the record ------------------------------------------------------------------------- */

/* A launch or an answer that the run was stopped in before it took effect. */
static bool came_to_nothing(const struct rlm_agent *agent, const struct rlm_past_call *call)
{
    const rlm_graph *g = rlm_replay_graph(agent);
    if (call->finished || !rlm_str_is(call->name, "launch_subagents")) {
        return !call->finished && rlm_str_is(call->name, "done");
    }
    for (size_t i = agent->again->action; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        if (node->type == RLM_SUPERVISING_OUTPUT && node->call_id == call->first_id) {
            return false;
        }
    }
    return true;
}

static void queue_recorded(struct rlm_agent *agent, struct rlm_past_call *was, int64_t made_as)
{
    was->made_as = made_as;
    if (was->finished) {
        struct rlm_call_result result = rlm_past_result(was);
        rlm_call_queue_result(agent, agent->cell, &result);
    }
}

static bool make_calls(struct rlm_agent *agent, size_t until)
{
    struct rlm_past_cell *cell = agent->again;
    while (agent->calls_made < until && !agent->run->stopping) {
        struct rlm_past_call *was = cell->calls.items[agent->calls_made];
        if (!rlm_replay_may_call(agent, was)) {
            return false;
        }
        agent->calls_made++;
        if (agent->again->broken && came_to_nothing(agent, was)) {
            continue;
        }
        if (!was->args_json.len) {
            queue_recorded(agent, was, was->id);
            continue;
        }
        rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
        struct rlm_host_call call = {.id = was->id, .name = was->name};
        rlm_error *err = NULL;
        int r =
            arena ? rlm_json_parse(arena, was->args_json, &call.args, &err) : rlm_error_nomem(&err);
        if (r == 0) {
            r = rlm_json_parse(arena, was->kwargs_json, &call.kwargs, &err);
        }
        if (r < 0) {
            rlm_run_fail(agent->run, err);
            return false;
        }
        rlm_calls_begin(agent, &call, 1);
    }
    return !agent->run->stopping;
}

static void end_cell(struct rlm_agent *agent)
{
    struct rlm_past_cell *cell = agent->again;
    if (!rlm_replay_below_is_parked(agent)) {
        return;
    }
    if (!cell->end) {
        rlm_replay_park(agent);
        return;
    }
    bool in_time = !rlm_str_is(cell->end->reason, "time");
    agent->from_record = agent->cell_open = false;
    agent->again = NULL;
    rlm_calls_cancel(agent, in_time ? "terminated" : "time");
    if (agent->answer) {
        rlm_agent_finish_answered(agent, cell->end->output);
    } else if (cell->end->type != RLM_DONE_OUTPUT && !agent->run->stopping) {
        /* A node of the cell's end; a limit or a person may have come first. */
        rlm_agent_append(agent, cell->end);
        rlm_agent_set_state(agent, RLM_AGENT_READY);
    } else if (cell->end->type == RLM_DONE_OUTPUT &&
               !rlm_replay_is_from_outside(agent->run, cell->end)) {
        rlm_replay_contradict(agent); /* an answer that no call gave */
    }
    rlm_run_schedule(agent);
}

void rlm_replay_go_on(struct rlm_agent *agent)
{
    struct rlm_past_cell *cell = agent->again;
    while (agent->deliveries_made < cell->deliveries.len) {
        if (!make_calls(agent, cell->deliveries.items[agent->deliveries_made].calls_before)) {
            return;
        }
        size_t n = rlm_replay_deliverable(agent);
        if (n == SIZE_MAX) {
            return;
        }
        rlm_calls_forget_results(agent, n);
    }
    if (make_calls(agent, cell->calls.len)) {
        end_cell(agent);
    }
}

/* ---- run or not ------------------------------------------------------------------------------ */

static struct rlm_past_cell *cell_at(const struct rlm_agent *agent, size_t seq)
{
    const struct rlm_past *past = agent->past;
    for (size_t i = past ? past->cells.len : 0; i-- > 0;) {
        if (past->cells.items[i]->action == seq) {
            return past->cells.items[i];
        }
    }
    return NULL;
}

static bool ran_outside(const struct rlm_past *past, const struct rlm_past_cell *cell)
{
    const struct rlm_past_session *session = rlm_past_session_of(past, cell->session);
    return !session || session->outside;
}

/* How many cells the session's namespace shows when `until` begins. */
static size_t
cells_in(const struct rlm_past *past, int64_t session, const struct rlm_past_cell *until)
{
    size_t n = 0;
    for (size_t i = 0; i < past->cells.len && past->cells.items[i] != until; i++) {
        const struct rlm_past_cell *cell = past->cells.items[i];
        n += cell->end && !cell->broken && rlm_past_is_in(past, session, cell);
    }
    return n;
}

/* A cell that the recording ran in another session than the one before: that had been made new, or some
 * cells had run again in it. The replay's own goes on if it is there still (an answer ends it) and holds
 * the same cells. */
static bool change_session(struct rlm_agent *agent, const struct rlm_past_cell *cell)
{
    const struct rlm_past_session *to = rlm_past_session_of(agent->past, cell->session);
    int64_t from = agent->recorded_session;
    agent->recorded_session = cell->session;
    if (!from || from == cell->session || !to ||
        (agent->session && to->restored.len &&
         to->restored.len == cells_in(agent->past, from, cell))) {
        return true;
    }
    if (agent->session) {
        rlm_run_close_session(agent->run, rlm_steal(&agent->session));
        agent->session_ready = false;
    }
    return !to->restored.len || rlm_restore_cells_of(agent, to);
}

/* What sub-agents of a cell that was interrupted had answered is bound for the next. */
static bool take_recovered(struct rlm_agent *agent, const struct rlm_past_cell *cell)
{
    free(rlm_steal(&agent->recovered));
    if (!cell->recovered.len) {
        return true;
    }
    agent->recovered = rlm_strndup(cell->recovered.ptr, cell->recovered.len);
    if (!agent->recovered) {
        rlm_run_fail_no_memory(agent->run);
    }
    return agent->recovered != NULL;
}

bool rlm_replay_cell(struct rlm_agent *agent, rlm_str code)
{
    struct rlm_replay *r = agent->run->replay;
    const struct rlm_node *last = rlm_graph_current(agent->graph), *was = rlm_replay_next(agent);
    if (last->type == RLM_LLM_OUTPUT && !was) {
        rlm_replay_park(agent);
        return true;
    }
    size_t seq = last->type == RLM_LLM_OUTPUT ? last->seq + 1 : last->seq;
    struct rlm_past_cell *cell = cell_at(agent, seq);
    /* A cell that a limit or a person ended has no end of its own. */
    bool cut_off = cell && cell->end && cell->end->type == RLM_DONE_OUTPUT && !cell->answered;
    if (cell && !cell->broken && !cut_off && (r->execute || !ran_outside(agent->past, cell))) {
        if (agent->again == cell) {
            return false; /* it waits for its session */
        }
        r->report.cells_run++;
        agent->again = cell;
        agent->calls_made = agent->deliveries_made = 0;
        return !take_recovered(agent, cell) || !change_session(agent, cell);
    }
    if (last->type == RLM_LLM_OUTPUT) {
        struct rlm_node action = {.type = RLM_EXEC_ACTION, .code = code};
        if (!rlm_agent_append(agent, &action)) {
            return true;
        }
    }
    if (!cell && rlm_replay_next(agent)) {
        rlm_replay_diverge(agent, "code that was not run", RLM_STR(""), code);
        return true;
    }
    if (!cell) {
        rlm_replay_park(agent); /* it was never started */
        return true;
    }
    r->report.cells_not_run++;
    agent->cell = cell->number;
    agent->cell_open = agent->from_record = true;
    agent->again = cell;
    agent->calls_made = agent->deliveries_made = 0;
    rlm_agent_set_state(agent, RLM_AGENT_RUNNING);
    rlm_run_schedule(agent);
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

bool rlm_replay_call(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    struct rlm_past_call *was = rlm_past_match(agent->again, call);
    agent->run->replay->report.calls++;
    if (!was && !agent->again->end) {
        rlm_replay_park(agent); /* it was stopped before it made the call */
        return true;
    }
    if (!was) {
        rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
        struct rlm_json_writer w = {.buf = &text};
        rlm_buf_add_str(&text, call->name);
        rlm_json_put(&w, call->args);
        rlm_json_put(&w, call->kwargs);
        rlm_replay_diverge(agent, "a host call that was not made", RLM_STR(""), rlm_buf_str(&text));
        return true;
    }
    bool refused = !was->args_json.len; /* they were too large */
    if (!refused &&
        (rlm_str_is(call->name, "launch_subagents") || rlm_str_is(call->name, "done"))) {
        was->made_as = call->id;
        return false;
    }
    queue_recorded(agent, was, call->id);
    return true;
}

bool rlm_replay_ends_later(const struct rlm_agent *agent, const struct rlm_call *call)
{
    const struct rlm_node *next = rlm_replay_next(agent);
    const struct rlm_past_cell *cell = agent->again;
    if (!next || !cell ||
        (next->type != RLM_RESUME_ACTION && next->type != RLM_SUPERVISING_OUTPUT)) {
        return false;
    }
    for (size_t i = 0; i < cell->calls.len; i++) {
        const struct rlm_past_call *was = cell->calls.items[i];
        if (was->first_id == next->call_id && was->made_as != call->id) {
            return next->type == RLM_SUPERVISING_OUTPUT
                       ? !was->made_as
                       : was->made_as && rlm_call_find(agent, was->made_as) != NULL;
        }
    }
    return false;
}

size_t rlm_replay_deliverable(struct rlm_agent *agent)
{
    struct rlm_past_cell *cell = agent->again;
    if (agent->deliveries_made >= cell->deliveries.len) {
        return SIZE_MAX;
    }
    const struct rlm_past_delivery *d = &cell->deliveries.items[agent->deliveries_made];
    for (size_t i = 0; i < d->n_calls; i++) {
        size_t k = i;
        while (k < agent->results.len &&
               (!d->calls[i]->made_as || agent->results.items[k].id != d->calls[i]->made_as)) {
            k++;
        }
        if (k == agent->results.len) {
            return SIZE_MAX;
        }
        struct rlm_call_result found = agent->results.items[k];
        memmove(&agent->results.items[i + 1], &agent->results.items[i], (k - i) * sizeof found);
        agent->results.items[i] = found;
    }
    agent->deliveries_made++;
    agent->run->replay->deliveries++;
    return d->n_calls;
}

/* ---- the end of a cell that ran again -------------------------------------------------------- */

void rlm_replay_take_note(struct rlm_agent *agent)
{
    const struct rlm_node *was = rlm_replay_next(agent);
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *metadata;
    free(rlm_steal(&agent->lost));
    if (was && was->metadata.len && arena &&
        rlm_json_parse(arena, was->metadata, &metadata, NULL) == 0) {
        rlm_str lost = rlm_json_text(rlm_json_get(metadata, "lost"), RLM_STR(""));
        agent->lost = lost.len ? rlm_strndup(lost.ptr, lost.len) : NULL;
    }
}

const struct rlm_past_call *rlm_replay_unmade(const struct rlm_past_cell *cell, size_t n)
{
    for (size_t i = 0; i < n && i < cell->deliveries.len; i++) {
        const struct rlm_past_delivery *d = &cell->deliveries.items[i];
        for (size_t k = 0; k < d->n_calls; k++) {
            if (!d->calls[k]->made_as) {
                return d->calls[k];
            }
        }
    }
    return NULL;
}

bool rlm_replay_cell_ended(struct rlm_agent *agent)
{
    const struct rlm_past_cell *cell = agent->again;
    const struct rlm_past_call *unmade =
        cell && cell->end ? rlm_replay_unmade(cell, cell->deliveries.len) : NULL;
    if (unmade) {
        rlm_replay_diverge_by_call(agent, unmade);
    }
    return !unmade;
}
