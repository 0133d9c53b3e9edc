/* Models that are asked one at a time: what is under way, through the public header. */
#include "whole_run.h"

#include "base/loop.h"

enum { PROMPTS = 5 };

static struct program {
    rlm_model_call *calls[PROMPTS];
    int under_way, most, asked;
    rlm_defer *answer;
} program;

static void answer(void *arg)
{
    struct program *p = arg;
    while (p->under_way) {
        struct rlm_model_reply reply = {
            .text = RLM_STR("a"), .input_tokens = 5, .output_tokens = 1};
        rlm_model_call_return(p->calls[--p->under_way], &reply);
    }
}

static void on_chat(void *arg, rlm_model_call *call, const struct rlm_model_request *request)
{
    struct program *p = arg;
    (void)request;
    p->asked++;
    p->calls[p->under_way++] = call;
    p->most = p->under_way > p->most ? p->under_way : p->most;
    rlm_defer_schedule(p->answer);
}

static void run_with(bool one_at_a_time)
{
    struct setup s = setup("@reply\n```repl\ndone(''.join(await llm_query_batched(['p'] * 5, "
                           "model='other')))\n```\n",
                           defaults);
    struct rlm_custom_model_options o = RLM_CUSTOM_MODEL_OPTIONS_INIT;
    rlm_model *other;
    program = (struct program){.answer = rlm_defer_new(s.loop, answer, &program)};
    o.name = "other";
    o.chat = on_chat;
    o.arg = &program;
    o.one_at_a_time = one_at_a_time;
    CHECK_INT(rlm_model_new_custom(s.loop, &o, &other, NULL), 0);
    CHECK_INT(rlm_flow_add_model(s.flow, "other", other, NULL), 0);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "aaaaa");
    CHECK_INT(program.asked, PROMPTS);
    rlm_defer_free(program.answer);
    rlm_run_free(s.run);
    s.run = NULL;
    rlm_flow_free(s.flow);
    s.flow = NULL;
    rlm_model_free(other);
    teardown(&s);
}

TEST(a_model_is_asked_as_often_as_workers_allow)
{
    run_with(false);
    CHECK_INT(program.most, PROMPTS);
}

TEST(a_model_that_is_asked_one_at_a_time_has_one_call)
{
    run_with(true);
    CHECK_INT(program.most, 1);
}
