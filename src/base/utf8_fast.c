#include "base/utf8_fast.h"

#if defined(__x86_64__)

#    include <immintrin.h>
#    include <stdbool.h>

#    define FAST __attribute__((target("ssse3,popcnt")))

enum { BLOCK = 16 };

static bool available(void)
{
    static int known; /* 0: not asked, 1: no, 2: yes; the answer is always the same */
    if (!known) {
        known = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt") ? 2 : 1;
    }
    return known == 2;
}

/* Faults that two neighbouring bytes can have; a bit stays only if all three tables have it. */
enum {
    TOO_SHORT = 1 << 0, /* a lead without its continuation */
    TOO_LONG = 1 << 1,  /* ASCII followed by a continuation */
    OVERLONG_3 = 1 << 2,
    TOO_LARGE = 1 << 3,
    SURROGATE = 1 << 4,
    OVERLONG_2 = 1 << 5,
    TOO_LARGE_LOW = 1 << 6, /* above U+10FFFF with a second byte of 80 to 8F; and OVERLONG_4 */
    TWO_CONTINUATIONS = 1 << 7,
    ANY_LOW = TOO_SHORT | TOO_LONG | TWO_CONTINUATIONS,
};

FAST static inline __m128i faults_of_pairs(__m128i first, __m128i second)
{
    const __m128i low_nibble = _mm_set1_epi8(0x0F);
    const __m128i by_first_high = _mm_setr_epi8(
        TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG,
        (char)TWO_CONTINUATIONS, (char)TWO_CONTINUATIONS, (char)TWO_CONTINUATIONS,
        (char)TWO_CONTINUATIONS, TOO_SHORT | OVERLONG_2, TOO_SHORT,
        TOO_SHORT | OVERLONG_3 | SURROGATE, TOO_SHORT | TOO_LARGE | TOO_LARGE_LOW);
    const __m128i by_first_low = _mm_setr_epi8(
        (char)(ANY_LOW | OVERLONG_3 | OVERLONG_2 | TOO_LARGE_LOW), (char)(ANY_LOW | OVERLONG_2),
        (char)ANY_LOW, (char)ANY_LOW, (char)(ANY_LOW | TOO_LARGE),
        (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW), (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW),
        (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW), (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW),
        (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW), (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW),
        (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW), (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW),
        (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW | SURROGATE),
        (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW), (char)(ANY_LOW | TOO_LARGE | TOO_LARGE_LOW));
    const __m128i by_second_high = _mm_setr_epi8(
        TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT,
        (char)(TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | OVERLONG_3 | TOO_LARGE_LOW),
        (char)(TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | OVERLONG_3 | TOO_LARGE),
        (char)(TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | SURROGATE | TOO_LARGE),
        (char)(TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | SURROGATE | TOO_LARGE), TOO_SHORT,
        TOO_SHORT, TOO_SHORT, TOO_SHORT);
    __m128i a =
        _mm_shuffle_epi8(by_first_high, _mm_and_si128(_mm_srli_epi16(first, 4), low_nibble));
    __m128i b = _mm_shuffle_epi8(by_first_low, _mm_and_si128(first, low_nibble));
    __m128i c =
        _mm_shuffle_epi8(by_second_high, _mm_and_si128(_mm_srli_epi16(second, 4), low_nibble));
    return _mm_and_si128(_mm_and_si128(a, b), c);
}

FAST static inline __m128i faults_of_block(__m128i now, __m128i before)
{
    __m128i one_back = _mm_alignr_epi8(now, before, 15);
    __m128i two_back = _mm_alignr_epi8(now, before, 14);
    __m128i three_back = _mm_alignr_epi8(now, before, 13);
    /* Where a third or fourth byte must stand the look-up says "two continuations", rightly. */
    __m128i third = _mm_subs_epu8(two_back, _mm_set1_epi8(0xE0 - 0x80));
    __m128i fourth = _mm_subs_epu8(three_back, _mm_set1_epi8((char)(0xF0 - 0x80)));
    __m128i expected = _mm_and_si128(_mm_or_si128(third, fourth), _mm_set1_epi8((char)0x80));
    return _mm_xor_si128(expected, faults_of_pairs(one_back, now));
}

/* Bytes at the end of p[0..len) that begin a character which does not end there. */
static size_t cut_at_end(const uint8_t *p, size_t len)
{
    if (p[len - 1] >= 0xC0) {
        return 1;
    }
    if (p[len - 2] >= 0xE0) {
        return 2;
    }
    return p[len - 3] >= 0xF0 ? 3 : 0;
}

