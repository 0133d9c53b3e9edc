/* What the records of a run say of times. In runs whose calls carry none only nodes and questions do. */
#include "view/timeline.h"

#include "base/json.h"
#include "flow/past_edit.h"
#include "graph/journal.h"

/* Something that an agent has begun and not ended. */
struct open {
    enum rlm_span_kind kind;
    int64_t id; /* of the call, or the place of the question */
    int64_t from_us;
};

struct lane {
    size_t number;
    const char *newest; /* id of the agent's last node, in the timeline's arena; NULL: none */
    RLM_VEC(struct open) open;
};

/* The beginning of an aside, or its end. */
struct edge {
    size_t agent;
    int64_t time_us;
    enum rlm_span_kind kind;
    int step; /* 1 or -1 */
};

struct reading {
    struct rlm_timeline *timeline;
    rlm_arena *scratch;
    struct rlm_map lanes; /* id of an agent -> struct lane, in the timeline's arena */
    RLM_VEC(struct edge) edges;
    struct rlm_undone_list undone;
    int64_t *undone_us; /* when what each of these undid began; 0: not known */
};

static rlm_str text(const rlm_json *record, const char *key)
{
    return rlm_json_text(rlm_json_get(record, key), RLM_STR(""));
}

static int64_t number(const rlm_json *record, const char *key)
{
    return rlm_json_int(rlm_json_get(record, key), 0);
}

static struct lane *lane_of(struct reading *r, rlm_str agent_id)
{
    struct lane *lane = rlm_map_get(&r->lanes, agent_id);
    if (!lane && (lane = rlm_arena_alloc(r->timeline->arena, sizeof *lane)) != NULL) {
        lane->number = r->lanes.count;
        lane = rlm_map_set(&r->lanes, agent_id, lane) < 0 ? NULL : lane;
    }
    return lane;
}

/* ---- what is open ---------------------------------------------------------------------------- */

static bool add_aside(
    struct reading *r, const struct lane *lane, enum rlm_span_kind kind, int64_t from, int64_t to)
{
    if (to <= from) {
        return true;
    }
    struct edge *first = rlm_vec_push(&r->edges), *last = first ? rlm_vec_push(&r->edges) : NULL;
    if (!last) {
        return false;
    }
    last[-1] = (struct edge){lane->number, from, kind, 1};
    last[0] = (struct edge){lane->number, to, kind, -1};
    return true;
}

static bool open_aside(struct lane *lane, enum rlm_span_kind kind, int64_t id, int64_t from_us)
{
    struct open *open = from_us ? rlm_vec_push(&lane->open) : NULL;
    if (open) {
        *open = (struct open){kind, id, from_us};
    }
    return open || !from_us;
}

static bool
close_aside(struct reading *r, struct lane *lane, bool question, int64_t id, int64_t to_us)
{
    for (size_t i = lane->open.len; i-- > 0;) {
        struct open open = lane->open.items[i];
        if (open.id == id && (open.kind == RLM_SPAN_GATE) == question) {
            rlm_vec_remove(&lane->open, i);
            return add_aside(r, lane, open.kind, open.from_us, to_us);
        }
    }
    return true;
}

/* Ends all calls of an agent, and with `questions` these too. */
static bool close_all(struct reading *r, struct lane *lane, bool questions, int64_t to_us)
{
    size_t kept = 0;
    bool fine = true;
    for (size_t i = 0; i < lane->open.len; i++) {
        struct open open = lane->open.items[i];
        if (open.kind == RLM_SPAN_GATE && !questions) {
            lane->open.items[kept++] = open;
        } else {
            fine = add_aside(r, lane, open.kind, open.from_us, to_us) && fine;
        }
    }
    lane->open.len = kept;
    return fine;
}

static bool close_lanes(struct reading *r, bool questions)
{
    size_t pos = 0;
    rlm_str id;
    void *lane;
    bool fine = true;
    while (rlm_map_next(&r->lanes, &pos, &id, &lane)) {
        fine = close_all(r, lane, questions, r->timeline->last_us) && fine;
    }
    return fine;
}

/* ---- records --------------------------------------------------------------------------------- */

static void saw(struct reading *r, int64_t time_us)
{
    r->timeline->last_us = time_us > r->timeline->last_us ? time_us : r->timeline->last_us;
}

/* A question that was open is asked again, calls are made again. */
static bool resumed(struct reading *r, int64_t time_us)
{
    int64_t last_us = r->timeline->last_us;
    if (!close_lanes(r, false)) {
        return false;
    }
    if (last_us && time_us > last_us) {
        struct rlm_stop *stop = rlm_vec_push(&r->timeline->stops);
        if (!stop) {
            return false;
        }
        *stop = (struct rlm_stop){last_us, time_us};
    }
    return true;
}

static bool node_came(struct reading *r, struct lane *lane, const rlm_json *record)
{
    rlm_str type = text(record, "type");
    rlm_str id = rlm_arena_copy(r->timeline->arena, text(record, "id"));
    bool within = rlm_str_is(type, "supervising_output") || rlm_str_is(type, "resume_action");
    lane->newest = id.ptr;
    return id.ptr && (within || close_all(r, lane, true, number(record, "t")));
}

