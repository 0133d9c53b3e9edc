/* Events, and lines of JSON that tell of them, as changes of another graph. */
#include "graph/edit.h"
#include "graph/record.h"

#include <stdio.h>
#include <stdlib.h>

/* What an event says. */
struct change {
    enum rlm_event_type type;
    rlm_str agent_id, parent_id;
    struct rlm_graph_options start; /* of a graph that is made */
    char graph_id[36];
    struct rlm_node node;
    bool has_node, subtree;
};

enum { NO_CHANGE = 1 };

static const struct {
    const char *name;
    enum rlm_event_type type;
} changes[] = {
    {"graph_created", RLM_EVENT_GRAPH_CREATED}, {"append_node", RLM_EVENT_APPEND_NODE},
    {"insert_node", RLM_EVENT_INSERT_NODE},     {"replace_node", RLM_EVENT_REPLACE_NODE},
    {"remove_node", RLM_EVENT_REMOVE_NODE},     {"add_child", RLM_EVENT_ADD_CHILD},
    {"remove_child", RLM_EVENT_REMOVE_CHILD},
};

enum { N_CHANGES = sizeof changes / sizeof *changes };

/* ---- making the change ----------------------------------------------------------------------- */

static int invalid(rlm_error **err, const char *what)
{
    return rlm_error_set(err, RLM_E_INVAL, "an event out of order: %s", what);
}

static int create(rlm_graph **graph, const struct change *c, rlm_error **err)
{
    if (*graph) {
        return invalid(err, "the graph is there already");
    }
    int r = rlm_graph_new(&c->start, graph, err);
    if (r == 0 && c->graph_id[0]) {
        memcpy((*graph)->graph_id, c->graph_id, sizeof c->graph_id);
    }
    return r;
}

static int add_child(rlm_graph *root, const struct change *c, rlm_error **err)
{
    rlm_graph *child, *parent = rlm_map_get(&root->agents, c->parent_id);
    size_t before = c->parent_id.len + 1;
    if (!parent) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "there is no agent \"%.*s\"",
                             c->parent_id.len > 200 ? 200 : (int)c->parent_id.len,
                             c->parent_id.ptr);
    }
    if (c->agent_id.len <= before || !rlm_str_starts(c->agent_id, parent->agent_id) ||
        c->agent_id.ptr[before - 1] != '.' || memchr(c->agent_id.ptr, '\0', c->agent_id.len)) {
        return invalid(err, "a child's id does not begin with that of its parent");
    }
    return rlm_edit_add_child(parent, c->agent_id.ptr + before, &c->start, &child, err);
}

static int remove_node(rlm_graph *g, const struct change *c, rlm_error **err)
{
    size_t index = c->node.seq;
    if (index >= g->nodes.len || strcmp(g->nodes.items[index]->id, c->node.id) != 0) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "agent %s has no node \"%s\" at %zu",
                             g->agent_id, c->node.id, index);
    }
    return c->subtree ? rlm_edit_truncate(g, index, NULL, 0, err) : rlm_edit_remove(g, index, err);
}

static int change_node(rlm_graph *g, const struct change *c, rlm_error **err)
{
    size_t index = c->node.seq;
    if (!c->has_node) {
        return invalid(err, "it has no node");
    }
    switch (c->type) {
    case RLM_EVENT_APPEND_NODE:
        return index != g->nodes.len ? invalid(err, "a node is missing before the one it appends")
                                     : rlm_graph_append_node(g, &c->node, NULL, err);
    case RLM_EVENT_INSERT_NODE:
        return index > g->nodes.len ? invalid(err, "there is no such place to insert a node at")
                                    : rlm_edit_insert(g, index, &c->node, NULL, err);
    case RLM_EVENT_REPLACE_NODE:
        return index >= g->nodes.len ? invalid(err, "there is no node to replace")
                                     : rlm_edit_replace(g, index, &c->node, NULL, err);
    default:
        return remove_node(g, c, err);
    }
}

