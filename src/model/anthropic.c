/* The dialect of Anthropic's /v1/messages. */
#include "base/error.h"
#include "model/dialect.h"

enum { MAX_CACHE_MARKS = 4 };

/* ---- requests ---- */

static void write_block(struct rlm_json_writer *w, const struct rlm_message *message, bool mark)
{
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "type", "text");
    rlm_json_key(w, "text");
    rlm_dialect_put_text(w, message->text);
    if (mark) {
        rlm_json_key(w, "cache_control");
        rlm_json_begin(w, '{');
        rlm_json_member_text(w, "type", "ephemeral");
        rlm_json_end(w, '}');
    }
    rlm_json_end(w, '}');
}

/* The provider takes four marks; the last ones cover the longest prefixes. */
static bool is_marked(const struct rlm_chat_request *request, size_t index)
{
    size_t later = 0;
    for (size_t i = index + 1; i < request->n_messages; i++) {
        later += request->messages[i].cache;
    }
    return request->messages[index].cache && later < MAX_CACHE_MARKS;
}

static void
write_role(struct rlm_json_writer *w, const struct rlm_chat_request *request, size_t index)
{
    const struct rlm_message *message = &request->messages[index];
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "role", message->role == RLM_ASSISTANT ? "assistant" : "user");
    rlm_json_key(w, "content");
    if (is_marked(request, index)) {
        rlm_json_begin(w, '[');
        write_block(w, message, true);
        rlm_json_end(w, ']');
    } else {
        rlm_dialect_put_text(w, message->text);
    }
    rlm_json_end(w, '}');
}

static void write_messages(struct rlm_json_writer *w,
                           const struct rlm_chat_request *request,
                           const rlm_json *extra)
{
    size_t n_system = 0;
    while (n_system < request->n_messages && request->messages[n_system].role == RLM_SYSTEM) {
        n_system++;
    }
    if (n_system && !rlm_json_get(extra, "system")) {
        rlm_json_key(w, "system");
        rlm_json_begin(w, '[');
        for (size_t i = 0; i < n_system; i++) {
            write_block(w, &request->messages[i], is_marked(request, i));
        }
        rlm_json_end(w, ']');
    }
    if (rlm_json_get(extra, "messages")) {
        return;
    }
    rlm_json_key(w, "messages");
    rlm_json_begin(w, '[');
    for (size_t i = n_system; i < request->n_messages; i++) {
        write_role(w, request, i);
    }
    rlm_json_end(w, ']');
}

static void write_options(struct rlm_json_writer *w, const struct rlm_dialect_options *o)
{
    const rlm_json *extra = o->extra;
    rlm_dialect_text(w, "model", rlm_str_of(o->model), extra);
    if (!rlm_json_get(extra, "max_tokens")) {
        rlm_json_member_int(w, "max_tokens", o->max_output_tokens);
    }
    if (o->temperature >= 0 && !rlm_json_get(extra, "temperature")) {
        rlm_json_member_double(w, "temperature", o->temperature);
    }
    if (o->stream && !rlm_json_get(extra, "stream")) {
        rlm_json_member_bool(w, "stream", true);
    }
    rlm_dialect_extra(w, extra);
}

/* ---- replies ---- */

/* Counts come in message_start and, growing, in message_delta; a member that is absent keeps what
 * was said before. */
static void take_usage(struct rlm_stream *s, const rlm_json *usage)
{
    if (!rlm_json_is(usage, RLM_JSON_OBJECT)) {
        return;
    }
    int64_t old_plain = s->usage.input_tokens - s->usage.cached_tokens - s->cache_write_tokens;
    int64_t plain = rlm_json_int(rlm_json_get(usage, "input_tokens"), old_plain);
    int64_t cached =
        rlm_json_int(rlm_json_get(usage, "cache_read_input_tokens"), s->usage.cached_tokens);
    int64_t written =
        rlm_json_int(rlm_json_get(usage, "cache_creation_input_tokens"), s->cache_write_tokens);
    int64_t output = rlm_json_int(rlm_json_get(usage, "output_tokens"), s->usage.output_tokens);
    const int64_t most = INT64_MAX / 4;
    if (plain < 0 || cached < 0 || written < 0 || output < 0 || plain > most || cached > most ||
        written > most) {
        return;
    }
    s->usage.input_tokens = plain + cached + written;
    s->usage.cached_tokens = cached;
    s->cache_write_tokens = written;
    s->usage.output_tokens = output;
}

