#include "flow/replay.h"

#include "flow/call.h"
#include "flow/gate.h"
#include "flow/messages.h"
#include "flow/observe.h"
#include "flow/restore.h"

#include <stdio.h>

enum { TEXT_MAX = 64 * 1024 * 1024 };

static struct rlm_replay *replay_of(const struct rlm_agent *agent)
{
    return agent->run->replay;
}

/* ---- differences ----------------------------------------------------------------------------- */

/* The first difference ends the replay. */
void rlm_replay_diverge(struct rlm_agent *agent,
                        const char *what,
                        rlm_str recorded,
                        rlm_str replayed)
{
    struct rlm_replay *r = replay_of(agent);
    if (r->diverged) {
        return;
    }
    r->diverged = true;
    rlm_buf_adds(&r->what, what);
    rlm_buf_adds(&r->agent_id, agent->graph->agent_id);
    rlm_buf_add_str(&r->recorded, recorded);
    rlm_buf_add_str(&r->replayed, replayed);
    r->report.diverged = true;
    r->report.agent_id = r->agent_id.ptr;
    r->report.turn = agent->graph->turns;
    r->report.cell = agent->cell_open ? agent->cell : 0;
    r->report.what = r->what.ptr;
    r->report.recorded = rlm_buf_str(&r->recorded);
    r->report.replayed = rlm_buf_str(&r->replayed);
    rlm_run_halt(agent->run, "diverged");
}

/* Whether two JSON texts are the same value. */
static bool is_same_value(rlm_str a, rlm_str b)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    rlm_auto_buf struct rlm_buf x = RLM_BUF(TEXT_MAX), y = RLM_BUF(TEXT_MAX);
    const rlm_json *v, *w;
    if (!arena || rlm_json_parse(arena, a, &v, NULL) < 0 ||
        rlm_json_parse(arena, b, &w, NULL) < 0) {
        return rlm_str_eq(a, b); /* messages of errors */
    }
    rlm_json_canonical(&x, v);
    rlm_json_canonical(&y, w);
    return x.status == 0 && y.status == 0 && rlm_str_eq(rlm_buf_str(&x), rlm_buf_str(&y));
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static const rlm_graph *recorded_graph(const struct rlm_agent *agent)
{
    return rlm_map_get(&replay_of(agent)->past->root->agents, rlm_str_of(agent->graph->agent_id));
}

const struct rlm_node *rlm_replay_next(const struct rlm_agent *agent)
{
    const rlm_graph *recorded = recorded_graph(agent);
    size_t at = agent->graph->nodes.len;
    return recorded && at < recorded->nodes.len ? recorded->nodes.items[at] : NULL;
}

/* A recording that was stopped ends where every agent has come to the end of what there is. */
void rlm_replay_look_for_end(rlm_run *run)
{
    size_t pos = 0;
    void *value;
    while (rlm_map_next(&run->agents, &pos, NULL, &value)) {
        const struct rlm_agent *agent = value;
        if (!rlm_agent_finished(agent) && !agent->parked && rlm_replay_next(agent)) {
            return;
        }
    }
    rlm_run_halt(run, "end of the recording");
}

static void wake_above(struct rlm_agent *agent)
{
    for (struct rlm_agent *above = agent->parent; above; above = above->parent) {
        rlm_run_schedule(above);
    }
}

/* The recording holds nothing more of the agent: it stays where it is. */
static void come_to_the_end(struct rlm_agent *agent)
{
    agent->parked = true;
    rlm_agent_set_state(agent, RLM_AGENT_WAITING);
    wake_above(agent);
    rlm_run_poke(agent->run);
}

/* The recording was stopped, or cut off: where it ends is no difference. */
static bool is_unfinished(const struct rlm_agent *agent)
{
    return !rlm_graph_finished(replay_of(agent)->past->root);
}

static bool same_agents(const struct rlm_node *a, const struct rlm_node *b)
{
    bool same = a->n_agents == b->n_agents;
    for (size_t i = 0; same && i < a->n_agents; i++) {
        same = strcmp(a->agents[i], b->agents[i]) == 0;
    }
    return same;
}

