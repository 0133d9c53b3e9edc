/* New calls of a cell: each is journaled, asked for at its gate, and performed; or its answer is known
 * from before the run was stopped, or from what is replayed. */
#include "flow/call.h"
#include "flow/gate.h"
#include "flow/past.h"
#include "flow/record.h"
#include "flow/replay.h"

enum { CALLS_MAX = 100000, ARGUMENTS_MAX = 64 * 1024 * 1024 };

static void
perform(struct rlm_agent *agent, const struct rlm_host_call *call, const struct rlm_past_call *was)
{
    struct rlm_tool *tool = rlm_tools_find(&agent->run->flow->tools, call->name);
    if (rlm_str_is(call->name, "done")) {
        rlm_done_take(agent, call);
    } else if (rlm_str_is(call->name, "launch_subagents")) {
        rlm_launch_begin(agent, call, was);
    } else if (rlm_str_is(call->name, "llm_query") || rlm_str_is(call->name, "llm_query_batched")) {
        rlm_query_begin(agent, call, was);
    } else if (rlm_str_is(call->name, "budget")) {
        rlm_budget_answer(agent, call);
    } else if (rlm_str_is(call->name, "read_input")) {
        rlm_input_read_begin(agent, call);
    } else if (tool && tool->run) {
        rlm_host_tool_begin(agent, call, tool);
    } else {
        rlm_host_call_raise(agent, call, "HostCallError", "unknown",
                            RLM_STR("no tool of this name is registered"));
    }
}

/* ---- gates ----------------------------------------------------------------------------------- */

static void act_on(struct rlm_agent *agent,
                   const struct rlm_host_call *call,
                   const struct rlm_past_call *was,
                   const struct rlm_past_gate *said)
{
    if (said->decision == RLM_DECISION_ALLOW) {
        perform(agent, call, was);
    } else {
        rlm_host_call_raise(agent, call, "HostCallError", "rejected", said->text);
    }
}

/* Acts on the answer: the call that waited for it is gone then. */
static void pass_gate(struct rlm_call *gated)
{
    struct rlm_agent *agent = gated->agent;
    const struct rlm_past_call *was = gated->was;
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    struct rlm_host_call call = {.id = gated->id};
    struct rlm_past_gate said;
    const rlm_json *shown;
    rlm_gate *gate = rlm_steal(&gated->gate);
    said.decision = rlm_gate_decision(gate, &said.text);
    call.name = arena ? rlm_arena_copy(arena, rlm_str_of(gated->name)) : RLM_STR_NONE;
    rlm_call_free(gated);
    if (!call.name.ptr || rlm_json_parse(arena, rlm_gate_shown(gate), &shown, NULL) < 0) {
        rlm_run_fail_no_memory(agent->run);
    } else {
        call.args = rlm_json_get(shown, "args");
        call.kwargs = rlm_json_get(shown, "kwargs");
        act_on(agent, &call, was, &said);
    }
    rlm_gate_give_up(&gate);
}

void rlm_calls_pass_gates(struct rlm_agent *agent)
{
    bool passed = false;
    for (size_t i = 0; i < agent->calls.len && !agent->run->stopping;) {
        struct rlm_call *call = agent->calls.items[i];
        if (call->kind == RLM_CALL_GATED && rlm_gate_is_answered(call->gate)) {
            pass_gate(call);
            passed = true;
            i = 0; /* `done` may have ended others */
        } else {
            i++;
        }
    }
    if (passed) {
        rlm_calls_update_slot(agent);
    }
}

