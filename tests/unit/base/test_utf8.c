#include "base/utf8.h"
#include "harness.h"

#include <stdlib.h>

#define MIXED "a\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80z" /* 1, 2, 3, 4 and 1 bytes */

static struct rlm_utf8_scan scan_in_chunks(rlm_str s, size_t chunk)
{
    struct rlm_utf8_scan scan = {0};
    for (size_t i = 0; i < s.len; i += chunk) {
        rlm_utf8_scan(&scan, s.ptr + i, s.len - i < chunk ? s.len - i : chunk);
    }
    rlm_utf8_scan_end(&scan);
    return scan;
}

TEST(scan_counts_whatever_the_chunks)
{
    for (size_t chunk = 1; chunk <= 12; chunk++) {
        struct rlm_utf8_scan scan = scan_in_chunks(RLM_STR(MIXED), chunk);
        CHECK(!scan.bad && !scan.surrogates);
        CHECK_INT(scan.bytes, 11);
        CHECK_INT(scan.chars, 5);
        CHECK_INT(scan.max_char, 0x10FFFF);
    }
}

TEST(scan_of_long_ascii)
{
    char text[200];
    memset(text, 'x', sizeof text);
    for (size_t len = 0; len < sizeof text; len++) {
        struct rlm_utf8_scan scan = scan_in_chunks((rlm_str){text, len}, 77);
        CHECK(!scan.bad);
        CHECK_INT(scan.chars, len);
        CHECK_INT(scan.max_char, len ? 0x7F : 0);
    }
}

TEST(scan_finds_one_odd_byte_anywhere)
{
    char text[100];
    for (size_t at = 0; at < sizeof text; at++) {
        memset(text, 'x', sizeof text);
        text[at] = (char)0xFF;
        for (size_t chunk = 1; chunk < 100; chunk += 9) {
            struct rlm_utf8_scan scan = scan_in_chunks((rlm_str){text, sizeof text}, chunk);
            CHECK(scan.bad);
            CHECK_INT(scan.bad_offset, at);
            CHECK_INT(scan.bytes, at);
            CHECK_INT(scan.chars, at);
        }
    }
}

TEST(scan_refuses_what_is_no_wtf8)
{
    static const struct {
        rlm_str text;
        size_t offset;
    } cases[] = {
        {{"\x80", 1}, 0},
        {{"\xC0\xAF", 2}, 0},             /* overlong */
        {{"\xC1\xBF", 2}, 0},             /* overlong */
        {{"\xE0\x9F\xBF", 3}, 0},         /* overlong */
        {{"\xF0\x8F\xBF\xBF", 4}, 0},     /* overlong */
        {{"\xF4\x90\x80\x80", 4}, 0},     /* above U+10FFFF */
        {{"\xF5\x80\x80\x80", 4}, 0},     /* above U+10FFFF */
        {{"ab\xE6\xBC", 4}, 2},           /* cut */
        {{"ab\xE6\xBCx", 5}, 2},          /* cut in the middle */
        {{"\xC3\xA9\xF0\x9F\x98", 5}, 2}, /* cut */
        {{"a\xC3\xC3\xA9", 4}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t chunk = 1; chunk <= 5; chunk++) {
            struct rlm_utf8_scan scan = scan_in_chunks(cases[i].text, chunk);
            CHECK(scan.bad);
            CHECK_INT(scan.bad_offset, cases[i].offset);
        }
        CHECK(!rlm_utf8_valid(cases[i].text));
    }
}

TEST(scan_takes_nothing_after_a_fault)
{
    struct rlm_utf8_scan scan = {0};
    rlm_utf8_scan(&scan, "ab\xFF", 3);
    rlm_utf8_scan(&scan, "cd", 2);
    CHECK_INT(scan.bytes, 2);
    CHECK_INT(scan.chars, 2);
    CHECK_INT(scan.bad_offset, 2);
}

