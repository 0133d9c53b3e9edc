#include "base/process.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child shares the memory of its parent until it has become the program, as with vfork: nothing
 * is copied, however big the host is, and a failure is a number written into the parent's memory.
 * Between clone and exec it runs on a stack of its own and calls only what is async-signal-safe. */

enum { STACK_BYTES = 64 * 1024, STANDARD_FDS = 3 };

struct rlm_process {
    rlm_loop *loop;
    rlm_watch *watch;
    rlm_process_exited exited;
    void *arg;
    pid_t pid;
    int pidfd;
    pid_t owner; /* the process that started it; one forked from that must leave it alone */
    bool alive;  /* not reaped yet, so that `pid` is certainly its */
    struct rlm_process_exit how;
};

enum stage {
    STAGE_DONE,
    STAGE_PARENT,
    STAGE_DESCRIPTORS,
    STAGE_DIRECTORY,
    STAGE_EXEC,
};

/* What the child needs; all memory is the parent's. */
struct launch {
    const struct rlm_process_options *options;
    const char *const *env;
    const char *path; /* NULL: argv[0] holds a slash */
    char *candidate;  /* room for every directory of `path` with argv[0] */
    int *fds;         /* room for n_fds */
    size_t n_fds;
    pid_t parent;
    volatile enum stage failed_at;
    volatile int failed_errno;
};

/* ---- the child ------------------------------------------------------------------------------- */

/* The sanitizer knows nothing of the child's stack. */
#define CHILD __attribute__((no_sanitize("address", "undefined", "thread")))

