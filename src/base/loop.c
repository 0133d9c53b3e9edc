#include "base/loop.h"

#include "base/alloc.h"
#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

/* libuv ends its handles asynchronously: the memory of a timer or watch lives until the close
 * callback, which is the only thing that still comes for it. uv_close takes a handle out of the
 * timer heap and out of the events already fetched in this turn, so no user callback follows it. */

struct rlm_loop {
    uv_loop_t uv;
    uv_idle_t deferring; /* active while `first` is not NULL: then poll does not wait */
    rlm_defer *first;    /* scheduled calls, in order */
    rlm_defer *last;
    uint64_t turn; /* counts the runs of the queue */
    size_t holds;
    pid_t creator;
};

struct rlm_timer {
    uv_timer_t uv;
    rlm_callback fire;
    void *arg;
};

struct rlm_watch {
    uv_poll_t uv;
    rlm_watch_callback ready;
    void *arg;
    int events;
};

struct rlm_defer {
    rlm_loop *loop;
    rlm_callback run;
    void *arg;
    rlm_defer *next;
    rlm_defer *previous;
    uint64_t turn; /* of its scheduling */
    bool scheduled;
};

struct work {
    uv_work_t uv;
    rlm_loop *loop;
    rlm_callback work;
    rlm_callback done;
    void *arg;
};

/* A forked child shares the epoll object with its parent: whatever it did would be done to the
 * parent's loop. */
