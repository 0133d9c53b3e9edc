#include "flow/gate.h"
#include "flow/past.h"
#include "flow/replay.h"
#include "flow/run.h"
#include "graph/record.h"

#include <stdio.h>
#include <stdlib.h>

enum { VALUE_MAX = 64 * 1024 * 1024, CALLS_MAX = 100000 };

static void no_memory(rlm_run *run)
{
    rlm_error *err = NULL;
    rlm_error_nomem(&err);
    rlm_run_fail(run, err);
}

/* ---- values ---- */

char *rlm_failure_json(const char *reason, rlm_str message, const char *agent_id)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(VALUE_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_begin(&w, '{');
    rlm_json_key(&w, "$failure");
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "reason", reason);
    rlm_json_member_str(&w, "message", message);
    rlm_json_member_text(&w, "agent_id", agent_id);
    rlm_json_end(&w, '}');
    rlm_json_end(&w, '}');
    return rlm_buf_take(&buf);
}

char *rlm_text_value_json(rlm_run *run, rlm_str text, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(VALUE_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    if (text.len < RLM_BLOB_THRESHOLD) {
        rlm_json_put_str(&w, text);
    } else {
        const struct rlm_blob *blob;
        if (rlm_blobs_put(run->blobs, RLM_BLOB_TEXT, text, &blob, err) < 0) {
            return NULL;
        }
        if (rlm_record_blob(run, blob) < 0) {
            rlm_error_set(err, RLM_E_IO, "the run has failed");
            return NULL;
        }
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "$blob", blob->id);
        rlm_json_end(&w, '}');
    }
    char *json = rlm_buf_take(&buf);
    if (!json) {
        rlm_error_nomem(err);
    }
    return json;
}

int rlm_value_text(rlm_run *run, const rlm_json *value, struct rlm_buf *out, rlm_error **err)
{
    if (rlm_json_is(value, RLM_JSON_STRING)) {
        rlm_buf_add_str(out, value->text);
        return rlm_buf_check(out, err);
    }
    rlm_str id = rlm_json_text(rlm_json_get(value, "$blob"), RLM_STR_NONE);
    const struct rlm_blob *blob = id.len ? rlm_blobs_find(run->blobs, id) : NULL;
    if (!blob || blob->type != RLM_BLOB_TEXT) {
        return rlm_error_set(err, RLM_E_INVAL, "expected a str");
    }
    rlm_error *problem = NULL;
    int r = rlm_blobs_read(run->blobs, id, out, &problem);
    if (r == RLM_E_IO || r == RLM_E_NOT_FOUND || r == RLM_E_CORRUPT) {
        rlm_run_fail(run, problem); /* not for agents: it names a path of the host */
        return rlm_error_set(err, r, "the run has failed");
    }
    if (r < 0) {
        rlm_error_set(err, r, "%s", rlm_error_message(problem));
        rlm_error_free(problem);
    }
    return r;
}

/* ---- the table ---- */

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
        no_memory(agent->run);
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

struct rlm_call *rlm_call_find(const struct rlm_agent *agent, int64_t id)
{
    for (size_t i = 0; i < agent->calls.len; i++) {
        if (agent->calls.items[i]->id == id) {
            return agent->calls.items[i];
        }
    }
    return NULL;
}

static void call_free(struct rlm_call *call)
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
    memmove(agent->results.items, agent->results.items + n,
            agent->results.len * sizeof *agent->results.items);
}

static void results_clear(struct rlm_agent *agent)
{
    if (agent->results.len) {
        rlm_calls_forget_results(agent, agent->results.len);
    }
}

/* A parent that waits for sub-agents and nothing else holds no slot. */
static void update_slot(struct rlm_agent *agent)
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

/* ---- answers ---- */

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
        no_memory(agent->run);
        return;
    }
    *slot = owned;
    if (agent->run->replay) {
        rlm_replay_answered(agent, result);
    }
    rlm_run_schedule(agent);
}

static void answer_host_call(struct rlm_agent *agent, int64_t id, rlm_str value_json)
{
    struct rlm_call_result result = {.id = id, .value_json = value_json};
    rlm_call_queue_result(agent, agent->cell, &result);
}

static void raise_host_call(
    struct rlm_agent *agent, int64_t id, const char *type, const char *reason, rlm_str message)
{
    struct rlm_call_result result = {
        .id = id, .error_type = type, .error_reason = reason, .error_message = message};
    rlm_call_queue_result(agent, agent->cell, &result);
}

