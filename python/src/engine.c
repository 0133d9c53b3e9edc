#include "engine.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct {
    rlm_loop *loop;
    pthread_t thread;
    pthread_mutex_t lock;
    atomic_int waiting; /* Python threads that want the lock */
    int wake_fd;        /* tells the engine's thread to look anew at what it waits for */
    pid_t owner;
    bool stopping;
} engine = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, .wake_fd = -1};

/* ---- the lock -------------------------------------------------------------------------------- */

static void wake(void)
{
    uint64_t one = 1;
    while (write(engine.wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void engine_enter(void)
{
    if (pthread_mutex_trylock(&engine.lock) == 0) {
        return;
    }
    atomic_fetch_add(&engine.waiting, 1);
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&engine.lock);
    Py_END_ALLOW_THREADS;
    atomic_fetch_sub(&engine.waiting, 1);
}

void engine_leave_unchanged(void)
{
    pthread_mutex_unlock(&engine.lock);
}

void engine_leave(void)
{
    engine_leave_unchanged();
    wake(); /* there may be a nearer timer now, or a call deferred */
}

rlm_loop *engine_loop(void)
{
    return engine.loop;
}

bool engine_is_forked(void)
{
    return engine.owner != 0 && engine.owner != getpid();
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void wait_for_something(void)
{
    struct pollfd fds[] = {{.fd = rlm_loop_fd(engine.loop), .events = POLLIN},
                           {.fd = engine.wake_fd, .events = POLLIN}};
    int timeout_ms = rlm_loop_timeout(engine.loop);
    pthread_mutex_unlock(&engine.lock);
    while (atomic_load(&engine.waiting)) {
        sched_yield(); /* a mutex is not fair, and the loop may be always ready */
    }
    poll(fds, 2, timeout_ms);
    if (fds[1].revents) {
        uint64_t count;
        while (read(engine.wake_fd, &count, sizeof count) < 0 && errno == EINTR) {
        }
    }
    pthread_mutex_lock(&engine.lock);
}

static void *turn(void *arg)
{
    (void)arg;
    prctl(PR_SET_NAME, "rlmflow");
    pthread_mutex_lock(&engine.lock);
    while (!engine.stopping) {
        rlm_loop_dispatch(engine.loop);
        if (!engine.stopping) {
            wait_for_something();
        }
    }
    pthread_mutex_unlock(&engine.lock);
    return NULL;
}

/* Signals are Python's: the engine's thread takes none, and what it starts gets the default ones. */
static int start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&engine.thread, NULL, turn, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

int engine_start(void)
{
    if (engine_is_forked()) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "rlmflow cannot be used in a process that was forked from one that uses it: start "
            "the process anew (multiprocessing: the \"spawn\" method), or fork before the first "
            "use of rlmflow");
        return -1;
    }
    if (engine.stopping) {
        PyErr_SetString(PyExc_RuntimeError, "rlmflow has stopped: the process is ending");
        return -1;
    }
    if (engine.loop) {
        return 0;
    }
    rlm_error *err = NULL;
    int why = 0;
    engine.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine.wake_fd < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (rlm_loop_new(&engine.loop, &err) < 0) {
        PyErr_SetString(PyExc_OSError, rlm_error_message(err));
        rlm_error_free(err);
    } else if ((why = start_thread()) != 0) {
        rlm_loop_free(engine.loop);
        engine.loop = NULL;
        errno = why;
        PyErr_SetFromErrno(PyExc_OSError);
    } else {
        engine.owner = getpid();
        return 0;
    }
    close(engine.wake_fd);
    engine.wake_fd = -1;
    return -1;
}

void engine_stop(void)
{
    if (!engine.loop || engine_is_forked()) {
        return;
    }
    engine_enter();
    engine.stopping = true;
    engine_leave();
    Py_BEGIN_ALLOW_THREADS;
    pthread_join(engine.thread, NULL);
    Py_END_ALLOW_THREADS;
}
