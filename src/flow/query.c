/* llm_query and llm_query_batched: a model is asked without an agent.
 *
 * Each prompt is one ask on the account of the agent that calls. A failed prompt of a batch is a
 * Failure in its slot; of a single query it is an exception.
 */
#include "flow/ask.h"
#include "flow/call.h"
#include "flow/past.h"
#include "flow/run.h"
#include "flow/value.h"

enum { PROMPTS_MAX = 100000, PROMPT_MAX = 64 * 1024 * 1024 };

struct query {
    const rlm_json *prompts; /* an array, or one value */
    bool batched;
    struct rlm_flow_model *model;
    struct rlm_buf schema; /* JSON text; empty: none */
};

static const rlm_json *argument(const struct rlm_host_call *call, size_t index, const char *name)
{
    const rlm_json *value = rlm_json_at(call->args, index);
    value = value ? value : rlm_json_get(call->kwargs, name);
    return value && value->type == RLM_JSON_NULL ? NULL : value;
}

static int read_query(struct rlm_agent *agent,
                      const struct rlm_host_call *call,
                      struct query *ret,
                      rlm_error **err)
{
    ret->batched = rlm_str_is(call->name, "llm_query_batched");
    ret->prompts = argument(call, 0, ret->batched ? "prompts" : "prompt");
    if (ret->batched && rlm_json_get(ret->prompts, "$tuple")) {
        ret->prompts = rlm_json_get(ret->prompts, "$tuple");
    }
    if (ret->batched &&
        (!rlm_json_is(ret->prompts, RLM_JSON_ARRAY) || ret->prompts->count > PROMPTS_MAX)) {
        return rlm_error_set(err, RLM_E_INVAL, "llm_query_batched takes a list of str (at most %d)",
                             PROMPTS_MAX);
    }
    const rlm_json *model = argument(call, 1, "model");
    rlm_str name = rlm_json_text(model, RLM_STR_NONE);
    ret->model = model ? rlm_flow_find_model(agent->run->flow, name) : agent->model;
    if (!ret->model) {
        rlm_auto_buf struct rlm_buf names = RLM_BUF(PROMPT_MAX);
        rlm_flow_put_model_names(agent->run->flow, &names);
        return rlm_error_set(err, RLM_E_INVAL, "no model is named \"%.*s\"; the models are: %s",
                             RLM_FMT(name), names.ptr);
    }
    const rlm_json *schema = argument(call, 2, "output_schema");
    if (schema && schema->type == RLM_JSON_STRING) {
        rlm_buf_add_str(&ret->schema, schema->text);
    } else if (schema) {
        struct rlm_json_writer w = {.buf = &ret->schema};
        rlm_json_put(&w, schema);
    }
    return rlm_buf_check(&ret->schema, err);
}

/* ---- ends of a prompt ---- */

static void part_ended(struct rlm_part *part)
{
    if (--part->call->parts_left == 0) {
        rlm_call_answer_parts(part->call);
    }
}

static void part_failed(struct rlm_part *part, const char *reason, rlm_str message)
{
    struct rlm_call *call = part->call;
    if (!call->batched) {
        rlm_call_raise(call, "HostCallError", reason, message);
        return;
    }
    part->value_json = rlm_value_of_failure(reason, message, call->agent->graph->agent_id);
    if (!part->value_json) {
        rlm_run_fail_no_memory(call->agent->run);
        return;
    }
    part_ended(part);
}

/* The JSON in a reply: all of it, or what stands between its first and last bracket. */
static rlm_str json_in(rlm_str reply)
{
    size_t start = 0, end = reply.len;
    while (start < end && reply.ptr[start] != '{' && reply.ptr[start] != '[') {
        start++;
    }
    while (end > start && reply.ptr[end - 1] != '}' && reply.ptr[end - 1] != ']') {
        end--;
    }
    return start < end ? rlm_str_sub(reply, start, end) : reply;
}

