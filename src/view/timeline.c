#include "view/timeline.h"

const char *const rlm_span_names[_RLM_SPAN_KINDS] = {
    [RLM_SPAN_MODEL] = "model",     [RLM_SPAN_CODE] = "code",     [RLM_SPAN_TOOL] = "tools",
    [RLM_SPAN_WAITING] = "waiting", [RLM_SPAN_GATE] = "approval", [RLM_SPAN_UNDONE] = "rewound",
};

/* ---- the axis -------------------------------------------------------------------------------- */

int64_t rlm_timeline_place(const struct rlm_timeline *t, int64_t time_us)
{
    int64_t place = time_us - t->start_us;
    for (size_t i = 0; i < t->stops.len; i++) {
        const struct rlm_stop *stop = &t->stops.items[i];
        if (time_us >= stop->resumed_us) {
            place -= stop->resumed_us - stop->last_us;
        } else if (time_us > stop->last_us) {
            place -= time_us - stop->last_us;
        }
    }
    return place < 0 ? 0 : t->total_us && place > t->total_us ? t->total_us : place;
}

/* Clocks may have been set: the axis holds every node. */
static void measure(struct rlm_timeline *t, const rlm_graph *root)
{
    int64_t last_us = t->last_us;
    for (const rlm_graph *g = root; g; g = rlm_graph_next(root, g)) {
        for (size_t i = 0; i < g->nodes.len; i++) {
            int64_t time_us = g->nodes.items[i]->time_us;
            t->start_us = !t->start_us || time_us < t->start_us ? time_us : t->start_us;
            last_us = time_us > last_us ? time_us : last_us;
        }
    }
    t->total_us = rlm_timeline_place(t, last_us);
}

int rlm_timeline_load(const rlm_graph *root,
                      const char *journal,
                      struct rlm_timeline *ret_timeline,
                      rlm_error **err)
{
    struct rlm_timeline t = {.arena = rlm_arena_new(0)};
    int r = t.arena ? 0 : rlm_error_nomem(err);
    if (r == 0 && journal) {
        r = rlm_timeline_read(&t, journal, err);
    }
    if (r < 0) {
        rlm_timeline_deinit(&t);
        return r;
    }
    measure(&t, root);
    *ret_timeline = t;
    return 0;
}

void rlm_timeline_deinit(struct rlm_timeline *t)
{
    free(t->stops.items);
    free(t->gates.items);
    free(t->asides.items);
    rlm_map_deinit(&t->gates_of);
    rlm_map_deinit(&t->asides_of);
    rlm_arena_free(t->arena);
}

const struct rlm_stop *rlm_timeline_stop_before(const struct rlm_timeline *t,
                                                const struct rlm_node *before,
                                                const struct rlm_node *node)
{
    for (size_t i = t->stops.len; i-- > 0 && before;) {
        const struct rlm_stop *stop = &t->stops.items[i];
        if (before->time_us <= stop->last_us && node->time_us >= stop->resumed_us) {
            return stop;
        }
    }
    return NULL;
}

/* ---- questions ------------------------------------------------------------------------------- */

const struct rlm_gate_said *rlm_timeline_gate(const struct rlm_timeline *t, const char *node_id)
{
    uintptr_t at = (uintptr_t)rlm_map_get(&t->gates_of, rlm_str_of(node_id));
    return at ? &t->gates.items[at - 1] : NULL;
}

const struct rlm_gate_said *rlm_timeline_next_gate(const struct rlm_timeline *t,
                                                   const struct rlm_gate_said *gate)
{
    return gate->next ? &t->gates.items[gate->next - 1] : NULL;
}

void rlm_timeline_put_gate(struct rlm_buf *out, const struct rlm_gate_said *gate)
{
    static const struct {
        const char *word, *done;
    } words[] = {{"allow", "allowed"}, {"rewrite", "rewritten"}, {"reject", "rejected"}};
    bool code = rlm_str_is(gate->kind, "exec_turn"), call = rlm_str_is(gate->kind, "host_call");
    rlm_buf_adds(out, code ? "the code" : call ? "a host call" : "a model call");
    if (!gate->answered_us) {
        rlm_buf_adds(out, " waits for an answer");
        return;
    }
    rlm_str done = gate->decision;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        done = rlm_str_is(done, words[i].word) ? rlm_str_of(words[i].done) : done;
    }
    rlm_buf_adds(out, " was ");
    rlm_buf_add_str(out, done);
    if (gate->who.len) {
        rlm_buf_adds(out, " by ");
        rlm_buf_add_str(out, gate->who);
    }
    int64_t waited_us = gate->answered_us - gate->asked_us;
    if (gate->asked_us && waited_us > 0) {
        rlm_buf_addf(out, ", %.1f s after it was asked", (double)waited_us / 1e6);
    }
}

