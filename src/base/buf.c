#include "base/buf.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

void rlm_buf_deinit(struct rlm_buf *b)
{
    free(b->ptr);
    b->ptr = NULL;
    b->len = b->cap = 0;
}

char *rlm_buf_reserve(struct rlm_buf *b, size_t extra)
{
    if (b->status < 0) {
        return NULL;
    }
    if (extra > b->max_bytes || b->len > b->max_bytes - extra || b->len + extra == SIZE_MAX) {
        b->status = RLM_E_LIMIT;
        return NULL;
    }
    size_t need = b->len + extra + 1;
    if (need > b->cap) {
        size_t cap = b->cap + b->cap / 2 + 64;
        if (cap < need) {
            cap = need;
        }
        if (cap - 1 > b->max_bytes) {
            cap = b->max_bytes + 1;
        }
        char *grown = rlm_realloc(b->ptr, cap);
        if (!grown) {
            b->status = RLM_E_NOMEM;
            return NULL;
        }
        b->ptr = grown;
        b->cap = cap;
    }
    return b->ptr + b->len;
}

void rlm_buf_commit(struct rlm_buf *b, size_t written)
{
    b->len += written;
    b->ptr[b->len] = '\0';
}

int rlm_buf_add(struct rlm_buf *b, const void *ptr, size_t len)
{
    char *room = rlm_buf_reserve(b, len);
    if (room) {
        if (len) {
            memcpy(room, ptr, len);
        }
        rlm_buf_commit(b, len);
    }
    return b->status;
}

int rlm_buf_adds(struct rlm_buf *b, const char *text)
{
    return rlm_buf_add(b, text, strlen(text));
}

int rlm_buf_add_str(struct rlm_buf *b, rlm_str s)
{
    return rlm_buf_add(b, s.ptr, s.len);
}

int rlm_buf_addc(struct rlm_buf *b, char c)
{
    return rlm_buf_add(b, &c, 1);
}

int rlm_buf_addf(struct rlm_buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *room = len < 0 ? NULL : rlm_buf_reserve(b, (size_t)len);
    if (room) {
        vsnprintf(room, (size_t)len + 1, format, again);
        rlm_buf_commit(b, (size_t)len);
    }
    va_end(again);
    return b->status;
}

void rlm_buf_clear(struct rlm_buf *b)
{
    b->len = 0;
    b->status = 0;
    if (b->ptr) {
        b->ptr[0] = '\0';
    }
}

void rlm_buf_drop(struct rlm_buf *b, size_t count)
{
    if (count) {
        memmove(b->ptr, b->ptr + count, b->len - count + 1);
        b->len -= count;
    }
}

int rlm_buf_check(const struct rlm_buf *b, rlm_error **err)
{
    if (b->status == RLM_E_NOMEM) {
        return rlm_error_nomem(err);
    }
    if (b->status < 0) {
        return rlm_error_set(err, b->status, "more than %zu bytes", b->max_bytes);
    }
    return 0;
}

char *rlm_buf_take(struct rlm_buf *b)
{
    if (b->status < 0 || (!b->ptr && !rlm_buf_reserve(b, 0))) {
        return NULL;
    }
    b->ptr[b->len] = '\0';
    char *taken = b->ptr;
    b->ptr = NULL;
    b->len = b->cap = 0;
    return taken;
}
