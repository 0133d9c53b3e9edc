#include "base/error.h"
#include "loop_trace.h"

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>

/* ---- running --------------------------------------------------------------------------------- */

TEST(loop_run_ends_when_nothing_is_left)
{
    rlm_loop *loop = make_loop();
    rlm_loop_run(loop);
    rlm_timer *unset = rlm_timer_new(loop, unexpected, NULL);
    rlm_defer *unscheduled = rlm_defer_new(loop, unexpected, NULL);
    int fds[2];
    CHECK_INT(pipe(fds), 0);
    rlm_watch *idle = rlm_watch_new(loop, fds[0], unexpected_events, NULL);
    rlm_loop_run(loop);
    rlm_timer_free(unset);
    rlm_defer_free(unscheduled);
    rlm_watch_free(idle);
    rlm_loop_free(loop);
    rlm_loop_free(NULL);
    close(fds[0]);
    close(fds[1]);
}

static void stop(void *arg)
{
    rlm_loop_stop(arg);
}

TEST(loop_stop_ends_the_run_and_it_can_go_on)
{
    rlm_loop *loop = make_loop();
    rlm_defer *d = rlm_defer_new(loop, stop, loop);
    rlm_timer *far = rlm_timer_new(loop, unexpected, NULL);
    rlm_timer_set(far, 3600 * 1000);
    rlm_defer_schedule(d);
    rlm_loop_run(loop);
    CHECK(rlm_timer_is_set(far));
    rlm_defer_schedule(d);
    rlm_loop_run(loop);
    rlm_timer_free(far);
    rlm_defer_free(d);
    rlm_loop_free(loop);
}

TEST(loop_embedded_waits_and_dispatches)
{
    rlm_loop *loop = make_loop();
    CHECK_INT(rlm_loop_timeout(loop), -1);
    CHECK(!rlm_loop_dispatch(loop));
    rlm_timer *t = rlm_timer_new(loop, note, (void *)(uintptr_t) "t");
    rlm_timer_set(t, 100 * 1000);
    CHECK(rlm_loop_dispatch(loop)); /* until the first one the timeout may be 0 */
    int timeout = rlm_loop_timeout(loop);
    CHECK(timeout > 0 && timeout <= 100 * 1000);
    usleep(20 * 1000);
    CHECK(rlm_loop_timeout(loop) <= timeout - 15); /* counts from now, not from the last turn */
    rlm_timer_set(t, 5);
    while (rlm_loop_dispatch(loop)) {
        struct pollfd p = {.fd = rlm_loop_fd(loop), .events = POLLIN};
        poll(&p, 1, rlm_loop_timeout(loop));
    }
    CHECK_TEXT(trace, "t");
    rlm_defer *d = rlm_defer_new(loop, note, (void *)(uintptr_t) "d");
    rlm_defer_schedule(d);
    CHECK_INT(rlm_loop_timeout(loop), 0);
    CHECK(!rlm_loop_dispatch(loop));
    CHECK_TEXT(trace, "td");
    rlm_timer_free(t);
    rlm_defer_free(d);
    rlm_loop_free(loop);
}

static void nothing(void *arg)
{
}

TEST(loop_embedded_sees_work_that_was_started_before_the_first_dispatch)
{
    rlm_loop *loop = make_loop();
    CHECK_INT(rlm_work_start(loop, nothing, note, (void *)(uintptr_t) "w", NULL), 0);
    do {
        struct pollfd p = {.fd = rlm_loop_fd(loop), .events = POLLIN};
        poll(&p, 1, rlm_loop_timeout(loop));
    } while (rlm_loop_dispatch(loop));
    CHECK_TEXT(trace, "w");
    rlm_loop_free(loop);
}

/* ---- timers ---------------------------------------------------------------------------------- */

