/* Runtime: where sessions open. */
#include "local.h"
#include "objects.h"
#include "text.h"

#include <stdlib.h>

PyObject *runtime_type;

struct runtime_object {
    PyObject_HEAD rlm_runtime *runtime;
    PyObject *owner; /* what lives as long, or NULL */
};

static void runtime_dealloc(PyObject *object)
{
    struct runtime_object *self = (struct runtime_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->runtime && !engine_is_forked()) {
        engine_enter();
        rlm_runtime_free(self->runtime);
        engine_leave();
    }
    Py_XDECREF(self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

rlm_runtime *runtime_of(PyObject *object)
{
    if (!PyObject_TypeCheck(object, (PyTypeObject *)runtime_type)) {
        PyErr_Format(PyExc_TypeError, "a Runtime is wanted here, not %R",
                     (PyObject *)Py_TYPE(object));
        return NULL;
    }
    return ((struct runtime_object *)object)->runtime;
}

/* "NAME=VALUE"..., NULL-terminated, of a list of str; the texts live as long as the list. */
static const char **env_of(PyObject *list)
{
    Py_ssize_t n = PyList_Size(list);
    const char **env = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *env);
    for (Py_ssize_t i = 0; env && i < n; i++) {
        env[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (!env[i]) {
            free(env);
            return NULL;
        }
    }
    if (!env && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    return env;
}

static struct runtime_object *allocate(PyObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    return (struct runtime_object *)alloc((PyTypeObject *)type, 0);
}

static PyObject *runtime_local(PyObject *type, PyObject *args)
{
    long long key;
    PyObject *owner;
    if (!PyArg_ParseTuple(args, "LO", &key, &owner) || engine_start() < 0) {
        return NULL;
    }
    struct runtime_object *self = allocate(type);
    if (!self) {
        return NULL;
    }
    rlm_error *err = NULL;
    engine_enter();
    int r = local_runtime_new(key, &self->runtime, &err);
    engine_leave_unchanged();
    if (r < 0) {
        Py_DECREF((PyObject *)self);
        return raise_error(err);
    }
    Py_INCREF(owner);
    self->owner = owner;
    return (PyObject *)self;
}

static PyObject *runtime_subprocess(PyObject *type, PyObject *args)
{
    struct rlm_subprocess_options o = RLM_SUBPROCESS_OPTIONS_INIT;
    PyObject *env_list;
    if (!PyArg_ParseTuple(args, "zzOi", &o.python, &o.working_directory, &env_list, &o.spare) ||
        engine_start() < 0) {
        return NULL;
    }
    const char **env = env_of(env_list);
    struct runtime_object *self = env ? allocate(type) : NULL;
    if (!self) {
        free(env);
        return NULL;
    }
    rlm_error *err = NULL;
    o.env = env;
    engine_enter();
    int r = rlm_runtime_new_subprocess(engine_loop(), &o, &self->runtime, &err);
    engine_leave();
    free(env);
    if (r < 0) {
        Py_DECREF((PyObject *)self);
        return raise_error(err);
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"subprocess", runtime_subprocess, METH_VARARGS | METH_CLASS,
     "subprocess(python, working_directory, env, spare): plain child processes."},
    {"local", runtime_local, METH_VARARGS | METH_CLASS,
     "local(key, owner): threads of this process, which get sessions from take_session()."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, runtime_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Where sessions open."},
    {0, NULL},
};

PyType_Spec runtime_spec = {
    .name = "rlmflow._engine.Runtime",
    .basicsize = sizeof(struct runtime_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
