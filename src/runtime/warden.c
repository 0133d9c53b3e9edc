#include "runtime/warden.h"

#include "base/alloc.h"
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { PATIENCE_MS = 2000 };

struct rlm_warden {
    rlm_loop *loop;
    char mark[64];
    bool begun;
    int pipe; /* its end is the signal; -1: none */
    rlm_process *process;
    bool ended;
};

/* Three rounds, since what is killed may just have started something. */
static const char script[] = "trap '' HUP INT TERM\n"
                             "while read -r line; do :; done\n"
                             "for round in 1 2 3; do\n"
                             "  found=\n"
                             "  for file in $(grep -lsaF \"$1\" /proc/[0-9]*/environ); do\n"
                             "    file=${file#/proc/}\n"
                             "    kill -9 \"${file%/environ}\" && found=1\n"
                             "  done\n"
                             "  [ -n \"$found\" ] || exit 0\n"
                             "done 2>/dev/null\n";

rlm_warden *rlm_warden_new(rlm_loop *loop)
{
    rlm_warden *w;
    if (RLM_NEW(w)) {
        uint64_t id[2];
        rlm_random(id, sizeof id);
        w->loop = loop;
        w->pipe = -1;
        snprintf(w->mark, sizeof w->mark, "RLMFLOW_MARK=%016llx%016llx", (unsigned long long)id[0],
                 (unsigned long long)id[1]);
    }
    return w;
}

const char *rlm_warden_mark(const rlm_warden *w)
{
    return w->mark;
}

static void exited(void *arg, const struct rlm_process_exit *how)
{
    rlm_warden *w = arg;
    (void)how;
    w->ended = true;
}

void rlm_warden_begin(rlm_warden *w)
{
    int ends[2];
    if (w->begun || pipe2(ends, O_CLOEXEC) < 0) {
        return;
    }
    w->begun = true;
    const char *const argv[] = {"/bin/sh", "-c", script, "rlmflow-warden", w->mark, NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    struct rlm_process_options options = {.argv = argv,
                                          .env = env,
                                          .working_directory = "/",
                                          .child_fds = ends,
                                          .n_child_fds = 1,
                                          .outlives_caller = true};
    if (rlm_process_start(w->loop, &options, exited, w, &w->process, NULL) == 0) {
        w->pipe = ends[1];
    } else {
        close(ends[1]);
    }
    close(ends[0]);
}

static void stop_waiting(void *arg)
{
    *(bool *)arg = true;
}

void rlm_warden_free(rlm_warden *w)
{
    if (!w) {
        return;
    }
    if (w->process) {
        bool late = false;
        rlm_timer *patience = rlm_timer_new(w->loop, stop_waiting, &late);
        close(w->pipe);
        if (patience) {
            rlm_timer_set(patience, PATIENCE_MS);
        }
        while (patience && !w->ended && !late) {
            rlm_loop_turn(w->loop);
        }
        rlm_timer_free(patience);
        rlm_process_free(w->process);
    }
    free(w);
}
