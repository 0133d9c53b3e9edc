#include "graph/graph.h"

#include "base/loop.h"
#include "graph/journal.h"

static const char *const tags[] = {
    [RLM_USER_QUERY] = "user_query",
    [RLM_LLM_OUTPUT] = "llm_output",
    [RLM_EXEC_ACTION] = "exec_action",
    [RLM_EXEC_OUTPUT] = "exec_output",
    [RLM_SUPERVISING_OUTPUT] = "supervising_output",
    [RLM_RESUME_ACTION] = "resume_action",
    [RLM_ERROR_OUTPUT] = "error_output",
    [RLM_DONE_OUTPUT] = "done_output",
};

enum { N_TAGS = sizeof tags / sizeof *tags };

const char *rlm_node_type_tag(enum rlm_node_type type)
{
    return (unsigned)type < N_TAGS ? tags[type] : "unknown";
}

int rlm_node_type_of(rlm_str name)
{
    for (int i = 0; i < N_TAGS; i++) {
        if (rlm_str_is(name, tags[i])) {
            return i;
        }
    }
    return -1;
}

/* `ret` gets a prefix of two characters and `n_bytes` random bytes in hexadecimal. */
static void make_id(char *ret, const char *prefix, size_t n_bytes)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[16];
    rlm_random(bytes, n_bytes);
    *ret++ = prefix[0];
    *ret++ = prefix[1];
    for (size_t i = 0; i < n_bytes; i++) {
        *ret++ = digits[bytes[i] >> 4];
        *ret++ = digits[bytes[i] & 15];
    }
    *ret = '\0';
}

/* ---- making graphs --------------------------------------------------------------------------- */

static bool copy_texts(rlm_graph *g, const struct rlm_graph_options *options)
{
    g->query = rlm_arena_copy(g->arena, options->query);
    g->inputs = options->inputs.len ? rlm_arena_copy(g->arena, options->inputs) : RLM_STR("{}");
    g->model = options->model.len ? rlm_arena_copy(g->arena, options->model) : RLM_STR("default");
    g->output_schema = rlm_arena_copy(g->arena, options->output_schema);
    return g->query.ptr && g->inputs.ptr && g->model.ptr && g->output_schema.ptr;
}

static int check_id(size_t len, rlm_error **err)
{
    if (len == 0) {
        return rlm_error_set(err, RLM_E_INVAL, "an agent's name is empty");
    }
    if (len > RLM_AGENT_ID_MAX_BYTES) {
        return rlm_error_set(
            err, RLM_E_LIMIT,
            "an agent's id would have %zu bytes, more than %d: use shorter names or "
            "a smaller depth",
            len, RLM_AGENT_ID_MAX_BYTES);
    }
    return 0;
}

void rlm_graph_renew_id(rlm_graph *root)
{
    make_id(root->graph_id, "g_", 16);
}

int rlm_graph_new(const struct rlm_graph_options *options, rlm_graph **ret_graph, rlm_error **err)
{
    rlm_str id = rlm_str_of(options->agent_id ? options->agent_id : "root");
    int r = check_id(id.len, err);
    if (r < 0) {
        return r;
    }
    rlm_graph *g;
    if (!RLM_NEW(g)) {
        return rlm_error_nomem(err);
    }
    g->root = g;
    rlm_graph_renew_id(g);
    g->arena = rlm_arena_new(0);
    g->agent_id = g->arena ? rlm_arena_copy(g->arena, id).ptr : NULL;
    g->name = g->agent_id;
    if (!g->agent_id || !copy_texts(g, options) || rlm_map_set(&g->agents, id, g) < 0) {
        rlm_graph_free(g);
        return rlm_error_nomem(err);
    }
    *ret_graph = g;
    return 0;
}

