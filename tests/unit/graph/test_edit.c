#include "graph/edit.h"

#include "graph/random_edits.h"
#include "graph/record.h"
#include "graph/run_files.h"

static rlm_graph *new_root(void)
{
    struct rlm_graph_options options = {.query = RLM_STR("what?")};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_new(&options, &g, NULL), 0);
    return g;
}

static const struct rlm_node *put(rlm_graph *g, enum rlm_node_type type, const char *text)
{
    struct rlm_node node = {.type = type, .content = rlm_str_of(text)};
    const struct rlm_node *kept = NULL;
    CHECK_INT(rlm_graph_append_node(g, &node, &kept, NULL), 0);
    return kept;
}

/* The contents in order. */
static const char *contents(const rlm_graph *g)
{
    static char out[400];
    out[0] = '\0';
    for (size_t i = 0; i < g->nodes.len; i++) {
        strcat(strcat(out, i ? " " : ""), g->nodes.items[i]->content.ptr);
    }
    return out;
}

static void check_same(const rlm_graph *a, const rlm_graph *b)
{
    char one[65], other[65];
    CHECK_INT(rlm_graph_digest(a, one, NULL), 0);
    CHECK_INT(rlm_graph_digest(b, other, NULL), 0);
    CHECK_TEXT(one, other);
}

TEST(random_edits_are_what_a_model_says)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        rlm_graph *root = new_root();
        struct model *m = model_new(root, seed);
        for (int i = 0; i < 300; i++) {
            edit_at_random(m);
            model_check(m);
        }
        free(m);
        rlm_graph_free(root);
    }
}

static void on_edit(void *arg, const struct rlm_event *event)
{
    rlm_graph *copy = arg;
    CHECK_INT(rlm_graph_apply(&copy, event, NULL), 0);
}

TEST(the_events_of_random_edits_make_the_same_graph)
{
    for (uint64_t seed = 100; seed <= 130; seed++) {
        rlm_graph *root = new_root(), *copy = NULL;
        struct rlm_event created = {.type = RLM_EVENT_GRAPH_CREATED, .graph = root};
        CHECK_INT(rlm_graph_apply(&copy, &created, NULL), 0);
        rlm_graph_on_edit(root, on_edit, copy);
        struct model *m = model_new(root, seed);
        for (int i = 0; i < 200; i++) {
            edit_at_random(m);
        }
        check_same(root, copy);
        CHECK_TEXT(rlm_graph_id(copy), rlm_graph_id(root));
        m->root = copy;
        model_check(m); /* the sums too */
        free(m);
        rlm_graph_free(copy);
        rlm_graph_free(root);
    }
}

TEST(random_edits_of_a_run_are_there_when_it_is_loaded)
{
    for (uint64_t seed = 200; seed < 206; seed++) {
        char path[300];
        snprintf(path, sizeof path, "%s/edit%d.rlm", harness_directory(), (int)seed);
        rlm_graph *root = new_root(), *loaded;
        rlm_journal *j;
        CHECK_INT(rlm_journal_create(NULL, path, &(struct rlm_journal_options){0}, &j, NULL), 0);
        CHECK_INT(rlm_record_run(j, root, RLM_STR_NONE, NULL), 0);
        rlm_journal_close(j);
        rlm_graph_free(root);
        CHECK_INT(rlm_graph_open(path, &root, NULL), 0);
        struct model *m = model_new(root, seed);
        for (int i = 0; i < 150; i++) {
            edit_at_random(m);
            if (i % 50 == 49) {
                CHECK_INT(rlm_graph_load(path, &loaded, NULL, NULL), 0);
                check_same(root, loaded);
                m->root = loaded;
                model_check(m);
                for (const rlm_graph *g = loaded; g; g = rlm_graph_next(loaded, g)) {
                    const rlm_graph *twin = rlm_graph_agent(root, g->agent_id);
                    for (size_t k = 0; k < g->nodes.len; k++) {
                        CHECK_INT(rlm_entry_of(g->nodes.items[k])->offset,
                                  rlm_entry_of(twin->nodes.items[k])->offset);
                        CHECK(!k || rlm_entry_of(g->nodes.items[k])->offset >=
                                        rlm_entry_of(g->nodes.items[k - 1])->offset);
                    }
                }
                m->root = root;
                rlm_graph_free(loaded);
            }
        }
        rlm_graph *second;
        CHECK_INT(rlm_graph_open(path, &second, NULL), RLM_E_BUSY);
        free(m);
        rlm_graph_free(root);
        CHECK_INT(rlm_graph_open(path, &second, NULL), 0);
        rlm_graph_free(second);
    }
}

