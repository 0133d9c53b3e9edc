/* Dialects: how one HTTP API writes a request and a reply. Pure; remote.c does the talking.
 *
 * A request's body is written in two parts, so that a retry with other options need not encode the
 * messages again: first `{` and the messages, then the options and `}`.
 */
#pragma once

#include "model/model.h"
#include "model/stream.h"

struct rlm_dialect_options {
    const char *model;
    int max_output_tokens;
    double temperature; /* negative: not sent */
    const char *reasoning_effort;
    bool stream;
    bool stream_options;
    bool max_completion_tokens; /* the name of the field for max_output_tokens */
    const rlm_json *extra;      /* members merged last, or NULL */
};

struct rlm_dialect {
    const char *default_base_url;
    const char *chat_path; /* behind the base URL */
    const char *models_path;
    const char *const *base_suffixes; /* what a base URL may end in by mistake */
    const char *key_header;           /* "Name: " and what stands before the key */
    const char *const *headers;
    const char *key_variable; /* for advice */
    void (*write_messages)(struct rlm_json_writer *w,
                           const struct rlm_chat_request *request,
                           const rlm_json *extra);
    void (*write_options)(struct rlm_json_writer *w, const struct rlm_dialect_options *options);
    /* One event of a stream. A text that cannot be understood is RLM_E_SERVER. */
    int (*event)(struct rlm_stream *s, rlm_str name, rlm_str data, rlm_error **err);
    /* The whole body of an answer that is no stream. */
    int (*whole)(struct rlm_stream *s, rlm_str body, rlm_error **err);
};

extern const struct rlm_dialect rlm_dialect_openai;
extern const struct rlm_dialect rlm_dialect_anthropic;

/* Writes `"key":"text"` as strict UTF-8, unless `extra` has the member. */
void rlm_dialect_text(struct rlm_json_writer *w,
                      const char *key,
                      rlm_str text,
                      const rlm_json *extra);
void rlm_dialect_put_text(struct rlm_json_writer *w, rlm_str text);
/* Writes the members of `extra` (nothing when it is NULL). */
void rlm_dialect_extra(struct rlm_json_writer *w, const rlm_json *extra);
/* Parses a text of the server into the arena; what is no JSON object is RLM_E_SERVER. An `error`
 * member, or the object of an event named "error", is kept as the refusal of the stream: then the
 * result is 1. */
int rlm_dialect_parse(struct rlm_stream *s,
                      rlm_arena *a,
                      rlm_str event,
                      rlm_str data,
                      const rlm_json **ret_object,
                      rlm_error **err);