static bool is_forked(const rlm_loop *loop)
{
    return getpid() != loop->creator;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int fail_uv(rlm_error **err, int status, const char *what)
{
    if (status == UV_ENOMEM) {
        return rlm_error_nomem(err);
    }
    return rlm_error_set_errno(err, RLM_E_IO, -status, "%s", what);
}

int rlm_loop_new(rlm_loop **ret_loop, rlm_error **err)
{
    rlm_loop *loop = NULL;
    if (!RLM_NEW(loop)) {
        return rlm_error_nomem(err);
    }
    int status = uv_loop_init(&loop->uv);
    if (status < 0) {
        free(loop);
        return fail_uv(err, status, "making an event loop");
    }
    uv_idle_init(&loop->uv, &loop->deferring);
    loop->uv.data = loop;
    loop->deferring.data = loop;
    loop->creator = getpid();
    *ret_loop = loop;
    return 0;
}

void rlm_loop_free(rlm_loop *loop)
{
    if (!loop || is_forked(loop)) {
        return;
    }
    while (loop->holds) {
        uv_run(&loop->uv, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&loop->deferring, NULL);
    /* Closes are done in the turn after they were asked for. */
    int status = UV_EBUSY;
    for (int turns = 0; turns < 3 && status == UV_EBUSY; turns++) {
        uv_run(&loop->uv, UV_RUN_NOWAIT);
        status = uv_loop_close(&loop->uv);
    }
    assert(status == 0 && "an object on the loop was not freed before it");
    if (status == 0) {
        free(loop);
    }
}

void rlm_loop_run(rlm_loop *loop)
{
    if (!is_forked(loop)) {
        uv_run(&loop->uv, UV_RUN_DEFAULT);
    }
}

void rlm_loop_stop(rlm_loop *loop)
{
    uv_stop(&loop->uv);
}

int rlm_loop_fd(const rlm_loop *loop)
{
    return uv_backend_fd(&loop->uv);
}

int rlm_loop_timeout(const rlm_loop *loop)
{
    if (!uv_loop_alive(&loop->uv)) {
        return -1; /* nothing will come; libuv would say 0, and its caller would spin */
    }
    /* The clock that libuv counts from is that of the last turn. */
    uv_update_time((uv_loop_t *)(uintptr_t)&loop->uv);
    return uv_backend_timeout(&loop->uv);
}

bool rlm_loop_turn(rlm_loop *loop)
{
    return !is_forked(loop) && uv_run(&loop->uv, UV_RUN_ONCE) != 0;
}

bool rlm_loop_dispatch(rlm_loop *loop)
{
    return !is_forked(loop) && uv_run(&loop->uv, UV_RUN_NOWAIT) != 0;
}

void rlm_loop_hold(rlm_loop *loop)
{
    loop->holds++;
}

void rlm_loop_release(rlm_loop *loop)
{
    assert(loop->holds > 0);
    loop->holds--;
}

/* ---- clocks and chance ----------------------------------------------------------------------- */

uint64_t rlm_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t rlm_now_ms(void)
{
    return rlm_now_us() / 1000;
}

int64_t rlm_wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void rlm_random(void *ptr, size_t len)
{
    char *at = ptr;
    while (len) {
        ssize_t got = getrandom(at, len, 0);
        if (got > 0) {
            at += got;
            len -= (size_t)got;
        } else if (errno != EINTR) {
            abort(); /* every kernel that we run on has it; predictable ids would be worse */
        }
    }
}

/* ---- timers ---------------------------------------------------------------------------------- */

static void timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void timer_fired(uv_timer_t *handle)
{
    rlm_timer *t = handle->data;
    t->fire(t->arg);
}

rlm_timer *rlm_timer_new(rlm_loop *loop, rlm_callback fire, void *arg)
{
    rlm_timer *t = NULL;
    if (!RLM_NEW(t)) {
        return NULL;
    }
    uv_timer_init(&loop->uv, &t->uv);
    t->uv.data = t;
    t->fire = fire;
    t->arg = arg;
    return t;
}

void rlm_timer_set(rlm_timer *t, uint64_t after_ms)
{
    /* libuv counts from the start of its turn, which may be long ago. Moving its clock here would let
     * timers that set themselves again keep the loop from its descriptors, and so would a timer that
     * is due at once; hence the lag is added, and the sum is never 0. */
    uint64_t now_ms = rlm_now_ms();
    uint64_t turn_ms = uv_now(t->uv.loop);
    uint64_t lag_ms = now_ms > turn_ms ? now_ms - turn_ms : 0;
    uint64_t due_ms = after_ms > UINT64_MAX - lag_ms ? UINT64_MAX : after_ms + lag_ms;
    uv_timer_start(&t->uv, timer_fired, due_ms ? due_ms : 1, 0);
}

void rlm_timer_stop(rlm_timer *t)
{
    uv_timer_stop(&t->uv);
}

bool rlm_timer_is_set(const rlm_timer *t)
{
    return uv_is_active((const uv_handle_t *)&t->uv) != 0;
}

void rlm_timer_free(rlm_timer *t)
{
    if (t) {
        uv_close((uv_handle_t *)&t->uv, timer_closed);
    }
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static int uv_events_of(int events)
{
    return (events & RLM_READABLE ? UV_READABLE : 0) | (events & RLM_WRITABLE ? UV_WRITABLE : 0);
}

static bool is_watch_forked(const rlm_watch *w)
{
    return is_forked(w->uv.loop->data);
}

static void watch_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void watch_ready(uv_poll_t *handle, int status, int uv_events)
{
    rlm_watch *w = handle->data;
    int events = 0;
    if (status < 0) {
        /* An error on the descriptor, at which libuv stops. The owner's read or write finds out what
         * it is; until it does, it is told again, as for any other level. */
        events = w->events;
        uv_poll_start(&w->uv, uv_events_of(events), watch_ready);
    } else {
        events |= uv_events & UV_READABLE ? RLM_READABLE : 0;
        events |= uv_events & UV_WRITABLE ? RLM_WRITABLE : 0;
        events &= w->events;
    }
    if (events) {
        w->ready(w->arg, events);
    }
}

rlm_watch *rlm_watch_new(rlm_loop *loop, int fd, rlm_watch_callback ready, void *arg)
{
    rlm_watch *w = NULL;
    if (!RLM_NEW(w)) {
        return NULL;
    }
    if (uv_poll_init(&loop->uv, &w->uv, fd) < 0) {
        free(w);
        return NULL;
    }
    w->uv.data = w;
    w->ready = ready;
    w->arg = arg;
    return w;
}

int rlm_watch_set(rlm_watch *w, int events)
{
    if (events == w->events || is_watch_forked(w)) {
        return 0;
    }
    int status =
        events ? uv_poll_start(&w->uv, uv_events_of(events), watch_ready) : uv_poll_stop(&w->uv);
    if (status < 0) {
        return status == UV_ENOMEM ? RLM_E_NOMEM : RLM_E_IO;
    }
    w->events = events;
    return 0;
}

void rlm_watch_free(rlm_watch *w)
{
    if (w && !is_watch_forked(w)) {
        uv_close((uv_handle_t *)&w->uv, watch_closed);
    }
}

/* ---- deferred calls -------------------------------------------------------------------------- */

static void unlink_defer(rlm_defer *d)
{
    rlm_loop *loop = d->loop;
    *(d->previous ? &d->previous->next : &loop->first) = d->next;
    *(d->next ? &d->next->previous : &loop->last) = d->previous;
    d->next = d->previous = NULL;
    d->scheduled = false;
    if (!loop->first) {
        uv_idle_stop(&loop->deferring);
    }
}

static void run_deferred(uv_idle_t *handle)
{
    rlm_loop *loop = handle->data;
    /* What is scheduled from here on has this number and waits for the next turn. */
    uint64_t turn = ++loop->turn;
    while (loop->first && loop->first->turn != turn) {
        rlm_defer *d = loop->first;
        unlink_defer(d);
        d->run(d->arg);
    }
}

rlm_defer *rlm_defer_new(rlm_loop *loop, rlm_callback run, void *arg)
{
    rlm_defer *d = NULL;
    if (!RLM_NEW(d)) {
        return NULL;
    }
    d->loop = loop;
    d->run = run;
    d->arg = arg;
    return d;
}

void rlm_defer_schedule(rlm_defer *d)
{
    rlm_loop *loop = d->loop;
    if (d->scheduled) {
        return;
    }
    d->scheduled = true;
    d->turn = loop->turn;
    d->previous = loop->last;
    *(loop->last ? &loop->last->next : &loop->first) = d;
    loop->last = d;
    uv_idle_start(&loop->deferring, run_deferred);
}

void rlm_defer_cancel(rlm_defer *d)
{
    if (d->scheduled) {
        unlink_defer(d);
    }
}

void rlm_defer_free(rlm_defer *d)
{
    if (d) {
        rlm_defer_cancel(d);
        free(d);
    }
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void work_run(uv_work_t *request)
{
    struct work *w = request->data;
    w->work(w->arg);
}

static void work_done(uv_work_t *request, int status)
{
    struct work *w = request->data;
    rlm_callback done = w->done;
    void *arg = w->arg;
    (void)status; /* it says only whether the work was cancelled, which nobody does */
    rlm_loop_release(w->loop);
    free(w);
    done(arg);
}

int rlm_work_start(rlm_loop *loop, rlm_callback work, rlm_callback done, void *arg, rlm_error **err)
{
    if (is_forked(loop)) {
        return rlm_error_set(
            err, RLM_E_UNSUPPORTED,
            "the event loop belongs to the process that made it, not to one forked "
            "from it; make a new one after fork");
    }
    struct work *w = NULL;
    if (!RLM_NEW(w)) {
        return rlm_error_nomem(err);
    }
    *w = (struct work){.loop = loop, .work = work, .done = done, .arg = arg};
    w->uv.data = w;
    int status = uv_queue_work(&loop->uv, &w->uv, work_run, work_done);
    if (status < 0) {
        free(w);
        return fail_uv(err, status, "starting work on the pool");
    }
    rlm_loop_hold(loop);
    return 0;
}
