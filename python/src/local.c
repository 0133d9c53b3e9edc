/* The seam of LocalRuntime: sessions whose workers are threads of this process.
 *
 * When a session begins, the engine's thread, which never takes the GIL, makes a socket and a pipe, keeps
 * one end of each and puts the others here; the first Python thread that waits in take_session gets them.
 */
#include "local.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A session that no thread has taken yet. */
struct offer {
    struct offer *next;
    rlm_stream *stream;
    long long key; /* of its runtime */
    int rfd, wfd;  /* the worker's ends */
    char agent_id[];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct offer *first, **last;
} offers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

/* ---- the engine's side ------------------------------------------------------------------------ */

static void refuse(rlm_stream *stream, const char *what, int why)
{
    char text[200];
    int len = snprintf(text, sizeof text, "%s: %s", what, strerror(why));
    rlm_stream_fail(stream, (struct rlm_str){text, (size_t)len});
}

static void on_connect(void *arg, rlm_stream *stream, const struct rlm_stream_session *session)
{
    size_t size = strlen(session->agent_id) + 1;
    struct offer *o = malloc(sizeof *o + size);
    int pair[4] = {-1, -1, -1, -1}; /* the socket's ends, the pipe's */
    if (!o || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
        pipe2(pair + 2, O_CLOEXEC) < 0) {
        int why = o ? errno : ENOMEM;
        close_all(pair, 4);
        free(o);
        refuse(stream, "a session's descriptors could not be made", why);
        return;
    }
    fcntl(pair[2], F_SETFL, O_NONBLOCK);
    *o = (struct offer){.stream = stream, .key = (intptr_t)arg, .rfd = pair[1], .wfd = pair[3]};
    memcpy(o->agent_id, session->agent_id, size);
    pthread_mutex_lock(&offers.lock);
    offers.last = offers.first ? offers.last : &offers.first;
    *offers.last = o;
    offers.last = &o->next;
    pthread_cond_signal(&offers.came);
    pthread_mutex_unlock(&offers.lock);
    rlm_stream_connected(stream, pair[2], pair[0]);
}

/* A session that ended before a thread took it. */
static void on_closed(void *arg, rlm_stream *stream)
{
    (void)arg;
    pthread_mutex_lock(&offers.lock);
    struct offer **place = &offers.first;
    while (*place && (*place)->stream != stream) {
        place = &(*place)->next;
    }
    struct offer *o = *place;
    if (o) {
        *place = o->next;
        offers.last = o->next ? offers.last : place;
        close_all((int[]){o->rfd, o->wfd}, 2);
        free(o);
    }
    pthread_mutex_unlock(&offers.lock);
}

int local_runtime_new(long long key, rlm_runtime **ret_runtime, rlm_error **err)
{
    struct rlm_stream_options o = RLM_STREAM_OPTIONS_INIT;
    o.name = "local";
    o.killed = "it was abandoned, and its thread may run on in this process";
    o.passes_descriptors = true;
    o.connect = on_connect;
    o.closed = on_closed;
    o.arg = (void *)(intptr_t)key;
    return rlm_runtime_new_stream(engine_loop(), &o, ret_runtime, err);
}

/* ---- the threads' side ------------------------------------------------------------------------ */

static struct offer *wait_for_offer(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&offers.lock);
    int r = 0;
    while (!offers.first && r == 0) {
        r = pthread_cond_clockwait(&offers.came, &offers.lock, CLOCK_MONOTONIC, &until);
    }
    struct offer *o = offers.first;
    if (o) {
        offers.first = o->next;
    }
    pthread_mutex_unlock(&offers.lock);
    return o;
}

PyObject *local_take_session(PyObject *module, PyObject *args)
{
    (void)module;
    double seconds;
    if (!PyArg_ParseTuple(args, "d", &seconds)) {
        return NULL;
    }
    struct offer *o;
    Py_BEGIN_ALLOW_THREADS;
    o = wait_for_offer(seconds);
    Py_END_ALLOW_THREADS;
    if (!o) {
        Py_RETURN_NONE;
    }
    PyObject *result = Py_BuildValue("(Liis)", o->key, o->rfd, o->wfd, o->agent_id);
    if (!result) {
        close_all((int[]){o->rfd, o->wfd}, 2);
    }
    free(o);
    return result;
}

PyObject *local_own_directory(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    if (unshare(CLONE_FS) < 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* ---- interrupts ------------------------------------------------------------------------------- */

/* Whether the innermost frame of the worker's own, if any, is one of those that the agent's code runs
 * below. -1: an exception. */
static int agent_is_at_work(PyObject *frame, PyObject *globals, PyObject *codes)
{
    int found = 0;
    Py_INCREF(frame);
    while (frame != Py_None) {
        PyObject *own = PyObject_GetAttrString(frame, "f_globals");
        Py_XDECREF(own);
        if (!own || own == globals) {
            PyObject *code = own ? PyObject_GetAttrString(frame, "f_code") : NULL;
            found = code ? PySet_Contains(codes, code) : -1;
            Py_XDECREF(code);
            break;
        }
        PyObject *back = PyObject_GetAttrString(frame, "f_back");
        if (!back) {
            found = -1;
            break;
        }
        Py_DECREF(frame);
        frame = back;
    }
    Py_DECREF(frame);
    return found;
}

/* Between looking at the thread's frames and setting the exception no Python code runs, so it strikes
 * where the agent's code is at work, or where this enters a function of the worker's next. */
PyObject *local_interrupt_thread(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long thread;
    PyObject *kind, *globals, *codes;
    if (!PyArg_ParseTuple(args, "kOO!O!", &thread, &kind, &PyDict_Type, &globals, &PySet_Type,
                          &codes)) {
        return NULL;
    }
    PyObject *current = PySys_GetObject("_current_frames"); /* borrowed */
    PyObject *frames = current ? PyObject_CallObject(current, NULL) : NULL;
    PyObject *number = frames ? PyLong_FromUnsignedLong(thread) : NULL;
    PyObject *frame = number ? PyDict_GetItem(frames, number) : NULL; /* borrowed */
    int at_work = frame ? agent_is_at_work(frame, globals, codes) : 0;
    if (at_work > 0) {
        PyThreadState_SetAsyncExc(thread, kind);
    }
    Py_XDECREF(number);
    Py_XDECREF(frames);
    if (at_work < 0 || PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(at_work);
}
