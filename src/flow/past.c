#include "flow/past.h"

#include "flow/past_edit.h"
#include "flow/run.h"
#include "graph/record.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { SECOND_US = 1000000, TURNS_MAX = 1000 * 1000 }; /* turns of all agents */

struct reading {
    struct rlm_past_run *past;
    rlm_blobs *blobs;    /* what the past's texts are read from */
    rlm_arena *scratch;  /* of one record */
    struct rlm_map asks; /* number of an open ask -> struct rlm_lost_ask */
    struct rlm_undone_list undone;
    bool is_undone;     /* what the record says of its agent */
    int64_t began_us;   /* the drive under way */
    int64_t earlier_ms; /* of the drives before it */
    int64_t still_ms;   /* in which all agents of this drive waited for gates */
    int64_t gate_us;    /* the last question or answer */
    size_t n_turns;     /* of all agents */
};

/* ---- finding --------------------------------------------------------------------------------- */

struct rlm_past *rlm_past_of(const struct rlm_past_run *past, const rlm_graph *g)
{
    return rlm_map_get(&past->agents, rlm_str_of(g->agent_id));
}

struct rlm_past_cell *rlm_past_cell(const struct rlm_past *past, int64_t number)
{
    for (size_t i = past->cells.len; i-- > 0;) {
        if (past->cells.items[i]->number == number) {
            return past->cells.items[i];
        }
    }
    return NULL;
}

const struct rlm_past_session *rlm_past_session(const struct rlm_past *past)
{
    return past->sessions.len ? &past->sessions.items[past->sessions.len - 1] : NULL;
}

struct rlm_past_cell *rlm_past_in_flight(const struct rlm_past *past)
{
    struct rlm_past_cell *last = past->cells.len ? past->cells.items[past->cells.len - 1] : NULL;
    return last && !last->end && !last->broken ? last : NULL;
}

const struct rlm_past_session *rlm_past_session_of(const struct rlm_past *past, int64_t number)
{
    for (size_t i = 0; i < past->sessions.len; i++) {
        if (past->sessions.items[i].number == number) {
            return &past->sessions.items[i];
        }
    }
    return NULL;
}

const struct rlm_past_gate *rlm_past_turn_gate(const struct rlm_past *past, uint32_t seq)
{
    const struct rlm_node *node =
        seq < past->graph->nodes.len ? past->graph->nodes.items[seq] : NULL;
    for (size_t i = past->gates.len; node && i-- > 0;) {
        if (rlm_str_is(past->gates.items[i].node, node->id)) {
            return &past->gates.items[i].gate;
        }
    }
    return NULL;
}

static bool is_in(const struct rlm_past_session *s, const struct rlm_past_cell *cell)
{
    bool there = cell->session == s->number;
    for (size_t i = 0; i < s->restored.len && !there; i++) {
        there = s->restored.items[i] == cell->number;
    }
    return there;
}

bool rlm_past_is_in(const struct rlm_past *past, int64_t session, const struct rlm_past_cell *cell)
{
    const struct rlm_past_session *s = rlm_past_session_of(past, session);
    return s && is_in(s, cell);
}

int rlm_past_namespace(const struct rlm_past *past,
                       struct rlm_past_cell ***ret_cells,
                       size_t *ret_n,
                       rlm_error **err)
{
    const struct rlm_past_session *s = rlm_past_session(past);
    size_t n = 0;
    struct rlm_past_cell **list = rlm_calloc(past->cells.len + 1, sizeof *list);
    if (!list) {
        return rlm_error_nomem(err);
    }
    for (size_t i = 0; s && !s->given_up && i < past->cells.len; i++) {
        struct rlm_past_cell *cell = past->cells.items[i];
        if (cell->end && !cell->broken && is_in(s, cell)) {
            list[n++] = cell;
        }
    }
    *ret_cells = list;
    *ret_n = n;
    return 0;
}

