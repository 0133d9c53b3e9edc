/* The step machine: what an agent does next. Pure: a function of its arguments and nothing else.
 *
 * The scheduler (agent.c) performs the step and commits the node that results. So the machine is
 * tested without I/O, and a run can be stopped between any two steps and go on from its graph.
 *
 * An end that comes from outside (max_time, the user, a parent that went on without the agent) is no
 * step: it must cancel what is under way at once, descendants first, which rlm_agent_finish does.
 */
#pragma once

#include "graph/graph.h"

enum rlm_step_kind {
    RLM_STEP_WAIT,   /* something is under way; its end asks again */
    RLM_STEP_RUN,    /* run the code of the last llm_output */
    RLM_STEP_ASK,    /* ask the model; `final`: it is told that this is its last turn */
    RLM_STEP_ANSWER, /* resume the cell that waits for the launch `call_id` */
    RLM_STEP_FINISH, /* end with `reason` */
};

struct rlm_step {
    enum rlm_step_kind kind;
    bool final;
    int64_t call_id;
    const char *reason;
};

/* What is under way for the agent. */
struct rlm_open_calls {
    bool cell;            /* a cell is in a session: running, suspended or unwinding */
    bool asking;          /* a model call for its next turn */
    int64_t ended_launch; /* the call id of a launch all of whose children have ended; 0: none */
};

/* What it may still spend. */
struct rlm_account {
    const char
        *refused; /* why the last attempt to reserve was: "budget", "cost"; NULL: it was not */
    bool last_affordable; /* the last reservation was shrunk: what follows will hardly fit */
};

struct rlm_step rlm_step_next(const rlm_graph *g,
                              const struct rlm_open_calls *open,
                              const struct rlm_limits *limits,
                              const struct rlm_account *account);

/* Model replies that an agent at this depth may have. */
int rlm_step_max_iters(const struct rlm_limits *limits, int depth);