static bool call_started(struct lane *lane, const rlm_json *record)
{
    static const char *const own[] = {"done", "launch_subagents", "budget", "read_input"};
    rlm_str name = text(record, "name");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (rlm_str_is(name, own[i])) {
            return true;
        }
    }
    bool query = rlm_str_is(name, "llm_query") || rlm_str_is(name, "llm_query_batched");
    return open_aside(lane, query ? RLM_SPAN_MODEL : RLM_SPAN_TOOL, number(record, "call"),
                      number(record, "t"));
}

/* The question that this record repeats with its answer, or that a resumed run asks again: its place. */
static size_t open_question(const struct rlm_timeline *t, const struct rlm_gate_said *said)
{
    size_t i = t->gates.len;
    while (i-- > 0) {
        const struct rlm_gate_said *old = &t->gates.items[i];
        if (!old->answered_us && old->call == said->call && old->ask == said->ask &&
            rlm_str_eq(old->kind, said->kind) && rlm_str_eq(old->agent, said->agent)) {
            break;
        }
    }
    return i;
}

/* Appends it to the questions of the agent's last node. */
static bool
attach(struct rlm_timeline *t, const struct lane *lane, const struct rlm_gate_said *said)
{
    rlm_str node = rlm_str_of(lane->newest);
    struct rlm_gate_said *slot = rlm_vec_push(&t->gates);
    if (!slot) {
        return false;
    }
    *slot = *said;
    uintptr_t first = (uintptr_t)rlm_map_get(&t->gates_of, node);
    if (!first) {
        return rlm_map_set(&t->gates_of, node, (void *)(uintptr_t)t->gates.len) == 0;
    }
    while (t->gates.items[first - 1].next) {
        first = t->gates.items[first - 1].next;
    }
    t->gates.items[first - 1].next = t->gates.len;
    return true;
}

static bool gate_came(struct reading *r, struct lane *lane, const rlm_json *record)
{
    struct rlm_timeline *t = r->timeline;
    const rlm_json *answer = rlm_json_get(record, "answer");
    struct rlm_gate_said said = {
        .call = number(record, "call"),
        .ask = number(record, "ask"),
        .asked_us = number(rlm_json_get(record, "asked"), "t"),
        .answered_us = number(answer, "t"),
    };
    const struct {
        rlm_str from, *to;
    } texts[] = {
        {text(record, "gate"), &said.kind},
        {text(record, "agent"), &said.agent},
        {text(answer, "decision"), &said.decision},
        {text(answer, "who"), &said.who},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i].to = rlm_arena_copy(t->arena, texts[i].from);
        if (!texts[i].to->ptr) {
            return false;
        }
    }
    saw(r, said.asked_us);
    saw(r, said.answered_us);
    size_t place = open_question(t, &said);
    if (place == (size_t)-1) {
        place = t->gates.len;
        if (!lane->newest) {
            return true;
        }
        if (!attach(t, lane, &said) ||
            !open_aside(lane, RLM_SPAN_GATE, (int64_t)place, said.asked_us)) {
            return false;
        }
    }
    t->gates.items[place].decision = said.decision;
    t->gates.items[place].who = said.who;
    t->gates.items[place].answered_us = said.answered_us;
    return !said.answered_us || close_aside(r, lane, true, (int64_t)place, said.answered_us);
}

/* ---- rewinds --------------------------------------------------------------------------------- */

/* Whether a record tells of something that a later one undid. */
static bool is_undone(struct reading *r, rlm_str agent_id, int64_t offset, int64_t time_us)
{
    bool undone = false;
    for (size_t i = 0; i < r->undone.list.len; i++) {
        if (rlm_undone_covers(&r->undone.list.items[i], agent_id, offset)) {
            r->undone_us[i] = r->undone_us[i] ? r->undone_us[i] : time_us;
            undone = true;
        }
    }
    return undone;
}

