/* The engine of a Python process: one loop on a thread of its own, and how Python talks to it.
 *
 * All of rlmflow.h belongs to one thread at a time: whoever holds the engine's lock. The engine's thread
 * holds it while the loop turns and lets go of it while it waits, so a Python thread that wants something
 * done takes the lock and calls the library itself; no command is queued. The engine's thread never
 * takes the GIL: what it wants of Python goes as requests into a port, which an event loop of Python's
 * watches. So Python code that blocks delays other Python code, but no limit, no stream and no session.
 *
 * Order: a thread that holds the GIL waits for the lock without it (engine_enter); one that holds the
 * lock never waits for the GIL but for a moment in engine_enter, where the engine's thread needs none.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rlmflow.h"

#include <stdatomic.h>

/* Starts the engine's thread if there is none. -1 with an exception: no thread, or a process that was
 * forked from one that had it. */
int engine_start(void);
/* The loop; valid between engine_enter and engine_leave. */
rlm_loop *engine_loop(void);
/* The lock. The caller holds the GIL, before and after. It nests, for whatever Python does meanwhile may
 * release an object that takes it too. */
void engine_enter(void);
void engine_leave(void);
/* The same where nothing was begun that the loop has to turn for: its thread is not woken. */
void engine_leave_unchanged(void);
/* True in a process forked from the one that has the engine: there nothing of it may be touched. */
bool engine_is_forked(void);
/* Ends the thread: everything made on the loop is gone, or the process ends. */
void engine_stop(void);
