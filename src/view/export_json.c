/* One JSON document: the tree of agents with their nodes, nested. */
#include "view/export.h"

struct document {
    struct rlm_export *x;
    struct rlm_target *to;
    struct rlm_buf buf;
    struct rlm_json_writer w;
    rlm_error **err;
};

/* What is written goes out in pieces, so that the document need not fit the memory as a whole. */
static int flush(struct document *d, size_t from_bytes)
{
    int r = rlm_buf_check(&d->buf, d->err);
    if (r == 0 && d->buf.len >= from_bytes && d->buf.len) {
        r = rlm_target_write(d->to, d->buf.ptr, d->buf.len, d->err);
        rlm_buf_clear(&d->buf);
    }
    return r;
}

enum { PIECE = 256 * 1024 };

static int put_node(struct document *d, const rlm_graph *g, const struct rlm_node *node)
{
    rlm_autofree char *json = rlm_node_json(g, node);
    if (!json) {
        return rlm_error_nomem(d->err);
    }
    rlm_json_put_raw(&d->w, rlm_str_of(json));
    return flush(d, PIECE);
}

/* Up to the opening of its children. */
static int begin_graph(struct document *d, const rlm_graph *g)
{
    struct rlm_json_writer *w = &d->w;
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "agent_id", g->agent_id);
    rlm_json_member_text(w, "name", g->name);
    rlm_json_member_int(w, "depth", g->depth);
    if (g->launch) {
        rlm_json_member_int(w, "launch", g->launch);
        rlm_json_member_int(w, "launch_part", g->launch_part);
    }
    rlm_json_member_str(w, "query", g->query);
    rlm_json_key(w, "inputs");
    int r = rlm_export_put_json(d->x, w, g->inputs, d->err);
    rlm_json_member_str(w, "model", g->model);
    if (r == 0 && g->output_schema.len) {
        rlm_json_key(w, "output_schema");
        r = rlm_export_put_json(d->x, w, g->output_schema, d->err);
    }
    rlm_json_key(w, "usage"), rlm_export_put_usage(w, &g->own);
    rlm_json_key(w, "usage_with_children"), rlm_export_put_usage(w, &g->total);
    rlm_json_key(w, "nodes");
    rlm_json_begin(w, '[');
    for (size_t i = 0; r == 0 && i < g->nodes.len; i++) {
        r = put_node(d, g, g->nodes.items[i]);
    }
    rlm_json_end(w, ']');
    rlm_json_key(w, "children");
    rlm_json_begin(w, '[');
    return r < 0 ? r : flush(d, PIECE);
}

/* Closes the graphs from `g` up to the one whose child comes next, which may be any ancestor's. */
static void end_graphs(struct document *d, const rlm_graph *g, const rlm_graph *next)
{
    const rlm_graph *until = next ? next->parent : NULL;
    for (; g != until; g = g->parent) {
        rlm_json_end(&d->w, ']');
        rlm_json_end(&d->w, '}');
    }
}

static int put_tree(struct document *d)
{
    rlm_graph *g = d->x->root;
    int r = 0;
    while (r == 0 && g) {
        rlm_graph *next = rlm_graph_next(d->x->root, g);
        r = begin_graph(d, g);
        end_graphs(d, g, next);
        g = next;
    }
    return r;
}

static void put_head(struct document *d)
{
    struct rlm_json_writer *w = &d->w;
    const rlm_graph *root = d->x->root;
    rlm_json_member_text(w, "format", "rlmflow-run");
    rlm_json_member_int(w, "format_version", 1);
    rlm_json_member_text(w, "version", RLM_VERSION);
    rlm_json_member_text(w, "graph_id", rlm_graph_id(root));
    if (d->x->version.len) {
        rlm_json_member_str(w, "run_version", d->x->version);
        rlm_json_member_int(w, "started_us", d->x->started_us);
    }
    rlm_json_member_text(w, "note", d->x->note);
    if (rlm_graph_finished(root)) {
        rlm_json_member_str(w, "reason", rlm_graph_reason(root));
    } else {
        rlm_json_member_text(w, "reason", NULL);
    }
    if (rlm_str_is(rlm_graph_reason(root), "answered")) {
        rlm_json_member_str(w, "answer", rlm_graph_result(root));
    } else {
        rlm_json_member_text(w, "answer", NULL);
    }
    rlm_json_member_int(w, "agents", (int64_t)rlm_graph_agent_count(root));
    rlm_json_key(w, "usage"), rlm_export_put_usage(w, &root->total);
    rlm_json_member_raw(w, "options", d->x->options);
    rlm_json_key(w, "resumed");
    rlm_json_begin(w, '[');
    for (size_t i = 0; i < d->x->resumed.len; i++) {
        rlm_json_put_raw(w, d->x->resumed.items[i]);
    }
    rlm_json_end(w, ']');
}

int rlm_export_json(struct rlm_export *x, struct rlm_target *to, rlm_error **err)
{
    struct document d = {.x = x, .to = to, .buf = RLM_BUF(RLM_EXPORT_TEXT_MAX), .err = err};
    d.w.buf = &d.buf;
    rlm_json_begin(&d.w, '{');
    put_head(&d);
    rlm_json_key(&d.w, "graph");
    int r = put_tree(&d);
    rlm_json_end(&d.w, '}');
    rlm_buf_addc(&d.buf, '\n');
    if (r == 0) {
        r = flush(&d, 0);
    }
    rlm_buf_deinit(&d.buf);
    return r;
}
