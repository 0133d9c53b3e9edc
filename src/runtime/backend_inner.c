/* The session of another runtime that a backend wraps: led by hand, its outcomes told to the program. */
#include "runtime/backend.h"

#include "base/error.h"

#include <stdlib.h>

static void tell(rlm_backend *b, enum rlm_inner_outcome outcome, rlm_str json)
{
    struct rlm_backend_options *o = &b->runtime->options;
    o->inner(o->arg, b, outcome, json);
}

/* ---- its events ------------------------------------------------------------------------------ */

static void ready(void *arg, rlm_str ready_json)
{
    rlm_backend *b = arg;
    backend_enter(b);
    b->inner.state = INNER_IDLE;
    rlm_buf_clear(&b->inner.ready);
    rlm_buf_add_str(&b->inner.ready, ready_json);
    tell(b, RLM_INNER_READY, ready_json);
    backend_leave(b);
}

static void given_up(void *arg, const int64_t *ids, size_t n_ids)
{
    struct backend_inner *inner = &((rlm_backend *)arg)->inner;
    size_t kept = 0;
    for (size_t i = 0, at = 0; i < inner->pending.len; i++) {
        int64_t id = inner->pending.items[i];
        while (at < n_ids && ids[at] < id) {
            at++;
        }
        if (at == n_ids || ids[at] != id) {
            inner->pending.items[kept++] = id;
        }
    }
    inner->pending.len = kept;
}

static int know_call(rlm_backend *b, const struct rlm_host_call *call, rlm_str json)
{
    int64_t *place = rlm_vec_push(&b->inner.pending);
    if (!place) {
        return RLM_E_NOMEM;
    }
    *place = call->id;
    return backend_know_blobs(b, json, NULL);
}

static void put_call(struct rlm_json_writer *w, const struct rlm_host_call *call)
{
    rlm_json_begin(w, '{');
    rlm_json_member_int(w, "id", call->id);
    rlm_json_member_str(w, "name", call->name);
    rlm_json_key(w, "args"), rlm_json_put(w, call->args);
    rlm_json_key(w, "kwargs"), rlm_json_put(w, call->kwargs);
    rlm_json_end(w, '}');
}

static void suspended(void *arg, const struct rlm_host_call *calls, size_t n_calls)
{
    rlm_backend *b = arg;
    struct backend_inner *inner = &b->inner;
    rlm_auto_buf struct rlm_buf json = RLM_BUF(BACKEND_MAX_MESSAGE);
    struct rlm_json_writer w = {.buf = &json};
    int r = 0;
    backend_enter(b);
    inner->state = INNER_SUSPENDED;
    rlm_json_begin(&w, '{');
    rlm_json_key(&w, "calls"), rlm_json_begin(&w, '[');
    for (size_t i = 0; r == 0 && i < n_calls; i++) {
        size_t start = json.len + (i > 0);
        put_call(&w, &calls[i]);
        r = rlm_buf_check(&json, NULL);
        if (r == 0) {
            r = know_call(b, &calls[i], rlm_str_sub(rlm_buf_str(&json), start, json.len));
        }
    }
    rlm_json_end(&w, ']');
    rlm_json_key(&w, "pending"), rlm_json_begin(&w, '[');
    for (size_t i = 0; i < inner->pending.len; i++) {
        rlm_json_put_int(&w, inner->pending.items[i]);
    }
    rlm_json_end(&w, ']');
    rlm_json_end(&w, '}');
    if (r < 0 || rlm_buf_check(&json, NULL) < 0) {
        backend_die(b, "backend", RLM_STR("no memory for the calls of the session"), RLM_STR_NONE);
    } else {
        tell(b, RLM_INNER_SUSPENDED, rlm_buf_str(&json));
    }
    backend_leave(b);
}

static void finished(void *arg, const struct rlm_cell_finished *how)
{
    rlm_backend *b = arg;
    rlm_auto_buf struct rlm_buf json = RLM_BUF(BACKEND_MAX_MESSAGE);
    struct rlm_json_writer w = {.buf = &json};
    backend_enter(b);
    b->inner.state = INNER_IDLE;
    b->inner.pending.len = 0;
    rlm_message_put_finished(&w, how);
    if (rlm_buf_check(&json, NULL) < 0) {
        backend_die(b, "backend", RLM_STR("no memory for the output of the cell"), RLM_STR_NONE);
    } else {
        tell(b, RLM_INNER_FINISHED, rlm_buf_str(&json));
    }
    backend_leave(b);
}

