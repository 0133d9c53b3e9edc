/* The tree of agents: one line an agent, the children below their parent in the order of creation.
 * When there are more agents than lines, those that have not finished (with their ancestors) come
 * first, and the last line says how many are not shown. */
#include "view/tree.h"

#include "base/alloc.h"

/* Deeper agents are shown at this level, with their depth in words: lines must not grow without end. */
enum { LEVELS_MAX = 40 };

struct line {
    const rlm_graph *graph;
    size_t parent; /* its index; its own for the root */
    bool shown;
    bool last;      /* of its parent's shown children */
    bool has_child; /* one that is shown */
};

struct tree {
    const struct rlm_view_options *options;
    RLM_VEC(struct line) lines; /* in preorder */
    size_t n_shown;
};

static const char *const live_states[] = {
    [RLM_AGENT_READY] = "ready",       [RLM_AGENT_QUEUED] = "queued",
    [RLM_AGENT_ASKING] = "asking",     [RLM_AGENT_RUNNING] = "running",
    [RLM_AGENT_WAITING] = "waiting",   [RLM_AGENT_GATED] = "awaiting approval",
    [RLM_AGENT_FINISHED] = "finished", [RLM_AGENT_RESTORING] = "restoring",
};

rlm_str rlm_view_state(const rlm_graph *g, const struct rlm_view_options *options)
{
    if (rlm_graph_finished(g)) {
        rlm_str reason = rlm_graph_reason(g);
        return reason.len ? reason : RLM_STR("finished");
    }
    if (options->run && !rlm_run_has_ended(options->run)) {
        return rlm_str_of(live_states[rlm_run_agent_state(options->run, g)]);
    }
    return RLM_STR("unfinished");
}

