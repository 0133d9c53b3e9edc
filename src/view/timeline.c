#include "view/timeline.h"

#include "base/json.h"
#include "graph/journal.h"

struct reading {
    struct rlm_timeline *timeline;
    rlm_arena *scratch;
    int64_t last_us; /* of the nodes so far */
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

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct reading *r = arg;
    const rlm_json *record;
    (void)offset;
    if (kind != RLM_RECORD_RUN && kind != RLM_RECORD_RESUMED && kind != RLM_RECORD_NODE) {
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
    if (kind == RLM_RECORD_RUN) {
        r->timeline->start_us = time_us;
    }
    r->last_us = time_us > r->last_us ? time_us : r->last_us;
    return 0;
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
    struct rlm_timeline t = {0};
    int r = 0;
    if (journal) {
        rlm_auto_arena rlm_arena *scratch = rlm_arena_new(0);
        struct reading reading = {.timeline = &t, .scratch = scratch};
        r = scratch ? rlm_journal_read(journal, on_record, &reading, NULL, err)
                    : rlm_error_nomem(err);
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
}

static int kind_between(const struct rlm_node *before, const struct rlm_node *node)
{
    return node->type == RLM_LLM_OUTPUT             ? RLM_SPAN_MODEL
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
        int kind = i ? kind_between(g->nodes.items[i - 1], node) : -1;
        if (kind >= 0) {
            int64_t from_us = rlm_timeline_place(t, g->nodes.items[i - 1]->time_us);
            int64_t to_us = rlm_timeline_place(t, node->time_us);
            if (to_us > from_us) {
                span(arg, (enum rlm_span_kind)kind, turn, node, from_us, to_us);
            }
        }
    }
}
