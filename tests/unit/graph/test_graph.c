#include "graph/graph.h"
#include "harness.h"

static rlm_graph *new_root(void)
{
    struct rlm_graph_options options = {.query = RLM_STR("what?")};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_new(&options, &g, NULL), 0);
    return g;
}

static rlm_graph *new_child(rlm_graph *parent, const char *name)
{
    struct rlm_graph_options options = {.query = RLM_STR("part")};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_add_child(parent, name, &options, &g, NULL), 0);
    return g;
}

static const struct rlm_node *append(rlm_graph *g, struct rlm_node node)
{
    const struct rlm_node *kept = NULL;
    CHECK_INT(rlm_graph_append(g, &node, &kept, NULL), 0);
    return kept;
}

TEST(a_new_graph_has_its_defaults)
{
    rlm_graph *g = new_root();
    CHECK_TEXT(rlm_graph_agent_id(g), "root");
    CHECK_TEXT(g->name, "root");
    CHECK_INT(strlen(rlm_graph_id(g)), 34);
    CHECK(strncmp(rlm_graph_id(g), "g_", 2) == 0);
    CHECK_STR(rlm_graph_query(g), "what?");
    CHECK_STR(rlm_graph_inputs(g), "{}");
    CHECK_STR(rlm_graph_model(g), "default");
    CHECK_STR(rlm_graph_output_schema(g), "");
    CHECK_INT(rlm_graph_agent_count(g), 1);
    CHECK(!rlm_graph_parent(g) && !rlm_graph_current(g) && !rlm_graph_finished(g));
    rlm_graph_free(g);
}

TEST(a_node_is_copied_whole)
{
    rlm_graph *g = new_root();
    char text[] = "a\0b\r\n\xED\xB2\x80";
    const char *const agents[] = {"root.x", "root.y"};
    struct rlm_node node = {
        .type = RLM_SUPERVISING_OUTPUT,
        .content = {text, sizeof text - 1},
        .output = {text, sizeof text - 1},
        .agents = agents,
        .n_agents = 2,
        .call_id = 7,
        .metadata = RLM_STR("{\"k\":1}"),
    };
    const struct rlm_node *n = append(g, node);
    memset(text, 'z', sizeof text);
    CHECK_INT(n->content.len, 8);
    CHECK(memcmp(n->content.ptr, "a\0b\r\n\xED\xB2\x80", 9) == 0); /* with the NUL behind it */
    CHECK(n->output.ptr == n->content.ptr);
    CHECK_INT(n->n_agents, 2);
    CHECK_TEXT(n->agents[1], "root.y");
    CHECK_INT(n->call_id, 7);
    CHECK_STR(n->metadata, "{\"k\":1}");
    CHECK_STR(n->error, "");
    CHECK(n->error.ptr != NULL);
    CHECK_INT(strlen(n->id), 18);
    CHECK(n->time_us > 1000000000000000);
    CHECK(rlm_graph_node(g, 0) == n && rlm_graph_current(g) == n && !rlm_graph_node(g, 1));
    rlm_graph_free(g);
}

TEST(ids_and_times_that_are_given_stand_and_others_differ)
{
    rlm_graph *g = new_root();
    const struct rlm_node *a = append(g, (struct rlm_node){.id = "n_0123", .time_us = 5});
    const struct rlm_node *b = append(g, (struct rlm_node){.type = RLM_LLM_OUTPUT});
    const struct rlm_node *c = append(g, (struct rlm_node){.type = RLM_LLM_OUTPUT});
    CHECK_TEXT(a->id, "n_0123");
    CHECK_INT(a->time_us, 5);
    CHECK_INT(b->seq, 1);
    CHECK_INT(c->seq, 2);
    CHECK(strcmp(b->id, c->id) != 0);
    CHECK_INT(rlm_graph_turns(g), 2);
    rlm_graph_free(g);
}

TEST(short_texts_that_repeat_are_stored_once)
{
    rlm_graph *g = new_root();
    rlm_graph *child = new_child(g, "c");
    const char *const agents[] = {"root.c"};
    const struct rlm_node *a = append(g, (struct rlm_node){.type = RLM_LLM_OUTPUT,
                                                           .model = RLM_STR("m-1"),
                                                           .code = RLM_STR("print(1)"),
                                                           .agents = agents,
                                                           .n_agents = 1});
    const struct rlm_node *b =
        append(g, (struct rlm_node){.type = RLM_EXEC_ACTION, .code = RLM_STR("print(1)")});
    const struct rlm_node *c =
        append(g, (struct rlm_node){.type = RLM_LLM_OUTPUT, .model = RLM_STR("m-1")});
    CHECK(a->code.ptr == b->code.ptr);
    CHECK(a->model.ptr == c->model.ptr);
    CHECK(a->agents[0] == child->agent_id);
    rlm_graph_free(g);
}

TEST(only_a_query_follows_the_end)
{
    rlm_graph *g = new_root();
    rlm_error *err = NULL;
    struct rlm_node next = {.type = RLM_EXEC_OUTPUT};
    append(g, (struct rlm_node){
                  .type = RLM_DONE_OUTPUT, .result = RLM_STR("42"), .reason = RLM_STR("answered")});
    CHECK(rlm_graph_finished(g));
    CHECK_STR(rlm_graph_result(g), "42");
    CHECK_STR(rlm_graph_reason(g), "answered");
    CHECK_INT(rlm_graph_append(g, &next, NULL, &err), RLM_E_INVAL);
    CHECK_CONTAINS(rlm_error_message(err), "root");
    CHECK_INT(rlm_graph_node_count(g), 1);
    rlm_error_free(err);
    append(g, (struct rlm_node){.type = RLM_USER_QUERY, .content = RLM_STR("and?")});
    CHECK(!rlm_graph_finished(g));
    CHECK_STR(rlm_graph_result(g), "");
    append(g, (struct rlm_node){.type = RLM_DONE_OUTPUT,
                                .result = RLM_STR("part"),
                                .reason = RLM_STR("max_iters")});
    CHECK_STR(rlm_graph_result(g), "");
    CHECK_STR(rlm_graph_reason(g), "max_iters");
    rlm_graph_free(g);
}

