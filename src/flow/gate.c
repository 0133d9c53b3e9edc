#include "flow/gate.h"

#include "base/regex.h"
#include "flow/ask.h"
#include "flow/call.h"
#include "flow/record.h"
#include "flow/replay.h"

#include <assert.h>

enum { SHOWN_MAX = 64 * 1024 * 1024 };

/* Lives until it has been answered, also when nobody waits any more, and as long as somebody waits; if the
 * program never answers, as long as the flow. */
struct rlm_gate {
    struct rlm_link link;            /* in the flow's list */
    struct rlm_gate_subject subject; /* `agent` is NULL once nobody waits */
    struct rlm_host_call call;       /* of a host call: its id */
    char *shown;
    size_t shown_len;
    int64_t asked_us;
    bool asking; /* the hook has not returned */
    bool open;   /* it waits: counted, and its question is journaled */
    bool answered;
    bool postponed; /* answered, but nothing was decided */
    enum rlm_gate_decision decision;
    char *text;
    size_t text_len;
    void (*cancelled)(void *arg);
    void *cancelled_arg;
    bool replay;
    const struct rlm_past_gate *recorded; /* in a replay; NULL: nobody was asked */
};

static void gate_free(rlm_gate *gate)
{
    rlm_link_remove(&gate->link);
    free(gate->shown);
    free(gate->text);
    free(gate);
}