TEST(a_node_is_injected_before_after_and_instead)
{
    rlm_graph *g = new_root();
    struct rlm_node node = {.type = RLM_USER_QUERY, .content = RLM_STR("new")};
    const struct rlm_node *b;
    put(g, RLM_USER_QUERY, "a");
    b = put(g, RLM_LLM_OUTPUT, "b");
    put(g, RLM_EXEC_ACTION, "c");
    CHECK_INT(rlm_graph_inject(g, RLM_INJECT_BEFORE, b->id, &node, NULL, NULL), 0);
    CHECK_TEXT(contents(g), "a new b c");
    CHECK_INT(b->seq, 2);
    CHECK_INT(rlm_graph_inject(g, RLM_INJECT_AFTER, b->id, &node, NULL, NULL), 0);
    CHECK_TEXT(contents(g), "a new b new c");
    CHECK_INT(rlm_graph_inject(g, RLM_INJECT_REPLACE, b->id, &node, NULL, NULL), 0);
    CHECK_TEXT(contents(g), "a new new new c");
    CHECK_INT(rlm_graph_inject(g, RLM_INJECT_BEFORE, NULL, &node, NULL, NULL), 0);
    CHECK_INT(rlm_graph_inject(g, RLM_INJECT_AFTER, NULL, &node, NULL, NULL), 0);
    CHECK_TEXT(contents(g), "new a new new new c new");
    CHECK_INT(rlm_graph_inject(g, RLM_INJECT_REPLACE, NULL, &node, NULL, NULL), RLM_E_INVAL);
    CHECK_INT(rlm_graph_inject(g, RLM_INJECT_AFTER, b->id, &node, NULL, NULL), RLM_E_NOT_FOUND);
    rlm_graph_free(g);
}

TEST(a_checkpoint_is_refused_when_what_stands_before_it_was_edited)
{
    rlm_graph *g = new_root();
    struct rlm_graph_checkpoint here;
    struct rlm_node other = {.type = RLM_LLM_OUTPUT, .content = RLM_STR("B"), .time_us = 2};
    put(g, RLM_USER_QUERY, "a");
    const struct rlm_node *b = put(g, RLM_LLM_OUTPUT, "b");
    memcpy(other.id, b->id, sizeof other.id);
    other.time_us = b->time_us;
    CHECK_INT(rlm_graph_checkpoint(g, &here, NULL), 0);
    CHECK_INT(rlm_graph_revert(g, &here, NULL), 1);
    put(g, RLM_EXEC_ACTION, "c");
    put(g, RLM_EXEC_OUTPUT, "d");
    CHECK_INT(rlm_graph_revert(g, &here, NULL), 0);
    CHECK_TEXT(contents(g), "a b");
    put(g, RLM_EXEC_ACTION, "e");
    CHECK_INT(rlm_graph_inject(g, RLM_INJECT_REPLACE, b->id, &other, NULL, NULL), 0);
    CHECK_INT(rlm_graph_revert(g, &here, NULL),
              RLM_E_INVAL); /* the id is the same, the text is not */
    CHECK_TEXT(contents(g), "a B e");
    CHECK_INT(rlm_graph_rewind(g, g->nodes.items[0]->id, NULL), 0);
    CHECK_INT(rlm_graph_revert(g, &here, NULL), RLM_E_INVAL);
    rlm_graph_free(g);
}

