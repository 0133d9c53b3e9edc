/* A session against a worker that the test plays itself: every frame that comes and goes is in its
 * hands, also those that an honest worker never sends. */
#pragma once

#include "told.h"

#include "runtime/frame.h"

#include <unistd.h>

/* ---- the played worker ------------------------------------------------------------------------ */

static struct {
    rlm_runtime runtime;
    struct rlm_transport transport;
    rlm_loop *loop;
    rlm_blobs *blobs;
    rlm_session *session;
    uint64_t sequence;
    struct rlm_frame_decoder heard;
    struct rlm_buf log;  /* of frames sent to the worker */
    struct rlm_buf told; /* of events */
    size_t queued;
    int64_t cpu_ms;
    bool killed, freed;
    int descriptors;
    uint64_t blob_bytes;
    /* What happens inside an event. */
    void (*on_suspended)(void);
    void (*on_finished)(void);
} w;

static inline int
fake_send(struct rlm_transport *t, const void *bytes, size_t len, int fd, rlm_error **err)
{
    CHECK(!w.freed);
    if (fd >= 0) {
        w.descriptors++;
        close(fd);
    }
    rlm_frame_decoder_feed(&w.heard, bytes, len);
    struct rlm_frame f;
    int r;
    rlm_autoerr rlm_error *why = NULL;
    while ((r = rlm_frame_decoder_next(&w.heard, &f, &why)) > 0) {
        if (f.kind == RLM_FRAME_TEXT || f.kind == RLM_FRAME_BYTES || f.kind == RLM_FRAME_BODY) {
            w.blob_bytes += f.payload.len;
            rlm_buf_addf(&w.log, "%s:%zu%s|", rlm_frame_name(f.kind), f.payload.len,
                         f.flags & RLM_FRAME_END ? "." : "");
        } else if (f.kind == RLM_FRAME_CREDIT) {
            rlm_buf_addf(&w.log, "credit %u on %d|", rlm_frame_get_u32(f.payload.ptr), f.stream);
        } else {
            rlm_buf_addf(&w.log, "%s %.*s|", rlm_frame_name(f.kind), RLM_FMT(f.payload));
        }
    }
    CHECK_TEXT(rlm_error_message(why), "");
    return 0;
}

static inline size_t fake_queued(const struct rlm_transport *t)
{
    return w.queued;
}

static inline int64_t fake_cpu_ms(const struct rlm_transport *t)
{
    return w.cpu_ms;
}

static inline void fake_kill(struct rlm_transport *t)
{
    w.killed = true;
}

static inline void fake_free(struct rlm_transport *t)
{
    w.freed = true;
}

static struct rlm_transport_ops fake_ops = {
    .send = fake_send,
    .passes_descriptors = true,
    .queued = fake_queued,
    .cpu_ms = fake_cpu_ms,
    .kill = fake_kill,
    .free = fake_free,
};

static inline int fake_connect(rlm_runtime *r,
                               const struct rlm_session_options *o,
                               struct rlm_transport **ret_transport,
                               rlm_error **err)
{
    w.transport.ops = &fake_ops;
    *ret_transport = &w.transport;
    return 0;
}

static const struct rlm_runtime_ops runtime_ops = {
    .name = "fake", .effects = "none", .connect = fake_connect};

static inline void
say_frame(uint8_t kind, uint8_t flags, uint16_t stream, const void *payload, size_t len)
{
    char *frame = malloc(RLM_FRAME_HEADER + len);
    struct rlm_frame f = {.kind = kind, .flags = flags, .stream = stream, .sequence = ++w.sequence};
    rlm_frame_put_header(frame, &f, len);
    memcpy(frame + RLM_FRAME_HEADER, payload, len);
    w.transport.events->received(w.transport.arg, frame, RLM_FRAME_HEADER + len);
    free(frame);
}

static inline void say(uint8_t kind, const char *payload)
{
    say_frame(kind, 0, 0, payload, strlen(payload));
}

static inline void grant(uint16_t stream, uint32_t bytes)
{
    char number[4];
    rlm_frame_put_u32(number, bytes);
    say_frame(RLM_FRAME_CREDIT, 0, stream, number, 4);
}

/* ---- the engine's side ------------------------------------------------------------------------ */

static inline void on_ready(void *arg, rlm_str json)
{
    rlm_buf_addf(&w.told, "ready|");
}

static inline void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    tell_suspended(&w.told, calls, n);
    if (w.on_suspended) {
        w.on_suspended();
    }
}

