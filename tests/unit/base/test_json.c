#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "harness.h"

#include <locale.h>
#include <math.h>

/* Each test is a process of its own; what it parses lives to its end. */
static rlm_arena *arena;

__attribute__((destructor)) static void free_arena(void)
{
    rlm_arena_free(arena);
}

static const rlm_json *parse_str(rlm_str text)
{
    rlm_autoerr rlm_error *err = NULL;
    const rlm_json *value = NULL;
    arena = arena ? arena : rlm_arena_new(0);
    int r = rlm_json_parse(arena, text, &value, &err);
    if (r < 0) {
        harness_fail(__FILE__, __LINE__, "%.*s: %s", RLM_FMT(text), rlm_error_message(err));
    }
    return value;
}

static const rlm_json *parse(const char *text)
{
    return parse_str(rlm_str_of(text));
}

static void check_refused(rlm_str text, size_t offset, const char *reason)
{
    rlm_autoerr rlm_error *err = NULL;
    const rlm_json *value = NULL;
    char where[40];
    arena = arena ? arena : rlm_arena_new(0);
    /* An exact copy, so that a sanitizer sees a read past the end. */
    rlm_autofree char *copy = malloc(text.len ? text.len : 1);
    if (text.len) {
        memcpy(copy, text.ptr, text.len);
    }
    CHECK_INT(rlm_json_parse(arena, (rlm_str){copy, text.len}, &value, &err), RLM_E_PARSE);
    snprintf(where, sizeof where, "at byte %zu: ", offset);
    CHECK_CONTAINS(rlm_error_message(err), where);
    CHECK_CONTAINS(rlm_error_message(err), reason);
    CHECK(!value);
    CHECK_INT(rlm_json_parse(arena, text, &value, NULL), RLM_E_PARSE);
}

#define REFUSED(literal, offset, reason) check_refused(RLM_STR(literal), offset, reason)

static void check_written(const rlm_json *value, const char *expected)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(100000);
    struct rlm_json_writer w = {.buf = &b};
    rlm_json_put(&w, value);
    CHECK_STR(rlm_buf_str(&b), expected);
}

static void check_canonical(const char *text, const char *expected)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(100000);
    rlm_json_canonical(&b, parse(text));
    CHECK_INT(b.status, 0);
    CHECK_STR(rlm_buf_str(&b), expected);
}

/* ---- parsing --------------------------------------------------------------------------------- */

TEST(parse_all_types)
{
    const rlm_json *v = parse(" {\"n\": null, \"f\" :false,\"t\":\ttrue,\r\n\"i\":-12,\"s\":\"x\","
                              "\"a\":[1,[],{}],\"o\":{\"k\":{}}} ");
    CHECK(rlm_json_is(v, RLM_JSON_OBJECT));
    CHECK_INT(v->count, 7);
    CHECK(rlm_json_is(rlm_json_get(v, "n"), RLM_JSON_NULL));
    CHECK(rlm_json_is(rlm_json_get(v, "f"), RLM_JSON_FALSE));
    CHECK(rlm_json_is(rlm_json_get(v, "t"), RLM_JSON_TRUE));
    CHECK_STR(rlm_json_get(v, "i")->text, "-12");
    CHECK_STR(rlm_json_text(rlm_json_get(v, "s"), RLM_STR("?")), "x");
    const rlm_json *a = rlm_json_get(v, "a");
    CHECK_INT(a->count, 3);
    CHECK_INT(rlm_json_int(rlm_json_at(a, 0), 0), 1);
    CHECK(rlm_json_is(rlm_json_at(a, 1), RLM_JSON_ARRAY));
    CHECK_INT(rlm_json_at(a, 1)->count, 0);
    CHECK(rlm_json_is(rlm_json_at(a, 2), RLM_JSON_OBJECT));
    CHECK(rlm_json_is(rlm_json_get(rlm_json_get(v, "o"), "k"), RLM_JSON_OBJECT));
    CHECK_STR(v->members[5].key, "a");
}

