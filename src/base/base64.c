#include "base/base64.h"

#include <stdint.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void rlm_base64_encode(struct rlm_buf *out, rlm_str bytes)
{
    const unsigned char *in = (const unsigned char *)bytes.ptr;
    char *to = rlm_buf_reserve(out, (bytes.len + 2) / 3 * 4);
    if (!to) {
        return;
    }
    size_t written = 0;
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t left = bytes.len - i;
        uint32_t group = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                         (left > 2 ? in[i + 2] : 0);
        to[written++] = digits[group >> 18];
        to[written++] = digits[group >> 12 & 63];
        to[written++] = left > 1 ? digits[group >> 6 & 63] : '=';
        to[written++] = left > 2 ? digits[group & 63] : '=';
    }
    rlm_buf_commit(out, written);
}
