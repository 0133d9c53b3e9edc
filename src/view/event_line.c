/* Events and foreign text as one line for people. */
#include "view/tree.h"

/* A line shows the beginning of a text; more is for `view`. */
enum { EXCERPT_BYTES = 4096, LINE_COLUMNS = 200 };

static rlm_str excerpt(rlm_str text)
{
    return rlm_str_sub(text, 0, text.len < EXCERPT_BYTES ? text.len : EXCERPT_BYTES);
}

static void put_titled(struct rlm_plain *p, const char *title, rlm_str text)
{
    rlm_plain_puts(p, title);
    if (text.len) {
        rlm_plain_puts(p, ": ");
        rlm_plain_put(p, excerpt(text));
    }
}

/* A reply without the lines that fence its code, which say nothing on one line. */
static void put_reply(struct rlm_plain *p, rlm_str text)
{
    rlm_str rest = excerpt(text);
    bool shown = false;
    for (size_t start = 0; start < rest.len && !p->full;) {
        const char *newline = memchr(rest.ptr + start, '\n', rest.len - start);
        size_t end = newline ? (size_t)(newline - rest.ptr) : rest.len;
        rlm_str line = rlm_str_sub(rest, start, end);
        bool fence =
            line.len >= 3 && (memcmp(line.ptr, "```", 3) == 0 || memcmp(line.ptr, "~~~", 3) == 0);
        if (line.len && !fence) {
            rlm_plain_puts(p, shown ? " " : " out: ");
            rlm_plain_put(p, line);
            shown = true;
        }
        start = end + 1;
    }
    if (!shown) {
        rlm_plain_puts(p, " out");
    }
}

static void put_agents(struct rlm_plain *p, const char *what, const struct rlm_node *node)
{
    rlm_plain_putf(p, "%s %zu sub-agent%s", what, node->n_agents, node->n_agents == 1 ? "" : "s");
}

static void put_node(struct rlm_plain *p, const rlm_graph *g, const struct rlm_node *node)
{
    switch (node->type) {
    case RLM_USER_QUERY:
        put_titled(p, "query", node->content);
        break;
    case RLM_LLM_OUTPUT:
        rlm_plain_putf(p, "turn %d, ", g->turns);
        rlm_plain_count(p, node->usage.input_tokens);
        rlm_plain_puts(p, " tokens in, ");
        rlm_plain_count(p, node->usage.output_tokens);
        put_reply(p, node->content);
        break;
    case RLM_EXEC_ACTION:
        put_titled(p, "runs", node->code);
        break;
    case RLM_EXEC_OUTPUT:
        put_titled(p, "printed", node->content);
        break;
    case RLM_SUPERVISING_OUTPUT:
        put_agents(p, "waits for", node);
        break;
    case RLM_RESUME_ACTION:
        put_agents(p, "goes on after", node);
        break;
    case RLM_ERROR_OUTPUT:
        rlm_plain_put(p, rlm_view_error(node->error));
        put_titled(p, "", node->content);
        break;
    case RLM_DONE_OUTPUT:
        rlm_plain_puts(p, "ended, ");
        rlm_plain_put(p, node->reason);
        put_titled(p, "", node->result.len ? node->result : node->content);
        break;
    }
}

static void put_state(struct rlm_plain *p, const rlm_graph *g, const struct rlm_view_options *o)
{
    rlm_plain_puts(p, "is ");
    rlm_plain_put(p, rlm_view_state(g, o));
}

static void
put_event(struct rlm_plain *p, const struct rlm_event *event, const struct rlm_view_options *o)
{
    if (event->graph) {
        rlm_plain_puts(p, rlm_graph_agent_id(event->graph));
        rlm_plain_puts(p, ": ");
    }
    switch (event->type) {
    case RLM_EVENT_GRAPH_CREATED:
        rlm_plain_puts(p, "starts");
        break;
    case RLM_EVENT_ADD_CHILD:
        put_titled(p, "starts as a sub-agent", rlm_graph_query(event->graph));
        break;
    case RLM_EVENT_REMOVE_CHILD:
        rlm_plain_puts(p, "is removed");
        break;
    case RLM_EVENT_APPEND_NODE:
        put_node(p, event->graph, event->node);
        break;
    case RLM_EVENT_INSERT_NODE:
    case RLM_EVENT_REPLACE_NODE:
        rlm_plain_puts(p, event->type == RLM_EVENT_INSERT_NODE ? "inserted " : "replaced ");
        put_node(p, event->graph, event->node);
        break;
    case RLM_EVENT_REMOVE_NODE:
        rlm_plain_puts(p, "a node is removed");
        break;
    case RLM_EVENT_STATE:
        put_state(p, event->graph, o);
        break;
    case RLM_EVENT_DELTA:
        put_titled(p, "writes", event->text);
        break;
    case RLM_EVENT_NOTICE:
        rlm_plain_put(p, excerpt(event->text));
        break;
    }
}

char *rlm_view_event(const struct rlm_event *event, const struct rlm_view_options *options)
{
    static const struct rlm_view_options standard = RLM_VIEW_OPTIONS_INIT;
    const struct rlm_view_options *o = options ? options : &standard;
    rlm_auto_buf struct rlm_buf out = RLM_BUF(1 << 20);
    struct rlm_plain p = {.out = &out, .width = o->width ? o->width : LINE_COLUMNS};
    put_event(&p, event, o);
    return rlm_buf_take(&out);
}

char *rlm_view_text(rlm_str text, const struct rlm_view_options *options)
{
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    struct rlm_plain p = {.out = &out, .width = options ? options->width : 0};
    rlm_plain_put(&p, text);
    return rlm_buf_take(&out);
}
