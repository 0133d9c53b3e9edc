/* What the embedding program answers for a session, checked as the frames of a worker are. */
#include "runtime/backend.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- taking ---------------------------------------------------------------------------------- */

/* Kept until a later turn: no event comes inside a call. */
static void take(rlm_backend *b, uint64_t step, enum backend_answer answer, rlm_str said)
{
    if (b->state == BACKEND_DEAD || !b->is_asked || step != b->step) {
        return;
    }
    b->is_asked = false;
    b->answer = answer;
    rlm_buf_clear(&b->said);
    rlm_buf_add_str(&b->said, said);
    rlm_defer_schedule(b->tell);
}

void rlm_backend_opened(rlm_backend *b, uint64_t step)
{
    take(b, step, ANSWER_OPENED, RLM_STR(""));
}

void rlm_backend_finished(rlm_backend *b, uint64_t step, rlm_str finished_json)
{
    take(b, step, ANSWER_FINISHED, finished_json);
}

void rlm_backend_suspended(rlm_backend *b, uint64_t step, rlm_str suspended_json)
{
    take(b, step, ANSWER_SUSPENDED, suspended_json);
}

void rlm_backend_fail(rlm_backend *b, uint64_t step, rlm_str why)
{
    take(b, step, ANSWER_FAILED, why);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A value of 64 KiB or more becomes a blob here, in the tree of the message, which is our own. */
static int shorten(rlm_backend *b, rlm_arena *a, const rlm_json *value, rlm_error **err)
{
    int r = 0;
    rlm_json *own = (rlm_json *)(uintptr_t)value;
    if (value->type == RLM_JSON_ARRAY) {
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            r = shorten(b, a, &value->items[i], err);
        }
    } else if (value->type == RLM_JSON_OBJECT) {
        bool is_bytes = value->count == 1 && rlm_str_is(value->members[0].key, "$bytes");
        for (uint32_t i = 0; r == 0 && !is_bytes && i < value->count; i++) {
            r = shorten(b, a, &value->members[i].value, err);
        }
    } else if (value->type == RLM_JSON_STRING && value->text.len >= RLM_BLOB_THRESHOLD) {
        const struct rlm_blob *blob;
        struct rlm_json_member *m = rlm_arena_alloc(a, sizeof *m);
        if (!m) {
            return rlm_error_nomem(err);
        }
        if ((r = rlm_blobs_put(b->blobs, RLM_BLOB_TEXT, value->text, &blob, err)) < 0) {
            return r;
        }
        m->key = RLM_STR("$blob");
        m->value = (rlm_json){.type = RLM_JSON_STRING, .text = rlm_str_of(blob->id)};
        *own = (rlm_json){.type = RLM_JSON_OBJECT, .count = 1, .members = m};
        r = rlm_map_set(&b->known, rlm_str_of(blob->id), b) < 0 ? rlm_error_nomem(err) : 0;
    }
    return r;
}

static int check_reference(void *arg, const struct rlm_json_member *m, rlm_error **err)
{
    rlm_backend *b = arg;
    rlm_str id = rlm_json_text(&m->value, RLM_STR_NONE);
    if (!rlm_str_is(m->key, "$blob") || !rlm_map_has(&b->known, id)) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "a call names a value that the session was not given");
    }
    return 0;
}

int rlm_backend_read(rlm_backend *b,
                     rlm_str hash,
                     char **ret_bytes,
                     size_t *ret_len,
                     bool *ret_is_text,
                     rlm_error **err)
{
    const struct rlm_blob *blob =
        !b->closed && rlm_map_has(&b->known, hash) ? rlm_blobs_find(b->blobs, hash) : NULL;
    if (!blob) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "the session has no such value%s",
                             b->closed ? ": it has ended" : "");
    }
    rlm_auto_buf struct rlm_buf bytes = RLM_BUF(blob->size_bytes + 1);
    int r = rlm_blobs_read(b->blobs, hash, &bytes, err);
    if (r < 0) {
        return r;
    }
    *ret_len = bytes.len;
    *ret_is_text = blob->type == RLM_BLOB_TEXT;
    *ret_bytes = rlm_buf_take(&bytes);
    return *ret_bytes ? 0 : rlm_error_nomem(err);
}

/* ---- suspended ------------------------------------------------------------------------------- */