bool rlm_replay_check(struct rlm_agent *agent, const struct rlm_node *node)
{
    const rlm_graph *g = recorded_graph(agent);
    const struct rlm_node *was = g && node->seq < g->nodes.len ? g->nodes.items[node->seq] : NULL;
    if (!was && is_unfinished(agent)) {
        come_to_the_end(agent);
        return false;
    }
    replay_of(agent)->report.nodes++;
    rlm_run_poke(agent->run); /* it may have been the last that is recorded */
    if (!was) {
        rlm_replay_diverge(agent, "a step that was not taken", RLM_STR(""),
                           rlm_str_of(rlm_node_type_tag(node->type)));
        return false;
    }
    if (was->type != node->type) {
        rlm_replay_diverge(agent, "another kind of step", rlm_str_of(rlm_node_type_tag(was->type)),
                           rlm_str_of(rlm_node_type_tag(node->type)));
        return false;
    }
    const struct {
        const char *what;
        rlm_str was, is;
    } texts[] = {
        {"the code that was found in a reply", was->code, node->code},
        {"the text of a step", was->content, node->content},
        {"the kind of an error", was->error, node->error},
        {"the answer", was->result, node->result},
        {"why the agent ended", was->reason, node->reason},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!rlm_str_eq(texts[i].was, texts[i].is)) {
            rlm_replay_diverge(agent, texts[i].what, texts[i].was, texts[i].is);
            return false;
        }
    }
    if (!same_agents(was, node)) {
        rlm_replay_diverge(agent, "which sub-agents were launched", RLM_STR(""), RLM_STR(""));
        return false;
    }
    return true;
}

bool rlm_replay_child(struct rlm_agent *child)
{
    const rlm_graph *g = child->graph, *was = recorded_graph(child);
    if (!was && is_unfinished(child)) {
        come_to_the_end(child->parent);
        child->parked = true;
        return false;
    }
    if (!was) {
        rlm_replay_diverge(child, "a sub-agent that was not launched", RLM_STR(""), g->query);
    } else if (!rlm_str_eq(was->query, g->query)) {
        rlm_replay_diverge(child, "a sub-agent's task", was->query, g->query);
    } else if (!rlm_str_eq(was->inputs, g->inputs)) {
        rlm_replay_diverge(child, "a sub-agent's inputs", was->inputs, g->inputs);
    } else if (!rlm_str_eq(was->model, g->model)) {
        rlm_replay_diverge(child, "a sub-agent's model", was->model, g->model);
    } else if (!rlm_str_eq(was->output_schema, g->output_schema)) {
        rlm_replay_diverge(child, "a sub-agent's output schema", was->output_schema,
                           g->output_schema);
    }
    return !replay_of(child)->diverged;
}

/* ---- turns ----------------------------------------------------------------------------------- */

