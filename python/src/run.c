/* Run: one drive of one graph. It has a flow of its own, so that each of a Python Flow's runs has the limits,
 * tools and clients that the Flow had when the run began, and a port (port.h) for what it asks of
 * Python. */
#include "answer.h"
#include "node.h"
#include "objects.h"
#include "text.h"

#include <stddef.h>
#include <stdlib.h>

enum hook {
    HOOK_EXEC_TURN = 1,
    HOOK_MODEL_CALL = 2,
    HOOK_HOST_CALL = 4,
    HOOK_EVENTS = 8,      /* tell of each change of the graph */
    HOOK_ALL_EVENTS = 16, /* and of states, pieces of replies and notices */
    HOOK_NEXT_STEP = 32,
    HOOK_MESSAGES = 64,
};

/* What a model or tool that Python answers for belongs to. */
struct callee {
    struct run_object *run;
    long index;
    rlm_model *model; /* of a model */
};

struct run_object {
    PyObject_HEAD port *port;
    rlm_flow *flow;
    rlm_run *run;
    struct callee *callees;
    size_t n_callees;
    PyObject *kept; /* models and runtime, which outlive the flow */
    int hooks;
    char *reason; /* of the end, from then on */
};

/* ---- what the engine asks (its thread, or one that holds the lock) ----------------------------- */

static bool set_messages(struct request *r, const struct rlm_model_request *asked)
{
    r->messages = calloc(asked->n_messages ? asked->n_messages : 1, sizeof *r->messages);
    for (size_t i = 0; r->messages && i < asked->n_messages; i++) {
        struct rlm_str text = asked->messages[i].text;
        r->messages[i] = (struct message){asked->messages[i].role, malloc(text.len + 1), text.len};
        if (!r->messages[i].text) {
            return false;
        }
        memcpy(r->messages[i].text, text.ptr, text.len);
        r->n_messages++;
    }
    return r->messages != NULL;
}

/* Puts the request with its answer; without memory the call fails. */
static void put(struct run_object *self, struct request *r, struct answer *a, bool whole)
{
    if (r && a && whole) {
        r->answer = a;
        port_put(self->port, r);
        return;
    }
    if (a) {
        answer_refuse(a, "out of memory");
        answer_unref(a);
    }
    if (r) {
        request_free(r);
    }
}

static void on_chat(void *arg, rlm_model_call *call, const struct rlm_model_request *asked)
{
    struct callee *callee = arg;
    struct request *r = request_new(REQUEST_CHAT, asked->agent_id);
    struct answer *a = answer_new_model(callee->run->port, call);
    if (!a) {
        rlm_model_call_fail(call, RLM_E_NOMEM, "out of memory");
    }
    bool whole = r && set_messages(r, asked);
    if (r) {
        r->index = callee->index;
        r->max_output_tokens = asked->max_output_tokens;
        r->turn = asked->turn;
    }
    put(callee->run, r, a, whole);
}

static void on_tool(void *arg, rlm_tool_call *call, struct rlm_str arguments_json)
{
    struct callee *callee = arg;
    struct request *r = request_new(REQUEST_TOOL, rlm_tool_call_agent_id(call));
    struct answer *a = answer_new_tool(callee->run->port, call);
    if (!a) {
        rlm_tool_call_fail(call, "out of memory");
    }
    bool whole = r && request_set_text(r, arguments_json);
    if (r) {
        r->index = callee->index;
    }
    put(callee->run, r, a, whole);
}

static void put_gate(struct run_object *self,
                     enum request_kind kind,
                     rlm_gate *gate,
                     const rlm_graph *g,
                     struct rlm_str name,
                     struct rlm_str text,
                     bool replay)
{
    struct request *r = request_new(kind, rlm_graph_agent_id(g));
    struct answer *a = answer_new_gate(self->port, gate);
    if (!a) {
        rlm_gate_reject(gate, NULL, (struct rlm_str){"out of memory", 13});
    }
    bool whole = r && request_set_text(r, text) && request_set_name(r, name);
    if (r) {
        r->replay = replay;
    }
    put(self, r, a, whole);
}

static const struct rlm_str no_name = {"", 0};

static void on_exec_turn(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str code, bool replay)
{
    put_gate(arg, REQUEST_EXEC_TURN, gate, g, no_name, code, replay);
}

static void on_model_call(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str call_json)
{
    put_gate(arg, REQUEST_MODEL_CALL, gate, g, no_name, call_json, false);
}

