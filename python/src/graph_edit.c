/* Edits of trees at rest. Each returns the changes that it made: a list of lines of JSON, as a stream has
 * events. */
#include "graph.h"

#include "node.h"
#include "objects.h"
#include "text.h"

#include <stdlib.h>

/* ---- the changes ----------------------------------------------------------------------------- */

struct changes {
    char **lines; /* without memory they are NULL, and the edit is made all the same */
    size_t n;
};

static void on_edit(void *arg, const struct rlm_event *event)
{
    struct changes *c = arg;
    char **more = realloc(c->lines, (c->n + 1) * sizeof *more);
    if (more) {
        c->lines = more;
        c->lines[c->n++] = rlm_event_json(event);
    }
}

/* Takes the lock and begins to collect. NULL with an exception (and without the lock): it cannot be edited. */
static rlm_graph *begin(PyObject *object, struct changes *c)
{
    struct graph_object *self = (struct graph_object *)object;
    *c = (struct changes){0};
    if (!graph_is_at_rest(self)) {
        PyErr_SetString(PyExc_ValueError,
                        "this graph is that of a run, which alone changes it (Flow.append_node); "
                        "edit a copy: fork()");
        return NULL;
    }
    rlm_graph *g = graph_enter(object);
    if (g) {
        rlm_graph_on_edit(self->root, on_edit, c);
    }
    return g;
}

/* Lets go of the lock. */
static PyObject *end(PyObject *object, struct changes *c, int r, rlm_error *err)
{
    rlm_graph_on_edit(((struct graph_object *)object)->root, NULL, NULL);
    engine_leave();
    PyObject *list = r < 0 ? graph_raise(err) : PyList_New(0);
    for (size_t i = 0; i < c->n; i++) {
        PyObject *line =
            list && c->lines[i] ? text_to_python(c->lines[i], strlen(c->lines[i])) : NULL;
        if (list && (!line || PyList_Append(list, line) < 0)) {
            Py_CLEAR(list);
            if (!PyErr_Occurred()) {
                PyErr_NoMemory();
            }
        }
        Py_XDECREF(line);
        free(c->lines[i]);
    }
    free(c->lines);
    return list;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

PyObject *graph_inject(PyObject *object, PyObject *args)
{
    int where;
    const char *node_id;
    PyObject *dict;
    struct node_of_python node;
    struct changes c;
    if (!PyArg_ParseTuple(args, "izO", &where, &node_id, &dict) ||
        node_from_python(dict, &node) < 0) {
        return NULL;
    }
    rlm_error *err = NULL;
    PyObject *result = NULL;
    rlm_graph *g = begin(object, &c);
    if (g) {
        int r = rlm_graph_inject(g, (enum rlm_inject)where, node_id, &node.node, NULL, &err);
        result = end(object, &c, r, err);
    }
    Py_DECREF(node.keep);
    return result;
}

PyObject *graph_remove_node(PyObject *object, PyObject *args)
{
    const char *node_id;
    struct changes c;
    rlm_error *err = NULL;
    rlm_graph *g = PyArg_ParseTuple(args, "s", &node_id) ? begin(object, &c) : NULL;
    int r = g ? rlm_graph_remove_node(g, node_id, &err) : -1;
    return g ? end(object, &c, r, err) : NULL;
}

PyObject *graph_remove(PyObject *object, PyObject *none)
{
    (void)none;
    struct changes c;
    rlm_error *err = NULL;
    rlm_graph *g = begin(object, &c);
    int r = g ? rlm_graph_remove_child(g, &err) : -1;
    return g ? end(object, &c, r, err) : NULL;
}

/* ---- going back ------------------------------------------------------------------------------ */

PyObject *graph_rewind(PyObject *object, PyObject *args)
{
    const char *node_id;
    struct changes c;
    rlm_error *err = NULL;
    rlm_graph *g = PyArg_ParseTuple(args, "s", &node_id) ? begin(object, &c) : NULL;
    int r = g ? rlm_graph_rewind(g, node_id, &err) : -1;
    return g ? end(object, &c, r, err) : NULL;
}

PyObject *graph_checkpoint(PyObject *object, PyObject *none)
{
    (void)none;
    struct rlm_graph_checkpoint at;
    rlm_error *err = NULL;
    rlm_graph *g = graph_enter(object);
    if (!g) {
        return NULL;
    }
    int r = rlm_graph_checkpoint(g, &at, &err);
    engine_leave();
    return r < 0 ? graph_raise(err) : Py_BuildValue("ns", (Py_ssize_t)at.position, at.digest);
}

PyObject *graph_revert(PyObject *object, PyObject *args)
{
    Py_ssize_t position;
    const char *digest;
    struct rlm_graph_checkpoint at = {0};
    struct changes c;
    rlm_error *err = NULL;
    if (!PyArg_ParseTuple(args, "ns", &position, &digest)) {
        return NULL;
    }
    if (position < 0 || strlen(digest) >= sizeof at.digest) {
        PyErr_SetString(PyExc_ValueError, "this is no checkpoint");
        return NULL;
    }
    at.position = (size_t)position;
    memcpy(at.digest, digest, strlen(digest));
    rlm_graph *g = begin(object, &c);
    int r = g ? rlm_graph_revert(g, &at, &err) : -1;
    return g ? end(object, &c, r, err) : NULL;
}

/* ---- other trees ----------------------------------------------------------------------------- */

/* merge(branch, summary) */
PyObject *graph_merge(PyObject *object, PyObject *args)
{
    PyObject *other, *text, *held;
    struct rlm_str summary;
    struct changes c;
    if (!PyArg_ParseTuple(args, "OO", &other, &text)) {
        return NULL;
    }
    if (!PyObject_TypeCheck(other, (PyTypeObject *)graph_type)) {
        PyErr_SetString(PyExc_TypeError, "a Graph is merged");
        return NULL;
    }
    if (text_from_python(text, &summary, &held) < 0) {
        return NULL;
    }
    rlm_error *err = NULL;
    PyObject *result = NULL;
    rlm_graph *g = begin(object, &c);
    if (g) {
        rlm_graph *branch = graph_enter(other);
        if (branch) {
            int r = rlm_graph_merge(g, branch, summary, NULL, &err);
            engine_leave();
            result = end(object, &c, r, err);
        } else {
            Py_XDECREF(end(object, &c, 0, NULL));
        }
    }
    Py_DECREF(held);
    return result;
}

/* apply(line): of an event of JSON; the tree stays the same one */
PyObject *graph_apply(PyObject *object, PyObject *args)
{
    PyObject *text, *held;
    struct rlm_str line;
    struct changes c;
    if (!PyArg_ParseTuple(args, "O", &text) || text_from_python(text, &line, &held) < 0) {
        return NULL;
    }
    rlm_error *err = NULL;
    PyObject *result = NULL;
    if (begin(object, &c)) {
        rlm_graph *root = ((struct graph_object *)object)->root;
        int r = rlm_graph_apply_json(&root, line, &err);
        result = end(object, &c, r, err);
    }
    Py_DECREF(held);
    return result;
}
