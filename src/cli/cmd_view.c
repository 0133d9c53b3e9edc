#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/kept.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void set_screen(struct rlm_view_options *view)
{
    struct winsize size = {0};
    if (isatty(1)) {
        view->color = !getenv("NO_COLOR");
        if (ioctl(1, TIOCGWINSZ, &size) == 0) {
            view->width = size.ws_col;
        }
    }
}

/* Preorder, iterative, since a loaded graph may be deeper than the stack. */
static rlm_graph *next_graph(const rlm_graph *root, rlm_graph *g)
{
    if (rlm_graph_child_count(g)) {
        return rlm_graph_child(g, 0);
    }
    while (g != root) {
        rlm_graph *parent = rlm_graph_parent(g);
        for (size_t i = 0; i + 1 < rlm_graph_child_count(parent); i++) {
            if (rlm_graph_child(parent, i) == g) {
                return rlm_graph_child(parent, i + 1);
            }
        }
        g = parent;
    }
    return NULL;
}

static const struct rlm_node *find_node(rlm_graph *root, const char *id, rlm_graph **ret_graph)
{
    for (rlm_graph *g = root; g; g = next_graph(root, g)) {
        for (size_t i = 0; i < rlm_graph_node_count(g); i++) {
            const struct rlm_node *node = rlm_graph_node(g, i);
            if (strcmp(node->id, id) == 0) {
                *ret_graph = g;
                return node;
            }
        }
    }
    return NULL;
}

static void put_graph_json(rlm_graph *g)
{
    struct rlm_event event = {
        .type = rlm_graph_parent(g) ? RLM_EVENT_ADD_CHILD : RLM_EVENT_GRAPH_CREATED, .graph = g};
    json_out_event(&event);
    for (size_t i = 0; i < rlm_graph_node_count(g); i++) {
        event.type = RLM_EVENT_APPEND_NODE;
        event.node = rlm_graph_node(g, i);
        json_out_event(&event);
    }
}

static void put_tree_json(rlm_graph *root, const char *path)
{
    for (rlm_graph *g = root; g; g = next_graph(root, g)) {
        put_graph_json(g);
    }
    struct rlm_usage usage = rlm_graph_usage(root, true);
    struct rlm_str answer = rlm_graph_result(root), reason = rlm_graph_reason(root);
    char *reason_text = text_format("%.*s", (int)reason.len, reason.ptr ? reason.ptr : "");
    json_out_result(strcmp(reason_text, "answered") == 0 ? &answer : NULL, reason_text, &usage,
                    rlm_graph_agent_count(root), path);
    free(reason_text);
}

static int put_text(char *text)
{
    if (!text) {
        text_complain("view: out of memory");
        return EXIT_FAILED;
    }
    fputs(text, stdout);
    free(text);
    return 0;
}

/* The answer, or why there is none, below the tree. */
static void put_end(const rlm_graph *root)
{
    struct rlm_str answer = rlm_graph_result(root);
    if (answer.len) {
        printf("\n");
        text_print_lines(stdout, answer);
    }
}

static int show(rlm_graph *root, const struct options *o, const char *path)
{
    struct rlm_view_options view = RLM_VIEW_OPTIONS_INIT;
    const char *agent = options_text(o, OPT_AGENT), *id = options_text(o, OPT_NODE);
    bool json = options_on(o, OPT_JSON);
    rlm_graph *g = agent ? rlm_graph_agent(root, agent) : root;
    set_screen(&view);
    if (!g) {
        text_complain("view: %s has no agent \"%s\"; the tree names them (children as root.NAME)",
                      path, agent);
        return EXIT_USAGE;
    }
    if (id) {
        rlm_graph *owner;
        const struct rlm_node *node = find_node(g, id, &owner);
        if (!node) {
            text_complain("view: %s has no node \"%s\"; --agent ID lists those of an agent", path,
                          id);
            return EXIT_USAGE;
        }
        int code = put_text(json ? rlm_node_json(owner, node) : rlm_view_node(owner, node, &view));
        if (json) {
            putchar('\n');
        }
        return code;
    }
    if (json && agent) {
        put_graph_json(g);
        return 0;
    }
    if (json) {
        put_tree_json(root, path);
        return 0;
    }
    if (options_on(o, OPT_USAGE)) {
        return put_text(rlm_view_usage(g, &view));
    }
    if (agent) {
        return put_text(rlm_view_agent(g, &view));
    }
    int code = put_text(rlm_view_tree(root, &view));
    put_end(root);
    return code;
}

static int run(struct options *o)
{
    char *path = kept_find(o->arguments[0]);
    rlm_graph *root = NULL;
    char *note = NULL;
    rlm_error *err = NULL;
    int code;
    if (options_on(o, OPT_USAGE) && (options_on(o, OPT_JSON) || options_text(o, OPT_NODE))) {
        text_complain(
            "view: --usage goes neither with --json (its last line has the sums) nor with --node");
        code = EXIT_USAGE;
    } else if (rlm_graph_load(path, &root, &note, &err) < 0) {
        code = text_fail(err);
    } else {
        if (note) {
            text_say("note: %s", note);
        }
        code = show(root, o, path);
    }
    rlm_graph_free(root);
    free(note);
    free(path);
    return code;
}

const struct command cmd_view = {
    .name = "view",
    .bit = FOR_VIEW,
    .summary = "Shows a run: its tree of agents, one agent, one node, where the money went.",
    .usage = "RUN [FLAG]...",
    .description =
        "RUN is a path or the name of a kept run. A run may still be going on, or be damaged: what\n"
        "can be read is shown, and stderr says what is missing.\n",
    .example = "  rlmflow view run.rlm --agent root\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
