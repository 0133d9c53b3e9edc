#include "chat.h"

/* A program that answers when the test says so. */
static struct program {
    rlm_model_call *call; /* not answered yet */
    char messages[200];
    int max_output_tokens, turn;
    char agent[20];
    int cancelled;
    bool answers_cancel;
    void (*at_once)(struct program *p);
} program;

static rlm_loop *loop;
static rlm_model *model;

static void on_cancel(void *arg)
{
    struct program *p = arg;
    p->cancelled++;
    if (p->answers_cancel) {
        rlm_model_call_fail(p->call, RLM_E_CANCELED, "given up");
        p->call = NULL;
    }
}

static void on_chat(void *arg, rlm_model_call *call, const struct rlm_model_request *request)
{
    struct program *p = arg;
    p->call = call;
    p->messages[0] = '\0';
    for (size_t i = 0; i < request->n_messages; i++) {
        size_t len = strlen(p->messages);
        snprintf(p->messages + len, sizeof p->messages - len, "%s: %.*s; ",
                 request->messages[i].role, RLM_FMT(request->messages[i].text));
    }
    p->max_output_tokens = request->max_output_tokens;
    p->turn = request->turn;
    snprintf(p->agent, sizeof p->agent, "%s", request->agent_id);
    rlm_model_call_on_cancel(call, on_cancel, p);
    if (p->at_once) {
        p->at_once(p);
    }
}

static void open_model(void)
{
    struct rlm_custom_model_options o = RLM_CUSTOM_MODEL_OPTIONS_INIT;
    rlm_error *err = NULL;
    o.name = "mine";
    o.chat = on_chat;
    o.arg = &program;
    CHECK_INT(rlm_loop_new(&loop, &err), 0);
    CHECK_INT(rlm_model_new_custom(loop, &o, &model, &err), 0);
}

static void close_model(struct chat_result *r)
{
    chat_result_free(r);
    rlm_model_free(model);
    rlm_loop_free(loop);
}

static void start(struct chat_result *r)
{
    struct rlm_message messages[] = {{RLM_SYSTEM, RLM_STR("Be careful."), false},
                                     {RLM_USER, RLM_STR("one"), false},
                                     {RLM_ASSISTANT, RLM_STR("two"), true},
                                     {RLM_USER, RLM_STR("three"), false}};
    struct rlm_chat_request request = {messages, 4, 100, "root.a", 2, 0};
    chat_begin(loop, model, &request, r);
}

static void reply(struct program *p, struct rlm_model_reply reply)
{
    rlm_model_call_return(rlm_steal(&p->call), &reply);
}

TEST(a_request_is_handed_over_and_answered_later)
{
    struct chat_result r = {0};
    open_model();
    start(&r);
    CHECK_TEXT(program.messages, "system: Be careful.; user: one; assistant: two; user: three; ");
    CHECK_INT(program.max_output_tokens, 100);
    CHECK_INT(program.turn, 2);
    CHECK_TEXT(program.agent, "root.a");
    reply(&program, (struct rlm_model_reply){.text = RLM_STR("an answer"),
                                             .finish_reason = "length",
                                             .input_tokens = 30,
                                             .cached_tokens = 10,
                                             .output_tokens = 4});
    CHECK_INT(r.ends, 0); /* from the loop, never inside the answer */
    rlm_loop_run(loop);
    CHECK_INT(r.ends, 1);
    CHECK_TEXT(r.text, "an answer");
    CHECK_TEXT(r.finish, "length");
    CHECK_INT(r.reply.sent_bytes, 22);
    CHECK_INT(r.reply.received_bytes, 9);
    CHECK(r.reply.usage_known);
    CHECK_INT(r.reply.usage.input_tokens, 30);
    CHECK_INT(r.reply.usage.cached_tokens, 10);
    CHECK_INT(r.reply.usage.output_tokens, 4);
    CHECK_INT(program.cancelled, 0);
    close_model(&r);
}

static void stream_and_return(struct program *p)
{
    CHECK(rlm_model_call_delta(p->call, RLM_STR("ab")));
    reply(p, (struct rlm_model_reply){.input_tokens = -1, .output_tokens = -1});
}

TEST(an_answer_at_once_completes_on_the_loop)
{
    struct chat_result r = {0};
    open_model();
    program.at_once = stream_and_return;
    start(&r);
    CHECK_INT(r.ends + r.deltas, 0);
    rlm_loop_run(loop);
    CHECK_TEXT(r.text, "ab");
    CHECK_TEXT(r.finish, "stop");
    CHECK(!r.reply.usage_known);
    close_model(&r);
}

TEST(pieces_are_shown_as_they_come_and_are_the_reply)
{
    struct chat_result r = {0};
    open_model();
    start(&r);
    CHECK(rlm_model_call_delta(program.call, RLM_STR("one ")));
    CHECK(rlm_model_call_delta(program.call, RLM_STR("two")));
    CHECK_INT(r.deltas, 2);
    CHECK_TEXT(r.streamed.ptr, "one two");
    reply(&program, (struct rlm_model_reply){.input_tokens = 1, .output_tokens = 2});
    rlm_loop_run(loop);
    CHECK_TEXT(r.text, "one two");
    CHECK_INT(r.reply.received_bytes, 7);
    close_model(&r);
}

