#include "chat.h"

static rlm_loop *loop;
static rlm_model *model;

static void open_script(const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/replies.txt", harness_directory());
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
    rlm_error *err = NULL;
    CHECK_INT(rlm_loop_new(&loop, &err), 0);
    CHECK_INT(rlm_model_new_scripted(loop, path, &model, &err), 0);
}

static void close_script(struct chat_result *r)
{
    if (r) {
        chat_result_free(r);
    }
    rlm_model_free(model);
    rlm_loop_free(loop);
}

TEST(a_reply_is_streamed_and_counted)
{
    open_script("@reply agent=root turn=1 finish=length\nHello, caf\xc3\xa9 and more text\n");
    struct chat_result r = chat_run(loop, model, "root", 1, "question", (struct chat_result){0});
    CHECK_INT(r.ends, 1);
    CHECK(!r.failed);
    CHECK_TEXT(r.text, "Hello, caf\xc3\xa9 and more text");
    CHECK_TEXT(r.streamed.ptr, r.text);
    CHECK(r.deltas > 1 && r.deltas <= 4);
    CHECK_INT(r.pieces, r.deltas);
    CHECK_TEXT(r.finish, "length");
    CHECK_INT(r.reply.sent_bytes, 24);
    CHECK_INT(r.reply.received_bytes, 26);
    CHECK(r.reply.usage_known);
    CHECK_INT(r.reply.usage.calls, 1);
    CHECK_INT(r.reply.usage.input_tokens, 6);
    CHECK_INT(r.reply.usage.output_tokens, 6);
    CHECK_INT(r.reply.usage.cost_nano, 0);
    CHECK(rlm_model_has_price(model));
    close_script(&r);
}

TEST(pieces_never_split_a_character)
{
    open_script("@reply\n\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80\n");
    struct chat_result r = chat_run(loop, model, "a", 1, "q", (struct chat_result){.cut_at = 1});
    CHECK_TEXT(r.finish, "cut");
    CHECK(strlen(r.text) % 4 == 0 && strlen(r.text) < 12);
    close_script(&r);
}

TEST(an_empty_reply_is_a_reply)
{
    open_script("@reply\n");
    struct chat_result r = chat_run(loop, model, "a", 1, "q", (struct chat_result){0});
    CHECK(!r.failed);
    CHECK_TEXT(r.text, "");
    CHECK_TEXT(r.finish, "stop");
    close_script(&r);
}

TEST(no_fitting_reply_is_final)
{
    open_script("@reply agent=root\nx\n");
    struct chat_result r = chat_run(loop, model, "root.kid", 3, "q", (struct chat_result){0});
    CHECK(r.failed && !r.failure.retry);
    CHECK_INT(r.code, RLM_E_NOT_FOUND);
    CHECK_CONTAINS(r.message, "replies.txt");
    CHECK_CONTAINS(r.message, "agent \"root.kid\" at turn 3");
    close_script(&r);
}

static void fails(const char *attributes, int code, int status, bool retry, uint64_t received)
{
    char text[200];
    snprintf(text, sizeof text, "@reply %s\n01234567\n", attributes);
    open_script(text);
    struct chat_result r = chat_run(loop, model, "root", 1, "q", (struct chat_result){0});
    CHECK(r.failed);
    CHECK_INT(r.ends, 1);
    CHECK_INT(r.code, code);
    CHECK_INT(r.failure.http_status, status);
    CHECK_INT(r.failure.retry, retry);
    CHECK_INT(r.failure.received_bytes, received);
    CHECK_INT(r.failure.usage.calls, 1);
    CHECK_CONTAINS(r.message, "line 1");
    if (code == RLM_E_RATE_LIMIT) {
        CHECK_INT(r.failure.retry_after_ms, 2000);
    } else {
        CHECK_INT(r.failure.retry_after_ms, -1);
    }
    CHECK_INT(r.failure.context_tokens, code == RLM_E_CONTEXT ? 512 : 0);
    close_script(&r);
}

TEST(faults_are_played)
{
    fails("error=429 retry_after=2s", RLM_E_RATE_LIMIT, 429, true, 0);
    fails("error=500", RLM_E_SERVER, 500, true, 0);
    fails("error=401", RLM_E_AUTH, 401, false, 0);
    fails("error=cut", RLM_E_UNREACHABLE, 0, true, 4);
    fails("error=stall delay=1ms", RLM_E_TIMEOUT, 0, true, 4);
    fails("error=context context_tokens=512", RLM_E_CONTEXT, 400, false, 0);
}

