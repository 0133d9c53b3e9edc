/* Errors: one object that says what happened, to what, and what to do.
 *
 * A function that can fail returns `int`: 0 is success, a negative `enum rlm_code` is a failure, a
 * positive value is an outcome that its header documents. The last parameter is `rlm_error **err`;
 * it is set if and only if the result is negative, and may be NULL when the caller needs no text.
 * On the way up, `rlm_error_wrap` adds what was being done:
 *
 *     if ((r = journal_read(j, err)) < 0) {
 *         return rlm_error_wrap(err, r, "opening run \"%s\"", path);
 *     }
 *
 * Codes and accessors are public (rlmflow.h). When there is no memory for a message, a static
 * out-of-memory object stands in; freeing it is harmless.
 */
#pragma once

#include "rlmflow.h"

/* Sets *err (when err is not NULL; an error already there is replaced) and returns `code`. */
int rlm_error_set(rlm_error **err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As rlm_error_set, and appends ": " and the text of the errno value. Returns `code`. */
int rlm_error_set_errno(rlm_error **err, int code, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Prefixes the message with "CONTEXT: ". Returns `code`, for `return rlm_error_wrap(...)`. */
int rlm_error_wrap(rlm_error **err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the out-of-memory error and returns RLM_E_NOMEM. Allocates nothing. */
int rlm_error_nomem(rlm_error **err);

static inline void rlm_error_cleanup(rlm_error **err)
{
    rlm_error_free(*err);
}
/* `rlm_autoerr rlm_error *err = NULL;` frees the error when the scope ends. */
#define rlm_autoerr __attribute__((cleanup(rlm_error_cleanup)))
