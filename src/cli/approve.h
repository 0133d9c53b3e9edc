/* --approve: a person is asked on the terminal's own device before code runs, while the loop goes on.
 *
 * Answers: y runs it, n does not (and asks why, which the model is told), e opens it in $EDITOR and runs
 * what is saved, a runs it and all that the agent writes from then on, q stops the run, which asks
 * again when it is resumed. Where there is no terminal the run stops in the same way.
 */
#pragma once

#include "rlmflow.h"

#include <poll.h>

typedef struct approve approve;

/* `rule`: "none" (then `*ret_approve` is NULL), "all", or "match:REGEX": code in which that is found. 0, or
 * an exit code after a complaint. */
int approve_new(const char *rule, approve **ret_approve);
/* Sets its hooks. 0, or an exit code. */
int approve_begin(approve *a, rlm_flow *flow);
/* Of these NULL is allowed: nothing is asked. */
void approve_free(approve *a);
/* A question is on the terminal: nothing else should be drawn there. */
bool approve_is_asking(const approve *a);
/* What to wait for: 0 or 1 descriptors, and milliseconds (-1: no limit). */
int approve_poll(const approve *a, struct pollfd *ret_fd, int *ret_timeout_ms);
/* After each wait. True: a question has come to the terminal with this call. */
bool approve_tick(approve *a);