/* ---- calls that are made again --------------------------------------------------------------- */

struct rlm_past_call *rlm_past_match(const struct rlm_past_cell *cell,
                                     const struct rlm_host_call *call)
{
    char key[RLM_SHA256_HEX + 1];
    if (rlm_host_call_key(call, key) < 0) {
        return NULL;
    }
    for (size_t i = 0; i < cell->calls.len; i++) {
        struct rlm_past_call *was = cell->calls.items[i];
        if (!was->made_as && strcmp(was->key, key) == 0) {
            return was;
        }
    }
    return NULL;
}

struct rlm_call_result rlm_past_result(const struct rlm_past_call *call)
{
    struct rlm_call_result result = {.id = call->made_as, .value_json = call->value_json};
    if (call->error_type.len) {
        result.error_type = call->error_type.ptr;
        result.error_reason = call->error_reason.ptr;
        result.error_message = call->error_message;
    }
    return result;
}

void rlm_past_forget_calls(struct rlm_past_cell *cell)
{
    for (size_t i = 0; i < cell->calls.len; i++) {
        cell->calls.items[i]->made_as = 0;
    }
}

bool rlm_is_same_output(rlm_str a, rlm_str b)
{
    size_t i = 0, k = 0;
    while (i < a.len && k < b.len && a.ptr[i] == b.ptr[k]) {
        i++, k++;
        if (i >= 2 && a.ptr[i - 2] == '0' && a.ptr[i - 1] == 'x') {
            while (i < a.len && isxdigit((unsigned char)a.ptr[i])) {
                i++;
            }
            while (k < b.len && isxdigit((unsigned char)b.ptr[k])) {
                k++;
            }
        }
    }
    return i == a.len && k == b.len;
}

/* ---- reading records ------------------------------------------------------------------------- */

static int
keep(struct reading *r, rlm_arena *arena, const rlm_json *value, rlm_str *ret, rlm_error **err)
{
    rlm_str text;
    int result = rlm_record_get_text(value, r->blobs, arena, &text, err);
    if (result < 0) {
        return result;
    }
    *ret = rlm_arena_copy(arena, text);
    return ret->ptr ? 0 : rlm_error_nomem(err);
}

static int keep_json(rlm_arena *arena, const rlm_json *value, rlm_str *ret, rlm_error **err)
{
    if (!value) {
        return rlm_error_set(err, RLM_E_CORRUPT, "a host call without its arguments");
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RLM_RECORD_MAX_BYTES);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_put(&w, value);
    int r = rlm_buf_check(&buf, err);
    if (r < 0) {
        return r;
    }
    *ret = rlm_arena_copy(arena, rlm_buf_str(&buf));
    return ret->ptr ? 0 : rlm_error_nomem(err);
}

static int64_t number(const rlm_json *record, const char *key)
{
    return rlm_json_int(rlm_json_get(record, key), 0);
}

/* The past of the agent that a record names; made when it is the first. */
static int
past_of_record(struct reading *r, const rlm_json *record, struct rlm_past **ret, rlm_error **err)
{
    rlm_str id = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR(""));
    struct rlm_past *past = rlm_map_get(&r->past->agents, id);
    if (!past) {
        if (!RLM_NEW(past)) {
            return rlm_error_nomem(err);
        }
        past->arena = rlm_arena_new(0);
        if (!past->arena || rlm_map_set(&r->past->agents, id, past) < 0) {
            rlm_arena_free(past->arena);
            free(past);
            return rlm_error_nomem(err);
        }
    }
    *ret = past;
    return 0;
}

