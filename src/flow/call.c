/* The table of open calls, their answers, and how those are delivered or given up. */
#include "flow/call.h"

#include "flow/gate.h"
#include "flow/record.h"
#include "flow/replay.h"

#include <stdlib.h>

enum { LIST_MAX = 64 * 1024 * 1024 };

/* ---- the table ------------------------------------------------------------------------------- */

struct rlm_call *rlm_call_new(struct rlm_agent *agent,
                              const struct rlm_host_call *from,
                              enum rlm_call_kind kind,
                              size_t n_parts)
{
    struct rlm_call *call;
    struct rlm_call **slot = NULL;
    if (!RLM_NEW(call) || !(call->parts = rlm_calloc(n_parts, sizeof *call->parts)) ||
        !(slot = rlm_vec_push(&agent->calls))) {
        if (call) {
            free(call->parts);
            free(call);
        }
        rlm_run_fail_no_memory(agent->run);
        return NULL;
    }
    call->agent = agent;
    call->id = call->first_id = from->id;
    call->cell = agent->cell;
    call->kind = kind;
    call->n_parts = call->parts_left = n_parts;
    for (size_t i = 0; i < n_parts; i++) {
        call->parts[i].call = call;
    }
    *slot = call;
    return call;
}

int rlm_host_call_copy(rlm_arena *arena,
                       const struct rlm_host_call *call,
                       struct rlm_host_call *ret_copy,
                       rlm_error **err)
{
    struct rlm_host_call copy = {.id = call->id, .name = rlm_arena_copy(arena, call->name)};
    int r =
        copy.name.ptr ? rlm_json_copy(arena, call->args, &copy.args, err) : rlm_error_nomem(err);
    if (r == 0 && (r = rlm_json_copy(arena, call->kwargs, &copy.kwargs, err)) == 0) {
        *ret_copy = copy;
    }
    return r;
}

struct rlm_call *rlm_call_find(const struct rlm_agent *agent, int64_t id)
{
    for (size_t i = 0; i < agent->calls.len; i++) {
        if (agent->calls.items[i]->id == id) {
            return agent->calls.items[i];
        }
    }
    return NULL;
}

void rlm_call_free(struct rlm_call *call)
{
    struct rlm_agent *agent = call->agent;
    for (size_t i = 0; i < agent->calls.len; i++) {
        if (agent->calls.items[i] == call) {
            rlm_vec_remove(&agent->calls, i);
            break;
        }
    }
    for (size_t i = 0; i < call->n_parts; i++) {
        if (call->parts[i].child) {
            call->parts[i].child->part = NULL;
        }
        rlm_schema_free(call->parts[i].schema);
        free(call->parts[i].value_json);
    }
    rlm_gate_give_up(&call->gate);
    free(call->name);
    free(call->parts);
    free(call);
}

