#include "graph/edit.h"

#include "graph/record.h"

/* ---- telling --------------------------------------------------------------------------------- */

static void tell(rlm_graph *g, enum rlm_event_type type, const struct rlm_node *node, bool subtree)
{
    const rlm_graph *root = g->root;
    if (root->edited) {
        struct rlm_event event = {.type = type, .graph = g, .node = node, .subtree = subtree};
        root->edited(root->edited_arg, &event);
    }
}

void rlm_graph_on_edit(rlm_graph *root,
                       void (*edited)(void *arg, const struct rlm_event *event),
                       void *arg)
{
    root->root->edited = edited;
    root->root->edited_arg = arg;
}

/* ---- keeping what is counted right ----------------------------------------------------------- */

static void recount(rlm_graph *g, size_t from)
{
    for (size_t i = from; i < g->nodes.len; i++) {
        g->nodes.items[i]->seq = (uint32_t)i;
    }
    g->turns = g->task_turns = 0;
    for (size_t i = 0; i < g->nodes.len; i++) {
        rlm_graph_count_turn(g, i);
    }
}

/* Forgets an agent with all below it: the deepest first, so that no stack is needed. */
static void forget(rlm_graph *child)
{
    rlm_graph *top = child->parent, *g = child;
    rlm_usage_add(&top->own, &child->total);
    for (;;) {
        while (g->children.len) {
            g = g->children.items[g->children.len - 1];
        }
        rlm_graph *parent = g->parent;
        rlm_map_remove(&g->root->agents, rlm_str_of(g->agent_id));
        free(g->nodes.items);
        free(g->children.items);
        if (g == child) {
            break;
        }
        parent->children.len--;
        g = parent;
    }
    rlm_vec_remove(&top->children, child->index);
    for (size_t i = child->index; i < top->children.len; i++) {
        top->children.items[i]->index = i;
    }
}

/* ---- what may stand where -------------------------------------------------------------------- */

static int check_pair(const rlm_graph *g,
                      const struct rlm_node *before,
                      const struct rlm_node *after,
                      rlm_error **err)
{
    if (before && after && before->type == RLM_DONE_OUTPUT && after->type != RLM_USER_QUERY) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "in the trajectory of %s a done_output would stand before a node of "
                             "the type %s: only a user_query may follow it",
                             g->agent_id, rlm_node_type_tag(after->type));
    }
    return 0;
}

static const struct rlm_node *node_at(const rlm_graph *g, size_t index)
{
    return index < g->nodes.len ? g->nodes.items[index] : NULL;
}

static int not_found(const rlm_graph *g, const char *node_id, rlm_error **err)
{
    return rlm_error_set(err, RLM_E_NOT_FOUND, "agent %s has no node \"%.40s\"", g->agent_id,
                         node_id);
}