static int apply(rlm_graph **graph, const struct change *c, rlm_error **err)
{
    if (c->type == RLM_EVENT_GRAPH_CREATED) {
        return create(graph, c, err);
    }
    if (!*graph) {
        return invalid(err, "there is no graph yet");
    }
    rlm_graph *root = (*graph)->root;
    if (c->type == RLM_EVENT_ADD_CHILD) {
        return add_child(root, c, err);
    }
    rlm_graph *g = rlm_map_get(&root->agents, c->agent_id);
    if (!g) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "there is no agent \"%.*s\"",
                             c->agent_id.len > 200 ? 200 : (int)c->agent_id.len, c->agent_id.ptr);
    }
    return c->type == RLM_EVENT_REMOVE_CHILD ? rlm_graph_remove_child(g, err)
                                             : change_node(g, c, err);
}

/* ---- from an event --------------------------------------------------------------------------- */

int rlm_graph_apply(rlm_graph **graph, const struct rlm_event *event, rlm_error **err)
{
    if (event->type >= RLM_EVENT_STATE) {
        return NO_CHANGE;
    }
    const rlm_graph *g = event->graph;
    if (event->type == RLM_EVENT_GRAPH_CREATED && !*graph) {
        return rlm_edit_copy_tree(g->root, graph, err); /* of a run that goes on, it has nodes */
    }
    struct change c = {
        .type = event->type,
        .agent_id = rlm_str_of(g->agent_id),
        .parent_id = rlm_str_of(g->parent ? g->parent->agent_id : ""),
        .start = {.query = g->query,
                  .inputs = g->inputs,
                  .model = g->model,
                  .output_schema = g->output_schema,
                  .launch = g->launch,
                  .launch_part = g->launch_part},
        .has_node = event->node != NULL,
        .subtree = event->subtree,
    };
    if (event->node) {
        c.node = *event->node;
    }
    return apply(graph, &c, err);
}

/* ---- from a line ----------------------------------------------------------------------------- */

struct line {
    rlm_arena *arena;
    rlm_error **err;
    int status; /* the first failure stands */
};

static void
take_with(struct line *l,
          int (*get)(const rlm_json *, rlm_blobs *, rlm_arena *, rlm_str *, rlm_error **),
          const rlm_json *object,
          const char *key,
          rlm_str *ret_text)
{
    if (l->status == 0 &&
        (l->status = get(rlm_json_get(object, key), NULL, l->arena, ret_text, l->err)) < 0) {
        rlm_error_wrap(l->err, l->status, "the member \"%s\"", key);
    }
}

static void take(struct line *l, const rlm_json *object, const char *key, rlm_str *ret_text)
{
    take_with(l, rlm_record_get_text, object, key, ret_text);
}

static void take_json(struct line *l, const rlm_json *object, const char *key, rlm_str *ret_json)
{
    take_with(l, rlm_record_get_json, object, key, ret_json);
}

/* Dollars in the unit that is counted: the decimal point moves, and no digit is lost. */
static int64_t nano_of(const rlm_json *cost)
{
    char moved[64];
    if (!rlm_json_is(cost, RLM_JSON_NUMBER) || cost->text.len > sizeof moved / 2) {
        return 0;
    }
    size_t digits = 0;
    while (digits < cost->text.len && cost->text.ptr[digits] != 'e' &&
           cost->text.ptr[digits] != 'E') {
        digits++;
    }
    int exponent = digits < cost->text.len ? atoi(cost->text.ptr + digits + 1) : 0;
    int len = snprintf(moved, sizeof moved, "%.*se%d", (int)digits, cost->text.ptr, exponent + 9);
    rlm_json number = {.type = RLM_JSON_NUMBER, .text = {moved, (size_t)len}};
    return rlm_json_int(&number, 0);
}

