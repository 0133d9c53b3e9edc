/* --json: JSON Lines on stdout, one event a line, the result last. */
#pragma once

#include "rlmflow.h"

/* The public classes of events and notices; states and pieces of replies are left out. */
void json_out_event(const struct rlm_event *event);
/* The events that make one agent as it is now, and all of a tree: what rlm_graph_apply_json makes it of. */
void json_out_graph(rlm_graph *g);
void json_out_tree(rlm_graph *root);
/* The next agent below `root`, parents first; NULL after the last. */
rlm_graph *json_out_next(const rlm_graph *root, rlm_graph *g);
/* {"type": "result", ...}. `answer` is NULL without an answer; `path` NULL: in memory. An empty reason is
 * null. */
void json_out_result(const struct rlm_str *answer,
                     const char *reason,
                     const struct rlm_usage *usage,
                     size_t agents,
                     const char *path);