static int session_opened(struct rlm_past *past, const rlm_json *record, rlm_error **err)
{
    struct rlm_past_session *s = rlm_vec_push(&past->sessions);
    if (!s) {
        return rlm_error_nomem(err);
    }
    s->number = number(record, "session");
    rlm_str seed = rlm_json_text(rlm_json_get(record, "seed"), RLM_STR(""));
    snprintf(past->seed, sizeof past->seed, "%.*s", RLM_FMT(seed));
    s->outside =
        !rlm_str_is(rlm_json_text(rlm_json_get(record, "effects"), RLM_STR("outside")), "none");
    const rlm_json *restored = rlm_json_get(record, "restored");
    for (uint32_t i = 0; rlm_json_is(restored, RLM_JSON_ARRAY) && i < restored->count; i++) {
        int64_t *slot = rlm_vec_push(&s->restored);
        if (!slot) {
            return rlm_error_nomem(err);
        }
        *slot = rlm_json_int(rlm_json_at(restored, i), 0);
    }
    return 0;
}

static void session_ended(struct rlm_past *past, const rlm_json *record)
{
    struct rlm_past_cell *cell = rlm_past_cell(past, number(record, "cell"));
    if (cell) {
        cell->broken = true;
    }
    if (past->sessions.len && rlm_str_is(rlm_json_text(rlm_json_get(record, "reason"), RLM_STR("")),
                                         RLM_SESSION_GIVEN_UP)) {
        past->sessions.items[past->sessions.len - 1].given_up = true;
    }
}

static int
cell_started(struct reading *r, struct rlm_past *past, const rlm_json *record, rlm_error **err)
{
    struct rlm_past_cell *cell = rlm_arena_alloc(past->arena, sizeof *cell);
    struct rlm_past_cell **slot = cell ? rlm_vec_push(&past->cells) : NULL;
    if (!slot) {
        return rlm_error_nomem(err);
    }
    *slot = cell;
    cell->number = number(record, "cell");
    cell->session = number(record, "session");
    cell->action = (uint32_t)number(record, "node");
    int result = keep(r, past->arena, rlm_json_get(record, "code"), &cell->code, err);
    if (result == 0 && rlm_json_get(record, "recovered")) {
        result = keep(r, past->arena, rlm_json_get(record, "recovered"), &cell->recovered, err);
    }
    return result;
}

static struct rlm_past_call *
find_call(const struct rlm_past *past, const rlm_json *record, const rlm_json *id)
{
    const struct rlm_past_cell *cell = rlm_past_cell(past, number(record, "cell"));
    int64_t wanted = rlm_json_int(id, 0);
    for (size_t i = cell ? cell->calls.len : 0; i-- > 0;) {
        if (cell->calls.items[i]->id == wanted) {
            return cell->calls.items[i];
        }
    }
    return NULL;
}

/* A restored cell made an unanswered call again: the new one, at the end, stands for both, in the place
 * of the old one: equal calls are told apart by their order. */
static void supersede(struct rlm_past_cell *cell, struct rlm_past_call *call, int64_t again)
{
    for (size_t i = 0; again && i + 1 < cell->calls.len; i++) {
        struct rlm_past_call *old = cell->calls.items[i];
        if (old->id == again) {
            call->first_id = old->first_id;
            call->replies.items = old->replies.items;
            call->replies.len = old->replies.len;
            call->replies.cap = old->replies.cap;
            call->gated = old->gated;
            call->gate = old->gate;
            cell->calls.items[i] = call;
            cell->calls.len--;
            return;
        }
    }
}

