#include "model/sse.h"

#include "base/error.h"
#include "harness.h"

struct seen {
    struct rlm_buf log; /* "event|data;" */
    int stop_at;
    int count;
};

static int record(void *arg, rlm_str event, rlm_str data, rlm_error **err)
{
    struct seen *s = arg;
    rlm_buf_add_str(&s->log, event);
    rlm_buf_addc(&s->log, '|');
    rlm_buf_add_str(&s->log, data);
    rlm_buf_addc(&s->log, ';');
    return ++s->count == s->stop_at;
}

static const char *decoded(rlm_str text, size_t chunk)
{
    static struct seen s;
    rlm_buf_deinit(&s.log);
    s = (struct seen){.log = RLM_BUF(1 << 20)};
    struct rlm_sse sse;
    rlm_sse_init(&sse, 1000);
    for (size_t i = 0; i < text.len; i += chunk) {
        size_t end = i + chunk < text.len ? i + chunk : text.len;
        /* An exact copy, so that a sanitizer sees a read past the chunk. */
        char *copy = malloc(end - i);
        memcpy(copy, text.ptr + i, end - i);
        CHECK_INT(rlm_sse_feed(&sse, (rlm_str){copy, end - i}, record, &s, NULL), 0);
        free(copy);
    }
    CHECK_INT(rlm_sse_end(&sse, record, &s, NULL), 0);
    rlm_sse_deinit(&sse);
    return s.log.ptr ? s.log.ptr : "";
}

static void decodes(const char *text, const char *expected)
{
    for (size_t chunk = 1; chunk <= strlen(text) + 1; chunk++) {
        CHECK_TEXT(decoded(rlm_str_of(text), chunk), expected);
    }
}

TEST(events_do_not_depend_on_the_chunks)
{
    decodes("data: a\n\ndata: b\n\n", "|a;|b;");
    decodes("data: a\r\n\r\ndata: b\r\n\r\n", "|a;|b;");
    decodes("data: a\r\rdata: b\r\r", "|a;|b;");
    decodes("data: a\r\n\ndata:b\n\r\n", "|a;|b;");
    decodes("\xef\xbb\xbf"
            "data: caf\xc3\xa9\n\n",
            "|caf\xc3\xa9;");
    decodes("event: x\ndata: 1\ndata: 2\n\nevent: y\n\ndata: 3\n\n", "x|1\n2;|3;");
    decodes(": comment\nid: 4\nretry: 5\ndata\n\ndata:\n\n\n\n", "|;|;");
    decodes("data:  two blanks\nother: field\nnonsense\n\n", "| two blanks;");
    decodes("event: x\r\ndata: 1\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n", "x|1\n2;|3;");
    decodes("error: {}\n\ndata: x\n\n", "error|{};|x;");
    decodes("\n\n\r\r\r\n", "");
}

TEST(an_unclosed_last_event_is_handed_on)
{
    decodes("data: a\n\ndata: [DONE]", "|a;|[DONE];");
    decodes("data: [DONE]\n", "|[DONE];");
    decodes("data: x\nda", "|x;");
}

TEST(a_mark_in_the_middle_is_text)
{
    decodes("data: a\n\xef\xbb\xbf"
            "data: b\n\n",
            "|a;");
}

TEST(lines_and_events_have_a_maximum)
{
    struct rlm_sse sse;
    struct seen s = {.log = RLM_BUF(100)};
    rlm_autoerr rlm_error *err = NULL;
    rlm_sse_init(&sse, 10);
    CHECK_INT(rlm_sse_feed(&sse, RLM_STR("data: 1234\ndata: 6789\n"), record, &s, NULL), 0);
    CHECK_INT(rlm_sse_feed(&sse, RLM_STR("data: x\n"), record, &s, &err), RLM_E_LIMIT);
    CHECK_CONTAINS(rlm_error_message(err), "10 bytes");
    rlm_sse_deinit(&sse);
    rlm_sse_init(&sse, 10);
    CHECK_INT(rlm_sse_feed(&sse, RLM_STR(":234567890"), record, &s, NULL), 0);
    CHECK_INT(rlm_sse_feed(&sse, RLM_STR("1"), record, &s, NULL), RLM_E_LIMIT);
    rlm_sse_deinit(&sse);
    rlm_sse_init(&sse, 10);
    CHECK_INT(rlm_sse_feed(&sse, RLM_STR(":2345678901\n"), record, &s, NULL), RLM_E_LIMIT);
    rlm_sse_deinit(&sse);
    CHECK_INT(s.count, 0);
}

TEST(the_handler_can_stop)
{
    struct rlm_sse sse;
    struct seen s = {.log = RLM_BUF(100), .stop_at = 1};
    rlm_sse_init(&sse, 100);
    CHECK_INT(rlm_sse_feed(&sse, RLM_STR("data: a\n\ndata: b\n\n"), record, &s, NULL), 1);
    CHECK_TEXT(s.log.ptr, "|a;");
    rlm_sse_deinit(&sse);
    rlm_buf_deinit(&s.log);
}
