/* Model: one behind an HTTP API, or a scripted one. What Python answers for is made by the run. */
#include "objects.h"
#include "text.h"

PyObject *model_type;

struct model_object {
    PyObject_HEAD rlm_model *model;
};

static PyObject *take(PyTypeObject *type, rlm_model *model)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct model_object *self = (struct model_object *)alloc(type, 0);
    if (self) {
        self->model = model;
    } else {
        engine_enter();
        rlm_model_free(model);
        engine_leave();
    }
    return (PyObject *)self;
}

static void model_dealloc(PyObject *object)
{
    struct model_object *self = (struct model_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->model && !engine_is_forked()) {
        engine_enter();
        rlm_model_free(self->model);
        engine_leave();
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

rlm_model *model_of(PyObject *object)
{
    if (!PyObject_TypeCheck(object, (PyTypeObject *)model_type)) {
        PyErr_Format(PyExc_TypeError, "a Model is wanted here, not %R",
                     (PyObject *)Py_TYPE(object));
        return NULL;
    }
    return ((struct model_object *)object)->model;
}

enum { MAX_HEADERS = 64 };

/* Fills `headers` with the texts of a list of str; they live as long as the list. */
static int take_headers(PyObject *list, const char **headers)
{
    Py_ssize_t n = list == Py_None ? 0 : PyList_Size(list);
    if (n < 0 || n > MAX_HEADERS) {
        if (n > 0) {
            PyErr_Format(PyExc_ValueError, "at most %d headers", MAX_HEADERS);
        }
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        headers[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (!headers[i]) {
            return -1;
        }
    }
    headers[n] = NULL;
    return 0;
}

static PyObject *model_http(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"api",
                            "name",
                            "base_url",
                            "key",
                            "temperature",
                            "effort",
                            "headers",
                            "body",
                            "proxy",
                            "ca_file",
                            "stream",
                            "connect_timeout_ms",
                            "first_byte_timeout_ms",
                            "idle_timeout_ms",
                            "price",
                            "max_output_tokens",
                            NULL};
    struct rlm_model_options o = RLM_MODEL_OPTIONS_INIT;
    const char *api, *headers[MAX_HEADERS + 1];
    PyObject *header_list = Py_None;
    int stream = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss|zzdzOzzzpiii(dddd)i", names, &api, &o.name,
                                     &o.base_url, &o.key, &o.temperature, &o.reasoning_effort,
                                     &header_list, &o.body_json, &o.proxy, &o.ca_file, &stream,
                                     &o.connect_timeout_ms, &o.first_byte_timeout_ms,
                                     &o.idle_timeout_ms, &o.price.input, &o.price.cached_input,
                                     &o.price.cache_write, &o.price.output, &o.max_output_tokens) ||
        take_headers(header_list, headers) < 0 || engine_start() < 0) {
        return NULL;
    }
    o.api = strcmp(api, "anthropic") == 0 ? RLM_API_ANTHROPIC : RLM_API_OPENAI;
    o.headers = headers;
    o.no_stream = !stream;
    rlm_model *model = NULL;
    rlm_error *err = NULL;
    engine_enter();
    int r = rlm_model_new(engine_loop(), &o, &model, &err);
    engine_leave();
    return r < 0 ? raise_error(err) : take((PyTypeObject *)type, model);
}

/* scripted(path, text or None) */
static PyObject *model_scripted(PyObject *type, PyObject *args)
{
    const char *path;
    PyObject *text, *keep = NULL;
    struct rlm_str script;
    if (!PyArg_ParseTuple(args, "sO", &path, &text) ||
        (text != Py_None && text_from_python(text, &script, &keep) < 0)) {
        return NULL;
    }
    rlm_model *model = NULL;
    rlm_error *err = NULL;
    if (engine_start() < 0) {
        Py_XDECREF(keep);
        return NULL;
    }
    engine_enter();
    int r = keep ? rlm_model_new_script(engine_loop(), path, script, &model, &err)
                 : rlm_model_new_scripted(engine_loop(), path, &model, &err);
    engine_leave();
    Py_XDECREF(keep);
    return r < 0 ? raise_error(err) : take((PyTypeObject *)type, model);
}

static PyMethodDef methods[] = {
    {"http", (PyCFunction)(void *)model_http, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "http(api, name, ...): behind an HTTP API (\"openai\" or \"anthropic\")."},
    {"scripted", model_scripted, METH_VARARGS | METH_CLASS,
     "scripted(path, text or None): replies from a file, or from a text, of which `path` is the name."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, model_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A model that the engine asks by itself."},
    {0, NULL},
};

PyType_Spec model_spec = {
    .name = "rlmflow._engine.Model",
    .basicsize = sizeof(struct model_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
