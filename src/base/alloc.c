#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef RLM_TORTURE
static bool fails(void)
{
    static long left = -1;
    if (left == -1) {
        const char *text = getenv("RLM_FAIL_ALLOC");
        left = text ? atol(text) : 0;
    }
    return left > 0 && --left == 0;
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
