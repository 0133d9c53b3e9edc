/* UTF-8 and WTF-8: counting, checking, and the border where lone surrogates become U+FFFD.
 *
 * A high surrogate followed by a low one (six bytes) is taken here as two code points, so that any
 * Python `str` survives; where text leaves as strict UTF-8 or as JSON the two become the one
 * character they mean.
 */
#pragma once

#include "base/buf.h"

#include <stdint.h>

/* What a whole text is made of; `rlm_utf8_scan` fills it, chunk by chunk. */
struct rlm_utf8_scan {
    uint64_t bytes;    /* taken so far; after a fault, those before it */
    uint64_t chars;    /* code points so far, lone surrogates included */
    uint32_t max_char; /* the highest code point, rounded up to what its width holds: 0x7f, 0xff,
                         * 0xffff or 0x10ffff; 0 for no text */
    bool bad;          /* not WTF-8; `bad_offset` is where the faulty character starts */
    uint64_t bad_offset;
    bool surrogates; /* has lone surrogates (WTF-8, not UTF-8) */
    /* private: a character cut at the end of the last chunk */
    uint8_t tail[4];
    uint8_t tail_len;
};

/* Takes the next chunk; stops at the first fault. Fast on ASCII. */
void rlm_utf8_scan(struct rlm_utf8_scan *scan, const void *chunk, size_t len);
/* Call once after the last chunk: a cut character is a fault. */
void rlm_utf8_scan_end(struct rlm_utf8_scan *scan);

/* True when `s` is UTF-8 without lone surrogates. */
bool rlm_utf8_valid(rlm_str s);
/* Appends `s` as strict UTF-8: every lone surrogate and every bad byte sequence becomes U+FFFD (one
 * for what begins a character and goes wrong, as browsers and Python do). */
void rlm_utf8_clean(struct rlm_buf *out, rlm_str s);
/* Code points of a WTF-8 text (bad bytes count one each). */
size_t rlm_utf8_count(rlm_str s);
/* Byte offset of code point number `chars` (or s.len). */
size_t rlm_utf8_offset(rlm_str s, size_t chars);
/* Byte offset at which the last `chars` code points start (0 if there are fewer). */
size_t rlm_utf8_offset_from_end(rlm_str s, size_t chars);
/* Decodes one code point at s[*pos] and moves *pos on; a bad byte gives -1 and moves by one. */
int32_t rlm_utf8_next(rlm_str s, size_t *pos);
/* Writes 1 to 4 bytes; returns how many. Surrogates are written as WTF-8. */
size_t rlm_utf8_encode(uint32_t code_point, char out[4]);
/* The code point that a high and a low surrogate mean together. */
static inline uint32_t rlm_utf8_join(uint32_t high, uint32_t low)
{
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* Rewrites WTF-8 as an array of `width` (1, 2 or 4) bytes a code point, little endian. `*carry`
 * holds a character cut at the chunk's end between calls (zero it first). `out` must have room for
 * (len + 4) * width bytes. Returns bytes written. The text must have passed rlm_utf8_scan with
 * max_char fitting `width`. */
struct rlm_utf8_carry {
    uint8_t tail[4];
    uint8_t tail_len;
};
size_t
rlm_utf8_widen(struct rlm_utf8_carry *carry, const void *chunk, size_t len, int width, void *out);
