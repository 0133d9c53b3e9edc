/* The answer of an agent: done(). */
#include "flow/call.h"
#include "flow/value.h"

#include <stdio.h>
#include <stdlib.h>

enum { ANSWER_MAX = 64 * 1024 * 1024 };

/* The answer under a schema, as JSON text. A str that does not fit may be JSON text that does. */
static int answer_by_schema(struct rlm_agent *agent,
                            const rlm_json *value,
                            struct rlm_buf *out,
                            rlm_error **err)
{
    if (!value) {
        return rlm_error_set(
            err, RLM_E_SCHEMA,
            "the answer must be a JSON value: None, bool, int, float, str, list or dict");
    }
    struct rlm_json_writer w = {.buf = out};
    int r = rlm_value_put_plain(agent->run, value, &w, err);
    if (r < 0) {
        return rlm_error_wrap(err, r, "the answer");
    }
    r = rlm_buf_check(out, err);
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *plain;
    if (r < 0 || !arena || (r = rlm_json_parse(arena, rlm_buf_str(out), &plain, err)) < 0) {
        return r < 0 ? r : rlm_error_nomem(err);
    }
    r = rlm_schema_check(agent->output_schema, plain, err);
    const rlm_json *inner;
    rlm_autoerr rlm_error *ignored = NULL;
    if (r < 0 && plain->type == RLM_JSON_STRING &&
        rlm_json_parse(arena, plain->text, &inner, &ignored) == 0 &&
        rlm_schema_check(agent->output_schema, inner, &ignored) == 0) {
        rlm_autofree char *text = rlm_strndup(plain->text.ptr, plain->text.len);
        rlm_str copy = {text, plain->text.len};
        rlm_buf_clear(out);
        rlm_buf_add_str(out, copy);
        rlm_error_free(*err);
        *err = NULL;
        r = rlm_buf_check(out, err);
    }
    return r;
}

void rlm_done_take(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    rlm_run *run = agent->run;
    const rlm_json *value = rlm_json_at(call->args, 0);
    rlm_auto_buf struct rlm_buf answer = RLM_BUF(ANSWER_MAX);
    rlm_autoerr rlm_error *err = NULL;
    int r;
    if (agent->output_schema) {
        r = answer_by_schema(agent, value, &answer, &err);
    } else {
        const rlm_json *text = rlm_json_get(call->kwargs, "text");
        bool is_text = rlm_json_is(value, RLM_JSON_STRING) || rlm_json_get(value, "$blob");
        r = rlm_value_text(run, is_text ? value : text, &answer, &err);
    }
    if (r < 0) {
        rlm_autofree char *message = NULL;
        if (asprintf(&message, "done() did not accept the answer: %s", rlm_error_message(err)) <
            0) {
            message = NULL;
        }
        rlm_host_call_raise(agent, call, "ValueError", "schema",
                            rlm_str_of(message ? message : "done() did not accept the answer"));
        return;
    }
    agent->answer_len = answer.len;
    agent->answer = rlm_buf_take(&answer);
    if (!agent->answer) {
        rlm_run_fail_no_memory(run);
        return;
    }
    /* The first accepted answer stands: all that is open is given up, then the cell unwinds. */
    rlm_calls_cancel(agent, "terminated");
    rlm_host_call_answer(agent, call, RLM_STR("null"));
    if (agent->session) {
        rlm_session_unwind(agent->session);
    }
}
