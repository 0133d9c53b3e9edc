#include "runtime/child.h"

#include "base/error.h"
#include "runtime/frame.h"
#include "runtime/sender.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_DRAIN_BYTES = 8 << 20, /* taken in after its end: others may hold its pipe */
    MAX_SAID_BYTES = 16 * 1024,
    SHOWN_SAID_BYTES = 2000,
    EXIT_AFTER_EOF_MS = 1000,
    CLOSED_BY_CELL = 121, /* the exit status of a worker that finds its descriptors closed */
};

struct child {
    struct rlm_transport transport; /* first: a transport is cast to its child */
    rlm_process *process;
    char *buffer;
    void (*spare_ended)(void *arg, struct rlm_transport *t);
    void *arg;

    int to_fd;   /* the socket */
    int from_fd; /* the pipe */
    rlm_watch *to_watch;
    rlm_watch *from_watch;
    bool attached;
    bool eof; /* nothing more comes */
    rlm_timer *eof_timer;

    struct rlm_sender sender;

    int said_fd;
    rlm_watch *said_watch;
    struct rlm_buf said;

    rlm_defer *drain;
    size_t drained_bytes;
    bool exited;
    bool is_command;
    bool hung_up; /* it closed its end and was killed for it */
    struct rlm_process_exit how;
};

static struct child *child_of(struct rlm_transport *t)
{
    return (struct child *)t;
}

static void watch(struct child *c)
{
    bool listens = c->attached && !c->exited;
    bool writes = rlm_sender_waits(&c->sender);
    rlm_watch_set(c->from_watch, listens && !c->eof ? RLM_READABLE : 0);
    rlm_watch_set(c->to_watch,
                  (listens && !c->sender.broken ? RLM_READABLE : 0) | (writes ? RLM_WRITABLE : 0));
}

/* ---- sending --------------------------------------------------------------------------------- */

/* It gets a moment to end by itself. */
static void lose(struct child *c)
{
    c->sender.broken = true;
    if (!c->eof && !c->exited) {
        rlm_timer_set(c->eof_timer, EXIT_AFTER_EOF_MS);
    }
}

static int
child_send(struct rlm_transport *t, const void *bytes, size_t len, int fd, rlm_error **err)
{
    struct child *c = child_of(t);
    bool was_broken = c->sender.broken;
    int r = rlm_sender_send(&c->sender, bytes, len, fd, err);
    if (c->sender.broken && !was_broken) {
        lose(c);
    }
    if (rlm_sender_waits(&c->sender)) {
        watch(c);
    }
    return r;
}

static size_t child_queued(const struct rlm_transport *t)
{
    return rlm_sender_queued(&((const struct child *)t)->sender);
}

/* ---- its end --------------------------------------------------------------------------------- */

/* Takes in a piece of what it says; as read(2). */
static ssize_t read_said(struct child *c)
{
    char piece[4096];
    ssize_t n = read(c->said_fd, piece, sizeof piece);
    if (n > 0) {
        if (c->said.len + (size_t)n > MAX_SAID_BYTES) {
            rlm_buf_drop(&c->said, c->said.len / 2);
        }
        rlm_buf_add(&c->said, piece, (size_t)n);
    }
    return n;
}

/* What is left after its end. Bounded: a process that it started may go on writing. */
static void take_said(struct child *c)
{
    size_t taken = 0;
    ssize_t n = 1;
    while (c->said_fd >= 0 && n > 0 && taken < 16 * MAX_SAID_BYTES) {
        n = read_said(c);
        taken += n > 0 ? (size_t)n : 0;
    }
}

static void close_said(struct child *c)
{
    if (c->said_fd >= 0) {
        rlm_watch_free(c->said_watch);
        c->said_watch = NULL;
        close(c->said_fd);
        c->said_fd = -1;
    }
}

static void said_ready(void *arg, int events)
{
    struct child *c = arg;
    (void)events;
    ssize_t n = read_said(c);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close_said(c);
    }
}

/* The end of what it said: of a traceback the last lines tell most. */
static rlm_str shown_said(const struct child *c)
{
    rlm_str s = rlm_buf_str(&c->said);
    while (s.len && (s.ptr[s.len - 1] == '\n' || s.ptr[s.len - 1] == ' ')) {
        s.len--;
    }
    if (s.len > SHOWN_SAID_BYTES) {
        s.ptr += s.len - SHOWN_SAID_BYTES;
        s.len = SHOWN_SAID_BYTES;
    }
    return s;
}