rlm_str rlm_view_error(rlm_str kind)
{
    static const struct {
        const char *kind, *words;
    } errors[] = {
        {"exec", "the code raised an exception"},
        {"no_code", "no code was found in the reply"},
        {"exec_timeout", "the code ran too long"},
        {"cpu_time", "the code used too much CPU time"},
        {"rejected", "the code was not approved"},
        {"interrupted", "the run was stopped while this code ran; it may have run in part"},
        {"session_lost", "the session is gone, and its variables with it"},
        {"exit", "the session ended by itself"},
        {"signal", "the session was ended by a signal"},
        {"memory", "the session ran out of memory"},
        {"protocol", "the session broke the protocol"},
        {"killed", "the session was killed"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (rlm_str_is(kind, errors[i].kind)) {
            return rlm_str_of(errors[i].words);
        }
    }
    return kind;
}

const char *rlm_view_state_color(rlm_str state)
{
    static const struct {
        const char *state, *sgr;
    } colors[] = {
        {"answered", "32"}, {"asking", "36"}, {"running", "33"},           {"waiting", "34"},
        {"queued", "2"},    {"ready", "2"},   {"awaiting approval", "35"},
    };
    for (size_t i = 0; i < sizeof colors / sizeof *colors; i++) {
        if (rlm_str_is(state, colors[i].state)) {
            return colors[i].sgr;
        }
    }
    return "31";
}

void rlm_view_put_usage(struct rlm_plain *p, int turns, const struct rlm_usage *usage)
{
    rlm_plain_putf(p, "  %d turn%s", turns, turns == 1 ? "" : "s");
    if (usage->calls || usage->input_tokens || usage->output_tokens) {
        rlm_plain_puts(p, "  ");
        rlm_plain_count(p, usage->input_tokens);
        rlm_plain_puts(p, " in, ");
        rlm_plain_count(p, usage->output_tokens);
        rlm_plain_puts(p, " out");
    }
    if (usage->cost_nano > 0) {
        rlm_plain_puts(p, "  ");
        rlm_plain_money(p, usage->cost_nano);
    }
}

/* Fills the lines in preorder; false: no memory. */
static bool collect(struct tree *t, const rlm_graph *root)
{
    RLM_VEC(size_t) path = {0};
    bool fine = true;
    for (const rlm_graph *g = root; g && fine; g = rlm_graph_next(root, g)) {
        size_t level = (size_t)(g->depth - root->depth);
        size_t index = t->lines.len;
        struct line *line = rlm_vec_push(&t->lines);
        if (!line || (level >= path.len && !rlm_vec_push(&path))) {
            fine = false;
            break;
        }
        path.items[level] = index;
        *line = (struct line){.graph = g, .parent = level ? path.items[level - 1] : index};
    }
    free(path.items);
    return fine;
}

/* Shows a line with its ancestors if there is room for all of them. */
static void show(struct tree *t, size_t index, size_t max)
{
    size_t missing = 0;
    for (size_t i = index; !t->lines.items[i].shown; i = t->lines.items[i].parent) {
        missing++;
        if (t->n_shown + missing > max) {
            return;
        }
        if (t->lines.items[i].parent == i) {
            break;
        }
    }
    for (size_t i = index; missing--; i = t->lines.items[i].parent) {
        t->lines.items[i].shown = true;
        t->n_shown++;
    }
}

static void choose(struct tree *t)
{
    size_t n = t->lines.len, max = t->options->max_lines > 0 ? (size_t)t->options->max_lines : n;
    bool all = n <= max;
    for (size_t i = 0; i < n && all; i++) {
        t->lines.items[i].shown = true;
        t->n_shown++;
    }
    for (size_t i = 0; i < n && !all; i++) {
        if (!rlm_graph_finished(t->lines.items[i].graph)) {
            show(t, i, max - 1);
        }
    }
    for (size_t i = 0; i < n && !all && t->n_shown < max - 1; i++) {
        show(t, i, max - 1);
    }
    for (size_t i = n; i-- > 1;) {
        struct line *line = &t->lines.items[i], *parent = &t->lines.items[line->parent];
        if (line->shown) {
            line->last = !parent->has_child;
            parent->has_child = true;
        }
    }
}

static void put_branches(const struct tree *t, struct rlm_plain *p, size_t index)
{
    const char *parts[LEVELS_MAX];
    size_t n = 0;
    const struct line *line = &t->lines.items[index];
    if (line->parent == index) {
        return;
    }
    parts[n++] = line->last ? "└─ " : "├─ ";
    for (size_t i = line->parent; n < LEVELS_MAX && t->lines.items[i].parent != i;
         i = t->lines.items[i].parent) {
        parts[n++] = t->lines.items[i].last ? "   " : "│  ";
    }
    if (n == LEVELS_MAX) {
        rlm_plain_putf(p, "(depth %d) ", line->graph->depth);
    }
    while (n--) {
        rlm_plain_puts(p, parts[n]);
    }
}

static void put_line(const struct tree *t, struct rlm_plain *p, size_t index)
{
    const rlm_graph *g = t->lines.items[index].graph;
    rlm_str state = rlm_view_state(g, t->options);
    put_branches(t, p, index);
    rlm_plain_color(p, "1");
    rlm_plain_puts(p, g->name);
    rlm_plain_color(p, NULL);
    rlm_plain_puts(p, "  ");
    rlm_plain_color(p, rlm_view_state_color(state));
    rlm_plain_put(p, state);
    rlm_plain_color(p, NULL);
    rlm_view_put_usage(p, g->turns, &g->own);
    rlm_plain_puts(p, "  ");
    rlm_plain_color(p, "2");
    size_t end = g->query.len < 1024 ? g->query.len : 1024; /* a line has no use for more */
    rlm_plain_put(p, rlm_str_sub(g->query, 0, end));
    rlm_plain_color(p, NULL);
    rlm_plain_end(p);
}

static void put_rest(const struct tree *t, struct rlm_plain *p)
{
    size_t finished = 0, rest = t->lines.len - t->n_shown;
    for (size_t i = 0; i < t->lines.len; i++) {
        finished += !t->lines.items[i].shown && rlm_graph_finished(t->lines.items[i].graph);
    }
    if (rest) {
        rlm_plain_putf(p, "… %zu more agents, %zu of them finished", rest, finished);
        rlm_plain_end(p);
    }
}

char *rlm_view_tree(const rlm_graph *root, const struct rlm_view_options *options)
{
    static const struct rlm_view_options standard = RLM_VIEW_OPTIONS_INIT;
    struct tree t = {.options = options ? options : &standard};
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    struct rlm_plain p = {.out = &out, .width = t.options->width, .color = t.options->color};
    bool fine = collect(&t, root);
    if (fine) {
        choose(&t);
        for (size_t i = 0; i < t.lines.len; i++) {
            if (t.lines.items[i].shown) {
                put_line(&t, &p, i);
            }
        }
        put_rest(&t, &p);
    }
    free(t.lines.items);
    return fine ? rlm_buf_take(&out) : NULL;
}
