/* A growable byte buffer with a maximum and a sticky error.
 *
 * Appending after a failure does nothing, so that a builder checks once, at its end:
 *
 *     rlm_auto_buf struct rlm_buf b = RLM_BUF(64 * 1024);
 *     rlm_buf_addf(&b, "%d lines", n);
 *     if ((r = rlm_buf_check(&b, err)) < 0) return r;
 *
 * `ptr` is NUL-terminated whenever it is not NULL; the NUL is not counted in `len`.
 */
#pragma once

#include "base/str.h"

struct rlm_buf {
    char *ptr;
    size_t len;
    size_t cap;
    size_t max_bytes;
    int status; /* 0, RLM_E_NOMEM, or RLM_E_LIMIT once max_bytes would have been passed */
};

#define RLM_BUF(max) ((struct rlm_buf){.max_bytes = (max)})

void rlm_buf_deinit(struct rlm_buf *b);
#define rlm_auto_buf __attribute__((cleanup(rlm_buf_deinit)))

/* All of these return b->status. */
int rlm_buf_add(struct rlm_buf *b, const void *ptr, size_t len);
int rlm_buf_adds(struct rlm_buf *b, const char *text);
int rlm_buf_add_str(struct rlm_buf *b, rlm_str s);
int rlm_buf_addc(struct rlm_buf *b, char c);
int rlm_buf_addf(struct rlm_buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes room for `extra` more bytes and returns where they go (then add to b->len by hand and
 * restore the NUL with rlm_buf_commit), or NULL. */
char *rlm_buf_reserve(struct rlm_buf *b, size_t extra);
void rlm_buf_commit(struct rlm_buf *b, size_t written);

/* Empties the buffer, keeps the memory, forgets an error. */
void rlm_buf_clear(struct rlm_buf *b);
/* Removes the first `count` bytes. */
void rlm_buf_drop(struct rlm_buf *b, size_t count);

/* Turns the sticky status into an error: 0, RLM_E_NOMEM or RLM_E_LIMIT. */
int rlm_buf_check(const struct rlm_buf *b, rlm_error **err);

/* Moves the bytes out (never NULL unless out of memory or failed); the buffer is empty after it. */
char *rlm_buf_take(struct rlm_buf *b);

static inline rlm_str rlm_buf_str(const struct rlm_buf *b)
{
    return (rlm_str){b->ptr, b->len};
}