/* The last thing that is done with a child before its owner frees it. */
static void tell_end(struct child *c)
{
    char message[160];
    const char *reason = "exit", *what = c->is_command ? "worker's command" : "worker";
    if (!c->attached) {
        c->spare_ended(c->arg, &c->transport);
        return;
    }
    if (c->hung_up) {
        snprintf(message, sizeof message, "the %s closed its connection and was killed", what);
    } else if (c->how.signal) {
        const char *name = sigabbrev_np(c->how.signal);
        reason = "signal";
        snprintf(message, sizeof message, "the %s was killed by signal %d%s%s%s", what,
                 c->how.signal, name ? " (SIG" : "", name ? name : "", name ? ")" : "");
    } else if (c->how.status == CLOSED_BY_CELL) {
        snprintf(message, sizeof message,
                 "the worker ended: code closed descriptors that it did not open, those of the "
                 "worker itself among them");
    } else {
        snprintf(message, sizeof message, "the %s ended with exit status %d%s", what, c->how.status,
                 c->is_command ? "" : " (os._exit or a crash)");
    }
    take_said(c);
    c->transport.events->ended(c->transport.arg, reason, rlm_str_of(message), shown_said(c));
}

/* Bytes that came before the end are told before it, a piece a turn, since the session may free us
 * in any event. */
static void drain(void *arg)
{
    struct child *c = arg;
    ssize_t n = 0;
    if (c->attached && !c->eof && c->drained_bytes < MAX_DRAIN_BYTES) {
        n = read(c->from_fd, c->buffer, RLM_CHILD_BUFFER);
    }
    if (n <= 0) {
        tell_end(c);
        return;
    }
    c->drained_bytes += (size_t)n;
    rlm_defer_schedule(c->drain);
    c->transport.events->received(c->transport.arg, c->buffer, (size_t)n);
}

static void exited(void *arg, const struct rlm_process_exit *how)
{
    struct child *c = arg;
    c->exited = true;
    c->how = *how;
    rlm_timer_stop(c->eof_timer);
    watch(c);
    rlm_defer_schedule(c->drain);
}

