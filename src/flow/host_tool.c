/* Proxied tools: agent code calls, the program that embeds the engine answers, at once or later. */
#include "flow/call.h"
#include "flow/run.h"
#include "flow/value.h"

#include <stdio.h>

enum { ARGUMENTS_MAX = 64 * 1024 * 1024 };
static const int64_t DEFAULT_TIMEOUT_MS = 600 * 1000, DEFAULT_RESULT_BYTES = 64 * 1024 * 1024;

/* Lives until it has been answered, also when nobody waits any more. */
struct rlm_tool_call {
    struct rlm_call *call; /* NULL once it is given up */
    const struct rlm_tool *tool;
    char *agent_id;
    rlm_timer *deadline;
    void (*cancelled)(void *arg);
    void *cancelled_arg;
};

static void tool_call_free(rlm_tool_call *t)
{
    rlm_timer_free(t->deadline);
    free(t->agent_id);
    free(t);
}

static void give_up(rlm_tool_call *t)
{
    t->call = NULL;
    rlm_timer_stop(t->deadline);
    if (t->cancelled) {
        t->cancelled(t->cancelled_arg);
    }
}

static void too_late(void *arg)
{
    rlm_tool_call *t = arg;
    struct rlm_call *call = t->call;
    int64_t limit = t->tool->limits.timeout_ms ? t->tool->limits.timeout_ms : DEFAULT_TIMEOUT_MS;
    char text[200];
    snprintf(text, sizeof text, "the tool %s did not answer within %.1f s", t->tool->name,
             (double)limit / 1e3);
    give_up(t);
    call->tool = NULL;
    rlm_call_raise(call, "HostCallError", "timeout", rlm_str_of(text));
}

void rlm_host_tool_cancel(struct rlm_call *call)
{
    if (call->tool) {
        give_up(call->tool);
        call->tool = NULL;
    }
}

static rlm_tool_call *tool_call_new(struct rlm_call *call, const struct rlm_tool *tool)
{
    rlm_tool_call *t;
    if (!RLM_NEW(t)) {
        return NULL;
    }
    t->call = call;
    t->tool = tool;
    t->agent_id = rlm_strdup(call->agent->graph->agent_id);
    t->deadline = rlm_timer_new(call->agent->run->loop, too_late, t);
    if (!t->agent_id || !t->deadline) {
        tool_call_free(t);
        return NULL;
    }
    return t;
}

void rlm_host_tool_begin(struct rlm_agent *agent,
                         const struct rlm_host_call *host_call,
                         struct rlm_tool *tool)
{
    rlm_auto_buf struct rlm_buf arguments = RLM_BUF(ARGUMENTS_MAX);
    rlm_error *err = NULL;
    if (rlm_tool_bind(tool, host_call->args, host_call->kwargs, &arguments, &err) < 0) {
        rlm_host_call_raise(agent, host_call, "TypeError", "arguments",
                            rlm_str_of(rlm_error_message(err)));
        rlm_error_free(err);
        return;
    }
    uint64_t *calls = &agent->run->tool_calls[tool->index];
    if (tool->limits.max_calls && *calls >= (uint64_t)tool->limits.max_calls) {
        char text[200];
        snprintf(text, sizeof text, "the tool %s may be called %lld times in a run, and has been",
                 tool->name, (long long)tool->limits.max_calls);
        rlm_host_call_raise(agent, host_call, "HostCallError", "limit", rlm_str_of(text));
        return;
    }
    (*calls)++;
    struct rlm_call *call = rlm_call_new(agent, host_call, RLM_CALL_TOOL, 0);
    if (!call) {
        return;
    }
    rlm_tool_call *t = tool_call_new(call, tool);
    if (!t) {
        rlm_run_fail_no_memory(agent->run);
        return;
    }
    call->tool = t;
    rlm_timer_set(t->deadline, (uint64_t)(tool->limits.timeout_ms ? tool->limits.timeout_ms
                                                                  : DEFAULT_TIMEOUT_MS));
    tool->run(tool->arg, t, rlm_buf_str(&arguments));
}

/* The answer ends the object; `call` is NULL when nobody waits. */
static struct rlm_call *end(rlm_tool_call *t)
{
    struct rlm_call *call = t->call;
    if (call) {
        call->tool = NULL;
    }
    return call;
}

void rlm_tool_call_return(rlm_tool_call *t, rlm_str value_json)
{
    struct rlm_call *call = end(t);
    const struct rlm_tool *tool = t->tool; /* gone with its flow, perhaps, if nobody waits */
    tool_call_free(t);
    if (!call) {
        return;
    }
    int64_t most =
        tool->limits.max_result_bytes ? tool->limits.max_result_bytes : DEFAULT_RESULT_BYTES;
    char text[200];
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *value;
    if (value_json.len > (size_t)most) {
        snprintf(text, sizeof text, "the tool %s returned %zu bytes; the limit is %lld", tool->name,
                 value_json.len, (long long)most);
        rlm_call_raise(call, "HostCallError", "limit", rlm_str_of(text));
    } else if (!arena || rlm_json_parse(arena, value_json, &value, NULL) < 0) {
        snprintf(text, sizeof text, "the tool %s returned what is no JSON", tool->name);
        rlm_call_raise(call, "HostCallError", "result", rlm_str_of(text));
    } else {
        rlm_error *err = NULL;
        rlm_autofree char *blob =
            value->type == RLM_JSON_STRING && value->text.len >= RLM_BLOB_THRESHOLD
                ? rlm_value_of_text(call->agent->run, value->text, &err)
                : NULL;
        if (err) {
            rlm_run_fail(call->agent->run, err);
            return;
        }
        rlm_call_answer(call, blob ? rlm_str_of(blob) : value_json);
    }
}

void rlm_tool_call_fail(rlm_tool_call *t, const char *message)
{
    struct rlm_call *call = end(t);
    tool_call_free(t);
    if (call) {
        rlm_call_raise(call, "HostCallError", "tool", rlm_str_of(message));
    }
}

const char *rlm_tool_call_agent_id(const rlm_tool_call *t)
{
    return t->agent_id;
}

void rlm_tool_call_on_cancel(rlm_tool_call *t, void (*cancelled)(void *arg), void *arg)
{
    t->cancelled = cancelled;
    t->cancelled_arg = arg;
}
