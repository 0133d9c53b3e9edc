/* The graph: one agent's trajectory of nodes and, nested, its children's graphs.
 *
 * Public accessors, `struct rlm_node` and `struct rlm_usage` are in rlmflow.h. Here is what changes a
 * graph. A graph owns its nodes and children; texts of nodes are copied into the root's arena, so a
 * node pointer stays valid until the root is freed. Equal texts of a node (content and output), and
 * the short ones that repeat (model, reason, error, agent ids), are stored once. Usage sums of each graph and of its subtree are
 * kept as nodes come, so reading them costs nothing. All walks are iterative: depth is not bounded
 * by the stack. What has been spent stays in the sums when a node or a child is taken out (edit.h).
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"

/* Ids name every ancestor, so a chain of agents costs the square of its depth: this bounds both. */
enum { RLM_AGENT_ID_MAX_BYTES = 16 * 1024 };

/* What an agent starts with. All texts are copied. */
struct rlm_graph_options {
    const char *agent_id; /* of a root; NULL: "root". A child's is made by rlm_graph_add_child */
    rlm_str query;
    rlm_str inputs;        /* JSON object: name -> value as record.h encodes it; empty: "{}" */
    rlm_str model;         /* the name the user configured; empty: "default" */
    rlm_str output_schema; /* JSON text, or empty */
    int64_t launch;        /* of a child: the host call that made it, 0: unknown */
    int64_t launch_part;   /* and its place in the call's list */
};

struct rlm_graph {
    rlm_graph *parent; /* NULL for the root */
    rlm_graph *root;
    rlm_arena *arena; /* the root's */
    const char *agent_id;
    const char *name; /* the last part of agent_id */
    int depth;
    size_t index; /* in the parent's children */
    rlm_str query, inputs, model, output_schema;
    int64_t launch, launch_part; /* see struct rlm_graph_options */
    RLM_VEC(struct rlm_node *) nodes;
    RLM_VEC(rlm_graph *) children; /* in the order of their creation */
    struct rlm_usage own;          /* this agent's calls */
    struct rlm_usage total;        /* with those of its descendants */
    int turns;                     /* llm_output nodes */
    int task_turns;                /* of these, those since it last ended and was asked more */
    /* of the root only */
    struct rlm_map agents;       /* agent_id -> graph */
    char graph_id[36];           /* "g_" and 32 hexadecimal digits */
    struct rlm_journal *journal; /* of a run that is opened to be edited, else NULL */
    void (*edited)(void *arg, const struct rlm_event *event);
    void *edited_arg;
};

/* How a node stands in its graph: every node of a graph is the first member of one of these. */
struct rlm_entry {
    struct rlm_node node;
    int64_t
        offset; /* of the record that brought it, in a run that was loaded; else 0. Never smaller than
                     * that of the node before it */
};

static inline struct rlm_entry *rlm_entry_of(const struct rlm_node *node)
{
    return (struct rlm_entry *)(uintptr_t)node;
}

/* Makes a root with a fresh graph id. RLM_E_NOMEM, RLM_E_INVAL (an empty id), RLM_E_LIMIT. */
int rlm_graph_new(const struct rlm_graph_options *options, rlm_graph **ret_graph, rlm_error **err);
/* `agent_id` is made of the parent's and `name`; a name that is taken is RLM_E_EXISTS, an empty one
 * RLM_E_INVAL, and RLM_E_LIMIT says that the id would pass RLM_AGENT_ID_MAX_BYTES. */
int rlm_graph_add_child(rlm_graph *parent,
                        const char *name,
                        const struct rlm_graph_options *options,
                        rlm_graph **ret_child,
                        rlm_error **err);

/* Copies `node` to the end of the trajectory, fills seq, and id and time where they are empty or 0
 * (those of a loaded node stand), and updates the sums.
 * `*ret_node` (may be NULL) is the graph's own copy. A node after the terminal one is RLM_E_INVAL
 * unless it is a user_query (which opens a finished graph again). */
int rlm_graph_append(rlm_graph *g,
                     const struct rlm_node *node,
                     const struct rlm_node **ret_node,
                     rlm_error **err);

/* The graph's own copy of `node`, which stands nowhere yet, as rlm_graph_append makes it. Texts that it
 * shares with the nodes at the end are stored once. RLM_E_INVAL (an unknown type), RLM_E_NOMEM. */
int rlm_graph_copy_node(rlm_graph *g,
                        const struct rlm_node *node,
                        struct rlm_node **ret_node,
                        rlm_error **err);
/* Gives the tree another graph id. */
void rlm_graph_renew_id(rlm_graph *root);

/* Removes the done_output at the end: the agent goes on as if it had not ended. RLM_E_INVAL when it has
 * not ended. */
int rlm_graph_reopen(rlm_graph *g, rlm_error **err);

/* Counts the node at `i` for `turns` and `task_turns`, those before it having been counted. */
void rlm_graph_count_turn(rlm_graph *g, size_t i);
/* Adds calls that stand at no node (llm_query, a failed attempt) to the sums of `g` and up. */
void rlm_graph_add_usage(rlm_graph *g, const struct rlm_usage *usage);
void rlm_usage_add(struct rlm_usage *sum, const struct rlm_usage *more);

/* The type of a tag ("user_query"; the way back is the public rlm_node_type_tag); -1: unknown. */
int rlm_node_type_of(rlm_str name);

/* Whether an agent is `top` or below it, by their ids. */
bool rlm_agent_is_within(rlm_str agent_id, rlm_str top);

/* Preorder, iterative: `for (g = root; g; g = rlm_graph_next(root, g))`. */
rlm_graph *rlm_graph_next(const rlm_graph *root, const rlm_graph *g);