TEST(a_fork_is_a_copy_up_to_a_node_and_merges_back)
{
    rlm_graph *g = new_root(), *fork;
    put(g, RLM_USER_QUERY, "a");
    const struct rlm_node *b = put(g, RLM_EXEC_OUTPUT, "b"), *merged;
    put(g, RLM_EXEC_OUTPUT, "c");
    CHECK_INT(rlm_graph_fork(g, "n_nothing", &fork, NULL), RLM_E_NOT_FOUND);
    CHECK_INT(rlm_graph_fork(g, b->id, &fork, NULL), 0);
    CHECK_TEXT(contents(fork), "a b");
    CHECK_TEXT(contents(g), "a b c");
    CHECK(strcmp(rlm_graph_id(fork), rlm_graph_id(g)) != 0);
    CHECK_INT(rlm_graph_merge(g, fork, RLM_STR(""), NULL, NULL),
              RLM_E_INVAL); /* nothing of its own */
    struct rlm_node code = {.type = RLM_EXEC_ACTION, .code = RLM_STR("x = 1")};
    struct rlm_node done = {
        .type = RLM_DONE_OUTPUT, .result = RLM_STR("42"), .reason = RLM_STR("answered")};
    CHECK_INT(rlm_graph_append_node(fork, &code, NULL, NULL), 0);
    CHECK_INT(rlm_graph_append_node(fork, &done, NULL, NULL), 0);
    CHECK_INT(rlm_graph_merge(g, fork, RLM_STR(""), &merged, NULL), 0);
    char expected[120];
    snprintf(expected, sizeof expected, "[merged branch %s] 42 (folded 1 exec step)",
             rlm_graph_id(fork));
    CHECK_STR(merged->content, expected);
    CHECK(strstr(merged->metadata.ptr, "\"code\":[\"x = 1\"]") &&
          strstr(merged->metadata.ptr, b->id));
    CHECK_INT(merged->type, RLM_EXEC_OUTPUT);
    put(g, RLM_EXEC_ACTION, "running");
    CHECK_INT(rlm_graph_merge(g, fork, RLM_STR("x"), NULL, NULL), RLM_E_INVAL);
    rlm_graph *stranger = new_root();
    put(stranger, RLM_USER_QUERY, "a");
    CHECK_INT(rlm_graph_merge(fork, stranger, RLM_STR("x"), NULL, NULL), RLM_E_INVAL);
    CHECK_INT(rlm_graph_merge(fork, g, RLM_STR("told"), &merged, NULL), 0);
    CHECK_STR(merged->content, "told");
    CHECK_INT(merged->type, RLM_USER_QUERY); /* it had ended */
    rlm_graph_free(stranger);
    rlm_graph_free(fork);
    rlm_graph_free(g);
}

