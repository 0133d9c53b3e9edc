#include "canned.h"
#include "chat.h"

#define OK_HEAD     "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define DELTA(text) "data: {\"choices\":[{\"delta\":{\"content\":\"" text "\"}}]}\n\n"
#define STOP        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
#define USAGE       "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n"
#define DONE        "data: [DONE]\n\n"
/* The server fills in the length. */
#define JSON(status, body) \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nContent-Length: ???\r\n\r\n" body

static struct canned_server server;
static rlm_loop *loop;
static rlm_model *model;

static void open_model(const struct canned *answers, size_t n, struct rlm_model_options o)
{
    static char url[200];
    unsetenv("http_proxy");
    canned_start(&server, answers, n);
    if (!o.base_url) {
        snprintf(url, sizeof url, "http://127.0.0.1:%d/v1", server.port);
    } else {
        /* "PORT" stands for the port of the server. */
        const char *port = strstr(o.base_url, "PORT");
        int before = port ? (int)(port - o.base_url) : (int)strlen(o.base_url);
        snprintf(url, sizeof url, "%.*s", before, o.base_url);
        if (port) {
            snprintf(url + before, sizeof url - (size_t)before, "%d%s", server.port, port + 4);
        }
    }
    o.base_url = url;
    o.name = o.name ? o.name : "some-model";
    rlm_error *err = NULL;
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    int r = rlm_model_new(loop, &o, &model, &err);
    if (r < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
}

static struct rlm_model_options defaults(void)
{
    return (struct rlm_model_options)RLM_MODEL_OPTIONS_INIT;
}

static struct chat_result ask(struct chat_result r)
{
    r = chat_run(loop, model, "root", 1, "question", r);
    return r;
}

static void close_all(struct chat_result *r)
{
    if (r) {
        chat_result_free(r);
    }
    rlm_model_free(model);
    rlm_loop_free(loop);
}

TEST(a_stream_is_read_and_counted)
{
    static const struct canned answers[] = {
        {{OK_HEAD DELTA("Hel"), "data: {\"choices\":[{\"del", "ta\":{\"content\":\"lo \xe2", "\x82",
          "\xac\"}}]}\n", "\n" STOP USAGE DONE},
         CANNED_CLOSE}};
    struct rlm_model_options o = defaults();
    o.price = (struct rlm_price){1, 1, 1, 2};
    open_model(answers, 1, o);
    struct chat_result r = ask((struct chat_result){0});
    CHECK_INT(r.ends, 1);
    CHECK(!r.failed);
    CHECK_TEXT(r.text, "Hello \xe2\x82\xac");
    CHECK_TEXT(r.streamed.ptr, r.text);
    CHECK_INT(r.deltas, 2);
    CHECK_TEXT(r.finish, "stop");
    CHECK(r.reply.usage_known);
    CHECK_INT(r.reply.usage.input_tokens, 9);
    CHECK_INT(r.reply.usage.output_tokens, 2);
    CHECK_INT(r.reply.usage.cost_nano, 9000 + 4000);
    CHECK_INT(r.reply.sent_bytes, 24);
    CHECK_INT(r.reply.received_bytes, 9);
    CHECK_CONTAINS(server.requests[0], "POST /v1/chat/completions HTTP/1.1\r\n");
    CHECK_CONTAINS(server.requests[0], "\"max_tokens\":100,\"stream\":true");
    CHECK(!strstr(server.requests[0], "Authorization"));
    CHECK(!strstr(server.requests[0], "Expect"));
    close_all(&r);
}

TEST(a_server_that_does_not_close_after_done_is_not_waited_for)
{
    static const struct canned answers[] = {{{OK_HEAD DELTA("x") STOP DONE}, CANNED_HOLD}};
    open_model(answers, 1, defaults());
    struct chat_result r = ask((struct chat_result){0});
    CHECK(!r.failed);
    CHECK_TEXT(r.text, "x");
    close_all(&r);
}

TEST(plain_json_is_understood_though_a_stream_was_asked)
{
    static const struct canned answers[] = {
        {{JSON("200 OK",
               "{\"choices\":[{\"message\":{\"content\":\"hi\"},\"finish_reason\":\"x\"}]}")},
         CANNED_CLOSE}};
    open_model(answers, 1, defaults());
    struct chat_result r = ask((struct chat_result){0});
    CHECK(!r.failed);
    CHECK_TEXT(r.text, "hi");
    CHECK_TEXT(r.finish, "x");
    CHECK_INT(r.reply.received_bytes, 2);
    CHECK(!r.reply.usage_known);
    close_all(&r);
}

static struct chat_result
failing(const struct canned *answers, size_t n, struct rlm_model_options o)
{
    open_model(answers, n, o);
    struct chat_result r = ask((struct chat_result){0});
    CHECK_INT(r.ends, 1);
    CHECK(r.failed);
    return r;
}

TEST(a_cut_stream_counts_what_came)
{
    static const struct canned answers[] = {{{OK_HEAD DELTA("four")}, CANNED_CLOSE}};
    struct chat_result r = failing(answers, 1, defaults());
    CHECK_INT(r.code, RLM_E_UNREACHABLE);
    CHECK_CONTAINS(r.message, "the stream was cut");
    CHECK_CONTAINS(r.message, "http://127.0.0.1");
    CHECK(r.failure.retry);
    CHECK_INT(r.failure.received_bytes, 4);
    CHECK_INT(r.failure.http_status, 200);
    close_all(&r);
}

TEST(a_reset_stream_counts_what_came)
{
    static const struct canned answers[] = {{{OK_HEAD DELTA("four")}, CANNED_RESET}};
    struct chat_result r = failing(answers, 1, defaults());
    CHECK_INT(r.code, RLM_E_UNREACHABLE);
    CHECK(r.failure.retry);
    CHECK_INT(r.failure.received_bytes, 4);
    close_all(&r);
}

TEST(a_reset_after_the_finish_reason_is_harmless)
{
    static const struct canned answers[] = {{{OK_HEAD DELTA("four") STOP}, CANNED_RESET}};
    open_model(answers, 1, defaults());
    struct chat_result r = ask((struct chat_result){0});
    CHECK(!r.failed);
    CHECK_TEXT(r.text, "four");
    close_all(&r);
}

TEST(a_stalled_stream_passes_the_idle_limit)
{
    static const struct canned answers[] = {{{OK_HEAD DELTA("four")}, CANNED_HOLD}};
    struct rlm_model_options o = defaults();
    o.idle_timeout_ms = 60;
    struct chat_result r = failing(answers, 1, o);
    CHECK_INT(r.code, RLM_E_TIMEOUT);
    CHECK_CONTAINS(r.message, "0.06 s (the idle timeout)");
    CHECK(r.failure.retry);
    CHECK_INT(r.failure.received_bytes, 4);
    close_all(&r);
}

TEST(a_silent_server_passes_the_first_byte_limit)
{
    static const struct canned answers[] = {{{NULL}, CANNED_HOLD}};
    struct rlm_model_options o = defaults();
    o.first_byte_timeout_ms = 60;
    o.idle_timeout_ms = 1;
    struct chat_result r = failing(answers, 1, o);
    CHECK_INT(r.code, RLM_E_TIMEOUT);
    CHECK_CONTAINS(r.message, "0.06 s (the first-byte timeout)");
    CHECK(r.failure.retry);
    close_all(&r);
}

TEST(keep_alives_alone_pass_the_first_byte_limit)
{
    static const struct canned answers[] = {{{OK_HEAD ": 1\n", ": 2\n", ": 3\n", ": 4\n", ": 5\n",
                                              ": 6\n", ": 7\n", ": 8\n", ": 9\n", ": 10\n"},
                                             CANNED_HOLD}};
    struct rlm_model_options o = defaults();
    o.first_byte_timeout_ms = 12;
    o.idle_timeout_ms = 5000;
    struct chat_result r = failing(answers, 1, o);
    CHECK_INT(r.code, RLM_E_TIMEOUT);
    CHECK_CONTAINS(r.message, "(the first-byte timeout)");
    close_all(&r);
}

TEST(nobody_listening_is_unreachable)
{
    static const struct canned answers[] = {{{NULL}, CANNED_CLOSE}};
    struct rlm_model_options o = defaults();
    o.base_url = "http://127.0.0.1:1/v1";
    struct chat_result r = failing(answers, 1, o);
    CHECK_INT(r.code, RLM_E_UNREACHABLE);
    CHECK_CONTAINS(r.message, "http://127.0.0.1:1/v1: ");
    CHECK(r.failure.retry);
    CHECK_INT(r.failure.http_status, 0);
    close_all(&r);
}

TEST(a_closed_connection_without_an_answer_is_unreachable)
{
    static const struct canned answers[] = {{{NULL}, CANNED_CLOSE}};
    struct chat_result r = failing(answers, 1, defaults());
    CHECK_INT(r.code, RLM_E_UNREACHABLE);
    CHECK(r.failure.retry);
    close_all(&r);
}

TEST(retry_after_is_read)
{
    static const struct canned answers[] = {
        {{"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}"}, CANNED_KEEP},
        {{"HTTP/1.1 429 Too Many\r\nretry-after: 9\r\nretry-after-ms: 1500\r\nContent-Length: 0\r\n\r\n"},
         CANNED_KEEP},
        {{"HTTP/1.1 503 No\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\nContent-Length: 0\r\n\r\n"},
         CANNED_KEEP},
        {{"HTTP/1.1 429 No\r\nretry-after-ms: 1500\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n"},
         CANNED_KEEP},
        {{"HTTP/1.1 503 No\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n"}, CANNED_KEEP}};
    static const struct {
        int code;
        int64_t ms;
    } expected[] = {{RLM_E_RATE_LIMIT, 7000},
                    {RLM_E_RATE_LIMIT, 1500},
                    {RLM_E_SERVER, 0},
                    {RLM_E_RATE_LIMIT, 1500},
                    {RLM_E_SERVER, -1}};
    open_model(answers, 5, defaults());
    for (size_t i = 0; i < 5; i++) {
        struct chat_result r = ask((struct chat_result){0});
        CHECK(r.failed && r.failure.retry);
        CHECK_INT(r.code, expected[i].code);
        CHECK_INT(r.failure.retry_after_ms, expected[i].ms);
        chat_result_free(&r);
    }
    CHECK_INT(server.n_connections, 1); /* they were all on one connection */
    /* Neither a kept connection nor a limit that no longer matters keeps the loop going. */
    rlm_loop_run(loop);
    close_all(NULL);
}

TEST(keys_are_sent_and_never_shown)
{
    static const struct canned answers[] = {
        {{"HTTP/1.1 401 No\r\nContent-Length: ???\r\n\r\n"
          "{\"error\":{\"message\":\"bad key sk-secret-1234 or xyz-header-1\"}}"},
         CANNED_CLOSE}};
    static const char *const headers[] = {"X-Extra: xyz-header-1", NULL};
    struct rlm_model_options o = defaults();
    o.key = "sk-secret-1234\n";
    o.headers = headers;
    o.base_url = "http://user:s3cretpw@127.0.0.1:PORT/v1/chat/completions/";
    struct chat_result r = failing(answers, 1, o);
    CHECK_INT(r.code, RLM_E_AUTH);
    CHECK(!r.failure.retry);
    CHECK_CONTAINS(server.requests[0], "Authorization: Bearer sk-secret-1234\r\n");
    CHECK_CONTAINS(server.requests[0], "X-Extra: xyz-header-1\r\n");
    CHECK_CONTAINS(server.requests[0], "POST /v1/chat/completions HTTP");
    CHECK_CONTAINS(r.message, "bad key *** or ***");
    CHECK_CONTAINS(r.message, "OPENAI_API_KEY");
    CHECK(!strstr(r.message, "secret") && !strstr(r.message, "s3cret"));
    CHECK(!strstr(rlm_model_address(model), "s3cret"));
    close_all(&r);
}

TEST(an_unknown_model_is_not_found)
{
    static const struct canned answers[] = {
        {{JSON("404 No", "{\"error\":{\"message\":\"no such model\"}}")}, CANNED_CLOSE}};
    struct chat_result r = failing(answers, 1, defaults());
    CHECK_INT(r.code, RLM_E_NOT_FOUND);
    CHECK_CONTAINS(r.message, "\"some-model\"");
    CHECK_CONTAINS(r.message, "/v1");
    CHECK(!r.failure.retry);
    close_all(&r);
}

TEST(redirects_are_not_followed)
{
    static const struct canned answers[] = {
        {{"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"},
         CANNED_CLOSE}};
    struct chat_result r = failing(answers, 1, defaults());
    CHECK_INT(r.code, RLM_E_SERVER);
    CHECK_CONTAINS(r.message, "redirect");
    CHECK(!r.failure.retry);
    close_all(&r);
}

TEST(refused_fields_are_given_up_and_remembered)
{
    static const struct canned answers[] = {
        {{JSON("400 Bad", "{\"error\":{\"message\":\"use max_tokens no: max_tokens 1\"}}")},
         CANNED_KEEP},
        {{JSON("400 Bad", "{\"error\":{\"message\":\"unknown field stream_options\"}}")},
         CANNED_KEEP},
        {{JSON("400 Bad", "{\"error\":{\"message\":\"temperature not supported\"}}")}, CANNED_KEEP},
        {{OK_HEAD DELTA("a") STOP DONE}, CANNED_CLOSE},
        {{OK_HEAD DELTA("b") STOP DONE}, CANNED_CLOSE}};
    struct rlm_model_options o = defaults();
    o.temperature = 0.2;
    open_model(answers, 5, o);
    struct chat_result r = ask((struct chat_result){0});
    CHECK_TEXT(r.text, "a");
    CHECK_CONTAINS(server.requests[0], "\"max_tokens\":100,\"temperature\":0.2");
    CHECK_CONTAINS(server.requests[1], "\"max_completion_tokens\":100");
    CHECK_CONTAINS(server.requests[1], "stream_options");
    CHECK(!strstr(server.requests[2], "stream_options"));
    CHECK_CONTAINS(server.requests[2], "temperature");
    CHECK(!strstr(server.requests[3], "temperature"));
    CHECK_CONTAINS(server.requests[3], "{\"role\":\"user\",\"content\":\"question\"}]");
    chat_result_free(&r);
    r = ask((struct chat_result){0});
    CHECK_TEXT(r.text, "b");
    CHECK_CONTAINS(server.requests[4], "\"max_completion_tokens\":100,\"stream\":true}");
    close_all(&r);
}

TEST(a_model_may_be_held_to_fewer_tokens_and_never_to_more)
{
    static const struct canned answers[] = {{{OK_HEAD DELTA("a") STOP DONE}, CANNED_CLOSE}};
    static const struct {
        int most;
        const char *sent;
    } cases[] = {
        {30, "\"max_tokens\":30,"}, {0, "\"max_tokens\":100,"}, {500, "\"max_tokens\":100,"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rlm_model_options o = defaults();
        o.max_output_tokens = cases[i].most;
        open_model(answers, 1, o);
        struct chat_result r = ask((struct chat_result){0});
        CHECK_TEXT(r.text, "a");
        CHECK_CONTAINS(server.requests[0], cases[i].sent);
        close_all(&r);
        free(server.requests[0]); /* the next server has its place */
    }
}

TEST(a_field_is_changed_once)
{
    static const char bad[] = JSON(
        "400 Bad", "{\"error\":{\"message\":\"neither max_tokens nor max_completion_tokens\"}}");
    static const struct canned answers[] = {{{bad}, CANNED_KEEP}, {{bad}, CANNED_KEEP}};
    struct chat_result r = failing(answers, 2, defaults());
    CHECK_INT(r.code, RLM_E_INVAL);
    CHECK_INT(server.n_requests, 2);
    close_all(&r);
}

TEST(an_error_in_a_stream_fails_it)
{
    static const struct canned answers[] = {
        {{OK_HEAD DELTA("x") "data: {\"error\":{\"code\":429,\"message\":\"slow\"}}\n\n" DONE},
         CANNED_CLOSE},
        {{OK_HEAD DELTA("x") "data: {nonsense\n\n" DONE}, CANNED_CLOSE}};
    struct chat_result r = failing(answers, 2, defaults());
    CHECK_INT(r.code, RLM_E_RATE_LIMIT);
    CHECK_INT(r.failure.received_bytes, 1);
    CHECK_CONTAINS(r.message, "slow");
    chat_result_free(&r);
    r = ask((struct chat_result){0});
    CHECK_INT(r.code, RLM_E_SERVER);
    CHECK(r.failure.retry);
    close_all(&r);
}

TEST(a_stream_can_be_cut_and_dropped)
{
#define HOLD                                                   \
    {                                                          \
        {OK_HEAD DELTA("one"), DELTA("two") STOP}, CANNED_HOLD \
    }
    static const struct canned answers[] = {HOLD, HOLD, HOLD};
    open_model(answers, 3, defaults());
    struct chat_result r = ask((struct chat_result){.cut_at = 1});
    CHECK_INT(r.ends, 1);
    CHECK_TEXT(r.finish, "cut");
    CHECK_TEXT(r.text, "one");
    CHECK(!r.reply.usage_known);
    CHECK_INT(r.reply.received_bytes, 3);
    chat_result_free(&r);
    r = ask((struct chat_result){.free_at = 1});
    CHECK_INT(r.ends, 0);
    chat_result_free(&r);
    r = ask((struct chat_result){.cut_at = 1, .free_at = 1});
    CHECK_INT(r.ends, 0);
    close_all(&r);
}

TEST(anthropic_is_spoken)
{
    static const struct canned answers[] = {
        {{OK_HEAD
          "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{"
          "\"input_tokens\":5,\"cache_creation_input_tokens\":7,\"output_tokens\":1}}}\n\n"
          "event: ping\ndata: {\"type\":\"ping\"}\n\n"
          "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
          "{\"type\":\"text_delta\",\"text\":\"hey\"}}\n\n"
          "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
          "\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n"
          "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
         CANNED_CLOSE}};
    struct rlm_model_options o = defaults();
    o.api = RLM_API_ANTHROPIC;
    o.key = "k-1";
    o.price = (struct rlm_price){1, 1, 2, 3};
    open_model(answers, 1, o);
    struct chat_result r = ask((struct chat_result){0});
    CHECK_TEXT(r.text, "hey");
    CHECK_TEXT(r.finish, "end_turn");
    CHECK_INT(r.reply.usage.input_tokens, 12);
    CHECK_INT(r.reply.usage.cost_nano, 5000 + 14000 + 9000);
    CHECK_CONTAINS(server.requests[0], "POST /v1/messages HTTP");
    CHECK_CONTAINS(server.requests[0], "x-api-key: k-1\r\n");
    CHECK_CONTAINS(server.requests[0], "anthropic-version: 2023-06-01\r\n");
    CHECK_CONTAINS(server.requests[0], "{\"system\":[{\"type\":\"text\"");
    close_all(&r);
}

static char problem_text[1000];

static void checked(void *arg, const rlm_error *problem)
{
    snprintf(problem_text, sizeof problem_text, "%d %s", rlm_error_code(problem),
             rlm_error_message(problem));
    rlm_loop_stop(loop);
}

TEST(a_check_asks_for_the_models)
{
    static const char list[] =
        JSON("200 OK", "{\"data\":[{\"id\":\"a\"},{\"id\":\"some-model:latest\"}]}");
    static const char other[] = JSON("200 OK", "{\"data\":[{\"id\":\"a\"},{\"id\":\"another\"}]}");
    static const char llama[] =
        JSON("200 OK", "{\"data\":[{\"id\":\"a\",\"owned_by\":\"llamacpp\"}]}");
    static const struct canned answers[] = {{{list}, CANNED_KEEP},
                                            {{other}, CANNED_KEEP},
                                            {{llama}, CANNED_KEEP},
                                            {{JSON("401 No", "{}")}, CANNED_KEEP},
                                            {{NULL}, CANNED_HOLD}};
    open_model(answers, 5, defaults());
    static const char *const expected[] = {"0 ", "-5 ", "0 ", "-14 "};
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(rlm_model_check(model, checked, NULL, NULL), 0);
        rlm_loop_run(loop);
        CHECK_CONTAINS(problem_text, expected[i]);
        if (i == 1) {
            CHECK_CONTAINS(problem_text, "a, another");
        }
        if (i == 3) {
            CHECK_CONTAINS(problem_text, "set OPENAI_API_KEY");
        }
    }
    CHECK_CONTAINS(server.requests[0], "GET /v1/models HTTP");
    /* One that is under way is dropped with the model. */
    CHECK_INT(rlm_model_check(model, checked, NULL, NULL), 0);
    close_all(NULL);
}

TEST(options_are_checked)
{
    static const char *const bad_header[] = {"no colon", NULL};
    static const char *const split_header[] = {"A: b\r\nc: secret", NULL};
    struct rlm_model_options cases[8];
    for (size_t i = 0; i < 8; i++) {
        cases[i] = defaults();
        cases[i].name = "m";
    }
    cases[0].name = "";
    cases[1].base_url = "nonsense";
    cases[2].body_json = "[1]";
    cases[3].body_json = "{";
    cases[4].headers = bad_header;
    cases[5].headers = split_header;
    cases[6].key = "a\nb";
    cases[7].size = 4;
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    for (size_t i = 0; i < 8; i++) {
        rlm_autoerr rlm_error *err = NULL;
        int r = rlm_model_new(loop, &cases[i], &model, &err);
        CHECK(r == RLM_E_INVAL || r == RLM_E_PARSE);
        CHECK(!strstr(rlm_error_message(err), "secret"));
    }
    rlm_loop_free(loop);
}

TEST(prices_come_from_the_options_or_the_table)
{
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    struct rlm_model_options o = defaults();
    o.name = "gpt-4o";
    CHECK_INT(rlm_model_new(loop, &o, &model, NULL), 0);
    struct rlm_usage u = {.input_tokens = 1000};
    CHECK_INT(rlm_model_cost(model, &u, false), 2500000);
    rlm_model_free(model);
    o.price = (struct rlm_price){1, -1, -1, 1};
    CHECK_INT(rlm_model_new(loop, &o, &model, NULL), 0);
    CHECK_INT(rlm_model_cost(model, &u, false), 1000000);
    rlm_model_free(model);
    o = defaults();
    o.name = "gpt-4o";
    o.base_url = "http://localhost:1/v1";
    CHECK_INT(rlm_model_new(loop, &o, &model, NULL), 0);
    CHECK(!rlm_model_has_price(model));
    rlm_model_free(model);
    rlm_loop_free(loop);
}

static size_t left;

static void many_done(void *arg, const struct rlm_chat_reply *reply)
{
    CHECK_STR(reply->text, "x");
    rlm_chat_free(*(rlm_chat **)arg);
    if (--left == 0) {
        rlm_model_free(model); /* with its last chat, inside of a callback */
        rlm_loop_stop(loop);
    }
}

static void many_failed(void *arg, const struct rlm_chat_failure *failure)
{
    harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(failure->error));
}

TEST(many_chats_go_at_once)
{
    enum { N = 12 };
    struct canned answers[N];
    rlm_chat *chats[N];
    for (size_t i = 0; i < N; i++) {
        answers[i] = (struct canned){{OK_HEAD DELTA("x"), STOP DONE}, CANNED_CLOSE};
    }
    open_model(answers, N, defaults());
    struct rlm_message message = {RLM_USER, RLM_STR("q"), false};
    struct rlm_chat_request request = {&message, 1, 10, "a", 1, 0};
    struct rlm_chat_events events = {NULL, many_done, many_failed};
    left = N;
    for (size_t i = 0; i < N; i++) {
        CHECK_INT(rlm_chat_start(model, &request, &events, &chats[i], &chats[i], NULL), 0);
    }
    rlm_loop_run(loop);
    CHECK_INT(left, 0);
    rlm_loop_free(loop);
}
