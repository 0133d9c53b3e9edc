#include "graphs.h"
#include "view/timeline.h"

struct seen {
    int kinds[8];
    int64_t from_us[8], to_us[8];
    int turns[8];
    size_t n;
};

static void on_span(void *arg,
                    enum rlm_span_kind kind,
                    int turn,
                    const struct rlm_node *end,
                    int64_t from_us,
                    int64_t to_us)
{
    struct seen *seen = arg;
    (void)end;
    CHECK(seen->n < 8);
    seen->kinds[seen->n] = (int)kind;
    seen->turns[seen->n] = turn;
    seen->from_us[seen->n] = from_us;
    seen->to_us[seen->n++] = to_us;
}

static void at(rlm_graph *g, enum rlm_node_type type, int64_t time_us)
{
    append(g, (struct rlm_node){.type = type, .time_us = time_us, .reason = RLM_STR("answered")});
}

/* A turn that waits for its session and for sub-agents, a second turn, an end and a follow-up. */
static rlm_graph *new_story(void)
{
    rlm_graph *g = new_root("q");
    at(g, RLM_USER_QUERY, 1000);
    at(g, RLM_LLM_OUTPUT, 1500);
    at(g, RLM_EXEC_ACTION, 1530);
    at(g, RLM_SUPERVISING_OUTPUT, 1600);
    at(g, RLM_RESUME_ACTION, 2600);
    at(g, RLM_EXEC_OUTPUT, 2700);
    at(g, RLM_LLM_OUTPUT, 3000);
    at(g, RLM_EXEC_ACTION, 3000);
    at(g, RLM_DONE_OUTPUT, 3100);
    at(g, RLM_USER_QUERY, 9000);
    at(g, RLM_LLM_OUTPUT, 9500);
    return g;
}

TEST(spans_say_what_an_agent_waited_for)
{
    rlm_graph *g = new_story();
    struct rlm_timeline t;
    struct seen seen = {.n = 0};
    CHECK_INT(rlm_timeline_load(g, NULL, &t, NULL), 0);
    CHECK_INT(t.start_us, 1000);
    CHECK_INT(t.total_us, 8500);
    rlm_timeline_each(&t, g, on_span, &seen);
    const int kinds[] = {RLM_SPAN_MODEL, RLM_SPAN_WAITING, RLM_SPAN_CODE, RLM_SPAN_WAITING,
                         RLM_SPAN_CODE,  RLM_SPAN_MODEL,   RLM_SPAN_CODE, RLM_SPAN_MODEL};
    const int64_t ends[] = {500, 530, 600, 1600, 1700, 2000, 2100, 8500};
    CHECK_INT(seen.n, 8);
    for (size_t i = 0; i < seen.n; i++) {
        CHECK_INT(seen.kinds[i], kinds[i]);
        CHECK_INT(seen.to_us[i], ends[i]);
    }
    CHECK_INT(seen.from_us[7], 8000); /* not the time before the follow-up */
    CHECK_INT(seen.turns[0], 1);
    CHECK_INT(seen.turns[5], 2);
    rlm_timeline_deinit(&t);
    rlm_graph_free(g);
}

TEST(a_stop_takes_no_place_on_the_axis)
{
    rlm_graph *g = new_story();
    struct rlm_timeline t;
    CHECK_INT(rlm_timeline_load(g, NULL, &t, NULL), 0);
    struct rlm_stop *stop = rlm_vec_push(&t.stops);
    CHECK(stop != NULL);
    *stop = (struct rlm_stop){.last_us = 3100, .resumed_us = 8100};
    CHECK_INT(rlm_timeline_place(&t, 3000), 2000);
    CHECK_INT(rlm_timeline_place(&t, 3100), 2100);
    CHECK_INT(rlm_timeline_place(&t, 5000), 2100);
    CHECK_INT(rlm_timeline_place(&t, 8100), 2100);
    CHECK_INT(rlm_timeline_place(&t, 9000), 3000);
    CHECK_INT(rlm_timeline_place(&t, 500), 0);
    const struct rlm_node *before = rlm_graph_node(g, 8), *node = rlm_graph_node(g, 9);
    CHECK(rlm_timeline_stop_before(&t, before, node) == &t.stops.items[0]);
    CHECK(!rlm_timeline_stop_before(&t, rlm_graph_node(g, 7), before));
    CHECK(!rlm_timeline_stop_before(&t, NULL, node));
    rlm_timeline_deinit(&t);
    rlm_graph_free(g);
}

TEST(clocks_that_were_set_back_do_no_harm)
{
    rlm_graph *g = new_root("q");
    struct rlm_timeline t;
    struct seen seen = {.n = 0};
    at(g, RLM_USER_QUERY, 5000);
    at(g, RLM_LLM_OUTPUT, 2000);
    at(g, RLM_EXEC_ACTION, 2500);
    CHECK_INT(rlm_timeline_load(g, NULL, &t, NULL), 0);
    rlm_timeline_each(&t, g, on_span, &seen);
    CHECK_INT(seen.n, 1);
    CHECK_INT(seen.from_us[0], 0);
    rlm_timeline_deinit(&t);
    rlm_graph_free(g);
}