TEST(parse_more_values_than_the_stack_holds_at_first)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(1000000);
    struct rlm_json_writer w = {.buf = &b};
    rlm_json_begin(&w, '[');
    for (int i = 0; i < 3000; i++) {
        rlm_json_begin(&w, '{');
        rlm_json_member_int(&w, "i", i);
        rlm_json_key(&w, "a");
        rlm_json_begin(&w, '[');
        for (int k = 0; k < i % 100; k++) {
            rlm_json_put_int(&w, k);
        }
        rlm_json_end(&w, ']');
        rlm_json_end(&w, '}');
    }
    rlm_json_end(&w, ']');
    CHECK_INT(b.status, 0);
    const rlm_json *v = parse_str(rlm_buf_str(&b));
    CHECK_INT(v->count, 3000);
    for (int i = 0; i < 3000; i++) {
        const rlm_json *item = rlm_json_at(v, (size_t)i);
        const rlm_json *a = rlm_json_get(item, "a");
        CHECK_INT(rlm_json_int(rlm_json_get(item, "i"), -1), i);
        CHECK_INT(a->count, i % 100);
        CHECK_INT(rlm_json_int(rlm_json_at(a, a->count - 1u), -1), i % 100 ? i % 100 - 1 : -1);
    }
}

TEST(parse_strings_in_place_or_unescaped)
{
    const char *text =
        "[\"plain\",\"\",\"a\\u0000b\",\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"\\u00e9\\u6F22x\"]";
    const rlm_json *v = parse(text);
    CHECK(v->items[0].text.ptr == text + 2);
    CHECK_STR(v->items[0].text, "plain");
    CHECK_STR(v->items[1].text, "");
    CHECK_INT(v->items[2].text.len, 3);
    CHECK(memcmp(v->items[2].text.ptr, "a\0b", 3) == 0);
    CHECK_STR(v->items[3].text, "\"\\/\b\f\n\r\t");
    CHECK_STR(v->items[4].text, "\xC3\xA9\xE6\xBC\xA2x");
}

/* Whatever stands before and after, and wherever a word of eight bytes begins. */
TEST(parse_special_bytes_at_any_position)
{
    static const struct {
        const char *raw, *value;
    } parts[] = {
        {"\\n", "\n"}, {"\\\"", "\""}, {"\\\\", "\\"}, {"\xC3\xA9", "\xC3\xA9"}, {"\x7F", "\x7F"}};
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        for (int before = 0; before < 20; before++) {
            for (int after = 0; after < 10; after++) {
                char text[64], expected[64];
                snprintf(text, sizeof text, "\"%.*s%s%.*s\"", before, "abcdefghijklmnopqrst",
                         parts[part].raw, after, "ABCDEFGHIJ");
                snprintf(expected, sizeof expected, "%.*s%s%.*s", before, "abcdefghijklmnopqrst",
                         parts[part].value, after, "ABCDEFGHIJ");
                const rlm_json *v = parse(text);
                CHECK_STR(v->text, expected);
                check_written(v, text);
            }
        }
    }
}

