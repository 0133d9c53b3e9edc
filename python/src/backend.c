#include "backend.h"

#include "text.h"

#include <stdlib.h>

PyObject *backend_type;

/* It ends when its session is over and neither a request nor an object holds it. */
struct backend {
    atomic_int holders;
    port *port;
    rlm_backend *backend;
    bool is_over; /* under the engine's lock */
};

static struct backend *ref(struct backend *b)
{
    atomic_fetch_add(&b->holders, 1);
    return b;
}

/* Who lets go holds the GIL or, on the engine's thread, the lock: so it can be entered. */
void backend_unref(struct backend *b)
{
    if (!b || engine_is_forked()) {
        return;
    }
    engine_enter();
    bool ends = atomic_fetch_sub(&b->holders, 1) == 1 && b->is_over;
    if (ends) {
        rlm_backend_closed(b->backend);
    }
    engine_leave();
    if (ends) {
        port_unref(b->port);
        free(b);
    }
}

/* ---- what the engine asks (its thread, or one that holds the lock) ----------------------------- */

static const struct rlm_str nothing = {"", 0};

static bool put(struct backend *b, enum backend_question what, uint64_t step, struct rlm_str text)
{
    struct request *r = request_new(REQUEST_BACKEND, "");
    if (!r || !request_set_text(r, text)) {
        free(r);
        return false;
    }
    r->backend = ref(b);
    r->question = what;
    r->step = step;
    port_put(b->port, r);
    return true;
}

static void ask(struct backend *b, enum backend_question what, uint64_t step, struct rlm_str text)
{
    if (!put(b, what, step, text)) {
        static const char why[] = "out of memory";
        rlm_backend_fail(b->backend, step, (struct rlm_str){why, sizeof why - 1});
    }
}

static void
on_open(void *arg, rlm_backend *backend, uint64_t step, const struct rlm_backend_session *session)
{
    struct backend *b = calloc(1, sizeof *b);
    if (!b) {
        static const char why[] = "out of memory";
        rlm_backend_fail(backend, step, (struct rlm_str){why, sizeof why - 1});
        return;
    }
    b->port = port_ref(arg);
    b->backend = backend;
    rlm_backend_set_data(backend, b);
    ask(b, BACKEND_OPEN, step, (struct rlm_str){session->agent_id, strlen(session->agent_id)});
}

static void on_start(void *arg, rlm_backend *backend, uint64_t step, struct rlm_str code)
{
    (void)arg;
    ask(rlm_backend_data(backend), BACKEND_START, step, code);
}

static void on_resume(void *arg, rlm_backend *backend, uint64_t step, struct rlm_str results_json)
{
    (void)arg;
    ask(rlm_backend_data(backend), BACKEND_RESUME, step, results_json);
}

static void on_close(void *arg, rlm_backend *backend)
{
    (void)arg;
    struct backend *b = rlm_backend_data(backend);
    if (!b) {
        rlm_backend_closed(backend);
        return;
    }
    ref(b);
    b->is_over = true;
    put(b, BACKEND_CLOSE, 0, nothing);
    backend_unref(b);
}

static void
on_inner(void *arg, rlm_backend *backend, enum rlm_inner_outcome outcome, struct rlm_str json)
{
    (void)arg;
    struct backend *b = rlm_backend_data(backend);
    if (!put(b, BACKEND_INNER, (uint64_t)outcome, json)) {
        rlm_backend_inner_close(backend);
    }
}

rlm_runtime *backend_runtime_new(port *p, const char *name, const char *effects)
{
    struct rlm_backend_options o = RLM_BACKEND_OPTIONS_INIT;
    o.name = name;
    o.effects = effects;
    o.open = on_open;
    o.start = on_start;
    o.resume = on_resume;
    o.close = on_close;
    o.inner = on_inner;
    o.arg = p;
    rlm_runtime *runtime = NULL;
    rlm_error *err = NULL;
    engine_enter();
    int r = rlm_runtime_new_custom(engine_loop(), &o, &runtime, &err);
    engine_leave();
    if (r < 0) {
        raise_error(err);
    }
    return runtime;
}

/* ---- the object ------------------------------------------------------------------------------ */

struct backend_object {
    PyObject_HEAD struct backend *backend;
};

static struct backend *backend_of(PyObject *self)
{
    return ((struct backend_object *)self)->backend;
}

PyObject *backend_to_python(struct backend *b)
{
    PyTypeObject *type = (PyTypeObject *)backend_type;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = alloc(type, 0);
    if (self) {
        ((struct backend_object *)self)->backend = ref(b);
    }
    return self;
}

static void backend_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    backend_unref(backend_of(self));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *backend_opened(PyObject *self, PyObject *args)
{
    unsigned long long step;
    if (!PyArg_ParseTuple(args, "K", &step)) {
        return NULL;
    }
    engine_enter();
    rlm_backend_opened(backend_of(self)->backend, step);
    engine_leave();
    Py_RETURN_NONE;
}