static int
call_started(struct reading *r, struct rlm_past *past, const rlm_json *record, rlm_error **err)
{
    struct rlm_past_cell *cell = rlm_past_cell(past, number(record, "cell"));
    if (!cell) {
        return rlm_error_set(err, RLM_E_CORRUPT, "a host call of a cell that was never started");
    }
    struct rlm_past_call *call = rlm_arena_alloc(past->arena, sizeof *call);
    struct rlm_past_call **slot = call ? rlm_vec_push(&cell->calls) : NULL;
    if (!slot) {
        return rlm_error_nomem(err);
    }
    *slot = call;
    call->id = call->first_id = number(record, "call");
    supersede(cell, call, number(record, "again"));
    past->last_call = call->id > past->last_call ? call->id : past->last_call;
    rlm_str key = rlm_json_text(rlm_json_get(record, "key"), RLM_STR(""));
    if (key.len == RLM_SHA256_HEX) {
        memcpy(call->key, key.ptr, key.len);
    }
    int result = keep(r, past->arena, rlm_json_get(record, "name"), &call->name, err);
    if (result == 0) {
        result = keep_json(past->arena, rlm_json_get(record, "args"), &call->args_json, err);
    }
    return result < 0
               ? result
               : keep_json(past->arena, rlm_json_get(record, "kwargs"), &call->kwargs_json, err);
}

static int
call_finished(struct reading *r, struct rlm_past *past, const rlm_json *record, rlm_error **err)
{
    struct rlm_past_call *call = find_call(past, record, rlm_json_get(record, "call"));
    if (!call) {
        return 0; /* refused before it became one */
    }
    call->finished = true;
    const rlm_json *error = rlm_json_get(record, "error"), *text;
    struct rlm_past_cell *cell = rlm_past_cell(past, number(record, "cell"));
    if ((text = rlm_json_get(record, "answer"))) {
        cell->answered = true;
        int result = keep(r, past->arena, text, &cell->answer, err);
        if (result < 0) {
            return result;
        }
    }
    if (error) {
        int result = keep(r, past->arena, rlm_json_get(error, "type"), &call->error_type, err);
        if (result == 0) {
            result = keep(r, past->arena, rlm_json_get(error, "reason"), &call->error_reason, err);
        }
        return result < 0 ? result
                          : keep(r, past->arena, rlm_json_get(error, "message"),
                                 &call->error_message, err);
    }
    if ((text = rlm_json_get(record, "value_text"))) {
        return keep(r, past->arena, text, &call->value_json, err);
    }
    const rlm_json *value = rlm_json_get(record, "value");
    if (!value) {
        return rlm_error_set(err, RLM_E_CORRUPT, "an answer without a value");
    }
    return keep_json(past->arena, value, &call->value_json, err);
}

static int call_delivered(struct rlm_past *past, const rlm_json *record, rlm_error **err)
{
    struct rlm_past_cell *cell = rlm_past_cell(past, number(record, "cell"));
    const rlm_json *ids = rlm_json_get(record, "calls");
    if (!cell || !rlm_json_is(ids, RLM_JSON_ARRAY)) {
        return 0;
    }
    struct rlm_past_delivery *d = rlm_vec_push(&cell->deliveries);
    if (!d || !(d->calls = rlm_arena_alloc(past->arena, (ids->count + 1) * sizeof *d->calls))) {
        return rlm_error_nomem(err);
    }
    d->calls_before = cell->calls.len;
    for (uint32_t i = 0; i < ids->count; i++) {
        struct rlm_past_call *call = find_call(past, record, rlm_json_at(ids, i));
        if (call) {
            call->delivered = true;
            d->calls[d->n_calls++] = call;
        }
    }
    return 0;
}

/* ---- the account ----------------------------------------------------------------------------- */

struct ask_key {
    char text[24];
};

static rlm_str ask_key(int64_t ask, struct ask_key *key)
{
    int len = snprintf(key->text, sizeof key->text, "%lld", (long long)ask);
    return (rlm_str){key->text, (size_t)len};
}

