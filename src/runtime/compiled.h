/* The worker, compiled once for an interpreter.
 *
 * Every worker of a runtime would compile the same source, which takes longer than all else at its
 * start. So the interpreter is asked once, in a process of its own that never sees an agent's code,
 * for the compiled form; from then on that is pushed, as a line of Python that loads it (and refuses
 * if the interpreter has been replaced meanwhile). Until then, and if it does not succeed, the source
 * is pushed.
 */
#pragma once

#include "base/loop.h"

typedef struct rlm_compiled rlm_compiled;

/* `ready` comes once, on the loop, when compiling has ended, well or not. The arguments are borrowed
 * for the object's life. */
rlm_compiled *rlm_compiled_new(rlm_loop *loop,
                               const char *python,
                               const char *const *env,
                               rlm_callback ready,
                               void *arg); /* NULL: out of memory */
/* Begins, the first time it is called. */
void rlm_compiled_begin(rlm_compiled *c);
bool rlm_compiled_is_busy(const rlm_compiled *c);
/* What to push: the compiled form if there is one, else the source. */
rlm_str rlm_compiled_payload(const rlm_compiled *c);
void rlm_compiled_free(rlm_compiled *c); /* NULL allowed */
