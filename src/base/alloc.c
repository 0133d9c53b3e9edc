#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef RLM_TORTURE
#    include <stdatomic.h>
#    include <unistd.h>

/* Says so on stderr, so that whoever counts upwards knows when no allocation is left to fail. */
static bool fails(void)
{
    static const char message[] = "RLM_FAIL_ALLOC: one failed\n";
    static atomic_long left = -1;
    if (left == -1) {
        const char *text = getenv("RLM_FAIL_ALLOC");
        left = text ? atol(text) : 0;
    }
    if (left <= 0 || atomic_fetch_sub(&left, 1) != 1) {
        return false;
    }
    (void)!write(2, message, sizeof message - 1);
    return true;
}
#else
static inline bool fails(void)
{
    return false;
}
#endif

void *rlm_malloc(size_t size_bytes)
{
    return fails() ? NULL : malloc(size_bytes ? size_bytes : 1);
}

void *rlm_calloc(size_t count, size_t size_bytes)
{
    return fails() ? NULL : calloc(count ? count : 1, size_bytes ? size_bytes : 1);
}

void *rlm_realloc(void *old, size_t size_bytes)
{
    return fails() ? NULL : realloc(old, size_bytes ? size_bytes : 1);
}

char *rlm_strndup(const char *ptr, size_t len)
{
    char *copy = rlm_malloc(len + 1);
    if (!copy) {
        return NULL;
    }
    if (len) {
        memcpy(copy, ptr, len);
    }
    copy[len] = '\0';
    return copy;
}

char *rlm_strdup(const char *text)
{
    return rlm_strndup(text, strlen(text));
}
