#include "model/dialect.h"

#include "base/error.h"
#include "harness.h"

static struct rlm_stream s;
static rlm_error *problem;

static void begin(void)
{
    rlm_stream_deinit(&s);
    rlm_stream_init(&s);
    rlm_error_free(problem);
    problem = NULL;
}

static int event(const struct rlm_dialect *d, const char *data)
{
    return rlm_dialect_event(d, &s, RLM_STR_NONE, rlm_str_of(data), &problem);
}

static const char *text(void)
{
    return s.text.ptr ? s.text.ptr : "";
}

static const char *code(void)
{
    static struct rlm_buf b;
    rlm_buf_deinit(&b);
    b = RLM_BUF(1 << 20);
    CHECK_INT(rlm_stream_tool_code(&s, &b, NULL), 0);
    return b.ptr ? b.ptr : "";
}

#define O &rlm_dialect_openai
#define A &rlm_dialect_anthropic

TEST(openai_streams_are_read)
{
    begin();
    CHECK_INT(
        event(O, "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},"
                 "\"finish_reason\":null}]}"),
        0);
    CHECK_INT(event(O, "{\"choices\":[{\"delta\":{\"reasoning_content\":\"hmm\"}}]}"), 0);
    CHECK_INT(event(O, "{\"choices\":[{\"delta\":{\"reasoning\":\"ok\"}}]}"), 0);
    CHECK_INT(event(O, "{\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}"), 0);
    CHECK_INT(event(O, "{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"}}]}"), 0);
    CHECK_INT(event(O, "{\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"lo\"},"
                       "{\"type\":\"image_url\"}]},\"finish_reason\":\"stop\"}]}"),
              0);
    CHECK(!s.usage_known && !s.over && s.finished);
    CHECK_INT(event(O, "{\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,"
                       "\"prompt_tokens_details\":{\"cached_tokens\":4}}}"),
              0);
    CHECK_INT(event(O, ""), 0);
    CHECK_INT(event(O, "[DONE]"), 0);
    CHECK(s.over && s.usage_known && !s.refused);
    CHECK_TEXT(text(), "Hello");
    CHECK_TEXT(s.finish_reason, "stop");
    CHECK_INT(s.received_bytes, 5 + 5);
    CHECK_INT(s.usage.input_tokens, 10);
    CHECK_INT(s.usage.cached_tokens, 4);
    CHECK_INT(s.usage.output_tokens, 3);
}

TEST(openai_usage_may_come_in_any_chunk_or_be_nonsense)
{
    begin();
    event(O,
          "{\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}");
    event(O, "{\"choices\":[],\"usage\":null}");
    event(O, "{\"choices\":[],\"usage\":{\"prompt_tokens\":-5,\"completion_tokens\":2}}");
    event(O, "{\"choices\":[],\"usage\":{\"prompt_tokens\":6}}");
    CHECK(s.usage_known);
    CHECK_INT(s.usage.input_tokens, 5);
    CHECK_INT(s.usage.output_tokens, 1);
}

TEST(openai_tool_calls_carry_code)
{
    begin();
    event(O,
          "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"other\","
          "\"arguments\":\"\"}}]}}]}");
    event(O, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"a\",\"function\":"
             "{\"name\":\"run_it\",\"arguments\":\"{\\\"co\"}}]}}]}");
    event(O, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":"
             "\"de\\\": \\\"print(1)\\\\n\\\"}\"}}]}}]}");
    event(O, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":"
             "\"{\\\"x\\\":1}\"}}]}}]}");
    CHECK_TEXT(code(), "print(1)\n");
    CHECK_TEXT(text(), "");
    CHECK(s.received_bytes > 20);
}

static const char *code_of(const char *name, const char *arguments)
{
    begin();
    CHECK_INT(rlm_stream_tool(&s, 0, rlm_str_of(name), rlm_str_of(arguments), NULL), 0);
    return code();
}

TEST(code_is_found_in_every_form)
{
    CHECK_TEXT(code_of("f", "{\"code\":\"a\"}"), "a");
    CHECK_TEXT(code_of("f", "{\"input\":\"b\"}"), "b");
    CHECK_TEXT(code_of("f", "{\"python\":\"c\"}"), "c");
    CHECK_TEXT(code_of("f", "{\"code\":5,\"input\":\"d\"}"), "d");
    CHECK_TEXT(code_of("f", "{\"text\":\"e\"}"), "");
    CHECK_TEXT(code_of("python", "print(2)"), "print(2)");
    CHECK_TEXT(code_of("repl", "\"print(3)\""), "print(3)");
    CHECK_TEXT(code_of("execute", "x = {1}"), "x = {1}");
    CHECK_TEXT(code_of("other", "print(2)"), "");
    CHECK_TEXT(code_of("python", "{\"code\": \"pri"), ""); /* cut */
    CHECK_TEXT(code_of("python", "{\"other\": 1}"), "");
}

