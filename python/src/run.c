/* The methods of a Run: starting it, and looking at it while it goes on and afterwards. */
#include "run.h"

#include "backend.h"

#include "node.h"
#include "objects.h"
#include "text.h"

#include <stdlib.h>

/* ---- starting -------------------------------------------------------------------------------- */

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
        o.keep_sessions = true;
        o.restore = (enum rlm_restore_mode)restore;
        o.inputs = taken;
        o.n_inputs = (size_t)PyList_Size(inputs);
        engine_enter();
        r = rlm_run_start(self->flow, &o, &run_events, self, &self->run, &err);
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
    o.keep_sessions = true;
    o.restore = (enum rlm_restore_mode)restore;
    engine_enter();
    int r = rlm_flow_resume(self->flow, &o, &run_events, self, &self->run, &err);
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
    int r = rlm_flow_replay(self->flow, &o, &run_events, self, &self->run, &err);
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

/* ask(query, hooks): of a run that has ended */
static PyObject *run_ask(PyObject *object, PyObject *args)
{
    struct run_object *self = (struct run_object *)object;
    PyObject *text, *held;
    struct rlm_str query;
    int hooks;
    if (!PyArg_ParseTuple(args, "Oi", &text, &hooks) || check_begun(self) < 0 ||
        text_from_python(text, &query, &held) < 0) {
        return NULL;
    }
    rlm_error *err = NULL;
    int had = self->hooks;
    engine_enter();
    self->hooks |= hooks & HOOKS_AT_ANY_TIME;
    int r = rlm_run_ask(self->run, query, &err);
    self->hooks = r < 0 ? had : self->hooks;
    engine_leave();
    Py_DECREF(held);
    if (r < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

static PyObject *run_close_sessions(PyObject *object, PyObject *none)
{
    (void)none;
    struct run_object *self = (struct run_object *)object;
    if (check_begun(self) < 0) {
        return NULL;
    }
    engine_enter();
    rlm_run_close_sessions(self->run);
    engine_leave();
    Py_RETURN_NONE;
}

static PyObject *run_has_ended(PyObject *object, PyObject *none)
{
    (void)none;
    struct run_object *self = (struct run_object *)object;
    if (check_begun(self) < 0) {
        return NULL;
    }
    engine_enter();
    bool ended = rlm_run_has_ended(self->run);
    engine_leave();
    return PyBool_FromLong(ended);
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

/* open_inner(backend, Runtime): a session of it, which the backend wraps */
static PyObject *run_open_inner(PyObject *object, PyObject *args)
{
    PyObject *backend, *runtime;
    if (!PyArg_ParseTuple(args, "OO", &backend, &runtime)) {
        return NULL;
    }
    rlm_runtime *inner = runtime_of(runtime);
    PyObject *kept = ((struct run_object *)object)->kept;
    if (!inner || (!PySequence_Contains(kept, runtime) && PyList_Append(kept, runtime) < 0)) {
        return NULL;
    }
    return backend_open_inner(backend, inner);
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
        "{s:N,s:N,s:N,s:i,s:z,s:(LLLLLL)}", "answer", str_to_python(rlm_run_answer(self->run)),
        "reason", text_to_python(reason, strlen(reason)), "message",
        text_to_python(message, strlen(message)), "code", rlm_error_code(error), "path",
        rlm_run_path(self->run), "usage", u.calls, u.input_tokens, u.cached_tokens, u.output_tokens,
        u.cost_nano, u.estimated);
    engine_leave_unchanged();
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
    engine_leave_unchanged();
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
    engine_leave_unchanged();
    if (!root) {
        Py_RETURN_NONE;
    }
    return graph_new(object, root, "root");
}

/* tree(width, max_lines, color): with what each agent is doing now; None: there is no graph yet */
static PyObject *run_tree(PyObject *object, PyObject *args)
{
    struct run_object *self = (struct run_object *)object;
    struct rlm_view_options o = RLM_VIEW_OPTIONS_INIT;
    int color;
    if (!PyArg_ParseTuple(args, "iip", &o.width, &o.max_lines, &color) || check_begun(self) < 0) {
        return NULL;
    }
    o.color = color;
    o.run = self->run;
    engine_enter();
    rlm_graph *root = rlm_run_graph(self->run);
    char *text = root ? rlm_view_tree(root, &o) : NULL;
    engine_leave_unchanged();
    if (!root) {
        Py_RETURN_NONE;
    }
    PyObject *result = text ? text_to_python(text, strlen(text)) : PyErr_NoMemory();
    free(text);
    return result;
}

static PyObject *run_prompt_section(PyObject *object, PyObject *args)
{
    struct run_object *self = (struct run_object *)object;
    int section, depth;
    if (!PyArg_ParseTuple(args, "ii", &section, &depth) || (engine_is_forked() && engine_start())) {
        return NULL;
    }
    engine_enter();
    char *text = rlm_flow_prompt_section(self->flow, depth, (enum rlm_prompt_section)section);
    engine_leave();
    PyObject *result = text ? text_to_python(text, strlen(text)) : PyErr_NoMemory();
    free(text);
    return result;
}

static PyMethodDef methods[] = {
    {"start", (PyCFunction)(void *)run_start, METH_VARARGS | METH_KEYWORDS, "Starts a new run."},
    {"resume", (PyCFunction)(void *)run_resume, METH_VARARGS | METH_KEYWORDS,
     "Goes on with a run from its journal."},
    {"replay", run_replay, METH_VARARGS, "replay(journal, execute): the same run again."},
    {"fileno", run_fileno, METH_NOARGS, "Readable when there are requests to take."},
    {"take", run_take, METH_NOARGS, "The requests that have come."},
    {"stop", run_stop, METH_NOARGS, "Stops it where it is; \"ended\" follows."},
    {"ask", run_ask, METH_VARARGS, "ask(query, hooks): a run that has ended goes on."},
    {"close_sessions", run_close_sessions, METH_NOARGS, "Lets go of what it kept at its end."},
    {"has_ended", run_has_ended, METH_NOARGS, "It has, and is asked nothing more yet."},
    {"terminate", run_terminate, METH_VARARGS, "terminate(agent_id or None): ends an agent."},
    {"is_held", run_is_held, METH_NOARGS, "Every unfinished agent waits for a gate."},
    {"append", run_append, METH_VARARGS,
     "append(agent_id, node): at a gate of exec_turn or next_step; the node's JSON text."},
    {"tree", run_tree, METH_VARARGS, "tree(width, max_lines, color): what each agent is doing."},
    {"prompt_section", run_prompt_section, METH_VARARGS,
     "prompt_section(section, depth): a part of the engine's own system prompt."},
    {"open_inner", run_open_inner, METH_VARARGS,
     "open_inner(backend, runtime): opens the session that a backend wraps."},
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
