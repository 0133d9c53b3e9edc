/* How two runs differ: which agents are in one alone, and where the trajectories of the others part.
 *
 * Compared is what the agents did: tasks, nodes and their texts. Times, ids and usage are no part of that. */
#include "view/line_diff.h"
#include "view/tree.h"

enum { TEXT_LINES = 40, AGENTS_MOST = 500 };

struct comparison {
    struct rlm_plain *p;
    size_t same, differ, shown;
    bool failed;
};

struct pair {
    const char *what;
    rlm_str a, b;
};

static void put_pair(struct comparison *c, const struct pair *pair)
{
    rlm_plain_putf(c->p, "  %s:", pair->what);
    rlm_plain_end(c->p);
    c->failed |= !rlm_line_diff(c->p, pair->a, pair->b, "    ", TEXT_LINES);
}

static void put_name(struct comparison *c, const rlm_graph *g, const char *what)
{
    rlm_plain_color(c->p, "1");
    rlm_plain_puts(c->p, rlm_graph_agent_id(g));
    rlm_plain_color(c->p, NULL);
    rlm_plain_puts(c->p, "  ");
    rlm_plain_puts(c->p, what);
    rlm_plain_end(c->p);
}

static bool may_show(struct comparison *c)
{
    return c->shown++ < AGENTS_MOST;
}

static void put_alone(struct comparison *c, const rlm_graph *g, char sign, const char *where)
{
    c->differ++;
    if (!may_show(c)) {
        return;
    }
    rlm_plain_color(c->p, sign == '-' ? "31" : "32");
    rlm_plain_putf(c->p, "%c %s", sign, "");
    rlm_plain_puts(c->p, rlm_graph_agent_id(g));
    rlm_plain_color(c->p, NULL);
    rlm_plain_putf(c->p, "  only in the %s run  ", where);
    rlm_plain_put(c->p, rlm_str_sub(g->query, 0, g->query.len < 1024 ? g->query.len : 1024));
    rlm_plain_end(c->p);
}

static bool same_agents(const struct rlm_node *a, const struct rlm_node *b)
{
    bool same = a->n_agents == b->n_agents;
    for (size_t i = 0; same && i < a->n_agents; i++) {
        same = strcmp(a->agents[i], b->agents[i]) == 0;
    }
    return same;
}

/* Fills the texts of two nodes that differ; how many. */
static size_t
differences(const struct rlm_node *a, const struct rlm_node *b, struct pair *ret_pairs)
{
    const struct pair all[] = {
        {"kind of node", rlm_str_of(rlm_node_type_tag(a->type)),
         rlm_str_of(rlm_node_type_tag(b->type))},
        {"text", a->content, b->content},
        /* A reply holds its code, an output equals its content. */
        {"code", a->type == RLM_LLM_OUTPUT ? RLM_STR_NONE : a->code,
         b->type == RLM_LLM_OUTPUT ? RLM_STR_NONE : b->code},
        {"kind of error", rlm_view_error(a->error), rlm_view_error(b->error)},
        {"answer", a->result, b->result},
        {"why it ended", a->reason, b->reason},
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!rlm_str_eq(all[i].a, all[i].b)) {
            ret_pairs[n++] = all[i];
        }
    }
    return n;
}

static void put_place(struct comparison *c, const char *sign, const struct rlm_node *node)
{
    rlm_plain_putf(c->p, "  %s #%u %s  %s", sign, node->seq, rlm_node_type_tag(node->type),
                   node->id);
    rlm_plain_end(c->p);
}

