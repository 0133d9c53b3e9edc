#include "runtime/session.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_FRAME_BYTES = RLM_SESSION_MAX_RESULTS + 1024,
    MAX_MESSAGE = 32 * 1024, /* of a death */
    MAX_INTERRUPT = 4000,    /* bytes of its message */
    KEEP_BYTES = 256 * 1024, /* a larger buffer is not kept between messages */
};

static struct worker_session *worker_of(rlm_session *s)
{
    return (struct worker_session *)s;
}

/* ---- death ----------------------------------------------------------------------------------- */

void session_die(struct worker_session *s, const char *reason, const char *format, ...)
{
    if (s->state == SESSION_DEAD) {
        return;
    }
    s->died_in_cell = session_is_busy(s);
    s->state = SESSION_DEAD;
    s->death_reason = reason;
    va_list args;
    va_start(args, format);
    char *text = NULL;
    if (vasprintf(&text, format, args) >= 0) {
        rlm_buf_adds(&s->death_message, text);
        free(text);
    }
    va_end(args);
    session_clock_update(s);
    s->transport->ops->kill(s->transport);
    rlm_defer_schedule(s->death_defer);
}

void session_fail(struct worker_session *s, const rlm_error *err)
{
    if (rlm_error_code(err) == RLM_E_PROTOCOL) {
        session_die(s, "protocol", "the worker broke the protocol and was ended: %s",
                    rlm_error_message(err));
    } else {
        session_die(s, "killed", "the worker had to be ended: %s", rlm_error_message(err));
    }
}

int session_stored(struct worker_session *s, int result, const rlm_error *err)
{
    if (result == RLM_E_IO || result == RLM_E_NOT_FOUND || result == RLM_E_CORRUPT) {
        session_die(s, "disk", "%s", rlm_error_message(err));
    }
    return result;
}

static void tell_death(void *arg)
{
    struct worker_session *s = arg;
    struct rlm_session_death how = {
        .reason = s->death_reason,
        .message =
            s->death_message.ptr ? rlm_buf_str(&s->death_message) : RLM_STR("the worker ended"),
        .output = s->died_in_cell ? rlm_buf_str(&s->cell_output) : RLM_STR_NONE,
        .during_cell = s->died_in_cell,
    };
    s->events->died(s->arg, &how);
}

/* ---- what the transport tells ---------------------------------------------------------------- */

static void destroy(struct worker_session *s)
{
    rlm_timer_free(s->clock.timer);
    rlm_defer_free(s->death_defer);
    session_streams_deinit(s);
    session_out_deinit(s);
    rlm_frame_decoder_deinit(&s->decoder);
    rlm_arena_free(s->arena);
    rlm_map_deinit(&s->blob_flags);
    rlm_buf_deinit(&s->cell_output);
    rlm_buf_deinit(&s->recovered);
    rlm_buf_deinit(&s->results);
    rlm_buf_deinit(&s->death_message);
    free(s->open_calls.items);
    rlm_blobs_free(s->blobs);
    free(s);
}

static void leave(struct worker_session *s)
{
    if (--s->depth == 0 && s->closed) {
        destroy(s);
    }
}

static void received(void *arg, const void *bytes, size_t len)
{
    struct worker_session *s = arg;
    s->depth++;
    session_received(s, bytes, len);
    leave(s);
}

static void drained(void *arg)
{
    struct worker_session *s = arg;
    s->depth++;
    session_pump(s);
    session_clock_progress(s);
    leave(s);
}

static void ended(void *arg, const char *reason, rlm_str message, rlm_str said)
{
    struct worker_session *s = arg;
    const char *colon = said.len ? ": " : "";
    s->depth++;
    if (s->was_ready) {
        session_die(s, reason, "%.*s%s%.*s", RLM_FMT(message), colon, (int)said.len,
                    said.len ? said.ptr : "");
    } else {
        session_die(s, "open", "%.*s before it was ready%s%.*s", RLM_FMT(message), colon,
                    (int)said.len, said.len ? said.ptr : "");
    }
    leave(s);
}

static const struct rlm_transport_events transport_events = {received, drained, ended};

/* ---- closing --------------------------------------------------------------------- */

static void worker_close(rlm_session *session)
{
    struct worker_session *s = worker_of(session);
    if (s->closed) {
        return;
    }
    s->closed = true;
    if (s->transport) {
        if (s->state != SESSION_DEAD && s->was_ready) {
            session_send_now(s, RLM_FRAME_CLOSE, 0, RLM_STR("{}"), NULL);
        }
        s->transport->ops->free(s->transport);
        s->transport = NULL;
    }
    s->state = SESSION_DEAD;
    if (s->depth == 0) {
        destroy(s);
    }
}

