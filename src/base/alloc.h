/* Memory: thin wrappers over malloc so that every allocation can be made to fail in a test.
 *
 * Out of memory is an ordinary error in the library, never an abort: callers check for NULL (or use
 * `rlm_buf` and `rlm_arena`, whose errors stick and are checked once). Free with plain `free`.
 *
 * With RLM_FAIL_ALLOC=N in the environment of a build configured with -Dtorture=true the N-th
 * allocation of the process fails, once.
 */
#pragma once

#include <stddef.h>
#include <stdlib.h>

void *rlm_malloc(size_t size_bytes) __attribute__((malloc));
void *rlm_calloc(size_t count, size_t size_bytes) __attribute__((malloc));
void *rlm_realloc(void *old, size_t size_bytes);

/* Copies `len` bytes and adds a NUL. NULL when out of memory. */
char *rlm_strndup(const char *ptr, size_t len);
char *rlm_strdup(const char *text);

/* Allocates one zeroed object of the type of `ptr` into it; true on success. */
#define RLM_NEW(ptr) ((ptr) = rlm_calloc(1, sizeof *(ptr)), (ptr) != NULL)

/* `rlm_autofree char *x = ...` frees x when the scope ends. */
static inline void rlm_autofree_cleanup(void *ptr)
{
    free(*(void **)ptr);
}
#define rlm_autofree __attribute__((cleanup(rlm_autofree_cleanup)))

/* Moves ownership out of a variable: `return rlm_steal(&x)`. */
#define rlm_steal(ptr)                       \
    ({                                       \
        __typeof__(*(ptr)) stolen_ = *(ptr); \
        *(ptr) = NULL;                       \
        stolen_;                             \
    })