static PyObject *answer(PyObject *self,
                        PyObject *args,
                        int (*take)(PyObject *, struct rlm_str *, PyObject **),
                        void (*with)(rlm_backend *, uint64_t, struct rlm_str))
{
    unsigned long long step;
    PyObject *object, *keep;
    struct rlm_str text;
    if (!PyArg_ParseTuple(args, "KO", &step, &object) || take(object, &text, &keep) < 0) {
        return NULL;
    }
    engine_enter();
    with(backend_of(self)->backend, step, text);
    engine_leave();
    Py_DECREF(keep);
    Py_RETURN_NONE;
}

static PyObject *backend_finished(PyObject *self, PyObject *args)
{
    return answer(self, args, text_from_python, rlm_backend_finished);
}

static PyObject *backend_suspended(PyObject *self, PyObject *args)
{
    return answer(self, args, text_from_python, rlm_backend_suspended);
}

static PyObject *backend_fail(PyObject *self, PyObject *args)
{
    return answer(self, args, message_from_python, rlm_backend_fail);
}

static PyObject *backend_read(PyObject *self, PyObject *hash)
{
    struct rlm_str id;
    PyObject *keep;
    if (text_from_python(hash, &id, &keep) < 0) {
        return NULL;
    }
    char *bytes = NULL;
    size_t len = 0;
    bool is_text = false;
    rlm_error *err = NULL;
    engine_enter();
    int r = rlm_backend_read(backend_of(self)->backend, id, &bytes, &len, &is_text, &err);
    engine_leave();
    Py_DECREF(keep);
    if (r < 0) {
        return raise_error(err);
    }
    PyObject *value =
        is_text ? text_to_python(bytes, len) : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)len);
    free(bytes);
    return value;
}

PyObject *backend_open_inner(PyObject *backend, rlm_runtime *runtime)
{
    if (!PyObject_TypeCheck(backend, (PyTypeObject *)backend_type)) {
        PyErr_SetString(PyExc_TypeError, "a Backend is wanted here");
        return NULL;
    }
    rlm_error *err = NULL;
    engine_enter();
    int r = rlm_backend_open_inner(backend_of(backend)->backend, runtime, &err);
    engine_leave();
    if (r < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

static PyObject *
pass_on(PyObject *self, PyObject *object, int (*to)(rlm_backend *, struct rlm_str, rlm_error **))
{
    struct rlm_str text;
    PyObject *keep;
    if (text_from_python(object, &text, &keep) < 0) {
        return NULL;
    }
    rlm_error *err = NULL;
    engine_enter();
    int r = to(backend_of(self)->backend, text, &err);
    engine_leave();
    Py_DECREF(keep);
    if (r < 0) {
        return raise_error(err);
    }
    Py_RETURN_NONE;
}

static PyObject *backend_inner_start(PyObject *self, PyObject *code)
{
    return pass_on(self, code, rlm_backend_inner_start);
}

static PyObject *backend_inner_resume(PyObject *self, PyObject *results)
{
    return pass_on(self, results, rlm_backend_inner_resume);
}

static PyObject *backend_inner_close(PyObject *self, PyObject *none)
{
    (void)none;
    engine_enter();
    rlm_backend_inner_close(backend_of(self)->backend);
    engine_leave();
    Py_RETURN_NONE;
}

/* Objects of one backend are equal. */
static PyObject *backend_compare(PyObject *self, PyObject *other, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(other) != Py_TYPE(self)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyBool_FromLong((backend_of(self) == backend_of(other)) == (op == Py_EQ));
}

static Py_hash_t backend_hash(PyObject *self)
{
    Py_hash_t hash = (Py_hash_t)((uintptr_t)backend_of(self) >> 4);
    return hash == -1 ? -2 : hash;
}

static PyMethodDef methods[] = {
    {"opened", backend_opened, METH_VARARGS, "opened(step)"},
    {"finished", backend_finished, METH_VARARGS, "finished(step, json)"},
    {"suspended", backend_suspended, METH_VARARGS, "suspended(step, json)"},
    {"fail", backend_fail, METH_VARARGS, "fail(step, why)"},
    {"read", backend_read, METH_O, "read(hash): the str or bytes of a $blob."},
    {"inner_start", backend_inner_start, METH_O, "inner_start(code)"},
    {"inner_resume", backend_inner_resume, METH_O, "inner_resume(json)"},
    {"inner_close", backend_inner_close, METH_NOARGS, "inner_close()"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, backend_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_richcompare, backend_compare},
    {Py_tp_hash, backend_hash},
    {Py_tp_doc, "A session that Python runs or wraps."},
    {0, NULL},
};

PyType_Spec backend_spec = {
    .name = "rlmflow._engine.Backend",
    .basicsize = sizeof(struct backend_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