/* A turn's number is its place; another attempt at the same turn takes the place of the first. */
static int turn_asked(struct reading *r, const rlm_json *record, rlm_error **err)
{
    struct rlm_past *past;
    size_t turn = (size_t)number(record, "turn");
    int result = past_of_record(r, record, &past, err);
    while (result == 0 && past->turns.len < turn) {
        result = r->n_turns++ >= TURNS_MAX    ? rlm_error_set(err, RLM_E_LIMIT, "too many turns")
                 : rlm_vec_push(&past->turns) ? 0
                                              : rlm_error_nomem(err);
    }
    if (result == 0) {
        rlm_str hash = rlm_json_text(rlm_json_get(record, "messages"), RLM_STR(""));
        struct rlm_past_ask *ask = &past->turns.items[turn - 1];
        ask->messages = strtoull(hash.len ? hash.ptr : "0", NULL, 16);
        ask->final = rlm_json_bool(rlm_json_get(record, "final"), false);
        ask->turns_dropped = (int)number(record, "dropped");
        ask->drive = r->past->drives.len - 1;
    }
    return result;
}

static int reserved(struct reading *r, const rlm_json *record, rlm_error **err)
{
    struct ask_key key;
    int64_t ask = number(record, "ask");
    struct rlm_lost_ask *open = rlm_map_get(&r->asks, ask_key(ask, &key));
    r->past->last_ask = ask > r->past->last_ask ? ask : r->past->last_ask;
    if (!open && (!(open = rlm_arena_alloc(r->past->arena, sizeof *open)) ||
                  rlm_map_set(&r->asks, ask_key(ask, &key), open) < 0)) {
        return rlm_error_nomem(err);
    }
    rlm_str agent = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR(""));
    open->agent_id = rlm_arena_copy(r->past->arena, agent);
    open->ask = ask;
    open->held = (struct rlm_reservation){
        .input_tokens = number(record, "input_tokens"),
        .output_tokens = number(record, "output_tokens"),
        .cost_nano = number(record, "cost_nano"),
    };
    if (!open->agent_id.ptr) {
        return rlm_error_nomem(err);
    }
    bool turn = number(record, "turn") > 0 && number(record, "turn") < TURNS_MAX;
    return turn && !r->is_undone ? turn_asked(r, record, err) : 0;
}

static int settled(struct reading *r, const rlm_json *record, rlm_error **err)
{
    struct ask_key key;
    rlm_map_remove(&r->asks, ask_key(number(record, "ask"), &key));
    const rlm_json *text = rlm_json_get(record, "reply");
    struct rlm_past *past;
    if (!text || r->is_undone) {
        return 0;
    }
    int result = past_of_record(r, record, &past, err);
    if (result < 0) {
        return result;
    }
    struct rlm_past_call *call = find_call(past, record, rlm_json_get(record, "call"));
    struct rlm_past_reply *reply = call ? rlm_vec_push(&call->replies) : NULL;
    if (!reply) {
        return call ? rlm_error_nomem(err) : 0;
    }
    reply->part = number(record, "part");
    reply->shrunk = rlm_json_bool(rlm_json_get(record, "shrunk"), false);
    result = keep(r, past->arena, text, &reply->text, err);
    return result < 0 ? result
                      : keep(r, past->arena, rlm_json_get(record, "finish_reason"),
                             &reply->finish_reason, err);
}

/* ---- gates ----------------------------------------------------------------------------------- */

static enum rlm_gate_decision decision_of(const rlm_json *answer)
{
    rlm_str word = rlm_json_text(rlm_json_get(answer, "decision"), RLM_STR(""));
    return rlm_str_is(word, "allow")     ? RLM_DECISION_ALLOW
           : rlm_str_is(word, "rewrite") ? RLM_DECISION_REWRITE
                                         : RLM_DECISION_REJECT;
}

