/* Graphs at rest, saved and loaded again. */
#include "graphs.h"
#include "rlmflow.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *place(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", harness_directory(), name);
    return path;
}

TEST(a_saved_tree_is_loaded_as_it_was)
{
    struct rlm_graph_options options = {
        .query = RLM_STR("q"),
        .inputs = RLM_STR("{\"a\":{\"$blob\":\"00\"},\"b\":1.5}"),
    };
    rlm_graph *root, *again;
    CHECK_INT(rlm_graph_new(&options, &root, NULL), 0);
    append(root, (struct rlm_node){.type = RLM_USER_QUERY, .content = RLM_STR("q")});
    rlm_graph *child = new_child(root, "one", "below");
    reply(child, 10, 2, 5);
    finish(child, "answered");
    finish(root, "answered");

    CHECK_INT(rlm_graph_save(child, place("saved"), NULL),
              0); /* of whichever agent: the whole tree */
    CHECK_INT(rlm_graph_save(root, place("saved"), NULL), RLM_E_EXISTS);
    char *note = NULL;
    CHECK_INT(rlm_graph_load(place("saved"), &again, &note, NULL), 0);
    CHECK(note == NULL);
    CHECK_TEXT(rlm_graph_id(again), rlm_graph_id(root));
    CHECK_INT(rlm_graph_agent_count(again), 2);
    CHECK_STR(rlm_graph_inputs(again), "{\"a\":{\"$blob\":\"00\"},\"b\":1.5}");
    CHECK_STR(rlm_graph_result(again), "the answer");
    const rlm_graph *same = rlm_graph_agent(again, "root.one");
    CHECK_INT(rlm_graph_node_count(same), 2);
    CHECK_TEXT(rlm_graph_node(same, 0)->id, rlm_graph_node(child, 0)->id);
    CHECK_STR(rlm_graph_node(same, 0)->content, "a reply");
    CHECK_INT(rlm_graph_usage(again, true).input_tokens, 10);
    rlm_graph_free(again);
    rlm_graph_free(root);
}

TEST(a_tree_that_cannot_be_written_leaves_nothing)
{
    rlm_graph *root = new_root("q");
    rlm_error *err = NULL;
    CHECK_INT(rlm_graph_save(root, place("no/such/place"), &err), RLM_E_IO);
    CHECK(rlm_error_message(err)[0] != '\0');
    rlm_error_free(err);
    CHECK(access(place("no"), F_OK) < 0);
    rlm_graph_free(root);
}