void rlm_calls_update_slot(struct rlm_agent *agent)
{
    bool waits = agent->cell_open && agent->calls.len && !agent->results.len && !agent->answer;
    for (size_t i = 0; waits && i < agent->calls.len; i++) {
        enum rlm_call_kind kind = agent->calls.items[i]->kind;
        waits = kind == RLM_CALL_LAUNCH || kind == RLM_CALL_GATED;
    }
    if (waits) {
        rlm_agent_release_slot(agent);
    }
    if (agent->cell_open) {
        rlm_agent_set_state(agent, agent->open_gates  ? RLM_AGENT_GATED
                                   : agent->calls.len ? RLM_AGENT_WAITING
                                                      : RLM_AGENT_RUNNING);
        rlm_run_poke(agent->run); /* all that are left may wait for gates */
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void result_free(struct rlm_call_result *result)
{
    free((char *)(uintptr_t)result->value_json.ptr);
    free((char *)(uintptr_t)result->error_message.ptr);
}

void rlm_calls_forget_results(struct rlm_agent *agent, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        result_free(&agent->results.items[i]);
    }
    agent->results.len -= n;
    if (agent->results.len) {
        memmove(agent->results.items, agent->results.items + n,
                agent->results.len * sizeof *agent->results.items);
    }
}

static void results_clear(struct rlm_agent *agent)
{
    if (agent->results.len) {
        rlm_calls_forget_results(agent, agent->results.len);
    }
}

void rlm_call_queue_result(struct rlm_agent *agent,
                           int64_t cell,
                           const struct rlm_call_result *result)
{
    struct rlm_call_result owned = *result;
    owned.value_json.ptr =
        result->error_type ? NULL : rlm_strndup(result->value_json.ptr, result->value_json.len);
    owned.error_message.ptr =
        result->error_type ? rlm_strndup(result->error_message.ptr, result->error_message.len)
                           : NULL;
    if (rlm_record_answer(agent, cell, result) < 0) {
        result_free(&owned);
        return;
    }
    struct rlm_call_result *slot = rlm_vec_push(&agent->results);
    if (!slot || (!owned.value_json.ptr && !owned.error_message.ptr)) {
        if (slot) {
            agent->results.len--;
        }
        result_free(&owned);
        rlm_run_fail_no_memory(agent->run);
        return;
    }
    *slot = owned;
    if (agent->run->replay) {
        rlm_replay_answered(agent, result);
    }
    rlm_run_schedule(agent);
}

void rlm_host_call_answer(struct rlm_agent *agent,
                          const struct rlm_host_call *call,
                          rlm_str value_json)
{
    struct rlm_call_result result = {.id = call->id, .value_json = value_json};
    rlm_call_queue_result(agent, agent->cell, &result);
}

void rlm_host_call_raise(struct rlm_agent *agent,
                         const struct rlm_host_call *call,
                         const char *type,
                         const char *reason,
                         rlm_str message)
{
    struct rlm_call_result result = {
        .id = call->id, .error_type = type, .error_reason = reason, .error_message = message};
    rlm_call_queue_result(agent, agent->cell, &result);
}

void rlm_call_answer(struct rlm_call *call, rlm_str value_json)
{
    struct rlm_agent *agent = call->agent;
    struct rlm_call_result result = {.id = call->id, .value_json = value_json};
    rlm_call_queue_result(agent, call->cell, &result);
    rlm_call_free(call);
    rlm_calls_update_slot(agent);
}

void rlm_call_answer_parts(struct rlm_call *call)
{
    rlm_auto_buf struct rlm_buf list = RLM_BUF(LIST_MAX);
    struct rlm_json_writer w = {.buf = &list};
    rlm_json_begin(&w, '[');
    for (size_t i = 0; i < call->n_parts; i++) {
        rlm_json_put_raw(&w, rlm_str_of(call->parts[i].value_json));
    }
    rlm_json_end(&w, ']');
    rlm_error *err = NULL;
    if (list.status == RLM_E_LIMIT) {
        rlm_call_raise(
            call, "HostCallError", "limit",
            RLM_STR("the results are more than 64 MiB together; ask for fewer at a time"));
    } else if (rlm_buf_check(&list, &err) < 0) {
        rlm_run_fail(call->agent->run, err);
    } else {
        rlm_call_answer(call, rlm_buf_str(&list));
    }
}

void rlm_call_raise(struct rlm_call *call, const char *type, const char *reason, rlm_str message)
{
    struct rlm_agent *agent = call->agent;
    struct rlm_call_result result = {
        .id = call->id, .error_type = type, .error_reason = reason, .error_message = message};
    rlm_call_queue_result(agent, call->cell, &result);
    rlm_call_free(call);
    rlm_calls_update_slot(agent);
}

void rlm_calls_deliver(struct rlm_agent *agent)
{
    if (agent->from_record) {
        return;
    }
    if (!agent->session || !agent->cell_open) {
        results_clear(agent);
        return;
    }
    if (!agent->answer && !rlm_agent_take_slot(agent, true)) {
        return;
    }
    if (rlm_record_delivery(agent) < 0) {
        return;
    }
    rlm_error *err = NULL;
    size_t n = agent->run->replay ? rlm_replay_deliverable(agent) : agent->results.len;
    int r = 0;
    while (r == 0 && n && n != SIZE_MAX) {
        r = rlm_session_resume(agent->session, agent->results.items, n, &err);
        rlm_calls_forget_results(agent, n);
        n = agent->run->replay ? rlm_replay_deliverable(agent) : 0;
    }
    if (r < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    rlm_calls_update_slot(agent);
}

/* ---- giving up ------------------------------------------------------------------------------- */

static void cancel(struct rlm_call *call, const char *reason)
{
    switch (call->kind) {
    case RLM_CALL_LAUNCH:
        rlm_launch_cancel(call, reason);
        break;
    case RLM_CALL_QUERY:
        rlm_query_cancel(call);
        break;
    case RLM_CALL_TOOL:
        rlm_host_tool_cancel(call);
        break;
    case RLM_CALL_READ:
        rlm_input_read_cancel(call);
        break;
    case RLM_CALL_GATED:
        break;
    }
    rlm_call_free(call);
}

void rlm_calls_cancel(struct rlm_agent *agent, const char *reason)
{
    while (agent->calls.len) {
        cancel(agent->calls.items[0], reason);
    }
    results_clear(agent);
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void rlm_calls_give_up(struct rlm_agent *agent, const int64_t *ids, size_t n_ids)
{
    for (size_t i = 0; i < agent->calls.len;) {
        struct rlm_call *call = agent->calls.items[i];
        if (bsearch(&call->id, ids, n_ids, sizeof *ids, compare_ids)) {
            cancel(call, "terminated");
        } else {
            i++;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < agent->results.len; i++) {
        struct rlm_call_result *result = &agent->results.items[i];
        if (bsearch(&result->id, ids, n_ids, sizeof *ids, compare_ids)) {
            result_free(result);
        } else {
            agent->results.items[kept++] = *result;
        }
    }
    agent->results.len = kept;
    rlm_calls_update_slot(agent);
}

void rlm_calls_drop(struct rlm_agent *agent)
{
    while (agent->calls.len) {
        struct rlm_call *call = agent->calls.items[0];
        if (call->kind != RLM_CALL_LAUNCH) {
            cancel(call, "");
        } else {
            rlm_call_free(call);
        }
    }
    results_clear(agent);
}
