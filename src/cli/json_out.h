/* --json: JSON Lines on stdout, one event a line, the result last. */
#pragma once

#include "rlmflow.h"

/* The public classes of events and notices; states and pieces of replies are left out. */
void json_out_event(const struct rlm_event *event);
/* {"type": "result", ...}. `answer` is NULL without an answer; `path` NULL: in memory. An empty reason is
 * null. */
void json_out_result(const struct rlm_str *answer,
                     const char *reason,
                     const struct rlm_usage *usage,
                     size_t agents,
                     const char *path);
