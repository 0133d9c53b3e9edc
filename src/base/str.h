/* Text as a slice: a pointer and a length, not owned, not NUL-terminated, any bytes.
 *
 * Text of the engine is WTF-8: UTF-8 in which lone surrogates may stand as three bytes, so that any
 * Python `str` survives. See utf8.h for the border where they become U+FFFD.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* `struct rlm_str { const char *ptr; size_t len; }` is public. */
#include "rlmflow.h"

typedef struct rlm_str rlm_str;

#define RLM_STR(literal) ((rlm_str){"" literal, sizeof(literal) - 1})
#define RLM_STR_NONE     ((rlm_str){NULL, 0})
/* For printf("%.*s"). */
#define RLM_FMT(s) (int)(s).len, (s).ptr

static inline rlm_str rlm_str_of(const char *text)
{
    return (rlm_str){text, text ? strlen(text) : 0};
}

static inline bool rlm_str_eq(rlm_str a, rlm_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool rlm_str_is(rlm_str a, const char *text)
{
    return rlm_str_eq(a, rlm_str_of(text));
}

static inline rlm_str rlm_str_sub(rlm_str s, size_t start, size_t end)
{
    return (rlm_str){s.ptr + start, end - start};
}

static inline bool rlm_str_starts(rlm_str s, const char *prefix)
{
    size_t len = strlen(prefix);
    return s.len >= len && memcmp(s.ptr, prefix, len) == 0;
}
