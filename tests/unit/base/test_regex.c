#include "base/error.h"
#include "base/regex.h"
#include "harness.h"

static rlm_regex *make(const char *pattern)
{
    rlm_regex *re = NULL;
    rlm_autoerr rlm_error *err = NULL;
    if (rlm_regex_new(rlm_str_of(pattern), &re, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s: %s", pattern, rlm_error_message(err));
    }
    return re;
}

static int search(const char *pattern, const char *text)
{
    rlm_regex *re = make(pattern);
    int r = rlm_regex_search(re, rlm_str_of(text), NULL, 0, NULL);
    rlm_regex_free(re);
    return r;
}

TEST(regex_searches_anywhere)
{
    CHECK_INT(search("b+", "abbc"), 1);
    CHECK_INT(search("^b+", "abbc"), 0);
    CHECK_INT(search("", ""), 1);
    CHECK_INT(search("a", ""), 0);
}

TEST(regex_reads_patterns_as_json_schema_does)
{
    CHECK_INT(search("^a$", "a\n"), 0);        /* $ is the very end */
    CHECK_INT(search("^\\u00e4$", "ä"), 1);    /* \uXXXX is a character */
    CHECK_INT(search("^\\d$", "\xd9\xa3"), 0); /* \d is ASCII */
    CHECK_INT(search("^.$", "ä"), 1);          /* one character, two bytes */
    CHECK_INT(search("^\\p{L}$", "ä"), 1);
    CHECK_INT(search("a.b", "a\nb"), 0);
}

TEST(regex_gives_groups)
{
    rlm_regex *re = make("(\\w+)=(x)?(\\d+)");
    rlm_str groups[5];
    CHECK_INT(rlm_regex_search(re, RLM_STR("  key=42;"), groups, 5, NULL), 1);
    CHECK_STR(groups[0], "key=42");
    CHECK_STR(groups[1], "key");
    CHECK(groups[2].ptr == NULL);
    CHECK_STR(groups[3], "42");
    CHECK(groups[4].ptr == NULL);
    rlm_regex_free(re);
}

TEST(regex_takes_nul_and_surrogates)
{
    rlm_regex *re = make("^a.b\\u{FFFD}(c)$");
    rlm_str groups[2];
    CHECK_INT(rlm_regex_search(re,
                               RLM_STR("a\0b\xed\xa0\x80"
                                       "c"),
                               groups, 2, NULL),
              1);
    CHECK_STR(groups[1], "c");
    rlm_regex_free(re);
}

TEST(regex_names_the_fault_of_a_pattern)
{
    rlm_regex *re = NULL;
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(rlm_regex_new(RLM_STR("ab[c"), &re, &err), RLM_E_PARSE);
    CHECK(re == NULL);
    CHECK_CONTAINS(rlm_error_message(err), "at byte 4");
    CHECK_INT(rlm_regex_new(RLM_STR("\\C"), &re, NULL), RLM_E_PARSE);

    static char endless[RLM_REGEX_MAX_PATTERN + 1];
    memset(endless, 'a', sizeof endless);
    CHECK_INT(rlm_regex_new((rlm_str){endless, sizeof endless}, &re, NULL), RLM_E_LIMIT);
}

TEST(regex_gives_up_what_would_take_for_ever)
{
    rlm_regex *re = make("^(a+)+$");
    char text[64];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(rlm_regex_search(re, (rlm_str){text, sizeof text}, NULL, 0, &err), RLM_E_LIMIT);
    CHECK(rlm_regex_cost(re) > 1000000);
    CHECK_CONTAINS(rlm_error_message(err), "given up");
    CHECK_INT(rlm_regex_search(re, (rlm_str){text, 10}, NULL, 0, NULL), 1);
    CHECK(rlm_regex_cost(re) < 10000);
    rlm_regex_free(re);
}

TEST(regex_counts_the_steps_it_may_take)
{
    /* Each `a` doubles the work: 14 of them need fewer than a million steps, 20 need more. */
    rlm_regex *re = make("^(a+)+$");
    CHECK_INT(rlm_regex_search(re, RLM_STR("aaaaaaaaaaaaaab"), NULL, 0, NULL), 0);
    CHECK(rlm_regex_cost(re) > 10000 && rlm_regex_cost(re) < 1000000);
    CHECK_INT(rlm_regex_search(re, RLM_STR("aaaaaaaaaaaaaaaaaaaab"), NULL, 0, NULL), RLM_E_LIMIT);
    rlm_regex_free(re);
}
