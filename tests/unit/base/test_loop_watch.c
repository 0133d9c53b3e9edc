#include "loop_trace.h"

#include <sys/socket.h>

TEST(watch_is_level_triggered_until_it_is_stopped)
{
    struct pipe_test p;
    open_pipe(&p, stop_at_third, 0);
    CHECK_INT(write(p.fds[1], "x", 1), 1);
    CHECK_INT(rlm_watch_set(p.watch, RLM_READABLE), 0);
    rlm_loop_run(p.loop);
    CHECK_INT(p.calls, 3);
    CHECK_INT(p.events, RLM_READABLE);
    CHECK_INT(rlm_watch_set(p.watch, RLM_READABLE), 0);
    CHECK(rlm_loop_dispatch(p.loop));
    CHECK_INT(p.calls, 4);
    close_pipe(&p);
}

TEST(watch_tells_a_hang_up_as_readable)
{
    struct pipe_test p;
    open_pipe(&p, stop_at_third, 0);
    close(p.fds[1]);
    CHECK_INT(rlm_watch_set(p.watch, RLM_READABLE), 0);
    rlm_loop_run(p.loop);
    CHECK_INT(p.events, RLM_READABLE);
    p.fds[1] = -1;
    close_pipe(&p);
}

TEST(watch_tells_an_error_as_writable_and_again)
{
    struct pipe_test p;
    open_pipe(&p, stop_at_third, 1);
    close(p.fds[0]);
    CHECK_INT(rlm_watch_set(p.watch, RLM_WRITABLE), 0);
    rlm_loop_run(p.loop);
    CHECK_INT(p.calls, 3);
    CHECK_INT(p.events, RLM_WRITABLE);
    p.fds[0] = -1;
    close_pipe(&p);
}

TEST(watch_refuses_what_cannot_be_watched)
{
    rlm_loop *loop = make_loop();
    char path[128];
    snprintf(path, sizeof path, "%s/file", harness_directory());
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    CHECK(rlm_watch_new(loop, fd, unexpected_events, NULL) == NULL);
    CHECK(rlm_watch_new(loop, 999, unexpected_events, NULL) == NULL);
    close(fd);
    rlm_watch_free(NULL);
    rlm_loop_free(loop);
}

static struct {
    rlm_loop *loop;
    rlm_watch *watches[2];
    int fds[2][2];
    rlm_watch *again;
    int calls;
} two;

static void quit(void *arg, int events)
{
    (void)events;
    note(arg);
    rlm_watch_free(two.again);
}

/* Frees both watches that are ready in this turn, and puts another descriptor of the same number in
 * the place of one. */
static void free_all(void *arg, int events)
{
    (void)arg, (void)events;
    two.calls++;
    for (int i = 0; i < 2; i++) {
        rlm_watch_free(two.watches[i]);
    }
    int number = two.fds[1][0];
    close(two.fds[1][0]);
    CHECK_INT(dup2(two.fds[0][0], number), number);
    two.again = rlm_watch_new(two.loop, number, quit, (void *)(uintptr_t) "q");
    CHECK(two.again);
    CHECK_INT(rlm_watch_set(two.again, RLM_READABLE), 0);
}

TEST(watch_freed_in_a_callback_with_another_that_is_ready)
{
    two.loop = make_loop();
    for (int i = 0; i < 2; i++) {
        CHECK_INT(pipe(two.fds[i]), 0);
        CHECK_INT(write(two.fds[i][1], "x", 1), 1);
        two.watches[i] = rlm_watch_new(two.loop, two.fds[i][0], free_all, NULL);
        CHECK_INT(rlm_watch_set(two.watches[i], RLM_READABLE), 0);
    }
    rlm_loop_run(two.loop);
    CHECK_INT(two.calls, 1);
    CHECK_TEXT(trace, "q");
    rlm_loop_free(two.loop);
}

TEST(watch_changes_between_reading_and_writing)
{
    rlm_loop *loop = make_loop();
    int fds[2];
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    struct pipe_test p = {.loop = loop, .fds = {fds[0], fds[1]}};
    p.watch = rlm_watch_new(loop, fds[0], stop_at_third, &p);
    CHECK_INT(rlm_watch_set(p.watch, RLM_READABLE), 0);
    CHECK(rlm_loop_dispatch(loop));
    CHECK_INT(p.calls, 0);
    CHECK_INT(rlm_watch_set(p.watch, RLM_READABLE | RLM_WRITABLE), 0);
    CHECK(rlm_loop_dispatch(loop));
    CHECK_INT(p.events, RLM_WRITABLE);
    CHECK_INT(write(fds[1], "x", 1), 1);
    CHECK(rlm_loop_dispatch(loop));
    CHECK_INT(p.events, RLM_READABLE | RLM_WRITABLE);
    close_pipe(&p);
}
