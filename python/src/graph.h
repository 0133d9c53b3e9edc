/* Inside of a Graph, a look at one agent of a tree, shared by graph*.c.
 *
 *     graph.c         what is looked at: the methods' table, too
 *     graph_edit.c    edits
 *     graph_new.c     trees that belong to no run: loaded, built, forked
 */
#pragma once

#include "engine.h"

struct graph_object {
    PyObject_HEAD PyObject
        *owner; /* keeps the tree alive: a Run, or a tree at rest (graph_new.c) */
    rlm_graph *root;
    char *agent_id;
};

/* Takes the lock; NULL with an exception (and without the lock) when the agent has been taken out. */
rlm_graph *graph_enter(PyObject *object);
/* The owner is a tree at rest. */
bool graph_is_at_rest(const struct graph_object *self);
/* A Graph of a new tree; takes `root`, also when it fails. */
PyObject *graph_new_at_rest(rlm_graph *root);
/* As raise_error, but what is not found is a KeyError. */
PyObject *graph_raise(rlm_error *take_err);

/* Methods; graph.c says what they do. */
PyObject *graph_inject(PyObject *object, PyObject *args);
PyObject *graph_remove_node(PyObject *object, PyObject *args);
PyObject *graph_remove(PyObject *object, PyObject *none);
PyObject *graph_rewind(PyObject *object, PyObject *args);
PyObject *graph_checkpoint(PyObject *object, PyObject *none);
PyObject *graph_revert(PyObject *object, PyObject *args);
PyObject *graph_merge(PyObject *object, PyObject *args);
PyObject *graph_apply(PyObject *object, PyObject *args);
PyObject *graph_fork(PyObject *object, PyObject *args);
PyObject *graph_save(PyObject *object, PyObject *args);

/* Functions of the module. */
PyObject *engine_load(PyObject *module, PyObject *args);
PyObject *engine_build(PyObject *module, PyObject *args);
PyObject *engine_fork_run(PyObject *module, PyObject *args);
PyObject *engine_export(PyObject *module, PyObject *args);
