/* One chat with a model behind an HTTP API (for remote_new.c, which makes the model). */
#pragma once

#include "model/remote.h"
#include "model/sse.h"

struct remote_chat {
    rlm_chat base;
    rlm_http_call *call;
    bool sent;      /* by an earlier call of it, too */
    rlm_defer *cut; /* completes a chat that was cut */
    struct rlm_buf body;
    size_t messages_len; /* of the body; the options follow and may be written anew */
    int max_output_tokens;
    struct rlm_stream stream;
    struct rlm_sse sse;
    struct rlm_buf answer; /* of an answer that is no stream */
    enum { FORM_UNKNOWN, FORM_EVENTS, FORM_WHOLE } form;
    rlm_error *problem;   /* what was wrong with the stream */
    uint64_t progress_ms; /* of the last piece; a stream of keep-alives makes none */
    uint64_t progress_pieces;
    /* What this attempt sent, and what it already gave up. */
    bool sent_completion_tokens, sent_stream_options, sent_temperature;
    bool changed_tokens, changed_stream_options, changed_temperature;
};

int rlm_remote_chat_start(rlm_model *m,
                          const struct rlm_chat_request *request,
                          rlm_chat *chat,
                          rlm_error **err);
bool rlm_remote_chat_sent(const rlm_chat *chat);
void rlm_remote_chat_cut(rlm_chat *chat);
void rlm_remote_chat_stop(rlm_chat *chat);