TEST(parse_surrogates)
{
    static const char *const cases[][2] = {
        {"\"\\udc80\"", "\xED\xB2\x80"},
        {"\"\\uD800x\"", "\xED\xA0\x80x"},
        {"\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80"},
        {"\"\\uDBFF\\uDFFF\"", "\xF4\x8F\xBF\xBF"},
        {"\"\\ude00\\ud83d\"", "\xED\xB8\x80\xED\xA0\xBD"},
        {"\"\\ud83d\\ud83d\\ude00\"", "\xED\xA0\xBD\xF0\x9F\x98\x80"},
        {"\"\\ud83d\\n\\ude00\"", "\xED\xA0\xBD\n\xED\xB8\x80"},
        {"\"\\ud83d\\\\ude00\"", "\xED\xA0\xBD\\ude00"},
        {"\"\xED\xB2\x80\"", "\xED\xB2\x80"},
        /* A pair is one character also when its halves stand raw. */
        {"\"\xED\xA0\xBD\xED\xB8\x80\"", "\xF0\x9F\x98\x80"},
        {"\"a\xED\xA0\xBD\\ude00z\"", "a\xF0\x9F\x98\x80z"},
        {"\"a\\ud83d\xED\xB8\x80z\"", "a\xF0\x9F\x98\x80z"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_STR(parse(cases[i][0])->text, cases[i][1]);
    }
    const rlm_json *v = parse("{\"\xED\xA0\xBD\xED\xB8\x80\":1}");
    CHECK_INT(rlm_json_int(rlm_json_get(v, "\xF0\x9F\x98\x80"), 0), 1);
}

TEST(refuse_bad_strings)
{
    REFUSED("\"abc", 0, "a string without an end");
    REFUSED("\"abc\\", 0, "a string without an end");
    REFUSED("\"abc\\\"", 0, "a string without an end");
    REFUSED("\"a\nb\"", 2, "control character");
    REFUSED("\"a\0b\"", 2, "control character");
    REFUSED("\"01234567\x1F\"", 9, "control character");
    REFUSED("\"ab\\x41\"", 3, "escape");
    REFUSED("\"ab\\u12\"", 3, "escape");
    REFUSED("\"ab\\u12g4\"", 3, "escape");
    REFUSED("\"\\u12\"34\"", 1, "escape");
    REFUSED("\"\\\xC3\xA9\"", 1, "escape");
    REFUSED("\"\\\0\"", 2, "control character");
    REFUSED("[\"\\ud83d\\uzzzz\"]", 8, "escape");
    REFUSED("'a'", 0, "a value was expected");
}

TEST(refuse_control_characters_at_any_position)
{
    for (int c = 0; c < 0x20; c++) {
        for (size_t at = 1; at < 23; at++) {
            char text[] = "\"abcdefghijklmnopqrstuv\"";
            text[at] = (char)c;
            check_refused((rlm_str){text, 24}, at, "control character");
        }
    }
}

TEST(refuse_what_is_not_utf8)
{
    REFUSED("\"ab\x80\"", 3, "not UTF-8");
    REFUSED("\"\xC0\xAF\"", 1, "not UTF-8");
    REFUSED("\"\xE0\x80\xAF\"", 1, "not UTF-8");
    REFUSED("\"\xE6\xBC\"", 1, "not UTF-8");
    REFUSED("\"\xF0\x9F\x98", 1, "not UTF-8");
    REFUSED("\"\xF4\x90\x80\x80\"", 1, "not UTF-8");
    REFUSED("{\"k\xE9\":1}", 3, "not UTF-8");
    REFUSED("\"\\n0123456789\xFF\"", 13, "not UTF-8");
    REFUSED("\xEF\xBB\xBF{}", 0, "a value was expected");
}

TEST(numbers_by_the_grammar)
{
    static const char *const good[] = {
        "0", "-0", "10", "0.0", "-1.5e+07", "1E5", "1e-5", "0e0", "123456789012345678901234567890"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const rlm_json *v = parse(good[i]);
        CHECK(rlm_json_is(v, RLM_JSON_NUMBER));
        CHECK_STR(v->text, good[i]);
        check_written(v, good[i]);
    }
    REFUSED("01", 0, "leading zero");
    REFUSED("[-012]", 2, "leading zero");
    REFUSED("+1", 0, "a value was expected");
    REFUSED(".5", 0, "a value was expected");
    REFUSED("[1.]", 3, "digit");
    REFUSED("[-]", 2, "digit");
    REFUSED("[-a]", 2, "digit");
    REFUSED("[1ea]", 3, "digit");
    REFUSED("[1e+]", 4, "digit");
    REFUSED("1e", 2, "ends too early");
    REFUSED("-", 1, "ends too early");
    REFUSED("0x10", 1, "something follows");
    REFUSED("[1.2.3]", 4, "',' or ']'");
    REFUSED("NaN", 0, "a value was expected");
    REFUSED("-Infinity", 1, "digit");
}

TEST(refuse_bad_structure)
{
    check_refused(RLM_STR_NONE, 0, "ends too early");
    REFUSED("", 0, "ends too early");
    REFUSED(" \n", 2, "ends too early");
    REFUSED("{} x", 3, "something follows");
    REFUSED("1 2", 2, "something follows");
    REFUSED("1\0", 1, "something follows");
    REFUSED("nul", 0, "a value was expected");
    REFUSED("[nulL]", 1, "a value was expected");
    REFUSED("[trueish]", 5, "',' or ']'");
    REFUSED("[1,]", 3, "a value was expected");
    REFUSED("[,1]", 1, "a value was expected");
    REFUSED("[1 2]", 3, "',' or ']'");
    REFUSED("[1}", 2, "',' or ']'");
    REFUSED("[1", 2, "ends too early");
    REFUSED("[", 1, "ends too early");
    REFUSED("[1,", 3, "ends too early");
    REFUSED("]", 0, "a value was expected");
    REFUSED("[}", 1, "a value was expected");
    REFUSED("{\"a\":1,}", 7, "the name of a member");
    REFUSED("{,}", 1, "the name of a member");
    REFUSED("{a:1}", 1, "the name of a member");
    REFUSED("{1:2}", 1, "the name of a member");
    REFUSED("{\"a\" 1}", 5, "':'");
    REFUSED("{\"a\":}", 5, "a value was expected");
    REFUSED("{\"a\":1]", 6, "',' or '}'");
    REFUSED("{\"a\":1 \"b\":2}", 7, "',' or '}'");
    REFUSED("{\"a\"", 4, "ends too early");
    REFUSED("{\"a\":", 5, "ends too early");
    REFUSED("{", 1, "ends too early");
    REFUSED("[1,/**/2]", 3, "a value was expected");
}

static void add_times(struct rlm_buf *b, const char *text, int times)
{
    for (int i = 0; i < times; i++) {
        rlm_buf_adds(b, text);
    }
}

TEST(depth_is_bounded)
{
    static const char *const pairs[][2] = {{"[", "]"}, {"{\"a\":", "}"}};
    for (int i = 0; i < 2; i++) {
        rlm_auto_buf struct rlm_buf b = RLM_BUF(10000000);
        add_times(&b, pairs[i][0], RLM_JSON_MAX_DEPTH);
        size_t inside = b.len;
        rlm_buf_adds(&b, "1");
        add_times(&b, pairs[i][1], RLM_JSON_MAX_DEPTH);
        check_written(parse_str(rlm_buf_str(&b)), b.ptr);

        rlm_buf_clear(&b);
        add_times(&b, pairs[i][0], RLM_JSON_MAX_DEPTH + 1);
        check_refused(rlm_buf_str(&b), inside, "nested too deep");
        add_times(&b, pairs[i][0], 500000);
        check_refused(rlm_buf_str(&b), inside, "nested too deep");
    }
    /* Containers beside each other do not add up. */
    rlm_auto_buf struct rlm_buf b = RLM_BUF(100000);
    rlm_buf_adds(&b, "[[[]]");
    add_times(&b, ",[[]],{}", 1000);
    rlm_buf_adds(&b, "]");
    CHECK_INT(parse_str(rlm_buf_str(&b))->count, 2001);
}

TEST(parse_into_a_full_arena)
{
    rlm_auto_arena rlm_arena *small = rlm_arena_new(2000);
    static const char *const texts[] = {"{\"k\":[%s]}", "[{%s}]", "\"\\n%s\"", "1"};
    static const char *const parts[] = {"0,", "\"k\":1,", "0123456789", ""};
    while (rlm_arena_bytes(small, 1)) {
    }
    for (int i = 0; i < 4; i++) {
        rlm_auto_buf struct rlm_buf many = RLM_BUF(10000), b = RLM_BUF(10000);
        rlm_autoerr rlm_error *err = NULL;
        const rlm_json *value = NULL;
        add_times(&many, parts[i], 100);
        many.len -= i < 2; /* the last comma */
        rlm_buf_add(&b, texts[i], strcspn(texts[i], "%"));
        rlm_buf_add_str(&b, rlm_buf_str(&many));
        rlm_buf_adds(&b, i < 3 ? strstr(texts[i], "%s") + 2 : "");
        parse_str(rlm_buf_str(&b));
        CHECK_INT(rlm_json_parse(small, rlm_buf_str(&b), &value, &err), RLM_E_NOMEM);
        CHECK_INT(rlm_error_code(err), RLM_E_NOMEM);
        CHECK(!value);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

TEST(get_takes_the_last_of_duplicates)
{
    const rlm_json *v = parse("{\"a\":1,\"ab\":2,\"\\u0061\":3,\"b\":4,\"x\\u0000y\":5}");
    CHECK_INT(v->count, 5);
    CHECK_INT(rlm_json_int(rlm_json_get(v, "a"), 0), 3);
    CHECK_INT(rlm_json_int(rlm_json_get_str(v, RLM_STR("x\0y")), 0), 5);
    CHECK(!rlm_json_get(v, "x"));
    CHECK(!rlm_json_get(v, ""));
    CHECK(!rlm_json_get(v, "abc"));
}

TEST(reads_of_absent_or_other_values)
{
    const rlm_json *v = parse("[\"s\",7,true,null]");
    CHECK(!rlm_json_get(NULL, "a") && !rlm_json_get(v, "a") && !rlm_json_at(NULL, 0));
    CHECK(!rlm_json_at(v, 4) && !rlm_json_at(parse("{\"a\":1}"), 0));
    CHECK(!rlm_json_is(NULL, RLM_JSON_NULL));
    CHECK_STR(rlm_json_text(NULL, RLM_STR("d")), "d");
    CHECK_STR(rlm_json_text(rlm_json_at(v, 1), RLM_STR("d")), "d");
    CHECK(rlm_json_bool(rlm_json_at(v, 2), false));
    CHECK(!rlm_json_bool(parse("false"), true));
    CHECK(rlm_json_bool(rlm_json_at(v, 3), true) && !rlm_json_bool(NULL, false));
    CHECK_INT(rlm_json_int(rlm_json_at(v, 0), -5), -5);
    CHECK_INT(rlm_json_int(NULL, -5), -5);
}

TEST(read_int)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"0", 0},
        {"-0", 0},
        {"0.000", 0},
        {"0e99999999999999999999", 0},
        {"42", 42},
        {"-42", -42},
        {"3.0", 3},
        {"3e2", 300},
        {"12.50e1", 125},
        {"1200e-2", 12},
        {"1e18", 1000000000000000000},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"9223372036854775807.000", INT64_MAX},
        {"922337203685477580.7e1", INT64_MAX},
        /* none */
        {"9223372036854775808", 77},
        {"-9223372036854775809", 77},
        {"18446744073709551617", 77},
        {"1e19", 77},
        {"1e99999999999999999999", 77},
        {"1e-99999999999999999999", 77},
        {"0.5", 77},
        {"125e-1", 77},
        {"12345678901234567890123e-4", 77},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_INT(rlm_json_int(parse(cases[i].text), 77), cases[i].value);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

TEST(write_commas)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(1000);
    struct rlm_json_writer w = {.buf = &b};
    rlm_json_begin(&w, '{');
    rlm_json_member_int(&w, "i", -3);
    rlm_json_member_str(&w, "s", RLM_STR("x"));
    rlm_json_member_text(&w, "t", NULL);
    rlm_json_member_bool(&w, "b", true);
    rlm_json_member_raw(&w, "r", RLM_STR("[1]"));
    rlm_json_member_double(&w, "d", 0.5);
    rlm_json_key(&w, "e"), rlm_json_begin(&w, '{'), rlm_json_end(&w, '}');
    rlm_json_key_str(&w, RLM_STR("a\nb"));
    rlm_json_begin(&w, '[');
    rlm_json_put_null(&w);
    rlm_json_begin(&w, '['), rlm_json_end(&w, ']');
    rlm_json_begin(&w, '['), rlm_json_put_bool(&w, false), rlm_json_end(&w, ']');
    rlm_json_put_text(&w, "y");
    rlm_json_put_str(&w, RLM_STR_NONE);
    rlm_json_put_str(&w, RLM_STR("\t"));
    rlm_json_end(&w, ']');
    rlm_json_key_str(&w, RLM_STR("\"")), rlm_json_put_int(&w, 0);
    rlm_json_end(&w, '}');
    CHECK_STR(rlm_buf_str(&b),
              "{\"i\":-3,\"s\":\"x\",\"t\":null,\"b\":true,\"r\":[1],\"d\":0.5,\"e\":{},"
              "\"a\\nb\":[null,[],[false],\"y\",\"\",\"\\t\"],\"\\\"\":0}");
    parse_str(rlm_buf_str(&b));
}

