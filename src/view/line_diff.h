/* The lines in which two texts differ, as text: `-` of the first, `+` of the second, some that are the
 * same around them. */
#pragma once

#include "view/plain.h"

/* At most `max_lines` lines, each behind `indent` and of at most some hundred columns. false: no memory. */
bool rlm_line_diff(
    struct rlm_plain *p, rlm_str before, rlm_str after, const char *indent, size_t max_lines);
