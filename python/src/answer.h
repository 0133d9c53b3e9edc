/* An answer that the engine waits for: of a model, a tool or a gate.
 *
 * It is shared by the engine, which may give it up at any time, and by Python, which must answer and may
 * forget to. Whoever comes second finds that it is over. Python sees it as an Answer object; one
 * that is dropped unanswered fails the call, so that nothing hangs.
 */
#pragma once

#include "port.h"

struct answer {
    atomic_int references;
    port *port;
    /* Under the engine's lock: what waits, NULL once it has been answered. */
    rlm_model_call *model;
    rlm_tool_call *tool;
    rlm_gate *gate;
};

/* For what waits; with one reference. Puts a REQUEST_CANCEL into the port if it is given up. */
struct answer *answer_new_model(port *p, rlm_model_call *call);
struct answer *answer_new_tool(port *p, rlm_tool_call *call);
struct answer *answer_new_gate(port *p, rlm_gate *gate);
struct answer *answer_ref(struct answer *a);
void answer_unref(struct answer *a); /* NULL allowed; any thread, with or without the lock */
/* Under the lock: no memory or no port; the call fails. */
void answer_refuse(struct answer *a, const char *why);

/* The object that Python answers with; NULL with an exception. */
PyObject *answer_to_python(struct answer *a);
extern PyType_Spec answer_spec;
/* Set by the module. */
extern PyObject *answer_type;
