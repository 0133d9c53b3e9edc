/* Graph: a look at one agent of a tree, which a run or the object `owner` keeps alive. Each look takes the
 * engine's lock, so it is whole also while the run goes on. */
#include "graph.h"

#include "objects.h"
#include "text.h"

#include <stdlib.h>

PyObject *graph_type;

PyObject *graph_new(PyObject *owner, rlm_graph *root, const char *agent_id)
{
    PyTypeObject *type = (PyTypeObject *)graph_type;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct graph_object *self = (struct graph_object *)alloc(type, 0);
    if (self) {
        Py_INCREF(owner);
        self->owner = owner;
        self->root = root;
        self->agent_id = strdup(agent_id);
        if (!self->agent_id) {
            Py_DECREF((PyObject *)self);
            PyErr_NoMemory();
            return NULL;
        }
    }
    return (PyObject *)self;
}

static void graph_dealloc(PyObject *object)
{
    struct graph_object *self = (struct graph_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->owner);
    free(self->agent_id);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

rlm_graph *graph_enter(PyObject *object)
{
    struct graph_object *self = (struct graph_object *)object;
    if (engine_is_forked()) {
        engine_start(); /* says why not */
        return NULL;
    }
    engine_enter();
    rlm_graph *g = rlm_graph_agent(self->root, self->agent_id);
    if (!g) {
        engine_leave_unchanged();
        PyErr_Format(PyExc_KeyError, "agent %s is not in this graph any more", self->agent_id);
    }
    return g;
}

static PyObject *graph_info(PyObject *object, PyObject *none)
{
    (void)none;
    rlm_graph *g = graph_enter(object);
    if (!g) {
        return NULL;
    }
    rlm_graph *parent = rlm_graph_parent(g);
    const char *agent_id = rlm_graph_agent_id(g), *graph_id = rlm_graph_id(g);
    PyObject *result = Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:i,s:z,s:N}", "agent_id", text_to_python(agent_id, strlen(agent_id)),
        "graph_id", text_to_python(graph_id, strlen(graph_id)), "query",
        str_to_python(rlm_graph_query(g)), "inputs", str_to_python(rlm_graph_inputs(g)), "model",
        str_to_python(rlm_graph_model(g)), "depth", rlm_graph_depth(g), "parent_agent_id",
        parent ? rlm_graph_agent_id(parent) : NULL, "output_schema",
        str_to_python(rlm_graph_output_schema(g)));
    engine_leave_unchanged();
    return result;
}

/* nodes(start) -> list of JSON texts, from that position on */
static PyObject *graph_nodes(PyObject *object, PyObject *start)
{
    Py_ssize_t from = PyLong_AsSsize_t(start);
    if (from < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "the start is not negative");
        }
        return NULL;
    }
    rlm_graph *g = graph_enter(object);
    PyObject *list = g ? PyList_New(0) : NULL;
    size_t n = g ? rlm_graph_node_count(g) : 0;
    for (size_t i = (size_t)from; list && i < n; i++) {
        char *json = rlm_node_json(g, rlm_graph_node(g, i));
        PyObject *text = json ? text_to_python(json, strlen(json)) : PyErr_NoMemory();
        if (!text || PyList_Append(list, text) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
        free(json);
    }
    if (g) {
        engine_leave_unchanged();
    }
    return list;
}

static PyObject *graph_children(PyObject *object, PyObject *none)
{
    (void)none;
    rlm_graph *g = graph_enter(object);
    if (!g) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < rlm_graph_child_count(g); i++) {
        PyObject *child =
            graph_new(((struct graph_object *)object)->owner, ((struct graph_object *)object)->root,
                      rlm_graph_agent_id(rlm_graph_child(g, i)));
        if (!child || PyList_Append(list, child) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(child);
    }
    engine_leave_unchanged();
    return list;
}

static PyObject *graph_agent(PyObject *object, PyObject *id)
{
    struct graph_object *self = (struct graph_object *)object;
    struct rlm_str text;
    PyObject *held;
    if (engine_is_forked() ? engine_start() : text_from_python(id, &text, &held)) {
        return NULL;
    }
    engine_enter();
    bool there = strlen(text.ptr) == text.len && rlm_graph_agent(self->root, text.ptr);
    engine_leave_unchanged();
    PyObject *result = there ? graph_new(self->owner, self->root, text.ptr) : Py_None;
    if (!there) {
        Py_INCREF(Py_None);
    }
    Py_DECREF(held);
    return result;
}

static PyObject *graph_state(PyObject *object, PyObject *none)
{
    (void)none;
    rlm_graph *g = graph_enter(object);
    if (!g) {
        return NULL;
    }
    struct rlm_usage own = rlm_graph_usage(g, false), all = rlm_graph_usage(g, true);
    PyObject *result = Py_BuildValue(
        "{s:n,s:n,s:O,s:N,s:N,s:i,s:(LLLLLL),s:(LLLLLL)}", "nodes",
        (Py_ssize_t)rlm_graph_node_count(g), "children", (Py_ssize_t)rlm_graph_child_count(g),
        "finished", rlm_graph_finished(g) ? Py_True : Py_False, "result",
        str_to_python(rlm_graph_result(g)), "reason", str_to_python(rlm_graph_reason(g)), "turns",
        rlm_graph_turns(g), "usage", own.calls, own.input_tokens, own.cached_tokens,
        own.output_tokens, own.cost_nano, own.estimated, "usage_of_all", all.calls,
        all.input_tokens, all.cached_tokens, all.output_tokens, all.cost_nano, all.estimated);
    engine_leave_unchanged();
    return result;
}

