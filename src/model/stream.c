#include "model/stream.h"

#include "base/error.h"

void rlm_stream_init(struct rlm_stream *s)
{
    *s = (struct rlm_stream){.text = RLM_BUF(RLM_STREAM_MAX_TEXT)};
}

void rlm_stream_deinit(struct rlm_stream *s)
{
    for (size_t i = 0; i < s->tool_calls.len; i++) {
        rlm_buf_deinit(&s->tool_calls.items[i].name);
        rlm_buf_deinit(&s->tool_calls.items[i].arguments);
    }
    free(s->tool_calls.items);
    rlm_buf_deinit(&s->text);
    rlm_refusal_deinit(&s->refusal);
}

static void count(struct rlm_stream *s, size_t bytes, rlm_str text)
{
    s->received_bytes += bytes;
    if (s->piece) {
        s->piece(s->arg, text);
    }
}

int rlm_stream_text(struct rlm_stream *s, rlm_str text, rlm_error **err)
{
    if (text.len == 0) {
        return 0;
    }
    if (rlm_buf_add_str(&s->text, text) < 0) {
        int r = rlm_buf_check(&s->text, err);
        return rlm_error_wrap(err, r, "the reply");
    }
    count(s, text.len, text);
    return 0;
}

void rlm_stream_reasoning(struct rlm_stream *s, rlm_str text)
{
    if (text.len) {
        count(s, text.len, RLM_STR_NONE);
    }
}

static struct rlm_tool_call *find_call(struct rlm_stream *s, int64_t index, rlm_error **err)
{
    for (size_t i = s->tool_calls.len; i-- > 0;) {
        if (s->tool_calls.items[i].index == index) {
            return &s->tool_calls.items[i];
        }
    }
    if (s->tool_calls.len == RLM_STREAM_MAX_TOOL_CALLS) {
        rlm_error_set(err, RLM_E_LIMIT, "the reply has more than %d tool calls",
                      RLM_STREAM_MAX_TOOL_CALLS);
        return NULL;
    }
    struct rlm_tool_call *call = rlm_vec_push(&s->tool_calls);
    if (!call) {
        rlm_error_nomem(err);
        return NULL;
    }
    call->index = index;
    call->name = RLM_BUF(1024);
    call->arguments = RLM_BUF(RLM_STREAM_MAX_TEXT);
    return call;
}

int rlm_stream_tool(
    struct rlm_stream *s, int64_t index, rlm_str name, rlm_str arguments, rlm_error **err)
{
    rlm_error *problem = NULL;
    struct rlm_tool_call *call = find_call(s, index, &problem);
    int r = call ? 0 : rlm_error_code(problem);
    if (call && (rlm_buf_add_str(&call->name, name) < 0 ||
                 rlm_buf_add_str(&call->arguments, arguments) < 0)) {
        r = rlm_buf_check(call->name.status < 0 ? &call->name : &call->arguments, &problem);
        rlm_error_wrap(&problem, r, "a tool call of the reply");
    }
    if (r < 0) {
        if (err) {
            *err = rlm_steal(&problem);
        }
        rlm_error_free(problem);
        return r;
    }
    if (name.len + arguments.len) {
        count(s, name.len + arguments.len, RLM_STR_NONE);
    }
    return 0;
}

void rlm_stream_finish(struct rlm_stream *s, rlm_str reason)
{
    size_t len =
        reason.len < sizeof s->finish_reason - 1 ? reason.len : sizeof s->finish_reason - 1;
    memcpy(s->finish_reason, reason.ptr, len);
    s->finish_reason[len] = '\0';
    s->finished = true;
}

static bool runs_code(rlm_str name)
{
    return rlm_str_is(name, "python") || rlm_str_is(name, "repl") || rlm_str_is(name, "execute");
}

/* The code in one call's arguments; {NULL, 0} when there is none. `a` holds it. */
static int code_of(rlm_arena *a, const struct rlm_tool_call *call, rlm_str *ret_code)
{
    static const char *const members[] = {"code", "input", "python"};
    rlm_str arguments = rlm_buf_str(&call->arguments);
    const rlm_json *parsed = NULL;
    int r = rlm_json_parse(a, arguments, &parsed, NULL);
    if (r == RLM_E_NOMEM) {
        return r;
    }
    if (r < 0) {
        parsed = NULL;
    }
    *ret_code = RLM_STR_NONE;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const rlm_json *member = rlm_json_get(parsed, members[i]);
        if (rlm_json_is(member, RLM_JSON_STRING)) {
            *ret_code = member->text;
            return 0;
        }
    }
    /* Text that starts as an object does is JSON that was cut, not Python. */
    if (runs_code(rlm_buf_str(&call->name)) && !rlm_json_is(parsed, RLM_JSON_OBJECT) &&
        !rlm_str_starts(arguments, "{\"")) {
        *ret_code = rlm_json_text(parsed, arguments);
    }
    return 0;
}

int rlm_stream_tool_code(const struct rlm_stream *s, struct rlm_buf *ret_code, rlm_error **err)
{
    for (size_t i = 0; i < s->tool_calls.len; i++) {
        rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
        rlm_str code;
        if (!a || code_of(a, &s->tool_calls.items[i], &code) < 0) {
            return rlm_error_nomem(err);
        }
        if (code.len) {
            rlm_buf_add_str(ret_code, code);
            return rlm_buf_check(ret_code, err);
        }
    }
    return 0;
}
