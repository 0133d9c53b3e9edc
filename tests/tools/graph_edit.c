/* Edits a run through the public header, for tests.
 *
 *     graph_edit RUN digest                       of its graph
 *     graph_edit - apply                          of the graph that the lines of stdin make
 *     graph_edit RUN before|after|replace PLACE TYPE TEXT
 *     graph_edit RUN remove PLACE
 *     graph_edit RUN remove-child AGENT
 *     graph_edit RUN rewind PLACE
 *     graph_edit RUN merge BRANCH
 */
#include "rlmflow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(rlm_error *err)
{
    fprintf(stderr, "%d %s\n", rlm_error_code(err), rlm_error_message(err));
    rlm_error_free(err);
    return 1;
}

static int print_digest(const rlm_graph *g)
{
    char digest[65];
    rlm_error *err = NULL;
    if (rlm_graph_digest(g, digest, &err) < 0) {
        return fail(err);
    }
    puts(digest);
    return 0;
}

static int apply(void)
{
    rlm_graph *g = NULL;
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    rlm_error *err = NULL;
    int code = 0;
    while (code == 0 && (len = getline(&line, &room, stdin)) > 0) {
        if (rlm_graph_apply_json(&g, (struct rlm_str){line, (size_t)len}, &err) < 0) {
            code = fail(err);
        }
    }
    code = code ? code : print_digest(g);
    free(line);
    rlm_graph_free(g);
    return code;
}

static int put(rlm_graph *root, char **argv, rlm_error **err)
{
    enum rlm_inject where = !strcmp(argv[2], "before")  ? RLM_INJECT_BEFORE
                            : !strcmp(argv[2], "after") ? RLM_INJECT_AFTER
                                                        : RLM_INJECT_REPLACE;
    rlm_graph *g;
    const struct rlm_node *at;
    struct rlm_node node = {.content = {argv[5], strlen(argv[5])}};
    int type = RLM_USER_QUERY;
    while (type < RLM_DONE_OUTPUT &&
           strcmp(rlm_node_type_tag((enum rlm_node_type)type), argv[4]) != 0) {
        type++;
    }
    node.type = (enum rlm_node_type)type;
    if (node.type == RLM_EXEC_OUTPUT) {
        node.output = node.content;
    }
    int r = rlm_graph_find(root, argv[3], &g, &at, err);
    return r < 0 ? r : rlm_graph_inject(g, where, at->id, &node, NULL, err);
}

static int edit(rlm_graph *root, int argc, char **argv, rlm_error **err)
{
    rlm_graph *g, *branch = NULL;
    const struct rlm_node *node;
    int r;
    if (argc == 6) {
        return put(root, argv, err);
    }
    if (!strcmp(argv[2], "remove-child")) {
        return rlm_graph_remove_child(rlm_graph_agent(root, argv[3]), err);
    }
    if (!strcmp(argv[2], "merge")) {
        r = rlm_graph_load(argv[3], &branch, NULL, err);
        r = r < 0 ? r : rlm_graph_merge(root, branch, (struct rlm_str){"", 0}, NULL, err);
        rlm_graph_free(branch);
        return r;
    }
    r = rlm_graph_find(root, argv[3], &g, &node, err);
    if (r < 0) {
        return r;
    }
    return !strcmp(argv[2], "rewind") ? rlm_graph_rewind(g, node->id, err)
                                      : rlm_graph_remove_node(g, node->id, err);
}

int main(int argc, char **argv)
{
    rlm_graph *root;
    rlm_error *err = NULL;
    if (argc < 3 || (argc == 3 && !strcmp(argv[2], "apply"))) {
        return argc == 3 ? apply() : 2;
    }
    bool look = !strcmp(argv[2], "digest");
    if ((look ? rlm_graph_load(argv[1], &root, NULL, &err) : rlm_graph_open(argv[1], &root, &err)) <
        0) {
        return fail(err);
    }
    int code = (look ? 0 : edit(root, argc, argv, &err)) < 0 ? fail(err) : print_digest(root);
    rlm_graph_free(root);
    return code;
}