TEST(too_many_tool_calls_are_an_error)
{
    begin();
    int r = 0;
    for (int i = 0; i < 1000 && r == 0; i++) {
        r = rlm_stream_tool(&s, i, RLM_STR("f"), RLM_STR("x"), &problem);
    }
    CHECK_INT(r, RLM_E_LIMIT);
    CHECK_INT(s.tool_calls.len, RLM_STREAM_MAX_TOOL_CALLS);
}

TEST(openai_whole_answers_are_read)
{
    begin();
    const char *body =
        "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"hi\","
        "\"tool_calls\":[{\"function\":{\"name\":\"python\",\"arguments\":{\"code\":\"z\"}}}]},"
        "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":1,"
        "\"completion_tokens\":2}}";
    CHECK_INT(rlm_dialect_whole(O, &s, rlm_str_of(body), &problem), 0);
    CHECK_TEXT(text(), "hi");
    CHECK_TEXT(code(), "z");
    CHECK_TEXT(s.finish_reason, "length");
    CHECK(s.usage_known);
    begin();
    body = "{\"choices\":[{\"message\":{\"content\":null},\"finish_reason\":\"stop\"}]}";
    CHECK_INT(rlm_dialect_whole(O, &s, rlm_str_of(body), &problem), 0);
    CHECK_TEXT(text(), "");
    begin();
    CHECK_INT(rlm_dialect_whole(O, &s, RLM_STR("{\"choices\":[]}"), &problem), RLM_E_SERVER);
}

TEST(errors_in_a_stream_are_refusals)
{
    begin();
    CHECK_INT(event(O, "{\"error\":{\"code\":429,\"message\":\"slow down\"}}"), 0);
    CHECK(s.refused);
    CHECK_INT(s.refusal.code, RLM_E_RATE_LIMIT);
    begin();
    CHECK_INT(event(O, "{\"error\":null,\"choices\":[]}"), 0);
    CHECK(!s.refused);
    begin();
    CHECK_INT(rlm_dialect_event(O, &s, RLM_STR("error"),
                                RLM_STR("{\"code\":503,\"message\":\"loading\"}"), &problem),
              0);
    CHECK(s.refused && s.refusal.retry);
    CHECK_TEXT(s.refusal.message, "loading");
    begin();
    CHECK_INT(event(O, "{broken"), RLM_E_SERVER);
    CHECK_CONTAINS(rlm_error_message(problem), "{broken");
    begin();
    CHECK_INT(event(O, "[1]"), RLM_E_SERVER);
    begin();
    CHECK_INT(
        event(A,
              "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}"),
        0);
    CHECK(s.refused && s.refusal.retry);
}

TEST(anthropic_streams_are_read)
{
    begin();
    event(
        A,
        "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,"
        "\"cache_creation_input_tokens\":20,\"cache_read_input_tokens\":30,\"output_tokens\":1}}}");
    CHECK(!s.usage_known);
    event(A,
          "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\","
          "\"thinking\":\"\"}}");
    event(A, "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\","
             "\"thinking\":\"mm\"}}");
    event(A, "{\"type\":\"ping\"}");
    event(A, "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\","
             "\"text\":\"\"}}");
    event(
        A,
        "{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":"
        "\"hi\"}}");
    event(A,
          "{\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\","
          "\"id\":\"t\",\"name\":\"python\",\"input\":{}}}");
    event(A,
          "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\","
          "\"partial_json\":\"{\\\"code\\\":\"}}");
    event(A,
          "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\","
          "\"partial_json\":\"\\\"x=1\\\"}\"}}");
    event(A, "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":"
             "{\"output_tokens\":9}}");
    CHECK(s.finished && !s.over);
    event(A, "{\"type\":\"message_stop\"}");
    CHECK(s.over && s.usage_known);
    CHECK_TEXT(text(), "hi");
    CHECK_TEXT(code(), "x=1");
    CHECK_TEXT(s.finish_reason, "tool_use");
    CHECK_INT(s.usage.input_tokens, 60);
    CHECK_INT(s.usage.cached_tokens, 30);
    CHECK_INT(s.cache_write_tokens, 20);
    CHECK_INT(s.usage.output_tokens, 9);
    CHECK_INT(s.received_bytes, 2 + 2 + 6 + 14);
}

