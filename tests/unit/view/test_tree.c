#include "graphs.h"

TEST(a_tree_has_a_line_for_each_agent_below_its_parent)
{
    rlm_graph *root = new_root("what?");
    rlm_graph *a = new_child(root, "a", "first"), *b = new_child(root, "b", "second");
    rlm_graph *deep = new_child(a, "deep", "third");
    reply(root, 1500, 20, 0);
    reply(root, 500, 20, 12300000);
    finish(deep, "answered");
    finish(a, "max_iters");
    (void)b;
    rlm_autofree char *text = rlm_view_tree(root, NULL);
    CHECK_TEXT(text, "root  unfinished  2 turns  2.0k in, 40 out  $0.0123  what?\n"
                     "├─ a  max_iters  0 turns  first\n"
                     "│  └─ deep  answered  0 turns  third\n"
                     "└─ b  unfinished  0 turns  second\n");
    rlm_graph_free(root);
}

TEST(lines_are_clipped_to_the_width)
{
    struct rlm_view_options options = RLM_VIEW_OPTIONS_INIT;
    rlm_graph *root = new_root("a query that is longer than the line");
    options.width = 40;
    rlm_autofree char *text = rlm_view_tree(root, &options);
    CHECK_TEXT(text, "root  unfinished  0 turns  a query that…\n");
    for (options.width = 1; options.width < 60; options.width++) {
        rlm_autofree char *any = rlm_view_tree(root, &options);
        CHECK(strlen(any) <= (size_t)options.width + 3);
    }
    rlm_graph_free(root);
}

TEST(unfinished_agents_come_first_when_lines_are_few)
{
    struct rlm_view_options options = RLM_VIEW_OPTIONS_INIT;
    rlm_graph *root = new_root("q");
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "n%d", i);
        rlm_graph *g = new_child(root, name, "x");
        if (i != 15) {
            finish(g, "answered");
        }
    }
    options.max_lines = 4;
    rlm_autofree char *text = rlm_view_tree(root, &options);
    CHECK_TEXT(text, "root  unfinished  0 turns  q\n"
                     "├─ n0  answered  0 turns  x\n"
                     "└─ n15  unfinished  0 turns  x\n"
                     "… 18 more agents, 18 of them finished\n");
    for (options.max_lines = 1; options.max_lines < 30; options.max_lines++) {
        rlm_autofree char *any = rlm_view_tree(root, &options);
        int lines = 0;
        for (const char *p = any; (p = strchr(p, '\n')) != NULL; p++) {
            lines++;
        }
        CHECK(lines <= options.max_lines && lines <= 21);
    }
    rlm_graph_free(root);
}

TEST(a_deep_chain_has_bounded_lines)
{
    rlm_graph *root = new_root("q"), *g = root;
    for (int i = 0; i < 300; i++) {
        g = new_child(g, "c", "x");
    }
    rlm_autofree char *text = rlm_view_tree(root, NULL);
    CHECK_CONTAINS(text, "(depth 300) ");
    CHECK(strlen(text) < 300 * 400);
    rlm_graph_free(root);
}

TEST(colours_only_when_asked_for)
{
    struct rlm_view_options options = RLM_VIEW_OPTIONS_INIT;
    rlm_graph *root = new_root("q");
    finish(root, "answered");
    rlm_autofree char *plain = rlm_view_tree(root, &options);
    options.color = true;
    rlm_autofree char *colored = rlm_view_tree(root, &options);
    CHECK(!strchr(plain, '\033'));
    CHECK_CONTAINS(colored, "\033[32manswered\033[0m");
    rlm_graph_free(root);
}

TEST(a_trajectory_shows_excerpts_and_a_node_shows_all)
{
    rlm_graph *root = new_root("q");
    const char lines[] = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\nlast\n";
    const struct rlm_node *node = append(root, (struct rlm_node){.type = RLM_ERROR_OUTPUT,
                                                                 .content = rlm_str_of(lines),
                                                                 .error = RLM_STR("exec")});
    rlm_autofree char *agent = rlm_view_agent(root, NULL);
    CHECK_CONTAINS(agent, "root  unfinished");
    CHECK_CONTAINS(agent, "#0 error_output");
    CHECK_CONTAINS(agent, "  the code raised an exception\n");
    CHECK_CONTAINS(agent, "  12\n  … 2 more lines\n");
    rlm_autofree char *full = rlm_view_node(root, node, NULL);
    CHECK_CONTAINS(full, "  13\n  last\n");
    rlm_graph_free(root);
}

TEST(errors_stand_in_words)
{
    rlm_graph *root = new_root("q");
    const char *const kinds[] = {"interrupted", "session_lost", "rejected", "cpu_time", "memory"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        append(root, (struct rlm_node){.type = RLM_ERROR_OUTPUT,
                                       .content = RLM_STR("x"),
                                       .error = rlm_str_of(kinds[i])});
    }
    append(root, (struct rlm_node){.type = RLM_ERROR_OUTPUT, .error = RLM_STR("of_tomorrow")});
    rlm_autofree char *text = rlm_view_agent(root, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        CHECK(!strstr(text, kinds[i]) || strcmp(kinds[i], "memory") == 0);
    }
    CHECK_CONTAINS(text, "  the run was stopped while this code ran; it may have run in part\n");
    CHECK_CONTAINS(text, "  the session is gone, and its variables with it\n");
    CHECK_CONTAINS(text, "  of_tomorrow\n");
    struct rlm_event event = {
        .type = RLM_EVENT_APPEND_NODE, .graph = root, .node = rlm_graph_node(root, 1)};
    rlm_autofree char *line = rlm_view_event(&event, NULL);
    CHECK_TEXT(line, "root: the session is gone, and its variables with it: x");
    rlm_graph_free(root);
}

TEST(a_text_that_stands_twice_in_a_node_is_shown_once)
{
    rlm_graph *root = new_root("q");
    append(root, (struct rlm_node){.type = RLM_EXEC_OUTPUT,
                                   .content = RLM_STR("seen"),
                                   .output = RLM_STR("seen\n")});
    rlm_autofree char *text = rlm_view_agent(root, NULL);
    const char *first = strstr(text, "seen");
    CHECK(first && !strstr(first + 1, "seen"));
    rlm_graph_free(root);
}

TEST(usage_is_sorted_by_what_it_costs)
{
    rlm_graph *root = new_root("q");
    rlm_graph *cheap = new_child(root, "cheap", "x"), *dear = new_child(root, "dear", "x");
    reply(root, 10, 10, 1000000);
    reply(cheap, 10, 10, 500000);
    reply(dear, 10, 10, 3000000);
    reply(dear, 10, 10, 9000000);
    rlm_autofree char *text = rlm_view_usage(root, NULL);
    CHECK_CONTAINS(text, "      4          40          0         40   $0.0135     all agents\n"
                         "      2          20          0         20   $0.0120     root.dear\n"
                         "      1          10          0         10   $0.0010     root\n"
                         "      1          10          0         10   $0.0005     root.cheap\n");
    CHECK_CONTAINS(text, "$0.0090     root.dear  turn 2");
    CHECK(strstr(text, "root.dear  turn 2") < strstr(text, "root.dear  turn 1"));
    rlm_graph_free(root);
}