/* ---- cells ----------------------------------------------------------------------------------- */

static bool worker_is_busy(const rlm_session *s)
{
    return session_is_busy((const struct worker_session *)s);
}

static int check_alive(const struct worker_session *s, rlm_error **err)
{
    return s->state == SESSION_DEAD || s->closed
               ? rlm_error_set(err, RLM_E_SESSION, "the session has ended: %s",
                               s->death_message.ptr ? s->death_message.ptr : "it was closed")
               : 0;
}

static int worker_recover(rlm_session *session, rlm_str value_json, rlm_error **err)
{
    struct worker_session *s = worker_of(session);
    int r = check_alive(s, err);
    if (r == 0) {
        r = session_announce_blobs(s, value_json, err);
    }
    if (r < 0) {
        return r;
    }
    rlm_buf_clear(&s->recovered);
    rlm_buf_add_str(&s->recovered, value_json);
    return rlm_buf_check(&s->recovered, err);
}

static int worker_start(rlm_session *session, int64_t cell, rlm_str code, rlm_error **err)
{
    struct worker_session *s = worker_of(session);
    int r = check_alive(s, err);
    if (r < 0) {
        return r;
    }
    if (s->state != SESSION_IDLE) {
        return rlm_error_set(err, RLM_E_INVAL, "cell %lld was started while the session %s",
                             (long long)cell,
                             s->state == SESSION_OPENING ? "was not ready" : "ran another one");
    }
    struct rlm_buf *frame = session_new_frame(s);
    struct rlm_json_writer w = {.buf = frame};
    rlm_json_begin(&w, '{');
    rlm_json_member_int(&w, "cell", cell);
    rlm_json_member_str(&w, "code", code);
    if (s->recovered.len) {
        rlm_json_member_raw(&w, "recovered", rlm_buf_str(&s->recovered));
        rlm_buf_deinit(&s->recovered);
    }
    rlm_json_end(&w, '}');
    if ((r = session_send(s, RLM_FRAME_START, frame, err)) < 0) {
        return r;
    }
    if (s->state == SESSION_DEAD) {
        return 0; /* sending it failed; `died` follows */
    }
    s->cell = cell;
    s->state = SESSION_RUNNING;
    s->yield_sent = false;
    s->woken = false;
    rlm_buf_clear(&s->cell_output);
    session_clock_begin_cell(s);
    session_clock_update(s);
    return 0;
}

