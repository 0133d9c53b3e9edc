/* Private to json.c and json_write.c: how far a string goes without anything special in it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Neither a control character, quote or backslash, nor the byte of a non-ASCII character. */
static inline int json_is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* The number of plain bytes at the start. Eight at a time: in a word without high bits, subtracting
 * sets the high bit of every byte that is below 0x20, or equal to the character it was XORed with;
 * a borrow can only mark bytes after the first that is rightly marked. */
static inline size_t json_plain_run(const char *ptr, size_t len)
{
    const uint64_t ones = 0x0101010101010101u;
    size_t i = 0;
    for (; len - i >= 8; i += 8) {
        uint64_t w;
        memcpy(&w, ptr + i, sizeof w);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        w = __builtin_bswap64(w);
#endif
        uint64_t control = w - ones * 0x20;
        uint64_t quote = (w ^ ones * '"') - ones;
        uint64_t backslash = (w ^ ones * '\\') - ones;
        uint64_t special = (control | quote | backslash | w) & ones * 0x80;
        if (special) {
            return i + (size_t)__builtin_ctzll(special) / 8;
        }
    }
    while (i < len && json_is_plain((uint8_t)ptr[i])) {
        i++;
    }
    return i;
}
