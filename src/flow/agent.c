#include "flow/ask.h"
#include "flow/call.h"
#include "flow/code.h"
#include "flow/gate.h"
#include "flow/past.h"
#include "flow/replay.h"
#include "flow/restore.h"
#include "flow/run.h"
#include "graph/record.h"

#include <stdio.h>

enum { TEXT_MAX = 64 * 1024 * 1024 };

int rlm_agent_new(rlm_run *run,
                  rlm_graph *graph,
                  struct rlm_agent *parent,
                  struct rlm_agent **ret_agent,
                  rlm_error **err)
{
    struct rlm_agent *agent;
    if (!RLM_NEW(agent)) {
        return rlm_error_nomem(err);
    }
    agent->run = run;
    agent->graph = graph;
    agent->parent = parent;
    agent->model = rlm_flow_find_model(run->flow, graph->model);
    if (run->replay) {
        agent->past = rlm_replay_past(run, graph);
        if (agent->past) {
            memcpy(agent->seed, agent->past->seed, sizeof agent->seed);
        }
    }
    int r = 0;
    if (graph->output_schema.len) {
        r = rlm_schema_new(graph->output_schema, &agent->output_schema, err);
    }
    if (r == 0 && (r = rlm_map_set(&run->agents, rlm_str_of(graph->agent_id), agent)) < 0) {
        rlm_error_nomem(err);
    }
    if (r < 0) {
        rlm_schema_free(agent->output_schema);
        free(agent);
        return r;
    }
    run->n_agents++;
    *ret_agent = agent;
    return 0;
}

void rlm_agent_free(struct rlm_agent *agent)
{
    agent->keeps_session = false;
    rlm_agent_drop(agent);
    rlm_schema_free(agent->output_schema);
    free(agent->answer);
    free(agent->lost);
    free(agent->recovered);
    rlm_past_agent_free(agent->past);
    free(agent->calls.items);
    free(agent->results.items);
    free(agent->held.items);
    free(agent);
}

void rlm_agent_set_state(struct rlm_agent *agent, enum rlm_agent_state state)
{
    if (agent->state != state) {
        agent->state = state;
        rlm_run_emit(agent->run, RLM_EVENT_STATE, agent->graph, NULL, RLM_STR_NONE);
    }
}

bool rlm_agent_append(struct rlm_agent *agent, const struct rlm_node *node)
{
    rlm_run *run = agent->run;
    rlm_error *err = NULL;
    const struct rlm_node *kept;
    int r = rlm_graph_append(agent->graph, node, &kept, &err);
    if (r == 0) {
        r = rlm_record_node(run->journal, agent->graph, kept, &err);
    }
    if (r < 0) {
        rlm_run_fail(run, err);
        return false;
    }
    rlm_run_emit(run, RLM_EVENT_APPEND_NODE, agent->graph, kept, RLM_STR_NONE);
    return !run->replay || rlm_replay_check(agent, kept);
}

/* ---- slots: agents with a session that is executing or about to ---- */

bool rlm_agent_take_slot(struct rlm_agent *agent, bool front)
{
    rlm_run *run = agent->run;
    if (agent->slot == RLM_SLOT_HELD) {
        return true;
    }
    if (agent->slot == RLM_SLOT_NONE && run->slots_held < run->flow->limits.max_live) {
        agent->slot = RLM_SLOT_HELD;
        run->slots_held++;
        return true;
    }
    if (agent->slot == RLM_SLOT_NONE) {
        struct rlm_agent **place = rlm_vec_push(&run->slot_queue);
        if (!place) {
            rlm_run_fail_no_memory(run);
            return false;
        }
        if (front) {
            memmove(run->slot_queue.items + 1, run->slot_queue.items,
                    (run->slot_queue.len - 1) * sizeof *run->slot_queue.items);
            place = run->slot_queue.items;
        }
        *place = agent;
        agent->slot = RLM_SLOT_QUEUED;
    }
    return false;
}

