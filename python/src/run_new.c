/* Making a Run: a flow with the limits, models, tools and hooks that Python gives. */
#include "backend.h"
#include "objects.h"
#include "run.h"
#include "text.h"

#include <stddef.h>
#include <stdlib.h>

static const struct {
    const char *name;
    size_t offset, size;
} limit_table[] = {
#define LIMIT(name)                                                                         \
    {                                                                                       \
#        name, offsetof(struct rlm_limits, name), sizeof(((struct rlm_limits *)NULL)->name) \
    }
    LIMIT(max_depth),         LIMIT(max_iters),          LIMIT(child_max_iters),
    LIMIT(max_budget),        LIMIT(max_cost_nano),      LIMIT(max_time_ms),
    LIMIT(max_output_length), LIMIT(max_query_chars),    LIMIT(max_messages),
    LIMIT(max_output_tokens), LIMIT(exec_timeout_ms),    LIMIT(cpu_time_ms),
    LIMIT(workers),           LIMIT(max_live),           LIMIT(max_agents),
    LIMIT(max_input_bytes),   LIMIT(request_timeout_ms),
#undef LIMIT
};

static int take_limits(PyObject *dict, struct rlm_limits *limits)
{
    for (size_t i = 0; i < sizeof limit_table / sizeof *limit_table; i++) {
        PyObject *value = PyDict_GetItemString(dict, limit_table[i].name);
        if (!value) {
            continue;
        }
        long long number = PyLong_AsLongLong(value);
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        char *field = (char *)limits + limit_table[i].offset;
        if (limit_table[i].size == sizeof(int)) {
            if (number < INT32_MIN || number > INT32_MAX) {
                PyErr_Format(PyExc_OverflowError, "%s is too large", limit_table[i].name);
                return -1;
            }
            *(int *)(void *)field = (int)number;
        } else {
            *(int64_t *)(void *)field = number;
        }
    }
    return 0;
}

/* A model of the list: (name, name for records, Model or None, (input, cached_input, cache_write, output),
 * one_at_a_time). */
static rlm_model *
take_model(struct run_object *self, PyObject *item, struct callee *callee, const char **ret_name)
{
    PyObject *object;
    struct rlm_custom_model_options o = RLM_CUSTOM_MODEL_OPTIONS_INIT;
    int one_at_a_time;
    if (!PyArg_ParseTuple(item, "ssO(dddd)p", ret_name, &o.name, &object, &o.price.input,
                          &o.price.cached_input, &o.price.cache_write, &o.price.output,
                          &one_at_a_time)) {
        return NULL;
    }
    if (object != Py_None) {
        return PyList_Append(self->kept, object) < 0 ? NULL : model_of(object);
    }
    rlm_error *err = NULL;
    o.one_at_a_time = one_at_a_time;
    o.chat = run_on_chat;
    o.arg = callee;
    engine_enter();
    int r = rlm_model_new_custom(engine_loop(), &o, &callee->model, &err);
    engine_leave_unchanged();
    if (r < 0) {
        raise_error(err);
        return NULL;
    }
    return callee->model;
}

/* A tool of the list: (name, description, signature, parameters, source, idempotent, is_async, max_calls,
 * timeout_ms, max_result_bytes); with a source of None it runs on the host. */
static int take_tool(PyObject *item, struct rlm_tool_options *o)
{
    int idempotent, is_async;
    long long max_calls, timeout_ms, max_result_bytes;
    if (!PyArg_ParseTuple(item, "sszzzppLLL", &o->name, &o->description, &o->signature,
                          &o->parameters_json, &o->source, &idempotent, &is_async, &max_calls,
                          &timeout_ms, &max_result_bytes)) {
        return -1;
    }
    o->run = o->source ? NULL : run_on_tool;
    o->idempotent = idempotent;
    o->is_async = is_async;
    o->encoded = true;
    o->limits = (struct rlm_tool_limits){max_calls, timeout_ms, max_result_bytes};
    return 0;
}