static void check_string(rlm_str s, const char *expected)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(1000);
    struct rlm_json_writer w = {.buf = &b};
    rlm_json_put_str(&w, s);
    CHECK_STR(rlm_buf_str(&b), expected);
    CHECK(rlm_utf8_valid(rlm_buf_str(&b)));
}

TEST(write_strings)
{
    check_string(RLM_STR("a\0b\x1F\x7F/"), "\"a\\u0000b\\u001f\x7F/\"");
    check_string(RLM_STR("\"\\\b\f\n\r\t"), "\"\\\"\\\\\\b\\f\\n\\r\\t\"");
    check_string(RLM_STR("\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80"),
                 "\"\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80\"");
    check_string(RLM_STR("a\xED\xB2\x80z"), "\"a\\udc80z\"");
    check_string(RLM_STR("\xED\xA0\x80\xED\xA0\x80"), "\"\\ud800\\ud800\"");
    check_string(RLM_STR("\xED\xBF\xBF\n"), "\"\\udfff\\n\"");
    check_string(RLM_STR("\xED\xA0\xBD\xED\xB8\x80"), "\"\xF0\x9F\x98\x80\"");
    check_string(RLM_STR("\xED\xA0\xBD\xED\xA0\xBD\xED\xB8\x80"), "\"\\ud83d\xF0\x9F\x98\x80\"");
    check_string(RLM_STR("a\xFFz\x80"), "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\"");
    check_string(RLM_STR("\xED\xA0\xBD\xFF"), "\"\\ud83d\xEF\xBF\xBD\"");
}