static PyObject *graph_tree(PyObject *object, PyObject *none)
{
    (void)none;
    rlm_graph *g = graph_enter(object);
    if (!g) {
        return NULL;
    }
    struct rlm_view_options o = RLM_VIEW_OPTIONS_INIT;
    char *text = rlm_view_tree(g, &o);
    engine_leave_unchanged();
    PyObject *result = text ? text_to_python(text, strlen(text)) : PyErr_NoMemory();
    free(text);
    return result;
}

/* event_line(is_child, seq, width): what a node that has come says, or that the agent was launched */
static PyObject *graph_event_line(PyObject *object, PyObject *args)
{
    int is_child, width;
    Py_ssize_t seq;
    struct rlm_view_options o = RLM_VIEW_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "pni", &is_child, &seq, &width)) {
        return NULL;
    }
    rlm_graph *g = graph_enter(object);
    if (!g) {
        return NULL;
    }
    struct rlm_event event = {
        .type = is_child ? RLM_EVENT_ADD_CHILD : RLM_EVENT_APPEND_NODE,
        .graph = g,
        .node = is_child ? NULL : rlm_graph_node(g, (size_t)seq),
    };
    o.width = width;
    bool is_there = is_child || event.node;
    char *line = is_there ? rlm_view_event(&event, &o) : NULL;
    engine_leave_unchanged();
    if (!is_there) {
        PyErr_SetString(PyExc_IndexError, "there is no such node");
        return NULL;
    }
    PyObject *result = line ? text_to_python(line, strlen(line)) : PyErr_NoMemory();
    free(line);
    return result;
}

/* What makes the agent, as a line of JSON. */
static PyObject *graph_line(PyObject *object, PyObject *none)
{
    (void)none;
    rlm_graph *g = graph_enter(object);
    if (!g) {
        return NULL;
    }
    struct rlm_event event = {
        .type = rlm_graph_parent(g) ? RLM_EVENT_ADD_CHILD : RLM_EVENT_GRAPH_CREATED,
        .graph = g,
    };
    char *line = rlm_event_json(&event);
    engine_leave();
    PyObject *result = line ? text_to_python(line, strlen(line)) : PyErr_NoMemory();
    free(line);
    return result;
}

/* html(journal or None) */
static PyObject *graph_html(PyObject *object, PyObject *args)
{
    const char *journal;
    char *html = NULL;
    size_t len = 0;
    rlm_error *err = NULL;
    if (!PyArg_ParseTuple(args, "z", &journal) || !graph_enter(object)) {
        return NULL;
    }
    int r = rlm_view_html(((struct graph_object *)object)->root, journal, NULL, &html, &len, &err);
    engine_leave();
    PyObject *result = r < 0 ? raise_error(err) : text_to_python(html, len);
    free(html);
    return result;
}

static PyMethodDef methods[] = {
    {"info", graph_info, METH_NOARGS, "What does not change: ids, query, inputs, model, schema."},
    {"state", graph_state, METH_NOARGS, "What changes: counts, answer, reason, usage."},
    {"nodes", graph_nodes, METH_O, "nodes(start): JSON texts of the nodes from there on."},
    {"children", graph_children, METH_NOARGS, "The children, in order of creation."},
    {"agent", graph_agent, METH_O, "agent(id): anywhere in the tree, or None."},
    {"tree", graph_tree, METH_NOARGS, "The tree as text."},
    {"line", graph_line, METH_NOARGS, "The event that makes the agent, as JSON."},
    {"event_line", graph_event_line, METH_VARARGS,
     "event_line(is_child, seq, width): a node that has come, or the agent's launch, as a line."},
    {"html", graph_html, METH_VARARGS, "html(journal or None): the whole tree as a page."},
    {"save", graph_save, METH_VARARGS, "save(path): the whole tree as a directory."},
    {"fork", graph_fork, METH_VARARGS, "fork(node_id or None): a copy, with this node the last."},
    {"checkpoint", graph_checkpoint, METH_NOARGS, "(position, digest) of the agent's end."},
    {"inject", graph_inject, METH_VARARGS, "inject(where, node_id or None, node)"},
    {"remove_node", graph_remove_node, METH_VARARGS, "remove_node(node_id)"},
    {"remove", graph_remove, METH_NOARGS, "Takes the agent out of the tree."},
    {"rewind", graph_rewind, METH_VARARGS, "rewind(node_id): it becomes the last."},
    {"revert", graph_revert, METH_VARARGS, "revert(position, digest)"},
    {"merge", graph_merge, METH_VARARGS, "merge(branch, summary)"},
    {"apply", graph_apply, METH_VARARGS, "apply(line): makes the change that an event tells of."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, graph_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A look at one agent of a tree."},
    {0, NULL},
};

PyType_Spec graph_spec = {
    .name = "rlmflow._engine.Graph",
    .basicsize = sizeof(struct graph_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
