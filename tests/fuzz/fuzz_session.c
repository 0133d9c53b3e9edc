/* A session against any worker: the input is a list of steps, most of them frames of the worker with
 * a right header, some what the engine does meanwhile. Whatever comes, the session must keep to its
 * own rules: at most one start or resume outstanding, frames in sequence, no event after `died`. */
#include "base/error.h"
#include "base/loop.h"
#include "runtime/frame.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_CALLS = 64 };

static struct {
    struct rlm_transport transport;
    struct rlm_frame_decoder heard;
    rlm_session *session;
    uint64_t sequence;
    int outstanding; /* starts and resumes that were not answered */
    int64_t calls[MAX_CALLS];
    size_t n_calls;
    bool died;
    bool killed;
    bool freed;
    bool suspends; /* a suspended frame is being handed over */
    size_t queued;
} w;

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* ---- the worker's end ------------------------------------------------------------------------- */

static int
fuzz_send(struct rlm_transport *t, const void *bytes, size_t len, int fd, rlm_error **err)
{
    require(!w.freed);
    if (fd >= 0) {
        close(fd);
    }
    rlm_frame_decoder_feed(&w.heard, bytes, len);
    struct rlm_frame f;
    int r;
    while ((r = rlm_frame_decoder_next(&w.heard, &f, NULL)) > 0) {
        if (f.kind == RLM_FRAME_RESUME && w.suspends) {
            w.outstanding = 0; /* one that is answered with what waited has no event */
            w.suspends = false;
        }
        if (f.kind == RLM_FRAME_START || f.kind == RLM_FRAME_RESUME) {
            require(++w.outstanding == 1);
        }
    }
    require(r == 0);
    return 0;
}

static size_t fuzz_queued(const struct rlm_transport *t)
{
    return w.queued;
}

static int64_t fuzz_cpu_ms(const struct rlm_transport *t)
{
    return -1;
}

static void fuzz_kill(struct rlm_transport *t)
{
    w.killed = true;
}

static void fuzz_free(struct rlm_transport *t)
{
    w.freed = true;
}

static const struct rlm_transport_ops ops = {
    .send = fuzz_send,
    .passes_descriptors = true,
    .queued = fuzz_queued,
    .cpu_ms = fuzz_cpu_ms,
    .kill = fuzz_kill,
    .free = fuzz_free,
};

static int fuzz_connect(rlm_runtime *r,
                        const struct rlm_session_options *o,
                        struct rlm_transport **ret_transport,
                        rlm_error **err)
{
    w.transport.ops = &ops;
    *ret_transport = &w.transport;
    return 0;
}

/* ---- events ----------------------------------------------------------------------------------- */

static void on_ready(void *arg, rlm_str json)
{
    require(!w.died && json.ptr);
}

static void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    require(!w.died && w.outstanding == 1);
    w.outstanding = 0;
    for (size_t i = 0; i < n; i++) {
        rlm_auto_buf struct rlm_buf text = RLM_BUF(64 << 20);
        rlm_json_canonical(&text, calls[i].args);
        rlm_json_canonical(&text, calls[i].kwargs);
        require(!text.ptr || !strstr(text.ptr, "{\"$stream\""));
        if (w.n_calls < MAX_CALLS) {
            w.calls[w.n_calls++] = calls[i].id;
        }
    }
}

static void on_given_up(void *arg, const int64_t *ids, size_t n)
{
    require(!w.died && w.outstanding == 1 && n > 0);
    for (size_t i = 0; i < n; i++) {
        require(ids[i] > (i ? ids[i - 1] : 0));
        for (size_t k = 0; k < w.n_calls; k++) {
            if (w.calls[k] == ids[i]) {
                w.calls[k] = w.calls[--w.n_calls];
            }
        }
    }
}

static void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    require(!w.died && w.outstanding == 1 && !rlm_session_is_busy(w.session));
    w.outstanding = 0;
    w.n_calls = 0;
}

static void on_died(void *arg, const struct rlm_session_death *how)
{
    require(!w.died && how->message.len > 0);
    w.died = true;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static void say(uint8_t kind, uint8_t flags, uint16_t stream, const uint8_t *payload, size_t len)
{
    char frame[RLM_FRAME_HEADER + 65536];
    struct rlm_frame f = {.kind = kind, .flags = flags, .stream = stream, .sequence = ++w.sequence};
    rlm_frame_put_header(frame, &f, len);
    memcpy(frame + RLM_FRAME_HEADER, payload, len);
    w.suspends = kind == RLM_FRAME_SUSPENDED;
    w.transport.events->received(w.transport.arg, frame, RLM_FRAME_HEADER + len);
}

static void answer(bool fails)
{
    if (!w.n_calls) {
        return;
    }
    struct rlm_call_result result = {
        .id = w.calls[--w.n_calls],
        .value_json = RLM_STR("[1,{\"$tuple\":[]}]"),
        .error_type = fails ? "HostCallError" : NULL,
    };
    rlm_session_resume(w.session, &result, 1, NULL);
}

static void engine_step(uint8_t what)
{
    switch (what % 8) {
    case 0:
        rlm_session_start(w.session, what, RLM_STR("x"), NULL);
        break;
    case 1:
    case 2:
        answer(what & 1);
        break;
    case 3:
        rlm_session_interrupt(w.session, "stop", RLM_STR("m"), 100000);
        break;
    case 4:
        rlm_session_pause(w.session, what & 8);
        break;
    case 5:
        w.queued = what & 8 ? 1 << 20 : 0;
        if (!w.queued) {
            w.transport.events->drained(w.transport.arg);
        }
        break;
    case 6:
        rlm_session_unwind(w.session);
        break;
    default:
        w.transport.events->ended(w.transport.arg, "exit", RLM_STR("the worker ended"),
                                  RLM_STR(""));
    }
}

/* A step: kind, flags, stream, u16 length, payload; kind 0 or above 31: the engine does `flags`. */
static void run(const uint8_t *p, const uint8_t *end)
{
    while (end - p >= 5 && !w.killed) {
        uint8_t kind = p[0], flags = p[1], stream = p[2];
        size_t len = (size_t)(p[3] | p[4] << 8);
        if (kind == 0 || kind > 31) {
            engine_step(flags);
            p += 2;
            continue;
        }
        p += 5;
        len = len > (size_t)(end - p) ? (size_t)(end - p) : len;
        say(kind, flags, stream, p, len);
        p += len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct rlm_runtime_ops runtime_ops = {
        .name = "fuzz", .effects = "none", .connect = fuzz_connect};
    static const struct rlm_session_events events = {on_ready, on_suspended, on_finished, on_died,
                                                     on_given_up};
    rlm_loop *loop = NULL;
    rlm_blobs *blobs = NULL;
    memset(&w, 0, sizeof w);
    w.heard = RLM_FRAME_DECODER_INIT;
    require(rlm_loop_new(&loop, NULL) == 0 && rlm_blobs_open(NULL, &blobs, NULL) == 0);
    rlm_runtime runtime = {&runtime_ops, loop};
    struct rlm_session_options o = {.blobs = blobs, .open_json = RLM_STR("{}")};
    require(rlm_session_open(&runtime, &o, &events, NULL, &w.session, NULL) == 0);
    run(data, data + size);
    while (w.killed && !w.died) {
        rlm_loop_turn(loop);
    }
    rlm_session_close(w.session);
    require(w.freed);
    rlm_frame_decoder_deinit(&w.heard);
    rlm_blobs_free(blobs);
    rlm_loop_free(loop);
    return 0;
}