int rlm_graph_add_child(rlm_graph *parent,
                        const char *name,
                        const struct rlm_graph_options *options,
                        rlm_graph **ret_child,
                        rlm_error **err)
{
    rlm_graph *root = parent->root;
    size_t name_len = name ? strlen(name) : 0;
    int r = check_id(name_len ? strlen(parent->agent_id) + 1 + name_len : 0, err);
    if (r < 0) {
        return r;
    }
    rlm_str id = rlm_arena_printf(root->arena, "%s.%s", parent->agent_id, name);
    if (!id.ptr) {
        return rlm_error_nomem(err);
    }
    if (rlm_map_has(&root->agents, id)) {
        return rlm_error_set(err, RLM_E_EXISTS,
                             "agent %s already exists: give the child another name", id.ptr);
    }
    rlm_graph *child = rlm_arena_alloc(root->arena, sizeof *child);
    if (!child) {
        return rlm_error_nomem(err);
    }
    child->parent = parent;
    child->root = root;
    child->arena = root->arena;
    child->agent_id = id.ptr;
    child->name = id.ptr + id.len - name_len;
    child->depth = parent->depth + 1;
    child->index = parent->children.len;
    child->launch = options->launch;
    child->launch_part = options->launch_part;
    if (!copy_texts(child, options) || rlm_map_set(&root->agents, id, child) < 0) {
        return rlm_error_nomem(err);
    }
    rlm_graph **slot = rlm_vec_push(&parent->children);
    if (!slot) {
        rlm_map_remove(&root->agents, id);
        return rlm_error_nomem(err);
    }
    *slot = child;
    *ret_child = child;
    return 0;
}

void rlm_graph_free(rlm_graph *root)
{
    if (!root) {
        return;
    }
    /* Every graph of the tree is in the map: no walk, so no order of freeing to get wrong. */
    size_t pos = 0;
    rlm_str id;
    void *value;
    while (rlm_map_next(&root->agents, &pos, &id, &value)) {
        rlm_graph *g = value;
        free(g->nodes.items);
        free(g->children.items);
    }
    rlm_map_deinit(&root->agents);
    rlm_arena_free(root->arena);
    rlm_journal_close(root->journal);
    free(root);
}

/* ---- appending ------------------------------------------------------------------------------- */

/* Copies a text unless it equals one that the graph already has. */
static bool share_text(rlm_arena *a, rlm_str *text, rlm_str known)
{
    if (text->len == 0) {
        *text = RLM_STR("");
    } else if (known.len && rlm_str_eq(*text, known)) {
        *text = known;
    } else {
        *text = rlm_arena_copy(a, *text);
    }
    return text->ptr != NULL;
}

/* Words of a fixed vocabulary cost no memory a node. */
static rlm_str known_word(rlm_str word)
{
    static const char *const words[] = {
        "answered", "max_iters", "budget",  "cost",         "time",         "terminated",
        "failed",   "exec",      "no_code", "exec_timeout", "session_died", "interrupted",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (rlm_str_is(word, words[i])) {
            return (rlm_str){words[i], word.len};
        }
    }
    return RLM_STR_NONE;
}

static bool copy_agents(rlm_graph *root, struct rlm_node *node)
{
    if (node->n_agents == 0) {
        node->agents = NULL;
        return true;
    }
    const char **ids = rlm_arena_alloc(root->arena, node->n_agents * sizeof *ids);
    if (!ids) {
        return false;
    }
    for (size_t i = 0; i < node->n_agents; i++) {
        rlm_str id = rlm_str_of(node->agents[i]);
        const rlm_graph *agent = rlm_map_get(&root->agents, id);
        ids[i] = agent ? agent->agent_id : rlm_arena_copy(root->arena, id).ptr;
        if (!ids[i]) {
            return false;
        }
    }
    node->agents = ids;
    return true;
}