void rlm_agent_release_slot(struct rlm_agent *agent)
{
    rlm_run *run = agent->run;
    if (agent->slot == RLM_SLOT_QUEUED) {
        for (size_t i = 0; i < run->slot_queue.len; i++) {
            if (run->slot_queue.items[i] == agent) {
                rlm_vec_remove(&run->slot_queue, i);
                break;
            }
        }
    } else if (agent->slot == RLM_SLOT_HELD) {
        run->slots_held--;
        if (run->slot_queue.len) {
            struct rlm_agent *next = run->slot_queue.items[0];
            rlm_vec_remove(&run->slot_queue, 0);
            next->slot = RLM_SLOT_HELD;
            run->slots_held++;
            rlm_run_schedule(next);
        }
    }
    agent->slot = RLM_SLOT_NONE;
}

/* ---- the end of an agent ---- */

void rlm_agent_drop(struct rlm_agent *agent)
{
    rlm_gate_give_up(&agent->gate);
    rlm_gate_give_up(&agent->step_gate);
    rlm_ask_cancel(agent->ask);
    agent->ask = NULL;
    rlm_calls_drop(agent);
    if (agent->session && !agent->keeps_session) {
        rlm_run_close_session(agent->run, agent->session);
        agent->session = NULL;
        agent->session_ready = false;
    }
    agent->cell_open = agent->cell_unsent = false;
    agent->interrupted = agent->again = NULL;
    rlm_replay_forget_held(agent);
    rlm_restore_free(rlm_steal(&agent->restore));
    rlm_agent_release_slot(agent);
}

rlm_str rlm_agent_ended_because(const char *reason)
{
    return strcmp(reason, "time") == 0 ? RLM_STR("max_time passed")
                                       : RLM_STR("the agent that launched it went on without it");
}

/* Children that no open call knows: of a cell that the run's interruption cut off. */
static void finish_children(struct rlm_agent *agent, const char *reason)
{
    for (size_t i = 0; i < agent->graph->children.len; i++) {
        struct rlm_agent *child =
            rlm_map_get(&agent->run->agents, rlm_str_of(agent->graph->children.items[i]->agent_id));
        if (child && !rlm_agent_finished(child)) {
            rlm_agent_finish(child, reason, RLM_STR(""), RLM_STR(""),
                             rlm_agent_ended_because(reason));
        }
    }
}

void rlm_agent_finish_with(struct rlm_agent *agent, const struct rlm_node *done)
{
    if (rlm_agent_finished(agent)) {
        return;
    }
    const char *below = rlm_str_is(done->reason, "time") ? "time" : "terminated";
    rlm_calls_cancel(agent, below);
    finish_children(agent, below);
    if (agent->interrupted && !rlm_interrupted_close(agent)) {
        return;
    }
    agent->keeps_session = rlm_agent_may_keep_session(agent);
    rlm_agent_drop(agent);
    rlm_agent_set_state(agent, RLM_AGENT_FINISHED);
    rlm_run_poke(agent->run); /* all that are left may wait for gates */
    if (!rlm_agent_append(agent, done)) {
        return;
    }
    if (agent->run->replay && rlm_replay_next(agent)) {
        agent->keeps_session = false;
        rlm_agent_set_state(agent, RLM_AGENT_READY); /* it was asked more */
        rlm_run_schedule(agent);
        return;
    }
    if (agent->run->replay) {
        rlm_replay_wake_above(agent);
    }
    if (agent->part) {
        rlm_launch_child_ended(agent);
    } else if (agent->parent) {
        rlm_run_schedule(agent->parent); /* it may wait for what its interrupted cell launched */
    }
    if (!agent->parent) {
        rlm_run_root_ended(agent->run);
    }
}

void rlm_agent_finish(
    struct rlm_agent *agent, const char *reason, rlm_str result, rlm_str output, rlm_str content)
{
    struct rlm_node done = {
        .type = RLM_DONE_OUTPUT,
        .result = result,
        .reason = rlm_str_of(reason),
        .output = output,
        .content = content,
    };
    rlm_agent_finish_with(agent, &done);
}