TEST(timer_order_reset_and_stop)
{
    rlm_loop *loop = make_loop();
    rlm_timer *a = rlm_timer_new(loop, note, (void *)(uintptr_t) "a");
    rlm_timer *b = rlm_timer_new(loop, note, (void *)(uintptr_t) "b");
    rlm_timer *c = rlm_timer_new(loop, unexpected, NULL);
    rlm_timer_set(a, 5);
    rlm_timer_set(b, 10);
    rlm_timer_set(c, 7);
    rlm_timer_set(a, 30);
    rlm_timer_stop(c);
    CHECK(rlm_timer_is_set(a) && rlm_timer_is_set(b) && !rlm_timer_is_set(c));
    CHECK_TEXT(trace, "");
    rlm_loop_run(loop);
    CHECK_TEXT(trace, "ba");
    CHECK(!rlm_timer_is_set(a));
    rlm_timer_set(a, 0);
    CHECK_TEXT(trace, "ba");
    rlm_loop_run(loop);
    CHECK_TEXT(trace, "baa");
    rlm_timer_free(a);
    rlm_timer_free(b);
    rlm_timer_free(c);
    rlm_timer_free(NULL);
    rlm_loop_free(loop);
}

TEST(timer_counts_from_its_setting_not_from_the_last_turn)
{
    rlm_loop *loop = make_loop();
    usleep(60 * 1000);
    rlm_timer *t = rlm_timer_new(loop, note, (void *)(uintptr_t) "t");
    uint64_t set_at_ms = rlm_now_ms();
    rlm_timer_set(t, 50);
    rlm_loop_run(loop);
    CHECK(rlm_now_ms() - set_at_ms >= 50);
    rlm_timer_set(t, UINT64_MAX);
    CHECK(rlm_timer_is_set(t));
    CHECK(rlm_loop_dispatch(loop));
    CHECK_TEXT(trace, "t");
    rlm_timer_free(t);
    rlm_loop_free(loop);
}

struct busy {
    rlm_timer *timer;
    int fired;
};

static void fire_again(void *arg)
{
    struct busy *b = arg;
    uint64_t until_us = rlm_now_us() + 1500;
    while (rlm_now_us() < until_us) {
    }
    b->fired++;
    rlm_timer_set(b->timer, 0);
}

static void stop_on_event(void *arg, int events)
{
    (void)events;
    rlm_loop_stop(arg);
}

TEST(timer_that_sets_itself_again_does_not_starve_descriptors)
{
    rlm_loop *loop = make_loop();
    int fds[2];
    CHECK_INT(pipe(fds), 0);
    CHECK_INT(write(fds[1], "x", 1), 1);
    rlm_watch *w = rlm_watch_new(loop, fds[0], stop_on_event, loop);
    CHECK_INT(rlm_watch_set(w, RLM_READABLE), 0);
    struct busy busy[3] = {0};
    for (int i = 0; i < 3; i++) {
        busy[i].timer = rlm_timer_new(loop, fire_again, &busy[i]);
        rlm_timer_set(busy[i].timer, 0);
    }
    usleep(3000);
    rlm_loop_run(loop);
    for (int i = 0; i < 3; i++) {
        CHECK(busy[i].fired < 10);
        rlm_timer_free(busy[i].timer);
    }
    rlm_watch_free(w);
    rlm_loop_free(loop);
    close(fds[0]);
    close(fds[1]);
}

static void fire_at_once_again(void *arg)
{
    struct busy *b = arg;
    b->fired++;
    rlm_timer_set(b->timer, 0);
}

TEST(timer_fires_once_a_turn)
{
    rlm_loop *loop = make_loop();
    struct busy b = {0};
    b.timer = rlm_timer_new(loop, fire_at_once_again, &b);
    rlm_timer_set(b.timer, 0);
    usleep(3000);
    CHECK(rlm_loop_dispatch(loop));
    CHECK_INT(b.fired, 1);
    rlm_timer_free(b.timer);
    rlm_loop_free(loop);
}

static rlm_timer *pair[2];

static void free_both(void *arg)
{
    note(arg);
    rlm_timer_free(pair[0]);
    rlm_timer_free(pair[1]);
}

