/* Trees that belong to no run, and what is made of trees: copies, directories, forks of runs. */
#include "graph.h"

#include "objects.h"
#include "text.h"

#include <stdlib.h>

/* ---- a tree at rest -------------------------------------------------------------------------- */

struct tree_object {
    PyObject_HEAD rlm_graph *root;
};

PyObject *tree_type;

static void tree_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (!engine_is_forked()) {
        engine_enter();
        rlm_graph_free(((struct tree_object *)object)->root);
        engine_leave();
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyType_Slot tree_slots[] = {
    {Py_tp_dealloc, tree_dealloc},
    {Py_tp_doc, "Keeps a tree that belongs to no run."},
    {0, NULL},
};

PyType_Spec tree_spec = {
    .name = "rlmflow._engine.Tree",
    .basicsize = sizeof(struct tree_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tree_slots,
};

bool graph_is_at_rest(const struct graph_object *self)
{
    return PyObject_TypeCheck(self->owner, (PyTypeObject *)tree_type);
}

PyObject *graph_new_at_rest(rlm_graph *root)
{
    PyTypeObject *type = (PyTypeObject *)tree_type;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct tree_object *tree = (struct tree_object *)alloc(type, 0);
    if (!tree) {
        engine_enter();
        rlm_graph_free(root);
        engine_leave();
        return NULL;
    }
    tree->root = root;
    PyObject *graph = graph_new((PyObject *)tree, root, rlm_graph_agent_id(root));
    Py_DECREF((PyObject *)tree);
    return graph;
}

PyObject *graph_raise(rlm_error *take_err)
{
    bool is_missing = rlm_error_code(take_err) == RLM_E_NOT_FOUND;
    return raise_error_as(is_missing ? PyExc_KeyError : NULL, take_err);
}

/* ---- making one ------------------------------------------------------------------------------ */

/* load(path) -> (Graph, note or None) */
PyObject *engine_load(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path;
    char *note = NULL;
    rlm_graph *root = NULL;
    rlm_error *err = NULL;
    if (!PyArg_ParseTuple(args, "s", &path) || engine_start() < 0) {
        return NULL;
    }
    engine_enter();
    int r = rlm_graph_load(path, &root, &note, &err);
    engine_leave();
    PyObject *graph = r < 0 ? raise_error(err) : graph_new_at_rest(root);
    PyObject *result = graph ? Py_BuildValue("Nz", graph, note) : NULL;
    free(note);
    return result;
}

/* build(lines) -> Graph: of events, the first of which makes it */
PyObject *engine_build(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *lines;
    rlm_graph *root = NULL;
    rlm_error *err = NULL;
    if (!PyArg_ParseTuple(args, "O", &lines) || engine_start() < 0) {
        return NULL;
    }
    Py_ssize_t n = PyList_Size(lines);
    int r = n < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; r >= 0 && i < n; i++) {
        struct rlm_str line;
        PyObject *held;
        if (text_from_python(PyList_GetItem(lines, i), &line, &held) < 0) {
            r = -1;
            break;
        }
        engine_enter();
        r = rlm_graph_apply_json(&root, line, &err);
        engine_leave();
        Py_DECREF(held);
    }
    if (r >= 0 && root) {
        return graph_new_at_rest(root);
    }
    engine_enter();
    rlm_graph_free(root);
    engine_leave();
    if (err) {
        return graph_raise(err);
    }
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "no event makes the graph");
    }
    return NULL;
}

/* fork(node_id or None) -> Graph of a copy of the whole tree in which that node is the agent's last */
PyObject *graph_fork(PyObject *object, PyObject *args)
{
    const char *node_id;
    rlm_graph *copy = NULL;
    rlm_error *err = NULL;
    rlm_graph *g = PyArg_ParseTuple(args, "z", &node_id) ? graph_enter(object) : NULL;
    if (!g) {
        return NULL;
    }
    int r = rlm_graph_fork(g, node_id, &copy, &err);
    engine_leave();
    return r < 0 ? graph_raise(err) : graph_new_at_rest(copy);
}

/* ---- on disk --------------------------------------------------------------------------------- */

PyObject *graph_save(PyObject *object, PyObject *args)
{
    const char *path;
    rlm_error *err = NULL;
    if (!PyArg_ParseTuple(args, "s", &path) || !graph_enter(object)) {
        return NULL;
    }
    int r = rlm_graph_save(((struct graph_object *)object)->root, path, &err);
    engine_leave();
    if (r < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

/* export(journal, path): the same of a run, with its large inputs; what is missing, or None */
PyObject *engine_export(PyObject *module, PyObject *args)
{
    (void)module;
    const char *journal, *path;
    char *note = NULL;
    rlm_error *err = NULL;
    if (!PyArg_ParseTuple(args, "ss", &journal, &path) || engine_start() < 0) {
        return NULL;
    }
    engine_enter();
    int r = rlm_run_export(journal, RLM_EXPORT_PYTHON, path, &note, &err);
    engine_leave();
    PyObject *result = r < 0 ? raise_error(err) : Py_BuildValue("z", note);
    free(note);
    return result;
}

/* fork_run(journal, node, path, query) */
PyObject *engine_fork_run(PyObject *module, PyObject *args)
{
    (void)module;
    const char *journal, *node, *path;
    PyObject *text, *held;
    struct rlm_str query;
    rlm_error *err = NULL;
    if (!PyArg_ParseTuple(args, "sssO", &journal, &node, &path, &text) || engine_start() < 0 ||
        text_from_python(text, &query, &held) < 0) {
        return NULL;
    }
    engine_enter();
    int r = rlm_run_fork(journal, node, path, query, &err);
    engine_leave();
    Py_DECREF(held);
    if (r < 0) {
        return graph_raise(err);
    }
    Py_RETURN_NONE;
}
