#include "port.h"

#include "answer.h"
#include "backend.h"
#include "text.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct port {
    pthread_mutex_t lock;
    int references;
    int fd;
    bool closed;
    struct request *first, **last;
};

port *port_new(void)
{
    port *p = calloc(1, sizeof *p);
    if (!p) {
        PyErr_NoMemory();
        return NULL;
    }
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->fd < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        free(p);
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    p->references = 1;
    p->last = &p->first;
    return p;
}

port *port_ref(port *p)
{
    pthread_mutex_lock(&p->lock);
    p->references++;
    pthread_mutex_unlock(&p->lock);
    return p;
}

static void free_all(struct request *r)
{
    while (r) {
        struct request *next = r->next;
        request_free(r);
        r = next;
    }
}

static struct request *take_all(port *p)
{
    pthread_mutex_lock(&p->lock);
    struct request *r = p->first;
    p->first = NULL;
    p->last = &p->first;
    pthread_mutex_unlock(&p->lock);
    return r;
}

void port_unref(port *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    bool last = --p->references == 0;
    pthread_mutex_unlock(&p->lock);
    if (!last) {
        return;
    }
    free_all(p->first);
    pthread_mutex_destroy(&p->lock);
    close(p->fd);
    free(p);
}

int port_fd(const port *p)
{
    return p->fd;
}

void port_close(port *p)
{
    pthread_mutex_lock(&p->lock);
    p->closed = true;
    pthread_mutex_unlock(&p->lock);
    free_all(take_all(p));
}

/* ---- requests -------------------------------------------------------------------------------- */

struct request *request_new(enum request_kind kind, const char *agent_id)
{
    struct request *r = calloc(1, sizeof *r);
    if (r) {
        r->kind = kind;
        snprintf(r->agent_id, sizeof r->agent_id, "%s", agent_id);
    }
    return r;
}

bool request_set_text(struct request *r, struct rlm_str text)
{
    free(r->text);
    r->text = malloc(text.len + 1);
    if (!r->text) {
        return false;
    }
    memcpy(r->text, text.ptr, text.len);
    r->text[text.len] = '\0';
    r->text_len = text.len;
    return true;
}

void request_free(struct request *r)
{
    for (size_t i = 0; i < r->n_messages; i++) {
        free(r->messages[i].text);
    }
    answer_unref(r->answer);
    backend_unref(r->backend);
    free(r->messages);
    free(r->text);
    free(r);
}

void port_put(port *p, struct request *r)
{
    if (!r) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    bool was_empty = !p->first, closed = p->closed;
    if (!closed) {
        *p->last = r;
        p->last = &r->next;
    }
    pthread_mutex_unlock(&p->lock);
    if (closed) {
        request_free(r);
        return;
    }
    uint64_t one = 1;
    while (was_empty && write(p->fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* ---- to Python ------------------------------------------------------------------------------- */

static PyObject *messages_to_python(const struct request *r)
{
    PyObject *list = PyList_New((Py_ssize_t)r->n_messages);
    for (size_t i = 0; list && i < r->n_messages; i++) {
        PyObject *text = text_to_python(r->messages[i].text, r->messages[i].len);
        PyObject *message =
            text ? Py_BuildValue("{s:s,s:O}", "role", r->messages[i].role, "content", text) : NULL;
        Py_XDECREF(text);
        if (!message || PyList_SetItem(list, (Py_ssize_t)i, message) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* Takes the references to what it is given. */
static PyObject *tuple_of(const char *kind, PyObject *answer, PyObject *rest)
{
    PyObject *head = answer ? Py_BuildValue("(sN)", kind, answer) : NULL;
    PyObject *all = head && rest ? PySequence_Concat(head, rest) : NULL;
    Py_XDECREF(head);
    Py_XDECREF(rest);
    return all;
}

static PyObject *to_python(struct request *r)
{
    PyObject *replay = r->replay ? Py_True : Py_False;
    PyObject *text = r->text ? text_to_python(r->text, r->text_len) : NULL;
    PyObject *result = NULL;
    if (r->kind == REQUEST_ENDED) {
        result = Py_BuildValue("(s)", "ended");
    } else if (r->kind == REQUEST_EVENT) {
        result = Py_BuildValue("(sO)", "event", text);
    } else if (r->kind == REQUEST_BACKEND) {
        result = Py_BuildValue("(sNiKO)", "backend", backend_to_python(r->backend), r->question,
                               (unsigned long long)r->step, text);
    } else {
        PyObject *answer = answer_to_python(r->answer);
        switch (r->kind) {
        case REQUEST_CHAT:
            result = tuple_of("chat", answer,
                              Py_BuildValue("(lNisi)", r->index, messages_to_python(r),
                                            r->max_output_tokens, r->agent_id, r->turn));
            break;
        case REQUEST_TOOL:
            result = tuple_of("tool", answer, Py_BuildValue("(lOs)", r->index, text, r->agent_id));
            break;
        case REQUEST_EXEC_TURN:
            result =
                tuple_of("exec_turn", answer, Py_BuildValue("(sOO)", r->agent_id, text, replay));
            break;
        case REQUEST_MESSAGES:
            result =
                tuple_of("messages", answer, Py_BuildValue("(sOO)", r->agent_id, text, replay));
            break;
        case REQUEST_NEXT_STEP:
            result = tuple_of("next_step", answer, Py_BuildValue("(s)", r->agent_id));
            break;
        default:
            result = tuple_of("cancel", answer, PyTuple_New(0));
            break;
        }
    }
    Py_XDECREF(text);
    return result;
}

PyObject *port_take(port *p)
{
    uint64_t count;
    while (read(p->fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
    struct request *r = take_all(p);
    PyObject *list = PyList_New(0);
    while (r) {
        struct request *next = r->next;
        PyObject *item = list ? to_python(r) : NULL;
        if (list && (!item || PyList_Append(list, item) < 0)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
        request_free(r);
        r = next;
    }
    return list;
}
