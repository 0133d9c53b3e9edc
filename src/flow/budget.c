/* What is left of the caps, for the agent to see: budget(). */
#include "flow/call.h"

enum { ANSWER_MAX = 4096 };

static void put_left(struct rlm_json_writer *w, const char *key, int64_t left)
{
    rlm_json_key(w, key);
    if (left < 0) {
        rlm_json_put_null(w);
    } else {
        rlm_json_put_int(w, left);
    }
}

void rlm_budget_answer(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    rlm_run *run = agent->run;
    const struct rlm_limits *l = &run->flow->limits;
    int64_t cost_left = rlm_ledger_cost_left(&run->ledger);
    int64_t elapsed_ms = rlm_run_elapsed_ms(run);
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(ANSWER_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_begin(&w, '{');
    put_left(&w, "tokens_left", rlm_ledger_tokens_left(&run->ledger));
    rlm_json_member_int(&w, "tokens_used",
                        run->ledger.settled.input_tokens + run->ledger.settled.output_tokens);
    rlm_json_key(&w, "cost_left");
    if (cost_left < 0) {
        rlm_json_put_null(&w);
    } else {
        rlm_json_put_double(&w, (double)cost_left / 1e9);
    }
    rlm_json_member_double(&w, "cost_used", (double)run->ledger.settled.cost_nano / 1e9);
    rlm_json_key(&w, "seconds_left");
    if (l->max_time_ms) {
        rlm_json_put_double(
            &w, (double)(l->max_time_ms > elapsed_ms ? l->max_time_ms - elapsed_ms : 0) / 1e3);
    } else {
        rlm_json_put_null(&w);
    }
    rlm_json_member_int(&w, "turns_left",
                        rlm_step_max_iters(l, agent->graph->depth) - agent->graph->task_turns);
    rlm_json_member_int(&w, "depth_left", l->max_depth - agent->graph->depth);
    rlm_json_member_int(&w, "agents_left", l->max_agents - run->n_agents);
    rlm_json_member_int(&w, "model_calls", run->ledger.settled.calls);
    rlm_json_end(&w, '}');
    rlm_host_call_answer(agent, call, rlm_buf_str(&buf));
}