TEST(timer_freed_in_its_callback_with_another_that_is_due)
{
    rlm_loop *loop = make_loop();
    pair[0] = rlm_timer_new(loop, free_both, (void *)(uintptr_t) "f");
    pair[1] = rlm_timer_new(loop, free_both, (void *)(uintptr_t) "f");
    rlm_timer_set(pair[0], 1);
    rlm_timer_set(pair[1], 1);
    usleep(5000);
    rlm_loop_run(loop);
    CHECK_TEXT(trace, "f");
    rlm_loop_free(loop);
}

static int fired_count;

static void count(void *arg)
{
    (void)arg;
    fired_count++;
}

TEST(timer_and_defer_by_the_thousands)
{
    enum { COUNT = 20000 };
    rlm_loop *loop = make_loop();
    rlm_timer **timers = calloc(COUNT, sizeof(rlm_timer *));
    rlm_defer **defers = calloc(COUNT, sizeof(rlm_defer *));
    CHECK(timers && defers);
    for (int i = 0; i < COUNT; i++) {
        timers[i] = rlm_timer_new(loop, count, NULL);
        defers[i] = rlm_defer_new(loop, count, NULL);
        CHECK(timers[i] && defers[i]);
        rlm_timer_set(timers[i], (uint64_t)(i % 7));
        rlm_defer_schedule(defers[i]);
    }
    rlm_loop_run(loop);
    CHECK_INT(fired_count, 2 * COUNT);
    for (int i = 0; i < COUNT; i++) {
        rlm_timer_free(timers[i]);
        rlm_defer_free(defers[i]);
    }
    free(timers);
    free(defers);
    rlm_loop_free(loop);
}

/* ---- deferred calls -------------------------------------------------------------------------- */

static rlm_defer *again;

static void schedule_again(void *arg)
{
    note(arg);
    if (strlen(trace) < 4) {
        rlm_defer_schedule(again);
    }
}

TEST(defer_runs_in_order_once_and_later)
{
    rlm_loop *loop = make_loop();
    rlm_defer *a = rlm_defer_new(loop, note, (void *)(uintptr_t) "a");
    rlm_defer *b = rlm_defer_new(loop, note, (void *)(uintptr_t) "b");
    rlm_defer *c = rlm_defer_new(loop, unexpected, NULL);
    rlm_defer_schedule(b);
    rlm_defer_schedule(c);
    rlm_defer_schedule(a);
    rlm_defer_schedule(b);
    rlm_defer_cancel(c);
    CHECK_TEXT(trace, "");
    rlm_loop_run(loop);
    CHECK_TEXT(trace, "ba");
    rlm_defer_schedule(a);
    rlm_defer_cancel(a);
    rlm_defer_cancel(a);
    rlm_defer_schedule(b);
    rlm_loop_run(loop);
    CHECK_TEXT(trace, "bab");
    rlm_defer_schedule(b);
    rlm_defer_free(a);
    rlm_defer_free(b);
    rlm_defer_free(c);
    rlm_defer_free(NULL);
    rlm_loop_run(loop);
    CHECK_TEXT(trace, "bab");
    rlm_loop_free(loop);
}

TEST(defer_scheduled_in_its_callback_waits_for_the_next_turn)
{
    rlm_loop *loop = make_loop();
    again = rlm_defer_new(loop, schedule_again, (void *)(uintptr_t) "x");
    rlm_defer_schedule(again);
    CHECK(rlm_loop_dispatch(loop));
    CHECK_TEXT(trace, "x");
    CHECK(rlm_loop_dispatch(loop));
    CHECK_TEXT(trace, "xx");
    rlm_loop_run(loop);
    CHECK_TEXT(trace, "xxxx");
    rlm_defer_free(again);
    rlm_loop_free(loop);
}

static rlm_defer *doomed[3];

static void free_doomed(void *arg)
{
    note(arg);
    for (int i = 0; i < 3; i++) {
        rlm_defer_free(doomed[i]);
    }
}