static inline void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    rlm_buf_addf(&w.told, "finished \"%.*s\" omitted %d %s: %.*s (%s) notes %d|",
                 RLM_FMT(how->output), (int)how->omitted_chars,
                 how->error_type ? how->error_type : "ok", (int)how->error_message.len,
                 how->error_message.ptr ? how->error_message.ptr : "", how->clock ? how->clock : "",
                 how->notes ? (int)how->notes->count : -1);
    if (w.on_finished) {
        w.on_finished();
    }
}

static inline void on_died(void *arg, const struct rlm_session_death *how)
{
    tell_died(&w.told, how);
}

static inline void on_given_up(void *arg, const int64_t *ids, size_t n)
{
    rlm_buf_addf(&w.told, "given up");
    for (size_t i = 0; i < n; i++) {
        rlm_buf_addf(&w.told, " %d", (int)ids[i]);
    }
    rlm_buf_addf(&w.told, "|");
}

static struct rlm_session_events session_events = {
    .ready = on_ready,
    .suspended = on_suspended,
    .finished = on_finished,
    .died = on_died,
    .given_up = on_given_up,
};

static inline void begin(struct rlm_session_options *o)
{
    CHECK_INT(rlm_loop_new(&w.loop, NULL), 0);
    if (!o->blobs) {
        CHECK_INT(rlm_blobs_open(NULL, &w.blobs, NULL), 0);
        o->blobs = w.blobs;
    }
    w.runtime = (rlm_runtime){&runtime_ops, w.loop};
    w.heard = RLM_FRAME_DECODER_INIT;
    w.log = RLM_BUF(64 << 20);
    w.told = RLM_BUF(64 << 20);
    o->open_json = o->open_json.ptr ? o->open_json : RLM_STR("{}");
    rlm_autoerr rlm_error *err = NULL;
    rlm_session_open(&w.runtime, o, &session_events, NULL, &w.session, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

static inline void end(void)
{
    rlm_session_close(w.session);
    CHECK(w.freed);
    rlm_blobs_free(w.blobs);
    rlm_frame_decoder_deinit(&w.heard);
    rlm_buf_deinit(&w.log);
    rlm_buf_deinit(&w.told);
    rlm_loop_free(w.loop);
}

static inline void close_it(void)
{
    rlm_session_close(w.session);
    w.session = NULL;
}

/* A session that is ready, with a cell under way. */
static inline void begin_cell(struct rlm_session_options *o)
{
    begin(o);
    say(RLM_FRAME_READY, "{\"python\":\"3.11.2\"}");
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("f()"), NULL), 0);
    rlm_buf_clear(&w.log);
    rlm_buf_clear(&w.told);
}

static inline struct rlm_session_options *plain(void)
{
    static struct rlm_session_options o;
    return &o;
}

/* Lets the loop run. */
static inline void run_ms(uint64_t ms)
{
    run_loop(w.loop, ms);
}

static inline void run_until(const struct rlm_buf *b, const char *part)
{
    while (!b->ptr || !strstr(b->ptr, part)) {
        run_ms(1); /* the harness has the time limit */
    }
}

static inline const char *text(struct rlm_buf *b)
{
    static char copy[4096];
    snprintf(copy, sizeof copy, "%s", b->ptr && b->len ? b->ptr : "");
    rlm_buf_clear(b);
    return copy;
}

static inline void give(int64_t id, const char *value)
{
    give_to(w.session, id, value);
}

#define CALL(id, args)   "{\"id\":" #id ",\"name\":\"f\",\"args\":" args ",\"kwargs\":{}}"
#define SUSPENDED(calls) "{\"calls\":[" calls "],\"pending\":[]}"
#define FINISHED         "{\"cell\":1,\"output\":\"1\\n\",\"omitted\":0,\"error\":null,\"notes\":[]}"

static inline void expect_death(const char *part)
{
    run_until(&w.told, "died");
    CHECK_CONTAINS(w.told.ptr, "died protocol");
    CHECK_CONTAINS(w.told.ptr, part);
    CHECK(w.killed);
    /* Nothing comes after it, and what still arrives is not looked at. */
    size_t len = w.told.len;
    say(RLM_FRAME_FINISHED, FINISHED);
    w.transport.events->ended(w.transport.arg, "signal", RLM_STR("the worker was killed"),
                              RLM_STR(""));
    run_ms(1);
    CHECK_INT(w.told.len, len);
    CHECK_INT(rlm_session_start(w.session, 9, RLM_STR("x"), NULL), RLM_E_SESSION);
    end();
}