FAST static size_t scan(const uint8_t *p, size_t len, uint64_t *chars, uint8_t *max_lead)
{
    __m128i before = _mm_setzero_si128(), faults = before, highest = before;
    uint64_t count = 0;
    size_t whole = len & ~(size_t)(BLOCK - 1);
    for (size_t i = 0; i < whole; i += BLOCK) {
        __m128i now = _mm_loadu_si128((const __m128i *)(p + i));
        faults = _mm_or_si128(faults, faults_of_block(now, before));
        highest = _mm_max_epu8(highest, now);
        /* Continuations are -128 to -65. */
        __m128i starts = _mm_cmpgt_epi8(now, _mm_set1_epi8(-65));
        count += (unsigned)__builtin_popcount((unsigned)_mm_movemask_epi8(starts));
        before = now;
    }
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(faults, _mm_setzero_si128())) != 0xFFFF) {
        return 0;
    }
    uint8_t bytes[BLOCK];
    _mm_storeu_si128((__m128i *)bytes, highest);
    for (int i = 0; i < BLOCK; i++) {
        *max_lead = bytes[i] > *max_lead ? bytes[i] : *max_lead;
    }
    size_t cut = cut_at_end(p, whole);
    *chars += count - (cut > 0);
    return whole - cut;
}

/* Stores 16 ASCII bytes as characters of `width` bytes. */
FAST static inline void put_block(__m128i block, int width, uint8_t *out)
{
    const __m128i zero = _mm_setzero_si128();
    if (width == 1) {
        _mm_storeu_si128((__m128i *)out, block);
        return;
    }
    __m128i low = _mm_unpacklo_epi8(block, zero), high = _mm_unpackhi_epi8(block, zero);
    if (width == 2) {
        _mm_storeu_si128((__m128i *)out, low);
        _mm_storeu_si128((__m128i *)(out + 16), high);
        return;
    }
    _mm_storeu_si128((__m128i *)out, _mm_unpacklo_epi16(low, zero));
    _mm_storeu_si128((__m128i *)(out + 16), _mm_unpackhi_epi16(low, zero));
    _mm_storeu_si128((__m128i *)(out + 32), _mm_unpacklo_epi16(high, zero));
    _mm_storeu_si128((__m128i *)(out + 48), _mm_unpackhi_epi16(high, zero));
}

FAST static void widen(const uint8_t **ret_p, const uint8_t *end, int width, uint8_t **ret_out)
{
    const uint8_t *p = *ret_p;
    uint8_t *out = *ret_out;
    while (end - p >= BLOCK) {
        __m128i block = _mm_loadu_si128((const __m128i *)p);
        unsigned other = (unsigned)_mm_movemask_epi8(block);
        unsigned ascii = other ? (unsigned)__builtin_ctz(other) : BLOCK;
        if (ascii) {
            put_block(block, width, out);
            p += ascii;
            out += ascii * (unsigned)width;
        } else if (width == 4 || *p >= 0xE0) {
            break;
        } else if (width == 1) {
            *out++ = (uint8_t)(*p << 6 | (p[1] & 0x3F));
            p += 2;
        } else {
            /* Pairs up to the first byte that is ASCII or leads three or more. */
            __m128i long_lead =
                _mm_cmpeq_epi8(_mm_max_epu8(block, _mm_set1_epi8((char)0xE0)), block);
            unsigned stop = (~other & 0xFFFF) | (unsigned)_mm_movemask_epi8(long_lead);
            unsigned pairs = (stop ? (unsigned)__builtin_ctz(stop) : BLOCK) / 2;
            /* lead and 0x1F times 64, plus continuation and 0x3F */
            __m128i bits = _mm_and_si128(block, _mm_set1_epi16(0x3F1F));
            _mm_storeu_si128((__m128i *)out, _mm_maddubs_epi16(bits, _mm_set1_epi16(0x0140)));
            p += 2 * pairs;
            out += 2 * pairs;
        }
    }
    *ret_p = p;
    *ret_out = out;
}

size_t rlm_utf8_fast_scan(const uint8_t *p, size_t len, uint64_t *chars, uint8_t *max_lead)
{
    return len >= 4 * BLOCK && available() ? scan(p, len, chars, max_lead) : 0;
}

void rlm_utf8_fast_widen(const uint8_t **p, const uint8_t *end, int width, uint8_t **out)
{
    if (available()) {
        widen(p, end, width, out);
    }
}

#else

size_t rlm_utf8_fast_scan(const uint8_t *p, size_t len, uint64_t *chars, uint8_t *max_lead)
{
    (void)p, (void)len, (void)chars, (void)max_lead;
    return 0;
}

void rlm_utf8_fast_widen(const uint8_t **p, const uint8_t *end, int width, uint8_t **out)
{
    (void)p, (void)end, (void)width, (void)out;
}

#endif
