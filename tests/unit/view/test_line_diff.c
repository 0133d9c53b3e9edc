#include "base/alloc.h"
#include "harness.h"
#include "view/line_diff.h"

#include <stdio.h>

static char *diff_of(rlm_str a, rlm_str b, size_t max)
{
    rlm_auto_buf struct rlm_buf out = RLM_BUF(1 << 20);
    struct rlm_plain p = {.out = &out};
    CHECK(rlm_line_diff(&p, a, b, "> ", max));
    rlm_buf_adds(&out, "");
    return rlm_buf_take(&out);
}

static void check(const char *a, const char *b, const char *expected)
{
    rlm_autofree char *text = diff_of(rlm_str_of(a), rlm_str_of(b), 100);
    CHECK_TEXT(text, expected);
}

TEST(changed_lines_stand_between_same_ones)
{
    check("1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\nX\n5\n6\n7\n",
          ">   2\n>   3\n> - 4\n> + X\n>   5\n>   6\n");
    check("a\nb\n", "a\nb\nc\n", ">   a\n>   b\n> + c\n");
    check("a\nb\nc\nd\n", "b\nc\nD\n", "> - a\n>   b\n>   c\n> - d\n> + D\n");
    check("", "new", "> + new\n");
    check("old", "", "> - old\n");
}

TEST(lines_that_moved_are_found_once)
{
    check("x\na\nb\nc\n", "a\nb\nc\nx\n", "> - x\n>   a\n>   b\n>   c\n> + x\n");
}

TEST(what_differs_late_in_a_long_line_is_seen)
{
    char a[4001], b[4001];
    memset(a, 'm', 4000);
    memset(b, 'm', 4000);
    a[4000] = b[4000] = 0;
    a[3900] = 'A';
    b[3900] = 'B';
    rlm_autofree char *text = diff_of(rlm_str_of(a), rlm_str_of(b), 100);
    CHECK(strstr(text, "mA") && strstr(text, "mB"));
    CHECK(strlen(text) < 600);
}

TEST(many_lines_are_cut_and_huge_sides_are_one_block)
{
    rlm_auto_buf struct rlm_buf a = RLM_BUF(1 << 20), b = RLM_BUF(1 << 20);
    for (int i = 0; i < 5000; i++) {
        rlm_buf_addf(&a, "a%d\n", i);
        rlm_buf_addf(&b, "b%d\n", i);
    }
    rlm_autofree char *text = diff_of(rlm_buf_str(&a), rlm_buf_str(&b), 10);
    CHECK(strstr(text, "> - a9\n> … 9990 more lines\n"));
}
