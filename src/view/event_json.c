/* Events and nodes as one line of JSON. */
#include "base/json.h"
#include "graph/record.h"

static const char *const event_names[] = {
    [RLM_EVENT_GRAPH_CREATED] = "graph_created",
    [RLM_EVENT_APPEND_NODE] = "append_node",
    [RLM_EVENT_INSERT_NODE] = "insert_node",
    [RLM_EVENT_REPLACE_NODE] = "replace_node",
    [RLM_EVENT_REMOVE_NODE] = "remove_node",
    [RLM_EVENT_ADD_CHILD] = "add_child",
    [RLM_EVENT_REMOVE_CHILD] = "remove_child",
    [RLM_EVENT_STATE] = "state",
    [RLM_EVENT_DELTA] = "delta",
    [RLM_EVENT_NOTICE] = "notice",
};

/* Texts of nodes are bounded by the records they stand in and the blobs of the run. */
#define LINE_MAX_BYTES ((size_t)4 << 30)

/* As records have texts: what a JSON string cannot hold comes back too (rlm_graph_apply_json). */
static void put_text(struct rlm_json_writer *w, const char *key, rlm_str text)
{
    rlm_json_key(w, key);
    rlm_record_put_text(w, NULL, text, NULL);
}

static void member(struct rlm_json_writer *w, const char *key, rlm_str text)
{
    if (text.len) {
        put_text(w, key, text);
    }
}

/* A text that is JSON, on one line. */
static void member_json(struct rlm_json_writer *w, const char *key, rlm_str json)
{
    rlm_auto_arena rlm_arena *arena = NULL;
    const rlm_json *value;
    if (!memchr(json.ptr, '\n', json.len) && !memchr(json.ptr, '\r', json.len)) {
        rlm_json_member_raw(w, key, json);
    } else if ((arena = rlm_arena_new(0)) && rlm_json_parse(arena, json, &value, NULL) == 0) {
        rlm_json_key(w, key);
        rlm_json_put(w, value);
    } else {
        put_text(w, key, json);
    }
}

static void put_usage(struct rlm_json_writer *w, const struct rlm_usage *usage)
{
    rlm_json_key(w, "usage");
    rlm_json_begin(w, '{');
    rlm_json_member_int(w, "calls", usage->calls);
    rlm_json_member_int(w, "input_tokens", usage->input_tokens);
    rlm_json_member_int(w, "cached_tokens", usage->cached_tokens);
    rlm_json_member_int(w, "output_tokens", usage->output_tokens);
    rlm_json_member_double(w, "cost", (double)usage->cost_nano / 1e9);
    rlm_json_member_int(w, "estimated", usage->estimated);
    rlm_json_end(w, '}');
}

static void put_node(struct rlm_json_writer *w, const rlm_graph *g, const struct rlm_node *node)
{
    static const struct rlm_usage none;
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "id", node->id);
    rlm_json_member_text(w, "type", rlm_node_type_tag(node->type));
    rlm_json_member_text(w, "agent_id", rlm_graph_agent_id(g));
    rlm_json_member_int(w, "seq", node->seq);
    rlm_json_member_int(w, "time_us", node->time_us);
    put_text(w, "content", node->content);
    member(w, "code", node->code);
    member(w, "output", node->output);
    member(w, "error", node->error);
    bool done = node->type == RLM_DONE_OUTPUT;
    if (done || node->result.len) {
        put_text(w, "result", node->result);
    }
    if (done || node->reason.len) {
        put_text(w, "reason", node->reason);
    }
    member(w, "model", node->model);
    if (node->type == RLM_LLM_OUTPUT || memcmp(&node->usage, &none, sizeof none) != 0) {
        put_usage(w, &node->usage);
    }
    rlm_record_put_launch(w, node);
    if (node->metadata.len) {
        member_json(w, "metadata", node->metadata);
    }
    rlm_json_end(w, '}');
}

static void put_parent(struct rlm_json_writer *w, const rlm_graph *g)
{
    if (g->parent) {
        rlm_json_member_text(w, "parent_agent_id", g->parent->agent_id);
    }
}

static void put_graph(struct rlm_json_writer *w, const rlm_graph *g)
{
    rlm_json_member_int(w, "depth", g->depth);
    put_text(w, "query", g->query);
    member_json(w, "inputs", g->inputs);
    put_text(w, "model", g->model);
    if (g->output_schema.len) {
        member_json(w, "output_schema", g->output_schema);
    }
    put_parent(w, g);
    if (g->launch) {
        rlm_json_member_int(w, "call", g->launch);
        rlm_json_member_int(w, "part", g->launch_part);
    }
}

char *rlm_node_json(const rlm_graph *g, const struct rlm_node *node)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(LINE_MAX_BYTES);
    struct rlm_json_writer w = {.buf = &buf};
    put_node(&w, g, node);
    return rlm_buf_take(&buf);
}

char *rlm_event_json(const struct rlm_event *event)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(LINE_MAX_BYTES);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "type", event_names[event->type]);
    if (event->graph) {
        rlm_json_member_text(&w, "graph_id", rlm_graph_id(event->graph));
        rlm_json_member_text(&w, "agent_id", rlm_graph_agent_id(event->graph));
    }
    if (event->type == RLM_EVENT_GRAPH_CREATED || event->type == RLM_EVENT_ADD_CHILD) {
        put_graph(&w, event->graph);
    } else if (event->type == RLM_EVENT_REMOVE_CHILD) {
        put_parent(&w, event->graph);
    }
    if (event->node) {
        rlm_json_key(&w, "node");
        put_node(&w, event->graph, event->node);
    }
    if (event->subtree) {
        rlm_json_member_bool(&w, "subtree", true);
    }
    if (event->type == RLM_EVENT_DELTA || event->type == RLM_EVENT_NOTICE) {
        rlm_json_member_str(&w, "text", event->text);
    }
    rlm_json_end(&w, '}');
    return rlm_buf_take(&buf);
}