static int take_call(
    rlm_backend *b, rlm_arena *a, const rlm_json *v, struct rlm_host_call *call, rlm_error **err)
{
    int r = rlm_message_read_call(v, call, err);
    if (r < 0) {
        return r;
    }
    if (call->id <= b->last_own) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "a call came with id %" PRId64 " after %" PRId64 ": ids ascend",
                             call->id, b->last_own);
    }
    if (b->calls.len >= RLM_SESSION_MAX_OPEN_CALLS) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "more than %d host calls were open at once",
                             RLM_SESSION_MAX_OPEN_CALLS);
    }
    if ((r = shorten(b, a, call->args, err)) < 0 || (r = shorten(b, a, call->kwargs, err)) < 0 ||
        (r = rlm_message_check_values(call, check_reference, b, err)) < 0) {
        return r;
    }
    struct backend_call *open = rlm_vec_push(&b->calls);
    if (!open) {
        return rlm_error_nomem(err);
    }
    b->last_own = call->id;
    *open = (struct backend_call){.id = ++b->last_call, .own = call->id};
    call->id = open->id;
    return 0;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

struct ids {
    int64_t *items; /* ascending */
    size_t len;
};

static bool has(const struct ids *ids, int64_t id)
{
    return bsearch(&id, ids->items, ids->len, sizeof id, compare) != NULL;
}

/* The calls that the answer leaves out of "pending" are given up, and with them the results that wait. */
static int give_up(rlm_backend *b, rlm_arena *a, const rlm_json *message, struct ids *ret_given_up)
{
    const rlm_json *list = rlm_json_get(message, "pending");
    struct ids pending = {0}, given_up = {0};
    if (!rlm_json_is(list, RLM_JSON_ARRAY)) {
        *ret_given_up = given_up;
        return 0;
    }
    pending.items = rlm_arena_alloc(a, (list->count + 1) * sizeof *pending.items);
    given_up.items = rlm_arena_alloc(a, (b->calls.len + 1) * sizeof *given_up.items);
    if (!pending.items || !given_up.items) {
        return RLM_E_NOMEM;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        pending.items[pending.len++] = rlm_json_int(&list->items[i], 0);
    }
    qsort(pending.items, pending.len, sizeof *pending.items, compare);
    size_t kept = 0;
    for (size_t i = 0; i < b->calls.len; i++) {
        struct backend_call call = b->calls.items[i];
        if (has(&pending, call.own)) {
            b->calls.items[kept++] = call;
        } else {
            given_up.items[given_up.len++] = call.id;
        }
    }
    b->calls.len = kept;
    for (size_t i = 0; i < b->results.len;) {
        if (has(&pending, b->results.items[i].own)) {
            i++;
        } else {
            b->result_bytes -= b->results.items[i].len;
            free(b->results.items[i].json);
            rlm_vec_remove(&b->results, i);
        }
    }
    *ret_given_up = given_up;
    return 0;
}

static bool is_open(const rlm_backend *b, int64_t own)
{
    bool open = false;
    for (size_t i = 0; !open && i < b->results.len; i++) {
        open = b->results.items[i].own == own;
    }
    size_t low = 0, high = b->calls.len;
    while (!open && low < high) {
        size_t middle = low + (high - low) / 2;
        int64_t at = b->calls.items[middle].own;
        open = at == own;
        if (at < own) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return open;
}

static int check_pending(const rlm_backend *b, const rlm_json *message, rlm_error **err)
{
    const rlm_json *list = rlm_json_get(message, "pending");
    for (uint32_t i = 0; rlm_json_is(list, RLM_JSON_ARRAY) && i < list->count; i++) {
        int64_t id = rlm_json_int(&list->items[i], 0);
        if (!is_open(b, id)) {
            return rlm_error_set(err, RLM_E_PROTOCOL,
                                 "it waits for call %" PRId64 ", which is not open", id);
        }
    }
    return 0;
}

static int suspended(rlm_backend *b, rlm_arena *a, const rlm_json *message, rlm_error **err)
{
    const rlm_json *list = rlm_json_get(message, "calls");
    uint32_t count = rlm_json_is(list, RLM_JSON_ARRAY) ? list->count : 0;
    struct rlm_host_call *calls = rlm_arena_alloc(a, (count + 1) * sizeof *calls);
    struct ids given_up;
    if (!calls || give_up(b, a, message, &given_up) < 0) {
        return rlm_error_nomem(err);
    }
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        r = take_call(b, a, &list->items[i], &calls[i], err);
    }
    if (r < 0 || (r = check_pending(b, message, err)) < 0) {
        return r;
    }
    if (!b->calls.len && !b->results.len && !b->yield_asked && !given_up.len) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "a cell was suspended without waiting for a call");
    }
    b->state = BACKEND_SUSPENDED;
    b->wanted = b->calls.len == 0;
    b->in_suspended = true;
    if (given_up.len && b->events.given_up) {
        b->events.given_up(b->arg, given_up.items, given_up.len);
    }
    if (b->state == BACKEND_SUSPENDED && (count || (!b->results.len && b->calls.len))) {
        b->events.suspended(b->arg, calls, count);
    }
    b->in_suspended = false;
    backend_go_on(b);
    return 0;
}

