/* Inside of a Run, one drive of one graph, shared by run*.c.
 *
 * It has a flow of its own, so that each of a Python Flow's runs has the limits, tools and clients that the
 * Flow had when the run began, and a port (port.h) for what it asks of Python.
 *
 *     run_new.c     makes the flow from what Python gives, and ends all of it
 *     run_asks.c    what the engine asks while the run goes on
 *     run.c         starting, looking, stopping: the methods
 */
#pragma once

#include "port.h"

enum hook {
    HOOK_EXEC_TURN = 1,
    HOOK_EVENTS = 2, /* tell of each change of the graph */
    HOOK_NEXT_STEP = 4,
    HOOK_MESSAGES = 8,
    /* Those that a run may get after its beginning. */
    HOOKS_AT_ANY_TIME = HOOK_EVENTS | HOOK_NEXT_STEP,
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
    PyObject *kept;      /* models and runtimes, which outlive the flow */
    rlm_runtime *custom; /* whose sessions are backends of Python's; NULL: there is none */
    int hooks;
    char *reason; /* of the end, from then on */
};

/* The callbacks through which models and tools of Python's are asked; `arg` is a struct callee. */
void run_on_chat(void *arg, rlm_model_call *call, const struct rlm_model_request *asked);
void run_on_tool(void *arg, rlm_tool_call *call, struct rlm_str arguments_json);
/* The hooks that the run's `hooks` name. */
struct rlm_flow_hooks run_hooks(struct run_object *self);
extern const struct rlm_run_events run_events;

/* check_tool(tool): ValueError for one that a run would not take. */
PyObject *run_check_tool(PyObject *module, PyObject *item);
int run_init(PyObject *object, PyObject *args, PyObject *kwargs);
void run_dealloc(PyObject *object);