/* The first node that differs; the nodes after it follow from it. */
static void compare_nodes(struct comparison *c, const rlm_graph *a, const rlm_graph *b)
{
    size_t least = a->nodes.len < b->nodes.len ? a->nodes.len : b->nodes.len, i = 0, n = 0;
    struct pair pairs[6];
    while (i < least && !(n = differences(a->nodes.items[i], b->nodes.items[i], pairs)) &&
           same_agents(a->nodes.items[i], b->nodes.items[i])) {
        i++;
    }
    if (i == a->nodes.len && i == b->nodes.len) {
        c->same++;
        return;
    }
    c->differ++;
    if (!may_show(c)) {
        return;
    }
    int turn = 0;
    for (size_t k = 0; k < i; k++) {
        turn += a->nodes.items[k]->type == RLM_LLM_OUTPUT;
    }
    rlm_plain_color(c->p, "1");
    rlm_plain_puts(c->p, rlm_graph_agent_id(a));
    rlm_plain_color(c->p, NULL);
    if (i == least) {
        rlm_plain_putf(c->p, "  the %s run goes on after node #%zu: %zu nodes, not %zu",
                       a->nodes.len > b->nodes.len ? "first" : "second", i ? i - 1 : 0,
                       a->nodes.len > b->nodes.len ? a->nodes.len : b->nodes.len, least);
    } else {
        rlm_plain_putf(c->p, "  parts at node #%zu, after %d turn%s; %zu and %zu nodes in all", i,
                       turn, turn == 1 ? "" : "s", a->nodes.len, b->nodes.len);
    }
    rlm_plain_end(c->p);
    if (i < a->nodes.len) {
        put_place(c, "-", a->nodes.items[i]);
    }
    if (i < b->nodes.len) {
        put_place(c, "+", b->nodes.items[i]);
    }
    for (size_t k = 0; k < n; k++) {
        put_pair(c, &pairs[k]);
    }
    if (i < least && !n) {
        rlm_plain_puts(c->p, "  other sub-agents");
        rlm_plain_end(c->p);
    }
}

static void compare_agents(struct comparison *c, const rlm_graph *a, const rlm_graph *b)
{
    const struct pair tasks[] = {
        {"task", a->query, b->query},
        {"inputs", a->inputs, b->inputs},
        {"model", a->model, b->model},
        {"output schema", a->output_schema, b->output_schema},
    };
    bool same = true;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (rlm_str_eq(tasks[i].a, tasks[i].b)) {
            continue;
        }
        if (same && may_show(c)) {
            put_name(c, a, "was given something else");
        }
        same = false;
        if (c->shown <= AGENTS_MOST) {
            put_pair(c, &tasks[i]);
        }
    }
    if (same) {
        compare_nodes(c, a, b);
    } else {
        c->differ++;
    }
}

static void put_usage(struct comparison *c, char sign, const rlm_graph *root)
{
    struct rlm_usage usage = rlm_graph_usage(root, true);
    rlm_str reason = rlm_graph_reason(root);
    rlm_plain_putf(c->p, "%c ", sign);
    rlm_plain_put(c->p, reason.len ? reason : RLM_STR("unfinished"));
    rlm_plain_putf(c->p, "  %zu agent%s", rlm_graph_agent_count(root),
                   rlm_graph_agent_count(root) == 1 ? "" : "s");
    rlm_view_put_usage(c->p, root->turns, &usage);
    rlm_plain_end(c->p);
}

int rlm_view_diff(const rlm_graph *a,
                  const rlm_graph *b,
                  const struct rlm_view_options *options,
                  char **ret_text,
                  rlm_error **err)
{
    static const struct rlm_view_options standard = RLM_VIEW_OPTIONS_INIT;
    const struct rlm_view_options *o = options ? options : &standard;
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    struct rlm_plain p = {.out = &out, .width = o->width, .color = o->color};
    struct comparison c = {.p = &p};
    put_usage(&c, '-', a);
    put_usage(&c, '+', b);
    rlm_plain_end(&p);
    for (const rlm_graph *g = a; g; g = rlm_graph_next(a, g)) {
        if (g != a && !rlm_graph_agent(b, g->agent_id)) {
            put_alone(&c, g, '-', "first");
        }
    }
    for (const rlm_graph *g = b; g; g = rlm_graph_next(b, g)) {
        if (g != b && !rlm_graph_agent(a, g->agent_id)) {
            put_alone(&c, g, '+', "second");
        }
    }
    for (const rlm_graph *g = a; g; g = rlm_graph_next(a, g)) {
        const rlm_graph *other = g == a ? b : rlm_graph_agent(b, g->agent_id);
        if (other) {
            compare_agents(&c, g, other);
        }
    }
    if (c.shown > AGENTS_MOST) {
        rlm_plain_putf(&p, "… %zu more agents differ", c.shown - AGENTS_MOST);
        rlm_plain_end(&p);
    }
    rlm_plain_putf(&p, "%zu agent%s differ%s, %zu the same", c.differ, c.differ == 1 ? "" : "s",
                   c.differ == 1 ? "s" : "", c.same);
    rlm_plain_end(&p);
    int r = c.failed ? rlm_error_nomem(err) : rlm_buf_check(&out, err);
    if (r < 0) {
        return r;
    }
    *ret_text = rlm_buf_take(&out);
    return c.differ ? 1 : 0;
}