CHILD static void reset_signals(void)
{
    /* The bare system call, since the C library keeps two signals from its callers; all of the
     * kernel's structure is zero for the default action. */
    const unsigned long standard[8] = {0};
    for (int i = 1; i < NSIG; i++) {
        syscall(SYS_rt_sigaction, i, standard, NULL, NSIG / 8);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Closes `from` and everything above. */
CHILD static void close_from(unsigned from)
{
    if (syscall(SYS_close_range, from, ~0u, 0) == 0) {
        return;
    }
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    for (rlim_t fd = from; fd < limit.rlim_max && fd < INT32_MAX; fd++) {
        close((int)fd);
    }
}

/* Puts the descriptors in place. First all are moved above their targets, so that none is
 * overwritten before it has been copied. */
CHILD static bool place_descriptors(struct launch *l)
{
    for (size_t i = 0; i < l->n_fds; i++) {
        int fd = i < l->options->n_child_fds ? l->options->child_fds[i] : -1;
        if (fd >= 0) {
            fd = fcntl(fd, F_DUPFD_CLOEXEC, (int)l->n_fds);
            if (fd < 0) {
                return false;
            }
        }
        l->fds[i] = fd;
    }
    for (size_t i = 0; i < l->n_fds; i++) {
        int fd = l->fds[i];
        if (fd < 0) {
            fd = open("/dev/null", O_RDWR);
        }
        if (fd < 0) {
            return false;
        }
        if (fd != (int)i) {
            if (dup2(fd, (int)i) < 0) {
                return false;
            }
            close(fd);
        }
    }
    close_from((unsigned)l->n_fds);
    return true;
}

/* Returns only when no candidate could be executed; errno says why. As in execvp, one that may not be
 * executed does not end the search but is remembered. */
CHILD static void execute(struct launch *l)
{
    char *const *argv = (char *const *)(uintptr_t)l->options->argv;
    char *const *env = (char *const *)(uintptr_t)l->env;
    if (!l->path) {
        execve(argv[0], argv, env);
        return;
    }
    bool denied = false;
    for (const char *at = l->path;; at++) {
        char *out = l->candidate;
        while (*at && *at != ':') {
            *out++ = *at++;
        }
        if (out > l->candidate) { /* an empty entry means the working directory */
            *out++ = '/';
        }
        for (const char *name = argv[0]; *name; name++) {
            *out++ = *name;
        }
        *out = '\0';
        execve(l->candidate, argv, env);
        if (errno == EACCES) {
            denied = true;
        } else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG) {
            return;
        }
        if (!*at) {
            errno = denied ? EACCES : ENOENT;
            return;
        }
    }
}

CHILD static int run_child(void *arg)
{
    struct launch *l = arg;
    enum stage stage = STAGE_PARENT;
    if (!l->options->outlives_caller) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    /* The parent may have died before the line above. */
    if (getppid() != l->parent) {
        _exit(127);
    }
    setpgid(0, 0);
    reset_signals();
    stage = STAGE_DESCRIPTORS;
    if (place_descriptors(l)) {
        stage = STAGE_DIRECTORY;
        const char *directory = l->options->working_directory;
        if (!directory || chdir(directory) == 0) {
            stage = STAGE_EXEC;
            execute(l);
        }
    }
    l->failed_errno = errno;
    l->failed_at = stage;
    _exit(127);
}

/* ---- starting -------------------------------------------------------------------------------- */

static const char *path_of(const char *const *env)
{
    for (; *env; env++) {
        if (strncmp(*env, "PATH=", 5) == 0) {
            return *env + 5;
        }
    }
    const char *path = getenv("PATH");
    return path ? path : "/usr/local/bin:/usr/bin:/bin";
}

static int describe_failure(const struct launch *l, rlm_error **err)
{
    const char *program = l->options->argv[0];
    const char *directory = l->options->working_directory;
    int why = l->failed_errno;
    int code = why == ENOENT || why == ENOTDIR ? RLM_E_NOT_FOUND : RLM_E_IO;
    switch (l->failed_at) {
    case STAGE_DIRECTORY:
        return rlm_error_set_errno(err, code, why,
                                   "starting \"%s\": cannot enter the working directory \"%s\"",
                                   program, directory);
    case STAGE_EXEC:
        if (why == ENOENT && l->path) {
            return rlm_error_set(err, code, "no program \"%s\" in PATH (%s)", program, l->path);
        }
        if (why == ENOENT) {
            return rlm_error_set(err, code, "no program \"%s\" (or its interpreter is missing)",
                                 program);
        }
        return rlm_error_set_errno(err, code, why, "cannot execute \"%s\"", program);
    default:
        return rlm_error_set_errno(err, RLM_E_IO, why, "starting \"%s\": preparing its descriptors",
                                   program);
    }
}

/* Reaps the child of `pidfd`: true when it has ended (or somebody else reaped it). */
static bool reap(int pidfd, int flags, struct rlm_process_exit *ret_how)
{
    siginfo_t info = {0};
    struct rlm_process_exit how = {.status = -1};
    long r;
    do { /* the system call and not the library's function, which does not give the usage */
        r = syscall(SYS_waitid, P_PIDFD, pidfd, &info, WEXITED | flags, &how.usage);
    } while (r < 0 && errno == EINTR);
    if (r == 0 && info.si_pid == 0) {
        return false;
    }
    if (r == 0 && info.si_code == CLD_EXITED) {
        how.status = info.si_status;
    } else if (r == 0) {
        how.signal = info.si_status;
    }
    *ret_how = how;
    return true;
}

/* Clones the child and waits until it is the program or has failed. Returns its pid, or -1 with
 * errno. */
static pid_t clone_child(struct launch *l, int *ret_pidfd)
{
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        return -1;
    }
    /* No handler of the host may run in the child, which shares the host's memory. */
    sigset_t all, before;
    sigfillset(&all);
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int pidfd = -1;
    pid_t pid = clone(run_child, stack + STACK_BYTES,
                      CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, l, &pidfd);
    int why = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setcancelstate(cancel_state, NULL);
    munmap(stack, STACK_BYTES);
    errno = why;
    *ret_pidfd = pidfd;
    return pid;
}

static void abandon(pid_t pid, int pidfd)
{
    struct rlm_process_exit how;
    kill(pid, SIGKILL);
    reap(pidfd, 0, &how);
    close(pidfd);
}

/* Starts the child; 0 with pid and pidfd, or an error and no child. */
static int launch(struct launch *l, pid_t *ret_pid, int *ret_pidfd, rlm_error **err)
{
    int pidfd = -1;
    pid_t pid = clone_child(l, &pidfd);
    if (pid < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "starting \"%s\": making a process",
                                   l->options->argv[0]);
    }
    if (pidfd < 0) { /* Linux before 5.2 ignores the flag */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return rlm_error_set(err, RLM_E_UNSUPPORTED,
                             "starting \"%s\": this kernel has no pidfds; Linux 5.4 or newer is "
                             "needed",
                             l->options->argv[0]);
    }
    if (l->failed_at != STAGE_DONE) {
        abandon(pid, pidfd);
        return describe_failure(l, err);
    }
    *ret_pid = pid;
    *ret_pidfd = pidfd;
    return 0;
}

static void release(rlm_process *p)
{
    rlm_watch_free(p->watch);
    close(p->pidfd);
    free(p);
}