TEST(defer_freed_in_a_callback_with_others_that_are_next)
{
    rlm_loop *loop = make_loop();
    doomed[0] = rlm_defer_new(loop, free_doomed, (void *)(uintptr_t) "f");
    doomed[1] = rlm_defer_new(loop, unexpected, NULL);
    doomed[2] = rlm_defer_new(loop, unexpected, NULL);
    rlm_defer *last = rlm_defer_new(loop, note, (void *)(uintptr_t) "l");
    for (int i = 0; i < 3; i++) {
        rlm_defer_schedule(doomed[i]);
    }
    rlm_defer_schedule(last);
    rlm_loop_run(loop);
    CHECK_TEXT(trace, "fl");
    rlm_defer_free(last);
    rlm_loop_free(loop);
}

/* ---- the pool -------------------------------------------------------------------------------- */

struct job {
    pthread_t ran_on;
    bool worked;
    bool done;
};

static void job_work(void *arg)
{
    struct job *j = arg;
    j->ran_on = pthread_self();
    usleep(2000);
    j->worked = true;
}

static void job_done(void *arg)
{
    struct job *j = arg;
    CHECK(j->worked && !j->done);
    CHECK(!pthread_equal(j->ran_on, pthread_self()));
    j->done = true;
}

TEST(work_runs_elsewhere_and_is_done_here)
{
    rlm_loop *loop = make_loop();
    struct job jobs[20] = {0};
    for (int i = 0; i < 20; i++) {
        CHECK_INT(rlm_work_start(loop, job_work, job_done, &jobs[i], NULL), 0);
    }
    CHECK(!jobs[0].done);
    rlm_loop_run(loop);
    for (int i = 0; i < 20; i++) {
        CHECK(jobs[i].done);
    }
    rlm_loop_free(loop);
}

TEST(work_under_way_is_finished_by_the_free_of_the_loop)
{
    rlm_loop *loop = make_loop();
    struct job j = {0};
    CHECK_INT(rlm_work_start(loop, job_work, job_done, &j, NULL), 0);
    rlm_loop_free(loop);
    CHECK(j.done);
}

/* ---- fork ------------------------------------------------------------------------------------ */

TEST(fork_leaves_the_parents_loop_alone)
{
    struct pipe_test p;
    open_pipe(&p, stop_at_third, 0);
    CHECK_INT(write(p.fds[1], "x", 1), 1);
    CHECK_INT(rlm_watch_set(p.watch, RLM_READABLE), 0);
    CHECK(rlm_loop_dispatch(p.loop)); /* now the kernel knows the descriptor */
    CHECK_INT(p.calls, 1);
    pid_t pid = fork();
    if (pid == 0) {
        struct job j = {0};
        rlm_autoerr rlm_error *err = NULL;
        rlm_loop_run(p.loop);
        CHECK(!rlm_loop_dispatch(p.loop));
        CHECK_INT(rlm_work_start(p.loop, job_work, job_done, &j, &err), RLM_E_UNSUPPORTED);
        CHECK_CONTAINS(rlm_error_message(err), "fork");
        rlm_watch_set(p.watch, 0);
        rlm_watch_free(p.watch);
        rlm_loop_free(p.loop);
        _exit(p.calls == 1 ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
    rlm_loop_run(p.loop);
    CHECK_INT(p.calls, 3);
    close_pipe(&p);
}

/* ---- the rest -------------------------------------------------------------------------------- */

TEST(clocks_go_forward_and_chance_differs)
{
    uint64_t before_us = rlm_now_us(), before_ms = rlm_now_ms();
    CHECK(rlm_now_us() >= before_us && rlm_now_ms() >= before_ms);
    CHECK(before_us / 1000 <= rlm_now_ms());
    CHECK(rlm_wall_us() > INT64_C(1700000000) * 1000000);
    unsigned char a[300] = {0}, b[300] = {0};
    rlm_random(a, sizeof a);
    rlm_random(b, sizeof b);
    CHECK(memcmp(a, b, sizeof a) != 0);
    CHECK(memcmp(a + 284, b + 284, 16) != 0);
}

TEST(version_is_that_of_the_header)
{
    CHECK_TEXT(rlm_version(), RLM_VERSION);
}