void rlm_call_answer(struct rlm_call *call, rlm_str value_json)
{
    struct rlm_agent *agent = call->agent;
    struct rlm_call_result result = {.id = call->id, .value_json = value_json};
    rlm_call_queue_result(agent, call->cell, &result);
    call_free(call);
    update_slot(agent);
}

void rlm_call_answer_parts(struct rlm_call *call)
{
    rlm_auto_buf struct rlm_buf list = RLM_BUF(VALUE_MAX);
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
    call_free(call);
    update_slot(agent);
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
    update_slot(agent);
}

/* ---- giving up ---- */

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
    call_free(call);
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
    update_slot(agent);
}

void rlm_calls_drop(struct rlm_agent *agent)
{
    while (agent->calls.len) {
        struct rlm_call *call = agent->calls.items[0];
        if (call->kind != RLM_CALL_LAUNCH) {
            cancel(call, "");
        } else {
            call_free(call);
        }
    }
    results_clear(agent);
}

/* ---- done ---- */

/* A value of the encoding as plain JSON for a schema; RLM_E_INVAL when it is no JSON. */
static int
plain_json(rlm_run *run, const rlm_json *value, struct rlm_json_writer *w, rlm_error **err)
{
    if (rlm_json_is(value, RLM_JSON_ARRAY)) {
        rlm_json_begin(w, '[');
        int r = 0;
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            r = plain_json(run, &value->items[i], w, err);
        }
        rlm_json_end(w, ']');
        return r;
    }
    if (!rlm_json_is(value, RLM_JSON_OBJECT)) {
        rlm_json_put(w, value);
        return 0;
    }
    const struct rlm_json_member *only = value->count == 1 ? value->members : NULL;
    if (only && (rlm_str_is(only->key, "$tuple") || rlm_str_is(only->key, "$set") ||
                 rlm_str_is(only->key, "$frozenset"))) {
        return plain_json(run, &only->value, w, err);
    }
    if (only && rlm_str_is(only->key, "$blob")) {
        rlm_auto_buf struct rlm_buf text = RLM_BUF(VALUE_MAX);
        int r = rlm_value_text(run, value, &text, err);
        rlm_json_put_str(w, rlm_buf_str(&text));
        return r;
    }
    if (only && only->key.len && only->key.ptr[0] == '$') {
        return rlm_error_set(err, RLM_E_SCHEMA,
                             "the answer holds a value that JSON has no form for (%.*s)",
                             RLM_FMT(rlm_str_sub(only->key, 1, only->key.len)));
    }
    rlm_json_begin(w, '{');
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < value->count; i++) {
        rlm_json_key_str(w, value->members[i].key);
        r = plain_json(run, &value->members[i].value, w, err);
    }
    rlm_json_end(w, '}');
    return r;
}

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
    int r = plain_json(agent->run, value, &w, err);
    if (r == 0) {
        r = rlm_buf_check(out, err);
    }
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

static void done(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    rlm_run *run = agent->run;
    const rlm_json *value = rlm_json_at(call->args, 0);
    rlm_auto_buf struct rlm_buf answer = RLM_BUF(VALUE_MAX);
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
        raise_host_call(agent, call->id, "ValueError", "schema",
                        rlm_str_of(message ? message : "done() did not accept the answer"));
        return;
    }
    agent->answer_len = answer.len;
    agent->answer = rlm_buf_take(&answer);
    if (!agent->answer) {
        no_memory(run);
        return;
    }
    /* The first accepted answer stands: all that is open is given up, then the cell unwinds. */
    rlm_calls_cancel(agent, "terminated");
    answer_host_call(agent, call->id, RLM_STR("null"));
    if (agent->session) {
        rlm_session_unwind(agent->session);
    }
}

/* ---- budget ---- */

static void put_left(struct rlm_json_writer *w, const char *key, int64_t left)
{
    rlm_json_key(w, key);
    if (left < 0) {
        rlm_json_put_null(w);
    } else {
        rlm_json_put_int(w, left);
    }
}