TEST(places_are_found)
{
    rlm_graph *g = new_root(), *child, *agent;
    struct rlm_graph_options options = {.query = RLM_STR("part")};
    const struct rlm_node *node, *in_child;
    CHECK_INT(rlm_graph_add_child(g, "w:1", &options, &child, NULL), 0);
    put(g, RLM_USER_QUERY, "a");
    put(g, RLM_LLM_OUTPUT, "b");
    put(g, RLM_EXEC_OUTPUT, "c");
    put(g, RLM_LLM_OUTPUT, "d");
    put(g, RLM_DONE_OUTPUT, "e");
    put(g, RLM_USER_QUERY, "f");
    in_child = put(child, RLM_USER_QUERY, "g");
    static const struct {
        const char *place, *content;
    } good[] = {{"0", "a"},     {"root:2", "c"},     {"turn1", "c"},
                {"turn2", "e"}, {"root:turn2", "e"}, {"root.w:1:0", "g"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_INT(rlm_graph_find(g, good[i].place, &agent, &node, NULL), 0);
        CHECK_STR(node->content, good[i].content);
    }
    CHECK_INT(rlm_graph_find(g, in_child->id, &agent, &node, NULL), 0);
    CHECK(agent == child && node == in_child);
    static const char *const bad[] = {
        "",     "6",           "-1",      "turn0",    "turn3",
        "turn", "root:",       ":0",      "root.x:0", "root:1x",
        " 1",   "root:turn-1", "n_00000", "+1",       "99999999999999999999",
        "root", "::",          "turn1 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(rlm_graph_find(g, bad[i], &agent, &node, NULL), RLM_E_NOT_FOUND);
    }
    rlm_graph_free(g);
}

TEST(hostile_lines_and_events_out_of_order_are_refused)
{
    rlm_graph *g = NULL;
    static const struct {
        const char *line;
        int code;
    } lines[] = {
        {"", RLM_E_PARSE},
        {"[]", RLM_E_PARSE},
        {"{\"type\":3}", RLM_E_PARSE},
        {"{\"type\":\"notice\",\"text\":\"x\"}", 1},
        {"{\"type\":\"append_node\",\"agent_id\":\"root\"}", RLM_E_INVAL},
        {"{\"type\":\"graph_created\",\"agent_id\":\"root\",\"graph_id\":\"g_1\",\"query\":\"q\"}",
         0},
        {"{\"type\":\"graph_created\",\"agent_id\":\"root\"}", RLM_E_INVAL},
        {"{\"type\":\"append_node\",\"agent_id\":\"root\"}", RLM_E_INVAL},
        {"{\"type\":\"append_node\",\"agent_id\":\"root.x\"}", RLM_E_NOT_FOUND},
        {"{\"type\":\"append_node\",\"agent_id\":\"root\",\"node\":{\"type\":\"user_query\",\"seq\":0}}",
         RLM_E_PARSE},
        {"{\"type\":\"append_node\",\"agent_id\":\"root\",\"node\":{\"type\":\"?\",\"id\":\"n_1\",\"seq\":0}}",
         RLM_E_PARSE},
        {"{\"type\":\"append_node\",\"agent_id\":\"root\",\"node\":{\"type\":\"user_query\",\"id\":\"n_1\",\"seq\":4294967296}}",
         RLM_E_PARSE},
        {"{\"type\":\"append_node\",\"agent_id\":\"root\",\"node\":{\"type\":\"user_query\",\"id\":\"n_1\",\"seq\":1}}",
         RLM_E_INVAL},
        {"{\"type\":\"append_node\",\"agent_id\":\"root\",\"node\":{\"type\":\"user_query\",\"id\":\"n_1\",\"seq\":0,\"content\":{\"$blob\":\"x\"}}}",
         RLM_E_PARSE},
        {"{\"type\":\"append_node\",\"agent_id\":\"root\",\"node\":{\"type\":\"user_query\",\"id\":\"n_1\",\"seq\":0,\"usage\":{\"cost\":1e400}}}",
         0},
        {"{\"type\":\"replace_node\",\"agent_id\":\"root\",\"node\":{\"type\":\"user_query\",\"id\":\"n_1\",\"seq\":7}}",
         RLM_E_INVAL},
        {"{\"type\":\"remove_node\",\"agent_id\":\"root\",\"node\":{\"type\":\"user_query\",\"id\":\"n_2\",\"seq\":0}}",
         RLM_E_NOT_FOUND},
        {"{\"type\":\"remove_child\",\"agent_id\":\"root\"}", RLM_E_INVAL},
        {"{\"type\":\"add_child\",\"agent_id\":\"root\",\"parent_agent_id\":\"root\"}",
         RLM_E_INVAL},
        {"{\"type\":\"add_child\",\"agent_id\":\"rootx\",\"parent_agent_id\":\"root\"}",
         RLM_E_INVAL},
        {"{\"type\":\"add_child\",\"agent_id\":\"root.\",\"parent_agent_id\":\"root\"}",
         RLM_E_INVAL},
        {"{\"type\":\"add_child\",\"agent_id\":\"root.a\",\"parent_agent_id\":\"nobody\"}",
         RLM_E_NOT_FOUND},
        {"{\"type\":\"add_child\",\"agent_id\":\"root.a\\u0000b\",\"parent_agent_id\":\"root\"}",
         RLM_E_INVAL},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        rlm_error *err = NULL;
        int r = rlm_graph_apply_json(&g, rlm_str_of(lines[i].line), &err);
        if (r != lines[i].code) {
            harness_fail(__FILE__, __LINE__, "%s gives %d: %s", lines[i].line, r,
                         rlm_error_message(err));
        }
        CHECK_INT(r < 0, err != NULL);
        rlm_error_free(err);
    }
    CHECK_INT(g->nodes.len, 1);
    CHECK_INT(rlm_graph_agent_count(g), 1);
    rlm_graph_free(g);
}
