/* What the records of an agent's sessions say: the sessions, their cells and host calls, the gates. */
#include "flow/past_load.h"
#include "graph/record.h"

#include <stdio.h>

static int keep(struct rlm_past_reading *r,
                rlm_arena *arena,
                const rlm_json *value,
                rlm_str *ret,
                rlm_error **err)
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

/* ---- sessions and cells ---------------------------------------------------------------------- */

static int session_opened(struct rlm_past *past, const rlm_json *record, rlm_error **err)
{
    struct rlm_past_session *s = rlm_vec_push(&past->sessions);
    if (!s) {
        return rlm_error_nomem(err);
    }
    s->number = rlm_past_number(record, "session");
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
    struct rlm_past_cell *cell = rlm_past_cell(past, rlm_past_number(record, "cell"));
    if (cell) {
        cell->broken = true;
    }
    if (past->sessions.len && rlm_str_is(rlm_json_text(rlm_json_get(record, "reason"), RLM_STR("")),
                                         RLM_SESSION_GIVEN_UP)) {
        past->sessions.items[past->sessions.len - 1].given_up = true;
    }
}

static int cell_started(struct rlm_past_reading *r,
                        struct rlm_past *past,
                        const rlm_json *record,
                        rlm_error **err)
{
    struct rlm_past_cell *cell = rlm_arena_alloc(past->arena, sizeof *cell);
    struct rlm_past_cell **slot = cell ? rlm_vec_push(&past->cells) : NULL;
    if (!slot) {
        return rlm_error_nomem(err);
    }
    *slot = cell;
    cell->number = rlm_past_number(record, "cell");
    cell->session = rlm_past_number(record, "session");
    cell->action = (uint32_t)rlm_past_number(record, "node");
    int result = keep(r, past->arena, rlm_json_get(record, "code"), &cell->code, err);
    if (result == 0 && rlm_json_get(record, "recovered")) {
        result = keep(r, past->arena, rlm_json_get(record, "recovered"), &cell->recovered, err);
    }
    return result;
}

/* ---- host calls ------------------------------------------------------------------------------ */