TEST(write_every_control_character_so_that_it_reads_back)
{
    for (int c = 0; c < 0x80; c++) {
        char text[12];
        memset(text, 'x', sizeof text);
        text[c % 12] = (char)c;
        rlm_auto_buf struct rlm_buf b = RLM_BUF(1000);
        struct rlm_json_writer w = {.buf = &b};
        rlm_json_put_str(&w, (rlm_str){text, sizeof text});
        for (size_t i = 0; i < b.len; i++) {
            CHECK(b.ptr[i] >= 0x20);
        }
        const rlm_json *v = parse_str(rlm_buf_str(&b));
        CHECK_INT(v->text.len, sizeof text);
        CHECK(memcmp(v->text.ptr, text, sizeof text) == 0);
    }
}

TEST(write_keeps_to_the_buffers_maximum)
{
    const rlm_json *v = parse("{\"a\":[\"x\\ny\",1,true],\"b\":\"plain\"}");
    for (size_t max = 0; max < 33; max++) {
        rlm_auto_buf struct rlm_buf b = RLM_BUF(max), c = RLM_BUF(max);
        struct rlm_json_writer w = {.buf = &b};
        rlm_json_put(&w, v);
        CHECK_INT(b.status, RLM_E_LIMIT);
        CHECK(b.len <= max);
        rlm_json_canonical(&c, v);
        CHECK_INT(c.status, RLM_E_LIMIT);
    }
    rlm_auto_buf struct rlm_buf b = RLM_BUF(33);
    struct rlm_json_writer w = {.buf = &b};
    rlm_json_put(&w, v);
    CHECK_INT(b.status, 0);
}

