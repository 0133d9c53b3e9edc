/* rlmflow._engine: the engine, for the package's own files. */
#include "answer.h"
#include "local.h"
#include "objects.h"

static PyObject *version(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    return PyUnicode_FromString(rlm_version());
}

static PyObject *stop(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    engine_stop();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"version", version, METH_NOARGS, "The version of the engine."},
    {"stop", stop, METH_NOARGS, "Ends the engine's thread, at the end of the process."},
    {"take_session", local_take_session, METH_VARARGS,
     "take_session(seconds): the next session of a local runtime, as (key, descriptor to hear on, "
     "descriptor to speak on, agent id); None when none came in time."},
    {"own_directory", local_own_directory, METH_NOARGS,
     "Gives the calling thread, and those that it will start, a working directory of their own."},
    {"interrupt_thread", local_interrupt_thread, METH_VARARGS,
     "interrupt_thread(thread, exception, globals, codes): raises it there, if the thread's innermost "
     "frame with these globals, where it has one, runs one of these codes. Whether it will be raised."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "rlmflow._engine",
    .m_size = -1, /* one engine a process: sub-interpreters are refused */
    .m_methods = methods,
};

static int add_type(PyObject *module, PyType_Spec *spec, PyObject **ret_type)
{
    *ret_type = PyType_FromSpec(spec);
    const char *name = strrchr(spec->name, '.') + 1;
    if (!*ret_type) {
        return -1;
    }
    Py_INCREF(*ret_type); /* the module's and ours */
    return PyModule_AddObject(module, name, *ret_type);
}

PyMODINIT_FUNC PyInit__engine(void);
PyMODINIT_FUNC PyInit__engine(void)
{
    PyObject *module = PyModule_Create(&definition), *run_type;
    if (!module || add_type(module, &answer_spec, &answer_type) < 0 ||
        add_type(module, &model_spec, &model_type) < 0 ||
        add_type(module, &runtime_spec, &runtime_type) < 0 ||
        add_type(module, &graph_spec, &graph_type) < 0 ||
        add_type(module, &run_spec, &run_type) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    Py_DECREF(run_type);
    return module;
}
