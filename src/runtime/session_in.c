#include "runtime/session.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    ARENA_MAX_BYTES = 512 << 20, /* of the tree of one message */
    ARENA_KEEP_BYTES = 1 << 20,  /* a larger one is not kept for the next message */
};

static int violation(rlm_error **err, const char *what)
{
    return rlm_error_set(err, RLM_E_PROTOCOL, "%s", what);
}

/* ---- payloads -------------------------------------------------------------------------------- */

static int fresh_arena(struct worker_session *s, rlm_error **err)
{
    if (s->arena && rlm_arena_size(s->arena) <= ARENA_KEEP_BYTES) {
        rlm_arena_reset(s->arena);
        return 0;
    }
    rlm_arena_free(s->arena);
    s->arena = rlm_arena_new(ARENA_MAX_BYTES);
    return s->arena ? 0 : rlm_error_nomem(err);
}

static int parse(struct worker_session *s,
                 const struct rlm_frame *f,
                 rlm_str payload,
                 const rlm_json **ret_message,
                 rlm_error **err)
{
    int r = fresh_arena(s, err);
    if (r < 0) {
        return r;
    }
    rlm_autoerr rlm_error *why = NULL;
    if ((r = rlm_json_parse(s->arena, payload, ret_message, &why)) < 0) {
        return rlm_error_set(err, r == RLM_E_PARSE ? RLM_E_PROTOCOL : r, "a %s frame: %s",
                             rlm_frame_name(f->kind), rlm_error_message(why));
    }
    if ((*ret_message)->type != RLM_JSON_OBJECT) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a %s frame holds no JSON object",
                             rlm_frame_name(f->kind));
    }
    return 0;
}

/* ---- suspended ------------------------------------------------------------------------------- */

static int
read_call(struct worker_session *s, const rlm_json *v, struct rlm_host_call *call, rlm_error **err)
{
    int r = rlm_message_read_call(v, call, err);
    if (r < 0) {
        return r;
    }
    if (call->id != s->last_call_id + 1) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a call came with id %" PRId64 " after %" PRId64,
                             call->id, s->last_call_id);
    }
    if (s->open_calls.len >= RLM_SESSION_MAX_OPEN_CALLS) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "more than %d host calls were open at once",
                             RLM_SESSION_MAX_OPEN_CALLS);
    }
    if ((r = session_take_values(s, call, err)) < 0) {
        return r;
    }
    int64_t *open = rlm_vec_push(&s->open_calls);
    if (!open) {
        return rlm_error_nomem(err);
    }
    s->last_call_id = *open = call->id;
    return 0;
}

/* Takes the calls that the code gave up from the open ones. What is none of these, in ascending
 * order, is passed over: its answer may wait here already. */
static int take_given_up(struct worker_session *s,
                         const rlm_json *message,
                         int64_t **ret_ids,
                         size_t *ret_n_ids,
                         rlm_error **err)
{
    const rlm_json *list = rlm_json_get(message, "cancelled");
    uint32_t count = rlm_json_is(list, RLM_JSON_ARRAY) ? list->count : 0;
    int64_t *ids = rlm_arena_alloc(s->arena, (count + 1) * sizeof *ids);
    if (!ids) {
        return rlm_error_nomem(err);
    }
    size_t n = 0, kept = 0;
    uint32_t at = 0;
    for (size_t i = 0; i < s->open_calls.len; i++) {
        int64_t id = s->open_calls.items[i];
        while (at < count && rlm_json_int(&list->items[at], 0) < id) {
            at++;
        }
        if (at < count && rlm_json_int(&list->items[at], 0) == id) {
            ids[n++] = id;
        } else {
            s->open_calls.items[kept++] = id;
        }
    }
    s->open_calls.len = kept;
    *ret_ids = ids;
    *ret_n_ids = n;
    return 0;
}

static void tell_suspended(struct worker_session *s,
                           const struct rlm_host_call *calls,
                           size_t n_calls,
                           const int64_t *given_up,
                           size_t n_given_up)
{
    s->in_suspended = true;
    if (n_given_up > 0 && s->events->given_up) {
        s->events->given_up(s->arg, given_up, n_given_up);
    }
    bool waits = n_calls > 0 || (s->n_results == 0 && s->open_calls.len > 0);
    if (!s->closed && (waits || s->by_hand)) {
        s->events->suspended(s->arg, calls, n_calls);
    }
    s->in_suspended = false;
}