static void on_host_call(void *arg,
                         rlm_gate *gate,
                         rlm_graph *g,
                         struct rlm_str name,
                         struct rlm_str arguments_json,
                         bool replay)
{
    put_gate(arg, REQUEST_HOST_CALL, gate, g, name, arguments_json, replay);
}

static void
on_messages(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str messages_json, bool final)
{
    put_gate(arg, REQUEST_MESSAGES, gate, g, no_name, messages_json, final);
}

static void on_next_step(void *arg, rlm_gate *gate, rlm_graph *g)
{
    put_gate(arg, REQUEST_NEXT_STEP, gate, g, no_name, no_name, false);
}

static void on_event(void *arg, rlm_run *run, const struct rlm_event *event)
{
    (void)run;
    struct run_object *self = arg;
    bool change = event->type <= RLM_EVENT_REMOVE_CHILD;
    if (!(self->hooks & HOOK_ALL_EVENTS) && !(change && self->hooks & HOOK_EVENTS)) {
        return;
    }
    struct request *r = request_new(REQUEST_EVENT, "");
    char *line = r ? rlm_event_json(event) : NULL;
    if (!line) {
        free(r);
        return; /* what is only shown may be lost without memory */
    }
    r->text = line;
    r->text_len = strlen(line);
    port_put(self->port, r);
}

static void on_ended(void *arg, rlm_run *run)
{
    (void)run;
    struct run_object *self = arg;
    port_put(self->port, request_new(REQUEST_ENDED, ""));
}

/* ---- making ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset, size;
} limit_table[] = {
#define LIMIT(name)                                                                         \
    {                                                                                       \
#        name, offsetof(struct rlm_limits, name), sizeof(((struct rlm_limits *)NULL)->name) \
    }
    LIMIT(max_depth),         LIMIT(max_iters),       LIMIT(child_max_iters),
    LIMIT(max_budget),        LIMIT(max_cost_nano),   LIMIT(max_time_ms),
    LIMIT(max_output_length), LIMIT(max_query_chars), LIMIT(max_messages),
    LIMIT(max_output_tokens), LIMIT(exec_timeout_ms), LIMIT(cpu_time_ms),
    LIMIT(workers),           LIMIT(max_live),        LIMIT(max_agents),
    LIMIT(max_input_bytes),
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

/* A model of the list: (name, Model or None, (input, cached_input, cache_write, output)). */
static rlm_model *
take_model(struct run_object *self, PyObject *item, struct callee *callee, const char **ret_name)
{
    PyObject *object;
    struct rlm_custom_model_options o = RLM_CUSTOM_MODEL_OPTIONS_INIT;
    if (!PyArg_ParseTuple(item, "ssO(dddd)", ret_name, &o.name, &object, &o.price.input,
                          &o.price.cached_input, &o.price.cache_write, &o.price.output)) {
        return NULL;
    }
    if (object != Py_None) {
        return PyList_Append(self->kept, object) < 0 ? NULL : model_of(object);
    }
    rlm_error *err = NULL;
    o.chat = on_chat;
    o.arg = callee;
    engine_enter();
    int r = rlm_model_new_custom(engine_loop(), &o, &callee->model, &err);
    engine_leave();
    if (r < 0) {
        raise_error(err);
        return NULL;
    }
    return callee->model;
}

/* A tool of the list: (name, description, parameters, idempotent, is_async, max_calls, timeout_ms, max_result). */
static int add_tool(struct run_object *self, PyObject *item, struct callee *callee)
{
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    int idempotent, is_async;
    long long max_calls, timeout_ms, max_result_bytes;
    if (!PyArg_ParseTuple(item, "sszppLLL", &o.name, &o.description, &o.parameters_json,
                          &idempotent, &is_async, &max_calls, &timeout_ms, &max_result_bytes)) {
        return -1;
    }
    o.run = on_tool;
    o.arg = callee;
    o.idempotent = idempotent;
    o.is_async = is_async;
    o.limits = (struct rlm_tool_limits){max_calls, timeout_ms, max_result_bytes};
    rlm_error *err = NULL;
    engine_enter();
    int r = rlm_flow_add_tool(self->flow, &o, &err);
    engine_leave();
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
        engine_leave();
    }
    if (r == 0 && child) {
        engine_enter();
        r = rlm_flow_set_child_model(self->flow, child, &err);
        engine_leave();
    }
    if (r == 0) {
        struct rlm_flow_hooks hooks = RLM_FLOW_HOOKS_INIT;
        hooks.arg = self;
        hooks.exec_turn = self->hooks & HOOK_EXEC_TURN ? on_exec_turn : NULL;
        hooks.model_call = self->hooks & HOOK_MODEL_CALL ? on_model_call : NULL;
        hooks.host_call = self->hooks & HOOK_HOST_CALL ? on_host_call : NULL;
        hooks.messages = self->hooks & HOOK_MESSAGES ? on_messages : NULL;
        hooks.next_step = self->hooks & HOOK_NEXT_STEP ? on_next_step : NULL;
        engine_enter();
        r = rlm_flow_set_hooks(self->flow, &hooks, &err);
        engine_leave();
    }
    if (r < 0) {
        raise_error(err);
    }
    return r;
}

