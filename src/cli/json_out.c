#include "cli/json_out.h"

#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void json_out_event(const struct rlm_event *event)
{
    if (event->type == RLM_EVENT_STATE || event->type == RLM_EVENT_DELTA) {
        return;
    }
    char *line = rlm_event_json(event);
    if (line) {
        puts(line);
    } else {
        text_complain("an event is not shown: out of memory");
    }
    free(line);
}

/* Preorder, iterative, since a loaded graph may be deeper than the stack. */
rlm_graph *json_out_next(const rlm_graph *root, rlm_graph *g)
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

void json_out_graph(rlm_graph *g)
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

void json_out_tree(rlm_graph *root)
{
    for (rlm_graph *g = root; g; g = json_out_next(root, g)) {
        json_out_graph(g);
    }
}

static void put_text(const char *key, const char *text)
{
    printf(",\"%s\":", key);
    if (text) {
        text_write_json(stdout, (struct rlm_str){text, strlen(text)});
    } else {
        fputs("null", stdout);
    }
}

/* Exact: a double would round what is counted in nano-dollars. */
static void put_cost(int64_t nano)
{
    char fraction[16];
    snprintf(fraction, sizeof fraction, "%09" PRId64, nano % 1000000000);
    for (size_t n = 9; n > 1 && fraction[n - 1] == '0'; n--) {
        fraction[n - 1] = '\0';
    }
    printf("%" PRId64 ".%s", nano / 1000000000, fraction);
}

void json_out_result(const struct rlm_str *answer,
                     const char *reason,
                     const struct rlm_usage *usage,
                     size_t agents,
                     const char *path)
{
    fputs("{\"type\":\"result\",\"answer\":", stdout);
    if (answer) {
        text_write_json(stdout, *answer);
    } else {
        fputs("null", stdout);
    }
    put_text("reason", *reason ? reason : NULL);
    printf(",\"usage\":{\"calls\":%" PRId64 ",\"input_tokens\":%" PRId64
           ",\"output_tokens\":%" PRId64 ",\"cost\":",
           usage->calls, usage->input_tokens, usage->output_tokens);
    put_cost(usage->cost_nano > 0 ? usage->cost_nano : 0);
    printf("},\"agents\":%zu", agents);
    put_text("run", path);
    puts("}");
}