TEST(a_delay_delays_and_can_be_cut)
{
    open_script("@reply turn=1 delay=20ms\nx\n@reply delay=1m\ny\n");
    uint64_t before_us = rlm_now_us();
    struct chat_result r = chat_run(loop, model, "a", 1, "q", (struct chat_result){0});
    CHECK(rlm_now_us() - before_us >= 19000);
    CHECK_TEXT(r.text, "x");
    chat_result_free(&r);

    struct rlm_message message = {RLM_USER, RLM_STR("q"), false};
    struct rlm_chat_request request = {&message, 1, 10, "a", 2, 0};
    r = (struct chat_result){0};
    chat_begin(loop, model, &request, &r);
    rlm_chat_cut(r.chat);
    rlm_chat_cut(r.chat);
    CHECK_INT(r.ends, 0);
    rlm_loop_run(loop);
    CHECK_INT(r.ends, 1);
    CHECK_TEXT(r.finish, "cut");
    CHECK_TEXT(r.text, "");
    CHECK(!r.reply.usage_known);
    close_script(&r);
}

TEST(a_chat_can_be_freed_at_any_time)
{
    open_script("@reply\n0123456789\n");
    struct chat_result r = chat_run(loop, model, "a", 1, "q", (struct chat_result){.free_at = 2});
    CHECK_INT(r.ends, 0);
    CHECK_INT(r.deltas, 2);
    chat_result_free(&r);
    /* Cut and freed in the same delta, and freed before anything came. */
    r = chat_run(loop, model, "a", 1, "q", (struct chat_result){.cut_at = 1, .free_at = 1});
    CHECK_INT(r.ends, 0);
    chat_result_free(&r);
    struct rlm_message message = {RLM_USER, RLM_STR("q"), false};
    struct rlm_chat_request request = {&message, 1, 10, "a", 2, 0};
    r = (struct chat_result){0};
    chat_begin(loop, model, &request, &r);
    rlm_chat_free(r.chat);
    rlm_loop_run(loop);
    CHECK_INT(r.ends + r.deltas, 0);
    close_script(&r);
}

static void model_freed(void *arg, const struct rlm_chat_reply *reply)
{
    rlm_chat **chat = arg;
    rlm_chat_free(*chat);
    rlm_model_free(model);
    model = NULL;
    CHECK_STR(reply->text, "x"); /* still readable until we return */
}

TEST(the_model_may_go_with_its_last_chat)
{
    open_script("@reply\nx\n");
    struct rlm_message message = {RLM_USER, RLM_STR("q"), false};
    struct rlm_chat_request request = {&message, 1, 10, "a", 2, 0};
    rlm_chat *chat = NULL;
    struct rlm_chat_events events = {NULL, model_freed, NULL};
    CHECK_INT(rlm_chat_start(model, &request, &events, &chat, &chat, NULL), 0);
    rlm_loop_run(loop);
    CHECK(model == NULL);
    close_script(NULL);
}

TEST(a_missing_file_is_not_found)
{
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    CHECK_INT(rlm_model_new_scripted(loop, "/nowhere/replies", &model, &err), RLM_E_NOT_FOUND);
    CHECK_CONTAINS(rlm_error_message(err), "/nowhere/replies");
    rlm_loop_free(loop);
}

TEST(parse_errors_name_the_file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/bad.txt", harness_directory());
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("\n@reply turn=z\n", f) >= 0 && fclose(f) == 0);
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    CHECK_INT(rlm_model_new_scripted(loop, path, &model, &err), RLM_E_PARSE);
    CHECK_CONTAINS(rlm_error_message(err), "bad.txt\": line 2");
    rlm_loop_free(loop);
}

TEST(models_of_one_script_share_their_back_off)
{
    open_script("@reply\nx\n");
    CHECK_CONTAINS(rlm_model_address(model), "script:/");
    rlm_model *second = NULL;
    CHECK_INT(rlm_model_new_scripted(loop, rlm_model_address(model) + 7, &second, NULL), 0);
    CHECK(rlm_model_backoff(model) == rlm_model_backoff(second));
    rlm_model_free(second);
    close_script(NULL);
}

static void checked(void *arg, const rlm_error *problem)
{
    *(int *)arg = problem ? -1 : 1;
    rlm_loop_stop(loop);
}

TEST(a_check_is_always_fine)
{
    open_script("@reply\nx\n");
    int result = 0;
    CHECK_INT(rlm_model_check(model, checked, &result, NULL), 0);
    CHECK_INT(result, 0);
    rlm_loop_run(loop);
    CHECK_INT(result, 1);
    /* One that is under way when the model goes never comes. */
    result = 0;
    CHECK_INT(rlm_model_check(model, checked, &result, NULL), 0);
    close_script(NULL);
    CHECK_INT(result, 0);
}
