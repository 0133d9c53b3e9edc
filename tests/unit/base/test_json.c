#include "json_text.h"

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
