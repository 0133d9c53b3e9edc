#include "view/timeline.h"

#include "base/json.h"
#include "graph/journal.h"

struct reading {
    struct rlm_timeline *timeline;
    rlm_arena *scratch;
    int64_t last_us;       /* of the nodes so far */
    struct rlm_map newest; /* id of an agent -> id of its last node, in the timeline's arena */
};

static int resumed(struct reading *r, int64_t time_us, rlm_error **err)
{
    if (r->last_us && time_us > r->last_us) {
        struct rlm_stop *stop = rlm_vec_push(&r->timeline->stops);
        if (!stop) {
            return rlm_error_nomem(err);
        }
        *stop = (struct rlm_stop){r->last_us, time_us};
        r->last_us = time_us;
    }
    return 0;
}

static int node_came(struct reading *r, const rlm_json *record, rlm_error **err)
{
    rlm_str agent = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR(""));
    rlm_str id =
        rlm_arena_copy(r->timeline->arena, rlm_json_text(rlm_json_get(record, "id"), RLM_STR("")));
    bool kept = id.ptr && rlm_map_set(&r->newest, agent, (void *)(uintptr_t)id.ptr) == 0;
    return kept ? 0 : rlm_error_nomem(err);
}

/* The question that this record repeats with its answer, or that a resumed run asks again. */
static struct rlm_gate_said *open_question(struct rlm_timeline *t, const struct rlm_gate_said *said)
{
    for (size_t i = t->gates.len; i-- > 0;) {
        struct rlm_gate_said *old = &t->gates.items[i];
        if (!old->answered_us && old->call == said->call && old->ask == said->ask &&
            rlm_str_eq(old->kind, said->kind) && rlm_str_eq(old->agent, said->agent)) {
            return old;
        }
    }
    return NULL;
}

static int attach(struct reading *r, const struct rlm_gate_said *said, rlm_error **err)
{
    struct rlm_timeline *t = r->timeline;
    const char *node = rlm_map_get(&r->newest, said->agent);
    struct rlm_gate_said *slot = node ? rlm_vec_push(&t->gates) : NULL;
    if (!slot) {
        return node ? rlm_error_nomem(err) : 0;
    }
    *slot = *said;
    uintptr_t first = (uintptr_t)rlm_map_get(&t->gates_of, rlm_str_of(node));
    if (!first) {
        return rlm_map_set(&t->gates_of, rlm_str_of(node), (void *)(uintptr_t)t->gates.len) < 0
                   ? rlm_error_nomem(err)
                   : 0;
    }
    while (t->gates.items[first - 1].next) {
        first = t->gates.items[first - 1].next;
    }
    t->gates.items[first - 1].next = t->gates.len;
    return 0;
}

static int gate_came(struct reading *r, const rlm_json *record, rlm_error **err)
{
    const rlm_json *answer = rlm_json_get(record, "answer");
    struct rlm_gate_said said = {
        .call = rlm_json_int(rlm_json_get(record, "call"), 0),
        .ask = rlm_json_int(rlm_json_get(record, "ask"), 0),
        .asked_us = rlm_json_int(rlm_json_get(rlm_json_get(record, "asked"), "t"), 0),
        .answered_us = rlm_json_int(rlm_json_get(answer, "t"), 0),
    };
    const struct {
        const rlm_json *from;
        rlm_str *to;
    } texts[] = {
        {rlm_json_get(record, "gate"), &said.kind},
        {rlm_json_get(record, "agent"), &said.agent},
        {rlm_json_get(answer, "decision"), &said.decision},
        {rlm_json_get(answer, "who"), &said.who},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i].to =
            rlm_arena_copy(r->timeline->arena, rlm_json_text(texts[i].from, RLM_STR("")));
        if (!texts[i].to->ptr) {
            return rlm_error_nomem(err);
        }
    }
    struct rlm_gate_said *old = open_question(r->timeline, &said);
    if (old) {
        old->decision = said.decision;
        old->who = said.who;
        old->answered_us = said.answered_us;
        return 0;
    }
    return attach(r, &said, err);
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct reading *r = arg;
    const rlm_json *record;
    (void)offset;
    if (kind != RLM_RECORD_RUN && kind != RLM_RECORD_RESUMED && kind != RLM_RECORD_NODE &&
        kind != RLM_RECORD_GATE) {
        return 0;
    }
    rlm_arena_reset(r->scratch);
    if (rlm_json_parse(r->scratch, payload, &record, NULL) < 0) {
        return 0; /* the loading of the graph says what is wrong with it */
    }
    int64_t time_us = rlm_json_int(rlm_json_get(record, "t"), 0);
    if (kind == RLM_RECORD_RESUMED) {
        return resumed(r, time_us, err);
    }
    if (kind == RLM_RECORD_GATE) {
        return gate_came(r, record, err);
    }
    if (kind == RLM_RECORD_RUN) {
        r->timeline->start_us = time_us;
    }
    r->last_us = time_us > r->last_us ? time_us : r->last_us;
    return kind == RLM_RECORD_NODE ? node_came(r, record, err) : 0;
}

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
    int64_t last_us = 0;
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
        rlm_auto_arena rlm_arena *scratch = rlm_arena_new(0);
        struct reading reading = {.timeline = &t, .scratch = scratch};
        r = scratch ? rlm_journal_read(journal, on_record, &reading, NULL, err)
                    : rlm_error_nomem(err);
        rlm_map_deinit(&reading.newest);
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
    rlm_map_deinit(&t->gates_of);
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

static int kind_between(const struct rlm_timeline *t,
                        const struct rlm_node *before,
                        const struct rlm_node *node)
{
    bool gated = before->type == RLM_LLM_OUTPUT && rlm_timeline_gate(t, before->id);
    return node->type == RLM_LLM_OUTPUT             ? RLM_SPAN_MODEL
           : gated                                  ? RLM_SPAN_GATE
           : before->type == RLM_SUPERVISING_OUTPUT ? RLM_SPAN_WAITING
           : before->type == RLM_DONE_OUTPUT        ? -1 /* until the follow-up */
                                                    : RLM_SPAN_CODE;
}

void rlm_timeline_each(const struct rlm_timeline *t,
                       const rlm_graph *g,
                       rlm_timeline_span span,
                       void *arg)
{
    int turn = 0;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        turn += node->type == RLM_LLM_OUTPUT;
        int kind = i ? kind_between(t, g->nodes.items[i - 1], node) : -1;
        if (kind >= 0) {
            int64_t from_us = rlm_timeline_place(t, g->nodes.items[i - 1]->time_us);
            int64_t to_us = rlm_timeline_place(t, node->time_us);
            if (to_us > from_us) {
                span(arg, (enum rlm_span_kind)kind, turn, node, from_us, to_us);
            }
        }
    }
}