/* What a reader makes of it that knows no locale. */
static double read_back(const struct rlm_buf *b)
{
    static locale_t plain;
    plain = plain ? plain : newlocale(LC_ALL_MASK, "C", NULL);
    CHECK_INT(parse_str(rlm_buf_str(b))->type, RLM_JSON_NUMBER);
    return strtod_l(b->ptr, NULL, plain);
}

static void check_double(double number, const char *expected)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(100);
    struct rlm_json_writer w = {.buf = &b};
    rlm_json_put_double(&w, number);
    CHECK_STR(rlm_buf_str(&b), expected);
    if (isfinite(number)) {
        double back = read_back(&b);
        CHECK(memcmp(&back, &number, sizeof back) == 0);
    }
}

static void check_doubles(void)
{
    check_double(0.0, "0.0");
    check_double(-0.0, "-0.0");
    check_double(3, "3.0");
    check_double(-1200, "-1200.0");
    check_double(0.1, "0.1");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(1.0 / 3, "0.3333333333333333");
    check_double(123.456, "123.456");
    check_double(0.0001, "0.0001");
    check_double(0.00001, "1e-05");
    check_double(1.5e-7, "1.5e-07");
    check_double(1e15, "1000000000000000.0");
    check_double(9007199254740993.0, "9007199254740992.0");
    check_double(1e16, "1e+16");
    check_double(1.25e300, "1.25e+300");
    check_double(0x1.fffffffffffffp1023, "1.7976931348623157e+308");
    check_double(0x1p-1022, "2.2250738585072014e-308");
    check_double(0x1p-1074, "5e-324");
    check_double(-0x1p-1070, "-8e-323");
    check_double(HUGE_VAL, "null");
    check_double(-HUGE_VAL, "null");
    check_double((double)NAN, "null");
}

