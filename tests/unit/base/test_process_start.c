/* What a child is started with, and what cannot be started. */
#include "child_process.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>

/* ---- what the child gets --------------------------------------------------------------------- */

TEST(process_environment_is_exact)
{
    setenv("LEAKED", "yes", 1);
    rlm_loop *loop = make_loop();
    struct ending e;
    int out[2];
    CHECK_INT(pipe2(out, O_CLOEXEC), 0);
    const char *const argv[] = {"/usr/bin/env", NULL};
    const char *const env[] = {"A=1", "B=x y", NULL};
    const int fds[] = {-1, out[1]};
    struct rlm_process_options options = {
        .argv = argv, .env = env, .child_fds = fds, .n_child_fds = 2};
    rlm_process *p = start(loop, &options, &e);
    close(out[1]);
    rlm_loop_run(loop);
    CHECK_TEXT(read_all(out[0]), "A=1\nB=x y\n");
    rlm_process_free(p);
    options.env = NULL;
    CHECK_INT(pipe2(out, O_CLOEXEC), 0);
    p = start(loop,
              &(struct rlm_process_options){
                  .argv = argv, .child_fds = (const int[]){-1, out[1]}, .n_child_fds = 2},
              &e);
    close(out[1]);
    rlm_loop_run(loop);
    CHECK_TEXT(read_all(out[0]), "");
    rlm_process_free(p);
    rlm_loop_free(loop);
}

TEST(process_has_only_the_descriptors_named)
{
    struct rlm_process_exit how;
    CHECK(dup2(1, 40) == 40 && dup2(1, 200) == 200); /* would be inherited */
    /* ls itself opens the directory as the lowest free one. */
    CHECK_TEXT(output_of("ls -x /proc/self/fd", &how), "0  1  2  3\n");
    CHECK_TEXT(output_of("readlink /proc/self/fd/0", &how), "/dev/null\n");
    CHECK_TEXT(output_of("cat; echo end", &how), "end\n");
}

TEST(process_starts_from_a_host_without_standard_input)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    int out[2];
    CHECK_INT(pipe2(out, O_CLOEXEC), 0);
    close(0); /* so that the lowest free descriptor is one of the targets */
    const char *const argv[] = {"sh", "-c", "echo hello; readlink /proc/self/fd/0", NULL};
    const int fds[] = {-1, out[1]};
    struct rlm_process_options options = {
        .argv = argv, .env = plain_env, .child_fds = fds, .n_child_fds = 2};
    rlm_process *p = start(loop, &options, &e);
    close(out[1]);
    rlm_loop_run(loop);
    CHECK_TEXT(read_all(out[0]), "hello\n/dev/null\n");
    rlm_process_free(p);
    rlm_loop_free(loop);
}

TEST(process_standard_descriptors_that_are_not_named_are_null)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    const char *const argv[] = {
        "sh", "-c", "for i in 0 1 2; do [ /proc/$$/fd/$i -ef /dev/null ] || exit 1$i; done", NULL};
    rlm_process *p = start(loop, &(struct rlm_process_options){.argv = argv, .env = plain_env}, &e);
    rlm_loop_run(loop);
    CHECK_INT(e.how.status, 0);
    rlm_process_free(p);
    rlm_loop_free(loop);
}