static void take_node(struct line *l, const rlm_json *object, struct rlm_node *node)
{
    const rlm_json *usage = rlm_json_get(object, "usage"), *agents = rlm_json_get(object, "agents");
    int type = rlm_node_type_of(rlm_json_text(rlm_json_get(object, "type"), RLM_STR("")));
    rlm_str id = rlm_json_text(rlm_json_get(object, "id"), RLM_STR(""));
    int64_t seq = rlm_json_int(rlm_json_get(object, "seq"), -1);
    if (l->status == 0 && (type < 0 || seq < 0 || seq > UINT32_MAX || !id.len)) {
        l->status = rlm_error_set(l->err, RLM_E_PARSE, "the event's node has no %s",
                                  type < 0 ? "type that is known"
                                  : id.len ? "\"seq\", which says where it stands"
                                           : "\"id\"");
    }
    node->type = (enum rlm_node_type)type;
    node->seq = (uint32_t)seq;
    snprintf(node->id, sizeof node->id, "%.*s", RLM_FMT(id));
    node->time_us = rlm_json_int(rlm_json_get(object, "time_us"), 0);
    node->call_id = rlm_json_int(rlm_json_get(object, "call_id"), 0);
    node->usage = (struct rlm_usage){
        .calls = rlm_json_int(rlm_json_get(usage, "calls"), 0),
        .input_tokens = rlm_json_int(rlm_json_get(usage, "input_tokens"), 0),
        .cached_tokens = rlm_json_int(rlm_json_get(usage, "cached_tokens"), 0),
        .output_tokens = rlm_json_int(rlm_json_get(usage, "output_tokens"), 0),
        .cost_nano = nano_of(rlm_json_get(usage, "cost")),
        .estimated = rlm_json_int(rlm_json_get(usage, "estimated"), 0),
    };
    take(l, object, "content", &node->content);
    take(l, object, "code", &node->code);
    take(l, object, "output", &node->output);
    take(l, object, "error", &node->error);
    take(l, object, "result", &node->result);
    take(l, object, "reason", &node->reason);
    take(l, object, "model", &node->model);
    take_json(l, object, "metadata", &node->metadata);
    uint32_t n = rlm_json_is(agents, RLM_JSON_ARRAY) ? agents->count : 0;
    const char **ids = n ? rlm_arena_alloc(l->arena, n * sizeof *ids) : NULL;
    for (uint32_t i = 0; l->status == 0 && i < n; i++) {
        rlm_str text = rlm_json_text(rlm_json_at(agents, i), RLM_STR(""));
        if (!ids || !(ids[i] = rlm_arena_copy(l->arena, text).ptr)) {
            l->status = rlm_error_nomem(l->err);
        }
    }
    node->agents = ids;
    node->n_agents = n;
}

static void take_change(struct line *l, const rlm_json *object, struct change *c)
{
    const rlm_json *node = rlm_json_get(object, "node");
    rlm_str graph_id = rlm_json_text(rlm_json_get(object, "graph_id"), RLM_STR(""));
    take(l, object, "agent_id", &c->agent_id);
    take(l, object, "parent_agent_id", &c->parent_id);
    take(l, object, "query", &c->start.query);
    take_json(l, object, "inputs", &c->start.inputs);
    take(l, object, "model", &c->start.model);
    take_json(l, object, "output_schema", &c->start.output_schema);
    c->start.agent_id = c->agent_id.ptr;
    c->start.launch = rlm_json_int(rlm_json_get(object, "call"), 0);
    c->start.launch_part = rlm_json_int(rlm_json_get(object, "part"), 0);
    c->subtree = rlm_json_bool(rlm_json_get(object, "subtree"), false);
    snprintf(c->graph_id, sizeof c->graph_id, "%.*s", RLM_FMT(graph_id));
    if (rlm_json_is(node, RLM_JSON_OBJECT)) {
        c->has_node = true;
        take_node(l, node, &c->node);
    }
}

int rlm_graph_apply_json(rlm_graph **graph, struct rlm_str text, rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    struct line l = {.arena = arena, .err = err};
    const rlm_json *object;
    if (!arena) {
        return rlm_error_nomem(err);
    }
    int r = rlm_json_parse(arena, text, &object, err);
    if (r < 0) {
        return r;
    }
    rlm_str type = rlm_json_text(rlm_json_get(object, "type"), RLM_STR(""));
    if (!type.len) {
        return rlm_error_set(err, RLM_E_PARSE, "the line is no event: it has no type");
    }
    for (size_t i = 0; i < N_CHANGES; i++) {
        if (rlm_str_is(type, changes[i].name)) {
            struct change c = {.type = changes[i].type};
            take_change(&l, object, &c);
            if (l.status == 0 && !c.agent_id.len) {
                l.status = rlm_error_set(err, RLM_E_PARSE,
                                         "the event has no \"agent_id\", which says whose it is");
            }
            return l.status < 0 ? l.status : apply(graph, &c, err);
        }
    }
    return NO_CHANGE;
}