TEST(scan_accepts_the_borders)
{
    CHECK(rlm_utf8_valid(RLM_STR("\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF")));
    CHECK(rlm_utf8_valid(RLM_STR("\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF")));
    CHECK(rlm_utf8_valid(RLM_STR("a\0b")));
    CHECK(rlm_utf8_valid(RLM_STR_NONE));
}

TEST(scan_tells_surrogates)
{
    static const char *const texts[] = {"x\xED\xA0\x80", "\xED\xBF\xBFy",
                                        "\xED\xA0\xBD\xED\xB8\x80"};
    for (size_t i = 0; i < 3; i++) {
        struct rlm_utf8_scan scan = scan_in_chunks(rlm_str_of(texts[i]), 2);
        CHECK(!scan.bad && scan.surrogates);
        CHECK_INT(scan.chars, 2);
        CHECK(!rlm_utf8_valid(rlm_str_of(texts[i])));
    }
}

static void check_clean(rlm_str text, const char *expected)
{
    rlm_auto_buf struct rlm_buf out = RLM_BUF(1000);
    rlm_utf8_clean(&out, text);
    CHECK_INT(out.status, 0);
    CHECK_STR(rlm_buf_str(&out), expected);
    CHECK(rlm_utf8_valid(rlm_buf_str(&out)));
}

#define REPLACED "\xEF\xBF\xBD"

TEST(clean_replaces_what_is_not_utf8)
{
    check_clean(RLM_STR_NONE, "");
    check_clean(RLM_STR(MIXED), MIXED);
    check_clean(RLM_STR("a\xED\xB2\x80z"), "a" REPLACED "z");
    check_clean(RLM_STR("\xED\xA0\x80"), REPLACED);
    check_clean(RLM_STR("\xED\xA0\xBD\xED\xB8\x80!"), "\xF0\x9F\x98\x80!");
    check_clean(RLM_STR("\xED\xB8\x80\xED\xA0\xBD"), REPLACED REPLACED);
    check_clean(RLM_STR("\xED\xA0\xBD\xED\xA0\xBD\xED\xB8\x80"), REPLACED "\xF0\x9F\x98\x80");
    /* One for each beginning of a character that goes wrong. */
    check_clean(RLM_STR("\xF0\x9F\x98"), REPLACED);
    check_clean(RLM_STR("\xF0\x9F\x98z"), REPLACED "z");
    check_clean(RLM_STR("\xE6\xBC\xE6\xBC\xA2"), REPLACED "\xE6\xBC\xA2");
    check_clean(RLM_STR("\xC0\xAF\xFF"), REPLACED REPLACED REPLACED);
    check_clean(RLM_STR("0123456789\x80"
                        "0123456789"),
                "0123456789" REPLACED "0123456789");
}

TEST(clean_stops_at_the_maximum)
{
    rlm_auto_buf struct rlm_buf out = RLM_BUF(4);
    rlm_utf8_clean(&out, RLM_STR("ab\xFF"
                                 "cd"));
    CHECK_INT(out.status, RLM_E_LIMIT);
}

TEST(count_and_offsets)
{
    static const size_t borders[] = {0, 1, 3, 6, 10, 11};
    rlm_str s = RLM_STR(MIXED);
    CHECK_INT(rlm_utf8_count(s), 5);
    for (size_t i = 0; i <= 5; i++) {
        CHECK_INT(rlm_utf8_offset(s, i), borders[i]);
        CHECK_INT(rlm_utf8_offset_from_end(s, i), borders[5 - i]);
    }
    CHECK_INT(rlm_utf8_offset(s, 6), 11);
    CHECK_INT(rlm_utf8_offset_from_end(s, 6), 0);
    CHECK_INT(rlm_utf8_count(RLM_STR_NONE), 0);
    CHECK_INT(rlm_utf8_offset(RLM_STR_NONE, 3), 0);
    CHECK_INT(rlm_utf8_offset_from_end(RLM_STR_NONE, 3), 0);
}