/* Opens a file that holds `text`, as descriptor `fd`, close-on-exec. */
static void open_at(int fd, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", harness_directory(), text);
    int made = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(made >= 0);
    CHECK(write(made, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK_INT(lseek(made, 0, SEEK_SET), 0);
    if (made != fd) {
        CHECK_INT(dup3(made, fd, O_CLOEXEC), fd);
        close(made);
    }
}

TEST(process_descriptors_that_overlap_their_targets)
{
    /* Every one is the target of another, 5 stays where it is, 4 goes to two places. */
    open_at(3, "three");
    open_at(4, "four");
    open_at(5, "five");
    open_at(6, "six");
    rlm_loop *loop = make_loop();
    struct ending e;
    int out[2];
    CHECK_INT(pipe2(out, O_CLOEXEC), 0);
    const char *const argv[] = {"sh", "-c", "for i in 3 4 5 6 7; do readlink /proc/$$/fd/$i; done",
                                NULL};
    const int fds[] = {-1, out[1], 2, 4, 3, 5, -1, 4};
    struct rlm_process_options options = {
        .argv = argv, .env = plain_env, .child_fds = fds, .n_child_fds = 8};
    rlm_process *p = start(loop, &options, &e);
    close(out[1]);
    rlm_loop_run(loop);
    char expected[1024];
    const char *d = harness_directory();
    snprintf(expected, sizeof expected, "%s/four\n%s/three\n%s/five\n/dev/null\n%s/four\n", d, d, d,
             d);
    CHECK_TEXT(read_all(out[0]), expected);
    rlm_process_free(p);
    rlm_loop_free(loop);
    CHECK(fcntl(3, F_GETFD) == FD_CLOEXEC && fcntl(4, F_GETFD) == FD_CLOEXEC);
}

static void handle(int signal)
{
    (void)signal;
}

TEST(process_starts_with_default_signals_and_no_mask)
{
    struct rlm_process_exit how;
    sigset_t blocked, now;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    const unsigned long ignore[8] = {(unsigned long)SIG_IGN};
    CHECK_INT(syscall(SYS_rt_sigaction, 32, ignore, NULL, 8), 0); /* one that signal() refuses */
    signal(SIGUSR1, handle);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    const char *text = output_of("exec sed -n '/^Sig[BIC]/p' /proc/self/status", &how);
    CHECK_TEXT(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
                     "SigCgt:\t0000000000000000\n");
    sigprocmask(SIG_BLOCK, NULL, &now);
    CHECK(sigismember(&now, SIGINT) && !sigismember(&now, SIGTERM));
}

TEST(process_has_a_group_of_its_own_in_the_same_session)
{
    struct rlm_process_exit how;
    /* /proc/PID/stat: pid (name) state parent group session */
    const char *text = output_of("exec cat /proc/self/stat", &how);
    int pid, parent, group, session;
    CHECK_INT(sscanf(text, "%d (cat) %*c %d %d %d", &pid, &parent, &group, &session), 4);
    CHECK_INT(group, pid);
    CHECK_INT(parent, getpid());
    CHECK_INT(session, getsid(0));
}

TEST(process_starts_in_the_working_directory)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    char path[128];
    snprintf(path, sizeof path, "%s/script", harness_directory());
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    CHECK(write(fd, "#!/bin/sh\npwd\n", 14) == 14);
    close(fd);
    int out[2];
    CHECK_INT(pipe2(out, O_CLOEXEC), 0);
    const char *const argv[] = {"./script", NULL};
    const int fds[] = {-1, out[1]};
    struct rlm_process_options options = {.argv = argv,
                                          .env = plain_env,
                                          .working_directory = harness_directory(),
                                          .child_fds = fds,
                                          .n_child_fds = 2};
    rlm_process *p = start(loop, &options, &e);
    close(out[1]);
    rlm_loop_run(loop);
    char expected[128];
    snprintf(expected, sizeof expected, "%s\n", harness_directory());
    CHECK_TEXT(read_all(out[0]), expected);
    rlm_process_free(p);
    rlm_loop_free(loop);
}

/* ---- failures -------------------------------------------------------------------------------- */

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count;
}

/* Starts what cannot be started, and checks that nothing of it is left. */
static void check_failure(const struct rlm_process_options *options,
                          int code,
                          const char *part,
                          const char *other_part)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_process *p = NULL;
    struct ending e = {0};
    rlm_loop *loop = make_loop();
    int fds_before = count_fds();
    CHECK_INT(rlm_process_start(loop, options, ended, &e, &p, &err), code);
    CHECK(p == NULL);
    CHECK_CONTAINS(rlm_error_message(err), part);
    CHECK_CONTAINS(rlm_error_message(err), other_part);
    CHECK_INT(count_fds(), fds_before);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    rlm_loop_run(loop);
    CHECK_INT(e.calls, 0);
    rlm_loop_free(loop);
}

