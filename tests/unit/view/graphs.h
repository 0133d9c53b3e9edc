/* Graphs for the tests of views. */
#pragma once

#include "base/alloc.h"
#include "graph/graph.h"
#include "harness.h"

static inline rlm_graph *new_root(const char *query)
{
    struct rlm_graph_options options = {.query = rlm_str_of(query)};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_new(&options, &g, NULL), 0);
    return g;
}

static inline rlm_graph *new_child(rlm_graph *parent, const char *name, const char *query)
{
    struct rlm_graph_options options = {.query = rlm_str_of(query)};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_add_child(parent, name, &options, &g, NULL), 0);
    return g;
}

static inline const struct rlm_node *append(rlm_graph *g, struct rlm_node node)
{
    const struct rlm_node *kept = NULL;
    CHECK_INT(rlm_graph_append(g, &node, &kept, NULL), 0);
    return kept;
}

static inline const struct rlm_node *reply(rlm_graph *g, int64_t in, int64_t out, int64_t cost_nano)
{
    return append(g, (struct rlm_node){.type = RLM_LLM_OUTPUT,
                                       .content = RLM_STR("a reply"),
                                       .model = RLM_STR("m"),
                                       .usage = {.calls = 1,
                                                 .input_tokens = in,
                                                 .output_tokens = out,
                                                 .cost_nano = cost_nano}});
}

static inline void finish(rlm_graph *g, const char *reason)
{
    append(g, (struct rlm_node){.type = RLM_DONE_OUTPUT,
                                .reason = rlm_str_of(reason),
                                .result = RLM_STR("the answer")});
}
