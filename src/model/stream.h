/* A reply under way: what the decoders of the dialects fill, event by event.
 *
 * The text, the native tool calls, the usage and how it ended; an error that the server reports
 * inside a stream (or inside a body of status 200) is kept as a refusal.
 */
#pragma once

#include "base/json.h"
#include "base/vec.h"
#include "model/refusal.h"

enum {
    RLM_STREAM_MAX_TEXT = 64 * 1024 * 1024,
    RLM_STREAM_MAX_TOOL_CALLS = 128,
};

struct rlm_tool_call {
    int64_t index; /* the server's */
    struct rlm_buf name;
    struct rlm_buf arguments; /* JSON text, in pieces */
};

struct rlm_stream {
    struct rlm_buf text;
    RLM_VEC(struct rlm_tool_call) tool_calls;
    struct rlm_usage usage; /* calls and cost are not filled */
    bool usage_known;
    int64_t cache_write_tokens;
    uint64_t received_bytes; /* of text, tool calls and reasoning */
    char finish_reason[48];
    bool finished; /* a finish reason came */
    bool over;     /* the server said that nothing follows */
    bool refused;  /* `refusal` is set, the stream is worth nothing */
    struct rlm_refusal refusal;
    /* Called for each piece; text is empty for reasoning and tool calls. NULL: nobody listens. */
    void (*piece)(void *arg, rlm_str text);
    void *arg;
};

void rlm_stream_init(struct rlm_stream *s);
void rlm_stream_deinit(struct rlm_stream *s);

/* What decoders call. Empty pieces are ignored. 0, RLM_E_LIMIT or RLM_E_NOMEM. */
int rlm_stream_text(struct rlm_stream *s, rlm_str text, rlm_error **err);
void rlm_stream_reasoning(struct rlm_stream *s, rlm_str text);
int rlm_stream_tool(
    struct rlm_stream *s, int64_t index, rlm_str name, rlm_str arguments, rlm_error **err);
void rlm_stream_finish(struct rlm_stream *s, rlm_str reason);

/* The code of the first tool call that carries some, into `ret_code` (appended): a string member
 * "code", "input" or "python" of the arguments, or, for a function named python, repl or execute,
 * arguments that are no JSON object, as they stand. Nothing is appended when there is none. */
int rlm_stream_tool_code(const struct rlm_stream *s, struct rlm_buf *ret_code, rlm_error **err);
