/* Sessions that the embedding program runs: when it is asked what. */
#include "runtime/backend.h"

#include "base/error.h"

#include <stdlib.h>

enum {
    MAX_OPEN = 32 * 1024 * 1024, /* bytes of what a session is opened with */
    POLL_MS = 100,               /* a suspended backend that cannot say when it wants the word */
};

static rlm_backend *backend_of(rlm_session *s)
{
    return (rlm_backend *)s;
}

static bool is_busy(const rlm_backend *b)
{
    return b->state == BACKEND_RUNNING || b->state == BACKEND_SUSPENDED;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void release_runtime(struct backend_runtime *p)
{
    if (--p->holders == 0) {
        free(p->name);
        free(p->effects);
        free(p);
    }
}

void backend_clear_results(rlm_backend *b)
{
    for (size_t i = 0; i < b->results.len; i++) {
        free(b->results.items[i].json);
    }
    b->results.len = 0;
    b->result_bytes = 0;
}

/* All but what the program may still name: the object itself. */
static void release(rlm_backend *b)
{
    backend_clear_results(b);
    free(rlm_steal(&b->results.items));
    free(rlm_steal(&b->calls.items));
    rlm_defer_free(rlm_steal(&b->tell));
    rlm_timer_free(rlm_steal(&b->timer));
    rlm_arena_free(rlm_steal(&b->kept));
    rlm_map_deinit(&b->known);
    rlm_buf_deinit(&b->said);
    rlm_buf_deinit(&b->recovered);
    rlm_buf_deinit(&b->death_message);
    rlm_buf_deinit(&b->death_output);
    backend_inner_deinit(b);
    rlm_blobs_free(rlm_steal(&b->blobs));
}

static void ask_to_close(rlm_backend *b)
{
    struct rlm_backend_options *o = &b->runtime->options;
    release(b);
    o->close(o->arg, b);
}

void backend_enter(rlm_backend *b)
{
    b->depth++;
}

void backend_leave(rlm_backend *b)
{
    if (--b->depth == 0 && b->closed) {
        ask_to_close(b);
    }
}

static void backend_close(rlm_session *s)
{
    rlm_backend *b = backend_of(s);
    if (b->closed) {
        return;
    }
    b->closed = true;
    b->state = BACKEND_DEAD;
    rlm_backend_inner_close(b);
    if (b->depth == 0) {
        ask_to_close(b);
    }
}

void rlm_backend_closed(rlm_backend *b)
{
    if (b->closed && !b->kept) {
        release_runtime(b->runtime);
        free(b);
    }
}

void rlm_backend_set_data(rlm_backend *b, void *data)
{
    b->data = data;
}

void *rlm_backend_data(const rlm_backend *b)
{
    return b->data;
}

void backend_die(rlm_backend *b, const char *reason, rlm_str message, rlm_str output)
{
    if (b->state == BACKEND_DEAD) {
        return;
    }
    b->died_in_cell = is_busy(b);
    b->state = BACKEND_DEAD;
    b->death_reason = reason;
    rlm_buf_add_str(&b->death_message, message);
    rlm_buf_add_str(&b->death_output, output);
    rlm_timer_stop(b->timer);
    rlm_backend_inner_close(b);
    rlm_defer_schedule(b->tell);
}

/* ---- questions ------------------------------------------------------------------------------- */

static uint64_t ask(rlm_backend *b)
{
    b->is_asked = true;
    return ++b->step;
}

static void put_results(const rlm_backend *b, struct rlm_buf *json)
{
    rlm_buf_addc(json, '[');
    for (size_t i = 0; i < b->results.len; i++) {
        rlm_buf_adds(json, i ? "," : "");
        rlm_buf_add(json, b->results.items[i].json, b->results.items[i].len);
    }
    rlm_buf_addc(json, ']');
}

static void ask_to_resume(rlm_backend *b)
{
    struct rlm_backend_options *o = &b->runtime->options;
    rlm_auto_buf struct rlm_buf json = RLM_BUF(RLM_SESSION_MAX_RESULTS + 1024 * 1024);
    put_results(b, &json);
    if (rlm_buf_check(&json, NULL) < 0) {
        backend_die(b, "backend", RLM_STR("out of memory for its results"), RLM_STR_NONE);
        return;
    }
    backend_clear_results(b);
    b->wanted = false;
    b->inner.woken = false;
    b->yield_asked = false;
    b->state = BACKEND_RUNNING;
    rlm_timer_stop(b->timer);
    if (b->unwinding && !backend_has_inner(b)) {
        rlm_timer_set(b->timer, 2 * (uint64_t)RLM_SESSION_UNWIND_MS);
    }
    o->resume(o->arg, b, ask(b), rlm_buf_str(&json));
}

void backend_go_on(rlm_backend *b)
{
    if (b->state != BACKEND_SUSPENDED || b->in_suspended) {
        return;
    }
    if (b->results.len || b->wanted || b->inner.woken) {
        ask_to_resume(b);
    } else if (!backend_has_inner(b)) {
        rlm_timer_set(b->timer, POLL_MS);
    }
}

static void timer_fired(void *arg)
{
    rlm_backend *b = arg;
    backend_enter(b);
    if (b->state == BACKEND_RUNNING) {
        backend_die(b, "killed",
                    RLM_STR("the backend did not end its cell after the answer was accepted"),
                    RLM_STR_NONE);
    } else {
        b->wanted = true;
        backend_go_on(b);
    }
    backend_leave(b);
}

/* ---- what a session does --------------------------------------------------------------------- */

static int check_alive(const rlm_backend *b, rlm_error **err)
{
    return b->state == BACKEND_DEAD
               ? rlm_error_set(err, RLM_E_SESSION, "the session has ended: %s",
                               b->death_message.ptr ? b->death_message.ptr : "it was closed")
               : 0;
}

static int know(void *arg, const struct rlm_json_member *m, rlm_error **err)
{
    rlm_backend *b = arg;
    rlm_str id = rlm_json_text(&m->value, RLM_STR_NONE);
    if (!rlm_blobs_find(b->blobs, id)) {
        return rlm_error_set(err, RLM_E_INVAL, "a value names a blob that the run has not");
    }
    return rlm_map_set(&b->known, id, b) < 0 ? rlm_error_nomem(err) : 0;
}

int backend_know_blobs(rlm_backend *b, rlm_str value_json, rlm_error **err)
{
    return rlm_message_each_blob(value_json, know, b, err);
}

static int backend_recover(rlm_session *s, rlm_str value_json, rlm_error **err)
{
    rlm_backend *b = backend_of(s);
    int r = check_alive(b, err);
    if (r == 0) {
        r = backend_know_blobs(b, value_json, err);
    }
    if (r == 0) {
        rlm_buf_clear(&b->recovered);
        rlm_buf_add_str(&b->recovered, value_json);
        r = rlm_buf_check(&b->recovered, err);
    }
    return r;
}

static int backend_start(rlm_session *s, int64_t cell, rlm_str code, rlm_error **err)
{
    rlm_backend *b = backend_of(s);
    struct rlm_backend_options *o = &b->runtime->options;
    int r = check_alive(b, err);
    if (r < 0) {
        return r;
    }
    if (b->state != BACKEND_IDLE) {
        return rlm_error_set(err, RLM_E_INVAL, "cell %lld was started while the session %s",
                             (long long)cell,
                             b->state == BACKEND_OPENING ? "was not ready" : "ran another one");
    }
    b->cell = cell;
    b->state = BACKEND_RUNNING;
    b->yield_asked = false;
    o->start(o->arg, b, ask(b), code);
    return 0;
}

/* Keeps a result until the next resume. */
static int add_result(rlm_backend *b, const struct rlm_call_result *result, rlm_error **err)
{
    size_t i = 0;
    int r;
    if (result->id <= 0 || result->id > b->last_call) {
        return rlm_error_set(err, RLM_E_INVAL, "a result came for call %lld, which was never made",
                             (long long)result->id);
    }
    while (i < b->calls.len && b->calls.items[i].id != result->id) {
        i++;
    }
    if (i == b->calls.len) {
        return 0;
    }
    if (!result->error_type && (r = backend_know_blobs(b, result->value_json, err)) < 0) {
        return r;
    }
    struct rlm_call_result own = *result;
    own.id = b->calls.items[i].own;
    rlm_auto_buf struct rlm_buf json = RLM_BUF(RLM_SESSION_MAX_RESULTS - b->result_bytes);
    rlm_message_put_result(&(struct rlm_json_writer){.buf = &json}, &own);
    if ((r = rlm_buf_check(&json, err)) < 0) {
        return r;
    }
    struct backend_result *place = rlm_vec_push(&b->results);
    if (!place) {
        return rlm_error_nomem(err);
    }
    b->result_bytes += json.len;
    *place = (struct backend_result){.own = own.id, .len = json.len};
    place->json = rlm_buf_take(&json);
    rlm_vec_remove(&b->calls, i);
    return 0;
}

static int backend_resume(rlm_session *s,
                          const struct rlm_call_result *results,
                          size_t n_results,
                          rlm_error **err)
{
    rlm_backend *b = backend_of(s);
    int r = check_alive(b, err);
    for (size_t i = 0; r == 0 && i < n_results; i++) {
        r = add_result(b, &results[i], err);
    }
    if (b->state == BACKEND_RUNNING && b->results.len) {
        b->yield_asked = true;
        backend_inner_yield(b);
    }
    backend_go_on(b);
    return r;
}

static void backend_unwind(rlm_session *s)
{
    rlm_backend *b = backend_of(s);
    if (is_busy(b)) {
        b->unwinding = true;
        if (b->inner.state == INNER_RUNNING) {
            rlm_session_unwind(b->inner.session);
        }
    }
}

static void
backend_interrupt(rlm_session *s, const char *reason, rlm_str message, uint64_t grace_ms)
{
    rlm_backend *b = backend_of(s);
    if (b->inner.state == INNER_RUNNING || b->inner.state == INNER_SUSPENDED) {
        rlm_session_interrupt(b->inner.session, reason, message, grace_ms);
    } else if (is_busy(b)) {
        backend_die(b, "killed", message, RLM_STR_NONE);
    }
}

static void backend_pause(rlm_session *s, bool paused)
{
    rlm_backend *b = backend_of(s);
    b->paused = paused;
    if (b->inner.session) {
        rlm_session_pause(b->inner.session, paused);
    }
}

static bool backend_is_busy(const rlm_session *s)
{
    return is_busy((const rlm_backend *)s);
}

static const struct rlm_session_ops session_ops = {
    .recover = backend_recover,
    .start = backend_start,
    .resume = backend_resume,
    .unwind = backend_unwind,
    .interrupt = backend_interrupt,
    .pause = backend_pause,
    .close = backend_close,
    .is_busy = backend_is_busy,
    .closes_early = true,
};

/* ---- opening --------------------------------------------------------------------------------- */

static const char *keep(rlm_backend *b, const char *text)
{
    return text ? rlm_arena_copy(b->kept, rlm_str_of(text)).ptr : NULL;
}

/* Copies what an inner session is to be opened with. */
static int keep_options(rlm_backend *b, const struct rlm_session_options *options, rlm_error **err)
{
    size_t n = 0;
    while (options->input_blobs && options->input_blobs[n]) {
        n++;
    }
    const char **ids = rlm_arena_alloc(b->kept, (n + 1) * sizeof *ids);
    b->options = *options;
    b->options.blobs = b->blobs;
    b->options.by_hand = true;
    b->options.agent_id = keep(b, options->agent_id ? options->agent_id : "");
    b->options.working_directory = keep(b, options->working_directory);
    b->options.open_json = rlm_arena_copy(b->kept, options->open_json);
    b->options.input_blobs = ids;
    bool ok = ids && b->options.agent_id && b->options.open_json.ptr &&
              (b->options.working_directory || !options->working_directory);
    for (size_t i = 0; ok && i < n; i++) {
        const struct rlm_blob *blob = rlm_blobs_find(b->blobs, rlm_str_of(options->input_blobs[i]));
        if (!blob) {
            return rlm_error_set(err, RLM_E_INVAL, "an input is a blob that the run has not: %s",
                                 options->input_blobs[i]);
        }
        ids[i] = blob->id; /* lives as long as the store */
        ok = rlm_map_set(&b->known, rlm_str_of(blob->id), b) == 0;
    }
    return ok ? 0 : rlm_error_nomem(err);
}

static int prepare(rlm_backend *b, const struct rlm_session_options *options, rlm_error **err)
{
    b->said = RLM_BUF(BACKEND_MAX_MESSAGE);
    b->recovered = RLM_BUF(RLM_SESSION_MAX_RESULTS);
    b->death_message = RLM_BUF(64 * 1024);
    b->death_output = RLM_BUF(RLM_SESSION_MAX_MESSAGE);
    b->inner.ready = RLM_BUF(RLM_SESSION_MAX_MESSAGE);
    b->inner.death_message = RLM_BUF(64 * 1024);
    b->inner.death_output = RLM_BUF(RLM_SESSION_MAX_MESSAGE);
    b->last_call = options->last_call;
    b->kept = rlm_arena_new(MAX_OPEN);
    rlm_loop *loop = b->runtime->runtime.loop;
    b->tell = rlm_defer_new(loop, backend_tell, b);
    b->timer = rlm_timer_new(loop, timer_fired, b);
    return b->kept && b->tell && b->timer ? keep_options(b, options, err) : rlm_error_nomem(err);
}

static int open_backend(rlm_runtime *r,
                        const struct rlm_session_options *options,
                        const struct rlm_session_events *events,
                        void *arg,
                        rlm_session **ret_session,
                        rlm_error **err)
{
    struct backend_runtime *p = (struct backend_runtime *)r;
    rlm_backend *b;
    if (!RLM_NEW(b)) {
        return rlm_error_nomem(err);
    }
    b->base.ops = &session_ops;
    b->runtime = p;
    b->events = *events;
    b->arg = arg;
    b->blobs = rlm_blobs_ref(options->blobs);
    int result = prepare(b, options, err);
    if (result < 0) {
        release(b);
        free(b);
        return rlm_error_wrap(err, result, "opening a session (%s)", p->name);
    }
    p->holders++;
    struct rlm_backend_session session = {
        .agent_id = b->options.agent_id,
        .depth = options->depth,
        .open_json = b->options.open_json,
    };
    *ret_session = &b->base;
    p->options.open(p->options.arg, b, ask(b), &session);
    return 0;
}

static void free_runtime(rlm_runtime *r)
{
    release_runtime((struct backend_runtime *)r);
}

int rlm_runtime_new_custom(rlm_loop *loop,
                           const struct rlm_backend_options *options,
                           rlm_runtime **ret_runtime,
                           rlm_error **err)
{
    struct rlm_backend_options o = RLM_BACKEND_OPTIONS_INIT;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (!o.open || !o.start || !o.resume || !o.close) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "a custom runtime needs `open`, `start`, `resume` and `close`");
    }
    const char *effects = o.effects ? o.effects : "outside";
    if (strcmp(effects, "none") != 0 && strcmp(effects, "outside") != 0) {
        return rlm_error_set(err, RLM_E_INVAL, "effects are \"none\" or \"outside\", not \"%s\"",
                             effects);
    }
    struct backend_runtime *p;
    if (!RLM_NEW(p)) {
        return rlm_error_nomem(err);
    }
    p->holders = 1;
    p->options = o;
    p->name = rlm_strdup(o.name ? o.name : "custom");
    p->effects = rlm_strdup(effects);
    p->runtime = (rlm_runtime){.ops = &p->ops, .loop = loop};
    p->ops = (struct rlm_runtime_ops){
        .name = p->name, .effects = p->effects, .open = open_backend, .free = free_runtime};
    if (!p->name || !p->effects) {
        release_runtime(p);
        return rlm_error_nomem(err);
    }
    *ret_runtime = &p->runtime;
    return 0;
}