TEST(anthropic_whole_answers_are_read)
{
    begin();
    const char *body =
        "{\"type\":\"message\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},"
        "{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"},"
        "{\"type\":\"tool_use\",\"name\":\"repl\",\"input\":{\"code\":\"c\"}}],"
        "\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}";
    CHECK_INT(rlm_dialect_whole(A, &s, rlm_str_of(body), &problem), 0);
    CHECK_TEXT(text(), "ab");
    CHECK_TEXT(code(), "c");
    CHECK(s.usage_known);
    CHECK_INT(s.usage.input_tokens, 3);
    begin();
    CHECK_INT(rlm_dialect_whole(A, &s, RLM_STR("{}"), &problem), RLM_E_SERVER);
}

/* ---- requests ---- */

static const char *written(const struct rlm_dialect *d,
                           const struct rlm_chat_request *request,
                           struct rlm_dialect_options o,
                           const char *extra)
{
    static struct rlm_buf b;
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    rlm_buf_deinit(&b);
    b = RLM_BUF(1 << 20);
    if (extra) {
        CHECK_INT(rlm_json_parse(a, rlm_str_of(extra), &o.extra, NULL), 0);
    }
    struct rlm_json_writer w = {.buf = &b};
    rlm_json_begin(&w, '{');
    d->write_messages(&w, request, o.extra);
    d->write_options(&w, &o);
    rlm_json_end(&w, '}');
    const rlm_json *parsed = NULL;
    CHECK_INT(rlm_json_parse(a, rlm_buf_str(&b), &parsed, NULL), 0);
    return b.ptr;
}

static const struct rlm_message messages[] = {
    {RLM_SYSTEM, {"sys", 3}, true},   {RLM_USER, {"q\xed\xb2\x80\"\0", 6}, true},
    {RLM_ASSISTANT, {"a", 1}, false}, {RLM_USER, {"u", 1}, true},
    {RLM_ASSISTANT, {"b", 1}, true},  {RLM_USER, {"v", 1}, true},
};

TEST(openai_requests_are_written)
{
    struct rlm_chat_request request = {messages, 2, 0, NULL, 0, 0};
    struct rlm_dialect_options o = {.model = "m",
                                    .max_output_tokens = 50,
                                    .temperature = 0.5,
                                    .reasoning_effort = "low",
                                    .stream = true,
                                    .stream_options = true};
    CHECK_TEXT(
        written(O, &request, o, NULL),
        "{\"messages\":[{\"role\":\"system\",\"content\":\"sys\"},{\"role\":\"user\",\"content\":"
        "\"q\xef\xbf\xbd\\\"\\u0000\"}],\"model\":\"m\",\"max_tokens\":50,\"temperature\":0.5,"
        "\"reasoning_effort\":\"low\",\"stream\":true,\"stream_options\":"
        "{\"include_usage\":true}}");
    struct rlm_dialect_options bare = {
        .model = "m", .max_output_tokens = 50, .temperature = -1, .max_completion_tokens = true};
    const char *body = written(O, &request, bare, "{\"top_p\":0.1,\"model\":\"other\"}");
    CHECK_CONTAINS(body, "\"max_completion_tokens\":50,\"top_p\":0.1,\"model\":\"other\"}");
    CHECK(!strstr(body, "\"m\"") && !strstr(body, "stream") && !strstr(body, "temperature"));
    body = written(O, &request, o, "{\"max_completion_tokens\":7,\"stream\":false}");
    CHECK(!strstr(body, "max_tokens") && !strstr(body, "stream_options"));
}

TEST(anthropic_requests_are_written)
{
    struct rlm_chat_request request = {messages, 3, 0, NULL, 0, 0};
    struct rlm_dialect_options o = {
        .model = "m", .max_output_tokens = 50, .temperature = -1, .stream = true};
    CHECK_TEXT(
        written(A, &request, o, NULL),
        "{\"system\":[{\"type\":\"text\",\"text\":\"sys\",\"cache_control\":{\"type\":"
        "\"ephemeral\"}}],\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":\"q\xef\xbf\xbd\\\"\\u0000\",\"cache_control\":{\"type\":\"ephemeral\"}}]},"
        "{\"role\":\"assistant\",\"content\":\"a\"}],\"model\":\"m\",\"max_tokens\":50,"
        "\"stream\":true}");
}

TEST(anthropic_takes_four_cache_marks)
{
    struct rlm_chat_request request = {messages, 6, 0, NULL, 0, 0};
    struct rlm_dialect_options o = {.model = "m", .max_output_tokens = 50, .temperature = -1};
    const char *body = written(A, &request, o, NULL);
    int marks = 0;
    for (const char *at = body; (at = strstr(at, "ephemeral")); at++) {
        marks++;
    }
    CHECK_INT(marks, 4);
    CHECK_CONTAINS(body, "\"text\":\"sys\"}]"); /* the first one gave way */
}
