#include "base/alloc.h"
#include "base/str.h"
#include "harness.h"

#include "rlmflow.h"

static void check(rlm_str code, int width, size_t hidden, const char *expected)
{
    struct rlm_view_options options = RLM_VIEW_OPTIONS_INIT;
    size_t found = 99;
    options.width = width;
    rlm_autofree char *text = rlm_view_code(code, &options, &found);
    CHECK_TEXT(text, expected);
    CHECK(found == hidden);
}

TEST(each_line_stands_behind_its_number)
{
    check(RLM_STR("a\n\n b"), 0, 0, "   1 | a\n   2 |\n   3 |  b\n");
    check(RLM_STR("a\n"), 0, 0, "   1 | a\n");
    check(RLM_STR_NONE, 0, 0, "   1 |\n");
    check(RLM_STR("\tx\ty"), 0, 0, "   1 |         x       y\n");
}

TEST(what_is_hidden_is_written_and_counted)
{
    check(RLM_STR("a\xe2\x80\x8b\xe2\x80\xae"
                  "b\nc"),
          0, 2, "   1 ! a<U+200B><U+202E>b\n   2 | c\n");
    check(RLM_STR("\033[2K\0\r"), 0, 3, "   1 ! <U+001B>[2K<U+0000><U+000D>\n");
    check(RLM_STR("\xff\xed\xa0\x80"), 0, 2, "   1 ! <0xFF><U+D800>\n");
    check(RLM_STR("\xf3\xa0\x81\x81"), 0, 1, "   1 ! <U+E0041>\n");
    check(RLM_STR("é 日本 e\xcc\x81"), 0, 0, "   1 | é 日本 e\xcc\x81\n");
}

TEST(a_long_line_is_broken_before_the_terminal_breaks_it)
{
    check(RLM_STR("0123456789abcdefghij0123456789abcdef"), 23, 0,
          "   1 | 0123456789abcdef\n     : ghij0123456789ab\n     : cdef\n");
    check(RLM_STR("日本語日本語日本語"), 23, 0, "   1 | 日本語日本語日本\n     : 語\n");
    check(RLM_STR("0123456789\xe2\x80\x8b"), 23, 1, "   1 ! 0123456789\n     ! <U+200B>\n");
    check(RLM_STR("0123456789abcdefg"), 1, 0, "   1 | 0123456789abcdef\n     : g\n");
}

TEST(numbers_of_many_lines_stand_in_one_column)
{
    char code[20001];
    for (size_t i = 0; i < sizeof code - 1; i += 2) {
        code[i] = 'x';
        code[i + 1] = '\n';
    }
    code[sizeof code - 1] = 0;
    rlm_autofree char *text = rlm_view_code(rlm_str_of(code), NULL, NULL);
    CHECK(rlm_str_starts(rlm_str_of(text), "    1 | x\n"));
    CHECK_CONTAINS(text, "\n10000 | x\n");
}