/* The backend answers for it while it is asked something; else this is the end of the session. */
static void died(void *arg, const struct rlm_session_death *how)
{
    rlm_backend *b = arg;
    struct backend_inner *inner = &b->inner;
    bool was_awaited = inner->state == INNER_OPENING || inner->state == INNER_RUNNING;
    backend_enter(b);
    inner->state = INNER_DEAD;
    if (!b->is_asked) {
        backend_die(b, how->reason, how->message, how->output);
    } else {
        inner->death_reason = how->reason;
        rlm_buf_add_str(&inner->death_message, how->message);
        rlm_buf_add_str(&inner->death_output, how->output);
    }
    if (was_awaited && b->is_asked) {
        rlm_auto_buf struct rlm_buf json = RLM_BUF(BACKEND_MAX_MESSAGE);
        struct rlm_json_writer w = {.buf = &json};
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "reason", how->reason);
        rlm_json_member_str(&w, "message", how->message);
        rlm_json_member_str(&w, "output", how->output.ptr ? how->output : RLM_STR(""));
        rlm_json_end(&w, '}');
        tell(b, RLM_INNER_DIED, rlm_buf_str(&json));
    }
    backend_leave(b);
}

static void woken(void *arg)
{
    rlm_backend *b = arg;
    backend_enter(b);
    b->inner.woken = true;
    backend_go_on(b);
    backend_leave(b);
}

static const struct rlm_session_events events = {
    .ready = ready,
    .suspended = suspended,
    .finished = finished,
    .died = died,
    .given_up = given_up,
    .woken = woken,
};

/* ---- what the program asks of it ------------------------------------------------------------- */

static int check(const rlm_backend *b, enum inner_state wanted, const char *what, rlm_error **err)
{
    if (b->state == BACKEND_DEAD || b->inner.state == INNER_DEAD) {
        return rlm_error_set(err, RLM_E_SESSION, "%s: the session has ended", what);
    }
    if (!b->is_asked) {
        return rlm_error_set(err, RLM_E_INVAL, "%s: the backend has been asked nothing", what);
    }
    if (b->inner.state != wanted) {
        static const char *const states[] = {"none has been opened", "it is being opened",
                                             "it runs no cell", "it runs a cell",
                                             "its cell is suspended"};
        return rlm_error_set(err, RLM_E_INVAL, "%s: %s", what, states[b->inner.state]);
    }
    return 0;
}

static void open_now(void *arg)
{
    rlm_backend *b = arg;
    struct backend_inner *inner = &b->inner;
    rlm_autoerr rlm_error *err = NULL;
    if (inner->state != INNER_OPENING) {
        return; /* it has been closed meanwhile */
    }
    if (rlm_session_open(inner->runtime, &b->options, &events, b, &inner->session, &err) == 0) {
        rlm_session_pause(inner->session, b->paused);
        return;
    }
    died(b, &(struct rlm_session_death){.reason = "open",
                                        .message = rlm_str_of(rlm_error_message(err))});
}

/* On a turn of the loop, whoever turns it: a worker is a child of the thread that starts it, and ends
 * with that thread. */
int rlm_backend_open_inner(rlm_backend *b, rlm_runtime *runtime, rlm_error **err)
{
    struct backend_inner *inner = &b->inner;
    int r = check(b, INNER_NONE, "opening the inner session", err);
    if (r < 0) {
        return r;
    }
    if (runtime->ops->open || !b->runtime->options.inner) {
        return rlm_error_set(err, RLM_E_INVAL, "this runtime cannot be wrapped");
    }
    inner->open = rlm_defer_new(b->runtime->runtime.loop, open_now, b);
    if (!inner->open) {
        return rlm_error_nomem(err);
    }
    inner->runtime = runtime;
    inner->state = INNER_OPENING;
    rlm_defer_schedule(inner->open);
    return 0;
}

int rlm_backend_inner_start(rlm_backend *b, rlm_str code, rlm_error **err)
{
    struct backend_inner *inner = &b->inner;
    int r = check(b, INNER_IDLE, "starting a cell of the inner session", err);
    if (r == 0 && b->state != BACKEND_RUNNING) {
        r = rlm_error_set(err, RLM_E_INVAL, "a cell is started when the backend is asked to");
    }
    if (r == 0 && b->recovered.len) {
        r = rlm_session_recover(inner->session, rlm_buf_str(&b->recovered), err);
    }
    if (r == 0) {
        r = rlm_session_start(inner->session, b->cell, code, err);
    }
    if (r == 0) {
        rlm_buf_clear(&b->recovered);
        inner->state = INNER_RUNNING;
        inner->woken = false;
    }
    return r;
}

