/* Proxied tools: agent code calls, the program that embeds the engine answers, at once or later. */
#include "flow/call.h"
#include "flow/run.h"
#include "flow/value.h"

#include <stdio.h>

enum { ARGUMENTS_MAX = 64 * 1024 * 1024, STORED_MAX = 1024 * 1024 * 1024 };
static const int64_t DEFAULT_TIMEOUT_MS = 600 * 1000, DEFAULT_RESULT_BYTES = 64 * 1024 * 1024;

/* Lives until it has been answered, also when nobody waits any more; at most as long as the flow. */
struct rlm_tool_call {
    struct rlm_link link;  /* in the flow's list */
    struct rlm_call *call; /* NULL once it is given up */
    const struct rlm_tool *tool;
    char *agent_id;
    rlm_timer *deadline;
    void (*cancelled)(void *arg);
    void *cancelled_arg;
};

static void tool_call_free(rlm_tool_call *t)
{
    rlm_link_remove(&t->link);
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
    rlm_link_add(&call->agent->run->flow->tool_calls, &t->link);
    return t;
}

/* The arguments as they came, with blobs by value, in the form that the tool takes; in the arena. */
static int read_arguments(rlm_run *run,
                          const struct rlm_tool *tool,
                          const struct rlm_host_call *host_call,
                          rlm_arena *arena,
                          const rlm_json **ret_arguments,
                          rlm_error **err)
{
    rlm_auto_buf struct rlm_buf whole = RLM_BUF(ARGUMENTS_MAX);
    struct rlm_json_writer w = {.buf = &whole};
    int (*put)(rlm_run *, const rlm_json *, struct rlm_json_writer *, rlm_error **) =
        tool->encoded ? rlm_value_put_whole : rlm_value_put_plain;
    rlm_json_begin(&w, '{');
    rlm_json_key(&w, "args");
    int r = put(run, host_call->args, &w, err);
    if (r == 0) {
        rlm_json_key(&w, "kwargs");
        r = put(run, host_call->kwargs, &w, err);
    }
    rlm_json_end(&w, '}');
    if (r == 0 && (r = rlm_buf_check(&whole, err)) == 0) {
        rlm_str text = rlm_arena_copy(arena, rlm_buf_str(&whole));
        r = text.ptr ? rlm_json_parse(arena, text, ret_arguments, err) : rlm_error_nomem(err);
    }
    return r < 0 ? rlm_error_wrap(err, r, "%s()", tool->name) : 0;
}

/* Appends the object of arguments to `out`; false: the code has its answer, or the run has failed. */
static bool bind_arguments(struct rlm_agent *agent,
                           const struct rlm_host_call *host_call,
                           const struct rlm_tool *tool,
                           struct rlm_buf *out)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *given;
    int r = arena ? read_arguments(agent->run, tool, host_call, arena, &given, &err) : RLM_E_NOMEM;
    if (r == 0) {
        r = rlm_tool_bind(tool, rlm_json_get(given, "args"), rlm_json_get(given, "kwargs"), out,
                          &err);
    }
    if (r == RLM_E_LIMIT) {
        char text[200];
        snprintf(text, sizeof text,
                 "the arguments of %s() are more than %d MiB; pass a part of them, or where to "
                 "find them",
                 tool->name, ARGUMENTS_MAX / 1024 / 1024);
        rlm_host_call_raise(agent, host_call, "ValueError", "limit", rlm_str_of(text));
    } else if (r == RLM_E_NOMEM) {
        rlm_run_fail_no_memory(agent->run);
    } else if (r < 0 && !agent->run->stopping) {
        rlm_host_call_raise(agent, host_call, "TypeError", "arguments",
                            rlm_str_of(rlm_error_message(err)));
    }
    return r == 0;
}

void rlm_host_tool_begin(struct rlm_agent *agent,
                         const struct rlm_host_call *host_call,
                         struct rlm_tool *tool)
{
    rlm_auto_buf struct rlm_buf arguments = RLM_BUF(ARGUMENTS_MAX);
    if (!bind_arguments(agent, host_call, tool, &arguments)) {
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

static void answer_stored(struct rlm_call *call, const rlm_json *value, bool encoded)
{
    rlm_auto_buf struct rlm_buf stored = RLM_BUF(STORED_MAX);
    struct rlm_json_writer w = {.buf = &stored};
    rlm_error *err = NULL;
    if (rlm_value_put_stored(call->agent->run, value, encoded, &w, &err) < 0 ||
        rlm_buf_check(&stored, &err) < 0) {
        rlm_run_fail(call->agent->run, err);
        return;
    }
    rlm_call_answer(call, rlm_buf_str(&stored));
}

void rlm_tool_call_return(rlm_tool_call *t, rlm_str value_json)
{
    struct rlm_call *call = end(t);
    const struct rlm_tool *tool = t->tool;
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
        answer_stored(call, value, tool->encoded);
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

void rlm_host_tools_free(rlm_flow *flow)
{
    while (flow->tool_calls) {
        tool_call_free((rlm_tool_call *)flow->tool_calls);
    }
}

void rlm_tool_call_on_cancel(rlm_tool_call *t, void (*cancelled)(void *arg), void *arg)
{
    t->cancelled = cancelled;
    t->cancelled_arg = arg;
}