static int suspended(struct worker_session *s, const rlm_json *message, rlm_error **err)
{
    const rlm_json *list = rlm_json_get(message, "calls");
    if (!rlm_json_is(list, RLM_JSON_ARRAY)) {
        return violation(err, "a suspended frame came without its calls");
    }
    struct rlm_host_call *calls = rlm_arena_alloc(s->arena, (list->count + 1) * sizeof *calls);
    if (!calls) {
        return rlm_error_nomem(err);
    }
    int64_t *given_up = NULL;
    size_t n_given_up = 0;
    int r = take_given_up(s, message, &given_up, &n_given_up, err);
    for (uint32_t i = 0; r == 0 && i < list->count; i++) {
        r = read_call(s, &list->items[i], &calls[i], err);
    }
    if (r < 0) {
        return r;
    }
    if (s->open_calls.len == 0 && s->n_results == 0 && !s->yield_sent && n_given_up == 0) {
        return violation(err, "a cell was suspended without waiting for a call");
    }
    s->state = SESSION_SUSPENDED;
    s->woken = s->open_calls.len == 0; /* it waits for nothing of ours, and goes on */
    session_clock_update(s);
    tell_suspended(s, calls, list->count, given_up, n_given_up);
    if (!s->closed) {
        session_pass_results(s);
    }
    return 0;
}

/* ---- finished -------------------------------------------------------------------------------- */

static int finished(struct worker_session *s, const rlm_json *message, rlm_error **err)
{
    if (rlm_json_int(rlm_json_get(message, "cell"), -1) != s->cell) {
        return violation(err, "another cell was finished than the one under way");
    }
    struct rlm_cell_finished how;
    int r = rlm_message_read_finished(message, s->arena, &how, err);
    if (r < 0) {
        return r;
    }
    /* A name that agent code can use for an exception of its own: it counts if we interrupted. */
    bool stopped = s->interrupted && how.error_type && !strcmp(how.error_type, "CellInterrupted");
    how.clock = stopped ? s->interrupt_clock : NULL;
    session_end_cell(s);
    s->events->finished(s->arg, &how);
    return 0;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static int ready(struct worker_session *s, rlm_str payload)
{
    s->state = SESSION_IDLE;
    s->was_ready = true;
    s->clock.open_due_us = 0;
    session_clock_update(s);
    s->events->ready(s->arg, payload);
    return 0;
}

/* Output so far, kept for the case that the worker dies; it replaces what came before. */
static int output(struct worker_session *s, const rlm_json *message, rlm_error **err)
{
    if (rlm_json_int(rlm_json_get(message, "cell"), -1) != s->cell) {
        return violation(err, "output came of another cell than the last");
    }
    if (session_is_busy(s)) {
        rlm_str text = rlm_json_text(rlm_json_get(message, "output"), RLM_STR(""));
        rlm_buf_clear(&s->cell_output);
        if (rlm_buf_add_str(&s->cell_output, text) < 0) {
            return rlm_buf_check(&s->cell_output, err);
        }
    }
    return 0;
}

static int fatal(struct worker_session *s, const rlm_json *message)
{
    rlm_str text = rlm_json_text(rlm_json_get(message, "message"), RLM_STR(""));
    text.len = text.len > 2000 ? 2000 : text.len;
    if (s->was_ready) {
        session_die(s, "exit", "the worker could not go on: %.*s", RLM_FMT(text));
    } else {
        session_die(s, "open", "the worker could not start: %.*s", RLM_FMT(text));
    }
    return 0;
}

static int sync_frame(struct worker_session *s, rlm_error **err)
{
    char text[64];
    int len = snprintf(text, sizeof text, "{\"received\":%" PRIu64 "}", s->decoder.sequence);
    return session_send_now(s, RLM_FRAME_SYNC, 0, (rlm_str){text, (size_t)len}, err);
}

static int wake(struct worker_session *s)
{
    /* One that crosses our resume finds the word with the worker already. */
    if (s->state == SESSION_SUSPENDED) {
        s->woken = true;
        if (s->by_hand) {
            s->events->woken(s->arg);
        }
        session_pass_results(s);
    }
    return 0;
}

/* ---- the states ------------------------------------------------------------------------------ */

enum {
    IN_OPENING = 1 << SESSION_OPENING,
    IN_IDLE = 1 << SESSION_IDLE,
    IN_RUNNING = 1 << SESSION_RUNNING,
    IN_SUSPENDED = 1 << SESSION_SUSPENDED,
    IN_CELL = IN_RUNNING | IN_SUSPENDED,
    IN_READY = IN_IDLE | IN_CELL,
    IN_ANY = IN_OPENING | IN_READY,
};

/* What a worker may send, and in which states. Threads of the agent's outlive cells, so values and
 * output may come when no cell runs. */
static const struct {
    uint8_t states;
    uint8_t flags;
} rules[RLM_FRAME_LAST + 1] = {
    [RLM_FRAME_READY] = {IN_OPENING, RLM_FRAME_HAS_BODY},
    [RLM_FRAME_SUSPENDED] = {IN_RUNNING, RLM_FRAME_HAS_BODY},
    [RLM_FRAME_FINISHED] = {IN_RUNNING, RLM_FRAME_HAS_BODY},
    [RLM_FRAME_WAKE] = {IN_CELL, 0},
    [RLM_FRAME_TEXT] = {IN_READY, RLM_FRAME_END},
    [RLM_FRAME_BYTES] = {IN_READY, RLM_FRAME_END},
    [RLM_FRAME_BODY] = {IN_READY, RLM_FRAME_END},
    [RLM_FRAME_CREDIT] = {IN_ANY, 0},
    [RLM_FRAME_SYNC] = {IN_ANY, 0},
    [RLM_FRAME_OUTPUT] = {IN_READY, RLM_FRAME_HAS_BODY},
    [RLM_FRAME_FATAL] = {IN_ANY, RLM_FRAME_HAS_BODY},
};

static int check_rules(const struct worker_session *s, const struct rlm_frame *f, rlm_error **err)
{
    static const char *const states[] = {"before it was ready", "while no cell ran",
                                         "while a cell ran", "while a cell was suspended", ""};
    if (!(rules[f->kind].states & 1 << s->state)) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a %s frame came %s", rlm_frame_name(f->kind),
                             states[s->state]);
    }
    if (f->flags & ~rules[f->kind].flags) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a %s frame came with flags %#x",
                             rlm_frame_name(f->kind), (unsigned)f->flags);
    }
    bool answers = f->kind == RLM_FRAME_SUSPENDED || f->kind == RLM_FRAME_FINISHED;
    if (answers && (session_out_has(s, RLM_FRAME_START) || session_out_has(s, RLM_FRAME_RESUME))) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a %s frame came before it could be asked for",
                             rlm_frame_name(f->kind));
    }
    return 0;
}