static int gate(struct reading *r, struct rlm_past *past, const rlm_json *record, rlm_error **err)
{
    const rlm_json *answer = rlm_json_get(record, "answer");
    rlm_str kind = rlm_json_text(rlm_json_get(record, "gate"), RLM_STR(""));
    struct rlm_past_gate said = {0};
    int64_t asked_us = number(rlm_json_get(record, "asked"), "t");
    int64_t t = answer ? number(answer, "t") : asked_us;
    r->gate_us = t > r->gate_us ? t : r->gate_us;
    r->still_ms = number(record, "still_ms");
    if (answer) {
        said.decision = decision_of(answer);
        int result = keep(r, past->arena, rlm_json_get(answer, "text"), &said.text, err);
        if (result < 0) {
            return result;
        }
    }
    if (rlm_str_is(kind, "host_call")) {
        struct rlm_past_call *call = find_call(past, record, rlm_json_get(record, "call"));
        if (call) {
            call->gated = true;
            call->gate = said;
        }
    } else if (rlm_str_is(kind, "exec_turn") && answer) {
        struct rlm_past_turn_gate *slot = rlm_vec_push(&past->gates);
        if (!slot) {
            return rlm_error_nomem(err);
        }
        slot->gate = said;
        slot->node =
            rlm_arena_copy(past->arena, rlm_json_text(rlm_json_get(record, "node"), RLM_STR("")));
        return slot->node.ptr ? 0 : rlm_error_nomem(err);
    }
    return 0;
}

/* ---- drives ---------------------------------------------------------------------------------- */

static int drive_began(struct reading *r, const rlm_json *record, rlm_error **err)
{
    struct rlm_limits *limits = rlm_vec_push(&r->past->drives);
    if (!limits) {
        return rlm_error_nomem(err);
    }
    *limits = (struct rlm_limits)RLM_LIMITS_INIT;
    rlm_record_get_limits(rlm_json_get(record, "options"), limits);
    r->began_us = number(record, "t");
    r->earlier_ms = number(record, "elapsed_ms");
    r->still_ms = 0;
    return 0;
}

static int input_list(struct reading *r, rlm_str payload, rlm_error **err)
{
    rlm_str *slot = rlm_vec_push(&r->past->input_lists);
    if (!slot) {
        return rlm_error_nomem(err);
    }
    *slot = rlm_arena_copy(r->past->arena, payload);
    return slot->ptr ? 0 : rlm_error_nomem(err);
}

static int blob(struct reading *r, const rlm_json *record, rlm_error **err)
{
    struct rlm_blob facts = {0};
    rlm_str id = rlm_json_text(rlm_json_get(record, "id"), RLM_STR(""));
    if (id.len != RLM_SHA256_HEX) {
        return rlm_error_set(err, RLM_E_CORRUPT, "a blob without an id");
    }
    memcpy(facts.id, id.ptr, id.len);
    facts.type = rlm_str_is(rlm_json_text(rlm_json_get(record, "type"), RLM_STR("")), "text")
                     ? RLM_BLOB_TEXT
                     : RLM_BLOB_BYTES;
    facts.size_bytes = (uint64_t)number(record, "size");
    facts.chars = (uint64_t)number(record, "chars");
    facts.max_char = (uint32_t)number(record, "max_char");
    return rlm_blobs_register(r->blobs, &facts, err);
}