static void budget(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    rlm_run *run = agent->run;
    const struct rlm_limits *l = &run->flow->limits;
    int64_t cost_left = rlm_ledger_cost_left(&run->ledger);
    int64_t elapsed_ms = rlm_run_elapsed_ms(run);
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(VALUE_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_begin(&w, '{');
    put_left(&w, "tokens_left", rlm_ledger_tokens_left(&run->ledger));
    rlm_json_member_int(&w, "tokens_used",
                        run->ledger.settled.input_tokens + run->ledger.settled.output_tokens);
    rlm_json_key(&w, "cost_left");
    if (cost_left < 0) {
        rlm_json_put_null(&w);
    } else {
        rlm_json_put_double(&w, (double)cost_left / 1e9);
    }
    rlm_json_member_double(&w, "cost_used", (double)run->ledger.settled.cost_nano / 1e9);
    rlm_json_key(&w, "seconds_left");
    if (l->max_time_ms) {
        rlm_json_put_double(
            &w, (double)(l->max_time_ms > elapsed_ms ? l->max_time_ms - elapsed_ms : 0) / 1e3);
    } else {
        rlm_json_put_null(&w);
    }
    rlm_json_member_int(&w, "turns_left",
                        rlm_step_max_iters(l, agent->graph->depth) - agent->graph->task_turns);
    rlm_json_member_int(&w, "depth_left", l->max_depth - agent->graph->depth);
    rlm_json_member_int(&w, "agents_left", l->max_agents - run->n_agents);
    rlm_json_member_int(&w, "model_calls", run->ledger.settled.calls);
    rlm_json_end(&w, '}');
    answer_host_call(agent, call->id, rlm_buf_str(&buf));
}

/* ---- dispatch ---- */

/* A call that was made before the run was interrupted. True: its answer is known, or it has none. */
static bool answer_from_past(struct rlm_agent *agent,
                             const struct rlm_host_call *call,
                             struct rlm_past_call *was,
                             const struct rlm_tool *tool)
{
    was->made_as = call->id;
    if (was->finished) {
        struct rlm_call_result result = rlm_past_result(was);
        rlm_call_queue_result(agent, agent->cell, &result);
        return true;
    }
    /* Behind a gate that had not let it pass it was never at work. */
    bool began = !was->gated || was->gate.decision == RLM_DECISION_ALLOW;
    if (tool && !tool->idempotent && began) {
        raise_host_call(agent, call->id, "ToolInterrupted", "interrupted",
                        RLM_STR("the run was stopped while this tool was at work, and goes on now; "
                                "what the tool did is not known, and it was not called again"));
        return true;
    }
    return false;
}

static void
perform(struct rlm_agent *agent, const struct rlm_host_call *call, const struct rlm_past_call *was)
{
    struct rlm_tool *tool = rlm_tools_find(&agent->run->flow->tools, call->name);
    if (rlm_str_is(call->name, "done")) {
        done(agent, call);
    } else if (rlm_str_is(call->name, "launch_subagents")) {
        rlm_launch_begin(agent, call, was);
    } else if (rlm_str_is(call->name, "llm_query") || rlm_str_is(call->name, "llm_query_batched")) {
        rlm_query_begin(agent, call, was);
    } else if (rlm_str_is(call->name, "budget")) {
        budget(agent, call);
    } else if (rlm_str_is(call->name, "read_input")) {
        rlm_input_read_begin(agent, call);
    } else if (tool) {
        rlm_host_tool_begin(agent, call, tool);
    } else {
        raise_host_call(agent, call->id, "HostCallError", "unknown",
                        RLM_STR("no tool of this name is registered"));
    }
}

/* ---- gates ---- */

static void act_on(struct rlm_agent *agent,
                   const struct rlm_host_call *call,
                   const struct rlm_past_call *was,
                   const struct rlm_past_gate *said)
{
    if (said->decision == RLM_DECISION_ALLOW) {
        perform(agent, call, was);
    } else {
        raise_host_call(agent, call->id, "HostCallError", "rejected", said->text);
    }
}

/* Acts on the answer: the call that waited for it is gone then. */
static void pass_gate(struct rlm_call *gated)
{
    struct rlm_agent *agent = gated->agent;
    const struct rlm_past_call *was = gated->was;
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    struct rlm_host_call call = {.id = gated->id};
    struct rlm_past_gate said;
    const rlm_json *shown;
    rlm_gate *gate = rlm_steal(&gated->gate);
    said.decision = rlm_gate_decision(gate, &said.text);
    call.name = arena ? rlm_arena_copy(arena, rlm_str_of(gated->name)) : RLM_STR_NONE;
    call_free(gated);
    if (!call.name.ptr || rlm_json_parse(arena, rlm_gate_shown(gate), &shown, NULL) < 0) {
        no_memory(agent->run);
    } else {
        call.args = rlm_json_get(shown, "args");
        call.kwargs = rlm_json_get(shown, "kwargs");
        act_on(agent, &call, was, &said);
    }
    rlm_gate_give_up(&gate);
}

void rlm_calls_pass_gates(struct rlm_agent *agent)
{
    bool passed = false;
    for (size_t i = 0; i < agent->calls.len && !agent->run->stopping;) {
        struct rlm_call *call = agent->calls.items[i];
        if (call->kind == RLM_CALL_GATED && rlm_gate_is_answered(call->gate)) {
            pass_gate(call);
            passed = true;
            i = 0; /* `done` may have ended others */
        } else {
            i++;
        }
    }
    if (passed) {
        update_slot(agent);
    }
}

/* Asks host_call, then performs what it lets pass: now, or when it has answered. */
static void begin_at_gate(struct rlm_agent *agent,
                          const struct rlm_host_call *host_call,
                          struct rlm_past_call *was)
{
    if (was && was->gate.decision) {
        act_on(agent, host_call, was, &was->gate);
        return;
    }
    if (!agent->run->flow->hooks.host_call) {
        perform(agent, host_call, was);
        return;
    }
    rlm_auto_buf struct rlm_buf json = RLM_BUF(VALUE_MAX);
    struct rlm_call *call = rlm_call_new(agent, host_call, RLM_CALL_GATED, 0);
    if (!call) {
        return;
    }
    call->was = was;
    call->name = rlm_strndup(host_call->name.ptr, host_call->name.len);
    rlm_gate_put_arguments(&json, host_call);
    if (!call->name || json.status < 0) {
        no_memory(agent->run);
        return;
    }
    struct rlm_gate_subject subject = {
        .kind = RLM_GATE_HOST_CALL,
        .agent = agent,
        .call = host_call,
        .shown = rlm_buf_str(&json),
    };
    if (rlm_gate_ask(&call->gate, &subject) && rlm_gate_is_answered(call->gate)) {
        pass_gate(call);
    }
}

/* In a replay. True: it has been dealt with. */
static bool replay_call(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    bool dealt_with = rlm_replay_call(agent, call);
    const struct rlm_past_call *was = NULL;
    for (size_t i = 0; agent->again && i < agent->again->calls.len && !was; i++) {
        const struct rlm_past_call *other = agent->again->calls.items[i];
        was = other->made_as == call->id ? other : NULL;
    }
    if (was && !agent->run->stopping) {
        rlm_gate_check_call(agent, call, was->gate.decision ? &was->gate : NULL);
    }
    if (was && !dealt_with && was->gate.decision == RLM_DECISION_REJECT) {
        act_on(agent, call, was, &was->gate);
        return true;
    }
    /* What was never answered at its gate was never performed. */
    return dealt_with || (was && was->gated && !was->gate.decision);
}

static void begin(struct rlm_agent *agent, const struct rlm_host_call *call)
{
    struct rlm_tool *tool = rlm_tools_find(&agent->run->flow->tools, call->name);
    bool replayed = agent->run->replay != NULL;
    struct rlm_past_call *was =
        agent->again && !replayed ? rlm_past_match(agent->again, call) : NULL;
    int r;
    agent->last_call = call->id > agent->last_call ? call->id : agent->last_call;
    if (agent->answer) {
        raise_host_call(agent, call->id, "CellEnded", "answered",
                        RLM_STR("the answer was given already"));
    } else if ((r = rlm_record_call(agent, call, was ? was->id : 0)) == RLM_E_LIMIT) {
        raise_host_call(agent, call->id, "ValueError", "limit",
                        RLM_STR("the arguments of the call are more than 16 MiB (beside texts and "
                                "bytes of 64 KiB and more); pass large data as one str or bytes"));
    } else if (r < 0) {
        return;
    } else if (replayed) {
        if (!replay_call(agent, call)) {
            perform(agent, call, NULL);
        }
    } else if (!was || !answer_from_past(agent, call, was, tool)) {
        begin_at_gate(agent, call, was);
    }
}

void rlm_calls_begin(struct rlm_agent *agent, const struct rlm_host_call *calls, size_t n_calls)
{
    for (size_t i = 0;
         i < n_calls && !agent->run->stopping && (agent->session || agent->from_record); i++) {
        if (agent->calls.len >= CALLS_MAX) {
            raise_host_call(agent, calls[i].id, "HostCallError", "limit",
                            RLM_STR("too many host calls are open at once"));
        } else {
            begin(agent, &calls[i]);
        }
    }
    update_slot(agent);
}

void rlm_host_call_raise(struct rlm_agent *agent,
                         const struct rlm_host_call *call,
                         const char *type,
                         const char *reason,
                         rlm_str message)
{
    raise_host_call(agent, call->id, type, reason, message);
}