static int handle_message(struct worker_session *s,
                          const struct rlm_frame *f,
                          rlm_str payload,
                          rlm_error **err)
{
    const rlm_json *message;
    int r = parse(s, f, payload, &message, err);
    if (r < 0) {
        return r;
    }
    switch (f->kind) {
    case RLM_FRAME_READY:
        return ready(s, payload);
    case RLM_FRAME_SUSPENDED:
        return suspended(s, message, err);
    case RLM_FRAME_FINISHED:
        return finished(s, message, err);
    case RLM_FRAME_OUTPUT:
        return output(s, message, err);
    case RLM_FRAME_FATAL:
        return fatal(s, message);
    default:
        return 0;
    }
}

static int handle(struct worker_session *s, const struct rlm_frame *f, rlm_error **err)
{
    int r = check_rules(s, f, err);
    if (r < 0) {
        return r;
    }
    switch (f->kind) {
    case RLM_FRAME_TEXT:
    case RLM_FRAME_BYTES:
    case RLM_FRAME_BODY:
        return session_stream_frame(s, f, err);
    case RLM_FRAME_CREDIT:
        return f->payload.len == 4
                   ? session_credit(s, f->stream, rlm_frame_get_u32(f->payload.ptr), err)
                   : violation(err, "a credit frame came without its number");
    case RLM_FRAME_SYNC:
        return sync_frame(s, err);
    case RLM_FRAME_WAKE:
        return wake(s);
    default:
        break;
    }
    if (!(f->flags & RLM_FRAME_HAS_BODY)) {
        return handle_message(s, f, f->payload, err);
    }
    rlm_auto_buf struct rlm_buf body = {0};
    if ((r = session_stream_take_body(s, f->stream, &body, err)) < 0) {
        return r;
    }
    return handle_message(s, f, rlm_buf_str(&body), err);
}

/* What came in the place of the first frame, as the banner of a login or an error of a shell, is named. */
static int no_worker_speaks(rlm_str first, rlm_error **err)
{
    char shown[160];
    size_t n = 0;
    while (n < first.len && n < sizeof shown - 1) {
        unsigned char c = (unsigned char)first.ptr[n];
        shown[n++] = c >= ' ' && c < 0x7f ? (char)c : '.';
    }
    shown[n] = 0;
    return rlm_error_set(err, RLM_E_PROTOCOL, "it is no worker that speaks first: \"%s\"", shown);
}

void session_received(struct worker_session *s, const void *bytes, size_t len)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_frame_decoder_feed(&s->decoder, bytes, len);
    while (s->state != SESSION_DEAD && !s->closed) {
        struct rlm_frame f;
        int r = rlm_frame_decoder_next(&s->decoder, &f, &err);
        if (r < 0 && s->decoder.sequence == 0) {
            rlm_error_free(rlm_steal(&err));
            r = no_worker_speaks((rlm_str){bytes, len}, &err);
        }
        if (r == 0) {
            return;
        }
        if (r > 0) {
            r = handle(s, &f, &err);
        }
        if (r < 0) {
            session_fail(s, err);
        }
    }
}
