/* Where the money went: usage by agent and by turn, dearest first. */
#include "view/tree.h"

#include "base/alloc.h"

#include <stdio.h>

enum { TURNS_SHOWN = 20, AGENTS_SHOWN = 200 };

struct entry {
    const rlm_graph *graph;
    const struct rlm_node
        *node; /* NULL: no turn, but all calls of the agent, or those outside turns */
    int turn;
    struct rlm_usage usage;
};

struct table {
    RLM_VEC(struct entry) agents;
    RLM_VEC(struct entry) turns;
};

static int dearer(const void *a, const void *b)
{
    const struct rlm_usage *x = &((const struct entry *)a)->usage;
    const struct rlm_usage *y = &((const struct entry *)b)->usage;
    if (x->cost_nano != y->cost_nano) {
        return x->cost_nano < y->cost_nano ? 1 : -1;
    }
    int64_t m = x->input_tokens + x->output_tokens, n = y->input_tokens + y->output_tokens;
    if (m != n) {
        return m < n ? 1 : -1;
    }
    /* qsort is not stable, and the order must not change from one look to the next. */
    const struct entry *first = a, *second = b;
    int order = strcmp(rlm_graph_agent_id(first->graph), rlm_graph_agent_id(second->graph));
    return order ? order : first->turn - second->turn;
}

static void take_off(struct rlm_usage *sum, const struct rlm_usage *part)
{
    sum->calls -= part->calls;
    sum->input_tokens -= part->input_tokens;
    sum->cached_tokens -= part->cached_tokens;
    sum->output_tokens -= part->output_tokens;
    sum->cost_nano -= part->cost_nano;
    sum->estimated -= part->estimated;
}

/* What an agent spent outside its turns counts as one entry. */
static bool collect(struct table *t, const rlm_graph *root)
{
    for (const rlm_graph *g = root; g; g = rlm_graph_next(root, g)) {
        struct entry *agent = rlm_vec_push(&t->agents);
        if (!agent) {
            return false;
        }
        *agent = (struct entry){.graph = g, .usage = g->own};
        struct rlm_usage rest = g->own;
        int turn = 0;
        for (size_t i = 0; i < g->nodes.len; i++) {
            const struct rlm_node *node = g->nodes.items[i];
            if (node->type == RLM_LLM_OUTPUT) {
                struct entry *entry = rlm_vec_push(&t->turns);
                if (!entry) {
                    return false;
                }
                *entry = (struct entry){g, node, ++turn, node->usage};
                take_off(&rest, &node->usage);
            }
        }
        if (rest.calls > 0 || rest.input_tokens > 0 || rest.output_tokens > 0) {
            struct entry *entry = rlm_vec_push(&t->turns);
            if (!entry) {
                return false;
            }
            *entry = (struct entry){.graph = g, .usage = rest};
        }
    }
    return true;
}

static void put_cell(struct rlm_plain *p, int64_t count, int column)
{
    char text[32];
    int len = snprintf(text, sizeof text, "%lld", (long long)count);
    rlm_plain_pad(p, column - len);
    rlm_plain_puts(p, text);
}

/* Columns end at fixed places, the name stands last, so that any length of it fits. */
static void put_row(struct rlm_plain *p, const struct rlm_usage *u)
{
    put_cell(p, u->calls, 7);
    put_cell(p, u->input_tokens, 19);
    put_cell(p, u->cached_tokens, 30);
    put_cell(p, u->output_tokens, 41);
    rlm_plain_pad(p, 44);
    if (u->cost_nano > 0) {
        rlm_plain_money(p, u->cost_nano);
    } else {
        rlm_plain_puts(p, "-");
    }
    rlm_plain_pad(p, 56);
}

static void put_title(struct rlm_plain *p, const char *name)
{
    rlm_plain_color(p, "1");
    rlm_plain_puts(p, "  calls       input     cached     output   cost        ");
    rlm_plain_puts(p, name);
    rlm_plain_color(p, NULL);
    rlm_plain_end(p);
}

static void
put_entries(struct rlm_plain *p, const struct entry *entries, size_t n, size_t max, bool turns)
{
    for (size_t i = 0; i < n && i < max; i++) {
        put_row(p, &entries[i].usage);
        rlm_plain_puts(p, rlm_graph_agent_id(entries[i].graph));
        if (entries[i].node) {
            rlm_plain_putf(p, "  turn %d  %s", entries[i].turn, entries[i].node->id);
        } else if (turns) {
            rlm_plain_puts(p, "  llm_query, and calls that failed or were lost");
        }
        if (entries[i].usage.estimated) {
            rlm_plain_puts(p, "  (estimate)");
        }
        rlm_plain_end(p);
    }
    if (n > max) {
        rlm_plain_putf(p, "… %zu more", n - max);
        rlm_plain_end(p);
    }
}

char *rlm_view_usage(const rlm_graph *root, const struct rlm_view_options *options)
{
    static const struct rlm_view_options standard = RLM_VIEW_OPTIONS_INIT;
    const struct rlm_view_options *o = options ? options : &standard;
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    struct rlm_plain p = {.out = &out, .width = o->width, .color = o->color};
    struct table t = {0};
    bool fine = collect(&t, root);
    if (fine) {
        struct rlm_usage total = rlm_graph_usage(root, true);
        qsort(t.agents.items, t.agents.len, sizeof *t.agents.items, dearer);
        if (t.turns.len) {
            qsort(t.turns.items, t.turns.len, sizeof *t.turns.items, dearer);
        }
        put_title(&p, "agent");
        put_row(&p, &total);
        rlm_plain_puts(&p, "all agents");
        if (total.estimated) {
            rlm_plain_putf(&p, " (%lld calls are estimates)", (long long)total.estimated);
        }
        rlm_plain_end(&p);
        put_entries(&p, t.agents.items, t.agents.len, AGENTS_SHOWN, false);
        rlm_plain_end(&p);
        put_title(&p, "turn");
        put_entries(&p, t.turns.items, t.turns.len, TURNS_SHOWN, true);
    }
    free(t.agents.items);
    free(t.turns.items);
    return fine ? rlm_buf_take(&out) : NULL;
}
