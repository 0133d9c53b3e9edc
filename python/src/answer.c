#include "answer.h"

#include "text.h"

#include <stdlib.h>

PyObject *answer_type;

static const char FORGOTTEN[] = "the Python code that was asked ended without an answer";

/* ---- the shared part ------------------------------------------------------------------------- */

static void given_up(void *arg)
{
    struct answer *a = arg;
    struct request *r = request_new(REQUEST_CANCEL, "");
    if (r) {
        r->answer = answer_ref(a);
        port_put(a->port, r);
    }
    /* Dropped. What it would answer may be gone by the time at which Python does. */
    answer_refuse(a, "nobody waits any more");
}

static struct answer *answer_new(port *p)
{
    struct answer *a = calloc(1, sizeof *a);
    if (a) {
        a->references = 1;
        a->port = port_ref(p);
    }
    return a;
}

struct answer *answer_new_model(port *p, rlm_model_call *call)
{
    struct answer *a = answer_new(p);
    if (a) {
        a->model = call;
        rlm_model_call_on_cancel(call, given_up, answer_ref(a));
    }
    return a;
}

struct answer *answer_new_tool(port *p, rlm_tool_call *call)
{
    struct answer *a = answer_new(p);
    if (a) {
        a->tool = call;
        rlm_tool_call_on_cancel(call, given_up, answer_ref(a));
    }
    return a;
}

struct answer *answer_new_gate(port *p, rlm_gate *gate)
{
    struct answer *a = answer_new(p);
    if (a) {
        a->gate = gate;
        rlm_gate_on_cancel(gate, given_up, answer_ref(a));
    }
    return a;
}

struct answer *answer_ref(struct answer *a)
{
    atomic_fetch_add(&a->references, 1);
    return a;
}

void answer_unref(struct answer *a)
{
    if (a && atomic_fetch_sub(&a->references, 1) == 1) {
        port_unref(a->port);
        free(a);
    }
}

/* Under the lock. What waited gets its answer and is gone; the reference of its cancel hook with it. */
static bool is_open(const struct answer *a)
{
    return a->model || a->tool || a->gate;
}

static void end(struct answer *a)
{
    a->model = NULL;
    a->tool = NULL;
    a->gate = NULL;
    answer_unref(a);
}

void answer_refuse(struct answer *a, const char *why)
{
    if (!is_open(a)) {
        return;
    }
    if (a->model) {
        rlm_model_call_fail(a->model, RLM_E_CANCELED, why);
    } else if (a->tool) {
        rlm_tool_call_fail(a->tool, why);
    } else {
        rlm_gate_reject(a->gate, NULL, (struct rlm_str){why, strlen(why)});
    }
    end(a);
}

/* ---- the object ------------------------------------------------------------------------------ */

struct answer_object {
    PyObject_HEAD struct answer *answer;
};

static struct answer *answer_of(PyObject *self)
{
    return ((struct answer_object *)self)->answer;
}

PyObject *answer_to_python(struct answer *a)
{
    PyTypeObject *type = (PyTypeObject *)answer_type;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = alloc(type, 0);
    if (self) {
        ((struct answer_object *)self)->answer = answer_ref(a);
    }
    return self;
}

static void answer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct answer *a = answer_of(self);
    /* More hold it while the engine waits: the object, and the hook for cancelling. Others are
     * requests that tell of the cancel, and they bring objects of their own. */
    if (!engine_is_forked()) {
        engine_enter();
        if (is_open(a) && atomic_load(&a->references) == 2) {
            answer_refuse(a, FORGOTTEN);
        }
        engine_leave();
    }
    answer_unref(a);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* reply(text, finish_reason, input_tokens, cached_tokens, output_tokens) */
static PyObject *answer_reply(PyObject *self, PyObject *args)
{
    PyObject *text, *keep;
    struct rlm_model_reply reply = {0};
    long long input, cached, output;
    if (!PyArg_ParseTuple(args, "OzLLL", &text, &reply.finish_reason, &input, &cached, &output) ||
        text_from_python(text, &reply.text, &keep) < 0) {
        return NULL;
    }
    reply.input_tokens = input;
    reply.cached_tokens = cached;
    reply.output_tokens = output;
    struct answer *a = answer_of(self);
    engine_enter();
    if (a->model) {
        rlm_model_call_return(a->model, &reply);
        end(a);
    }
    engine_leave();
    Py_DECREF(keep);
    Py_RETURN_NONE;
}