TEST(children_have_names_order_and_one_place)
{
    rlm_graph *g = new_root(), *child = NULL;
    rlm_error *err = NULL;
    struct rlm_graph_options options = {0};
    rlm_graph *b = new_child(g, "b"), *a = new_child(g, "a"), *deep = new_child(b, "x");
    CHECK_TEXT(deep->agent_id, "root.b.x");
    CHECK_TEXT(deep->name, "x");
    CHECK_INT(deep->depth, 2);
    CHECK(rlm_graph_child(g, 0) == b && rlm_graph_child(g, 1) == a && !rlm_graph_child(g, 2));
    CHECK(rlm_graph_agent(g, "root.b.x") == deep && rlm_graph_agent(deep, "root") == g);
    CHECK(!rlm_graph_agent(g, "root.b.y"));
    CHECK_INT(rlm_graph_add_child(g, "a", &options, &child, &err), RLM_E_EXISTS);
    CHECK_CONTAINS(rlm_error_message(err), "root.a");
    rlm_error_free(err);
    CHECK_INT(rlm_graph_add_child(g, "", &options, &child, NULL), RLM_E_INVAL);
    CHECK_INT(rlm_graph_agent_count(g), 4);
    CHECK_INT(rlm_graph_child_count(g), 2);
    CHECK(rlm_graph_next(g, g) == b && rlm_graph_next(g, b) == deep);
    CHECK(rlm_graph_next(g, deep) == a && !rlm_graph_next(g, a));
    CHECK(!rlm_graph_next(b, deep)); /* a walk of a part stays in it */
    rlm_graph_free(g);
}

TEST(usage_adds_up_the_tree)
{
    rlm_graph *g = new_root(), *b = new_child(g, "b"), *c = new_child(b, "c");
    append(c, (struct rlm_node){.type = RLM_LLM_OUTPUT, .usage = {1, 100, 10, 20, 3000, 0}});
    append(g, (struct rlm_node){.type = RLM_LLM_OUTPUT, .usage = {1, 5, 0, 6, 7, 1}});
    rlm_graph_add_usage(b, &(struct rlm_usage){.calls = 2, .input_tokens = 1000});
    struct rlm_usage all = rlm_graph_usage(g, true), own = rlm_graph_usage(g, false);
    CHECK_INT(all.calls, 4);
    CHECK_INT(all.input_tokens, 1105);
    CHECK_INT(all.cached_tokens, 10);
    CHECK_INT(all.output_tokens, 26);
    CHECK_INT(all.cost_nano, 3007);
    CHECK_INT(all.estimated, 1);
    CHECK_INT(own.input_tokens, 5);
    CHECK_INT(rlm_graph_usage(b, false).calls, 2);
    CHECK_INT(rlm_graph_usage(b, true).calls, 3);
    rlm_graph_add_usage(g, &(struct rlm_usage){.input_tokens = INT64_MAX});
    CHECK(rlm_graph_usage(g, true).input_tokens == INT64_MAX); /* absurd numbers do not wrap */
    rlm_graph_free(g);
}

TEST(tags_go_both_ways)
{
    for (int type = RLM_USER_QUERY; type <= RLM_DONE_OUTPUT; type++) {
        const char *tag = rlm_node_type_tag((enum rlm_node_type)type);
        CHECK_INT(rlm_node_type_of(rlm_str_of(tag)), type);
    }
    CHECK_TEXT(rlm_node_type_tag(RLM_SUPERVISING_OUTPUT), "supervising_output");
    CHECK_INT(rlm_node_type_of(RLM_STR("done")), -1);
}

TEST(the_deepest_chain_needs_no_stack)
{
    rlm_graph *g = new_root(), *child = NULL;
    struct rlm_graph_options options = {0};
    rlm_graph *last = g;
    int depth = 0, seen = 0, r;
    while ((r = rlm_graph_add_child(last, "c", &options, &child, NULL)) == 0) {
        last = child;
        depth++;
    }
    CHECK_INT(r, RLM_E_LIMIT);
    CHECK_INT(depth, (RLM_AGENT_ID_MAX_BYTES - 4) / 2);
    append(last, (struct rlm_node){.type = RLM_LLM_OUTPUT, .usage = {.calls = 1}});
    CHECK_INT(rlm_graph_usage(g, true).calls, 1);
    for (const rlm_graph *at = g; at; at = rlm_graph_next(g, at)) {
        seen++;
    }
    CHECK_INT(seen, depth + 1);
    rlm_graph_free(g);
}

TEST(many_children_are_walked_in_order)
{
    rlm_graph *g = new_root();
    enum { COUNT = 100000 };
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", i);
        new_child(g, name);
    }
    int i = 0;
    for (rlm_graph *at = rlm_graph_next(g, g); at; at = rlm_graph_next(g, at), i++) {
        CHECK(at == rlm_graph_child(g, (size_t)i));
    }
    CHECK_INT(i, COUNT);
    rlm_graph_free(g);
}
