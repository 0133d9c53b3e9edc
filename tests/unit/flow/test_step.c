#include "flow/step.h"

#include "harness.h"

static const struct rlm_limits limits = RLM_LIMITS_INIT;

static rlm_graph *graph(void)
{
    struct rlm_graph_options options = {
        .agent_id = "root", .query = {"q", 1}, .inputs = {"{}", 2}, .model = {"default", 7}};
    rlm_graph *g;
    CHECK(rlm_graph_new(&options, &g, NULL) == 0);
    return g;
}

static void append(rlm_graph *g, enum rlm_node_type type)
{
    struct rlm_node node = {.type = type};
    CHECK(rlm_graph_append(g, &node, NULL, NULL) == 0);
}

static struct rlm_step
next(const rlm_graph *g, struct rlm_open_calls open, struct rlm_account account)
{
    return rlm_step_next(g, &open, &limits, &account);
}

static struct rlm_step idle(const rlm_graph *g)
{
    return next(g, (struct rlm_open_calls){0}, (struct rlm_account){0});
}

TEST(an_empty_graph_waits)
{
    rlm_graph *g = graph();
    CHECK_INT(idle(g).kind, RLM_STEP_WAIT);
    rlm_graph_free(g);
}

TEST(a_turn_goes_from_query_to_model_to_code_to_model)
{
    rlm_graph *g = graph();
    append(g, RLM_USER_QUERY);
    CHECK_INT(idle(g).kind, RLM_STEP_ASK);
    CHECK_INT(next(g, (struct rlm_open_calls){.asking = true}, (struct rlm_account){0}).kind,
              RLM_STEP_WAIT);
    append(g, RLM_LLM_OUTPUT);
    CHECK_INT(idle(g).kind, RLM_STEP_RUN);
    append(g, RLM_EXEC_ACTION);
    CHECK_INT(next(g, (struct rlm_open_calls){.cell = true}, (struct rlm_account){0}).kind,
              RLM_STEP_WAIT);
    append(g, RLM_EXEC_OUTPUT);
    CHECK_INT(idle(g).kind, RLM_STEP_ASK);
    append(g, RLM_LLM_OUTPUT);
    append(g, RLM_EXEC_ACTION);
    append(g, RLM_ERROR_OUTPUT);
    CHECK_INT(idle(g).kind, RLM_STEP_ASK);
    rlm_graph_free(g);
}

TEST(the_last_turn_is_final_and_then_max_iters_ends)
{
    rlm_graph *g = graph();
    append(g, RLM_USER_QUERY);
    for (int i = 0; i < limits.max_iters; i++) {
        struct rlm_step step = idle(g);
        CHECK_INT(step.kind, RLM_STEP_ASK);
        CHECK_INT(step.final, i == limits.max_iters - 1);
        append(g, RLM_LLM_OUTPUT);
        append(g, RLM_EXEC_OUTPUT);
    }
    CHECK_INT(idle(g).kind, RLM_STEP_FINISH);
    CHECK_TEXT(idle(g).reason, "max_iters");
    rlm_graph_free(g);
}

TEST(children_may_have_a_cap_of_their_own)
{
    struct rlm_limits l = limits;
    CHECK_INT(rlm_step_max_iters(&l, 0), 20);
    CHECK_INT(rlm_step_max_iters(&l, 1), 20);
    l.child_max_iters = 5;
    CHECK_INT(rlm_step_max_iters(&l, 0), 20);
    CHECK_INT(rlm_step_max_iters(&l, 1), 5);
}

TEST(a_reply_that_is_paid_for_runs_before_a_refusal_ends)
{
    rlm_graph *g = graph();
    append(g, RLM_USER_QUERY);
    append(g, RLM_LLM_OUTPUT);
    struct rlm_account refused = {.refused = "budget"};
    CHECK_INT(next(g, (struct rlm_open_calls){0}, refused).kind, RLM_STEP_RUN);
    append(g, RLM_EXEC_OUTPUT);
    CHECK_TEXT(next(g, (struct rlm_open_calls){0}, refused).reason, "budget");
    struct rlm_account hardly = {.last_affordable = true};
    CHECK(next(g, (struct rlm_open_calls){0}, hardly).final);
    rlm_graph_free(g);
}

TEST(a_launch_is_answered_when_its_children_have_ended_also_while_others_run)
{
    rlm_graph *g = graph();
    append(g, RLM_USER_QUERY);
    append(g, RLM_LLM_OUTPUT);
    append(g, RLM_EXEC_ACTION);
    append(g, RLM_SUPERVISING_OUTPUT);
    struct rlm_open_calls open = {.cell = true, .ended_launch = 9};
    struct rlm_step step = next(g, open, (struct rlm_account){0});
    CHECK_INT(step.kind, RLM_STEP_ANSWER);
    CHECK_INT(step.call_id, 9);
    open.ended_launch = 0;
    CHECK_INT(next(g, open, (struct rlm_account){0}).kind, RLM_STEP_WAIT);
    rlm_graph_free(g);
}

TEST(only_a_query_after_the_end_has_turns_of_its_own)
{
    rlm_graph *g = graph();
    append(g, RLM_USER_QUERY);
    for (int i = 0; i < limits.max_iters; i++) {
        CHECK_INT(idle(g).kind, RLM_STEP_ASK);
        CHECK_INT(idle(g).final, i == limits.max_iters - 1);
        append(g, RLM_LLM_OUTPUT);
        append(g, RLM_USER_QUERY); /* in place of the code, by who looked at it */
    }
    CHECK_INT(idle(g).kind, RLM_STEP_FINISH);
    CHECK_TEXT(idle(g).reason, "max_iters");
    append(g, RLM_DONE_OUTPUT);
    append(g, RLM_USER_QUERY);
    CHECK_INT(idle(g).kind, RLM_STEP_ASK);
    CHECK(!idle(g).final);
    rlm_graph_free(g);
}

TEST(an_answered_agent_waits_until_a_follow_up_opens_its_graph_again)
{
    rlm_graph *g = graph();
    append(g, RLM_USER_QUERY);
    append(g, RLM_LLM_OUTPUT);
    append(g, RLM_DONE_OUTPUT);
    CHECK_INT(idle(g).kind, RLM_STEP_WAIT);
    CHECK_INT(next(g, (struct rlm_open_calls){.ended_launch = 9}, (struct rlm_account){0}).kind,
              RLM_STEP_WAIT);
    append(g, RLM_USER_QUERY);
    CHECK_INT(idle(g).kind, RLM_STEP_ASK);
    rlm_graph_free(g);
}