/* delta(text) -> whether more is wanted */
static PyObject *answer_delta(PyObject *self, PyObject *text)
{
    struct rlm_str piece;
    PyObject *keep;
    if (text_from_python(text, &piece, &keep) < 0) {
        return NULL;
    }
    struct answer *a = answer_of(self);
    engine_enter();
    bool wanted = a->model && rlm_model_call_delta(a->model, piece);
    engine_leave();
    Py_DECREF(keep);
    return PyBool_FromLong(wanted);
}

/* value(json): of a tool */
static PyObject *answer_value(PyObject *self, PyObject *json)
{
    struct rlm_str value;
    PyObject *keep;
    if (text_from_python(json, &value, &keep) < 0) {
        return NULL;
    }
    struct answer *a = answer_of(self);
    engine_enter();
    if (a->tool) {
        rlm_tool_call_return(a->tool, value);
        end(a);
    }
    engine_leave();
    Py_DECREF(keep);
    Py_RETURN_NONE;
}

/* fail(message, code=0): of a model or tool; `code`: an enum rlm_code */
static PyObject *answer_fail(PyObject *self, PyObject *args)
{
    PyObject *text, *keep;
    struct rlm_str message;
    int code = RLM_E_CANCELED;
    if (!PyArg_ParseTuple(args, "O|i", &text, &code) ||
        message_from_python(text, &message, &keep) < 0) {
        return NULL;
    }
    struct answer *a = answer_of(self);
    engine_enter();
    if (a->model) {
        rlm_model_call_fail(a->model, (enum rlm_code)code, message.ptr);
        end(a);
    } else {
        answer_refuse(a, message.ptr);
    }
    engine_leave();
    Py_DECREF(keep);
    Py_RETURN_NONE;
}

/* decide("allow" | "rewrite" | "reject" | "skip" | "postpone", who, text): of a gate */
static PyObject *answer_decide(PyObject *self, PyObject *args)
{
    const char *what, *who;
    PyObject *object, *keep;
    struct rlm_str text;
    if (!PyArg_ParseTuple(args, "szO", &what, &who, &object)) {
        return NULL;
    }
    int r = strcmp(what, "rewrite") == 0 ? text_from_python(object, &text, &keep)
                                         : message_from_python(object, &text, &keep);
    if (r < 0) {
        return NULL;
    }
    struct answer *a = answer_of(self);
    engine_enter();
    if (a->gate) {
        if (strcmp(what, "allow") == 0) {
            rlm_gate_allow(a->gate, who);
        } else if (strcmp(what, "rewrite") == 0) {
            rlm_gate_rewrite(a->gate, who, text);
        } else if (strcmp(what, "skip") == 0) {
            rlm_gate_skip(a->gate, who);
        } else if (strcmp(what, "postpone") == 0) {
            rlm_gate_postpone(a->gate, text.ptr);
        } else {
            rlm_gate_reject(a->gate, who, text);
        }
        end(a);
    }
    engine_leave();
    Py_DECREF(keep);
    Py_RETURN_NONE;
}

/* Answers of one call are equal: that of the request and that of its cancel. */
static PyObject *answer_compare(PyObject *self, PyObject *other, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(other) != Py_TYPE(self)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyBool_FromLong((answer_of(self) == answer_of(other)) == (op == Py_EQ));
}

static Py_hash_t answer_hash(PyObject *self)
{
    Py_hash_t hash = (Py_hash_t)((uintptr_t)answer_of(self) >> 4);
    return hash == -1 ? -2 : hash;
}

static PyMethodDef methods[] = {
    {"reply", answer_reply, METH_VARARGS,
     "reply(text, finish_reason, input_tokens, cached_tokens, output_tokens): of a model. Negative "
     "tokens are unknown."},
    {"delta", answer_delta, METH_O, "delta(text): a piece of a reply; whether more is wanted."},
    {"value", answer_value, METH_O, "value(json): of a tool."},
    {"fail", answer_fail, METH_VARARGS, "fail(message, code): of a model or a tool."},
    {"decide", answer_decide, METH_VARARGS, "decide(what, who, text): of a gate."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, answer_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_richcompare, answer_compare},
    {Py_tp_hash, answer_hash},
    {Py_tp_doc, "What the engine waits for: of a model, a tool or a gate."},
    {0, NULL},
};

PyType_Spec answer_spec = {
    .name = "rlmflow._engine.Answer",
    .basicsize = sizeof(struct answer_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
