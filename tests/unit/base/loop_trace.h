/* What the callbacks of a test of the loop did, and a descriptor that it watches. */
#pragma once

#include "base/alloc.h"
#include "base/loop.h"
#include "harness.h"

#include <fcntl.h>
#include <unistd.h>

static inline rlm_loop *make_loop(void)
{
    rlm_loop *loop = NULL;
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    return loop;
}

/* What the callbacks of a test did. */
static char trace[256];

static inline void note(void *arg)
{
    strncat(trace, arg, sizeof trace - strlen(trace) - 1);
}

static inline void unexpected(void *arg)
{
    harness_fail(__FILE__, __LINE__, "called back after its free, stop or cancel: %s",
                 arg ? (const char *)arg : "");
}

static inline void unexpected_events(void *arg, int events)
{
    (void)events;
    unexpected(arg);
}

struct pipe_test {
    rlm_loop *loop;
    rlm_watch *watch;
    int fds[2];
    int calls;
    int events;
};

static inline void open_pipe(struct pipe_test *p, rlm_watch_callback ready, int end)
{
    *p = (struct pipe_test){.loop = make_loop()};
    CHECK_INT(pipe(p->fds), 0);
    p->watch = rlm_watch_new(p->loop, p->fds[end], ready, p);
    CHECK(p->watch);
}

static inline void close_pipe(struct pipe_test *p)
{
    rlm_watch_free(p->watch);
    close(p->fds[0]);
    close(p->fds[1]);
    rlm_loop_free(p->loop);
}

static inline void stop_at_third(void *arg, int events)
{
    struct pipe_test *p = arg;
    p->events |= events;
    if (++p->calls == 3) {
        CHECK_INT(rlm_watch_set(p->watch, 0), 0);
    }
}