static struct rlm_past_call *
find_call(const struct rlm_past *past, const rlm_json *record, const rlm_json *id)
{
    const struct rlm_past_cell *cell = rlm_past_cell(past, rlm_past_number(record, "cell"));
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

static int call_started(struct rlm_past_reading *r,
                        struct rlm_past *past,
                        const rlm_json *record,
                        rlm_error **err)
{
    struct rlm_past_cell *cell = rlm_past_cell(past, rlm_past_number(record, "cell"));
    if (!cell) {
        return rlm_error_set(err, RLM_E_CORRUPT, "a host call of a cell that was never started");
    }
    struct rlm_past_call *call = rlm_arena_alloc(past->arena, sizeof *call);
    struct rlm_past_call **slot = call ? rlm_vec_push(&cell->calls) : NULL;
    if (!slot) {
        return rlm_error_nomem(err);
    }
    *slot = call;
    call->id = call->first_id = rlm_past_number(record, "call");
    supersede(cell, call, rlm_past_number(record, "again"));
    past->last_call = call->id > past->last_call ? call->id : past->last_call;
    rlm_str key = rlm_json_text(rlm_json_get(record, "key"), RLM_STR(""));
    if (key.len == RLM_SHA256_HEX) {
        memcpy(call->key, key.ptr, key.len);
    }
    int result = keep(r, past->arena, rlm_json_get(record, "name"), &call->name, err);
    if (rlm_json_bool(rlm_json_get(record, "large"), false)) {
        return result;
    }
    if (result == 0) {
        result = keep_json(past->arena, rlm_json_get(record, "args"), &call->args_json, err);
    }
    return result < 0
               ? result
               : keep_json(past->arena, rlm_json_get(record, "kwargs"), &call->kwargs_json, err);
}

static int call_finished(struct rlm_past_reading *r,
                         struct rlm_past *past,
                         const rlm_json *record,
                         rlm_error **err)
{
    struct rlm_past_call *call = find_call(past, record, rlm_json_get(record, "call"));
    if (!call) {
        return 0; /* refused before it became one */
    }
    call->finished = true;
    const rlm_json *error = rlm_json_get(record, "error"), *text;
    struct rlm_past_cell *cell = rlm_past_cell(past, rlm_past_number(record, "cell"));
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
    struct rlm_past_cell *cell = rlm_past_cell(past, rlm_past_number(record, "cell"));
    const rlm_json *ids = rlm_json_get(record, "calls");
    if (!cell || !rlm_json_is(ids, RLM_JSON_ARRAY)) {
        return 0;
    }
    struct rlm_past_delivery *d = rlm_vec_push(&cell->deliveries);
    if (!d || !(d->calls = rlm_arena_alloc(past->arena, (ids->count + 1) * sizeof *d->calls))) {
        return rlm_error_nomem(err);
    }
    d->time_us = rlm_json_int(rlm_json_get(record, "t"), 0);
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

int rlm_past_read_reply(struct rlm_past_reading *r, const rlm_json *record, rlm_error **err)
{
    struct rlm_past *past;
    int result = rlm_past_of_record(r, record, &past, err);
    if (result < 0) {
        return result;
    }
    struct rlm_past_call *call = find_call(past, record, rlm_json_get(record, "call"));
    struct rlm_past_reply *reply = call ? rlm_vec_push(&call->replies) : NULL;
    if (!reply) {
        return call ? rlm_error_nomem(err) : 0;
    }
    reply->part = rlm_past_number(record, "part");
    reply->shrunk = rlm_json_bool(rlm_json_get(record, "shrunk"), false);
    result = keep(r, past->arena, rlm_json_get(record, "reply"), &reply->text, err);
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
           : rlm_str_is(word, "skip")    ? RLM_DECISION_SKIP
                                         : RLM_DECISION_REJECT;
}

static int
gate(struct rlm_past_reading *r, struct rlm_past *past, const rlm_json *record, rlm_error **err)
{
    const rlm_json *answer = rlm_json_get(record, "answer");
    rlm_str kind = rlm_json_text(rlm_json_get(record, "gate"), RLM_STR(""));
    struct rlm_past_gate said = {0};
    int64_t asked_us = rlm_past_number(rlm_json_get(record, "asked"), "t");
    int64_t t = answer ? rlm_past_number(answer, "t") : asked_us;
    rlm_past_saw(r, t);
    r->still_ms = rlm_past_number(record, "still_ms");
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

/* ---- which is which -------------------------------------------------------------------------- */

int rlm_past_read_session(struct rlm_past_reading *r,
                          enum rlm_record_kind kind,
                          const rlm_json *record,
                          rlm_error **err)
{
    struct rlm_past *past;
    bool is_mine = kind == RLM_RECORD_SESSION_OPENED || kind == RLM_RECORD_SESSION_ENDED ||
                   kind == RLM_RECORD_CELL_STARTED || kind == RLM_RECORD_CALL_STARTED ||
                   kind == RLM_RECORD_CALL_FINISHED || kind == RLM_RECORD_CALL_DELIVERED ||
                   kind == RLM_RECORD_GATE;
    int result = is_mine ? rlm_past_of_record(r, record, &past, err) : 0;
    if (!is_mine || result < 0) {
        return result;
    }
    switch (kind) {
    case RLM_RECORD_SESSION_OPENED:
        return session_opened(past, record, err);
    case RLM_RECORD_SESSION_ENDED:
        session_ended(past, record);
        return 0;
    case RLM_RECORD_CELL_STARTED:
        return cell_started(r, past, record, err);
    case RLM_RECORD_CALL_STARTED:
        return call_started(r, past, record, err);
    case RLM_RECORD_CALL_FINISHED:
        return call_finished(r, past, record, err);
    case RLM_RECORD_CALL_DELIVERED:
        return call_delivered(past, record, err);
    default:
        return gate(r, past, record, err);
    }
}
