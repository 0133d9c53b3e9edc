#include "json_text.h"

#include "base/utf8.h"

#include <locale.h>
#include <math.h>

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