static int
read_result(const rlm_json *v, rlm_arena *a, struct rlm_call_result *ret, rlm_error **err)
{
    const rlm_json *value = rlm_json_get(v, "value"), *error = rlm_json_get(v, "error");
    *ret = (struct rlm_call_result){.id = rlm_json_int(rlm_json_get(v, "id"), 0)};
    if (rlm_json_is(error, RLM_JSON_OBJECT)) {
        static const char *const names[] = {"type", "reason", "agent_id"};
        const char **const where[] = {&ret->error_type, &ret->error_reason, &ret->error_agent_id};
        for (size_t i = 0; i < 3; i++) {
            rlm_str text = rlm_json_text(rlm_json_get(error, names[i]), RLM_STR(""));
            *where[i] = rlm_arena_copy(a, text).ptr;
            if (!*where[i]) {
                return rlm_error_nomem(err);
            }
        }
        ret->error_message = rlm_json_text(rlm_json_get(error, "message"), RLM_STR(""));
        return 0;
    }
    if (!value) {
        return rlm_error_set(err, RLM_E_INVAL, "a result has neither a value nor an error");
    }
    rlm_auto_buf struct rlm_buf json = RLM_BUF(RLM_SESSION_MAX_RESULTS);
    rlm_json_put(&(struct rlm_json_writer){.buf = &json}, value);
    int r = rlm_buf_check(&json, err);
    if (r == 0) {
        ret->value_json = rlm_arena_copy(a, rlm_buf_str(&json));
        r = ret->value_json.ptr ? 0 : rlm_error_nomem(err);
    }
    return r;
}

/* They are unanswered no more. */
static void answered(struct backend_inner *inner, const struct rlm_call_result *results, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < inner->pending.len; k++) {
            if (inner->pending.items[k] == results[i].id) {
                rlm_vec_remove(&inner->pending, k);
                break;
            }
        }
    }
}

static int resume(rlm_backend *b, const rlm_json *list, rlm_arena *a, rlm_error **err)
{
    struct backend_inner *inner = &b->inner;
    struct rlm_call_result *results = rlm_arena_alloc(a, (list->count + 1) * sizeof *results);
    int r = results ? 0 : rlm_error_nomem(err);
    for (uint32_t i = 0; r == 0 && i < list->count; i++) {
        r = read_result(&list->items[i], a, &results[i], err);
    }
    if (r == 0) {
        inner->woken = false;
        r = rlm_session_resume(inner->session, results, list->count, err);
    }
    if (r == 0) {
        answered(inner, results, list->count);
        inner->state = INNER_RUNNING;
        if (b->unwinding) {
            rlm_session_unwind(inner->session);
        }
        if (b->results.len) {
            backend_inner_yield(b);
        }
    }
    return r;
}

int rlm_backend_inner_resume(rlm_backend *b, rlm_str results_json, rlm_error **err)
{
    int r = check(b, INNER_SUSPENDED, "resuming the inner session", err);
    if (r < 0) {
        return r;
    }
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(4 * (size_t)BACKEND_MAX_MESSAGE);
    const rlm_json *list;
    if (!arena) {
        return rlm_error_nomem(err);
    }
    if ((r = rlm_json_parse(arena, results_json, &list, err)) < 0) {
        return r;
    }
    return rlm_json_is(list, RLM_JSON_ARRAY)
               ? resume(b, list, arena, err)
               : rlm_error_set(err, RLM_E_INVAL, "results are a JSON array");
}

void rlm_backend_inner_close(rlm_backend *b)
{
    rlm_session_close(rlm_steal(&b->inner.session));
    if (b->inner.state != INNER_NONE) {
        b->inner.state = INNER_DEAD;
    }
}

void backend_inner_yield(rlm_backend *b)
{
    if (b->inner.state == INNER_RUNNING) {
        rlm_session_ask_for_word(b->inner.session);
    }
}

void backend_inner_deinit(rlm_backend *b)
{
    struct backend_inner *inner = &b->inner;
    rlm_defer_free(rlm_steal(&inner->open));
    free(rlm_steal(&inner->pending.items));
    inner->pending.len = inner->pending.cap = 0;
    rlm_buf_deinit(&inner->ready);
    rlm_buf_deinit(&inner->death_message);
    rlm_buf_deinit(&inner->death_output);
}
