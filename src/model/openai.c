/* The dialect of /chat/completions, as OpenAI defined it and many servers speak it. */
#include "base/error.h"
#include "model/dialect.h"

/* ---- requests ---- */

static void write_messages(struct rlm_json_writer *w,
                           const struct rlm_chat_request *request,
                           const rlm_json *extra)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    if (rlm_json_get(extra, "messages")) {
        return;
    }
    rlm_json_key(w, "messages");
    rlm_json_begin(w, '[');
    for (size_t i = 0; i < request->n_messages; i++) {
        rlm_json_begin(w, '{');
        rlm_json_member_text(w, "role", roles[request->messages[i].role]);
        rlm_json_key(w, "content");
        rlm_dialect_put_text(w, request->messages[i].text);
        rlm_json_end(w, '}');
    }
    rlm_json_end(w, ']');
}

static void write_options(struct rlm_json_writer *w, const struct rlm_dialect_options *o)
{
    const rlm_json *extra = o->extra;
    rlm_dialect_text(w, "model", rlm_str_of(o->model), extra);
    /* A body of the user's that says either name says it for both. */
    if (!rlm_json_get(extra, "max_tokens") && !rlm_json_get(extra, "max_completion_tokens")) {
        rlm_json_member_int(w, o->max_completion_tokens ? "max_completion_tokens" : "max_tokens",
                            o->max_output_tokens);
    }
    if (o->temperature >= 0 && !rlm_json_get(extra, "temperature")) {
        rlm_json_member_double(w, "temperature", o->temperature);
    }
    if (o->reasoning_effort) {
        rlm_dialect_text(w, "reasoning_effort", rlm_str_of(o->reasoning_effort), extra);
    }
    bool stream = o->stream && !rlm_json_get(extra, "stream");
    if (stream) {
        rlm_json_member_bool(w, "stream", true);
    }
    if (stream && o->stream_options && !rlm_json_get(extra, "stream_options")) {
        rlm_json_key(w, "stream_options");
        rlm_json_begin(w, '{');
        rlm_json_member_bool(w, "include_usage", true);
        rlm_json_end(w, '}');
    }
    rlm_dialect_extra(w, extra);
}

/* ---- replies ---- */

static void take_usage(struct rlm_stream *s, const rlm_json *usage)
{
    if (!rlm_json_is(usage, RLM_JSON_OBJECT)) {
        return;
    }
    int64_t input = rlm_json_int(rlm_json_get(usage, "prompt_tokens"), -1);
    int64_t output = rlm_json_int(rlm_json_get(usage, "completion_tokens"), -1);
    if (input < 0 || output < 0) {
        return; /* half a usage is none: the caller's bound stands */
    }
    const rlm_json *details = rlm_json_get(usage, "prompt_tokens_details");
    s->usage.input_tokens = input;
    s->usage.output_tokens = output;
    int64_t cached = rlm_json_int(rlm_json_get(details, "cached_tokens"), 0);
    s->usage.cached_tokens = cached < 0 ? 0 : cached < input ? cached : input;
    s->usage_known = true;
}

/* Text as a string, or as an array of parts of which those of text count. */
static int take_content(struct rlm_stream *s, const rlm_json *content, rlm_error **err)
{
    if (rlm_json_is(content, RLM_JSON_STRING)) {
        return rlm_stream_text(s, content->text, err);
    }
    for (uint32_t i = 0; rlm_json_is(content, RLM_JSON_ARRAY) && i < content->count; i++) {
        const rlm_json *part = rlm_json_at(content, i);
        rlm_str type = rlm_json_text(rlm_json_get(part, "type"), RLM_STR("text"));
        rlm_str text = rlm_json_text(rlm_json_get(part, "text"), RLM_STR_NONE);
        if (rlm_str_is(type, "text") || rlm_str_is(type, "output_text")) {
            int r = rlm_stream_text(s, text, err);
            if (r < 0) {
                return r;
            }
        } else {
            rlm_stream_reasoning(s, text);
        }
    }
    return 0;
}

