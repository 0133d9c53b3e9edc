/* Shared libraries that are opened when they are first needed: loading one can cost more than all else that
 * a short command does.
 */
#pragma once

#include "base/error.h"

struct rlm_library_function {
    const char *name;
    size_t offset; /* of the pointer to it */
};

/* Opens `file` for the life of the process and fills `ret_functions` (a struct of pointers). RLM_E_UNSUPPORTED: it is not there, or lacks a function; `name` is how the
 * message calls it, `advice` says what to install and which version is needed. */
int rlm_library_open(const char *file,
                     const char *name,
                     const char *advice,
                     const struct rlm_library_function *functions,
                     size_t n_functions,
                     void *ret_functions,
                     rlm_error **err);