/* The value of a reply under a schema as JSON text, or an error. */
static int
value_by_schema(const rlm_schema *schema, rlm_str reply, struct rlm_buf *out, rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    if (!arena) {
        return rlm_error_nomem(err);
    }
    const rlm_json *value;
    int r = rlm_json_parse(arena, reply, &value, err);
    if (r == RLM_E_PARSE) {
        rlm_autoerr rlm_error *ignored = NULL;
        if (rlm_json_parse(arena, json_in(reply), &value, &ignored) == 0) {
            rlm_error_free(*err);
            *err = NULL;
            r = 0;
        }
    }
    if (r < 0) {
        return rlm_error_wrap(err, r, "the reply is no JSON");
    }
    if ((r = rlm_schema_check(schema, value, err)) < 0) {
        return rlm_error_wrap(err, r, "the reply does not fit output_schema");
    }
    struct rlm_json_writer w = {.buf = out};
    rlm_json_put(&w, value);
    return rlm_buf_check(out, err);
}

/* A reply that ended because the budget allowed no more says so: code cannot see it otherwise. */
static char *
text_value(rlm_run *run, const struct rlm_chat_reply *reply, bool shrunk, rlm_error **err)
{
    bool whole =
        rlm_str_is(reply->finish_reason, "stop") || rlm_str_is(reply->finish_reason, "end_turn");
    if (whole || !shrunk) {
        return rlm_value_of_text(run, reply->text, err);
    }
    rlm_auto_buf struct rlm_buf text = RLM_BUF(PROMPT_MAX);
    rlm_buf_add_str(&text, reply->text);
    rlm_buf_adds(&text, "\n[cut off here: the budget of the run allowed no more]");
    return rlm_buf_check(&text, err) < 0 ? NULL : rlm_value_of_text(run, rlm_buf_str(&text), err);
}

static void take_reply(struct rlm_part *part, const struct rlm_chat_reply *reply, bool shrunk)
{
    struct rlm_call *call = part->call;
    rlm_autoerr rlm_error *err = NULL;
    if (part->schema) {
        rlm_auto_buf struct rlm_buf value = RLM_BUF(PROMPT_MAX);
        if (value_by_schema(part->schema, reply->text, &value, &err) < 0) {
            part_failed(part, "schema", rlm_str_of(rlm_error_message(err)));
            return;
        }
        part->value_json = rlm_buf_take(&value);
    } else {
        part->value_json = text_value(call->agent->run, reply, shrunk, &err);
    }
    if (!part->value_json) {
        rlm_run_fail(call->agent->run, rlm_steal(&err));
    } else if (call->batched) {
        part_ended(part);
    } else {
        rlm_call_answer(call, rlm_str_of(part->value_json));
    }
}

static void replied(void *arg,
                    struct rlm_ask *ask,
                    const struct rlm_chat_reply *reply,
                    const struct rlm_usage *usage)
{
    struct rlm_part *part = arg;
    (void)usage;
    part->ask = NULL;
    take_reply(part, reply, rlm_ask_was_shrunk(ask));
}

static void not_replied(void *arg, struct rlm_ask *ask, const char *reason, const rlm_error *error)
{
    struct rlm_part *part = arg;
    (void)ask;
    part->ask = NULL;
    part_failed(part, reason, rlm_str_of(rlm_error_message(error)));
}

/* ---- the call ---- */

static int build_prompt(
    rlm_run *run, const rlm_json *prompt, rlm_str schema, struct rlm_buf *out, rlm_error **err)
{
    int r = rlm_value_text(run, prompt, out, err);
    if (r == 0 && !out->len) {
        r = rlm_error_set(err, RLM_E_INVAL, "the prompt is empty");
    }
    if (r == 0 && schema.len) {
        rlm_buf_adds(
            out, "\n\nAnswer with one JSON value that fits this JSON Schema, and nothing else:\n");
        rlm_buf_add_str(out, schema);
        r = rlm_buf_check(out, err);
    }
    return r;
}

/* The reply to this prompt that came before the run was interrupted, or NULL. */
static const struct rlm_past_reply *past_reply(const struct rlm_past_call *was, int64_t part)
{
    for (size_t i = 0; was && i < was->replies.len; i++) {
        if (was->replies.items[i].part == part) {
            return &was->replies.items[i];
        }
    }
    return NULL;
}