/* Asks host_call, then performs what it lets pass: now, or when it has answered. */
static void begin_at_gate(struct rlm_agent *agent,
                          const struct rlm_host_call *host_call,
                          struct rlm_past_call *was)
{
    if (was && was->gate.decision) {
        act_on(agent, host_call, was, &was->gate);
        return;
    }
    if (!agent->run->flow->hooks.host_call) {
        perform(agent, host_call, was);
        return;
    }
    rlm_auto_buf struct rlm_buf json = RLM_BUF(ARGUMENTS_MAX);
    struct rlm_call *call = rlm_call_new(agent, host_call, RLM_CALL_GATED, 0);
    if (!call) {
        return;
    }
    call->was = was;
    call->name = rlm_strndup(host_call->name.ptr, host_call->name.len);
    rlm_gate_put_arguments(&json, host_call);
    if (!call->name) {
        rlm_run_fail_no_memory(agent->run);
        return;
    }
    if (!rlm_gate_can_show(agent, &json)) {
        return;
    }
    struct rlm_gate_subject subject = {
        .kind = RLM_GATE_HOST_CALL,
        .agent = agent,
        .call = host_call,
        .shown = rlm_buf_str(&json),
    };
    if (rlm_gate_ask(&call->gate, &subject) && rlm_gate_is_answered(call->gate)) {
        pass_gate(call);
    }
}

/* ---- calls that were made before ------------------------------------------------------------- */

/* A call that was made before the run was interrupted. True: its answer is known, or it has none. */
static bool answer_from_past(struct rlm_agent *agent,
                             const struct rlm_host_call *call,
                             struct rlm_past_call *was,
                             const struct rlm_tool *tool)
{
    was->made_as = call->id;
    if (was->finished) {
        struct rlm_call_result result = rlm_past_result(was);
        rlm_call_queue_result(agent, agent->cell, &result);
        return true;
    }
    /* Behind a gate that had not let it pass it was never at work. */
    bool began = !was->gated || was->gate.decision == RLM_DECISION_ALLOW;
    if (tool && !tool->idempotent && began) {
        rlm_host_call_raise(
            agent, call, "ToolInterrupted", "interrupted",
            RLM_STR("the run was stopped while this tool was at work, and goes on now; "
                    "what the tool did is not known, and it was not called again"));
        return true;
    }
    return false;
}

/* In a replay. True: it has been dealt with. */
static bool replay_call(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    bool dealt_with = rlm_replay_call(agent, call);
    const struct rlm_past_call *was = NULL;
    for (size_t i = 0; agent->again && i < agent->again->calls.len && !was; i++) {
        const struct rlm_past_call *other = agent->again->calls.items[i];
        was = other->made_as == call->id ? other : NULL;
    }
    if (was && !agent->run->stopping) {
        rlm_gate_check_call(agent, call, was->gate.decision ? &was->gate : NULL);
    }
    if (was && !dealt_with && was->gate.decision == RLM_DECISION_REJECT) {
        act_on(agent, call, was, &was->gate);
        return true;
    }
    /* What was never answered at its gate was never performed. */
    return dealt_with || (was && was->gated && !was->gate.decision);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void begin(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    struct rlm_tool *tool = rlm_tools_find(&agent->run->flow->tools, call->name);
    bool replayed = agent->run->replay != NULL;
    struct rlm_past_call *was =
        agent->again && !replayed ? rlm_past_match(agent->again, call) : NULL;
    int r;
    agent->last_call = call->id > agent->last_call ? call->id : agent->last_call;
    if (agent->answer) {
        rlm_host_call_raise(agent, call, "CellEnded", "answered",
                            RLM_STR("the answer was given already"));
    } else if ((r = rlm_record_call(agent, call, was ? was->id : 0)) == RLM_E_LIMIT) {
        rlm_host_call_raise(
            agent, call, "ValueError", "limit",
            RLM_STR("the arguments of the call are more than 16 MiB (beside texts and "
                    "bytes of 64 KiB and more); pass large data as one str or bytes"));
    } else if (r < 0) {
        return;
    } else if (replayed) {
        if (!replay_call(agent, call)) {
            perform(agent, call, NULL);
        }
    } else if (!was || !answer_from_past(agent, call, was, tool)) {
        begin_at_gate(agent, call, was);
    }
}

void rlm_calls_begin(struct rlm_agent *agent, const struct rlm_host_call *calls, size_t n_calls)
{
    for (size_t i = 0;
         i < n_calls && !agent->run->stopping && (agent->session || agent->from_record); i++) {
        if (agent->calls.len >= CALLS_MAX) {
            rlm_host_call_raise(agent, &calls[i], "HostCallError", "limit",
                                RLM_STR("too many host calls are open at once"));
        } else {
            begin(agent, &calls[i]);
        }
    }
    rlm_calls_update_slot(agent);
}
