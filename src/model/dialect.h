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
    const char *last_event; /* the data of an event that is no JSON and ends a stream; NULL: none */
    /* The object of one event of a stream, and that of a whole answer. 0 or a negative code. */
    int (*take_event)(struct rlm_stream *s, const rlm_json *object, rlm_error **err);
    int (*take_whole)(struct rlm_stream *s, const rlm_json *object, rlm_error **err);
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

/* Takes one event of a stream. A text that cannot be understood is RLM_E_SERVER; an error that the
 * server reports is kept as the refusal of the stream. */
int rlm_dialect_event(
    const struct rlm_dialect *d, struct rlm_stream *s, rlm_str name, rlm_str data, rlm_error **err);
/* The same for the body of an answer that is no stream. */
int rlm_dialect_whole(const struct rlm_dialect *d,
                      struct rlm_stream *s,
                      rlm_str body,
                      rlm_error **err);
