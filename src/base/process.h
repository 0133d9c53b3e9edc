/* Child processes, watched through pidfds (never SIGCHLD: in somebody's program it is not ours).
 *
 * The child gets its own process group, default signal handling, an exact environment, and only the
 * descriptors named. The kernel kills it when the *thread* that started it ends (PR_SET_PDEATHSIG):
 * so start processes from a thread that lives as long as they do, which the loop's thread does.
 *
 * When it ends, what is left of its group is killed too. A process forked from the host can do it no
 * harm: there all of this does nothing. Where the host has SIGCHLD ignored or reaps children that
 * are not its own, `status` is -1 and `signal` 0. Needs Linux 5.4.
 */
#pragma once

#include "base/loop.h"

#include <sys/resource.h>
#include <sys/types.h>

struct rlm_process_options {
    /* argv[0] is looked up in PATH of `env` (else of the caller); with a slash in it, it is a path,
     * from `working_directory` unless absolute. */
    const char *const *argv;
    const char *const
        *env; /* "NAME=VALUE"..., NULL-terminated, nothing is inherited; NULL: empty */
    const char *working_directory; /* NULL: the caller's */
    /* Descriptors: child_fds[i] becomes descriptor i in the child; -1 means /dev/null, as do those of
     * the standard three that are not named. The caller keeps its own. */
    const int *child_fds;
    size_t n_child_fds;
    bool outlives_caller; /* it is not killed with the thread that started it */
};

/* How it ended. */
struct rlm_process_exit {
    int status; /* exit status, or -1 */
    int signal; /* signal that ended it, or 0 */
    struct rusage usage;
};

typedef struct rlm_process rlm_process;
typedef void (*rlm_process_exited)(void *arg, const struct rlm_process_exit *how);

/* Starts the program (vfork-like: a failed exec is reported here, with its reason). `exited` (not
 * NULL) comes once, on the loop. RLM_E_NOT_FOUND names the program or the working directory that is
 * not there; RLM_E_IO, RLM_E_INVAL, RLM_E_UNSUPPORTED, RLM_E_NOMEM. */
int rlm_process_start(rlm_loop *loop,
                      const struct rlm_process_options *options,
                      rlm_process_exited exited,
                      void *arg,
                      rlm_process **ret_process,
                      rlm_error **err);
bool rlm_process_alive(const rlm_process *p);
/* Sends a signal to its whole group. Harmless after its end. */
void rlm_process_signal_group(rlm_process *p, int signal);
/* CPU time used so far by the process and its reaped children, in ms; -1 when unknown. After its end:
 * all that it used. */
int64_t rlm_process_cpu_ms(const rlm_process *p);
/* Kills the group with SIGKILL if it still runs, reaps it, forgets it. No callback comes. One that
 * takes long to die is reaped by the loop later; rlm_loop_free waits for that. NULL allowed. */
void rlm_process_free(rlm_process *p);
