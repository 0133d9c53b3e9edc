#include "graphs.h"

#include "base/arena.h"
#include "base/json.h"

TEST(a_node_is_one_line_of_json_that_reads_back)
{
    rlm_graph *root = new_root("q");
    char text[] = "a\0b\r\n\xed\xb2\x80\"\\\x1b";
    const char *const agents[] = {"root.x"};
    const struct rlm_node *node =
        append(root, (struct rlm_node){.type = RLM_SUPERVISING_OUTPUT,
                                       .content = {text, sizeof text - 1},
                                       .agents = agents,
                                       .n_agents = 1,
                                       .call_id = 7,
                                       .metadata = RLM_STR("{\"k\":[1]}")});
    rlm_autofree char *line = rlm_node_json(root, node);
    CHECK(line && !strchr(line, '\n'));
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *json;
    CHECK_INT(rlm_json_parse(arena, rlm_str_of(line), &json, NULL), 0);
    rlm_str content = rlm_json_text(rlm_json_get(json, "content"), RLM_STR("?"));
    CHECK(rlm_str_eq(content, (rlm_str){text, sizeof text - 1}));
    CHECK_STR(rlm_json_text(rlm_json_get(json, "type"), RLM_STR("?")), "supervising_output");
    CHECK_STR(rlm_json_text(rlm_json_get(json, "id"), RLM_STR("?")), node->id);
    CHECK_STR(rlm_json_text(rlm_json_at(rlm_json_get(json, "agents"), 0), RLM_STR("?")), "root.x");
    CHECK_INT(rlm_json_int(rlm_json_get(json, "call_id"), 0), 7);
    CHECK_INT(rlm_json_int(rlm_json_at(rlm_json_get(rlm_json_get(json, "metadata"), "k"), 0), 0),
              1);
    rlm_graph_free(root);
}

TEST(usage_stands_at_replies_with_its_cost_in_dollars)
{
    rlm_graph *root = new_root("q");
    rlm_autofree char *line = rlm_node_json(root, reply(root, 5, 6, 1500000000));
    CHECK_CONTAINS(line, "\"usage\":{\"calls\":1,\"input_tokens\":5,\"cached_tokens\":0,"
                         "\"output_tokens\":6,\"cost\":1.5,\"estimated\":0}");
    rlm_graph_free(root);
}

TEST(events_name_their_graph_and_carry_what_is_new)
{
    rlm_graph *root = new_root("the task"), *child = new_child(root, "c", "part");
    struct rlm_event created = {.type = RLM_EVENT_GRAPH_CREATED, .graph = root};
    rlm_autofree char *first = rlm_event_json(&created);
    CHECK_CONTAINS(first, "{\"type\":\"graph_created\",\"graph_id\":\"g_");
    CHECK_CONTAINS(first, "\"agent_id\":\"root\",\"depth\":0,\"query\":\"the task\",\"inputs\":{}");
    struct rlm_event added = {.type = RLM_EVENT_ADD_CHILD, .graph = child};
    rlm_autofree char *second = rlm_event_json(&added);
    CHECK_CONTAINS(second, "\"type\":\"add_child\"");
    CHECK_CONTAINS(second, rlm_graph_id(root));
    CHECK_CONTAINS(second, "\"agent_id\":\"root.c\",\"depth\":1");
    struct rlm_event appended = {
        .type = RLM_EVENT_APPEND_NODE, .graph = child, .node = reply(child, 1, 1, 0)};
    rlm_autofree char *third = rlm_event_json(&appended);
    CHECK_CONTAINS(third, "\"type\":\"append_node\"");
    CHECK_CONTAINS(third, "\"node\":{\"id\":\"n_");
    struct rlm_event notice = {.type = RLM_EVENT_NOTICE, .text = RLM_STR("a \"word\"")};
    rlm_autofree char *fourth = rlm_event_json(&notice);
    CHECK_TEXT(fourth, "{\"type\":\"notice\",\"text\":\"a \\\"word\\\"\"}");
    rlm_graph_free(root);
}

TEST(the_fences_of_code_are_left_out_of_a_line)
{
    static const struct {
        rlm_str text;
        const char *line;
    } cases[] = {
        {RLM_STR("I look.\n\n```repl\nprint(1)\n```\n"), " out: I look. print(1)"},
        {RLM_STR("~~~\nx\n~~~"), " out: x"},
        {RLM_STR("a ``` b\n``"), " out: a ``` b ``"},
        {RLM_STR("```repl\n```"), " out"},
        {RLM_STR(""), " out"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rlm_graph *root = new_root("q");
        struct rlm_event event = {.type = RLM_EVENT_APPEND_NODE, .graph = root};
        event.node =
            append(root, (struct rlm_node){.type = RLM_LLM_OUTPUT, .content = cases[i].text});
        rlm_autofree char *line = rlm_view_event(&event, NULL);
        const char *from = strstr(line, " out");
        CHECK_TEXT(from, cases[i].line);
        rlm_graph_free(root);
    }
}

TEST(an_event_is_one_harmless_line_for_people)
{
    rlm_graph *root = new_root("q");
    struct rlm_event event = {.type = RLM_EVENT_APPEND_NODE, .graph = root};
    event.node = append(
        root, (struct rlm_node){.type = RLM_EXEC_OUTPUT, .content = RLM_STR("x\033[31m\ny")});
    rlm_autofree char *line = rlm_view_event(&event, NULL);
    CHECK_TEXT(line, "root: printed: x y");
    finish(root, "answered");
    event.node = rlm_graph_current(root);
    rlm_autofree char *end = rlm_view_event(&event, NULL);
    CHECK_TEXT(end, "root: ended, answered: the answer");
    struct rlm_view_options options = RLM_VIEW_OPTIONS_INIT;
    options.width = 12;
    rlm_autofree char *clipped = rlm_view_event(&event, &options);
    CHECK_TEXT(clipped, "root: ended…");
    rlm_autofree char *empty = rlm_view_text(RLM_STR_NONE, NULL);
    CHECK_TEXT(empty, "");
    rlm_graph_free(root);
}
