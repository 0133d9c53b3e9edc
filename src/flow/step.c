#include "flow/step.h"

int rlm_step_max_iters(const struct rlm_limits *limits, int depth)
{
    return depth > 0 && limits->child_max_iters > 0 ? limits->child_max_iters : limits->max_iters;
}

static struct rlm_step finish(const char *reason)
{
    return (struct rlm_step){.kind = RLM_STEP_FINISH, .reason = reason};
}

/* The last node asks for a reply of the model. */
static struct rlm_step
ask(const rlm_graph *g, const struct rlm_limits *limits, const struct rlm_account *account)
{
    int max_iters = rlm_step_max_iters(limits, g->depth);
    if (g->task_turns >= max_iters) {
        return finish("max_iters");
    }
    if (account->refused) {
        return finish(account->refused);
    }
    bool final = g->task_turns == max_iters - 1 || account->last_affordable;
    return (struct rlm_step){.kind = RLM_STEP_ASK, .final = final};
}

struct rlm_step rlm_step_next(const rlm_graph *g,
                              const struct rlm_open_calls *open,
                              const struct rlm_limits *limits,
                              const struct rlm_account *account)
{
    const struct rlm_step wait = {.kind = RLM_STEP_WAIT};
    const struct rlm_node *last = rlm_graph_current(g);
    if (!last || last->type == RLM_DONE_OUTPUT) {
        return wait;
    }
    if (open->ended_launch) {
        return (struct rlm_step){.kind = RLM_STEP_ANSWER, .call_id = open->ended_launch};
    }
    if (open->cell || open->asking) {
        return wait;
    }
    switch (last->type) {
    case RLM_LLM_OUTPUT:
    case RLM_EXEC_ACTION:
        return (struct rlm_step){.kind = RLM_STEP_RUN};
    case RLM_USER_QUERY:
    case RLM_EXEC_OUTPUT:
    case RLM_ERROR_OUTPUT:
    case RLM_SUPERVISING_OUTPUT:
    case RLM_RESUME_ACTION:
        return ask(g, limits, account);
    case RLM_DONE_OUTPUT:
        break;
    }
    return wait;
}