void rlm_replay_turn(struct rlm_agent *agent, bool final)
{
    const struct rlm_node *was = rlm_replay_next(agent);
    size_t turn = (size_t)agent->graph->turns + 1;
    if (!was || was->type != RLM_LLM_OUTPUT) {
        const char *is = was ? rlm_node_type_tag(was->type) : "";
        was ? rlm_replay_diverge(agent, "another kind of step", rlm_str_of(is),
                                 RLM_STR("llm_output"))
            : come_to_the_end(agent);
        return;
    }
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    struct rlm_messages messages;
    rlm_error *err = NULL;
    const struct rlm_past *past = agent->past;
    const struct rlm_past_ask *ask =
        past && turn <= past->turns.len ? &past->turns.items[turn - 1] : NULL;
    agent->turns_dropped = ask ? ask->turns_dropped : 0;
    agent->run->flow->limits =
        ask ? replay_of(agent)->past->drives.items[ask->drive] : agent->run->flow->limits;
    struct rlm_messages_options options = {agent->turns_dropped, ask ? ask->final : final};
    int r =
        arena ? rlm_messages_build(agent, &options, arena, &messages, &err) : rlm_error_nomem(&err);
    if (r < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    if (ask && ask->messages && ask->messages != rlm_messages_hash(&messages)) {
        rlm_replay_diverge(
            agent,
            "the messages that the model is sent are not those of the recording, of which only a "
            "hash is kept: the prompt has changed, or other texts of the engine",
            RLM_STR(""), RLM_STR(""));
        return;
    }
    struct rlm_chat_reply reply = {.text = was->content};
    rlm_agent_take_reply(agent, &reply, &was->usage, was->call_id);
}

/* ---- what came from outside ------------------------------------------------------------------ */

/* `resumed`: limits may have become lower than what was done already. */
static bool is_from_outside(const struct rlm_node *node, bool resumed)
{
    static const char *const errors[] = {"interrupted", "session_lost"};
    static const char *const reasons[] = {"time", "terminated", "failed", "budget", "cost"};
    for (size_t i = 0; node->type == RLM_ERROR_OUTPUT && i < 2; i++) {
        if (rlm_str_is(node->error, errors[i])) {
            return true;
        }
    }
    for (size_t i = 0; node->type == RLM_DONE_OUTPUT && i < 5; i++) {
        if (rlm_str_is(node->reason, reasons[i])) {
            return true;
        }
    }
    return node->type == RLM_USER_QUERY || rlm_node_is_by_program(node) ||
           (resumed && node->type == RLM_DONE_OUTPUT && rlm_str_is(node->reason, "max_iters"));
}

/* Whether all agents below have come to where an end from outside stands. */
static bool all_below_are_parked(const struct rlm_agent *agent)
{
    const rlm_graph *root = agent->graph;
    for (rlm_graph *g = rlm_graph_next(root, root); g; g = rlm_graph_next(root, g)) {
        const struct rlm_agent *below = rlm_map_get(&agent->run->agents, rlm_str_of(g->agent_id));
        if (below && !rlm_agent_finished(below) && !below->parked) {
            return false;
        }
    }
    return true;
}

/* The launch that made the agent was answered in the recording: then the agent ended by itself, else its
 * parent ended it. */
static bool ends_by_itself(const struct rlm_agent *agent, rlm_str reason)
{
    if (!agent->part || !(rlm_str_is(reason, "terminated") || rlm_str_is(reason, "time"))) {
        return true;
    }
    const struct rlm_past_cell *cell = agent->parent->again;
    for (size_t i = 0; cell && i < cell->calls.len; i++) {
        const struct rlm_past_call *call = cell->calls.items[i];
        if (call->made_as == agent->part->call->id) {
            return call->finished;
        }
    }
    return false;
}

static bool take_end(struct rlm_agent *agent, const struct rlm_node *was)
{
    if (!all_below_are_parked(agent)) {
        return true;
    }
    if (!ends_by_itself(agent, was->reason)) {
        agent->parked = true;
        wake_above(agent);
        return true;
    }
    agent->parked = false;
    rlm_agent_finish_with(agent, was);
    return true;
}

/* ---- cells from the record ------------------------------------------------------------------- */

/* A launch or an answer that the run was stopped in before it took effect. */
static bool came_to_nothing(const struct rlm_agent *agent, const struct rlm_past_call *call)
{
    const rlm_graph *g = recorded_graph(agent);
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
        struct rlm_past_call *was = cell->calls.items[agent->calls_made++];
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
    if (!all_below_are_parked(agent)) {
        return;
    }
    if (!cell->end) {
        come_to_the_end(agent);
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
    }
    rlm_run_schedule(agent);
}

static void go_on_with_cell(struct rlm_agent *agent)
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
    if (cell->recovered.len) {
        agent->recovered = rlm_strndup(cell->recovered.ptr, cell->recovered.len);
    }
    bool ok = !cell->recovered.len || agent->recovered;
    if (!ok) {
        rlm_error *err = NULL;
        rlm_error_nomem(&err);
        rlm_run_fail(agent->run, err);
    }
    return ok;
}

