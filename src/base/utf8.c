#include "base/utf8.h"

#include "base/utf8_fast.h"

enum { REPLACEMENT = 0xFFFD };

/* Decodes the character at `p`. Returns its length; 0 when all `left` bytes are the beginning of a
 * character; or, negative, how many bytes a replacement character should stand for (Unicode's
 * "maximal subpart"). */
static inline int decode(const uint8_t *p, size_t left, uint32_t *ret_char)
{
    uint8_t lead = p[0];
    if (lead < 0x80) {
        *ret_char = lead;
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return -1;
    }
    int len = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    /* Only the second byte has a narrower range: no overlong forms, nothing above U+10FFFF. */
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xF4 ? 0x8F : 0xBF;
    uint32_t c = lead & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i == left) {
            return 0;
        }
        if (p[i] < low || p[i] > high) {
            return -i;
        }
        c = c << 6 | (p[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *ret_char = c;
    return len;
}

static inline bool is_surrogate(uint32_t c)
{
    return c >= 0xD800 && c < 0xE000;
}

static size_t ascii_run(const uint8_t *start, const uint8_t *end)
{
    const uint8_t *p = start;
    const uint64_t high_bits = 0x8080808080808080u;
    while (end - p >= 32) {
        uint64_t w[4];
        memcpy(w, p, sizeof w);
        if ((w[0] | w[1] | w[2] | w[3]) & high_bits) {
            break;
        }
        p += sizeof w;
    }
    while (end - p >= 8) {
        uint64_t w;
        memcpy(&w, p, sizeof w);
        if (w & high_bits) {
            break;
        }
        p += sizeof w;
    }
    while (p < end && *p < 0x80) {
        p++;
    }
    return (size_t)(p - start);
}

/* Completes a character that was cut at the end of the last chunk: moves *p on and returns as
 * `decode` does. The byte that makes it bad is not taken. */
static int finish_cut(
    uint8_t tail[4], uint8_t *tail_len, const uint8_t **p, const uint8_t *end, uint32_t *ret_char)
{
    int n = 0;
    while (n == 0 && *p < end) {
        tail[*tail_len] = **p;
        n = decode(tail, *tail_len + 1u, ret_char);
        if (n >= 0) {
            ++*tail_len;
            ++*p;
        }
    }
    if (n > 0) {
        *tail_len = 0;
    }
    return n;
}

static void keep_cut(uint8_t tail[4], uint8_t *tail_len, const uint8_t *p, const uint8_t *end)
{
    *tail_len = (uint8_t)(end - p);
    memcpy(tail, p, *tail_len);
}

/* The end of the width that a code point needs. */
static uint32_t end_of_width(uint32_t c)
{
    return c < 0x80 ? 0x7F : c < 0x100 ? 0xFF : c < 0x10000 ? 0xFFFF : 0x10FFFF;
}

static uint32_t end_of_lead(uint8_t lead)
{
    return lead < 0x80 ? 0x7F : lead < 0xC4 ? 0xFF : lead < 0xF0 ? 0xFFFF : 0x10FFFF;
}

static inline void take_max(struct rlm_utf8_scan *scan, uint32_t c)
{
    if (c > scan->max_char) {
        scan->max_char = c;
    }
}

static inline void take(struct rlm_utf8_scan *scan, uint32_t c)
{
    scan->chars++;
    take_max(scan, end_of_width(c));
    scan->surrogates |= is_surrogate(c);
}

static void fail(struct rlm_utf8_scan *scan, uint64_t offset)
{
    scan->bad = true;
    scan->bad_offset = scan->bytes = offset;
    scan->tail_len = 0;
}

void rlm_utf8_scan(struct rlm_utf8_scan *scan, const void *chunk, size_t len)
{
    if (scan->bad || len == 0) {
        return;
    }
    const uint8_t *start = chunk, *p = start, *end = start + len;
    uint32_t c;
    if (scan->tail_len) {
        uint64_t offset = scan->bytes - scan->tail_len;
        int n = finish_cut(scan->tail, &scan->tail_len, &p, end, &c);
        if (n < 0) {
            fail(scan, offset);
            return;
        }
        if (n > 0) {
            take(scan, c);
        }
    }
    uint8_t lead = 0;
    size_t fast = rlm_utf8_fast_scan(p, (size_t)(end - p), &scan->chars, &lead);
    if (fast) {
        p += fast;
        take_max(scan, end_of_lead(lead));
    }
    while (p < end) {
        if (*p < 0x80) {
            size_t run = ascii_run(p, end);
            scan->chars += run;
            p += run;
            take_max(scan, 0x7F);
            continue;
        }
        int n = decode(p, (size_t)(end - p), &c);
        if (n < 0) {
            fail(scan, scan->bytes + (uint64_t)(p - start));
            return;
        }
        if (n == 0) {
            keep_cut(scan->tail, &scan->tail_len, p, end);
            break;
        }
        take(scan, c);
        p += n;
    }
    scan->bytes += len;
}

void rlm_utf8_scan_end(struct rlm_utf8_scan *scan)
{
    if (!scan->bad && scan->tail_len) {
        fail(scan, scan->bytes - scan->tail_len);
    }
}

bool rlm_utf8_valid(rlm_str s)
{
    struct rlm_utf8_scan scan = {0};
    rlm_utf8_scan(&scan, s.ptr, s.len);
    rlm_utf8_scan_end(&scan);
    return !scan.bad && !scan.surrogates;
}

/* The low half at `p` of a pair whose high half is `high`; 0 when something else stands there. */
static uint32_t low_half(uint32_t high, const uint8_t *p, const uint8_t *end)
{
    uint32_t c;
    bool pair = high >= 0xD800 && high < 0xDC00 && p < end &&
                decode(p, (size_t)(end - p), &c) == 3 && c >= 0xDC00 && c < 0xE000;
    return pair ? c : 0;
}

void rlm_utf8_clean(struct rlm_buf *out, rlm_str s)
{
    if (s.len == 0) {
        return;
    }
    const uint8_t *p = (const uint8_t *)s.ptr, *end = p + s.len, *good = p;
    while (p < end) {
        uint32_t c = 0;
        if (*p < 0x80) {
            p += ascii_run(p, end);
            continue;
        }
        int n = decode(p, (size_t)(end - p), &c);
        if (n > 0 && !is_surrogate(c)) {
            p += n;
            continue;
        }
        rlm_buf_add(out, good, (size_t)(p - good));
        p += n > 0 ? n : n < 0 ? -n : end - p;
        uint32_t low = n > 0 ? low_half(c, p, end) : 0;
        p += low ? 3 : 0;
        char text[4];
        rlm_buf_add(out, text, rlm_utf8_encode(low ? rlm_utf8_join(c, low) : REPLACEMENT, text));
        good = p;
    }
    rlm_buf_add(out, good, (size_t)(p - good));
}

int32_t rlm_utf8_next(rlm_str s, size_t *pos)
{
    uint32_t c;
    int n = decode((const uint8_t *)s.ptr + *pos, s.len - *pos, &c);
    if (n <= 0) {
        ++*pos;
        return -1;
    }
    *pos += (size_t)n;
    return (int32_t)c;
}

size_t rlm_utf8_offset(rlm_str s, size_t chars)
{
    size_t pos = 0;
    while (pos < s.len && chars) {
        const uint8_t *p = (const uint8_t *)s.ptr + pos;
        if (*p < 0x80) {
            size_t left = s.len - pos;
            size_t run = ascii_run(p, p + (chars < left ? chars : left));
            pos += run;
            chars -= run;
        } else {
            rlm_utf8_next(s, &pos);
            chars--;
        }
    }
    return pos;
}

size_t rlm_utf8_count(rlm_str s)
{
    size_t pos = 0, count = 0;
    while (pos < s.len) {
        const uint8_t *p = (const uint8_t *)s.ptr + pos;
        if (*p < 0x80) {
            size_t run = ascii_run(p, p + (s.len - pos));
            pos += run;
            count += run;
        } else {
            rlm_utf8_next(s, &pos);
            count++;
        }
    }
    return count;
}

size_t rlm_utf8_offset_from_end(rlm_str s, size_t chars)
{
    const uint8_t *text = (const uint8_t *)s.ptr;
    size_t pos = s.len;
    while (pos && chars) {
        /* The same borders as from the front: a lead byte is never inside another character, so
         * either a character ends here exactly, or the last byte is a bad one. */
        size_t back = 1;
        while (back < 4 && back < pos && (text[pos - back] & 0xC0) == 0x80) {
            back++;
        }
        uint32_t c;
        pos -= decode(text + pos - back, back, &c) == (int)back ? back : 1;
        chars--;
    }
    return pos;
}

size_t rlm_utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

static inline uint8_t *put_wide(uint8_t *out, uint32_t c, int width)
{
    for (int i = 0; i < width; i++) {
        out[i] = (uint8_t)(c >> 8 * i);
    }
    return out + width;
}

static uint8_t *put_ascii(uint8_t *out, const uint8_t *p, size_t run, int width)
{
    switch (width) {
    case 1:
        memcpy(out, p, run);
        break;
    case 2:
        for (size_t i = 0; i < run; i++) {
            out[2 * i] = p[i];
            out[2 * i + 1] = 0;
        }
        break;
    default:
        for (size_t i = 0; i < run; i++) {
            put_wide(out + 4 * i, p[i], 4);
        }
    }
    return out + run * (size_t)width;
}

size_t
rlm_utf8_widen(struct rlm_utf8_carry *carry, const void *chunk, size_t len, int width, void *out)
{
    if (len == 0) {
        return 0;
    }
    const uint8_t *p = chunk, *end = p + len;
    uint8_t *to = out;
    uint32_t c;
    if (carry->tail_len) {
        int n = finish_cut(carry->tail, &carry->tail_len, &p, end, &c);
        if (n != 0) {
            to = put_wide(to, n > 0 ? c : REPLACEMENT, width);
            carry->tail_len = 0;
        }
    }
    for (;;) {
        rlm_utf8_fast_widen(&p, end, width, &to);
        if (p == end) {
            break;
        }
        if (*p < 0x80) {
            size_t run = ascii_run(p, end);
            to = put_ascii(to, p, run, width);
            p += run;
            continue;
        }
        int n = decode(p, (size_t)(end - p), &c);
        if (n == 0) {
            keep_cut(carry->tail, &carry->tail_len, p, end);
            break;
        }
        to = put_wide(to, n > 0 ? c : REPLACEMENT, width);
        p += n > 0 ? n : -n;
    }
    return (size_t)(to - (uint8_t *)out);
}