static void edit(struct reading *r, const rlm_json *record)
{
    struct rlm_past *past =
        rlm_map_get(&r->past->agents, rlm_json_text(rlm_json_get(record, "agent"), RLM_STR("")));
    if (rlm_str_is(rlm_json_text(rlm_json_get(record, "edit"), RLM_STR("")), "fork")) {
        rlm_map_deinit(&r->asks); /* they are the other run's */
        r->asks = (struct rlm_map){0};
    } else if (past) {
        rlm_past_edit(past, record);
    }
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct reading *r = arg;
    const rlm_json *record;
    struct rlm_past *past = NULL;
    rlm_arena_reset(r->scratch);
    int result = rlm_json_parse(r->scratch, payload, &record, err);
    bool of_agent = kind == RLM_RECORD_SESSION_OPENED || kind == RLM_RECORD_SESSION_ENDED ||
                    kind == RLM_RECORD_CELL_STARTED || kind == RLM_RECORD_CALL_STARTED ||
                    kind == RLM_RECORD_CALL_FINISHED || kind == RLM_RECORD_CALL_DELIVERED ||
                    kind == RLM_RECORD_GATE;
    if (result == 0 && r->undone.list.len) {
        rlm_str id = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR(""));
        r->is_undone = rlm_undone_has(&r->undone, id, offset);
    }
    if (result == 0 && of_agent && !r->is_undone) {
        result = past_of_record(r, record, &past, err);
    }
    if (result < 0) {
        return rlm_error_wrap(err, result, "the record at byte %lld", (long long)offset);
    }
    if (of_agent && r->is_undone) {
        return 0;
    }
    switch (kind) {
    case RLM_RECORD_RUN:
    case RLM_RECORD_RESUMED:
        result = drive_began(r, record, err);
        break;
    case RLM_RECORD_INPUT_LIST:
        result = input_list(r, payload, err);
        break;
    case RLM_RECORD_BLOB:
        result = blob(r, record, err);
        break;
    case RLM_RECORD_SESSION_OPENED:
        result = session_opened(past, record, err);
        break;
    case RLM_RECORD_SESSION_ENDED:
        session_ended(past, record);
        break;
    case RLM_RECORD_CELL_STARTED:
        result = cell_started(r, past, record, err);
        break;
    case RLM_RECORD_CALL_STARTED:
        result = call_started(r, past, record, err);
        break;
    case RLM_RECORD_CALL_FINISHED:
        result = call_finished(r, past, record, err);
        break;
    case RLM_RECORD_CALL_DELIVERED:
        result = call_delivered(past, record, err);
        break;
    case RLM_RECORD_GATE:
        result = gate(r, past, record, err);
        break;
    case RLM_RECORD_RESERVE:
        result = reserved(r, record, err);
        break;
    case RLM_RECORD_SETTLE:
        result = settled(r, record, err);
        break;
    case RLM_RECORD_RUN_ENDED:
        break;
    case RLM_RECORD_EDIT:
        edit(r, record);
        break;
    default:
        break;
    }
    return result < 0 ? rlm_error_wrap(err, result, "the record at byte %lld", (long long)offset)
                      : 0;
}

/* ---- from the graph -------------------------------------------------------------------------- */

static bool ends_a_cell(const struct rlm_node *node)
{
    return node->type == RLM_EXEC_OUTPUT || node->type == RLM_ERROR_OUTPUT ||
           node->type == RLM_DONE_OUTPUT;
}

/* Which node ended each cell. */
static void find_ends(struct rlm_past *past)
{
    const rlm_graph *g = past->graph;
    for (size_t i = 0; i < past->cells.len; i++) {
        struct rlm_past_cell *cell = past->cells.items[i];
        size_t until = i + 1 < past->cells.len ? past->cells.items[i + 1]->action : g->nodes.len;
        for (size_t k = (size_t)cell->action + 1; k < until && k < g->nodes.len && !cell->end;
             k++) {
            cell->end = ends_a_cell(g->nodes.items[k]) ? g->nodes.items[k] : NULL;
        }
        if (cell->end && rlm_str_is(cell->end->error, "interrupted")) {
            cell->broken = true;
        }
    }
}

/* A reply that became a node is settled by it. */
static int find_lost_asks(struct reading *r, rlm_error **err)
{
    int64_t last_us = r->gate_us > r->began_us ? r->gate_us : r->began_us;
    for (rlm_graph *g = r->past->root; g; g = rlm_graph_next(r->past->root, g)) {
        for (size_t i = 0; i < g->nodes.len; i++) {
            const struct rlm_node *node = g->nodes.items[i];
            struct ask_key key;
            last_us = node->time_us > last_us ? node->time_us : last_us;
            if (node->type == RLM_LLM_OUTPUT) {
                rlm_map_remove(&r->asks, ask_key(node->call_id, &key));
            }
        }
    }
    int64_t ran_ms = (last_us - r->began_us) / (SECOND_US / 1000) - r->still_ms;
    r->past->elapsed_ms = r->earlier_ms + (ran_ms > 0 ? ran_ms : 0);
    size_t pos = 0;
    void *value;
    while (rlm_map_next(&r->asks, &pos, NULL, &value)) {
        struct rlm_lost_ask *slot = rlm_vec_push(&r->past->lost_asks);
        if (!slot) {
            return rlm_error_nomem(err);
        }
        *slot = *(struct rlm_lost_ask *)value;
    }
    return 0;
}

