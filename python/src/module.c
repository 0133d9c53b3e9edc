/* rlmflow._engine: the engine, for the package's own files. */
#include "answer.h"
#include "backend.h"
#include "graph.h"
#include "local.h"
#include "objects.h"
#include "run.h"
#include "text.h"

#include <stdlib.h>

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

/* prompt_section(section): without what a flow adds */
static PyObject *prompt_section(PyObject *module, PyObject *args)
{
    (void)module;
    int section;
    if (!PyArg_ParseTuple(args, "i", &section)) {
        return NULL;
    }
    char *text = rlm_flow_prompt_section(NULL, 0, (enum rlm_prompt_section)section);
    PyObject *result = text ? text_to_python(text, strlen(text)) : PyErr_NoMemory();
    free(text);
    return result;
}

static PyObject *reply_code(PyObject *module, PyObject *reply)
{
    (void)module;
    PyObject *keep = NULL;
    struct rlm_str text;
    char *code;
    size_t len;
    rlm_error *err = NULL;
    if (text_from_python(reply, &text, &keep) < 0) {
        return NULL;
    }
    int r = rlm_reply_code(text, &code, &len, &err);
    Py_DECREF(keep);
    if (r < 0) {
        return raise_error(err);
    }
    PyObject *result = text_to_python(code ? code : "", len);
    free(code);
    return result;
}

/* check_json(schema, value or None) */
static PyObject *check_json(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *schema, *value, *keep_schema = NULL, *keep_value = NULL;
    struct rlm_str schema_json, value_json = {NULL, 0};
    if (!PyArg_ParseTuple(args, "OO", &schema, &value) ||
        text_from_python(schema, &schema_json, &keep_schema) < 0) {
        return NULL;
    }
    if (value != Py_None && text_from_python(value, &value_json, &keep_value) < 0) {
        Py_DECREF(keep_schema);
        return NULL;
    }
    rlm_error *err = NULL;
    int r = rlm_json_check(schema_json, value_json, &err);
    Py_DECREF(keep_schema);
    Py_XDECREF(keep_value);
    if (r < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

static PyObject *conformance_checks(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    size_t n;
    const struct rlm_conformance_check *checks = rlm_conformance_checks(&n);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        const struct rlm_conformance_check *c = &checks[i];
        PyObject *one =
            Py_BuildValue("(ssszOOiLL)", c->name, c->promise, c->script, c->reason,
                          c->takes_text ? Py_True : Py_False, c->own_process ? Py_True : Py_False,
                          c->max_iters, (long long)c->exec_timeout_ms, (long long)c->max_time_ms);
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyMethodDef methods[] = {
    {"conformance_checks", conformance_checks, METH_NOARGS,
     "What every runtime must do, as rlmflow.testing tries it: tuples of the members of struct "
     "rlm_conformance_check."},
    {"prompt_section", prompt_section, METH_VARARGS,
     "prompt_section(section): a part of the engine's own system prompt, as every flow has it."},
    {"reply_code", reply_code, METH_O,
     "reply_code(reply): the code in a model's reply that would run; empty where there is none."},
    {"check_json", check_json, METH_VARARGS,
     "check_json(schema, value or None): ValueError for a JSON text that is no schema, or that does "
     "not fit it."},
    {"check_tool", run_check_tool, METH_O,
     "check_tool(tool): ValueError for one that a Run would not take."},
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
    {"load", engine_load, METH_VARARGS, "load(path) -> (Graph, what is missing or None)"},
    {"build", engine_build, METH_VARARGS, "build(lines of events) -> Graph"},
    {"export", engine_export, METH_VARARGS, "export(journal, path): a run as a directory."},
    {"fork_run", engine_fork_run, METH_VARARGS, "fork_run(journal, node, path, query)"},
    {NULL, NULL, 0, NULL},
};

/* One engine a process, and whatever it shares between threads the GIL keeps apart. */
static int check_interpreter(void)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "rlmflow has one engine a process, for the main "
                                           "interpreter: no sub-interpreter can import it");
        return -1;
    }
    PyObject *asked = PySys_GetObject("_is_gil_enabled"); /* from 3.13 on */
    PyObject *enabled = asked ? PyObject_CallObject(asked, NULL) : NULL;
    int is_enabled = enabled ? PyObject_IsTrue(enabled) : asked ? -1 : 1;
    Py_XDECREF(enabled);
    if (is_enabled == 0) {
        PyErr_SetString(
            PyExc_ImportError,
            "rlmflow needs the interpreter's lock (the GIL), without which this process "
            "runs: leave out -X gil=0 and PYTHON_GIL=0");
    }
    return is_enabled == 1 ? 0 : -1;
}

/* The types outlive a module that is imported anew. */
static int add_type(PyObject *module, PyType_Spec *spec, PyObject **type)
{
    if (!*type) {
        *type = PyType_FromSpec(spec);
    }
    const char *name = strrchr(spec->name, '.') + 1;
    if (!*type) {
        return -1;
    }
    Py_INCREF(*type);
    if (PyModule_AddObject(module, name, *type) < 0) {
        Py_DECREF(*type);
        return -1;
    }
    return 0;
}

static int fill(PyObject *module)
{
    static PyObject *run_type;
    if (check_interpreter() < 0 || add_type(module, &answer_spec, &answer_type) < 0 ||
        add_type(module, &backend_spec, &backend_type) < 0 ||
        add_type(module, &model_spec, &model_type) < 0 ||
        add_type(module, &runtime_spec, &runtime_type) < 0 ||
        add_type(module, &graph_spec, &graph_type) < 0 ||
        add_type(module, &tree_spec, &tree_type) < 0) {
        return -1;
    }
    return add_type(module, &run_spec, &run_type);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "rlmflow._engine",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__engine(void);
PyMODINIT_FUNC PyInit__engine(void)
{
    return PyModuleDef_Init(&definition);
}
