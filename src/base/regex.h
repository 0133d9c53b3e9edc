/* Regular expressions: the only file that knows PCRE2.
 *
 * Patterns are read as JSON Schema and ECMAScript mean them where PCRE2 can: `$` is the very end,
 * `.` is anything but a line feed, `\d`, `\w` and `\s` are ASCII, `\uXXXX` is a character, an empty
 * class is allowed. Text is UTF-8; what is not (lone surrogates) is searched as U+FFFD.
 *
 * A search is bounded in steps and memory, so that no pattern and no text can hold the caller up.
 * One object is for one thread at a time.
 */
#pragma once

#include "base/str.h"

#include <stdint.h>

typedef struct rlm_regex rlm_regex;

enum { RLM_REGEX_MAX_PATTERN = 16 * 1024 }; /* bytes */

/* RLM_E_PARSE with the offset and the reason, RLM_E_LIMIT for a pattern that is too long. */
int rlm_regex_new(rlm_str pattern, rlm_regex **ret_regex, rlm_error **err);
void rlm_regex_free(rlm_regex *re); /* NULL allowed */

/* Searches anywhere in `text`. Returns 1 when found, 0 when not; RLM_E_LIMIT when the search was
 * given up, RLM_E_NOMEM.
 *
 * When found, the first `n_groups` groups go to `ret_groups` (may be NULL with 0): number 0 is the
 * whole match, a group that took no part is RLM_STR_NONE. They point into `text`, or, when that is
 * not strict UTF-8, into a copy that lives until the next search. */
int rlm_regex_search(
    rlm_regex *re, rlm_str text, rlm_str *ret_groups, size_t n_groups, rlm_error **err);

/* What the last search may have cost at most, in steps of the matcher: for callers that bound many
 * searches together. */
uint64_t rlm_regex_cost(const rlm_regex *re);
