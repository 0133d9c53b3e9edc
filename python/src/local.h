/* What LocalRuntime needs of C; see local.c. */
#pragma once

#include "engine.h"

int local_runtime_new(long long key, rlm_runtime **ret_runtime, rlm_error **err);

/* Functions of the module. */
PyObject *local_take_session(PyObject *module, PyObject *args);
PyObject *local_own_directory(PyObject *module, PyObject *none);
PyObject *local_interrupt_thread(PyObject *module, PyObject *args);