TEST(a_cut_stream_is_told_and_what_came_is_the_reply)
{
    struct chat_result r = {.cut_at = 1};
    open_model();
    start(&r);
    CHECK(!rlm_model_call_delta(program.call, RLM_STR("one ")));
    CHECK_INT(program.cancelled, 1);
    CHECK(!rlm_model_call_delta(program.call, RLM_STR("two")));
    reply(&program, (struct rlm_model_reply){.text = RLM_STR("late"), .input_tokens = 1});
    rlm_loop_run(loop);
    CHECK_TEXT(r.text, "one ");
    CHECK_TEXT(r.finish, "cut");
    CHECK(!r.reply.usage_known);
    close_model(&r);
}

TEST(a_stream_that_is_cut_may_be_answered_by_whoever_hears_of_that)
{
    struct chat_result r = {.cut_at = 1};
    open_model();
    program.answers_cancel = true;
    start(&r);
    CHECK(!rlm_model_call_delta(program.call, RLM_STR("one ")));
    CHECK_INT(program.cancelled, 1);
    CHECK(!program.call);
    rlm_loop_run(loop);
    CHECK_TEXT(r.text, "one ");
    CHECK_TEXT(r.finish, "cut");
    close_model(&r);
}

TEST(a_call_that_is_given_up_may_be_answered_at_once_or_later)
{
    struct chat_result r = {.free_at = 1}, second = {0};
    open_model();
    start(&r);
    CHECK(!rlm_model_call_delta(program.call, RLM_STR("one")));
    CHECK_INT(program.cancelled, 1);
    reply(&program, (struct rlm_model_reply){.text = RLM_STR("late")});
    CHECK_INT(r.ends, 0);
    program.answers_cancel = true;
    start(&second);
    rlm_chat_free(second.chat);
    CHECK(program.call == NULL);
    CHECK_INT(second.ends, 0);
    chat_result_free(&second);
    close_model(&r);
}

/* The leak checker of a sanitized build looks. */
TEST(a_call_that_is_never_answered_ends_with_the_model)
{
    struct chat_result first = {0}, r = {0};
    open_model();
    start(&first);
    rlm_chat_free(first.chat);
    start(&r);
    rlm_chat_free(r.chat);
    CHECK_INT(program.cancelled, 2);
    chat_result_free(&first);
    close_model(&r);
}

TEST(failures_say_whether_to_try_again)
{
    static const struct {
        enum rlm_code code;
        bool retry;
    } kinds[] = {{RLM_E_RATE_LIMIT, true}, {RLM_E_UNREACHABLE, true}, {RLM_E_TIMEOUT, true},
                 {RLM_E_SERVER, true},     {RLM_E_CONTEXT, false},    {RLM_E_INVAL, false}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct chat_result r = {0};
        open_model();
        start(&r);
        rlm_model_call_fail(rlm_steal(&program.call), kinds[i].code, "it said no");
        rlm_loop_run(loop);
        CHECK(r.failed);
        CHECK_INT(r.code, kinds[i].code);
        CHECK(r.failure.retry == kinds[i].retry);
        CHECK_TEXT(r.message, "it said no");
        close_model(&r);
    }
}

TEST(a_model_needs_a_name_and_a_callback)
{
    struct rlm_custom_model_options o = RLM_CUSTOM_MODEL_OPTIONS_INIT;
    rlm_error *err = NULL;
    CHECK_INT(rlm_loop_new(&loop, &err), 0);
    CHECK_INT(rlm_model_new_custom(loop, &o, &model, &err), RLM_E_INVAL);
    CHECK_TEXT(rlm_error_message(err), "a custom model needs a name and a chat callback");
    rlm_error_free(err);
    rlm_loop_free(loop);
}

TEST(a_chat_that_takes_too_long_fails_and_is_given_up)
{
    struct rlm_message message = {RLM_USER, RLM_STR("one"), false};
    struct rlm_chat_request request = {&message, 1, 10, "root", 1, 2};
    struct chat_result r = {0};
    open_model();
    chat_begin(loop, model, &request, &r);
    CHECK(rlm_model_call_delta(program.call, RLM_STR("a beginning")));
    rlm_loop_run(loop);
    CHECK(r.failed);
    CHECK_INT(r.ends, 1);
    CHECK_INT(r.code, RLM_E_TIMEOUT);
    CHECK(!r.failure.retry);
    CHECK_TEXT(r.message, "the model has not replied within 0.002 s");
    CHECK_INT(r.failure.received_bytes, 11);
    CHECK_INT(program.cancelled, 1);
    reply(&program, (struct rlm_model_reply){.text = RLM_STR("too late")});
    close_model(&r);
}

TEST(a_chat_that_ends_in_time_has_no_timer_left)
{
    struct rlm_message message = {RLM_USER, RLM_STR("one"), false};
    struct rlm_chat_request request = {&message, 1, 10, "root", 1, 60000};
    struct chat_result r = {0};
    open_model();
    chat_begin(loop, model, &request, &r);
    reply(&program, (struct rlm_model_reply){.text = RLM_STR("in time")});
    rlm_loop_run(loop);
    CHECK(!r.failed);
    CHECK_TEXT(r.text, "in time");
    close_model(&r);
}
