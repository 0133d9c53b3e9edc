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

/* A list of str as texts, NULL-terminated, which live as long as the list. */
static const char **texts_of(PyObject *list)
{
    Py_ssize_t n = PyList_Size(list);
    const char **texts = calloc((size_t)n + 1, sizeof *texts);
    if (!texts) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; texts && i < n; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (!texts[i]) {
            free(texts);
            return NULL;
        }
    }
    return texts;
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

/* A runtime of the engine's, made by `make` of its options. */
static PyObject *wrap(PyObject *type,
                      int (*make)(const void *options, rlm_runtime **ret_runtime, rlm_error **err),
                      const void *options)
{
    struct runtime_object *self = engine_start() < 0 ? NULL : allocate(type);
    if (!self) {
        return NULL;
    }
    rlm_error *err = NULL;
    engine_enter();
    int r = make(options, &self->runtime, &err);
    engine_leave();
    if (r < 0) {
        Py_DECREF((PyObject *)self);
        return raise_error(err);
    }
    return (PyObject *)self;
}

static int make_subprocess(const void *options, rlm_runtime **ret_runtime, rlm_error **err)
{
    return rlm_runtime_new_subprocess(engine_loop(), options, ret_runtime, err);
}

static PyObject *runtime_subprocess(PyObject *type, PyObject *args)
{
    struct rlm_subprocess_options o = RLM_SUBPROCESS_OPTIONS_INIT;
    PyObject *env;
    if (!PyArg_ParseTuple(args, "zzO!i", &o.python, &o.working_directory, &PyList_Type, &env,
                          &o.spare)) {
        return NULL;
    }
    const char **texts = texts_of(env);
    o.env = texts;
    PyObject *made = texts ? wrap(type, make_subprocess, &o) : NULL;
    free(texts);
    return made;
}

static int make_command(const void *options, rlm_runtime **ret_runtime, rlm_error **err)
{
    return rlm_runtime_new_command(engine_loop(), options, ret_runtime, err);
}

static PyObject *runtime_command(PyObject *type, PyObject *args)
{
    struct rlm_command_options o = RLM_COMMAND_OPTIONS_INIT;
    PyObject *argv, *env, *made = NULL;
    if (!PyArg_ParseTuple(args, "O!zzO!", &PyList_Type, &argv, &o.python, &o.working_directory,
                          &PyList_Type, &env)) {
        return NULL;
    }
    const char **words = texts_of(argv);
    const char **texts = words ? texts_of(env) : NULL;
    if (texts) {
        o.argv = words;
        o.env = texts;
        made = wrap(type, make_command, &o);
    }
    free(words);
    free(texts);
    return made;
}

static PyMethodDef methods[] = {
    {"subprocess", runtime_subprocess, METH_VARARGS | METH_CLASS,
     "subprocess(python, working_directory, env, spare): plain child processes."},
    {"command", runtime_command, METH_VARARGS | METH_CLASS,
     "command(argv, python, working_directory, env): behind a command that passes a byte stream on."},
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
