/* The environment of the processes that a runtime starts: nothing is inherited but PATH, HOME and LANG. TZ is UTC
 * and the seed of hashes fixed, so that cells can be run again.
 */
#pragma once

#include "base/error.h"
#include "base/vec.h"

struct rlm_environment {
    RLM_VEC(char *) entries; /* NULL-terminated when made */
};

/* `mark` and `more` (each may be NULL; `more` is NULL-terminated) are added as "NAME=VALUE", and take the place of
 * earlier ones of their name. RLM_E_INVAL: one is not of that form. To be freed in every case. */
int rlm_environment_make(struct rlm_environment *e,
                         const char *mark,
                         const char *const *more,
                         rlm_error **err);
void rlm_environment_deinit(struct rlm_environment *e);