static int join_with_graph(struct reading *r, rlm_error **err)
{
    size_t pos = 0;
    rlm_str id;
    void *value;
    while (rlm_map_next(&r->past->agents, &pos, &id, &value)) {
        struct rlm_past *past = value;
        past->graph = rlm_map_get(&r->past->root->agents, id);
        if (!past->graph) {
            return rlm_error_set(err, RLM_E_CORRUPT,
                                 "records of an agent that was never made: %.*s", RLM_FMT(id));
        }
        find_ends(past);
    }
    return find_lost_asks(r, err);
}

struct rlm_past *rlm_past_take(struct rlm_past_run *past_run, rlm_graph *g)
{
    struct rlm_past *past = rlm_map_remove(&past_run->agents, rlm_str_of(g->agent_id));
    if (past) { /* the graph may be another, or have been reopened since */
        past->graph = g;
        for (size_t i = 0; i < past->cells.len; i++) {
            past->cells.items[i]->end = NULL;
        }
        find_ends(past);
    }
    return past;
}

int rlm_past_load(const char *path,
                  rlm_blobs *blobs,
                  struct rlm_past_run **ret_past,
                  struct rlm_journal_damage *ret_damage,
                  rlm_error **err)
{
    struct rlm_past_run *past;
    if (!RLM_NEW(past)) {
        return rlm_error_nomem(err);
    }
    struct reading r = {.past = past, .blobs = blobs, .scratch = rlm_arena_new(0)};
    past->arena = rlm_arena_new(0);
    int result = r.scratch && past->arena ? 0 : rlm_error_nomem(err);
    if (result == 0) {
        result = rlm_undone_read(path, &r.undone, err);
    }
    if (result == 0) {
        result = rlm_record_load(path, on_record, &r, &past->root, ret_damage, err);
    }
    if (result == 0) {
        result = join_with_graph(&r, err);
    }
    rlm_map_deinit(&r.asks);
    rlm_undone_deinit(&r.undone);
    rlm_arena_free(r.scratch);
    if (result < 0) {
        rlm_past_free(past);
        return result;
    }
    *ret_past = past;
    return 0;
}

void rlm_past_cell_deinit(struct rlm_past_cell *cell)
{
    for (size_t k = 0; k < cell->calls.len; k++) {
        free(cell->calls.items[k]->replies.items);
    }
    free(cell->calls.items);
    free(cell->deliveries.items);
}

void rlm_past_agent_free(struct rlm_past *past)
{
    if (!past) {
        return;
    }
    for (size_t i = 0; i < past->sessions.len; i++) {
        free(past->sessions.items[i].restored.items);
    }
    for (size_t i = 0; i < past->cells.len; i++) {
        rlm_past_cell_deinit(past->cells.items[i]);
    }
    free(past->sessions.items);
    free(past->cells.items);
    free(past->turns.items);
    free(past->gates.items);
    rlm_arena_free(past->arena);
    free(past);
}

void rlm_past_free(struct rlm_past_run *past)
{
    if (!past) {
        return;
    }
    size_t pos = 0;
    void *value;
    while (rlm_map_next(&past->agents, &pos, NULL, &value)) {
        rlm_past_agent_free(value);
    }
    rlm_map_deinit(&past->agents);
    rlm_graph_free(past->root);
    free(past->lost_asks.items);
    free(past->input_lists.items);
    free(past->drives.items);
    rlm_arena_free(past->arena);
    free(past);
}