/* What the agent did until the run was stopped, and rewound, is taken back. */
static bool edited(struct reading *r, int64_t offset)
{
    for (size_t i = 0; i < r->undone.list.len; i++) {
        const struct rlm_undone *u = &r->undone.list.items[i];
        if (u->end == offset && !u->tree && r->undone_us[i]) {
            struct lane *lane = lane_of(r, u->agent_id);
            if (!lane || !close_all(r, lane, true, r->timeline->last_us) ||
                !add_aside(r, lane, RLM_SPAN_UNDONE, r->undone_us[i], r->timeline->last_us)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool
take(struct reading *r, enum rlm_record_kind kind, const rlm_json *record, int64_t offset)
{
    int64_t time_us = number(record, "t");
    rlm_str agent_id = text(record, "agent");
    bool task = kind == RLM_RECORD_NODE && rlm_str_is(text(record, "type"), "user_query");
    if (kind == RLM_RECORD_RESUMED && !resumed(r, time_us)) {
        return false;
    }
    if (kind == RLM_RECORD_RUN) {
        r->timeline->start_us = time_us;
    }
    saw(r, task ? 0 : time_us); /* a task may be put behind a run that has ended */
    if (kind == RLM_RECORD_EDIT) {
        return edited(r, offset);
    }
    bool of_agent = kind == RLM_RECORD_NODE || kind == RLM_RECORD_GATE ||
                    kind == RLM_RECORD_CALL_STARTED || kind == RLM_RECORD_CALL_FINISHED;
    if (is_undone(r, agent_id, offset, time_us) || !of_agent) {
        return true;
    }
    struct lane *lane = lane_of(r, agent_id);
    return lane && (kind == RLM_RECORD_NODE   ? node_came(r, lane, record)
                    : kind == RLM_RECORD_GATE ? gate_came(r, lane, record)
                    : kind == RLM_RECORD_CALL_STARTED
                        ? call_started(lane, record)
                        : close_aside(r, lane, false, number(record, "call"), time_us));
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct reading *r = arg;
    const rlm_json *record;
    rlm_arena_reset(r->scratch);
    if (kind == RLM_RECORD_BLOB || kind == RLM_RECORD_INPUT_LIST || kind == RLM_RECORD_CHILD ||
        rlm_json_parse(r->scratch, payload, &record, NULL) < 0) {
        return 0; /* the loading of the graph says what is wrong with it */
    }
    return take(r, kind, record, offset) ? 0 : rlm_error_nomem(err);
}

static int by_agent_and_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return x->agent != y->agent       ? (x->agent < y->agent ? -1 : 1)
           : x->time_us != y->time_us ? (x->time_us < y->time_us ? -1 : 1)
                                      : 0;
}

/* The strongest of what is under way. */
static int strongest(const int *n)
{
    static const enum rlm_span_kind order[] = {RLM_SPAN_UNDONE, RLM_SPAN_GATE, RLM_SPAN_MODEL,
                                               RLM_SPAN_TOOL};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (n[order[i]]) {
            return (int)order[i];
        }
    }
    return -1;
}

/* Makes asides that do not overlap of all edges. */
static bool flatten(struct reading *r)
{
    struct rlm_timeline *t = r->timeline;
    int under_way[_RLM_SPAN_KINDS] = {0};
    if (r->edges.len) {
        qsort(r->edges.items, r->edges.len, sizeof *r->edges.items, by_agent_and_time);
    }
    for (size_t i = 0; i < r->edges.len; i++) {
        const struct edge *edge = &r->edges.items[i], *next = edge + 1;
        under_way[edge->kind] += edge->step;
        int kind = strongest(under_way);
        if (kind < 0 || next->time_us == edge->time_us) {
            continue; /* what is under way has an end, so there is a next one, of the same agent */
        }
        struct rlm_aside *last = t->asides.len ? &t->asides.items[t->asides.len - 1] : NULL;
        if (last && last->agent == edge->agent && (int)last->kind == kind &&
            last->to_us == edge->time_us) {
            last->to_us = next->time_us;
            continue;
        }
        struct rlm_aside *aside = rlm_vec_push(&t->asides);
        if (!aside) {
            return false;
        }
        *aside =
            (struct rlm_aside){edge->agent, (enum rlm_span_kind)kind, edge->time_us, next->time_us};
    }
    return true;
}

static bool name_asides(struct reading *r)
{
    struct rlm_timeline *t = r->timeline;
    rlm_autofree size_t *first = rlm_calloc(r->lanes.count + 1, sizeof *first);
    size_t pos = 0;
    rlm_str id;
    void *lane;
    bool fine = first != NULL;
    for (size_t i = t->asides.len; fine && i-- > 0;) {
        first[t->asides.items[i].agent] = i + 1;
    }
    while (fine && rlm_map_next(&r->lanes, &pos, &id, &lane)) {
        size_t place = first[((struct lane *)lane)->number];
        fine = !place || rlm_map_set(&t->asides_of, id, (void *)(uintptr_t)place) == 0;
    }
    return fine;
}

static void deinit(struct reading *r)
{
    size_t pos = 0;
    rlm_str id;
    void *lane;
    while (rlm_map_next(&r->lanes, &pos, &id, &lane)) {
        free(((struct lane *)lane)->open.items);
    }
    rlm_map_deinit(&r->lanes);
    rlm_undone_deinit(&r->undone);
    free(r->undone_us);
    free(r->edges.items);
    rlm_arena_free(r->scratch);
}

int rlm_timeline_read(struct rlm_timeline *t, const char *journal, rlm_error **err)
{
    struct reading r = {.timeline = t, .scratch = rlm_arena_new(0)};
    int result = r.scratch ? rlm_undone_read(journal, &r.undone, err) : rlm_error_nomem(err);
    if (result == 0) {
        r.undone_us = rlm_calloc(r.undone.list.len + 1, sizeof *r.undone_us);
        result = r.undone_us ? rlm_journal_read(journal, on_record, &r, NULL, err)
                             : rlm_error_nomem(err);
    }
    if (result == 0 && !(close_lanes(&r, true) && flatten(&r) && name_asides(&r))) {
        result = rlm_error_nomem(err);
    }
    deinit(&r);
    return result;
}
