#include "base/utf8_fast.h"

#if defined(__x86_64__)

#    include <immintrin.h>
#    include <stdbool.h>
#    include <string.h>

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

/* How to move those of four 16-bit numbers that a mask names to the front. */
#    define NUMBER(i) (uint8_t)(2 * (i)), (uint8_t)(2 * (i) + 1)
#    define FOUR(a, b, c, d)                           \
        {                                              \
            NUMBER(a), NUMBER(b), NUMBER(c), NUMBER(d) \
        }
#    define SIXTEEN(o)                                                                        \
        {                                                                                     \
            FOUR(o, o, o, o), FOUR(o, o, o, o), FOUR(o + 1, o, o, o), FOUR(o, o + 1, o, o),   \
                FOUR(o + 2, o, o, o), FOUR(o, o + 2, o, o), FOUR(o + 1, o + 2, o, o),         \
                FOUR(o, o + 1, o + 2, o), FOUR(o + 3, o, o, o), FOUR(o, o + 3, o, o),         \
                FOUR(o + 1, o + 3, o, o), FOUR(o, o + 1, o + 3, o), FOUR(o + 2, o + 3, o, o), \
                FOUR(o, o + 2, o + 3, o), FOUR(o + 1, o + 2, o + 3, o),                       \
                FOUR(o, o + 1, o + 2, o + 3)                                                  \
        }
static const uint8_t TO_FRONT[2][16][8] = {SIXTEEN(0), SIXTEEN(4)}; /* of each half of a register */

/* Stores those of eight 16-bit numbers that `mask` names; returns where the next goes. */
FAST static inline uint8_t *put_some(__m128i numbers, unsigned mask, int width, uint8_t *out)
{
    const __m128i zero = _mm_setzero_si128();
    unsigned first = mask & 15, second = mask >> 4;
    uint8_t *then = out + (unsigned)__builtin_popcount(first) * (unsigned)width;
    __m128i order = _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)TO_FRONT[0][first]),
                                       _mm_loadl_epi64((const __m128i *)TO_FRONT[1][second]));
    __m128i moved = _mm_shuffle_epi8(numbers, order);
    if (width == 1) {
        uint64_t bytes = (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(moved, zero));
        memcpy(out, &bytes, 4);
        bytes >>= 32;
        memcpy(then, &bytes, 4);
    } else if (width == 2) {
        _mm_storel_epi64((__m128i *)out, moved);
        _mm_storel_epi64((__m128i *)then, _mm_unpackhi_epi64(moved, moved));
    } else {
        _mm_storeu_si128((__m128i *)out, _mm_unpacklo_epi16(moved, zero));
        _mm_storeu_si128((__m128i *)then, _mm_unpackhi_epi16(moved, zero));
    }
    return then + (unsigned)__builtin_popcount(second) * (unsigned)width;
}

/* Each byte is taken for the last of a character, with the one or two before it; those that are not
 * the last are dropped. So blocks need not begin or end where characters do, and what the characters
 * are decides no branch. */
FAST static inline uint8_t *put_mixed(__m128i now, __m128i before, int width, uint8_t *out)
{
    const __m128i zero = _mm_setzero_si128(), factors = _mm_set1_epi16(0x0140);
    __m128i one_back = _mm_alignr_epi8(now, before, 15);
    __m128i two_back = _mm_alignr_epi8(now, before, 14);
    __m128i ends_three =
        _mm_cmpeq_epi8(_mm_max_epu8(two_back, _mm_set1_epi8((char)0xE0)), two_back);
    __m128i continues = _mm_cmpgt_epi8(_mm_set1_epi8(-64), now);
    /* Continuation bytes lack the bit 0x40, and leads of two the bit 0x20: so one mask serves both. */
    __m128i low = _mm_and_si128(now, _mm_set1_epi8(0x7F));
    __m128i middle = _mm_and_si128(_mm_and_si128(one_back, continues), _mm_set1_epi8(0x3F));
    __m128i high = _mm_and_si128(_mm_and_si128(two_back, ends_three), _mm_set1_epi8(0x0F));
    /* The second of three has a lead from E0 before it; leads are those from C0. */
    __m128i long_before =
        _mm_cmpeq_epi8(_mm_max_epu8(one_back, _mm_set1_epi8((char)0xE0)), one_back);
    __m128i leads = _mm_cmpeq_epi8(_mm_max_epu8(now, _mm_set1_epi8((char)0xC0)), now);
    unsigned last = ~(unsigned)_mm_movemask_epi8(_mm_or_si128(long_before, leads));
    __m128i first_eight = _mm_maddubs_epi16(_mm_unpacklo_epi8(middle, low), factors);
    __m128i next_eight = _mm_maddubs_epi16(_mm_unpackhi_epi8(middle, low), factors);
    first_eight = _mm_or_si128(first_eight, _mm_slli_epi16(_mm_unpacklo_epi8(zero, high), 4));
    next_eight = _mm_or_si128(next_eight, _mm_slli_epi16(_mm_unpackhi_epi8(zero, high), 4));
    out = put_some(first_eight, last & 0xFF, width, out);
    return put_some(next_eight, last >> 8 & 0xFF, width, out);
}

FAST static inline void
widen(const uint8_t **ret_p, const uint8_t *end, int width, uint8_t **ret_out)
{
    const uint8_t *p = *ret_p;
    uint8_t *out = *ret_out;
    __m128i before = _mm_setzero_si128();
    unsigned begun = 0; /* bytes before `p` of a character that goes on there */
    for (; end - p >= BLOCK; p += BLOCK) {
        __m128i now = _mm_loadu_si128((const __m128i *)p);
        unsigned other = (unsigned)_mm_movemask_epi8(now);
        if (!other) {
            put_block(now, width, out);
            out += BLOCK * (unsigned)width;
        } else {
            __m128i four = _mm_cmpeq_epi8(_mm_max_epu8(now, _mm_set1_epi8((char)0xF0)), now);
            unsigned ascii = (unsigned)__builtin_ctz(other);
            if (_mm_movemask_epi8(four) && ascii) {
                put_block(now, width, out);
                out += ascii * (unsigned)width;
                p += ascii;
                begun = 0;
                break;
            }
            if (_mm_movemask_epi8(four)) {
                break;
            }
            out = put_mixed(now, before, width, out);
        }
        begun = (unsigned)cut_at_end(p, BLOCK);
        before = now;
    }
    *ret_p = p - begun;
    *ret_out = out;
}

FAST static void widen_to(const uint8_t **p, const uint8_t *end, int width, uint8_t **out)
{
    /* Three loops, each with its width as a constant. */
    if (width == 1) {
        widen(p, end, 1, out);
    } else if (width == 2) {
        widen(p, end, 2, out);
    } else {
        widen(p, end, 4, out);
    }
}

size_t rlm_utf8_fast_scan(const uint8_t *p, size_t len, uint64_t *chars, uint8_t *max_lead)
{
    return len >= 4 * BLOCK && available() ? scan(p, len, chars, max_lead) : 0;
}

void rlm_utf8_fast_widen(const uint8_t **p, const uint8_t *end, int width, uint8_t **out)
{
    if (available()) {
        widen_to(p, end, width, out);
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