static bool copy_node_texts(rlm_graph *g, struct rlm_node *n)
{
    rlm_arena *a = g->arena;
    const struct rlm_node *last = rlm_graph_current(g);
    const struct rlm_node *before = g->nodes.len > 1 ? g->nodes.items[g->nodes.len - 2] : NULL;
    /* The code of an exec_action is mostly that of the llm_output before it. */
    rlm_str last_code = last ? last->code : RLM_STR_NONE;
    rlm_str known_model = g->model;
    if (last && last->model.len) {
        known_model = last->model;
    } else if (before && before->model.len) {
        known_model = before->model;
    }
    return share_text(a, &n->content, RLM_STR_NONE) && share_text(a, &n->output, n->content) &&
           share_text(a, &n->result, n->content) && share_text(a, &n->code, last_code) &&
           share_text(a, &n->error, known_word(n->error)) &&
           share_text(a, &n->reason, known_word(n->reason)) &&
           share_text(a, &n->model, rlm_str_eq(n->model, g->model) ? g->model : known_model) &&
           share_text(a, &n->metadata, RLM_STR_NONE);
}

int rlm_graph_copy_node(rlm_graph *g,
                        const struct rlm_node *node,
                        struct rlm_node **ret_node,
                        rlm_error **err)
{
    if ((unsigned)node->type >= N_TAGS) {
        return rlm_error_set(err, RLM_E_INVAL, "a node of the unknown type %d", (int)node->type);
    }
    struct rlm_entry *entry = rlm_arena_alloc(g->arena, sizeof *entry);
    if (!entry) {
        return rlm_error_nomem(err);
    }
    struct rlm_node *copy = &entry->node;
    *copy = *node;
    copy->id[sizeof copy->id - 1] = '\0';
    if (!copy->id[0]) {
        make_id(copy->id, "n_", 8);
    }
    if (!copy->time_us) {
        copy->time_us = rlm_wall_us();
    }
    if (!copy_node_texts(g, copy) || !copy_agents(g->root, copy)) {
        return rlm_error_nomem(err);
    }
    *ret_node = copy;
    return 0;
}

void rlm_graph_count_turn(rlm_graph *g, size_t i)
{
    enum rlm_node_type type = g->nodes.items[i]->type;
    /* A query in the middle, of whoever watches, makes no new task. */
    if (type == RLM_USER_QUERY && i > 0 && g->nodes.items[i - 1]->type == RLM_DONE_OUTPUT) {
        g->task_turns = 0;
    }
    g->turns += type == RLM_LLM_OUTPUT;
    g->task_turns += type == RLM_LLM_OUTPUT;
}

int rlm_graph_append(rlm_graph *g,
                     const struct rlm_node *node,
                     const struct rlm_node **ret_node,
                     rlm_error **err)
{
    if (rlm_graph_finished(g) && node->type != RLM_USER_QUERY) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "agent %s has ended: only a user_query may follow, not %s",
                             g->agent_id, rlm_node_type_tag(node->type));
    }
    if (g->nodes.len >= UINT32_MAX) {
        return rlm_error_set(err, RLM_E_LIMIT, "agent %s has %zu nodes, the most there can be",
                             g->agent_id, g->nodes.len);
    }
    struct rlm_node *copy;
    int r = rlm_graph_copy_node(g, node, &copy, err);
    if (r < 0) {
        return r;
    }
    struct rlm_node **slot = rlm_vec_push(&g->nodes);
    if (!slot) {
        return rlm_error_nomem(err);
    }
    *slot = copy;
    copy->seq = (uint32_t)(g->nodes.len - 1);
    rlm_graph_count_turn(g, copy->seq);
    rlm_graph_add_usage(g, &copy->usage);
    if (ret_node) {
        *ret_node = copy;
    }
    return 0;
}

int rlm_graph_reopen(rlm_graph *g, rlm_error **err)
{
    if (!rlm_graph_finished(g)) {
        return rlm_error_set(err, RLM_E_INVAL, "agent %s has not ended", g->agent_id);
    }
    g->nodes.len--;
    return 0;
}

/* Provider's numbers are foreign: a sum stands at its limit and does not wrap. */
static void add_count(int64_t *sum, int64_t more)
{
    if (__builtin_add_overflow(*sum, more, sum)) {
        *sum = more < 0 ? INT64_MIN : INT64_MAX;
    }
}