static void process_ready(void *arg, int events)
{
    rlm_process *p = arg;
    (void)events;
    if (!reap(p->pidfd, WNOHANG | WNOWAIT, &p->how)) {
        return;
    }
    struct rlm_process_exit how = p->how, taken;
    /* While the leader is a zombie its number is still the group's alone: the one moment at which what
     * it left behind can be ended without ever hitting a stranger. */
    if (how.status >= 0 || how.signal) {
        kill(-p->pid, SIGKILL);
        reap(p->pidfd, WNOHANG, &taken);
    }
    p->alive = false;
    rlm_watch_set(p->watch, 0);
    if (p->exited) {
        p->exited(p->arg, &how); /* which may free p */
    } else {
        rlm_loop_release(p->loop);
        release(p);
    }
}

static int adopt(rlm_process *p, rlm_error **err)
{
    p->watch = rlm_watch_new(p->loop, p->pidfd, process_ready, p);
    if (!p->watch || rlm_watch_set(p->watch, RLM_READABLE) < 0) {
        rlm_watch_free(p->watch);
        return rlm_error_nomem(err);
    }
    return 0;
}

int rlm_process_start(rlm_loop *loop,
                      const struct rlm_process_options *options,
                      rlm_process_exited exited,
                      void *arg,
                      rlm_process **ret_process,
                      rlm_error **err)
{
    static const char *const no_env[] = {NULL};
    struct launch l = {.options = options, .env = options->env ? options->env : no_env};
    if (!options->argv || !options->argv[0] || !*options->argv[0]) {
        return rlm_error_set(err, RLM_E_INVAL, "no program to start was named");
    }
    l.parent = getpid();
    l.n_fds = options->n_child_fds > STANDARD_FDS ? options->n_child_fds : STANDARD_FDS;
    l.path = strchr(options->argv[0], '/') ? NULL : path_of(l.env);
    rlm_autofree int *fds = l.fds = rlm_calloc(l.n_fds, sizeof *fds);
    rlm_autofree char *candidate = l.candidate =
        rlm_malloc((l.path ? strlen(l.path) : 0) + strlen(options->argv[0]) + 2);
    rlm_autofree rlm_process *p = NULL;
    if (!fds || !candidate || !RLM_NEW(p)) {
        return rlm_error_nomem(err);
    }
    p->loop = loop;
    p->exited = exited;
    p->arg = arg;
    p->owner = l.parent;
    p->alive = true;
    int r = launch(&l, &p->pid, &p->pidfd, err);
    if (r < 0) {
        return r;
    }
    if ((r = adopt(p, err)) < 0) {
        abandon(p->pid, p->pidfd);
        return r;
    }
    *ret_process = rlm_steal(&p);
    return 0;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

/* `pid` may be signalled: it is not reaped, and ours. */
static bool is_ours(const rlm_process *p)
{
    return p->alive && getpid() == p->owner;
}

bool rlm_process_alive(const rlm_process *p)
{
    return p->alive;
}

void rlm_process_signal_group(rlm_process *p, int signal)
{
    if (is_ours(p)) {
        kill(-p->pid, signal);
    }
}

static int64_t rusage_ms(const struct rusage *usage)
{
    return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * (int64_t)1000 +
           (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1000;
}

int64_t rlm_process_cpu_ms(const rlm_process *p)
{
    if (!p->alive) {
        return rusage_ms(&p->how.usage);
    }
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)p->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    if (len <= 0) {
        return -1;
    }
    text[len] = '\0';
    /* The name in parentheses is the program's choice and may itself hold parentheses and spaces. */
    const char *rest = strrchr(text, ')');
    unsigned long user, system;
    long child_user, child_system;
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld",
                        &user, &system, &child_user, &child_system) != 4) {
        return -1;
    }
    return ((int64_t)user + (int64_t)system + child_user + child_system) * 1000 /
           sysconf(_SC_CLK_TCK);
}

void rlm_process_free(rlm_process *p)
{
    if (!p) {
        return;
    }
    if (!is_ours(p)) {
        release(p);
        return;
    }
    kill(-p->pid, SIGKILL);
    /* It may have moved to another group. */
    syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
    if (reap(p->pidfd, WNOHANG, &p->how)) {
        release(p);
        return;
    }
    /* It takes its time to die (much memory to give back). The loop reaps it, without waiting here. */
    p->exited = NULL;
    rlm_loop_hold(p->loop);
}
