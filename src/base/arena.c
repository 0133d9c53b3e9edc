#include "base/arena.h"

#include "base/alloc.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

struct block {
    struct block *next;
    size_t used;
    size_t size;
    alignas(max_align_t) char bytes[];
};

struct rlm_arena {
    struct block *blocks; /* the newest first; only the newest is filled */
    size_t size_bytes;
    size_t max_bytes;
};

enum { FIRST_BLOCK = 1024, LARGEST_BLOCK = 256 * 1024 };

rlm_arena *rlm_arena_new(size_t max_bytes)
{
    rlm_arena *a;
    if (RLM_NEW(a)) {
        a->max_bytes = max_bytes ? max_bytes : SIZE_MAX;
    }
    return a;
}

void rlm_arena_free(rlm_arena *a)
{
    if (!a) {
        return;
    }
    for (struct block *b = a->blocks; b;) {
        struct block *next = b->next;
        free(b);
        b = next;
    }
    free(a);
}

void rlm_arena_reset(rlm_arena *a)
{
    struct block *kept = a->blocks;
    for (struct block *b = a->blocks; b; b = b->next) {
        if (b->size > kept->size) {
            kept = b;
        }
    }
    for (struct block *b = a->blocks; b;) {
        struct block *next = b->next;
        if (b != kept) {
            free(b);
        }
        b = next;
    }
    a->blocks = kept;
    a->size_bytes = 0;
    if (kept) {
        kept->next = NULL;
        kept->used = 0;
        a->size_bytes = kept->size;
    }
}

static char *take(rlm_arena *a, size_t size, size_t align)
{
    struct block *b = a->blocks;
    if (b) {
        size_t start = (b->used + align - 1) & ~(align - 1);
        if (start <= b->size && size <= b->size - start) {
            b->used = start + size;
            return b->bytes + start;
        }
    }
    size_t wanted = b ? b->size * 2 : FIRST_BLOCK;
    if (wanted > LARGEST_BLOCK) {
        wanted = LARGEST_BLOCK;
    }
    bool own_block = size > wanted / 2;
    if (own_block) {
        wanted = size;
    }
    if (wanted > SIZE_MAX - sizeof *b || wanted > a->max_bytes ||
        a->size_bytes > a->max_bytes - wanted) {
        return NULL;
    }
    struct block *made = rlm_malloc(sizeof *made + wanted);
    if (!made) {
        return NULL;
    }
    a->size_bytes += wanted;
    made->size = wanted;
    made->used = size;
    if (own_block && b) {
        /* A large object gets a block behind the one being filled, which stays in use. */
        made->next = b->next;
        b->next = made;
    } else {
        made->next = b;
        a->blocks = made;
    }
    return made->bytes;
}

void *rlm_arena_alloc(rlm_arena *a, size_t size_bytes)
{
    char *ptr = take(a, size_bytes, alignof(max_align_t));
    return ptr ? memset(ptr, 0, size_bytes) : NULL;
}

char *rlm_arena_bytes(rlm_arena *a, size_t size_bytes)
{
    return take(a, size_bytes, 1);
}

rlm_str rlm_arena_copy(rlm_arena *a, rlm_str s)
{
    char *ptr = take(a, s.len + 1, 1);
    if (!ptr) {
        return RLM_STR_NONE;
    }
    if (s.len) {
        memcpy(ptr, s.ptr, s.len);
    }
    ptr[s.len] = '\0';
    return (rlm_str){ptr, s.len};
}

rlm_str rlm_arena_printf(rlm_arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *ptr = len < 0 ? NULL : take(a, (size_t)len + 1, 1);
    if (ptr) {
        vsnprintf(ptr, (size_t)len + 1, format, again);
    }
    va_end(again);
    return ptr ? (rlm_str){ptr, (size_t)len} : RLM_STR_NONE;
}

size_t rlm_arena_size(const rlm_arena *a)
{
    return a->size_bytes;
}
