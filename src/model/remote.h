/* Models behind an HTTP API: a dialect (how to write and read) over http.h (how to talk).
 *
 * What remote_new.c (making a model), remote_chat.c (its chats) and remote_check.c share; remote.c has
 * what they do alike.
 */
#pragma once

#include "base/vec.h"
#include "model/address.h"
#include "model/http.h"

struct remote_model {
    rlm_model base;
    const struct rlm_dialect *dialect;
    struct rlm_address address;
    RLM_VEC(char *) headers; /* NULL-terminated */
    RLM_VEC(char *) secrets; /* NULL-terminated: what no message may show */
    bool has_key;
    rlm_arena *arena; /* of `extra` */
    char *body_json;  /* that `extra` points into */
    const rlm_json *extra;
    char *proxy;
    char *ca_file;
    char *reasoning_effort;
    double temperature;
    bool stream;
    int max_output_tokens; /* 0: what the request says */
    int connect_timeout_ms, first_byte_timeout_ms, idle_timeout_ms;
    /* What the server was found to take; changed by its refusals. */
    bool max_completion_tokens;
    bool no_stream_options;
    bool no_temperature;
};

/* Fills in what requests of this model have in common. */
void rlm_remote_request(const struct remote_model *m,
                        const char *url,
                        struct rlm_http_request *request);
/* The refusal as an error: what happened, to what, and what to do. Not masked. */
void rlm_remote_explain(const struct remote_model *m,
                        const struct rlm_refusal *refusal,
                        rlm_error **err);
/* An error with the secrets masked in its text. Frees `take_error`. */
void rlm_remote_mask(const struct remote_model *m, rlm_error *take_error, rlm_error **err);

int rlm_remote_check(rlm_model *m, struct rlm_check *check, rlm_error **err);
void rlm_remote_check_stop(struct rlm_check *check);
