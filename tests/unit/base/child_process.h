/* Child processes of a test and how they ended. */
#pragma once

#include "base/alloc.h"
#include "base/error.h"
#include "base/process.h"
#include "harness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const plain_env[] = {"PATH=/usr/bin:/bin", NULL};

struct ending {
    struct rlm_process_exit how;
    int calls;
    rlm_process *to_free; /* in the callback */
};

static inline void ended(void *arg, const struct rlm_process_exit *how)
{
    struct ending *e = arg;
    rlm_process_free(e->to_free);
    e->how = *how;
    e->calls++;
}

static inline rlm_loop *make_loop(void)
{
    rlm_loop *loop = NULL;
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    return loop;
}

static inline rlm_process *
start(rlm_loop *loop, const struct rlm_process_options *options, struct ending *e)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_process *p = NULL;
    *e = (struct ending){0};
    if (rlm_process_start(loop, options, ended, e, &p, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
    return p;
}

/* Starts `sh -c SCRIPT` with its output in a pipe. */
static inline rlm_process *
start_script(rlm_loop *loop, const char *script, struct ending *e, int *ret_out)
{
    int out[2];
    CHECK_INT(pipe2(out, O_CLOEXEC), 0);
    const char *const argv[] = {"sh", "-c", script, NULL};
    const int fds[] = {-1, out[1], 2};
    struct rlm_process_options options = {
        .argv = argv, .env = plain_env, .child_fds = fds, .n_child_fds = 3};
    rlm_process *p = start(loop, &options, e);
    close(out[1]);
    *ret_out = out[0];
    return p;
}

/* Reads a line with a process id. */
static inline pid_t read_pid(int fd)
{
    char text[16] = "";
    for (size_t len = 0; len < sizeof text - 1 && read(fd, text + len, 1) == 1; len++) {
        if (text[len] == '\n') {
            break;
        }
    }
    return atoi(text);
}

/* Reads to the end; closes. */
static inline const char *read_all(int fd)
{
    static char text[8192];
    size_t len = 0;
    ssize_t got;
    while ((got = read(fd, text + len, sizeof text - 1 - len)) > 0) {
        len += (size_t)got;
    }
    text[len] = '\0';
    close(fd);
    return text;
}

/* Runs `sh -c SCRIPT` to its end and returns what it printed. */
static inline const char *output_of(const char *script, struct rlm_process_exit *ret_how)
{
    rlm_loop *loop = make_loop();
    struct ending e;
    int out;
    rlm_process *p = start_script(loop, script, &e, &out);
    rlm_loop_run(loop);
    CHECK_INT(e.calls, 1);
    CHECK(!rlm_process_alive(p));
    rlm_process_free(p);
    rlm_loop_free(loop);
    *ret_how = e.how;
    return read_all(out);
}

/* Waits until `pid` is no process any more, or a zombie (of a parent that does not reap). */
static inline void wait_until_gone(pid_t pid)
{
    for (;;) {
        char path[64], text[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        int fd = open(path, O_RDONLY);
        ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        if (fd >= 0) {
            close(fd);
        }
        const char *state = strrchr(text, ')');
        if (len <= 0 || !state || state[2] == 'Z' || state[2] == 'X') {
            return;
        }
        usleep(1000);
    }
}