TEST(process_that_is_not_there)
{
    const char *const in_path[] = {"no-such-program", NULL};
    const char *const by_path[] = {"/nowhere/no-such-program", NULL};
    const char *const nothing[] = {NULL};
    const char *const empty[] = {"", NULL};
    struct rlm_process_options options = {.argv = in_path, .env = plain_env};
    check_failure(&options, RLM_E_NOT_FOUND, "no-such-program", "/usr/bin:/bin");
    options.argv = by_path;
    check_failure(&options, RLM_E_NOT_FOUND, "/nowhere/no-such-program", "no program");
    options.argv = nothing;
    check_failure(&options, RLM_E_INVAL, "no program", "");
    options.argv = empty;
    check_failure(&options, RLM_E_INVAL, "no program", "");
}

TEST(process_whose_working_directory_is_not_there)
{
    const char *const argv[] = {"true", NULL};
    struct rlm_process_options options = {
        .argv = argv, .env = plain_env, .working_directory = "/nowhere/at/all"};
    check_failure(&options, RLM_E_NOT_FOUND, "/nowhere/at/all", "working directory");
}

TEST(process_that_cannot_be_executed)
{
    char path[128], search[256];
    snprintf(path, sizeof path, "%s/not-executable", harness_directory());
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const char *const argv[] = {path, NULL};
    struct rlm_process_options options = {.argv = argv, .env = plain_env};
    check_failure(&options, RLM_E_IO, "not-executable", strerror(EACCES));
    const char *const by_name[] = {"not-executable", NULL};
    snprintf(search, sizeof search, "PATH=%s:/usr/bin", harness_directory());
    const char *const env[] = {search, NULL};
    options = (struct rlm_process_options){.argv = by_name, .env = env};
    check_failure(&options, RLM_E_IO, "not-executable", strerror(EACCES));
}

TEST(process_with_a_closed_descriptor)
{
    const char *const argv[] = {"true", NULL};
    const int fds[] = {-1, 999};
    struct rlm_process_options options = {
        .argv = argv, .env = plain_env, .child_fds = fds, .n_child_fds = 2};
    check_failure(&options, RLM_E_IO, "descriptors", strerror(EBADF));
}

TEST(process_is_looked_up_in_the_path_of_its_environment)
{
    char directory[128], path[256], search[256];
    snprintf(directory, sizeof directory, "%s/bin", harness_directory());
    CHECK_INT(mkdir(directory, 0700), 0);
    snprintf(path, sizeof path, "%s/only-there", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    CHECK(write(fd, "#!/bin/sh\nexit 9\n", 17) == 17);
    close(fd);
    /* Of the entries before the right one, one is missing, one no directory, and one has a file of the
     * name that may not be executed. */
    snprintf(path, sizeof path, "%s/only-there", harness_directory());
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    snprintf(search, sizeof search, "PATH=/nowhere:/etc/passwd:%s:%s", harness_directory(),
             directory);
    const char *const argv[] = {"only-there", NULL};
    const char *const env[] = {search, NULL};
    const char *const no_path[] = {"A=1", NULL};
    rlm_loop *loop = make_loop();
    struct ending e;
    rlm_process *p = start(loop, &(struct rlm_process_options){.argv = argv, .env = env}, &e);
    rlm_loop_run(loop);
    CHECK_INT(e.how.status, 9);
    rlm_process_free(p);
    setenv("PATH", directory, 1);
    p = start(loop, &(struct rlm_process_options){.argv = argv, .env = no_path}, &e);
    rlm_loop_run(loop);
    CHECK_INT(e.how.status, 9);
    rlm_process_free(p);
    rlm_loop_free(loop);
}