PyObject *run_check_tool(PyObject *module, PyObject *item)
{
    (void)module;
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    rlm_error *err = NULL;
    if (take_tool(item, &o) < 0) {
        return NULL;
    }
    if (rlm_tool_check(&o, &err) < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

static int add_tool(struct run_object *self, PyObject *item, struct callee *callee)
{
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    if (take_tool(item, &o) < 0) {
        return -1;
    }
    o.arg = callee;
    rlm_error *err = NULL;
    engine_enter();
    int r = rlm_flow_add_tool(self->flow, &o, &err);
    engine_leave_unchanged();
    if (r < 0) {
        raise_error(err);
    }
    return r;
}

static int
make_flow(struct run_object *self, PyObject *models, struct rlm_flow_options *o, const char *child)
{
    rlm_error *err = NULL;
    int r = 0;
    for (Py_ssize_t i = 0; r == 0 && i < PyList_Size(models); i++) {
        const char *name;
        struct callee *callee = &self->callees[i];
        *callee = (struct callee){.run = self, .index = i};
        rlm_model *model = take_model(self, PyList_GetItem(models, i), callee, &name);
        if (!model) {
            return -1;
        }
        engine_enter();
        if (i == 0) {
            o->model = model;
            r = rlm_flow_new(engine_loop(), o, &self->flow, &err);
        } else {
            r = rlm_flow_add_model(self->flow, name, model, &err);
        }
        engine_leave_unchanged();
    }
    if (r == 0 && child) {
        engine_enter();
        r = rlm_flow_set_child_model(self->flow, child, &err);
        engine_leave_unchanged();
    }
    if (r == 0) {
        struct rlm_flow_hooks hooks = run_hooks(self);
        engine_enter();
        r = rlm_flow_set_hooks(self->flow, &hooks, &err);
        engine_leave_unchanged();
    }
    if (r < 0) {
        raise_error(err);
    }
    return r;
}

/* With a name: one whose sessions Python opens. */
static rlm_runtime *
take_runtime(struct run_object *self, PyObject *runtime, const char *name, const char *effects)
{
    if (name) {
        self->custom = backend_runtime_new(self->port, name, effects);
    }
    return name ? self->custom : runtime_of(runtime);
}

int run_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"models", "tools",       "limits", "runtime", "system_prompt",
                            "hooks",  "child_model", "custom", NULL};
    struct run_object *self = (struct run_object *)object;
    PyObject *models, *tools, *limits, *runtime;
    const char *child, *name = NULL, *effects = NULL;
    struct rlm_flow_options o = RLM_FLOW_OPTIONS_INIT;
    if (self->port) {
        PyErr_SetString(PyExc_RuntimeError, "a Run is made once");
        return -1;
    }
    if (engine_start() < 0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOziz(zz)", names, &models, &tools, &limits,
                                     &runtime, &o.system_prompt, &self->hooks, &child, &name,
                                     &effects)) {
        return -1;
    }
    Py_ssize_t n_models = PyList_Size(models), n_tools = PyList_Size(tools);
    if (n_models < 1 || n_tools < 0 || take_limits(limits, &o.limits) < 0 ||
        !(self->kept = PyList_New(0)) || PyList_Append(self->kept, runtime) < 0 ||
        !(self->port = port_new()) || !(o.runtime = take_runtime(self, runtime, name, effects))) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a run needs a model");
        }
        return -1;
    }
    self->n_callees = (size_t)(n_models + n_tools);
    self->callees = calloc(self->n_callees, sizeof *self->callees);
    if (!self->callees) {
        PyErr_NoMemory();
        return -1;
    }
    if (make_flow(self, models, &o, child) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n_tools; i++) {
        struct callee *callee = &self->callees[n_models + i];
        *callee = (struct callee){.run = self, .index = i};
        if (add_tool(self, PyList_GetItem(tools, i), callee) < 0) {
            return -1;
        }
    }
    return 0;
}

void run_dealloc(PyObject *object)
{
    struct run_object *self = (struct run_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (!engine_is_forked() && (self->flow || self->callees || self->custom)) {
        engine_enter();
        if (self->port) {
            port_close(self->port);
        }
        rlm_run_free(self->run);
        rlm_flow_free(self->flow);
        for (size_t i = 0; i < self->n_callees; i++) {
            rlm_model_free(self->callees[i].model);
        }
        rlm_runtime_free(self->custom);
        engine_leave();
    }
    Py_XDECREF(self->kept);
    port_unref(self->port);
    free(self->callees);
    free(self->reason);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}
