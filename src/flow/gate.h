/* Gates: a question to the embedding program before code runs, a model is asked, or a host call is
 * performed (struct rlm_flow_hooks).
 *
 * A question lives in a slot of what waits for it (an agent, an ask, a call). Whoever waits looks at the
 * slot on each of its steps:
 *
 *     if (!slot && !rlm_gate_ask(&slot, &subject)) return;     it is over: the hook ended the agent
 *     if (!rlm_gate_is_answered(slot)) return;                 the answer makes the next step
 *     ... rlm_gate_decision(slot, &text) ... rlm_gate_give_up(&slot);
 *
 * The answer is journaled when it is given, before anybody acts on it. One that comes when nobody waits
 * any more is dropped; until it comes the flow keeps the gate.
 */
#pragma once

#include "flow/past.h"
#include "flow/run.h"

enum rlm_gate_kind {
    RLM_GATE_EXEC_TURN,
    RLM_GATE_MODEL_CALL,
    RLM_GATE_HOST_CALL,
    RLM_GATE_MESSAGES,  /* not journaled */
    RLM_GATE_NEXT_STEP, /* the same */
};

/* What is asked of; texts are borrowed. */
struct rlm_gate_subject {
    enum rlm_gate_kind kind;
    struct rlm_agent *agent;
    const struct rlm_node *reply;     /* exec_turn: whose code it is */
    const struct rlm_ask_options *of; /* model_call */
    int64_t ask;                      /* the same */
    const struct rlm_host_call *call; /* host_call */
    bool final;                       /* messages: of the last turn */
    rlm_str shown;                    /* code, or JSON as the hook gets it */
};

struct rlm_gate_answer {
    const char *decision, *who;
    rlm_str text;
};

/* What is to be shown could be made; else the run has failed. */
bool rlm_gate_can_show(struct rlm_agent *agent, const struct rlm_buf *made);
/* Asks. False: nobody waits any more; the slot's owner may be gone. */
bool rlm_gate_ask(rlm_gate **slot, const struct rlm_gate_subject *subject);
bool rlm_gate_is_answered(const rlm_gate *gate);
/* `ret_text` (borrowed): the code that a rewrite runs, or what a rejection says. */
enum rlm_gate_decision rlm_gate_decision(const rlm_gate *gate, rlm_str *ret_text);
/* What a host call's gate was shown: to make the call again from. */
rlm_str rlm_gate_shown(const rlm_gate *gate);
/* Nobody waits any more: the slot is NULL then. */
void rlm_gate_give_up(rlm_gate **slot);

/* What becomes of the code of the last reply, by exec_turn, by the record of its answer, or because
 * nobody asks. NONE: it waits. `ret_text`: the code to run, or what the model is told of its rejection. */
enum rlm_gate_decision rlm_gate_turn(struct rlm_agent *agent, rlm_str *ret_text);
/* In a replay: the hook sees the code of the last reply, once. */
void rlm_gate_check_turn(struct rlm_agent *agent);
/* next_step lets the agent go on, or nobody asks. False: it waits, or is over. */
bool rlm_gate_lets_step(struct rlm_agent *agent);
/* In a replay: the hook sees the call; `recorded` is what was decided then (NULL: nobody was asked). */
void rlm_gate_check_call(struct rlm_agent *agent,
                         const struct rlm_host_call *call,
                         const struct rlm_past_gate *recorded);

/* {"args": [...], "kwargs": {...}} */
void rlm_gate_put_arguments(struct rlm_buf *out, const struct rlm_host_call *call);

/* Those that the program has not answered; nobody waits for them any more, and it is told so. */
void rlm_gates_free(rlm_flow *flow);

/* Every unfinished agent waits for a gate, or for sub-agents that do. */
bool rlm_gates_hold(const rlm_run *run);
