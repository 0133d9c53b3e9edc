/* Runs one chat on a loop of the test and keeps what came. */
#pragma once

#include "base/alloc.h"
#include "harness.h"
#include "model/model.h"

struct chat_result {
    rlm_loop *loop;
    rlm_chat *chat;
    int ends; /* done or failed, must be one */
    bool failed;
    int code;
    char *message;
    struct rlm_chat_failure failure; /* its error is gone */
    struct rlm_chat_reply reply;     /* its texts are gone, see below */
    char *text;
    char *tool_code;
    char *finish;
    int deltas;
    struct rlm_buf streamed;
    uint64_t pieces;
    /* What to do in the delta of this number (from 1); 0: nothing. */
    int cut_at, free_at;
};

static inline char *chat_copy(rlm_str s)
{
    char *copy = rlm_strndup(s.ptr ? s.ptr : "", s.len);
    CHECK(copy != NULL);
    return copy;
}

static inline void chat_delta(void *arg, rlm_str text, uint64_t pieces)
{
    struct chat_result *r = arg;
    CHECK(r->chat != NULL); /* never inside rlm_chat_start */
    r->deltas++;
    r->pieces = pieces;
    rlm_buf_add_str(&r->streamed, text);
    if (r->deltas == r->cut_at) {
        rlm_chat_cut(r->chat);
    }
    if (r->deltas == r->free_at) {
        rlm_chat_free(r->chat);
        r->chat = NULL;
        rlm_loop_stop(r->loop);
    }
}

static inline void chat_end(struct chat_result *r)
{
    CHECK(r->chat != NULL);
    r->ends++;
    rlm_chat_free(r->chat);
    r->chat = NULL;
    rlm_loop_stop(r->loop);
}

static inline void chat_done(void *arg, const struct rlm_chat_reply *reply)
{
    struct chat_result *r = arg;
    r->reply = *reply;
    r->text = chat_copy(reply->text);
    r->tool_code = chat_copy(reply->tool_code);
    r->finish = chat_copy(reply->finish_reason);
    chat_end(r);
}

static inline void chat_failed(void *arg, const struct rlm_chat_failure *failure)
{
    struct chat_result *r = arg;
    r->failed = true;
    r->failure = *failure;
    r->code = rlm_error_code(failure->error);
    r->message = chat_copy(rlm_str_of(rlm_error_message(failure->error)));
    chat_end(r);
}

static inline void chat_begin(rlm_loop *loop,
                              rlm_model *m,
                              const struct rlm_chat_request *request,
                              struct chat_result *r)
{
    static const struct rlm_chat_events events = {chat_delta, chat_done, chat_failed};
    rlm_error *err = NULL;
    rlm_chat *chat = NULL;
    r->loop = loop;
    r->streamed.max_bytes = 64 << 20;
    int code = rlm_chat_start(m, request, &events, r, &chat, &err);
    if (code < 0) {
        printf("# %s\n", rlm_error_message(err));
    }
    CHECK_INT(code, 0);
    r->chat = chat;
}

static inline struct chat_result chat_run(rlm_loop *loop,
                                          rlm_model *m,
                                          const char *agent,
                                          int turn,
                                          const char *query,
                                          struct chat_result r)
{
    struct rlm_message messages[] = {{RLM_SYSTEM, RLM_STR("You are careful."), false},
                                     {RLM_USER, rlm_str_of(query), false}};
    struct rlm_chat_request request = {messages, 2, 100, agent, turn, 0};
    chat_begin(loop, m, &request, &r);
    rlm_loop_run(loop);
    return r;
}

static inline void chat_result_free(struct chat_result *r)
{
    free(r->message);
    free(r->text);
    free(r->tool_code);
    free(r->finish);
    rlm_buf_deinit(&r->streamed);
}