void session_end_cell(struct worker_session *s)
{
    s->state = SESSION_IDLE;
    s->open_calls.len = 0;
    s->n_results = 0;
    s->results.len = 0;
    s->interrupted = false;
    s->interrupt_clock = NULL;
    s->unwinding = false;
    s->clock.unwind_due_us = 0;
    s->clock.kill_due_us = 0;
    session_clock_update(s);
    if (s->cell_output.cap > KEEP_BYTES) {
        rlm_buf_deinit(&s->cell_output);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static bool find_call(const struct worker_session *s, int64_t id, size_t *ret_index)
{
    size_t low = 0, high = s->open_calls.len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->open_calls.items[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *ret_index = low;
    return low < s->open_calls.len && s->open_calls.items[low] == id;
}

static void begin_results(struct worker_session *s)
{
    static const char start[RLM_FRAME_HEADER] = {0};
    rlm_buf_clear(&s->results);
    rlm_buf_add(&s->results, start, sizeof start);
    rlm_buf_adds(&s->results, "{\"results\":[");
}

static int
add_result(struct worker_session *s, const struct rlm_call_result *result, rlm_error **err)
{
    int r;
    if (result->id <= 0 || result->id > s->last_call_id) {
        return rlm_error_set(err, RLM_E_INVAL, "a result came for call %lld, which was never made",
                             (long long)result->id);
    }
    size_t index;
    if (!find_call(s, result->id, &index)) {
        return 0;
    }
    if (!result->error_type && (r = session_announce_blobs(s, result->value_json, err)) < 0) {
        return r;
    }
    rlm_vec_remove(&s->open_calls, index);
    if (s->n_results == 0) {
        begin_results(s);
    }
    size_t before = s->results.len;
    if (s->n_results > 0) {
        rlm_buf_addc(&s->results, ',');
    }
    rlm_message_put_result(&(struct rlm_json_writer){.buf = &s->results}, result);
    if ((r = rlm_buf_check(&s->results, err)) < 0) {
        s->results.len = before;
        s->results.status = 0;
        return r;
    }
    s->n_results++;
    return 0;
}

/* Gives the word to the worker, with what there is. */
static void resume(struct worker_session *s)
{
    if (s->n_results == 0) {
        begin_results(s);
    }
    rlm_buf_adds(&s->results, "]}");
    s->n_results = 0;
    s->woken = false;
    s->yield_sent = false;
    s->state = SESSION_RUNNING;
    rlm_autoerr rlm_error *err = NULL;
    if (session_send(s, RLM_FRAME_RESUME, &s->results, &err) < 0) {
        session_fail(s, err);
        return;
    }
    if (s->results.cap > KEEP_BYTES) {
        rlm_buf_deinit(&s->results);
    }
    session_clock_update(s);
}

void session_pass_results(struct worker_session *s)
{
    bool wanted = s->n_results > 0 || s->woken;
    if (s->state == SESSION_SUSPENDED && !s->by_hand && !s->in_suspended && wanted) {
        resume(s);
    }
}

/* In its turn: before the resume it asks to be answered it would ask nothing. */
static void ask_for_word(struct worker_session *s)
{
    if (s->state != SESSION_RUNNING || s->yield_sent || (s->n_results == 0 && !s->by_hand)) {
        return;
    }
    rlm_autoerr rlm_error *err = NULL;
    struct rlm_buf *frame = session_new_frame(s);
    rlm_buf_adds(frame, "{}");
    if (session_send(s, RLM_FRAME_YIELD, frame, &err) < 0) {
        session_fail(s, err);
        return;
    }
    s->yield_sent = true;
}

void rlm_session_ask_for_word(rlm_session *s)
{
    ask_for_word(worker_of(s));
}

static int worker_resume(rlm_session *session,
                         const struct rlm_call_result *results,
                         size_t n_results,
                         rlm_error **err)
{
    struct worker_session *s = worker_of(session);
    int r = check_alive(s, err);
    if (r == 0 && s->by_hand && s->state != SESSION_SUSPENDED) {
        r = rlm_error_set(err, RLM_E_INVAL, "a session was resumed that is not suspended");
    }
    for (size_t i = 0; r == 0 && i < n_results; i++) {
        r = add_result(s, &results[i], err);
    }
    if (s->state == SESSION_DEAD || s->closed) {
        return r;
    }
    if (!s->by_hand) {
        ask_for_word(s);
        session_pass_results(s);
        session_clock_update(s);
    } else if (r == 0) {
        resume(s);
    }
    return r;
}

/* ---- ending a cell --------------------------------------------------------------------------- */

void session_interrupt(struct worker_session *s,
                       const char *reason,
                       const char *clock,
                       rlm_str message,
                       uint64_t grace_ms)
{
    if (!session_is_busy(s)) {
        return;
    }
    uint64_t kill_due_us = rlm_now_us() + grace_ms * 1000;
    if (s->interrupted) {
        /* It knows already; only the kill may come earlier. */
        if (kill_due_us < s->clock.kill_due_us) {
            s->clock.kill_due_us = kill_due_us;
            s->interrupt_grace_ms = grace_ms;
        }
        session_clock_update(s);
        return;
    }
    s->interrupted = true;
    s->interrupt_clock = clock;
    snprintf(s->interrupt_reason, sizeof s->interrupt_reason, "%s", reason);
    s->interrupt_grace_ms = grace_ms;
    s->clock.kill_due_us = kill_due_us;
    rlm_autoerr rlm_error *err = NULL;
    struct rlm_buf *frame = session_new_frame(s);
    struct rlm_json_writer w = {.buf = frame};
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "reason", s->interrupt_reason);
    message.len = message.len > MAX_INTERRUPT ? MAX_INTERRUPT : message.len;
    rlm_json_member_str(&w, "message", message);
    rlm_json_end(&w, '}');
    /* Ahead of what waits, unless that is the cell itself. */
    int r = session_out_has(s, RLM_FRAME_START)
                ? session_send(s, RLM_FRAME_INTERRUPT, frame, &err)
                : session_send_ahead(s, RLM_FRAME_INTERRUPT, frame, &err);
    if (r < 0) {
        session_fail(s, err);
    }
    session_clock_update(s);
}

static void worker_interrupt(rlm_session *s, const char *reason, rlm_str message, uint64_t grace_ms)
{
    session_interrupt(worker_of(s), reason, NULL, message, grace_ms);
}

static void worker_unwind(rlm_session *session)
{
    struct worker_session *s = worker_of(session);
    if (session_is_busy(s) && !s->unwinding && !s->interrupted) {
        s->unwinding = true;
        s->clock.unwind_due_us = rlm_now_us() + RLM_SESSION_UNWIND_MS * 1000;
        session_clock_update(s);
    }
}

static void worker_pause(rlm_session *session, bool paused)
{
    struct worker_session *s = worker_of(session);
    if (s->state != SESSION_DEAD && !s->closed) {
        session_clock_pause(s, paused);
    }
}

static const struct rlm_session_ops worker_session_ops = {
    .recover = worker_recover,
    .start = worker_start,
    .resume = worker_resume,
    .unwind = worker_unwind,
    .interrupt = worker_interrupt,
    .pause = worker_pause,
    .close = worker_close,
    .is_busy = worker_is_busy,
};

/* ---- opening ----------------------------------------------------------------------------------- */

static int prepare(struct worker_session *s, const struct rlm_session_options *o, rlm_error **err)
{
    s->exec_timeout_ms = o->exec_timeout_ms;
    s->cpu_time_ms = o->cpu_time_ms;
    s->open_timeout_ms = o->open_timeout_ms;
    s->decoder = RLM_FRAME_DECODER_INIT;
    s->cell_output = RLM_BUF(RLM_SESSION_MAX_MESSAGE);
    s->last_call_id = o->last_call;
    s->recovered = RLM_BUF(MAX_FRAME_BYTES);
    s->results = RLM_BUF(MAX_FRAME_BYTES);
    s->out.frame = RLM_BUF(MAX_FRAME_BYTES);
    s->death_message = RLM_BUF(MAX_MESSAGE);
    s->clock.timer = rlm_timer_new(s->loop, session_clock_fired, s);
    s->death_defer = rlm_defer_new(s->loop, tell_death, s);
    return s->clock.timer && s->death_defer ? 0 : rlm_error_nomem(err);
}

static int send_open(struct worker_session *s, const struct rlm_session_options *o, rlm_error **err)
{
    int r;
    for (const char *const *id = o->input_blobs; id && *id; id++) {
        const struct rlm_blob *blob = rlm_blobs_find(s->blobs, rlm_str_of(*id));
        if (!blob) {
            return rlm_error_set(err, RLM_E_INVAL, "an input is a blob that the run has not: %s",
                                 *id);
        }
        if (session_blob_flags(s, rlm_str_of(blob->id)) & BLOB_ANNOUNCED) {
            continue;
        }
        if ((r = session_allow_blob(s, blob->id, BLOB_ALLOWED | BLOB_ANNOUNCED, err)) < 0 ||
            (r = session_send_blob(s, blob, err)) < 0) {
            return r;
        }
    }
    struct rlm_buf *frame = session_new_frame(s);
    rlm_buf_add_str(frame, o->open_json);
    return session_send(s, RLM_FRAME_OPEN, frame, err);
}

int rlm_session_open_worker(rlm_runtime *r,
                            const struct rlm_session_options *options,
                            const struct rlm_session_events *events,
                            void *arg,
                            rlm_session **ret_session,
                            rlm_error **err)
{
    struct worker_session *s;
    if (!RLM_NEW(s)) {
        return rlm_error_nomem(err);
    }
    s->base.ops = &worker_session_ops;
    s->by_hand = options->by_hand;
    s->loop = r->loop;
    s->events_copy = *events;
    s->events = &s->events_copy;
    s->arg = arg;
    s->blobs = rlm_blobs_ref(options->blobs);
    int result = prepare(s, options, err);
    if (result == 0) {
        result = r->ops->connect(r, options, &s->transport, err);
    }
    if (result == 0) {
        s->transport->events = &transport_events;
        s->transport->arg = s;
        result = send_open(s, options, err);
    }
    if (result < 0) {
        worker_close(&s->base);
        return rlm_error_wrap(err, result, "opening a session (%s)", r->ops->name);
    }
    if (s->open_timeout_ms) {
        s->clock.open_due_us = rlm_now_us() + s->open_timeout_ms * 1000;
    }
    session_clock_update(s);
    *ret_session = &s->base;
    return 0;
}
