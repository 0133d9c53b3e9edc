/* Child processes, watched through pidfds (never SIGCHLD: in somebody's program it is not ours).
 *
 * The child gets its own process group, default signal handling, an exact environment, and only the
 * descriptors named. It is killed when the calling thread's process dies (PR_SET_PDEATHSIG).
 */
#pragma once

#include "base/loop.h"

#include <sys/resource.h>
#include <sys/types.h>

struct rlm_process_options {
    const char *const *argv; /* argv[0] is looked up in PATH of `env` (else of the caller) */
    const char *const *env;  /* "NAME=VALUE"..., NULL-terminated, nothing is inherited */
    const char *working_directory; /* NULL: the caller's */
    /* Descriptors: child_fds[i] becomes descriptor i in the child; -1 means /dev/null. */
    const int *child_fds;
    size_t n_child_fds;
};

/* How it ended. */
struct rlm_process_exit {
    int status;              /* exit status, or -1 */
    int signal;              /* signal that ended it, or 0 */
    struct rusage usage;
};

typedef struct rlm_process rlm_process;
typedef void (*rlm_process_exited)(void *arg, const struct rlm_process_exit *how);

/* Starts the program (vfork-like: a failed exec is reported here, with its reason). `exited` comes
 * once, on the loop. */
int rlm_process_start(rlm_loop *loop, const struct rlm_process_options *options,
                      rlm_process_exited exited, void *arg, rlm_process **ret_process,
                      rlm_error **err);
pid_t rlm_process_pid(const rlm_process *p);
bool rlm_process_alive(const rlm_process *p);
/* Sends a signal to the process alone, or to its whole group. Harmless after its end. */
void rlm_process_signal(rlm_process *p, int signal);
void rlm_process_signal_group(rlm_process *p, int signal);
/* CPU time used so far by the process and its reaped children, in ms; -1 when unknown. */
int64_t rlm_process_cpu_ms(const rlm_process *p);
/* Kills the group with SIGKILL if it still runs, reaps it, forgets it. No callback comes. */
void rlm_process_free(rlm_process *p);