int rlm_edit_find(const rlm_graph *g, const char *node_id, size_t *ret_index, rlm_error **err)
{
    for (size_t i = 0; i < g->nodes.len; i++) {
        if (strcmp(g->nodes.items[i]->id, node_id) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return not_found(g, node_id, err);
}

/* ---- putting in ------------------------------------------------------------------------------ */

/* The end of a journal is where its next record begins. */
static int64_t next_offset(const rlm_graph *g)
{
    return g->root->journal ? rlm_journal_end(g->root->journal) : 0;
}

int rlm_graph_append_node(rlm_graph *g,
                          const struct rlm_node *node,
                          const struct rlm_node **ret_node,
                          rlm_error **err)
{
    return rlm_edit_insert(g, g->nodes.len, node, ret_node, err);
}

int rlm_edit_insert(rlm_graph *g,
                    size_t index,
                    const struct rlm_node *node,
                    const struct rlm_node **ret_node,
                    rlm_error **err)
{
    const struct rlm_node *before = index ? node_at(g, index - 1) : NULL;
    bool at_end = index == g->nodes.len;
    struct rlm_node *copy;
    int r = check_pair(g, before, node, err);
    if (r == 0) {
        r = check_pair(g, node, node_at(g, index), err);
    }
    if (r == 0 && g->nodes.len >= UINT32_MAX) {
        r = rlm_error_set(err, RLM_E_LIMIT, "agent %s has %zu nodes, the most there can be",
                          g->agent_id, g->nodes.len);
    }
    if (r < 0 || (r = rlm_graph_copy_node(g, node, &copy, err)) < 0) {
        return r;
    }
    if (!rlm_vec_push(&g->nodes)) {
        return rlm_error_nomem(err);
    }
    g->nodes.len--; /* there is room: from here on only the journal can fail */
    copy->seq = (uint32_t)index;
    rlm_entry_of(copy)->offset =
        at_end || !before ? (at_end ? next_offset(g) : 0) : rlm_entry_of(before)->offset;
    r = at_end ? rlm_record_node(g->root->journal, g, copy, err)
               : rlm_record_edit_node(g->root->journal, g, "insert", copy, err);
    if (r < 0) {
        return r;
    }
    memmove(&g->nodes.items[index + 1], &g->nodes.items[index],
            (g->nodes.len - index) * sizeof *g->nodes.items);
    g->nodes.items[index] = copy;
    g->nodes.len++;
    recount(g, index);
    rlm_graph_add_usage(g, &copy->usage);
    tell(g, at_end ? RLM_EVENT_APPEND_NODE : RLM_EVENT_INSERT_NODE, copy, false);
    if (ret_node) {
        *ret_node = copy;
    }
    return 0;
}

int rlm_edit_replace(rlm_graph *g,
                     size_t index,
                     const struct rlm_node *node,
                     const struct rlm_node **ret_node,
                     rlm_error **err)
{
    struct rlm_node *old = g->nodes.items[index], *copy;
    int r = check_pair(g, index ? node_at(g, index - 1) : NULL, node, err);
    if (r == 0) {
        r = check_pair(g, node, node_at(g, index + 1), err);
    }
    if (r < 0 || (r = rlm_graph_copy_node(g, node, &copy, err)) < 0) {
        return r;
    }
    copy->seq = (uint32_t)index;
    rlm_entry_of(copy)->offset = rlm_entry_of(old)->offset;
    r = rlm_record_forgotten(g->root->journal, g, old, err);
    if (r == 0) {
        r = rlm_record_edit_node(g->root->journal, g, "replace", copy, err);
    }
    if (r < 0) {
        return r;
    }
    g->nodes.items[index] = copy;
    recount(g, index);
    rlm_graph_add_usage(g, &copy->usage);
    tell(g, RLM_EVENT_REPLACE_NODE, copy, false);
    if (ret_node) {
        *ret_node = copy;
    }
    return 0;
}

int rlm_graph_inject(rlm_graph *g,
                     enum rlm_inject where,
                     const char *node_id,
                     const struct rlm_node *node,
                     const struct rlm_node **ret_node,
                     rlm_error **err)
{
    size_t index = where == RLM_INJECT_BEFORE ? 0 : g->nodes.len;
    if (!node_id && where == RLM_INJECT_REPLACE) {
        return rlm_error_set(err, RLM_E_INVAL, "replacing a node without saying which");
    }
    if (node_id) {
        int r = rlm_edit_find(g, node_id, &index, err);
        if (r < 0) {
            return r;
        }
        index += where == RLM_INJECT_AFTER;
    }
    return where == RLM_INJECT_REPLACE ? rlm_edit_replace(g, index, node, ret_node, err)
                                       : rlm_edit_insert(g, index, node, ret_node, err);
}

int rlm_edit_add_child(rlm_graph *parent,
                       const char *name,
                       const struct rlm_graph_options *options,
                       rlm_graph **ret_child,
                       rlm_error **err)
{
    rlm_graph *child;
    int r = rlm_graph_add_child(parent, name, options, &child, err);
    if (r < 0) {
        return r;
    }
    r = rlm_record_child(parent->root->journal, child, err);
    if (r < 0) {
        forget(child);
        return r;
    }
    tell(child, RLM_EVENT_ADD_CHILD, NULL, false);
    *ret_child = child;
    return 0;
}

/* ---- taking out ------------------------------------------------------------------------------ */

int rlm_edit_remove(rlm_graph *g, size_t index, rlm_error **err)
{
    const struct rlm_node *node = g->nodes.items[index];
    int r = check_pair(g, index ? node_at(g, index - 1) : NULL, node_at(g, index + 1), err);
    if (r == 0) {
        r = rlm_record_forgotten(g->root->journal, g, node, err);
    }
    if (r == 0) {
        r = rlm_record_edit_remove(g->root->journal, g, node, err);
    }
    if (r < 0) {
        return r;
    }
    rlm_vec_remove(&g->nodes, index);
    recount(g, index);
    tell(g, RLM_EVENT_REMOVE_NODE, node, false);
    return 0;
}

int rlm_graph_remove_node(rlm_graph *g, const char *node_id, rlm_error **err)
{
    size_t index;
    int r = rlm_edit_find(g, node_id, &index, err);
    return r < 0 ? r : rlm_edit_remove(g, index, err);
}

/* The calls of replies that go are settled, also when their nodes are not there to say so. */
static int settle_all(rlm_graph *top, rlm_error **err)
{
    for (rlm_graph *g = top; g; g = rlm_graph_next(top, g)) {
        for (size_t i = 0; i < g->nodes.len; i++) {
            int r = rlm_record_forgotten(g->root->journal, g, g->nodes.items[i], err);
            if (r < 0) {
                return r;
            }
        }
    }
    return 0;
}

int rlm_graph_remove_child(rlm_graph *child, rlm_error **err)
{
    if (!child->parent) {
        return rlm_error_set(err, RLM_E_INVAL, "the root of a tree cannot be removed from it");
    }
    int r = settle_all(child, err);
    if (r == 0) {
        r = rlm_record_edit_remove_child(child->root->journal, child, err);
    }
    if (r < 0) {
        return r;
    }
    tell(child, RLM_EVENT_REMOVE_CHILD, NULL, false);
    forget(child);
    return 0;
}

int rlm_edit_truncate(
    rlm_graph *g, size_t index, rlm_graph *const *children, size_t n_children, rlm_error **err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < n_children; i++) {
        r = settle_all(children[i], err);
    }
    for (size_t i = index; r == 0 && i < g->nodes.len; i++) {
        r = rlm_record_forgotten(g->root->journal, g, g->nodes.items[i], err);
    }
    int64_t cut = index ? rlm_entry_of(g->nodes.items[index - 1])->offset : 0;
    if (r == 0) {
        r = rlm_record_edit_rewind(g->root->journal, g, index, cut, children, n_children, err);
    }
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < n_children; i++) {
        tell(children[i], RLM_EVENT_REMOVE_CHILD, NULL, false);
        forget(children[i]);
    }
    const struct rlm_node *first = node_at(g, index);
    g->nodes.len = index < g->nodes.len ? index : g->nodes.len;
    recount(g, g->nodes.len);
    if (first) {
        tell(g, RLM_EVENT_REMOVE_NODE, first, true);
    }
    return 0;
}