static int run_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"models",        "tools", "limits",      "runtime",
                            "system_prompt", "hooks", "child_model", NULL};
    struct run_object *self = (struct run_object *)object;
    PyObject *models, *tools, *limits, *runtime;
    const char *child;
    struct rlm_flow_options o = RLM_FLOW_OPTIONS_INIT;
    if (self->port) {
        PyErr_SetString(PyExc_RuntimeError, "a Run is made once");
        return -1;
    }
    if (engine_start() < 0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOziz", names, &models, &tools, &limits,
                                     &runtime, &o.system_prompt, &self->hooks, &child)) {
        return -1;
    }
    Py_ssize_t n_models = PyList_Size(models), n_tools = PyList_Size(tools);
    o.runtime = runtime_of(runtime);
    if (n_models < 1 || n_tools < 0 || !o.runtime || take_limits(limits, &o.limits) < 0 ||
        !(self->kept = PyList_New(0)) || PyList_Append(self->kept, runtime) < 0 ||
        !(self->port = port_new())) {
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

static void run_dealloc(PyObject *object)
{
    struct run_object *self = (struct run_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (!engine_is_forked() && (self->flow || self->callees)) {
        engine_enter();
        rlm_run_free(self->run);
        rlm_flow_free(self->flow);
        for (size_t i = 0; i < self->n_callees; i++) {
            rlm_model_free(self->callees[i].model);
        }
        engine_leave();
    }
    Py_XDECREF(self->kept);
    port_unref(self->port);
    free(self->callees);
    free(self->reason);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- starting -------------------------------------------------------------------------------- */

static const struct rlm_run_events events = {.event = on_event, .ended = on_ended};

static int check_fresh(const struct run_object *self)
{
    if (engine_is_forked()) {
        return engine_start();
    }
    if (!self->flow || self->run) {
        PyErr_SetString(PyExc_RuntimeError, "a Run is started once");
        return -1;
    }
    return 0;
}

/* Inputs: a list of (name, kind, value or path, encoding); `keep` gets what holds their texts. */
static struct rlm_input *take_inputs(PyObject *list, PyObject *keep)
{
    Py_ssize_t n = PyList_Size(list);
    struct rlm_input *inputs = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *inputs);
    for (Py_ssize_t i = 0; inputs && i < n; i++) {
        struct rlm_input *in = &inputs[i];
        PyObject *value, *held = NULL;
        int kind, r = 0;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "siOz", &in->name, &kind, &value,
                              &in->encoding)) {
            r = -1;
        } else if ((in->kind = (enum rlm_input_kind)kind) == RLM_INPUT_BYTES) {
            char *ptr;
            Py_ssize_t len;
            r = PyBytes_AsStringAndSize(value, &ptr, &len);
            in->value = (struct rlm_str){ptr, (size_t)len};
        } else {
            r = text_from_python(value, &in->value, &held);
            in->path = in->value.ptr;
        }
        if (r == 0 && held) {
            r = PyList_Append(keep, held);
        }
        Py_XDECREF(held);
        if (r < 0) {
            free(inputs);
            return NULL;
        }
    }
    if (!inputs && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    return inputs;
}

static PyObject *run_start(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"query", "inputs", "output_schema", "journal", "sync", "restore", NULL};
    struct run_object *self = (struct run_object *)object;
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    PyObject *query, *inputs, *held = NULL;
    int sync, restore;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOzzpi", names, &query, &inputs,
                                     &o.output_schema, &o.journal, &sync, &restore) ||
        check_fresh(self) < 0 || text_from_python(query, &o.query, &held) < 0) {
        return NULL;
    }
    PyObject *keep = PyList_New(0);
    struct rlm_input *taken = keep ? take_inputs(inputs, keep) : NULL;
    rlm_error *err = NULL;
    int r = -1;
    if (taken) {
        o.sync = sync;
        o.restore = (enum rlm_restore_mode)restore;
        o.inputs = taken;
        o.n_inputs = (size_t)PyList_Size(inputs);
        engine_enter();
        r = rlm_run_start(self->flow, &o, &events, self, &self->run, &err);
        engine_leave();
    }
    free(taken);
    Py_XDECREF(keep);
    Py_XDECREF(held);
    if (r < 0) {
        return err ? raise_error(err) : NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *run_resume(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"journal", "query", "cut", "sync", "restore", NULL};
    struct run_object *self = (struct run_object *)object;
    struct rlm_resume_options o = RLM_RESUME_OPTIONS_INIT;
    PyObject *query, *held;
    int cut, sync, restore;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOppi", names, &o.journal, &query, &cut, &sync,
                                     &restore) ||
        check_fresh(self) < 0 || text_from_python(query, &o.query, &held) < 0) {
        return NULL;
    }
    rlm_error *err = NULL;
    o.cut = cut;
    o.sync = sync;
    o.restore = (enum rlm_restore_mode)restore;
    engine_enter();
    int r = rlm_flow_resume(self->flow, &o, &events, self, &self->run, &err);
    engine_leave();
    Py_DECREF(held);
    if (r < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

static PyObject *run_replay(PyObject *object, PyObject *args)
{
    struct run_object *self = (struct run_object *)object;
    struct rlm_replay_options o = RLM_REPLAY_OPTIONS_INIT;
    int execute;
    if (!PyArg_ParseTuple(args, "sp", &o.journal, &execute) || check_fresh(self) < 0) {
        return NULL;
    }
    rlm_error *err = NULL;
    o.execute = execute;
    engine_enter();
    int r = rlm_flow_replay(self->flow, &o, &events, self, &self->run, &err);
    engine_leave();
    if (r < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

/* ---- while it goes on and afterwards ---------------------------------------------------------- */

static int check_begun(const struct run_object *self)
{
    if (engine_is_forked()) {
        return engine_start();
    }
    if (!self->run) {
        PyErr_SetString(PyExc_RuntimeError, "the run has not been started");
        return -1;
    }
    return 0;
}

static PyObject *run_fileno(PyObject *self, PyObject *none)
{
    (void)none;
    return PyLong_FromLong(port_fd(((struct run_object *)self)->port));
}

static PyObject *run_take(PyObject *self, PyObject *none)
{
    (void)none;
    return port_take(((struct run_object *)self)->port);
}

static PyObject *run_stop(PyObject *object, PyObject *none)
{
    (void)none;
    struct run_object *self = (struct run_object *)object;
    if (check_begun(self) < 0) {
        return NULL;
    }
    engine_enter();
    rlm_run_stop(self->run);
    engine_leave();
    Py_RETURN_NONE;
}

static PyObject *run_terminate(PyObject *object, PyObject *args)
{
    struct run_object *self = (struct run_object *)object;
    const char *agent_id;
    if (!PyArg_ParseTuple(args, "z", &agent_id) || check_begun(self) < 0) {
        return NULL;
    }
    rlm_error *err = NULL;
    engine_enter();
    int r = rlm_run_terminate(self->run, agent_id, &err);
    engine_leave();
    if (r < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

static PyObject *run_is_held(PyObject *object, PyObject *none)
{
    (void)none;
    struct run_object *self = (struct run_object *)object;
    if (check_begun(self) < 0) {
        return NULL;
    }
    engine_enter();
    bool held = rlm_run_is_held(self->run);
    engine_leave();
    return PyBool_FromLong(held);
}

/* append(agent_id, node) -> the appended node's JSON text */
static PyObject *run_append(PyObject *object, PyObject *args)
{
    struct run_object *self = (struct run_object *)object;
    const char *agent_id;
    PyObject *dict;
    struct node_of_python node;
    if (!PyArg_ParseTuple(args, "sO", &agent_id, &dict) || check_begun(self) < 0 ||
        node_from_python(dict, &node) < 0) {
        return NULL;
    }
    const struct rlm_node *kept = NULL;
    rlm_error *err = NULL;
    engine_enter();
    int r = rlm_run_append(self->run, agent_id, &node.node, &kept, &err);
    char *json =
        r == 0 ? rlm_node_json(rlm_graph_agent(rlm_run_graph(self->run), agent_id), kept) : NULL;
    engine_leave();
    Py_DECREF(node.keep);
    if (r < 0) {
        return raise_error(err);
    }
    PyObject *result = json ? text_to_python(json, strlen(json)) : PyErr_NoMemory();
    free(json);
    return result;
}

static PyObject *run_outcome(PyObject *object, PyObject *none)
{
    (void)none;
    struct run_object *self = (struct run_object *)object;
    if (check_begun(self) < 0) {
        return NULL;
    }
    engine_enter();
    struct rlm_usage u = rlm_run_usage(self->run);
    const char *reason = rlm_run_reason(self->run), *message = rlm_run_message(self->run);
    const rlm_error *error = rlm_run_error(self->run);
    PyObject *result = Py_BuildValue(
        "{s:N,s:s,s:N,s:i,s:z,s:(LLLLLL)}", "answer", str_to_python(rlm_run_answer(self->run)),
        "reason", reason, "message", text_to_python(message, strlen(message)), "code",
        rlm_error_code(error), "path", rlm_run_path(self->run), "usage", u.calls, u.input_tokens,
        u.cached_tokens, u.output_tokens, u.cost_nano, u.estimated);
    engine_leave();
    return result;
}

static PyObject *run_report(PyObject *object, PyObject *none)
{
    (void)none;
    struct run_object *self = (struct run_object *)object;
    if (check_begun(self) < 0) {
        return NULL;
    }
    engine_enter();
    const struct rlm_replay_report *r = rlm_run_replay_report(self->run);
    PyObject *result =
        r ? Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:z,s:L,s:O,s:z,s:i,s:L,s:z,s:N,s:N}", "nodes",
                          (Py_ssize_t)r->nodes, "calls", (Py_ssize_t)r->calls, "cells_run",
                          (Py_ssize_t)r->cells_run, "cells_not_run", (Py_ssize_t)r->cells_not_run,
                          "outputs_differ", (Py_ssize_t)r->outputs_differ, "first_output_agent_id",
                          r->first_output_agent_id, "first_output_cell",
                          (long long)r->first_output_cell, "diverged",
                          r->diverged ? Py_True : Py_False, "agent_id", r->agent_id, "turn",
                          r->turn, "cell", (long long)r->cell, "what", r->what, "recorded",
                          str_to_python(r->recorded), "replayed", str_to_python(r->replayed))
          : NULL;
    engine_leave();
    if (!r) {
        PyErr_SetString(PyExc_RuntimeError, "the run is no replay");
    }
    return result;
}

static PyObject *run_graph(PyObject *object, PyObject *none)
{
    (void)none;
    struct run_object *self = (struct run_object *)object;
    if (check_begun(self) < 0) {
        return NULL;
    }
    engine_enter();
    rlm_graph *root = rlm_run_graph(self->run);
    engine_leave();
    if (!root) {
        Py_RETURN_NONE;
    }
    return graph_new(object, root, "root");
}

static PyMethodDef methods[] = {
    {"start", (PyCFunction)(void *)run_start, METH_VARARGS | METH_KEYWORDS, "Starts a new run."},
    {"resume", (PyCFunction)(void *)run_resume, METH_VARARGS | METH_KEYWORDS,
     "Goes on with a run from its journal."},
    {"replay", run_replay, METH_VARARGS, "replay(journal, execute): the same run again."},
    {"fileno", run_fileno, METH_NOARGS, "Readable when there are requests to take."},
    {"take", run_take, METH_NOARGS, "The requests that have come."},
    {"stop", run_stop, METH_NOARGS, "Stops it where it is; \"ended\" follows."},
    {"terminate", run_terminate, METH_VARARGS, "terminate(agent_id or None): ends an agent."},
    {"is_held", run_is_held, METH_NOARGS, "Every unfinished agent waits for a gate."},
    {"append", run_append, METH_VARARGS,
     "append(agent_id, node): at a gate of exec_turn or next_step; the node's JSON text."},
    {"outcome", run_outcome, METH_NOARGS, "Answer, reason, message, usage, path."},
    {"report", run_report, METH_NOARGS, "What a replay has found."},
    {"graph", run_graph, METH_NOARGS, "The root, or None while the inputs are taken in."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, run_init},   {Py_tp_new, PyType_GenericNew},         {Py_tp_dealloc, run_dealloc},
    {Py_tp_methods, methods}, {Py_tp_doc, "One drive of one graph."}, {0, NULL},
};

PyType_Spec run_spec = {
    .name = "rlmflow._engine.Run",
    .basicsize = sizeof(struct run_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
