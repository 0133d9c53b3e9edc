/* The run of a replay: its begin and end, its turns, and what came from outside. */
#include "flow/replay.h"

#include "flow/call.h"
#include "flow/gate.h"
#include "flow/messages.h"

#include <stdio.h>

enum { TEXT_MAX = 64 * 1024 * 1024 };

/* ---- beginning ------------------------------------------------------------------------------- */

struct rlm_past *rlm_replay_past(const rlm_run *run, const rlm_graph *g)
{
    struct rlm_past_run *past = run->replay->past;
    rlm_graph *recorded = rlm_map_get(&past->root->agents, rlm_str_of(g->agent_id));
    return recorded ? rlm_past_take(past, recorded) : NULL;
}

void rlm_replay_free(struct rlm_replay *r)
{
    if (r) {
        rlm_timer_free(r->patience);
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
    run->keep_sessions = true; /* change_session makes another where the recording had one */
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
    if (!RLM_NEW(run->replay) || asprintf(&blobs, "%s/blobs", options->journal) < 0 ||
        !(run->replay->patience = rlm_timer_new(run->loop, rlm_replay_patience_is_over, run))) {
        r = rlm_error_nomem(err);
    } else {
        run->replay->execute = options->execute;
        run->replay->what = run->replay->agent_id = RLM_BUF(TEXT_MAX);
        run->replay->recorded = run->replay->replayed = RLM_BUF(TEXT_MAX);
        r = rlm_blobs_open_to_view(blobs, &run->blobs, err);
    }
    if (r == 0) {
        r = rlm_past_load(options->journal, run->blobs, options->execute, &run->replay->past,
                          &damage, err);
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

/* ---- the recording, and its end -------------------------------------------------------------- */

const rlm_graph *rlm_replay_graph(const struct rlm_agent *agent)
{
    return rlm_map_get(&agent->run->replay->past->root->agents, rlm_str_of(agent->graph->agent_id));
}

const struct rlm_node *rlm_replay_next(const struct rlm_agent *agent)
{
    const rlm_graph *recorded = rlm_replay_graph(agent);
    size_t at = agent->graph->nodes.len;
    return recorded && at < recorded->nodes.len ? recorded->nodes.items[at] : NULL;
}

void rlm_replay_wake_above(struct rlm_agent *agent)
{
    for (struct rlm_agent *above = agent->parent; above; above = above->parent) {
        rlm_run_schedule(above);
    }
}

void rlm_replay_park(struct rlm_agent *agent)
{
    agent->parked = true;
    rlm_agent_release_slot(agent); /* others may need it */
    rlm_agent_set_state(agent, RLM_AGENT_WAITING);
    rlm_replay_wake_above(agent);
    rlm_run_poke(agent->run);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* The reply that became the node (rlm_agent_take_reply): code of a native tool call stands behind its
 * text as a block, and is not looked for in it. */
static struct rlm_chat_reply reply_of(const struct rlm_node *was, rlm_arena *arena)
{
    static const char before[] = "```repl\n", after[] = "\n```";
    struct rlm_chat_reply reply = {.text = was->content};
    const rlm_json *metadata = NULL;
    if (rlm_json_parse(arena, was->metadata, &metadata, NULL) < 0) {
        return reply;
    }
    reply.finish_reason = rlm_json_text(rlm_json_get(metadata, "finish_reason"), RLM_STR(""));
    size_t block = strlen(before) + was->code.len + strlen(after);
    if (rlm_json_bool(rlm_json_get(metadata, "tool_code"), false) && block <= was->content.len) {
        reply.tool_code = was->code;
        reply.text.len -= block;
        reply.text.len -= reply.text.len > 0; /* the line ending between the two */
    }
    return reply;
}

void rlm_replay_turn(struct rlm_agent *agent, bool final)
{
    const struct rlm_node *was = rlm_replay_next(agent);
    size_t turn = (size_t)agent->graph->turns + 1;
    if (!was) {
        rlm_replay_park(agent);
        return;
    }
    if (was->type != RLM_LLM_OUTPUT) {
        rlm_replay_diverge(agent, "another kind of step", rlm_str_of(rlm_node_type_tag(was->type)),
                           RLM_STR("llm_output"));
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
        ask ? agent->run->replay->past->drives.items[ask->drive] : agent->run->flow->limits;
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
    struct rlm_chat_reply reply = reply_of(was, arena);
    rlm_agent_take_reply(agent, &reply, &was->usage, was->call_id);
}

/* ---- what came from outside ------------------------------------------------------------------ */

bool rlm_replay_is_from_outside(const rlm_run *run, const struct rlm_node *node)
{
    /* Limits may have become lower than what was done already. */
    bool resumed = run->replay->past->drives.len > 1;
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

bool rlm_replay_below_is_parked(const struct rlm_agent *agent)
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
    if (!rlm_replay_below_is_parked(agent)) {
        return true;
    }
    if (!ends_by_itself(agent, was->reason)) {
        agent->parked = true;
        rlm_agent_release_slot(agent);
        rlm_replay_wake_above(agent);
        return true;
    }
    agent->parked = false;
    rlm_agent_finish_with(agent, was);
    return true;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Limits may have been given anew when the run went on: each agent goes by those of its turn. */
static void take_limits(struct rlm_agent *agent)
{
    const struct rlm_past *past = agent->past;
    const struct rlm_node *next = rlm_replay_next(agent);
    size_t turn = (size_t)agent->graph->turns + (next && next->type == RLM_LLM_OUTPUT);
    if (past && turn && turn <= past->turns.len) {
        size_t drive = past->turns.items[turn - 1].drive;
        agent->run->flow->limits = agent->run->replay->past->drives.items[drive];
    }
}

bool rlm_replay_step(struct rlm_agent *agent)
{
    take_limits(agent);
    if (rlm_replay_take_held(agent)) {
        return true;
    }
    if (agent->parked) {
        const struct rlm_node *was = rlm_replay_next(agent);
        return !was || take_end(agent, was);
    }
    if (agent->from_record) {
        if (rlm_agent_ended_launch(agent)) {
            return false;
        }
        rlm_replay_go_on(agent);
        return true;
    }
    const struct rlm_node *was = rlm_replay_next(agent);
    if (agent->cell_open || !was || !rlm_replay_is_from_outside(agent->run, was)) {
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