static rlm_gate *gate_new(const struct rlm_gate_subject *subject)
{
    rlm_gate *gate;
    if (!RLM_NEW(gate)) {
        return NULL;
    }
    gate->subject = *subject;
    gate->shown_len = subject->shown.len;
    gate->shown = rlm_strndup(subject->shown.ptr, subject->shown.len);
    gate->asked_us = rlm_wall_us();
    if (!gate->shown) {
        gate_free(gate);
        return NULL;
    }
    gate->subject.shown = (rlm_str){gate->shown, gate->shown_len};
    if (subject->call) {
        gate->call.id = subject->call->id;
        gate->subject.call = &gate->call;
    }
    rlm_link_add(&subject->agent->run->flow->gates, &gate->link);
    return gate;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* No clock of a cell runs while a gate of its agent is open. */
static void count(struct rlm_agent *agent, int change)
{
    agent->open_gates += change;
    agent->run->open_gates += change;
    if (agent->session) {
        rlm_session_pause(agent->session, agent->open_gates > 0);
    }
    rlm_run_poke(agent->run); /* which looks at the clock of the run */
}

/* Its cell can go on only when a gate or a sub-agent lets it. */
static bool is_cell_held(const struct rlm_agent *agent)
{
    bool held = agent->calls.len > 0 && agent->results.len == 0;
    for (size_t i = 0; held && i < agent->calls.len; i++) {
        const struct rlm_call *call = agent->calls.items[i];
        held = call->kind == RLM_CALL_LAUNCH || call->kind == RLM_CALL_GATED ||
               call->kind == RLM_CALL_QUERY;
        for (size_t k = 0; held && call->kind == RLM_CALL_QUERY && k < call->n_parts; k++) {
            held = !call->parts[k].ask || rlm_ask_is_gated(call->parts[k].ask);
        }
    }
    return held;
}

bool rlm_gates_hold(const rlm_run *run)
{
    size_t pos = 0;
    void *value;
    bool held = run->open_gates > 0;
    while (held && rlm_map_next(&run->agents, &pos, NULL, &value)) {
        const struct rlm_agent *agent = value;
        if (!rlm_agent_finished(agent)) {
            held = agent->cell_open     ? is_cell_held(agent)
                   : agent->interrupted ? true /* waits for its sub-agents */
                                        : agent->open_gates > 0;
        }
    }
    return held;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void call_hook(rlm_gate *gate, rlm_str name)
{
    struct rlm_agent *agent = gate->subject.agent;
    const struct rlm_flow_hooks *hooks = &agent->run->flow->hooks;
    rlm_str shown = gate->subject.shown;
    switch (gate->subject.kind) {
    case RLM_GATE_EXEC_TURN:
        hooks->exec_turn(hooks->arg, gate, agent->graph, shown, gate->replay);
        break;
    case RLM_GATE_MODEL_CALL:
        hooks->model_call(hooks->arg, gate, agent->graph, shown);
        break;
    case RLM_GATE_HOST_CALL:
        hooks->host_call(hooks->arg, gate, agent->graph, name, shown, gate->replay);
        break;
    case RLM_GATE_MESSAGES:
        hooks->messages(hooks->arg, gate, agent->graph, shown, gate->subject.final);
        break;
    case RLM_GATE_NEXT_STEP:
        hooks->next_step(hooks->arg, gate, agent->graph);
        break;
    }
}

/* Others are part of how the program drives the run: what comes of them stands in the graph. */
static bool is_kept(const rlm_gate *gate)
{
    return gate->subject.kind != RLM_GATE_MESSAGES && gate->subject.kind != RLM_GATE_NEXT_STEP;
}

static void wait_for_answer(rlm_gate *gate)
{
    struct rlm_agent *agent = gate->subject.agent;
    gate->open = true;
    count(agent, 1);
    if (is_kept(gate)) {
        rlm_record_gate(&gate->subject, gate->asked_us, gate->subject.kind != RLM_GATE_HOST_CALL,
                        NULL);
    }
    if (!agent->cell_open) {
        rlm_agent_set_state(agent, RLM_AGENT_GATED);
    }
}

/* Nobody waits any more: who has not answered is told once, and may answer then. */
static void drop(rlm_gate *gate)
{
    void (*cancelled)(void *arg) = gate->cancelled;
    if (gate->answered) {
        gate_free(gate);
    } else if (cancelled) {
        gate->cancelled = NULL;
        cancelled(gate->cancelled_arg);
    }
}

bool rlm_gate_can_show(struct rlm_agent *agent, const struct rlm_buf *made)
{
    rlm_error *err = NULL;
    if (rlm_buf_check(made, &err) < 0) {
        rlm_run_fail(agent->run, err);
        return false;
    }
    return true;
}

bool rlm_gate_ask(rlm_gate **slot, const struct rlm_gate_subject *subject)
{
    struct rlm_agent *agent = subject->agent;
    rlm_gate *gate = gate_new(subject);
    if (!gate) {
        rlm_run_fail_no_memory(agent->run);
        return false;
    }
    *slot = gate;
    /* Hooks and events may end the agent, and the slot's owner with it. */
    gate->asking = true;
    call_hook(gate, subject->call ? subject->call->name : RLM_STR(""));
    if (gate->subject.agent && !gate->answered) {
        wait_for_answer(gate);
    }
    gate->asking = false;
    if (!gate->subject.agent) {
        drop(gate);
        return false;
    }
    return true;
}

bool rlm_gate_is_answered(const rlm_gate *gate)
{
    return gate->answered && !gate->postponed;
}

enum rlm_gate_decision rlm_gate_decision(const rlm_gate *gate, rlm_str *ret_text)
{
    *ret_text = (rlm_str){gate->text ? gate->text : "", gate->text_len};
    return gate->decision;
}

rlm_str rlm_gate_shown(const rlm_gate *gate)
{
    return gate->subject.shown;
}

void rlm_gate_give_up(rlm_gate **slot)
{
    rlm_gate *gate = rlm_steal(slot);
    if (!gate) {
        return;
    }
    if (gate->open) {
        gate->open = false;
        count(gate->subject.agent, -1);
    }
    gate->subject.agent = NULL;
    if (!gate->asking) {
        drop(gate);
    } /* else whoever asks finds out */
}

void rlm_gate_on_cancel(rlm_gate *gate, void (*cancelled)(void *arg), void *arg)
{
    gate->cancelled = cancelled;
    gate->cancelled_arg = arg;
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char *const words[] = {
    [RLM_DECISION_ALLOW] = "allow",
    [RLM_DECISION_REWRITE] = "rewrite",
    [RLM_DECISION_REJECT] = "reject",
    [RLM_DECISION_SKIP] = "skip",
};

/* True when nobody waits any more, and the answer is dropped. */
static bool is_too_late(rlm_gate *gate)
{
    assert(!gate->answered && "a gate is answered once");
    gate->answered = true;
    if (gate->subject.agent) {
        return false;
    }
    if (!gate->asking) {
        gate_free(gate);
    }
    return true;
}

static void close_gate(rlm_gate *gate)
{
    if (gate->open) {
        gate->open = false;
        count(gate->subject.agent, -1);
    }
}

/* What is not kept is not done: without memory or a journal nothing passes. */
static void decide(rlm_gate *gate, enum rlm_gate_decision decision, const char *who, rlm_str text)
{
    if (is_too_late(gate)) {
        return;
    }
    struct rlm_agent *agent = gate->subject.agent;
    bool was_open = gate->open;
    gate->decision = decision;
    gate->text_len = text.len;
    gate->text = rlm_strndup(text.ptr, text.len);
    if (gate->replay) {
        return; /* whoever asks compares */
    }
    struct rlm_gate_answer answer = {words[decision], who, {gate->text, gate->text_len}};
    bool shown = !was_open && gate->subject.kind != RLM_GATE_HOST_CALL;
    if (!gate->text) {
        rlm_run_fail_no_memory(agent->run);
        gate->decision = RLM_DECISION_REJECT;
        gate->text_len = 0;
    } else if (is_kept(gate) &&
               rlm_record_gate(&gate->subject, gate->asked_us, shown, &answer) < 0) {
        gate->decision = RLM_DECISION_REJECT;
    }
    close_gate(gate);
    if (!gate->asking) {
        rlm_run_schedule(agent);
        rlm_run_poke(agent->run);
    }
}

void rlm_gate_allow(rlm_gate *gate, const char *who)
{
    decide(gate, RLM_DECISION_ALLOW, who, RLM_STR(""));
}

void rlm_gate_reject(rlm_gate *gate, const char *who, rlm_str text)
{
    decide(gate, RLM_DECISION_REJECT, who,
           text.len ? text : RLM_STR("this was looked at, and refused"));
}

void rlm_gate_rewrite(rlm_gate *gate, const char *who, rlm_str code)
{
    if (gate->subject.kind == RLM_GATE_EXEC_TURN || gate->subject.kind == RLM_GATE_MESSAGES) {
        decide(gate, RLM_DECISION_REWRITE, who, code);
    } else {
        rlm_gate_reject(gate, who, code);
    }
}

void rlm_gate_skip(rlm_gate *gate, const char *who)
{
    if (gate->subject.kind == RLM_GATE_EXEC_TURN) {
        decide(gate, RLM_DECISION_SKIP, who, RLM_STR(""));
    } else {
        rlm_gate_reject(gate, who, RLM_STR(""));
    }
}

void rlm_gate_postpone(rlm_gate *gate, const char *why)
{
    if (is_too_late(gate)) {
        return;
    }
    gate->postponed = true;
    if (!gate->replay) {
        close_gate(gate);
        rlm_run_halt_because(gate->subject.agent->run, "awaiting_approval", why ? why : "");
    }
}

/* ---- replay ---------------------------------------------------------------------------------- */

/* What the recording handed to a session. */
static bool is_as_recorded(const rlm_gate *gate)
{
    enum rlm_gate_decision was = gate->recorded ? gate->recorded->decision : RLM_DECISION_ALLOW;
    rlm_str ran = was == RLM_DECISION_REWRITE ? gate->recorded->text : gate->subject.shown;
    switch (gate->decision) {
    case RLM_DECISION_REWRITE:
        return was != RLM_DECISION_REJECT && was != RLM_DECISION_SKIP &&
               rlm_str_eq(ran, (rlm_str){gate->text, gate->text_len});
    case RLM_DECISION_REJECT:
    case RLM_DECISION_SKIP:
        return was == RLM_DECISION_REJECT || was == RLM_DECISION_SKIP;
    default:
        return true;
    }
}

/* Lets the hook look. Its answer is compared, and decides nothing. */
static void
check(const struct rlm_gate_subject *subject, const struct rlm_past_gate *recorded, rlm_str name)
{
    rlm_gate *gate = gate_new(subject);
    if (!gate) {
        rlm_run_fail_no_memory(subject->agent->run);
        return;
    }
    gate->replay = true;
    gate->recorded = recorded;
    gate->asking = true;
    call_hook(gate, name);
    gate->asking = false;
    gate->subject.agent = NULL; /* an answer that comes later changes nothing */
    if (!gate->answered) {
        return;
    }
    if (!is_as_recorded(gate)) {
        const char *was = words[recorded ? recorded->decision : RLM_DECISION_ALLOW];
        rlm_replay_diverge(subject->agent, "what was decided at a gate", rlm_str_of(was),
                           rlm_str_of(words[gate->decision]));
    }
    gate_free(gate);
}

void rlm_gate_check_call(struct rlm_agent *agent,
                         const struct rlm_host_call *call,
                         const struct rlm_past_gate *recorded)
{
    if (!agent->run->flow->hooks.host_call) {
        return;
    }
    rlm_auto_buf struct rlm_buf json = RLM_BUF(SHOWN_MAX);
    rlm_gate_put_arguments(&json, call);
    if (!rlm_gate_can_show(agent, &json)) {
        return;
    }
    struct rlm_gate_subject subject = {
        .kind = RLM_GATE_HOST_CALL, .agent = agent, .call = call, .shown = rlm_buf_str(&json)};
    check(&subject, recorded, call->name);
}

/* ---- exec_turn ------------------------------------------------------------------------------- */

/* The reply whose code the last node holds or runs. */
static const struct rlm_node *last_reply(const rlm_graph *g)
{
    for (size_t i = g->nodes.len; i-- > 0;) {
        if (g->nodes.items[i]->type == RLM_LLM_OUTPUT) {
            return g->nodes.items[i];
        }
    }
    return NULL;
}

static enum rlm_gate_decision
by_record(const struct rlm_past_gate *past, const struct rlm_node *last, rlm_str *ret_text)
{
    bool passed = past->decision != RLM_DECISION_REJECT;
    *ret_text = past->decision == RLM_DECISION_ALLOW || (passed && last->type == RLM_EXEC_ACTION)
                    ? last->code
                    : past->text;
    return past->decision;
}

/* The code that is to run, by a node that proposes it: the reply, or the action of a stopped run. */
static struct rlm_gate_subject turn_subject(struct rlm_agent *agent)
{
    const struct rlm_node *last = rlm_graph_current(agent->graph);
    return (struct rlm_gate_subject){.kind = RLM_GATE_EXEC_TURN,
                                     .agent = agent,
                                     .reply = last_reply(agent->graph),
                                     .shown = last->code};
}

void rlm_gate_check_turn(struct rlm_agent *agent)
{
    struct rlm_gate_subject subject = turn_subject(agent);
    if (agent->run->flow->hooks.exec_turn && subject.reply && subject.shown.len &&
        rlm_replay_next(agent) && agent->turn_checked <= subject.reply->seq) {
        agent->turn_checked = (size_t)subject.reply->seq + 1;
        check(&subject, agent->past ? rlm_past_turn_gate(agent->past, subject.reply->seq) : NULL,
              RLM_STR(""));
    }
}

enum rlm_gate_decision rlm_gate_turn(struct rlm_agent *agent, rlm_str *ret_text)
{
    struct rlm_gate_subject subject = turn_subject(agent);
    const struct rlm_node *last = rlm_graph_current(agent->graph);
    if (agent->run->replay) {
        rlm_gate_check_turn(agent);
    }
    const struct rlm_past_gate *past =
        agent->past && subject.reply ? rlm_past_turn_gate(agent->past, subject.reply->seq) : NULL;
    if (past) {
        return by_record(past, last, ret_text);
    }
    *ret_text = last->code;
    if (!agent->run->flow->hooks.exec_turn || !subject.reply || !last->code.len ||
        agent->run->replay) {
        return RLM_DECISION_ALLOW;
    }
    if (!agent->gate) {
        if (!rlm_gate_ask(&agent->gate, &subject)) {
            return RLM_DECISION_NONE;
        }
        if (!agent->gate->answered && !agent->restore) {
            rlm_agent_release_slot(agent); /* others run meanwhile */
        }
    }
    if (!rlm_gate_is_answered(agent->gate)) {
        return RLM_DECISION_NONE;
    }
    enum rlm_gate_decision decision = rlm_gate_decision(agent->gate, ret_text);
    *ret_text = decision == RLM_DECISION_ALLOW ? last->code : *ret_text;
    return decision;
}

/* ---- next_step ------------------------------------------------------------------------------- */

bool rlm_gate_lets_step(struct rlm_agent *agent)
{
    if (!agent->run->flow->hooks.next_step || agent->run->replay ||
        agent->let_step == agent->graph->nodes.len) {
        return true;
    }
    struct rlm_gate_subject subject = {.kind = RLM_GATE_NEXT_STEP, .agent = agent};
    if (!agent->step_gate && !rlm_gate_ask(&agent->step_gate, &subject)) {
        return false;
    }
    if (!rlm_gate_is_answered(agent->step_gate)) {
        return false;
    }
    rlm_gate_give_up(&agent->step_gate);
    agent->let_step = agent->graph->nodes.len;
    return true;
}

void rlm_gate_put_arguments(struct rlm_buf *out, const struct rlm_host_call *call)
{
    struct rlm_json_writer w = {.buf = out};
    rlm_json_begin(&w, '{');
    rlm_json_key(&w, "args"), rlm_json_put(&w, call->args);
    rlm_json_key(&w, "kwargs"), rlm_json_put(&w, call->kwargs);
    rlm_json_end(&w, '}');
}

void rlm_gates_free(rlm_flow *flow)
{
    while (flow->gates) {
        struct rlm_link *first = flow->gates;
        drop((rlm_gate *)first);
        if (flow->gates == first) { /* not answered even now */
            gate_free((rlm_gate *)first);
        }
    }
}

/* ---- for the program that embeds the engine -------------------------------------------------- */

int rlm_flow_set_hooks(rlm_flow *flow, const struct rlm_flow_hooks *hooks, rlm_error **err)
{
    if (flow->runs) {
        return rlm_error_set(err, RLM_E_INVAL, "hooks are set while no run exists");
    }
    size_t known = hooks->size < sizeof flow->hooks ? hooks->size : sizeof flow->hooks;
    memset(&flow->hooks, 0, sizeof flow->hooks);
    memcpy(&flow->hooks, hooks, known);
    return 0;
}

int rlm_pattern_new(rlm_str pattern, rlm_pattern **ret_pattern, rlm_error **err)
{
    return rlm_regex_new(pattern, ret_pattern, err);
}

int rlm_pattern_search(rlm_pattern *pattern, rlm_str text, rlm_error **err)
{
    return rlm_regex_search(pattern, text, NULL, 0, err);
}

void rlm_pattern_free(rlm_pattern *pattern)
{
    rlm_regex_free(pattern);
}
