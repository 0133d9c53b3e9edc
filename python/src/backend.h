/* Backends: sessions of runtimes whose `open` a Python class overrides.
 *
 * What the engine asks of one goes as requests into the run's port; Python answers through a Backend object.
 * When nothing in Python holds the backend of a session that is over, it is gone.
 */
#pragma once

#include "port.h"

struct backend;

/* A runtime that asks through the port, which outlives it. NULL with an exception. */
rlm_runtime *backend_runtime_new(port *p, const char *name, const char *effects);
void backend_unref(struct backend *b); /* NULL allowed; with or without the lock */

/* The object that Python answers with; NULL with an exception. */
PyObject *backend_to_python(struct backend *b);
/* Opens a session of `runtime`, which outlives it. NULL with an exception. */
PyObject *backend_open_inner(PyObject *backend, rlm_runtime *runtime);
extern PyType_Spec backend_spec;
/* Set by the module. */
extern PyObject *backend_type;
