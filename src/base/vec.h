/* A growable array of any element type.
 *
 *     RLM_VEC(struct call) calls = {0};
 *     struct call *c = rlm_vec_push(&calls);   // zeroed, or NULL when out of memory
 *     free(calls.items);
 */
#pragma once

#include "base/alloc.h"

#include <stdbool.h>
#include <string.h>

#define RLM_VEC(type) \
    struct {          \
        type *items;  \
        size_t len;   \
        size_t cap;   \
    }

static inline bool rlm_vec_grow_(void **items, size_t *cap, size_t len, size_t item_size)
{
    if (len < *cap) {
        return true;
    }
    size_t wanted = *cap ? *cap * 2 : 8;
    void *grown = rlm_realloc(*items, wanted * item_size);
    if (!grown) {
        return false;
    }
    *items = grown;
    *cap = wanted;
    return true;
}

#define rlm_vec_push(v)                                                           \
    (rlm_vec_grow_((void **)&(v)->items, &(v)->cap, (v)->len, sizeof *(v)->items) \
         ? memset(&(v)->items[(v)->len++], 0, sizeof *(v)->items)                 \
         : NULL)

#define rlm_vec_remove(v, index)                           \
    (memmove(&(v)->items[index], &(v)->items[(index) + 1], \
             ((v)->len - (index)-1) * sizeof *(v)->items), \
     (v)->len--)
