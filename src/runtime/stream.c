#include "base/error.h"
#include "runtime/runtime.h"
#include "runtime/sender.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 * 1024 };

struct stream_runtime {
    rlm_runtime runtime; /* first: a runtime is cast to it */
    struct rlm_runtime_ops ops;
    struct rlm_transport_ops transport_ops;
    struct rlm_stream_options options;
    char *name;
    char *effects;
    char *killed;
    char *working_directory;
    char *buffer; /* for receiving, shared by all streams */
};

/* The transport of one session. */
struct rlm_stream {
    struct rlm_transport transport; /* first: a transport is cast to it */
    struct stream_runtime *runtime;
    struct rlm_sender sender;
    int from_fd;
    rlm_watch *to_watch, *from_watch;
    rlm_defer *end;
    const char *how; /* it ended; a literal */
    struct rlm_buf said;
};

enum { MAX_SAID_BYTES = 2000 };

static struct stream_runtime *runtime_of(rlm_runtime *r)
{
    return (struct stream_runtime *)r;
}

static rlm_stream *stream_of(struct rlm_transport *t)
{
    return (rlm_stream *)t;
}

/* ---- its end --------------------------------------------------------------------------------- */

static void tell_end(void *arg)
{
    rlm_stream *s = arg;
    s->transport.events->ended(s->transport.arg, "exit", rlm_str_of(s->how), rlm_buf_str(&s->said));
}

static void disconnect(rlm_stream *s)
{
    rlm_watch_free(s->to_watch);
    rlm_watch_free(s->from_watch);
    s->to_watch = s->from_watch = NULL;
    for (int i = 0; i < 2; i++) {
        int *fd = i ? &s->from_fd : &s->sender.fd;
        if (*fd >= 0) {
            close(*fd);
            *fd = -1;
        }
    }
}