static int take_block(struct rlm_stream *s, int64_t index, const rlm_json *block, rlm_error **err)
{
    rlm_str type = rlm_json_text(rlm_json_get(block, "type"), RLM_STR_NONE);
    if (rlm_str_is(type, "text")) {
        return rlm_stream_text(s, rlm_json_text(rlm_json_get(block, "text"), RLM_STR_NONE), err);
    }
    if (rlm_str_is(type, "thinking")) {
        rlm_stream_reasoning(s, rlm_json_text(rlm_json_get(block, "thinking"), RLM_STR_NONE));
        return 0;
    }
    if (!rlm_str_is(type, "tool_use")) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf input = RLM_BUF(RLM_STREAM_MAX_TEXT);
    const rlm_json *given = rlm_json_get(block, "input");
    if (rlm_json_is(given, RLM_JSON_OBJECT) && given->count) { /* streams start with {} */
        struct rlm_json_writer w = {.buf = &input};
        rlm_json_put(&w, given);
    }
    int r = rlm_buf_check(&input, err);
    rlm_str name = rlm_json_text(rlm_json_get(block, "name"), RLM_STR_NONE);
    return r < 0 ? r : rlm_stream_tool(s, index, name, rlm_buf_str(&input), err);
}

static int take_delta(struct rlm_stream *s, int64_t index, const rlm_json *delta, rlm_error **err)
{
    rlm_str type = rlm_json_text(rlm_json_get(delta, "type"), RLM_STR_NONE);
    if (rlm_str_is(type, "text_delta")) {
        return rlm_stream_text(s, rlm_json_text(rlm_json_get(delta, "text"), RLM_STR_NONE), err);
    }
    if (rlm_str_is(type, "thinking_delta")) {
        rlm_stream_reasoning(s, rlm_json_text(rlm_json_get(delta, "thinking"), RLM_STR_NONE));
    } else if (rlm_str_is(type, "input_json_delta")) {
        rlm_str part = rlm_json_text(rlm_json_get(delta, "partial_json"), RLM_STR_NONE);
        return rlm_stream_tool(s, index, RLM_STR_NONE, part, err);
    }
    return 0;
}

static void take_stop_reason(struct rlm_stream *s, const rlm_json *holder)
{
    rlm_str reason = rlm_json_text(rlm_json_get(holder, "stop_reason"), RLM_STR_NONE);
    if (reason.len) {
        rlm_stream_finish(s, reason);
    }
}

static int take_event(struct rlm_stream *s, const rlm_json *object, rlm_error **err)
{
    rlm_str type = rlm_json_text(rlm_json_get(object, "type"), RLM_STR_NONE);
    int64_t index = rlm_json_int(rlm_json_get(object, "index"), 0);
    if (rlm_str_is(type, "content_block_delta")) {
        return take_delta(s, index, rlm_json_get(object, "delta"), err);
    }
    if (rlm_str_is(type, "content_block_start")) {
        return take_block(s, index, rlm_json_get(object, "content_block"), err);
    }
    if (rlm_str_is(type, "message_start")) {
        take_usage(s, rlm_json_get(rlm_json_get(object, "message"), "usage"));
    } else if (rlm_str_is(type, "message_delta")) {
        const rlm_json *usage = rlm_json_get(object, "usage");
        take_usage(s, usage);
        /* Only now is the count of the output the final one. */
        s->usage_known = rlm_json_int(rlm_json_get(usage, "output_tokens"), -1) >= 0 &&
                         s->usage.input_tokens > 0;
        take_stop_reason(s, rlm_json_get(object, "delta"));
    } else if (rlm_str_is(type, "message_stop")) {
        s->over = true;
    }
    return 0; /* ping, content_block_stop, and what may come in later versions */
}

static int take_whole(struct rlm_stream *s, const rlm_json *object, rlm_error **err)
{
    const rlm_json *content = rlm_json_get(object, "content");
    if (!rlm_json_is(content, RLM_JSON_ARRAY)) {
        return rlm_error_set(err, RLM_E_SERVER, "the server's answer has no array \"content\"");
    }
    for (uint32_t i = 0; i < content->count; i++) {
        int r = take_block(s, i, rlm_json_at(content, i), err);
        if (r < 0) {
            return r;
        }
    }
    const rlm_json *usage = rlm_json_get(object, "usage");
    take_usage(s, usage);
    s->usage_known = rlm_json_int(rlm_json_get(usage, "output_tokens"), -1) >= 0 &&
                     rlm_json_int(rlm_json_get(usage, "input_tokens"), -1) >= 0;
    take_stop_reason(s, object);
    return 0;
}

static const char *const suffixes[] = {"/v1/messages", "/messages", "/v1", NULL};
static const char *const headers[] = {"anthropic-version: 2023-06-01", NULL};

const struct rlm_dialect rlm_dialect_anthropic = {
    .default_base_url = "https://api.anthropic.com",
    .chat_path = "/v1/messages",
    .models_path = "/v1/models",
    .base_suffixes = suffixes,
    .key_header = "x-api-key: ",
    .headers = headers,
    .key_variable = "ANTHROPIC_API_KEY",
    .write_messages = write_messages,
    .write_options = write_options,
    .take_event = take_event,
    .take_whole = take_whole,
};