bool rlm_replay_cell(struct rlm_agent *agent, rlm_str code)
{
    struct rlm_replay *r = replay_of(agent);
    const struct rlm_node *last = rlm_graph_current(agent->graph), *was = rlm_replay_next(agent);
    if (last->type == RLM_LLM_OUTPUT && !was) {
        come_to_the_end(agent);
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
    if (!cell) {
        /* It was never started. */
        rlm_replay_next(agent)
            ? rlm_replay_diverge(agent, "code that was not run", RLM_STR(""), code)
            : come_to_the_end(agent);
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

/* Limits may have been given anew when the run went on: each agent goes by those of its turn. */
static void take_limits(struct rlm_agent *agent)
{
    const struct rlm_past *past = agent->past;
    const struct rlm_node *next = rlm_replay_next(agent);
    size_t turn = (size_t)agent->graph->turns + (next && next->type == RLM_LLM_OUTPUT);
    if (past && turn && turn <= past->turns.len) {
        size_t drive = past->turns.items[turn - 1].drive;
        agent->run->flow->limits = replay_of(agent)->past->drives.items[drive];
    }
}

bool rlm_replay_step(struct rlm_agent *agent)
{
    take_limits(agent);
    if (agent->parked) {
        const struct rlm_node *was = rlm_replay_next(agent);
        return !was || take_end(agent, was);
    }
    if (agent->from_record) {
        if (rlm_agent_ended_launch(agent)) {
            return false;
        }
        go_on_with_cell(agent);
        return true;
    }
    const struct rlm_node *was = rlm_replay_next(agent);
    if (agent->cell_open || !was || !is_from_outside(was, replay_of(agent)->past->drives.len > 1)) {
        return false;
    }
    if (rlm_node_is_by_program(was) && rlm_graph_current(agent->graph)->type == RLM_LLM_OUTPUT) {
        rlm_gate_check_turn(agent);
    }
    if (was->type == RLM_DONE_OUTPUT) {
        return take_end(agent, was);
    }
    if (rlm_agent_append(agent, was)) {
        rlm_run_schedule(agent);
    }
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

bool rlm_replay_call(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    struct rlm_past_call *was = rlm_past_match(agent->again, call);
    replay_of(agent)->report.calls++;
    if (!was && !agent->again->end) {
        come_to_the_end(agent); /* it was stopped before it made the call */
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

void rlm_replay_answered(struct rlm_agent *agent, const struct rlm_call_result *result)
{
    struct rlm_past_cell *cell = agent->again;
    for (size_t i = 0; cell && i < cell->calls.len; i++) {
        const struct rlm_past_call *was = cell->calls.items[i];
        if (was->made_as != result->id || !was->finished) {
            continue;
        }
        const char *type = result->error_type ? result->error_type : "";
        rlm_str is = result->error_type ? result->error_message : result->value_json;
        rlm_str said = was->error_type.len ? was->error_message : was->value_json;
        if (!rlm_str_is(was->error_type, type) || !is_same_value(said, is)) {
            rlm_replay_diverge(agent, "the answer to a host call", said, is);
        }
    }
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
    return d->n_calls;
}

/* ---- cells that run again -------------------------------------------------------------------- */

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

bool rlm_replay_cell_ended(struct rlm_agent *agent)
{
    const struct rlm_past_cell *cell = agent->again;
    for (size_t i = 0; cell && cell->end && i < cell->calls.len; i++) {
        const struct rlm_past_call *call = cell->calls.items[i];
        if (call->delivered && !call->made_as) {
            rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
            rlm_buf_add_str(&text, call->name);
            rlm_buf_add_str(&text, call->args_json);
            rlm_buf_add_str(&text, call->kwargs_json);
            rlm_replay_diverge(agent, "a host call that was made, and is not", rlm_buf_str(&text),
                               RLM_STR(""));
            return false;
        }
    }
    return true;
}

const struct rlm_node *rlm_replay_observed(struct rlm_agent *agent, const struct rlm_node *node)
{
    struct rlm_replay *r = replay_of(agent);
    const struct rlm_node *was = rlm_replay_next(agent);
    if (!was) {
        come_to_the_end(agent);
        return NULL;
    }
    if (was->type != node->type || !rlm_str_eq(was->error, node->error)) {
        rlm_replay_diverge(agent, "how a cell ended", was->content, node->content);
        return NULL;
    }
    if (!rlm_output_is_same(was->content, node->content)) {
        r->report.outputs_differ++;
        rlm_run_notice(agent->run, "%s: cell %lld printed something else than before",
                       agent->graph->agent_id, (long long)agent->cell);
        if (!r->report.first_output_agent_id) {
            r->report.first_output_agent_id = agent->graph->agent_id;
            r->report.first_output_cell = agent->cell;
        }
    }
    return was;
}

/* ---- the run --------------------------------------------------------------------------------- */

struct rlm_past *rlm_replay_past(const rlm_run *run, const rlm_graph *g)
{
    struct rlm_past_run *past = run->replay->past;
    rlm_graph *recorded = rlm_map_get(&past->root->agents, rlm_str_of(g->agent_id));
    return recorded ? rlm_past_take(past, recorded) : NULL;
}

void rlm_replay_free(struct rlm_replay *r)
{
    if (r) {
        rlm_past_free(r->past);
        rlm_buf_deinit(&r->recorded);
        rlm_buf_deinit(&r->replayed);
        rlm_buf_deinit(&r->what);
        rlm_buf_deinit(&r->agent_id);
        free(r);
    }
}

static int begin(rlm_run *run, rlm_error **err)
{
    const rlm_graph *recorded = run->replay->past->root;
    struct rlm_graph_options options = {
        .agent_id = recorded->agent_id,
        .query = recorded->query,
        .inputs = recorded->inputs,
        .model = recorded->model,
        .output_schema = recorded->output_schema,
    };
    struct rlm_agent *root;
    int r = rlm_graph_new(&options, &run->root, err);
    if (r < 0 || (r = rlm_agent_new(run, run->root, NULL, &root, err)) < 0) {
        return r;
    }
    /* Seeds are of run and agent. */
    memcpy(run->root->graph_id, recorded->graph_id, sizeof recorded->graph_id);
    rlm_run_emit(run, RLM_EVENT_GRAPH_CREATED, run->root, NULL, RLM_STR_NONE);
    rlm_run_schedule(root); /* the first step from outside is its query */
    return 0;
}

int rlm_flow_replay(rlm_flow *flow,
                    const struct rlm_replay_options *options,
                    const struct rlm_run_events *events,
                    void *arg,
                    rlm_run **ret_run,
                    rlm_error **err)
{
    struct rlm_journal_damage damage = {.offset = -1};
    rlm_run *run;
    char *blobs = NULL;
    int r = rlm_run_new(flow, events, arg, &run, err);
    if (r < 0) {
        return r;
    }
    if (!RLM_NEW(run->replay) || asprintf(&blobs, "%s/blobs", options->journal) < 0) {
        r = rlm_error_nomem(err);
    } else {
        run->replay->execute = options->execute;
        run->replay->what = run->replay->agent_id = RLM_BUF(TEXT_MAX);
        run->replay->recorded = run->replay->replayed = RLM_BUF(TEXT_MAX);
        r = rlm_blobs_open_to_view(blobs, &run->blobs, err);
    }
    if (r == 0) {
        r = rlm_past_load(options->journal, run->blobs, &run->replay->past, &damage, err);
    }
    if (r == 0 && damage.offset >= 0) {
        rlm_run_notice(run,
                       "the journal is damaged at byte %lld, and read up to there: %lld bytes are "
                       "left out",
                       (long long)damage.offset, (long long)damage.lost_bytes);
    }
    free(blobs);
    if (r < 0 || (r = begin(run, err)) < 0) {
        rlm_run_free(run);
        return r;
    }
    *ret_run = run;
    return 0;
}

const struct rlm_replay_report *rlm_run_replay_report(const rlm_run *run)
{
    return run->replay ? &run->replay->report : NULL;
}
