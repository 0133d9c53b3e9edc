/* Host calls: what agent code asks the host for while a cell runs.
 *
 *     call_begin.c    new calls: journaled, asked for at their gate, performed
 *     done.c, budget.c    those that are answered at once
 *     delegate.c, query.c, host_tool.c, read.c    those that take time: they stand in the agent's table
 *     call.c          that table; answers, and how they are delivered or given up
 *
 * Every answer is journaled and queued first, then delivered in the order of arrival. Values are JSON in
 * the encoding of the session protocol (value.h). Where nothing is returned, what goes wrong fails
 * the run.
 */
#pragma once

#include "flow/run.h"

/* One host call that has not been answered, or whose answer has not been delivered. */
enum rlm_call_kind {
    RLM_CALL_LAUNCH,
    RLM_CALL_QUERY,
    RLM_CALL_TOOL,
    RLM_CALL_READ,
    RLM_CALL_GATED, /* not begun: it becomes one of the others when its gate lets it pass */
};
struct rlm_call {
    struct rlm_agent *agent;
    int64_t id;
    int64_t first_id; /* what its nodes and children know it by: see struct rlm_past_call */
    int64_t cell;
    enum rlm_call_kind kind;
    bool batched;   /* llm_query_batched: the answer is a list */
    size_t n_parts; /* prompts of a query, specs of a launch */
    size_t parts_left;
    struct rlm_part *parts;
    rlm_tool_call *tool;   /* of RLM_CALL_TOOL */
    struct rlm_read *read; /* of RLM_CALL_READ */
    /* of RLM_CALL_GATED: */
    rlm_gate *gate;
    char *name;
    const struct rlm_past_call *was; /* see rlm_launch_begin */
};

/* One spec of a launch or one prompt of a query. */
struct rlm_part {
    struct rlm_call *call;
    struct rlm_agent *child; /* launch: NULL when refused */
    struct rlm_ask *ask;     /* query: while under way */
    rlm_schema *schema;      /* query: what the reply must fit */
    char *value_json;        /* the result once there is one */
};

/* ---- call_begin.c ---- */
/* New calls of a cell: each is journaled and begun, or taken up again if `agent->again` knows it. */
void rlm_calls_begin(struct rlm_agent *agent, const struct rlm_host_call *calls, size_t n_calls);
/* Performs the calls that a gate has let pass, and raises those that it has not. */
void rlm_calls_pass_gates(struct rlm_agent *agent);

/* ---- call.c: the table ---- */
/* A new call of the cell under way; NULL: the run has failed. */
struct rlm_call *rlm_call_new(struct rlm_agent *agent,
                              const struct rlm_host_call *from,
                              enum rlm_call_kind kind,
                              size_t n_parts);
/* The call as it was made, kept in the arena. */
int rlm_host_call_copy(rlm_arena *arena,
                       const struct rlm_host_call *call,
                       struct rlm_host_call *ret_copy,
                       rlm_error **err);
/* The open call of that id, or NULL. */
struct rlm_call *rlm_call_find(const struct rlm_agent *agent, int64_t id);
/* Takes it out of the table, without an answer. */
void rlm_call_free(struct rlm_call *call);
/* After calls have come or gone: a parent that waits for sub-agents and nothing else holds no slot. */
void rlm_calls_update_slot(struct rlm_agent *agent);

/* ---- call.c: answers ---- */
/* Answers a call of the table with a value or an error; the call is freed. */
void rlm_call_answer(struct rlm_call *call, rlm_str value_json);
void rlm_call_raise(struct rlm_call *call, const char *type, const char *reason, rlm_str message);
/* Answers with the list of the values of its parts; all have one. */
void rlm_call_answer_parts(struct rlm_call *call);
/* The same for a call that never came into the table. */
void rlm_host_call_answer(struct rlm_agent *agent,
                          const struct rlm_host_call *call,
                          rlm_str value_json);
void rlm_host_call_raise(struct rlm_agent *agent,
                         const struct rlm_host_call *call,
                         const char *type,
                         const char *reason,
                         rlm_str message);
/* Journals a result and queues it for delivery; its texts are copied. */
void rlm_call_queue_result(struct rlm_agent *agent,
                           int64_t cell,
                           const struct rlm_call_result *result);
/* Gives queued results to the session when the agent holds its slot. */
void rlm_calls_deliver(struct rlm_agent *agent);
/* The first `n` queued results have been delivered, or there is no session to give them to. */
void rlm_calls_forget_results(struct rlm_agent *agent, size_t n);

/* ---- call.c: giving up ---- */
/* Gives up every open call of the agent: children end as `reason`, launches get their resume_action. */
void rlm_calls_cancel(struct rlm_agent *agent, const char *reason);
/* The same for the open calls of these ids (ascending), whose answers nobody waits for. */
void rlm_calls_give_up(struct rlm_agent *agent, const int64_t *ids, size_t n_ids);
/* Forgets every open call and queued result, without a node or a record. */
void rlm_calls_drop(struct rlm_agent *agent);

/* ---- done.c, budget.c ---- */
/* Accepts the answer, and with it gives up what is open and unwinds the cell; or says what is wrong. */
void rlm_done_take(struct rlm_agent *agent, const struct rlm_host_call *call);
void rlm_budget_answer(struct rlm_agent *agent, const struct rlm_host_call *call);

/* ---- delegate.c ---- */
/* `was`: the same call before the run was interrupted, whose children are taken over; or NULL. */
void rlm_launch_begin(struct rlm_agent *agent,
                      const struct rlm_host_call *call,
                      const struct rlm_past_call *was);
/* What a child that has ended is in its parent (JSON; NULL with the error set): its answer, or a
 * Failure. */
char *rlm_child_value(struct rlm_agent *child, rlm_error **err);
/* Every child of the launch has ended. */
void rlm_launch_answer(struct rlm_call *call);
/* The child's part of its launch is done: called by rlm_agent_finish. */
void rlm_launch_child_ended(struct rlm_agent *child);
/* Ends the launch early: children as `reason`, then the resume_action. */
void rlm_launch_cancel(struct rlm_call *call, const char *reason);

/* ---- query.c, host_tool.c, read.c ---- */
/* `was`: as above, for replies. */
void rlm_query_begin(struct rlm_agent *agent,
                     const struct rlm_host_call *call,
                     const struct rlm_past_call *was);
void rlm_query_cancel(struct rlm_call *call);
void rlm_host_tool_begin(struct rlm_agent *agent,
                         const struct rlm_host_call *call,
                         struct rlm_tool *tool);
void rlm_host_tool_cancel(struct rlm_call *call);
/* Those that the program has not answered; nobody waits for them any more. */
void rlm_host_tools_free(rlm_flow *flow);
void rlm_input_read_begin(struct rlm_agent *agent, const struct rlm_host_call *call);
void rlm_input_read_cancel(struct rlm_call *call);