/* Whether one of the first `n` nodes speaks of the child. */
static bool is_named(const rlm_graph *g, size_t n, const rlm_graph *child)
{
    for (size_t i = 0; i < n; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        for (size_t k = 0; k < node->n_agents; k++) {
            if (strcmp(node->agents[k], child->agent_id) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Takes out what follows the first `n` nodes. Of the children go those that only removed nodes speak of, and
 * those that the code under way had launched before a node could say so. */
static int rewind_one(rlm_graph *g, size_t n, rlm_error **err)
{
    if (n >= g->nodes.len) {
        return 1;
    }
    RLM_VEC(rlm_graph *) gone = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && i < g->children.len; i++) {
        rlm_graph *child = g->children.items[i];
        if (!is_named(g, n, child) && (child->launch || is_named(g, g->nodes.len, child))) {
            rlm_graph **slot = rlm_vec_push(&gone);
            r = slot ? 0 : rlm_error_nomem(err);
            if (slot) {
                *slot = child;
            }
        }
    }
    r = r < 0 ? r : rlm_edit_truncate(g, n, gone.items, gone.len, err);
    free(gone.items);
    return r;
}

/* How many nodes the parent keeps when the child has not ended yet: up to the one that launched it. */
static size_t nodes_until_launch(const rlm_graph *parent, const rlm_graph *child)
{
    for (size_t i = 0; i < parent->nodes.len; i++) {
        const struct rlm_node *node = parent->nodes.items[i];
        for (size_t k = 0; node->type == RLM_SUPERVISING_OUTPUT && k < node->n_agents; k++) {
            if (strcmp(node->agents[k], child->agent_id) == 0) {
                return i + 1;
            }
        }
    }
    return parent->nodes.len;
}

/* The agent on the way from the root to `g` whose depth is `depth`. */
static rlm_graph *ancestor(rlm_graph *g, int depth)
{
    while (g->depth > depth) {
        g = g->parent;
    }
    return g;
}

int rlm_graph_rewind(rlm_graph *g, const char *node_id, rlm_error **err)
{
    size_t index;
    int r = rlm_edit_find(g, node_id, &index, err);
    bool nothing = true;
    /* From the top down: wherever this is interrupted, the tree is one that a run can go on with. */
    for (int depth = 0; r >= 0 && depth < g->depth; depth++) {
        rlm_graph *above = ancestor(g, depth);
        r = rewind_one(above, nodes_until_launch(above, ancestor(g, depth + 1)), err);
        nothing = nothing && r != 0;
    }
    if (r >= 0) {
        r = rewind_one(g, index + 1, err);
        nothing = nothing && r != 0;
    }
    return r < 0 ? r : nothing;
}