static int
take_function(struct rlm_stream *s, int64_t index, const rlm_json *function, rlm_error **err)
{
    rlm_str name = rlm_json_text(rlm_json_get(function, "name"), RLM_STR_NONE);
    const rlm_json *arguments = rlm_json_get(function, "arguments");
    if (rlm_json_is(arguments, RLM_JSON_OBJECT)) { /* some servers do not encode it twice */
        rlm_auto_buf struct rlm_buf text = RLM_BUF(RLM_STREAM_MAX_TEXT);
        struct rlm_json_writer w = {.buf = &text};
        rlm_json_put(&w, arguments);
        int r = rlm_buf_check(&text, err);
        return r < 0 ? r : rlm_stream_tool(s, index, name, rlm_buf_str(&text), err);
    }
    return rlm_stream_tool(s, index, name, rlm_json_text(arguments, RLM_STR_NONE), err);
}

static int take_tool_calls(struct rlm_stream *s, const rlm_json *delta, rlm_error **err)
{
    const rlm_json *calls = rlm_json_get(delta, "tool_calls");
    for (uint32_t i = 0; rlm_json_is(calls, RLM_JSON_ARRAY) && i < calls->count; i++) {
        const rlm_json *call = rlm_json_at(calls, i);
        int64_t index = rlm_json_int(rlm_json_get(call, "index"), i);
        int r = take_function(s, index, rlm_json_get(call, "function"), err);
        if (r < 0) {
            return r;
        }
    }
    const rlm_json *old_form = rlm_json_get(delta, "function_call");
    return rlm_json_is(old_form, RLM_JSON_OBJECT) ? take_function(s, 0, old_form, err) : 0;
}

static int take_delta(struct rlm_stream *s, const rlm_json *delta, rlm_error **err)
{
    const rlm_json *reasoning = rlm_json_get(delta, "reasoning_content");
    if (!rlm_json_is(reasoning, RLM_JSON_STRING)) {
        reasoning = rlm_json_get(delta, "reasoning");
    }
    rlm_stream_reasoning(s, rlm_json_text(reasoning, RLM_STR_NONE));
    int r = take_content(s, rlm_json_get(delta, "content"), err);
    if (r == 0) {
        r = take_content(s, rlm_json_get(delta, "refusal"), err);
    }
    return r < 0 ? r : take_tool_calls(s, delta, err);
}

/* The part that chunks of a stream and whole answers share; 1 when a first choice was there. */
static int
take_object(struct rlm_stream *s, const rlm_json *object, const char *member, rlm_error **err)
{
    take_usage(s, rlm_json_get(object, "usage"));
    const rlm_json *choices = rlm_json_get(object, "choices");
    for (uint32_t i = 0; rlm_json_is(choices, RLM_JSON_ARRAY) && i < choices->count; i++) {
        const rlm_json *choice = rlm_json_at(choices, i);
        if (rlm_json_int(rlm_json_get(choice, "index"), 0) != 0) {
            continue;
        }
        const rlm_json *delta = rlm_json_get(choice, member);
        int r = take_delta(s, delta, err);
        if (r < 0) {
            return r;
        }
        rlm_str reason = rlm_json_text(rlm_json_get(choice, "finish_reason"), RLM_STR_NONE);
        if (reason.len) {
            rlm_stream_finish(s, reason);
        }
        return rlm_json_is(delta, RLM_JSON_OBJECT);
    }
    return 0;
}

static int take_event(struct rlm_stream *s, const rlm_json *object, rlm_error **err)
{
    int r = take_object(s, object, "delta", err);
    return r < 0 ? r : 0; /* the last chunk of a stream has usage and no choice */
}

static int take_whole(struct rlm_stream *s, const rlm_json *object, rlm_error **err)
{
    int r = take_object(s, object, "message", err);
    if (r == 0) {
        return rlm_error_set(err, RLM_E_SERVER, "the server's answer has no choices[0].message");
    }
    return r < 0 ? r : 0;
}

static const char *const suffixes[] = {"/chat/completions", NULL};
static const char *const no_headers[] = {NULL};

const struct rlm_dialect rlm_dialect_openai = {
    .default_base_url = "https://api.openai.com/v1",
    .chat_path = "/chat/completions",
    .models_path = "/models",
    .base_suffixes = suffixes,
    .key_header = "Authorization: Bearer ",
    .headers = no_headers,
    .key_variable = "OPENAI_API_KEY",
    .write_messages = write_messages,
    .write_options = write_options,
    .last_event = "[DONE]",
    .take_event = take_event,
    .take_whole = take_whole,
};