/* ---- spans ----------------------------------------------------------------------------------- */

enum { NOTHING = -1 };

/* What an agent does after a node, until the next one. */
static const int kinds_after[] = {
    [RLM_USER_QUERY] = RLM_SPAN_MODEL,   [RLM_LLM_OUTPUT] = RLM_SPAN_WAITING,
    [RLM_EXEC_ACTION] = RLM_SPAN_CODE,   [RLM_SUPERVISING_OUTPUT] = RLM_SPAN_WAITING,
    [RLM_RESUME_ACTION] = RLM_SPAN_CODE, [RLM_EXEC_OUTPUT] = RLM_SPAN_MODEL,
    [RLM_ERROR_OUTPUT] = RLM_SPAN_MODEL, [RLM_DONE_OUTPUT] = NOTHING, /* until a follow-up */
};

struct walk {
    const struct rlm_timeline *timeline;
    const struct rlm_aside *aside, *asides_end; /* of the agent; those before are over */
    rlm_timeline_span span;
    void *arg;
    int turn;
    const struct rlm_node *begin, *end;
};

static void put(struct walk *w, int kind, int64_t from_us, int64_t to_us)
{
    int64_t from = rlm_timeline_place(w->timeline, from_us);
    int64_t to = rlm_timeline_place(w->timeline, to_us);
    if (kind != NOTHING && to > from) {
        w->span(w->arg, (enum rlm_span_kind)kind, w->turn, w->end, from, to);
    }
}

/* A question is about a call of a cell, a model call, or the code of the reply before. */
static bool shows_in(enum rlm_span_kind aside, int kind, const struct rlm_node *begin)
{
    return aside == RLM_SPAN_UNDONE || kind == RLM_SPAN_CODE ||
           (aside == RLM_SPAN_GATE && (kind == RLM_SPAN_MODEL || begin->type == RLM_LLM_OUTPUT));
}

/* One span, with the asides in it. */
static void divide(struct walk *w, int kind, int64_t from_us, int64_t to_us)
{
    while (w->aside < w->asides_end && w->aside->to_us <= from_us) {
        w->aside++;
    }
    for (const struct rlm_aside *a = w->aside; a < w->asides_end && a->from_us < to_us; a++) {
        if (shows_in(a->kind, kind, w->begin)) {
            int64_t start_us = a->from_us > from_us ? a->from_us : from_us;
            int64_t end_us = a->to_us < to_us ? a->to_us : to_us;
            put(w, kind, from_us, start_us);
            put(w, (int)a->kind, start_us, end_us);
            from_us = end_us;
        }
    }
    put(w, kind, from_us, to_us);
}

static void find_asides(struct walk *w, const rlm_graph *g)
{
    const struct rlm_timeline *t = w->timeline;
    size_t first = (uintptr_t)rlm_map_get(&t->asides_of, rlm_str_of(g->agent_id));
    if (first) {
        w->aside = w->asides_end = &t->asides.items[first - 1];
        while (w->asides_end < t->asides.items + t->asides.len &&
               w->asides_end->agent == w->aside->agent) {
            w->asides_end++;
        }
    }
}

void rlm_timeline_each(const struct rlm_timeline *t,
                       const rlm_graph *g,
                       rlm_timeline_span span,
                       void *arg)
{
    struct walk w = {.timeline = t, .span = span, .arg = arg};
    find_asides(&w, g);
    for (size_t i = 0; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        const struct rlm_node *next = i + 1 < g->nodes.len ? g->nodes.items[i + 1] : NULL;
        int kind = kinds_after[node->type];
        w.turn += kind == RLM_SPAN_MODEL && (!next || next->type == RLM_LLM_OUTPUT);
        w.begin = node;
        w.end = next;
        divide(&w, kind, node->time_us, next ? next->time_us : t->last_us);
    }
}
