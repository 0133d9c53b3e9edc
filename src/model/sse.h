/* Server-sent events: an incremental decoder.
 *
 * Bytes go in as they come; the events that come out do not depend on where the chunks were split.
 * Lines end in LF, CR or CRLF; a byte order mark in front is skipped; comments, `id` and `retry` are
 * ignored. A field `error`, which some servers send in the place of `data`, is data of an event
 * named "error". Lines and events have a maximum.
 */
#pragma once

#include "base/buf.h"

struct rlm_sse {
    struct rlm_buf line; /* a line whose end has not come */
    struct rlm_buf data;
    struct rlm_buf event; /* its name; empty: "message" */
    bool has_data;
    bool skip_lf; /* the last chunk ended in CR */
    bool begun;   /* the first line is over */
};

/* An event. A result that is not 0 ends the feeding and is returned by it. The texts are borrowed. */
typedef int (*rlm_sse_handler)(void *arg, rlm_str event, rlm_str data, rlm_error **err);

void rlm_sse_init(struct rlm_sse *s, size_t max_event_bytes);
void rlm_sse_deinit(struct rlm_sse *s);
/* 0, RLM_E_LIMIT (a line or an event is too long), RLM_E_NOMEM, or what the handler returned; after
 * that, only deinit is allowed. */
int rlm_sse_feed(
    struct rlm_sse *s, rlm_str chunk, rlm_sse_handler handler, void *arg, rlm_error **err);
/* The stream is over: an event that lacks only its closing blank line, as careless servers leave it,
 * is handed on; its last line may be cut. */
int rlm_sse_end(struct rlm_sse *s, rlm_sse_handler handler, void *arg, rlm_error **err);