void rlm_agent_fail(struct rlm_agent *agent, rlm_str message)
{
    rlm_agent_finish(agent, "failed", RLM_STR(""), RLM_STR(""), message);
}

/* ---- a turn of the model ---- */

void rlm_agent_take_reply(struct rlm_agent *agent,
                          const struct rlm_chat_reply *reply,
                          const struct rlm_usage *usage,
                          int64_t ask)
{
    rlm_auto_buf struct rlm_buf content = RLM_BUF(TEXT_MAX);
    rlm_auto_buf struct rlm_buf code = RLM_BUF(TEXT_MAX);
    rlm_auto_buf struct rlm_buf note = RLM_BUF(TEXT_MAX);
    rlm_buf_add_str(&content, reply->text);
    if (reply->tool_code.len) {
        /* What a native tool call carries stands in the conversation as a block, like other code. */
        if (content.len) {
            rlm_buf_adds(&content, "\n");
        }
        rlm_buf_adds(&content, "```repl\n");
        rlm_buf_add_str(&content, reply->tool_code);
        rlm_buf_adds(&content, "\n```");
        rlm_buf_add_str(&code, reply->tool_code);
    } else {
        rlm_code_extract(reply->text, &code, &note);
    }
    rlm_error *err = NULL;
    if (rlm_buf_check(&content, &err) < 0 || rlm_buf_check(&code, &err) < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    rlm_auto_buf struct rlm_buf metadata = RLM_BUF(TEXT_MAX);
    struct rlm_json_writer w = {.buf = &metadata};
    rlm_json_begin(&w, '{');
    rlm_json_member_str(&w, "finish_reason", reply->finish_reason);
    if (reply->tool_code.len) {
        rlm_json_member_bool(&w, "tool_code", true);
    }
    rlm_json_end(&w, '}');
    struct rlm_node node = {
        .type = RLM_LLM_OUTPUT,
        .content = rlm_buf_str(&content),
        .code = rlm_buf_str(&code),
        .model = rlm_str_of(agent->model->name),
        .usage = *usage,
        .call_id = ask,
        .metadata = rlm_buf_str(&metadata),
    };
    rlm_agent_set_state(agent, RLM_AGENT_READY);
    if (rlm_agent_append(agent, &node)) {
        rlm_run_schedule(agent);
    }
}

static void replied(void *arg,
                    struct rlm_ask *ask,
                    const struct rlm_chat_reply *reply,
                    const struct rlm_usage *usage)
{
    struct rlm_agent *agent = arg;
    agent->ask = NULL;
    rlm_agent_take_reply(agent, reply, usage, rlm_ask_id(ask));
}

static void not_replied(void *arg, struct rlm_ask *ask, const char *reason, const rlm_error *error)
{
    struct rlm_agent *agent = arg;
    (void)ask;
    agent->ask = NULL;
    if (strcmp(reason, "failed") == 0) {
        rlm_agent_fail(agent, rlm_str_of(rlm_error_message(error)));
    } else {
        agent->refused = strcmp(reason, "cost") == 0 ? "cost" : "budget";
        rlm_run_schedule(agent);
    }
}

static void ask_model(struct rlm_agent *agent, bool final)
{
    if (agent->run->replay) {
        rlm_replay_turn(agent, final);
        return;
    }
    if (rlm_agent_awaits_session(agent)) {
        return;
    }
    struct rlm_ask_options options = {
        .agent = agent,
        .model = agent->model,
        .turn = agent->graph->turns + 1,
        .final = final,
        .done = replied,
        .failed = not_replied,
        .arg = agent,
    };
    rlm_error *err = NULL;
    rlm_agent_set_state(agent, RLM_AGENT_QUEUED);
    if (rlm_ask_start(&options, &agent->ask, &err) < 0) {
        rlm_agent_fail(agent, rlm_str_of(rlm_error_message(err)));
        rlm_error_free(err);
    }
}

/* What a limit that ends an agent says to people. */
static void finish_at_limit(struct rlm_agent *agent, const char *reason)
{
    const struct rlm_limits *l = &agent->run->flow->limits;
    char text[200];
    if (strcmp(reason, "max_iters") == 0) {
        int turns = rlm_step_max_iters(l, agent->graph->depth);
        snprintf(text, sizeof text, "no answer after %d turn%s (max_iters)", turns,
                 turns == 1 ? "" : "s");
    } else if (strcmp(reason, "budget") == 0) {
        snprintf(
            text, sizeof text,
            "the next model call does not fit what is left of max_budget (%lld of %lld tokens are spent)",
            (long long)(agent->run->ledger.settled.input_tokens +
                        agent->run->ledger.settled.output_tokens),
            (long long)l->max_budget);
    } else {
        snprintf(
            text, sizeof text,
            "the next model call does not fit what is left of max_cost ($%.4f of $%.4f are spent)",
            (double)agent->run->ledger.settled.cost_nano / 1e9, (double)l->max_cost_nano / 1e9);
    }
    rlm_agent_finish(agent, reason, RLM_STR(""), RLM_STR(""), rlm_str_of(text));
}

int64_t rlm_agent_ended_launch(const struct rlm_agent *agent)
{
    for (size_t i = 0; i < agent->calls.len; i++) {
        const struct rlm_call *call = agent->calls.items[i];
        if (call->kind == RLM_CALL_LAUNCH && call->parts_left == 0 &&
            !(agent->run->replay && rlm_replay_ends_later(agent, call))) {
            return call->id;
        }
    }
    return 0;
}

/* exec_turn has not decided, or what the program appended meanwhile stands in the place of the code. */
static bool waits_for_turn_gate(struct rlm_agent *agent)
{
    enum rlm_node_type last = rlm_graph_current(agent->graph)->type;
    if (!agent->gate || last == RLM_LLM_OUTPUT || last == RLM_EXEC_ACTION) {
        return false;
    }
    if (!rlm_gate_is_answered(agent->gate)) {
        return true;
    }
    rlm_gate_give_up(&agent->gate);
    return false;
}

void rlm_agent_step(struct rlm_agent *agent)
{
    if (rlm_agent_finished(agent)) {
        return;
    }
    if (agent->cell_unsent && agent->session) {
        rlm_agent_send_cell(agent);
        return;
    }
    if (agent->run->replay && rlm_replay_step(agent)) {
        return;
    }
    if (rlm_agent_goes_on(agent)) {
        return;
    }
    if (agent->calls.len && agent->run->flow->hooks.host_call) {
        rlm_calls_pass_gates(agent);
    }
    if (agent->results.len) {
        rlm_calls_deliver(agent);
    }
    struct rlm_open_calls open = {
        .cell = agent->cell_open,
        .asking = agent->ask != NULL,
        .ended_launch = rlm_agent_ended_launch(agent),
    };
    struct rlm_account account = {.refused = agent->refused,
                                  .last_affordable = agent->last_affordable};
    struct rlm_step step = rlm_step_next(agent->graph, &open, &agent->run->flow->limits, &account);
    if (step.kind != RLM_STEP_WAIT && (!rlm_gate_lets_step(agent) || waits_for_turn_gate(agent))) {
        return;
    }
    switch (step.kind) {
    case RLM_STEP_WAIT:
        break;
    case RLM_STEP_RUN:
        rlm_agent_run_code(agent);
        break;
    case RLM_STEP_ASK:
        ask_model(agent, step.final);
        break;
    case RLM_STEP_ANSWER:
        rlm_launch_answer(rlm_call_find(agent, step.call_id));
        rlm_run_schedule(agent);
        break;
    case RLM_STEP_FINISH:
        finish_at_limit(agent, step.reason);
        break;
    }
}