/* Also among bad bytes the borders from the end are those from the front. */
TEST(offsets_agree_for_any_bytes)
{
    static const uint8_t alphabet[] = {'a', 0x80, 0xBF, 0xC3, 0xE0, 0xED, 0xA0, 0xF0, 0x9F, 0xFF};
    srand(1);
    for (int round = 0; round < 20000; round++) {
        char text[24];
        size_t len = (size_t)rand() % sizeof text;
        for (size_t i = 0; i < len; i++) {
            text[i] = (char)alphabet[(size_t)rand() % sizeof alphabet];
        }
        rlm_str s = {text, len};
        size_t count = rlm_utf8_count(s), steps = 0;
        for (size_t pos = 0; pos < len; steps++) {
            CHECK_INT(rlm_utf8_offset(s, steps), pos);
            CHECK_INT(rlm_utf8_offset_from_end(s, count - steps), pos);
            rlm_utf8_next(s, &pos);
        }
        CHECK_INT(steps, count);
    }
}

TEST(next_decodes_or_moves_by_one)
{
    static const int32_t expected[] = {'a', 0xE9, 0x6F22, 0x1F600, 'z'};
    size_t pos = 0;
    for (int i = 0; i < 5; i++) {
        CHECK_INT(rlm_utf8_next(RLM_STR(MIXED), &pos), expected[i]);
    }
    pos = 0;
    CHECK_INT(rlm_utf8_next(RLM_STR("\xED\xB2\x80"), &pos), 0xDC80);
    CHECK_INT(pos, 3);
    pos = 0;
    CHECK_INT(rlm_utf8_next(RLM_STR("\xE6\xBC"), &pos), -1);
    CHECK_INT(pos, 1);
    CHECK_INT(rlm_utf8_next(RLM_STR("\xE6\xBC"), &pos), -1);
    CHECK_INT(pos, 2);
}

TEST(encode_is_the_inverse_of_next)
{
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char text[4];
        size_t pos = 0, len = rlm_utf8_encode(c, text);
        CHECK_INT(rlm_utf8_next((rlm_str){text, len}, &pos), c);
        CHECK_INT(pos, len);
    }
    CHECK_INT(rlm_utf8_join(0xD83D, 0xDE00), 0x1F600);
    CHECK_INT(rlm_utf8_join(0xDBFF, 0xDFFF), 0x10FFFF);
}

static uint32_t unit_at(const uint8_t *out, size_t index, int width)
{
    uint32_t c = 0;
    for (int i = width; i-- > 0;) {
        c = c << 8 | out[index * (size_t)width + (size_t)i];
    }
    return c;
}

/* Widens in chunks into room of exactly the promised size and compares with `rlm_utf8_next`. */
static void check_widen(rlm_str s, int width)
{
    for (size_t chunk = 1; chunk <= s.len; chunk++) {
        struct rlm_utf8_carry carry = {0};
        size_t pos = 0;
        for (size_t i = 0; i < s.len; i += chunk) {
            size_t len = s.len - i < chunk ? s.len - i : chunk;
            uint8_t *out = malloc((len + 4) * (size_t)width);
            size_t written = rlm_utf8_widen(&carry, s.ptr + i, len, width, out);
            CHECK_INT(written % (size_t)width, 0);
            for (size_t k = 0; k < written / (size_t)width; k++) {
                CHECK_INT(unit_at(out, k, width), rlm_utf8_next(s, &pos));
            }
            free(out);
        }
        CHECK_INT(pos, s.len);
    }
}

TEST(widen_any_chunks_any_width)
{
    check_widen(RLM_STR("caf\xC3\xA9 and a tail that is longer than a word \xC3\xBF"), 1);
    check_widen(RLM_STR("\xE6\xBC\xA2 plain ascii in between \xC3\xA9\xED\xB2\x80.\xEF\xBF\xBF"),
                2);
    check_widen(RLM_STR("\xED\xA0\xBD\xED\xB8\x80"), 2);
    check_widen(RLM_STR(MIXED), 4);
    check_widen(RLM_STR("\xF4\x8F\xBF\xBF ascii ascii ascii \xF0\x90\x80\x80"), 4);
    struct rlm_utf8_carry carry = {0};
    CHECK_INT(rlm_utf8_widen(&carry, NULL, 0, 4, NULL), 0);
}

