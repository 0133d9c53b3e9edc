#include "child_process.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

/* ---- endings --------------------------------------------------------------------------------- */

TEST(process_exit_status_and_output)
{
    struct rlm_process_exit how;
    CHECK_TEXT(output_of("echo hello; exit 7", &how), "hello\n");
    CHECK_INT(how.status, 7);
    CHECK_INT(how.signal, 0);
    CHECK(how.usage.ru_maxrss > 0);
}

TEST(process_ended_by_a_signal)
{
    struct rlm_process_exit how;
    output_of("kill -TERM $$", &how);
    CHECK_INT(how.status, -1);
    CHECK_INT(how.signal, SIGTERM);
}

TEST(process_keeps_the_run_going_and_is_signalled)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    const char *const argv[] = {"sleep", "1000", NULL};
    rlm_process *p = start(loop, &(struct rlm_process_options){.argv = argv, .env = plain_env}, &e);
    CHECK(rlm_loop_dispatch(loop));
    CHECK(rlm_process_alive(p));
    CHECK_INT(e.calls, 0);
    rlm_process_signal_group(p, SIGINT);
    rlm_loop_run(loop);
    CHECK_INT(e.calls, 1);
    CHECK_INT(e.how.signal, SIGINT);
    rlm_process_signal_group(p, SIGKILL);
    rlm_process_free(p);
    rlm_process_free(NULL);
    rlm_loop_free(loop);
}

TEST(process_freed_in_its_callback)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    const char *const argv[] = {"true", NULL};
    rlm_process *p = start(loop, &(struct rlm_process_options){.argv = argv, .env = plain_env}, &e);
    e.to_free = p;
    rlm_loop_run(loop);
    CHECK_INT(e.calls, 1);
    CHECK_INT(e.how.status, 0);
    rlm_loop_free(loop);
}

TEST(process_free_kills_the_group_and_leaves_no_zombie)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    int out;
    rlm_process *p =
        start_script(loop, "echo $$; sleep 1000 & echo $!; trap '' TERM; wait", &e, &out);
    pid_t child = read_pid(out), grandchild = read_pid(out);
    CHECK(grandchild > 1 && kill(grandchild, 0) == 0);
    rlm_process_free(p);
    rlm_loop_free(loop);
    CHECK_INT(e.calls, 0);
    CHECK(kill(child, 0) < 0 && errno == ESRCH);
    wait_until_gone(grandchild);
    close(out);
}

TEST(process_free_after_an_unseen_end_ends_what_is_left_of_its_group)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    int out;
    rlm_process *p = start_script(loop, "echo $$; sleep 1000 & echo $!", &e, &out);
    wait_until_gone(read_pid(out));
    rlm_process_free(p);
    pid_t grandchild = atoi(read_all(out));
    wait_until_gone(grandchild);
    CHECK_INT(e.calls, 0);
    rlm_loop_free(loop);
}

TEST(process_end_ends_what_is_left_of_its_group)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    int out;
    rlm_process *p = start_script(loop, "sleep 1000 & echo $!", &e, &out);
    rlm_loop_run(loop);
    CHECK_INT(e.how.status, 0);
    pid_t grandchild = atoi(read_all(out)); /* the end comes when the sleeper is gone */
    wait_until_gone(grandchild);
    rlm_process_free(p);
    rlm_loop_free(loop);
}

TEST(process_group_is_signalled)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    int out;
    rlm_process *p =
        start_script(loop,
                     "exec 2>/dev/null; trap : USR1; (trap 'echo got; exit' USR1; echo on; "
                     "while :; do sleep 0.01; done) & wait; wait; exit 3",
                     &e, &out);
    char text[8] = "";
    CHECK_INT(read(out, text, 3), 3);
    rlm_process_signal_group(p, SIGUSR1);
    rlm_loop_run(loop);
    CHECK_INT(e.how.status, 3);
    CHECK_TEXT(read_all(out), "got\n");
    rlm_process_free(p);
    rlm_loop_free(loop);
}

TEST(process_does_without_sigchld)
{
    /* A host that ignores it lets the kernel reap: how it ended is lost, that it ended is not. */
    signal(SIGCHLD, SIG_IGN);
    struct rlm_process_exit how;
    CHECK_TEXT(output_of("echo x; exit 7", &how), "x\n");
    CHECK_INT(how.signal, 0);
    CHECK(how.status == -1 || how.status == 7);
}

/* ---- CPU time, death of the parent, fork ----------------------------------------------------- */

TEST(process_cpu_time_grows_and_counts_children)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    int out;
    /* The name of a process may hold what separates the fields. */
    char path[128], script[512];
    snprintf(path, sizeof path, "%s/a) R 1 (b", harness_directory());
    CHECK_INT(symlink("/bin/sh", path), 0);
    snprintf(script, sizeof script,
             "exec '%s' -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); "
             "done; echo done; sleep 1000; :'",
             path);
    rlm_process *p = start_script(loop, script, &e, &out);
    char text[8];
    CHECK_INT(read(out, text, 5), 5);
    int64_t cpu_ms = rlm_process_cpu_ms(p);
    CHECK(cpu_ms >= 10 && cpu_ms < 30000);
    rlm_process_signal_group(p, SIGKILL);
    rlm_loop_run(loop);
    CHECK(rlm_process_cpu_ms(p) >= 10);
    rlm_process_free(p);
    close(out);
    p = start_script(loop,
                     "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); echo done; "
                     "sleep 1000",
                     &e, &out);
    CHECK_INT(read(out, text, 5), 5);
    CHECK(rlm_process_cpu_ms(p) >= 10);
    rlm_process_free(p);
    close(out);
    rlm_loop_free(loop);
}

TEST(process_dies_with_its_parent)
{
    int out[2];
    CHECK_INT(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        rlm_loop *loop = make_loop();
        struct ending e;
        int child_out;
        start_script(loop, "echo $$; exec sleep 1000", &e, &child_out);
        pid_t child = read_pid(child_out);
        CHECK(write(out[1], &child, sizeof child) == sizeof child);
        raise(SIGKILL);
    }
    pid_t child = 0;
    CHECK(read(out[0], &child, sizeof child) == sizeof child);
    waitpid(pid, NULL, 0);
    wait_until_gone(child);
}

TEST(process_is_left_alone_by_a_fork_of_the_host)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    const char *const argv[] = {"sleep", "1000", NULL};
    rlm_process *p = start(loop, &(struct rlm_process_options){.argv = argv, .env = plain_env}, &e);
    pid_t pid = fork();
    if (pid == 0) {
        rlm_process_signal_group(p, SIGKILL);
        rlm_process_free(p);
        rlm_loop_free(loop);
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
    rlm_process_signal_group(p, SIGTERM);
    rlm_loop_run(loop);
    CHECK_INT(e.how.signal, SIGTERM);
    rlm_process_free(p);
    rlm_loop_free(loop);
}

static void *wait_for_any_child(void *arg)
{
    (void)arg;
    while (waitpid(-1, NULL, 0) < 0 && errno != ECHILD) {
    }
    return NULL;
}

TEST(process_whose_end_somebody_else_took_still_ends)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    const char *const argv[] = {"true", NULL};
    rlm_process *p = start(loop, &(struct rlm_process_options){.argv = argv, .env = plain_env}, &e);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, wait_for_any_child, NULL), 0);
    pthread_join(thread, NULL);
    rlm_loop_run(loop);
    CHECK_INT(e.calls, 1);
    CHECK_INT(e.how.status, -1);
    CHECK_INT(e.how.signal, 0);
    rlm_process_free(p);
    rlm_loop_free(loop);
}