/* ---- finished -------------------------------------------------------------------------------- */

static int finished(rlm_backend *b, rlm_arena *a, const rlm_json *message, rlm_error **err)
{
    struct rlm_cell_finished how;
    int r = rlm_message_read_finished(message, a, &how, err);
    if (r < 0) {
        return r;
    }
    b->state = BACKEND_IDLE;
    b->calls.len = 0;
    backend_clear_results(b);
    b->unwinding = false;
    rlm_timer_stop(b->timer);
    b->events.finished(b->arg, &how);
    return 0;
}

/* ---- telling --------------------------------------------------------------------------------- */

static int read_message(rlm_backend *b, rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(2 * (size_t)BACKEND_MAX_MESSAGE);
    const rlm_json *message;
    rlm_autoerr rlm_error *why = NULL;
    int r = rlm_buf_check(&b->said, err);
    if (r < 0 || !arena) {
        return r < 0 ? r : rlm_error_nomem(err);
    }
    if ((r = rlm_json_parse(arena, rlm_buf_str(&b->said), &message, &why)) < 0) {
        return rlm_error_set(err, r, "its answer is no JSON: %s", rlm_error_message(why));
    }
    if (message->type != RLM_JSON_OBJECT) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "its answer is no JSON object");
    }
    return b->answer == ANSWER_FINISHED ? finished(b, arena, message, err)
                                        : suspended(b, arena, message, err);
}

static void die_of_error(rlm_backend *b, const rlm_error *err)
{
    rlm_auto_buf struct rlm_buf text = RLM_BUF(64 * 1024);
    if (rlm_blobs_write_failed(b->blobs)) {
        backend_die(b, "disk", rlm_str_of(rlm_error_message(err)), RLM_STR_NONE);
        return;
    }
    rlm_buf_addf(&text, "the backend of the session did what it must not do: %s",
                 rlm_error_message(err));
    backend_die(b, "backend", rlm_buf_str(&text), RLM_STR_NONE);
}

static void failed(rlm_backend *b)
{
    struct backend_inner *inner = &b->inner;
    if (inner->death_reason) {
        backend_die(b, inner->death_reason, rlm_buf_str(&inner->death_message),
                    rlm_buf_str(&inner->death_output));
        return;
    }
    rlm_auto_buf struct rlm_buf text = RLM_BUF(64 * 1024);
    rlm_str why = rlm_buf_str(&b->said);
    why.len = why.len > 32 * 1024 ? 32 * 1024 : why.len;
    rlm_buf_addf(&text, "the backend of the session failed: %.*s", (int)why.len,
                 why.ptr ? why.ptr : "");
    backend_die(b, "backend", rlm_buf_str(&text), RLM_STR_NONE);
}

static void opened(rlm_backend *b)
{
    bool has_said = b->inner.ready.len > 0;
    b->state = BACKEND_IDLE;
    b->events.ready(b->arg, has_said ? rlm_buf_str(&b->inner.ready) : RLM_STR("{}"));
}

static void tell_death(rlm_backend *b)
{
    struct rlm_session_death how = {
        .reason = b->death_reason,
        .message = rlm_buf_str(&b->death_message),
        .output = b->died_in_cell ? rlm_buf_str(&b->death_output) : RLM_STR_NONE,
        .during_cell = b->died_in_cell,
    };
    b->events.died(b->arg, &how);
}

void backend_tell(void *arg)
{
    rlm_backend *b = arg;
    rlm_autoerr rlm_error *err = NULL;
    int r = 0;
    backend_enter(b);
    bool opening = b->state == BACKEND_OPENING;
    if (b->state == BACKEND_DEAD) {
        tell_death(b);
    } else if (b->answer == ANSWER_FAILED) {
        failed(b);
    } else if (opening != (b->answer == ANSWER_OPENED)) {
        r = rlm_error_set(&err, RLM_E_PROTOCOL, "it answered %s with the end of %s",
                          opening ? "open" : "start or resume", opening ? "a cell" : "an opening");
    } else if (opening) {
        opened(b);
    } else {
        r = read_message(b, &err);
    }
    if (r < 0) {
        die_of_error(b, err);
    }
    backend_leave(b);
}