void rlm_usage_add(struct rlm_usage *sum, const struct rlm_usage *more)
{
    add_count(&sum->calls, more->calls);
    add_count(&sum->input_tokens, more->input_tokens);
    add_count(&sum->cached_tokens, more->cached_tokens);
    add_count(&sum->output_tokens, more->output_tokens);
    add_count(&sum->cost_nano, more->cost_nano);
    add_count(&sum->estimated, more->estimated);
}

void rlm_graph_add_usage(rlm_graph *g, const struct rlm_usage *usage)
{
    static const struct rlm_usage none;
    if (memcmp(usage, &none, sizeof none) == 0) {
        return;
    }
    rlm_usage_add(&g->own, usage);
    for (; g; g = g->parent) {
        rlm_usage_add(&g->total, usage);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

bool rlm_agent_is_within(rlm_str agent_id, rlm_str top)
{
    return agent_id.len >= top.len && memcmp(agent_id.ptr, top.ptr, top.len) == 0 &&
           (agent_id.len == top.len || agent_id.ptr[top.len] == '.');
}

rlm_graph *rlm_graph_next(const rlm_graph *root, const rlm_graph *g)
{
    if (g->children.len) {
        return g->children.items[0];
    }
    for (; g != root; g = g->parent) {
        if (g->index + 1 < g->parent->children.len) {
            return g->parent->children.items[g->index + 1];
        }
    }
    return NULL;
}

const char *rlm_graph_id(const rlm_graph *g)
{
    return g->root->graph_id;
}

const char *rlm_graph_agent_id(const rlm_graph *g)
{
    return g->agent_id;
}

int rlm_graph_depth(const rlm_graph *g)
{
    return g->depth;
}

struct rlm_str rlm_graph_query(const rlm_graph *g)
{
    return g->query;
}

struct rlm_str rlm_graph_inputs(const rlm_graph *g)
{
    return g->inputs;
}

struct rlm_str rlm_graph_model(const rlm_graph *g)
{
    return g->model;
}

struct rlm_str rlm_graph_output_schema(const rlm_graph *g)
{
    return g->output_schema;
}

rlm_graph *rlm_graph_parent(const rlm_graph *g)
{
    return g->parent;
}

size_t rlm_graph_node_count(const rlm_graph *g)
{
    return g->nodes.len;
}

const struct rlm_node *rlm_graph_node(const rlm_graph *g, size_t index)
{
    return index < g->nodes.len ? g->nodes.items[index] : NULL;
}

const struct rlm_node *rlm_graph_current(const rlm_graph *g)
{
    return g->nodes.len ? g->nodes.items[g->nodes.len - 1] : NULL;
}

size_t rlm_graph_child_count(const rlm_graph *g)
{
    return g->children.len;
}

rlm_graph *rlm_graph_child(const rlm_graph *g, size_t index)
{
    return index < g->children.len ? g->children.items[index] : NULL;
}

rlm_graph *rlm_graph_agent(const rlm_graph *root, const char *agent_id)
{
    return rlm_map_get(&root->root->agents, rlm_str_of(agent_id));
}

static const struct rlm_node *terminal(const rlm_graph *g)
{
    const struct rlm_node *last = rlm_graph_current(g);
    return last && last->type == RLM_DONE_OUTPUT ? last : NULL;
}

bool rlm_graph_finished(const rlm_graph *g)
{
    return terminal(g) != NULL;
}

struct rlm_str rlm_graph_result(const rlm_graph *g)
{
    const struct rlm_node *end = terminal(g);
    return end && rlm_str_is(end->reason, "answered") ? end->result : RLM_STR("");
}

struct rlm_str rlm_graph_reason(const rlm_graph *g)
{
    const struct rlm_node *end = terminal(g);
    return end ? end->reason : RLM_STR("");
}

int rlm_graph_turns(const rlm_graph *g)
{
    return g->turns;
}

struct rlm_usage rlm_graph_usage(const rlm_graph *g, bool with_children)
{
    return with_children ? g->total : g->own;
}

size_t rlm_graph_agent_count(const rlm_graph *root)
{
    return root->root->agents.count;
}
