/* One agent's trajectory, and one node in full. */
#include "view/timeline.h"
#include "view/tree.h"

#include <time.h>

/* What a trajectory shows of each text, also where no screen limits it; a node in full shows all. */
enum { EXCERPT_LINES = 12, EXCERPT_COLUMNS = 1000 };

static const struct rlm_view_options standard = RLM_VIEW_OPTIONS_INIT;

static void put_time(struct rlm_plain *p, int64_t time_us)
{
    time_t seconds = (time_t)(time_us / 1000000);
    struct tm local;
    char text[64];
    if (localtime_r(&seconds, &local) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local)) {
        rlm_plain_putf(p, "  %s", text);
    }
}

static void put_text(struct rlm_plain *p, const char *title, rlm_str text, size_t max_lines)
{
    if (!text.len) {
        return;
    }
    if (title) {
        rlm_plain_color(p, "2");
        rlm_plain_putf(p, "  %s:", title);
        rlm_plain_color(p, NULL);
        rlm_plain_end(p);
    }
    rlm_plain_block(p, text, title ? "    " : "  ", max_lines);
}

static void put_head(struct rlm_plain *p, const struct rlm_node *node)
{
    rlm_plain_color(p, "1");
    rlm_plain_putf(p, "#%u %s", node->seq, rlm_node_type_tag(node->type));
    rlm_plain_color(p, NULL);
    rlm_plain_putf(p, "  %s", node->id);
    put_time(p, node->time_us);
    if (node->type == RLM_LLM_OUTPUT) {
        rlm_plain_puts(p, "  ");
        rlm_plain_put(p, node->model);
        rlm_plain_puts(p, "  ");
        rlm_plain_count(p, node->usage.input_tokens);
        rlm_plain_puts(p, " in, ");
        rlm_plain_count(p, node->usage.output_tokens);
        rlm_plain_puts(p, node->usage.estimated ? " out (estimated)" : " out");
        if (node->usage.cost_nano > 0) {
            rlm_plain_puts(p, "  ");
            rlm_plain_money(p, node->usage.cost_nano);
        }
    }
    if (node->error.len) {
        rlm_plain_puts(p, "  ");
        rlm_plain_color(p, "31");
        rlm_plain_put(p, rlm_view_error(node->error));
        rlm_plain_color(p, NULL);
    }
    if (node->reason.len) {
        rlm_plain_puts(p, "  ");
        rlm_plain_color(p, rlm_view_state_color(node->reason));
        rlm_plain_put(p, node->reason);
        rlm_plain_color(p, NULL);
    }
    rlm_plain_end(p);
}

static void put_agents(struct rlm_plain *p, const struct rlm_node *node)
{
    if (!node->n_agents) {
        return;
    }
    rlm_plain_puts(p, "  agents:");
    for (size_t i = 0; i < node->n_agents; i++) {
        rlm_plain_puts(p, i ? ", " : " ");
        rlm_plain_puts(p, node->agents[i]);
    }
    rlm_plain_end(p);
}

/* A reply holds its code, an output equals its content but for the end of its last line: each text is
 * shown once. */
static void put_texts(struct rlm_plain *p, const struct rlm_node *node, size_t max_lines, bool full)
{
    put_text(p, NULL, node->content, max_lines);
    if (node->type != RLM_LLM_OUTPUT || full) {
        put_text(p, full ? "code" : NULL, node->code, max_lines);
    }
    rlm_str printed = node->output;
    printed.len -= printed.len && printed.ptr[printed.len - 1] == '\n';
    bool repeated =
        printed.len && memmem(node->content.ptr, node->content.len, printed.ptr, printed.len);
    if (full ? !rlm_str_eq(printed, node->content) : !repeated) {
        put_text(p, "output", node->output, max_lines);
    }
    put_agents(p, node);
    put_text(p, "answer", node->result, max_lines);
    if (full) {
        put_text(p, "metadata", node->metadata, max_lines);
    }
}

static void put_stop(struct rlm_plain *p,
                     const struct rlm_timeline *t,
                     const struct rlm_node *before,
                     const struct rlm_node *node)
{
    const struct rlm_stop *stop = rlm_timeline_stop_before(t, before, node);
    if (stop) {
        rlm_plain_color(p, "31");
        rlm_plain_puts(p, "-- the run was stopped, and went on");
        put_time(p, stop->resumed_us);
        rlm_plain_color(p, NULL);
        rlm_plain_end(p);
        rlm_plain_end(p);
    }
}

/* What was said when somebody was asked after this node. */
static void
put_gates(struct rlm_plain *p, const struct rlm_timeline *t, const struct rlm_node *node)
{
    for (const struct rlm_gate_said *gate = rlm_timeline_gate(t, node->id); gate;
         gate = rlm_timeline_next_gate(t, gate)) {
        rlm_auto_buf struct rlm_buf text = RLM_BUF(RLM_VIEW_MAX_BYTES);
        rlm_timeline_put_gate(&text, gate);
        rlm_plain_puts(p, "  approval: ");
        rlm_plain_put(p, rlm_buf_str(&text));
        rlm_plain_end(p);
    }
}

char *rlm_view_node(const rlm_graph *g,
                    const struct rlm_node *node,
                    const struct rlm_view_options *options)
{
    const struct rlm_view_options *o = options ? options : &standard;
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    struct rlm_plain p = {.out = &out, .color = o->color};
    rlm_plain_puts(&p, rlm_graph_agent_id(g));
    rlm_plain_puts(&p, " ");
    put_head(&p, node);
    put_texts(&p, node, 0, true);
    return rlm_buf_take(&out);
}

char *rlm_view_agent(const rlm_graph *g, const struct rlm_view_options *options)
{
    const struct rlm_view_options *o = options ? options : &standard;
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    int width = o->width ? o->width : EXCERPT_COLUMNS;
    struct rlm_plain p = {.out = &out, .width = width, .color = o->color};
    rlm_str state = rlm_view_state(g, o);
    struct rlm_timeline timeline;
    if (rlm_timeline_load(g, o->journal, &timeline, NULL) < 0 &&
        rlm_timeline_load(g, NULL, &timeline, NULL) < 0) {
        return NULL; /* there is no memory; a journal that is gone by now is missed by nobody */
    }
    rlm_plain_color(&p, "1");
    rlm_plain_puts(&p, rlm_graph_agent_id(g));
    rlm_plain_color(&p, NULL);
    rlm_plain_puts(&p, "  ");
    rlm_plain_color(&p, rlm_view_state_color(state));
    rlm_plain_put(&p, state);
    rlm_plain_color(&p, NULL);
    rlm_view_put_usage(&p, g->turns, &g->own);
    if (g->children.len) {
        rlm_plain_putf(&p, "  %zu sub-agent%s", g->children.len, g->children.len == 1 ? "" : "s");
    }
    rlm_plain_end(&p);
    for (size_t i = 0; i < rlm_graph_node_count(g) && out.status == 0; i++) {
        const struct rlm_node *node = rlm_graph_node(g, i);
        rlm_plain_end(&p);
        put_stop(&p, &timeline, i ? rlm_graph_node(g, i - 1) : NULL, node);
        put_head(&p, node);
        put_texts(&p, node, EXCERPT_LINES, false);
        put_gates(&p, &timeline, node);
    }
    rlm_timeline_deinit(&timeline);
    return rlm_buf_take(&out);
}
