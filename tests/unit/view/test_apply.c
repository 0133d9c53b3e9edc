/* What rlm_event_json writes is enough to make the graph again. */
#include "graph/random_edits.h"

static rlm_graph *copy;

static void apply_line(void *arg, const struct rlm_event *event)
{
    char *line = rlm_event_json(event);
    rlm_error *err = NULL;
    (void)arg;
    CHECK(line && !strchr(line, '\n'));
    if (rlm_graph_apply_json(&copy, (struct rlm_str){line, strlen(line)}, &err) != 0) {
        harness_fail(__FILE__, __LINE__, "%s: %s", line, rlm_error_message(err));
    }
    free(line);
}

static void begin(rlm_graph **ret_root, struct rlm_graph_options options)
{
    copy = NULL;
    CHECK_INT(rlm_graph_new(&options, ret_root, NULL), 0);
    struct rlm_event created = {.type = RLM_EVENT_GRAPH_CREATED, .graph = *ret_root};
    apply_line(NULL, &created);
    rlm_graph_on_edit(*ret_root, apply_line, NULL);
}

static void check_same(rlm_graph *root)
{
    char one[65], other[65];
    CHECK_INT(rlm_graph_digest(root, one, NULL), 0);
    CHECK_INT(rlm_graph_digest(copy, other, NULL), 0);
    CHECK_TEXT(other, one);
    CHECK_TEXT(rlm_graph_id(copy), rlm_graph_id(root));
}

TEST(lines_of_random_edits_make_the_same_graph)
{
    for (uint64_t seed = 300; seed < 320; seed++) {
        rlm_graph *root;
        begin(&root, (struct rlm_graph_options){
                         .query = RLM_STR("q\xED\xA0\x80\xED\xB0\x80"),
                         .inputs = RLM_STR("{\"a\":{\"$blob\":\"00\"},\"b\":1.50}"),
                         .output_schema = RLM_STR("{\n  \"type\": \"string\"\r\n}"),
                     });
        struct model *m = model_new(root, seed);
        for (int i = 0; i < 200; i++) {
            edit_at_random(m);
        }
        check_same(root);
        m->root = copy;
        model_check(m);
        free(m);
        rlm_graph_free(copy);
        rlm_graph_free(root);
    }
}

TEST(every_member_of_a_node_comes_back)
{
    rlm_graph *root;
    begin(&root, (struct rlm_graph_options){.agent_id = "other"});
    const char *const ids[] = {"other.a", "elsewhere"};
    struct rlm_node node = {
        .content = RLM_STR("a\xFF\xED\xA0\x80\xED\xB0\x80"),
        .code = {"\0\r\n", 3},
        .output = RLM_STR("o"),
        .error = RLM_STR("exec"),
        .result = RLM_STR("r"),
        .reason = RLM_STR("cost"),
        .model = RLM_STR("m"),
        .usage = {3, 4, 5, 6, 1234567890123456789 / 1000, 7},
        .agents = ids,
        .n_agents = 2,
        .call_id = 9,
        .metadata = RLM_STR("{\"x\" :\n[1]}"),
    };
    static const int64_t costs[] = {0,  1,  999999999, 1000000000, 1000000001, 123456789012345,
                                    -5, 100};
    for (int type = RLM_USER_QUERY; type < RLM_DONE_OUTPUT; type++) {
        node.type = (enum rlm_node_type)type;
        for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
            node.usage.cost_nano = costs[i];
            CHECK_INT(rlm_graph_append_node(root, &node, NULL, NULL), 0);
        }
    }
    check_same(root);
    rlm_graph_free(copy);
    rlm_graph_free(root);
}