static int start_part(struct rlm_part *part,
                      const struct query *q,
                      const rlm_json *prompt,
                      const struct rlm_past_call *was,
                      rlm_error **err)
{
    rlm_run *run = part->call->agent->run;
    rlm_auto_buf struct rlm_buf text = RLM_BUF(PROMPT_MAX);
    int r = build_prompt(run, prompt, rlm_buf_str(&q->schema), &text, err);
    if (r == 0 && q->schema.len) {
        r = rlm_schema_new(rlm_buf_str(&q->schema), &part->schema, err);
    }
    if (r < 0) {
        return r;
    }
    const struct rlm_past_reply *known = past_reply(was, part - part->call->parts);
    if (known) {
        struct rlm_chat_reply reply = {.text = known->text, .finish_reason = known->finish_reason};
        take_reply(part, &reply, known->shrunk);
        return 0;
    }
    struct rlm_ask_options options = {
        .agent = part->call->agent,
        .model = q->model,
        .part = part,
        .prompt = rlm_buf_str(&text),
        .done = replied,
        .failed = not_replied,
        .arg = part,
    };
    return rlm_ask_start(&options, &part->ask, err);
}

/* Arguments are checked as a whole before anything is asked. */
static int check_prompts(const struct query *q, rlm_error **err)
{
    size_t n = q->batched ? q->prompts->count : 1;
    for (size_t i = 0; i < n; i++) {
        const rlm_json *prompt = q->batched ? rlm_json_at(q->prompts, i) : q->prompts;
        bool text = rlm_json_is(prompt, RLM_JSON_STRING) || rlm_json_get(prompt, "$blob");
        if (!text || (prompt->type == RLM_JSON_STRING && !prompt->text.len)) {
            return rlm_error_set(err, RLM_E_INVAL, "prompt %zu must be a str that is not empty", i);
        }
    }
    if (q->schema.len) {
        rlm_schema *schema;
        int r = rlm_schema_new(rlm_buf_str(&q->schema), &schema, err);
        if (r < 0) {
            return rlm_error_wrap(err, r, "output_schema");
        }
        rlm_schema_free(schema);
    }
    return 0;
}

void rlm_query_begin(struct rlm_agent *agent,
                     const struct rlm_host_call *host_call,
                     const struct rlm_past_call *was)
{
    struct query q = {.schema = RLM_BUF(PROMPT_MAX)};
    rlm_error *err = NULL;
    if (read_query(agent, host_call, &q, &err) < 0 || check_prompts(&q, &err) < 0) {
        rlm_host_call_raise(agent, host_call, "ValueError", "arguments",
                            rlm_str_of(rlm_error_message(err)));
        rlm_error_free(err);
        rlm_buf_deinit(&q.schema);
        return;
    }
    size_t n = q.batched ? q.prompts->count : 1;
    struct rlm_call *call = rlm_call_new(agent, host_call, RLM_CALL_QUERY, n);
    if (call) {
        call->batched = q.batched;
    }
    if (call && n == 0) {
        rlm_call_answer_parts(call);
    }
    for (size_t i = 0; call && i < n; i++) {
        const rlm_json *prompt = q.batched ? rlm_json_at(q.prompts, i) : q.prompts;
        int r = start_part(&call->parts[i], &q, prompt, was, &err);
        if (r == RLM_E_NOMEM) {
            rlm_run_fail(agent->run, err);
            break;
        }
        if (r < 0) {
            /* Too long, or a blob that cannot be read. With the last part the call is gone. */
            part_failed(&call->parts[i], "failed", rlm_str_of(rlm_error_message(err)));
            rlm_error_free(err);
            err = NULL;
        }
    }
    rlm_buf_deinit(&q.schema);
}

void rlm_query_cancel(struct rlm_call *call)
{
    for (size_t i = 0; i < call->n_parts; i++) {
        rlm_ask_cancel(call->parts[i].ask);
        call->parts[i].ask = NULL;
    }
}