static void lose(rlm_stream *s, const char *how)
{
    if (!s->how) {
        s->how = how;
        s->sender.broken = true;
        disconnect(s);
        rlm_defer_schedule(s->end);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* After a send or flush. */
static void look_at_sender(rlm_stream *s)
{
    if (s->sender.broken) {
        lose(s, "the worker closed its connection");
    } else if (s->to_watch) {
        rlm_watch_set(s->to_watch, rlm_sender_waits(&s->sender) ? RLM_WRITABLE : 0);
    }
}

static int
stream_send(struct rlm_transport *t, const void *bytes, size_t len, int fd, rlm_error **err)
{
    rlm_stream *s = stream_of(t);
    int r = rlm_sender_send(&s->sender, bytes, len, fd, err);
    if (s->sender.broken || rlm_sender_waits(&s->sender)) {
        look_at_sender(s);
    }
    return r;
}

static size_t stream_queued(const struct rlm_transport *t)
{
    return rlm_sender_queued(&((const rlm_stream *)t)->sender);
}

static void can_send(void *arg, int events)
{
    rlm_stream *s = arg;
    (void)events;
    rlm_sender_flush(&s->sender);
    look_at_sender(s);
    if (!s->sender.broken && rlm_sender_queued(&s->sender) == 0) {
        s->transport.events->drained(s->transport.arg);
    }
}

static void heard(void *arg, int events)
{
    rlm_stream *s = arg;
    char *buffer = s->runtime->buffer;
    (void)events;
    ssize_t n = read(s->from_fd, buffer, BUFFER_BYTES);
    if (n > 0) {
        s->transport.events->received(s->transport.arg, buffer, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        lose(s, "the worker closed its connection");
    }
}

/* ---- the embedding program's side ------------------------------------------------------------ */

void rlm_stream_connected(rlm_stream *s, int from_fd, int to_fd)
{
    rlm_loop *loop = s->runtime->runtime.loop;
    bool is_late = s->how || s->from_fd >= 0;
    if (to_fd == from_fd && to_fd >= 0) { /* each is watched */
        to_fd = fcntl(from_fd, F_DUPFD_CLOEXEC, 3);
    }
    if (is_late || from_fd < 0 || to_fd < 0) {
        close(from_fd);
        close(to_fd);
        if (!is_late) {
            lose(s, "the worker's descriptors are none");
        }
        return;
    }
    s->from_fd = from_fd;
    s->sender.fd = to_fd;
    s->from_watch = rlm_watch_new(loop, from_fd, heard, s);
    s->to_watch = rlm_watch_new(loop, to_fd, can_send, s);
    if (!s->from_watch || !s->to_watch || rlm_watch_set(s->from_watch, RLM_READABLE) < 0) {
        lose(s, "the worker's descriptors cannot be watched");
        return;
    }
    rlm_sender_flush(&s->sender);
    look_at_sender(s);
}

void rlm_stream_fail(rlm_stream *s, struct rlm_str why)
{
    if (!s->how && s->from_fd < 0) {
        why.len = why.len > MAX_SAID_BYTES ? MAX_SAID_BYTES : why.len;
        rlm_buf_add_str(&s->said, why);
        lose(s, "the worker could not be reached");
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void stream_kill(struct rlm_transport *t)
{
    rlm_stream *s = stream_of(t);
    const struct rlm_stream_options *o = &s->runtime->options;
    if (!s->how && o->kill) {
        o->kill(o->arg, s);
    }
    lose(s, "the worker was killed");
}

static void release(rlm_stream *s)
{
    disconnect(s);
    rlm_defer_free(s->end);
    rlm_sender_deinit(&s->sender);
    rlm_buf_deinit(&s->said);
    free(s);
}

static void stream_free(struct rlm_transport *t)
{
    rlm_stream *s = stream_of(t);
    const struct rlm_stream_options *o = &s->runtime->options;
    disconnect(s);
    if (o->closed) {
        o->closed(o->arg, s);
    }
    release(s);
}

static int stream_connect(rlm_runtime *r,
                          const struct rlm_session_options *options,
                          struct rlm_transport **ret_transport,
                          rlm_error **err)
{
    struct stream_runtime *p = runtime_of(r);
    rlm_stream *s;
    if (!RLM_NEW(s)) {
        return rlm_error_nomem(err);
    }
    s->transport.ops = &p->transport_ops;
    s->runtime = p;
    s->sender = RLM_SENDER_INIT;
    s->said = RLM_BUF(MAX_SAID_BYTES);
    s->from_fd = -1;
    s->end = rlm_defer_new(r->loop, tell_end, s);
    if (!s->end) {
        release(s);
        return rlm_error_nomem(err);
    }
    struct rlm_stream_session session = {
        .agent_id = options->agent_id ? options->agent_id : "",
        .depth = options->depth,
        .working_directory =
            options->working_directory ? options->working_directory : p->working_directory,
    };
    p->options.connect(p->options.arg, s, &session);
    *ret_transport = &s->transport;
    return 0;
}

static void stream_runtime_free(rlm_runtime *r)
{
    struct stream_runtime *p = runtime_of(r);
    free(p->name);
    free(p->effects);
    free(p->killed);
    free(p->working_directory);
    free(p->buffer);
    free(p);
}

/* A copy of an option, or of what holds without it; NULL stays NULL. */
static bool copy(char **ret, const char *text, const char *otherwise)
{
    text = text ? text : otherwise;
    *ret = text ? rlm_strdup(text) : NULL;
    return *ret || !text;
}

int rlm_runtime_new_stream(rlm_loop *loop,
                           const struct rlm_stream_options *options,
                           rlm_runtime **ret_runtime,
                           rlm_error **err)
{
    struct rlm_stream_options o = RLM_STREAM_OPTIONS_INIT;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (!o.connect) {
        return rlm_error_set(err, RLM_E_INVAL, "a stream runtime needs `connect`");
    }
    if (o.effects && strcmp(o.effects, "none") != 0 && strcmp(o.effects, "outside") != 0) {
        return rlm_error_set(err, RLM_E_INVAL, "effects are \"none\" or \"outside\", not \"%s\"",
                             o.effects);
    }
    struct stream_runtime *p;
    if (!RLM_NEW(p)) {
        return rlm_error_nomem(err);
    }
    p->runtime = (rlm_runtime){.ops = &p->ops, .loop = loop};
    p->options = o;
    p->buffer = rlm_malloc(BUFFER_BYTES);
    if (!p->buffer || !copy(&p->name, o.name, "stream") ||
        !copy(&p->effects, o.effects, "outside") || !copy(&p->killed, o.killed, NULL) ||
        !copy(&p->working_directory, o.working_directory, NULL)) {
        stream_runtime_free(&p->runtime);
        return rlm_error_nomem(err);
    }
    p->ops = (struct rlm_runtime_ops){
        .name = p->name,
        .effects = p->effects,
        .connect = stream_connect,
        .free = stream_runtime_free,
    };
    p->transport_ops = (struct rlm_transport_ops){
        .send = stream_send,
        .passes_descriptors = o.passes_descriptors,
        .killed = p->killed,
        .queued = stream_queued,
        .kill = stream_kill,
        .free = stream_free,
    };
    *ret_runtime = &p->runtime;
    return 0;
}

struct rlm_str rlm_worker_text(void)
{
    return (struct rlm_str){rlm_worker_source, rlm_worker_source_size};
}