TEST(widen_goes_on_after_a_bad_cut)
{
    struct rlm_utf8_carry carry = {0};
    uint8_t out[16];
    CHECK_INT(rlm_utf8_widen(&carry, "a\xE6\xBC", 3, 2, out), 2);
    CHECK_INT(rlm_utf8_widen(&carry, "xy", 2, 2, out), 6);
    CHECK(memcmp(out, "\xFD\xFFx\0y", 6) == 0);
    CHECK_INT(rlm_utf8_widen(&carry, "z", 1, 2, out), 2);
    CHECK(memcmp(out, "z", 2) == 0);
}

/* The caller has scanned the text; should it have changed since, memory is still safe. */
TEST(widen_of_bad_bytes_keeps_its_room)
{
    srand(2);
    for (int round = 0; round < 5000; round++) {
        struct rlm_utf8_carry carry = {0};
        for (int part = 0; part < 4; part++) {
            size_t len = (size_t)rand() % 9;
            uint8_t *text = malloc(len + 1), *out = malloc((len + 4) * 4);
            for (size_t i = 0; i < len; i++) {
                text[i] = (uint8_t)(rand() % 3 ? 0x80 | rand() : rand());
            }
            size_t written = rlm_utf8_widen(&carry, text, len, 4, out);
            CHECK(written <= (len + 4) * 4);
            free(text);
            free(out);
        }
    }
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Long chunks take other loops than single bytes; both must say the same, of good and of bad texts. */
TEST(long_chunks_and_single_bytes_agree)
{
    static const uint32_t tops[] = {0x7F, 0xFF, 0x7FF, 0xFFFF, 0x10FFFF};
    uint32_t state = 1;
    for (int round = 0; round < 20000; round++) {
        char text[800];
        size_t len = 0;
        uint32_t top = tops[next_random(&state) % 5], plain = next_random(&state) % 4;
        while (len < 100 + next_random(&state) % 600) {
            bool ascii = plain && next_random(&state) % 16 < 4 * plain;
            uint32_t c = ascii ? 'a' + next_random(&state) % 26 : next_random(&state) % (top + 1);
            bool surrogate = c >= 0xD800 && c < 0xE000;
            len += rlm_utf8_encode(surrogate && round % 8 ? 'x' : c, text + len);
        }
        if (round % 2) {
            text[next_random(&state) % len] = (char)next_random(&state);
        }
        struct rlm_utf8_scan whole = {0}, single = {0};
        rlm_utf8_scan(&whole, text, len);
        rlm_utf8_scan_end(&whole);
        for (size_t i = 0; i < len; i++) {
            rlm_utf8_scan(&single, text + i, 1);
        }
        rlm_utf8_scan_end(&single);
        CHECK_INT(whole.bad, single.bad);
        CHECK_INT(whole.bad_offset, single.bad_offset);
        CHECK_INT(whole.surrogates, single.surrogates);
        if (whole.bad) {
            continue;
        }
        CHECK_INT(whole.chars, single.chars);
        CHECK_INT(whole.max_char, single.max_char);
        int width = whole.max_char < 0x100 ? 1 : whole.max_char < 0x10000 ? 2 : 4;
        for (; width <= 4; width *= 2) {
            static uint8_t a[4 * 804], b[4 * 804 + 64];
            struct rlm_utf8_carry carry = {0};
            size_t a_len = rlm_utf8_widen(&carry, text, len, width, a), b_len = 0;
            for (size_t i = 0; i < len; i++) {
                b_len += rlm_utf8_widen(&carry, text + i, 1, width, b + b_len);
            }
            CHECK_INT(a_len, whole.chars * (unsigned)width);
            CHECK_INT(b_len, a_len);
            CHECK(memcmp(a, b, a_len) == 0);
        }
    }
}
