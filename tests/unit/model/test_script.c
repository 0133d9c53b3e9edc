#include "model/script.h"

#include "harness.h"

static rlm_script *parsed(const char *text)
{
    rlm_script *s = NULL;
    rlm_error *err = NULL;
    if (rlm_script_parse(rlm_str_of(text), &s, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
    return s;
}

static void refused(const char *text, const char *part)
{
    rlm_script *s = NULL;
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(rlm_script_parse(rlm_str_of(text), &s, &err), RLM_E_PARSE);
    CHECK_CONTAINS(rlm_error_message(err), part);
}

static const char *found(rlm_script *s, const char *agent, int turn, const char *message)
{
    static char body[100];
    const struct rlm_script_entry *e = NULL;
    int r = rlm_script_find(s, agent, turn, rlm_str_of(message), &e, NULL);
    CHECK(r >= 0);
    if (r > 0) {
        return NULL;
    }
    snprintf(body, sizeof body, "%.*s", RLM_FMT(e->body));
    return body;
}

TEST(bodies_are_kept_byte_for_byte)
{
    rlm_script *s =
        parsed("\xef\xbb\xbf\n \n@comment one\nignored\n@reply\nline\n\n  two\r\n\n"
               "@comment here\nnot this\n@reply turn=2\r\n@@reply x\n@replying\n@@comment\n"
               "@@@reply\n@tool\n@@tool\n@reply\n@reply\n\n@reply\nend\r\n");
    CHECK_INT(rlm_script_count(s), 5);
    CHECK_STR(rlm_script_entry(s, 0)->body, "line\n\n  two\r\n");
    CHECK_STR(rlm_script_entry(s, 1)->body,
              "@reply x\n@replying\n@comment\n@@reply\n@tool\n@@tool");
    CHECK_STR(rlm_script_entry(s, 2)->body, "");
    CHECK_STR(rlm_script_entry(s, 3)->body, "");
    CHECK_STR(rlm_script_entry(s, 4)->body, "end");
    rlm_script_free(s);
    s = parsed("@reply\nno newline");
    CHECK_STR(rlm_script_entry(s, 0)->body, "no newline");
    rlm_script_free(s);
    s = parsed("@reply");
    CHECK_STR(rlm_script_entry(s, 0)->body, "");
    rlm_script_free(s);
}

TEST(nul_bytes_survive_in_a_body)
{
    rlm_script *s = NULL;
    CHECK_INT(rlm_script_parse(RLM_STR("@reply\na\0b\n"), &s, NULL), 0);
    CHECK_INT(rlm_script_entry(s, 0)->body.len, 3);
    CHECK_INT(rlm_script_entry(s, 0)->body.ptr[1], 0);
    rlm_script_free(s);
}

TEST(attributes_are_read)
{
    rlm_script *s =
        parsed("@reply agent=root.* turn=2-4 match=\"a \\\"b\\\" \\d\" times=3 delay=2s "
               "input_tokens=7 output_tokens=8 finish=length error=429 "
               "retry_after=1500ms context_tokens=8192\nx\n");
    const struct rlm_script_entry *e = rlm_script_entry(s, 0);
    CHECK_INT(e->line, 1);
    CHECK_TEXT(e->agent, "root.*");
    CHECK_INT(e->first_turn, 2);
    CHECK_INT(e->last_turn, 4);
    CHECK_INT(e->times_left, 3);
    CHECK_INT(e->delay_ms, 2000);
    CHECK_INT(e->input_tokens, 7);
    CHECK_INT(e->output_tokens, 8);
    CHECK_INT(e->retry_after_ms, 1500);
    CHECK_INT(e->context_tokens, 8192);
    CHECK_TEXT(e->finish, "length");
    CHECK_INT(e->fault, RLM_FAULT_RATE_LIMIT);
    CHECK(found(s, "root.a", 2, "say a \"b\" 5") != NULL);
    CHECK(found(s, "root.a", 2, "say a b 5") == NULL);
    rlm_script_free(s);
}

TEST(first_fitting_reply_wins)
{
    rlm_script *s = parsed("@reply agent=root turn=1\nA\n@reply agent=root.? turn=1-2 times=2\nB\n"
                           "@reply turn=0 match=(?i)hello\nC\n@reply turn=*  match=^x$\nD\n"
                           "@reply agent=root\nE\n");
    CHECK_TEXT(found(s, "root", 1, "x"), "A");
    CHECK_TEXT(found(s, "root", 2, "x"), "D");
    CHECK_TEXT(found(s, "root", 2, "y"), "E");
    CHECK_TEXT(found(s, "root.a", 1, "y"), "B");
    CHECK_TEXT(found(s, "root.a", 2, "y"), "B");
    CHECK(found(s, "root.a", 1, "y") == NULL); /* used up */
    CHECK(found(s, "root.ab", 1, "y") == NULL);
    CHECK_TEXT(found(s, "root", 0, "well HELLO"), "C");
    CHECK(found(s, "other", 3, "") == NULL);
    rlm_script_free(s);
}

TEST(match_works_on_any_bytes)
{
    rlm_script *s = parsed("@reply match=caf\xc3\xa9.\nA\n");
    const struct rlm_script_entry *e = NULL;
    CHECK_INT(rlm_script_find(s, "r", 1, RLM_STR("\xff\xed\xa0\x80 \0 caf\xc3\xa9!"), &e, NULL), 0);
    CHECK_INT(rlm_script_find(s, "r", 1, RLM_STR_NONE, &e, NULL), 1);
    rlm_script_free(s);
}

TEST(a_runaway_match_is_an_error)
{
    rlm_script *s = parsed("@reply match=^(a+)+$\nA\n");
    const struct rlm_script_entry *e = NULL;
    rlm_autoerr rlm_error *err = NULL;
    char text[64] = "";
    memset(text, 'a', 50);
    text[50] = 'b';
    CHECK_INT(rlm_script_find(s, "r", 1, rlm_str_of(text), &e, &err), RLM_E_LIMIT);
    CHECK_CONTAINS(rlm_error_message(err), "line 1");
    rlm_script_free(s);
}

TEST(mistakes_name_their_line)
{
    refused("", "no @reply");
    refused("@comment\n", "no @reply");
    refused("\nhello\n@reply\n", "line 2: text before the first @reply: \"hello\"");
    refused("@reply\na\n@reply colour=red\n", "line 3: there is no such attribute: \"colour\"");
    refused("@reply turn\n", "NAME=VALUE");
    refused("@reply turn=x\n", "line 1: turn=\"x\" is not valid");
    refused("@reply turn=4-2\n", "turn");
    refused("@reply turn=\n", "turn");
    refused("@reply turn=99999999999999999999\n", "turn");
    refused("@reply delay=5\n", "delay");
    refused("@reply delay=5h\n", "delay");
    refused("@reply error=teapot\n", "error");
    refused("@reply agent=\n", "agent");
    refused("@reply times=-1\n", "times");
    refused("@reply\n@reply match=\"a(\"\n", "line 2: match=");
    refused("@reply match=\"a\n", "quote is not closed");
    refused("@reply match=\"a\"b\n", "blank is missing");
    refused("@reply turn=1 turn=2\n", "stands twice");
}
