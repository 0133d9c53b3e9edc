/* An arena: many small allocations, freed at once.
 *
 * Memory comes from blocks that grow; nothing is freed singly. Used for parsed JSON, for a turn's
 * messages, for a graph's nodes. Allocation returns NULL when out of memory or past `max_bytes`.
 */
#pragma once

#include "base/str.h"

typedef struct rlm_arena rlm_arena;

/* max_bytes 0: no maximum (the caller bounds what it puts in). NULL when out of memory. */
rlm_arena *rlm_arena_new(size_t max_bytes);
void rlm_arena_free(rlm_arena *a);
/* Forgets all that was allocated, keeps the largest block for what comes next. */
void rlm_arena_reset(rlm_arena *a);

/* Zeroed, aligned for any type. */
void *rlm_arena_alloc(rlm_arena *a, size_t size_bytes);
/* Not zeroed, byte-aligned: for text. */
char *rlm_arena_bytes(rlm_arena *a, size_t size_bytes);
/* Copies and adds a NUL (not counted); {NULL, 0} when out of memory. */
rlm_str rlm_arena_copy(rlm_arena *a, rlm_str s);
/* printf into the arena; NUL-terminated; {NULL, 0} when out of memory. */
rlm_str rlm_arena_printf(rlm_arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Bytes taken from the system so far. */
size_t rlm_arena_size(const rlm_arena *a);

static inline void rlm_arena_cleanup(rlm_arena **a)
{
    rlm_arena_free(*a);
}
#define rlm_auto_arena __attribute__((cleanup(rlm_arena_cleanup)))
