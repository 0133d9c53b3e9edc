/* Edits of a graph at rest: what is public of them is in rlmflow.h. Each edit is made ready, journaled
 * where the graph is that of an opened run, then done: from the journal on it cannot fail.
 *
 * Removed nodes stay in the arena, removed agents are forgotten. What was spent stays in the sums:
 * `own` of an agent never shrinks, a removed child's total becomes its parent's own, and `total` is
 * always `own` and the totals of the children.
 *
 * Files: edit.c changes one graph; edit_branch.c finds, copies, compares and merges; edit_apply.c takes
 * events and lines of JSON.
 */
#pragma once

#include "graph/graph.h"

/* By place; `where` as in rlm_graph_inject, with the node at `index`. `node` is copied. */
int rlm_edit_insert(rlm_graph *g,
                    size_t index,
                    const struct rlm_node *node,
                    const struct rlm_node **ret_node,
                    rlm_error **err);
int rlm_edit_replace(rlm_graph *g,
                     size_t index,
                     const struct rlm_node *node,
                     const struct rlm_node **ret_node,
                     rlm_error **err);
int rlm_edit_remove(rlm_graph *g, size_t index, rlm_error **err);

/* Takes out all from `index` on, and these children (which are `g`'s): of this agent alone. */
int rlm_edit_truncate(
    rlm_graph *g, size_t index, rlm_graph *const *children, size_t n_children, rlm_error **err);

/* The place of a node by its id. RLM_E_NOT_FOUND. */
int rlm_edit_find(const rlm_graph *g, const char *node_id, size_t *ret_index, rlm_error **err);

/* A child as it stands in another tree, without its nodes; journaled like the rest. */
int rlm_edit_add_child(rlm_graph *parent,
                       const char *name,
                       const struct rlm_graph_options *options,
                       rlm_graph **ret_child,
                       rlm_error **err);

/* A copy of a whole tree, graph id and sums included. */
int rlm_edit_copy_tree(const rlm_graph *root, rlm_graph **ret_root, rlm_error **err);
/* No code is under way when this is the last node. */
bool rlm_edit_is_rest(const struct rlm_node *node);
