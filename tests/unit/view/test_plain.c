#include "base/alloc.h"
#include "harness.h"
#include "view/plain.h"

static void check_line(rlm_str text, int width, const char *expected)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(4096);
    struct rlm_plain p = {.out = &buf, .width = width};
    rlm_plain_put(&p, text);
    rlm_buf_adds(&buf, "");
    CHECK_TEXT(buf.ptr ? buf.ptr : "", expected);
}

#define LINE(text, expected) check_line(RLM_STR(text), 0, expected)

TEST(escape_sequences_are_taken_out)
{
    LINE("a\033[31mred\033[0mb", "aredb");
    LINE("\033[?25l\033[2J\033[1;1Hx", "x");
    LINE("\033]0;title\ax\033]8;;http://a\033\\y", "xy");
    LINE("\033Pq#0\033\\z\033_a\033\\\033^b\033\\", "z");
    LINE("\033cx\0337y\033", "xy");
    LINE("\033[31", "");
    LINE("\033]never ends\nx", " x");
    LINE("\033\033[1mx", "x");
}

TEST(control_characters_are_taken_out)
{
    LINE("a\0b\bc\x7f\r\n\td", "abc  d");
    LINE("\xc2\x9b"
         "31mx\xc2\x80",
         "31mx");
    LINE("a\xe2\x80\xae"
         "b\xe2\x81\xa6\xe2\x80\x8b\xef\xbb\xbf\xe2\x80\xa8",
         "ab");
    LINE("a\xed\xb2\x80z", "az");
    LINE("a\xff\xc3z", "a\xef\xbf\xbd\xef\xbf\xbdz");
}

TEST(columns_are_counted_as_terminals_do)
{
    check_line(RLM_STR("abcdef"), 6, "abcdef");
    check_line(RLM_STR("abcdefg"), 6, "abcde…");
    check_line(RLM_STR("日本語"), 6, "日本語");
    check_line(RLM_STR("日本語x"), 6, "日本…");
    check_line(RLM_STR("日本"), 3, "日…");
    check_line(RLM_STR("e\xcc\x81"
                       "e\xcc\x81"),
               2,
               "e\xcc\x81"
               "e\xcc\x81");
    check_line(RLM_STR("ab"), 1, "…");
    check_line(RLM_STR("abcdef\033[31m\n"), 7, "abcdef ");
}

TEST(a_full_line_takes_no_more_until_it_ends)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(4096);
    struct rlm_plain p = {.out = &buf, .width = 4};
    rlm_plain_puts(&p, "abcde");
    rlm_plain_puts(&p, "f");
    rlm_plain_end(&p);
    rlm_plain_puts(&p, "g");
    rlm_plain_pad(&p, 3);
    rlm_plain_puts(&p, "h");
    CHECK_TEXT(buf.ptr, "abc…\ng  h");
}

TEST(a_block_is_indented_and_ends_with_what_is_left)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(4096);
    struct rlm_plain p = {.out = &buf};
    rlm_plain_block(&p, RLM_STR("a\n\nb\nc"), "  ", 2);
    rlm_plain_block(&p, RLM_STR("x\n"), "> ", 0);
    CHECK_TEXT(buf.ptr, "  a\n  \n  … 2 more lines\n> x\n");
}

static void check_number(void (*put)(struct rlm_plain *, int64_t), int64_t n, const char *expected)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(4096);
    struct rlm_plain p = {.out = &buf};
    put(&p, n);
    CHECK_TEXT(buf.ptr ? buf.ptr : "", expected);
}

TEST(numbers_are_short)
{
    check_number(rlm_plain_count, 0, "0");
    check_number(rlm_plain_count, 999, "999");
    check_number(rlm_plain_count, 1000, "1.0k");
    check_number(rlm_plain_count, 999949, "999.9k");
    check_number(rlm_plain_count, 999950, "1.00M");
    check_number(rlm_plain_money, 0, "");
    check_number(rlm_plain_money, 123456789, "$0.1235");
    check_number(rlm_plain_money, 12345678900, "$12.35");
}