static void hung_up(void *arg)
{
    struct child *c = arg;
    c->hung_up = true;
    rlm_process_signal_group(c->process, SIGKILL);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The socket's. Nothing is said on it, so what can be read there is its end. */
static void told(void *arg, int events)
{
    struct child *c = arg;
    if (events & RLM_WRITABLE && rlm_sender_waits(&c->sender)) {
        rlm_sender_flush(&c->sender);
        if (c->sender.broken) {
            lose(c);
        }
        watch(c);
        if (rlm_sender_queued(&c->sender) == 0 && c->attached) {
            /* Its end can wait for the next turn: the session may free us in here. */
            c->transport.events->drained(c->transport.arg);
            return;
        }
    }
    if (events & RLM_READABLE) {
        lose(c);
        watch(c);
    }
}

/* The pipe's. */
static void heard(void *arg, int events)
{
    struct child *c = arg;
    (void)events;
    if (!c->attached || c->eof || c->exited) {
        return;
    }
    ssize_t n = read(c->from_fd, c->buffer, RLM_CHILD_BUFFER);
    if (n > 0) {
        c->transport.events->received(c->transport.arg, c->buffer, (size_t)n);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    c->eof = true;
    watch(c);
    rlm_timer_set(c->eof_timer, EXIT_AFTER_EOF_MS);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int64_t child_cpu_ms(const struct rlm_transport *t)
{
    return rlm_process_cpu_ms(((const struct child *)t)->process);
}

static void child_kill(struct rlm_transport *t)
{
    rlm_process_signal_group(child_of(t)->process, SIGKILL);
}

static void close_end(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static void child_free(struct rlm_transport *t)
{
    struct child *c = child_of(t);
    rlm_watch_free(c->to_watch);
    rlm_watch_free(c->from_watch);
    close_said(c);
    if (c->process) {
        rlm_process_free(c->process);
    }
    close_end(c->to_fd);
    close_end(c->from_fd);
    rlm_timer_free(c->eof_timer);
    rlm_defer_free(c->drain);
    rlm_sender_deinit(&c->sender);
    rlm_buf_deinit(&c->said);
    free(c);
}

static const struct rlm_transport_ops child_ops = {
    .send = child_send,
    .passes_descriptors = true,
    .queued = child_queued,
    .cpu_ms = child_cpu_ms,
    .kill = child_kill,
    .free = child_free,
};

static const struct rlm_transport_ops command_ops = {
    .send = child_send,
    .queued = child_queued,
    .kill = child_kill,
    .free = child_free,
};

/* The ends of socket and pipes that the child gets; closed when it has them. */
struct far_ends {
    int in;
    int out;
    int said;
};

static void close_far_ends(struct far_ends *f)
{
    close_end(f->in);
    close_end(f->out);
    close_end(f->said);
}

/* A pipe of which this side reads without waiting. */
static int make_pipe(int *ret_near, int *ret_far, rlm_error **err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "making a pipe");
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *ret_near = ends[0];
    *ret_far = ends[1];
    return 0;
}

static int connect_ends(struct child *c, rlm_loop *loop, struct far_ends *far, rlm_error **err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "making a socket pair");
    }
    c->to_fd = c->sender.fd = pair[0];
    far->in = pair[1];
    int r = make_pipe(&c->from_fd, &far->out, err);
    if (r == 0) {
        r = make_pipe(&c->said_fd, &far->said, err);
    }
    if (r < 0) {
        return r;
    }
    c->drain = rlm_defer_new(loop, drain, c);
    c->eof_timer = rlm_timer_new(loop, hung_up, c);
    c->to_watch = rlm_watch_new(loop, c->to_fd, told, c);
    c->from_watch = rlm_watch_new(loop, c->from_fd, heard, c);
    c->said_watch = rlm_watch_new(loop, c->said_fd, said_ready, c);
    if (!c->drain || !c->eof_timer || !c->to_watch || !c->from_watch || !c->said_watch) {
        return rlm_error_nomem(err);
    }
    return rlm_watch_set(c->said_watch, RLM_READABLE) < 0 ? rlm_error_nomem(err) : 0;
}

static int launch(struct child *c,
                  rlm_loop *loop,
                  const struct rlm_child_options *o,
                  const struct far_ends *far,
                  rlm_error **err)
{
    int own[] = {-1, far->said, far->said, far->in, far->out};
    int standard[] = {far->in, far->out, far->said};
    struct rlm_process_options options = {
        .argv = o->argv,
        .env = o->env,
        .working_directory = o->working_directory,
        .child_fds = o->is_command ? standard : own,
        .n_child_fds = o->is_command ? 3 : 5,
    };
    return rlm_process_start(loop, &options, exited, c, &c->process, err);
}

int rlm_child_start(rlm_loop *loop,
                    const struct rlm_child_options *options,
                    struct rlm_transport **ret_transport,
                    rlm_error **err)
{
    struct child *c;
    if (!RLM_NEW(c)) {
        return rlm_error_nomem(err);
    }
    c->transport.ops = options->is_command ? &command_ops : &child_ops;
    c->is_command = options->is_command;
    c->buffer = options->buffer;
    c->spare_ended = options->spare_ended;
    c->arg = options->arg;
    c->to_fd = c->from_fd = c->said_fd = -1;
    c->sender = RLM_SENDER_INIT;
    c->said = RLM_BUF(2 * MAX_SAID_BYTES);
    struct far_ends far = {-1, -1, -1};
    int r = connect_ends(c, loop, &far, err);
    if (r == 0) {
        r = launch(c, loop, options, &far, err);
    }
    close_far_ends(&far);
    if (r == 0) {
        char length[4];
        rlm_frame_put_u32(length, (uint32_t)options->worker.len);
        r = child_send(&c->transport, length, sizeof length, -1, err);
    }
    if (r == 0) {
        r = child_send(&c->transport, options->worker.ptr, options->worker.len, -1, err);
    }
    if (r < 0) {
        child_free(&c->transport);
        return r;
    }
    *ret_transport = &c->transport;
    return 0;
}

void rlm_child_attach(struct rlm_transport *t)
{
    struct child *c = child_of(t);
    c->attached = true;
    watch(c);
}

bool rlm_child_alive(const struct rlm_transport *t)
{
    return rlm_process_alive(((const struct child *)t)->process);
}
