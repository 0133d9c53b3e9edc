#include "model/refusal.h"

#include "harness.h"

static struct rlm_refusal r;

static void answer(int status, const char *body)
{
    rlm_refusal_deinit(&r);
    CHECK_INT(rlm_refusal_of_answer(status, rlm_str_of(body), &r), 0);
    CHECK_INT(r.status, status);
}

static void in_stream(const char *error)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    const rlm_json *v = NULL;
    CHECK_INT(rlm_json_parse(a, rlm_str_of(error), &v, NULL), 0);
    rlm_refusal_deinit(&r);
    CHECK_INT(rlm_refusal_of_error(v, &r), 0);
}

static void is(int code, bool retry)
{
    CHECK_INT(r.code, code);
    CHECK_INT(r.retry, retry);
}

TEST(statuses_decide)
{
    const char *body = "{\"error\":{\"message\":\"words\",\"type\":\"x\"}}";
    static const struct {
        int status, code;
        bool retry;
    } cases[] = {
        {400, RLM_E_INVAL, false},      {401, RLM_E_AUTH, false},
        {402, RLM_E_RATE_LIMIT, false}, {403, RLM_E_AUTH, false},
        {404, RLM_E_NOT_FOUND, false},  {408, RLM_E_SERVER, true},
        {409, RLM_E_SERVER, true},      {413, RLM_E_INVAL, false},
        {422, RLM_E_INVAL, false},      {429, RLM_E_RATE_LIMIT, true},
        {500, RLM_E_SERVER, true},      {501, RLM_E_SERVER, false},
        {502, RLM_E_SERVER, true},      {503, RLM_E_SERVER, true},
        {504, RLM_E_SERVER, true},      {529, RLM_E_SERVER, true},
        {302, RLM_E_SERVER, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        answer(cases[i].status, body);
        is(cases[i].code, cases[i].retry);
        CHECK_TEXT(r.message, "words");
    }
}

TEST(a_used_up_quota_is_final)
{
    answer(429, "{\"error\":{\"message\":\"m\",\"type\":\"insufficient_quota\"}}");
    is(RLM_E_RATE_LIMIT, false);
    answer(429, "{\"error\":{\"message\":\"m\",\"code\":\"insufficient_quota\"}}");
    is(RLM_E_RATE_LIMIT, false);
}

TEST(an_empty_account_is_final)
{
    answer(400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
                "\"Your credit balance is too low to use the API\"}}");
    is(RLM_E_RATE_LIMIT, false);
}

TEST(contexts_are_known_in_every_wording)
{
    answer(400, "{\"error\":{\"code\":400,\"message\":\"request exceeds the available context "
                "size\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":9000,"
                "\"n_ctx\":4096}}");
    is(RLM_E_CONTEXT, false);
    CHECK_INT(r.context_tokens, 4096);
    answer(400, "{\"error\":{\"message\":\"This model's maximum context length is 128,000 tokens. "
                "However, your messages resulted in 130000 tokens.\",\"code\":"
                "\"context_length_exceeded\"}}");
    is(RLM_E_CONTEXT, false);
    CHECK_INT(r.context_tokens, 128000);
    answer(400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
                "\"prompt is too long: 210000 tokens > 200000 maximum\"}}");
    is(RLM_E_CONTEXT, false);
    CHECK_INT(r.context_tokens, 200000);
    answer(400, "{\"object\":\"error\",\"message\":\"'max_tokens' is too large: 9000. This model's "
                "maximum context length is 8192 tokens\",\"type\":\"BadRequestError\"}");
    is(RLM_E_CONTEXT, false);
    CHECK_INT(r.context_tokens, 8192);
    CHECK(!r.names_max_tokens);
    answer(
        400,
        "{\"error\":{\"message\":\"input length and `max_tokens` exceed context limit: 150 + 60 > "
        "200, decrease input length\"}}");
    is(RLM_E_CONTEXT, false);
    CHECK_INT(r.context_tokens, 200);
    answer(413, "{\"error\":{\"message\":\"prompt is too long\"}}");
    is(RLM_E_CONTEXT, false);
    CHECK_INT(r.context_tokens, 0);
    /* A limit of something else stays what its status says. */
    answer(429, "{\"error\":{\"message\":\"tokens per minute; maximum context length\"}}");
    is(RLM_E_RATE_LIMIT, true);
}

TEST(errors_inside_streams_imply_a_status)
{
    in_stream("{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}");
    is(RLM_E_SERVER, true);
    CHECK_INT(r.status, 529);
    in_stream("{\"type\":\"rate_limit_error\",\"message\":\"m\"}");
    is(RLM_E_RATE_LIMIT, true);
    in_stream("{\"code\":429,\"message\":\"m\"}");
    is(RLM_E_RATE_LIMIT, true);
    in_stream("{\"code\":\"invalid_api_key\",\"message\":\"m\"}");
    is(RLM_E_AUTH, false);
    in_stream("{\"type\":\"invalid_request_error\",\"message\":\"m\"}");
    is(RLM_E_INVAL, false);
    in_stream("\"the engine died\"");
    is(RLM_E_SERVER, true);
    CHECK_TEXT(r.message, "the engine died");
    in_stream("{\"message\":\"m\"}");
    is(RLM_E_SERVER, true);
}

TEST(refused_fields_are_named)
{
    answer(400,
           "{\"error\":{\"message\":\"Unsupported parameter: 'max_tokens' is not supported with "
           "this model. Use 'max_completion_tokens' instead.\",\"param\":\"max_tokens\"}}");
    CHECK(r.names_max_tokens && !r.names_max_completion_tokens);
    answer(400, "{\"error\":\"unknown field max_completion_tokens\"}");
    CHECK(!r.names_max_tokens && r.names_max_completion_tokens);
    answer(422, "{\"detail\":[{\"loc\":[\"body\",\"stream_options\"],\"msg\":\"extra\"}]}");
    CHECK(r.names_stream_options);
    answer(400,
           "{\"error\":{\"message\":\"Unsupported value: 'temperature' does not support 0.2\"}}");
    CHECK(r.names_temperature);
    answer(400, "{\"error\":{\"message\":\"temperature must be between 0 and 2\"}}");
    CHECK(!r.names_temperature);
    answer(500, "max_tokens");
    CHECK(!r.names_max_tokens);
}

TEST(words_are_found_wherever_they_stand)
{
    answer(500, "plain\n\ttext\r\n");
    CHECK_TEXT(r.message, "plain text ");
    answer(500, "[{\"error\":{\"message\":\"in an array\"}}]");
    CHECK_TEXT(r.message, "in an array");
    answer(500, "{\"detail\":\"in detail\"}");
    CHECK_TEXT(r.message, "in detail");
    answer(502, "<html><body>Bad gateway</body></html>");
    CHECK_TEXT(r.message, "");
    answer(500, "");
    CHECK_TEXT(r.message, "");
    answer(500, "bad \xff bytes \x01");
    CHECK_TEXT(r.message, "bad \xef\xbf\xbd bytes ");
}

TEST(long_words_are_bounded)
{
    char *body = malloc(100001);
    memset(body, 'x', 100000);
    body[100000] = '\0';
    answer(500, body);
    CHECK_INT(strlen(r.message), RLM_REFUSAL_MAX_MESSAGE);
    free(body);
}

TEST(secrets_are_masked)
{
    const char *secrets[] = {"sk-abcdef-123456", "pass", "x", NULL};
    char text[] = "key sk-abcdef-123456, again sk-abcdef-123456; pass x compass sk-abcdef-1";
    rlm_refusal_mask(text, secrets);
    CHECK_TEXT(text, "key ***, again ***; *** x com*** ***");
}