TEST(write_doubles)
{
    check_doubles();
}

TEST(write_doubles_of_any_bits)
{
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double number;
        memcpy(&number, &bits, sizeof number);
        if (isfinite(number)) {
            rlm_auto_buf struct rlm_buf b = RLM_BUF(100);
            struct rlm_json_writer w = {.buf = &b};
            rlm_json_put_double(&w, number);
            double back = read_back(&b);
            CHECK(memcmp(&back, &number, sizeof back) == 0);
        }
    }
}

/* The host program may have set a locale that writes a comma. Where the system has none, one is made
 * of a definition in the test itself. */
static bool set_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR",
                                        "es_ES.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (setlocale(LC_NUMERIC, names[i])) {
            return true;
        }
    }
    char command[300];
    snprintf(command, sizeof command,
             "cd '%s' && { sed 's/^decimal_point.*/decimal_point \",\"/' /usr/share/i18n/locales/C;"
             "} >comma && localedef -c -i ./comma -f UTF-8 ./xx_XX.UTF-8 >/dev/null 2>&1",
             harness_directory());
    int r = system(command);
    setenv("LOCPATH", harness_directory(), 1);
    return r != -1 && setlocale(LC_NUMERIC, "xx_XX.UTF-8");
}

TEST(numbers_do_not_depend_on_the_locale)
{
    char text[16];
    if (!set_comma_locale()) {
        harness_fail(__FILE__, __LINE__, "no locale with a decimal comma; install \"locales\"");
    }
    snprintf(text, sizeof text, "%.1f", 1.5);
    CHECK_TEXT(text, "1,5");
    check_doubles();
}

TEST(write_ints)
{
    static const int64_t numbers[] = {0, 7, -7, 10, 1234567890123, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        rlm_auto_buf struct rlm_buf b = RLM_BUF(100);
        struct rlm_json_writer w = {.buf = &b};
        char expected[32];
        rlm_json_put_int(&w, numbers[i]);
        snprintf(expected, sizeof expected, "%lld", (long long)numbers[i]);
        CHECK_STR(rlm_buf_str(&b), expected);
    }
}

TEST(write_a_tree_as_it_was)
{
    const char *text =
        "{\"b\":[1.50,{\"z\":null,\"a\":\"\\udc80\"}],\"a\":1,\"b\":{},\"\":[[],-0]}";
    check_written(parse(text), text);
}

TEST(canonical_form)
{
    check_canonical("null", "null");
    check_canonical(" [ 3 , 1.0 , \"\\u0041\\/\" ] ", "[3,1.0,\"A/\"]");
    check_canonical("{\"b\":1,\"a\":{\"d\":[],\"c\":{}},\"B\":2}",
                    "{\"B\":2,\"a\":{\"c\":{},\"d\":[]},\"b\":1}");
    check_canonical("{\"ab\":1,\"a\":2,\"\":3,\"abc\":4,\"a\\u0000\":5}",
                    "{\"\":3,\"a\":2,\"a\\u0000\":5,\"ab\":1,\"abc\":4}");
    check_canonical("{\"a\":1,\"b\":2,\"\\u0061\":3,\"b\":4,\"a\":5}", "{\"a\":5,\"b\":4}");
    /* By bytes, not by UTF-16 units: U+FFFF is before U+1F600. */
    check_canonical("{\"\\ud83d\\ude00\":1,\"\\uffff\":2,\"\\u00e9\":3,\"z\":4}",
                    "{\"z\":4,\"\xC3\xA9\":3,\"\xEF\xBF\xBF\":2,\"\xF0\x9F\x98\x80\":1}");
}

TEST(canonical_form_of_many_members)
{
    rlm_auto_buf struct rlm_buf in = RLM_BUF(100000), expected = RLM_BUF(100000);
    rlm_buf_adds(&in, "{\"k000\":\"first\"");
    rlm_buf_adds(&expected, "{");
    for (int i = 0; i < 200; i++) {
        rlm_buf_addf(&in, ",\"k%03d\":%d", i * 77 % 200, i * 77 % 200);
        rlm_buf_addf(&expected, "%s\"k%03d\":%d", i ? "," : "", i, i);
    }
    rlm_buf_adds(&in, "}");
    rlm_buf_adds(&expected, "}");
    check_canonical(in.ptr, expected.ptr);
}
