/* The warden: ends what a runtime's workers left behind, also when the engine is killed.
 *
 * A worker dies with the engine, but not what agent code started. So every worker, and by inheritance
 * what it starts, carries a mark in its environment, and a small shell process waits for the end of a
 * pipe that only the engine holds: it closes at rlm_warden_free, and by itself however the engine
 * ends. Then every process of the user with the mark is killed. What has cleared its environment
 * escapes; a runtime with isolation has better means.
 */
#pragma once

#include "base/loop.h"

typedef struct rlm_warden rlm_warden;

rlm_warden *rlm_warden_new(rlm_loop *loop); /* NULL: out of memory */
/* "RLMFLOW_MARK=...": for the environment of workers. */
const char *rlm_warden_mark(const rlm_warden *w);
/* Starts the process, the first time it is called. */
void rlm_warden_begin(rlm_warden *w);
/* Ends what carries the mark; waits for that, for at most two seconds. NULL allowed. */
void rlm_warden_free(rlm_warden *w);
