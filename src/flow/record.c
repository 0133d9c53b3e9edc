#include "flow/record.h"

#include "flow/ask.h"
#include "flow/call.h"
#include "flow/value.h"
#include "graph/record.h"

#include <inttypes.h>
#include <stdio.h>

/* Members of the records that flow writes (the others: graph/record.h). Each has "t", when it was written
 * (microseconds since 1970); in older runs RESUMED alone has it.
 *
 * SESSION_OPENED {"agent", "session", "seed", "effects", "restored": [cells of earlier
 *                sessions that run again in it], "ready": {...as the worker said}}
 * SESSION_ENDED  {"agent", "session", "reason", "message", "cell": that it ended in, or 0}
 * CELL_STARTED   {"agent", "session", "cell", "node": seq of its exec_action, "code",
 *                "recovered": {name: value}}
 * CALL_STARTED   {"agent", "cell", "call", "again": the id it had before a restore, "name", "key",
 *                "args", "kwargs"}    key: SHA-256 of the canonical JSON of [name, args, kwargs],
 *                blobs by their hash
 * CALL_FINISHED  {"agent", "cell", "call", "value"} or {..., "error": {"type", "reason", "message"}};
 *                "answer": the text that done() was given and that is accepted
 * CALL_DELIVERED {"agent", "cell", "calls": [ids in order]}
 * RESERVE        {"agent", "ask", "model", "turn", "final", "dropped", "cell", "call",
 *                 "part", "messages": hash,
 *                 "input_tokens", "output_tokens", "cost_nano"}    turn, or cell, call and part
 * SETTLE         {"agent", "ask", "calls", "input_tokens", "cached_tokens", "output_tokens",
 *                 "cost_nano", "estimated", "cell", "call", "part", "reply", "finish_reason", "shrunk"}
 *                 of an attempt that failed, or of an llm_query with its reply; that of a turn is
 *                 settled by its llm_output
 * GATE           {"agent", "gate": "exec_turn", "node": id of the llm_output}, or {..., "model_call", "ask",
 *                and "turn" or "cell", "call", "part"}, or {..., "host_call", "cell", "call"}; with
 *                "still_ms": how long max_time had stood still in this drive,
 *                "asked": {"t", "shown": not of host_call, whose CALL_STARTED says it},
 *                "answer": {"t", "who", "decision": "allow", "rewrite" or "reject", "text": the code that
 *                ran instead, or what was said}. A question that waits has a record without an answer; the
 *                one with its answer then has no "shown"
 * RESUMED        {"version", "elapsed_ms": of earlier drives, "options": {...}}
 * BLOB           {"id", "type", "size", "chars", "max_char"}
 * RUN_ENDED      {"reason", "message", "still_ms": as in GATE, "agents", "usage": {...of the whole tree}}
 */

enum { RECORD_MAX = RLM_RECORD_MAX_BYTES };

/* Ends a record: appends it, or fails the run. */
static int commit(rlm_run *run, enum rlm_record_kind kind, struct rlm_buf *buf)
{
    rlm_error *err = NULL;
    int r = rlm_buf_check(buf, &err);
    if (r == 0) {
        r = rlm_journal_append(run->journal, kind, rlm_buf_str(buf), &err);
    }
    if (r < 0) {
        rlm_run_fail(run, err);
    }
    return r;
}

static struct rlm_json_writer begin(struct rlm_buf *buf, const struct rlm_agent *agent)
{
    struct rlm_json_writer w = {.buf = buf};
    rlm_json_begin(&w, '{');
    if (agent) {
        rlm_json_member_text(&w, "agent", agent->graph->agent_id);
    }
    rlm_json_member_int(&w, "t", rlm_wall_us());
    return w;
}

/* A text member, as a blob when it is large. */
static int put_text(rlm_run *run, struct rlm_json_writer *w, const char *key, rlm_str text)
{
    rlm_error *err = NULL;
    rlm_json_key(w, key);
    int r = rlm_record_put_text(w, run->blobs, text, &err);
    if (r < 0) {
        rlm_run_fail(run, err);
    }
    return r;
}

int rlm_record_session(struct rlm_agent *agent,
                       const char *seed,
                       rlm_str ready_json,
                       const int64_t *restored,
                       size_t n_restored)
{
    if (!agent->run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, agent);
    rlm_json_member_int(&w, "session", agent->sessions);
    rlm_json_member_text(&w, "seed", seed);
    rlm_json_member_text(&w, "effects", rlm_runtime_effects(agent->run->flow->runtime));
    rlm_json_key(&w, "restored");
    rlm_json_begin(&w, '[');
    for (size_t i = 0; i < n_restored; i++) {
        rlm_json_put_int(&w, restored[i]);
    }
    rlm_json_end(&w, ']');
    rlm_json_member_raw(&w, "ready", ready_json);
    rlm_json_end(&w, '}');
    return commit(agent->run, RLM_RECORD_SESSION_OPENED, &buf);
}

int rlm_record_session_ended(struct rlm_agent *agent, const char *reason, rlm_str message)
{
    if (!agent->run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, agent);
    rlm_json_member_int(&w, "session", agent->sessions);
    rlm_json_member_text(&w, "reason", reason);
    rlm_json_member_str(&w, "message", message);
    rlm_json_member_int(&w, "cell", agent->cell_open ? agent->cell : 0);
    rlm_json_end(&w, '}');
    return commit(agent->run, RLM_RECORD_SESSION_ENDED, &buf);
}

int rlm_record_cell(struct rlm_agent *agent, const struct rlm_node *action, rlm_str recovered)
{
    if (!agent->run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, agent);
    rlm_json_member_int(&w, "session", agent->sessions);
    rlm_json_member_int(&w, "cell", agent->cell);
    rlm_json_member_int(&w, "node", action->seq);
    int r = put_text(agent->run, &w, "code", action->code);
    if (r == 0 && recovered.len) {
        r = put_text(agent->run, &w, "recovered", recovered);
    }
    if (r < 0) {
        return r;
    }
    rlm_json_end(&w, '}');
    return commit(agent->run, RLM_RECORD_CELL_STARTED, &buf);
}

int rlm_host_call_key(const struct rlm_host_call *call, char ret_key[RLM_SHA256_HEX + 1])
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_begin(&w, '[');
    rlm_json_put_str(&w, call->name);
    rlm_buf_addc(&buf, ',');
    rlm_json_canonical(&buf, call->args);
    rlm_buf_addc(&buf, ',');
    rlm_json_canonical(&buf, call->kwargs);
    rlm_json_end(&w, ']');
    if (buf.status == RLM_E_LIMIT) { /* refused, whatever it says: its name is enough */
        return rlm_sha256_of(call->name, ret_key);
    }
    return buf.status < 0 ? buf.status : rlm_sha256_of(rlm_buf_str(&buf), ret_key);
}

static void put_call(struct rlm_json_writer *w,
                     struct rlm_agent *agent,
                     const struct rlm_host_call *call,
                     int64_t again,
                     const char *key)
{
    rlm_json_member_int(w, "cell", agent->cell);
    rlm_json_member_int(w, "call", call->id);
    if (again) {
        rlm_json_member_int(w, "again", again);
    }
    rlm_json_member_str(w, "name", call->name);
    rlm_json_member_text(w, "key", key);
}

/* A call that is refused for its size stands in the journal without its arguments: a cell that runs
 * again makes it again. */
static int record_large_call(struct rlm_agent *agent,
                             const struct rlm_host_call *call,
                             int64_t again,
                             const char *key)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, agent);
    put_call(&w, agent, call, again, key);
    rlm_json_member_bool(&w, "large", true);
    rlm_json_end(&w, '}');
    int r = commit(agent->run, RLM_RECORD_CALL_STARTED, &buf);
    return r < 0 ? r : RLM_E_LIMIT;
}

int rlm_record_call(struct rlm_agent *agent, const struct rlm_host_call *call, int64_t again)
{
    rlm_run *run = agent->run;
    if (!run->journal) {
        return 0;
    }
    int r = rlm_record_blobs_of(run, call->args);
    if (r == 0) {
        r = rlm_record_blobs_of(run, call->kwargs);
    }
    if (r < 0) {
        return r;
    }
    char key[RLM_SHA256_HEX + 1];
    if ((r = rlm_host_call_key(call, key)) < 0) {
        rlm_error *err = NULL;
        rlm_error_set(&err, r, "hashing the arguments of a host call");
        rlm_run_fail(run, err);
        return r;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, agent);
    put_call(&w, agent, call, again, key);
    rlm_json_key(&w, "args"), rlm_json_put(&w, call->args);
    rlm_json_key(&w, "kwargs"), rlm_json_put(&w, call->kwargs);
    rlm_json_end(&w, '}');
    return buf.status == RLM_E_LIMIT ? record_large_call(agent, call, again, key)
                                     : commit(run, RLM_RECORD_CALL_STARTED, &buf);
}

int rlm_record_answer(struct rlm_agent *agent, int64_t cell, const struct rlm_call_result *result)
{
    if (!agent->run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, agent);
    rlm_json_member_int(&w, "cell", cell);
    rlm_json_member_int(&w, "call", result->id);
    if (result->error_type) {
        rlm_json_key(&w, "error");
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "type", result->error_type);
        rlm_json_member_text(&w, "reason", result->error_reason);
        rlm_json_member_str(&w, "message", result->error_message);
        rlm_json_end(&w, '}');
    } else if (result->value_json.len >= RLM_BLOB_THRESHOLD) {
        /* JSON text, kept as a text: "value_text". */
        int r = put_text(agent->run, &w, "value_text", result->value_json);
        if (r < 0) {
            return r;
        }
    } else {
        rlm_json_member_raw(&w, "value", result->value_json);
    }
    if (agent->answer && !result->error_type) {
        int r = put_text(agent->run, &w, "answer", (rlm_str){agent->answer, agent->answer_len});
        if (r < 0) {
            return r;
        }
    }
    rlm_json_end(&w, '}');
    return commit(agent->run, RLM_RECORD_CALL_FINISHED, &buf);
}

int rlm_record_delivery(struct rlm_agent *agent)
{
    if (!agent->run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, agent);
    rlm_json_member_int(&w, "cell", agent->cell);
    rlm_json_key(&w, "calls");
    rlm_json_begin(&w, '[');
    for (size_t i = 0; i < agent->results.len; i++) {
        rlm_json_put_int(&w, agent->results.items[i].id);
    }
    rlm_json_end(&w, ']');
    rlm_json_end(&w, '}');
    return commit(agent->run, RLM_RECORD_CALL_DELIVERED, &buf);
}

/* What the model is asked for: a turn, or a prompt of a host call. */
static void put_purpose(struct rlm_json_writer *w, const struct rlm_ask_options *of)
{
    if (of->turn) {
        rlm_json_member_int(w, "turn", of->turn);
        if (of->final) {
            rlm_json_member_bool(w, "final", true);
        }
        if (of->agent->turns_dropped) {
            rlm_json_member_int(w, "dropped", of->agent->turns_dropped);
        }
        return;
    }
    const struct rlm_call *call = of->part->call;
    rlm_json_member_int(w, "cell", call->cell);
    rlm_json_member_int(w, "call", call->id);
    rlm_json_member_int(w, "part", of->part - call->parts);
}

int rlm_record_reserve(const struct rlm_ask_options *of,
                       int64_t ask,
                       uint64_t messages_hash,
                       const struct rlm_reservation *held)
{
    rlm_run *run = of->agent->run;
    if (!run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, of->agent);
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, messages_hash);
    rlm_json_member_int(&w, "ask", ask);
    put_purpose(&w, of);
    rlm_json_member_text(&w, "model", of->model->name);
    rlm_json_member_text(&w, "messages", hash);
    rlm_json_member_int(&w, "input_tokens", held->input_tokens);
    rlm_json_member_int(&w, "output_tokens", held->output_tokens);
    rlm_json_member_int(&w, "cost_nano", held->cost_nano);
    rlm_json_end(&w, '}');
    return commit(run, RLM_RECORD_RESERVE, &buf);
}

static void put_gate_subject(struct rlm_json_writer *w, const struct rlm_gate_subject *subject)
{
    switch (subject->kind) {
    case RLM_GATE_EXEC_TURN:
        rlm_json_member_text(w, "gate", "exec_turn");
        rlm_json_member_text(w, "node", subject->reply->id);
        break;
    case RLM_GATE_MODEL_CALL:
        rlm_json_member_text(w, "gate", "model_call");
        rlm_json_member_int(w, "ask", subject->ask);
        put_purpose(w, subject->of);
        break;
    case RLM_GATE_HOST_CALL:
        rlm_json_member_text(w, "gate", "host_call");
        rlm_json_member_int(w, "cell", subject->agent->cell);
        rlm_json_member_int(w, "call", subject->call->id);
        break;
    case RLM_GATE_MESSAGES:
    case RLM_GATE_NEXT_STEP:
        break; /* not journaled */
    }
}

int rlm_record_gate(const struct rlm_gate_subject *subject,
                    int64_t asked_us,
                    bool shown,
                    const struct rlm_gate_answer *answer)
{
    rlm_run *run = subject->agent->run;
    if (!run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, subject->agent);
    put_gate_subject(&w, subject);
    rlm_json_member_int(&w, "still_ms", rlm_run_still_ms(run));
    rlm_json_key(&w, "asked");
    rlm_json_begin(&w, '{');
    rlm_json_member_int(&w, "t", asked_us);
    int r = shown ? put_text(run, &w, "shown", subject->shown) : 0;
    rlm_json_end(&w, '}');
    if (r == 0 && answer) {
        rlm_json_key(&w, "answer");
        rlm_json_begin(&w, '{');
        rlm_json_member_int(&w, "t", rlm_wall_us());
        rlm_json_member_text(&w, "who", answer->who ? answer->who : "");
        rlm_json_member_text(&w, "decision", answer->decision);
        r = answer->text.len ? put_text(run, &w, "text", answer->text) : 0;
        rlm_json_end(&w, '}');
    }
    rlm_json_end(&w, '}');
    return r < 0 ? r : commit(run, RLM_RECORD_GATE, &buf);
}

int rlm_record_settle(const struct rlm_ask_options *of,
                      int64_t ask,
                      const struct rlm_usage *usage,
                      const struct rlm_chat_reply *reply,
                      bool shrunk)
{
    rlm_run *run = of->agent->run;
    if (!run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, of->agent);
    rlm_json_member_int(&w, "ask", ask);
    rlm_record_put_usage(&w, usage);
    if (reply) {
        put_purpose(&w, of);
        int r = put_text(run, &w, "reply", reply->text);
        if (r < 0) {
            return r;
        }
        rlm_json_member_str(&w, "finish_reason", reply->finish_reason);
        rlm_json_member_bool(&w, "shrunk", shrunk);
    }
    rlm_json_end(&w, '}');
    return commit(run, RLM_RECORD_SETTLE, &buf);
}

int rlm_record_blob(rlm_run *run, const struct rlm_blob *blob)
{
    rlm_str id = rlm_str_of(blob->id);
    if (!run->journal || rlm_map_has(&run->recorded_blobs, id)) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, NULL);
    rlm_json_member_text(&w, "id", blob->id);
    rlm_json_member_text(&w, "type", blob->type == RLM_BLOB_TEXT ? "text" : "bytes");
    rlm_json_member_int(&w, "size", (int64_t)blob->size_bytes);
    rlm_json_member_int(&w, "chars", (int64_t)blob->chars);
    rlm_json_member_int(&w, "max_char", blob->max_char);
    rlm_json_end(&w, '}');
    int r = commit(run, RLM_RECORD_BLOB, &buf);
    if (r == 0 && (r = rlm_map_set(&run->recorded_blobs, id, run)) < 0) {
        rlm_run_fail_no_memory(run);
    }
    return r;
}

int rlm_record_resumed(rlm_run *run)
{
    rlm_autofree char *options = rlm_record_options(run);
    if (!options) {
        rlm_run_fail_no_memory(run);
        return RLM_E_NOMEM;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, NULL);
    rlm_json_member_text(&w, "version", RLM_VERSION);
    rlm_json_member_int(&w, "elapsed_ms", run->earlier_ms);
    rlm_json_member_raw(&w, "options", rlm_str_of(options));
    rlm_json_end(&w, '}');
    return commit(run, RLM_RECORD_RESUMED, &buf);
}

static int record_found(void *run, const struct rlm_blob *blob)
{
    return rlm_record_blob(run, blob);
}

int rlm_record_blobs_of(rlm_run *run, const rlm_json *value)
{
    return rlm_value_blobs(run, value, record_found, run);
}

int rlm_record_end(rlm_run *run)
{
    if (!run->journal) {
        return 0;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = begin(&buf, NULL);
    rlm_json_member_text(&w, "reason", run->reason);
    rlm_json_member_text(&w, "message", rlm_run_message(run));
    rlm_json_member_int(&w, "still_ms", rlm_run_still_ms(run));
    struct rlm_usage usage = rlm_graph_usage(run->root, true);
    rlm_json_member_int(&w, "agents", (int64_t)rlm_graph_agent_count(run->root));
    rlm_json_key(&w, "usage");
    rlm_json_begin(&w, '{');
    rlm_record_put_usage(&w, &usage);
    rlm_json_end(&w, '}');
    rlm_json_end(&w, '}');
    rlm_autoerr rlm_error *err = NULL;
    return rlm_journal_append(run->journal, RLM_RECORD_RUN_ENDED, rlm_buf_str(&buf), &err);
}

/* The members of "limits". */
static const struct limit {
    const char *name;
    size_t offset;
    bool wide; /* int64_t, else int */
} limit_table[] = {
    {"max_depth", offsetof(struct rlm_limits, max_depth), false},
    {"max_iters", offsetof(struct rlm_limits, max_iters), false},
    {"child_max_iters", offsetof(struct rlm_limits, child_max_iters), false},
    {"max_budget", offsetof(struct rlm_limits, max_budget), true},
    {"max_cost_nano", offsetof(struct rlm_limits, max_cost_nano), true},
    {"max_time_ms", offsetof(struct rlm_limits, max_time_ms), true},
    {"max_output_length", offsetof(struct rlm_limits, max_output_length), false},
    {"max_query_chars", offsetof(struct rlm_limits, max_query_chars), false},
    {"max_messages", offsetof(struct rlm_limits, max_messages), false},
    {"max_output_tokens", offsetof(struct rlm_limits, max_output_tokens), false},
    {"request_timeout_ms", offsetof(struct rlm_limits, request_timeout_ms), true},
    {"exec_timeout_ms", offsetof(struct rlm_limits, exec_timeout_ms), true},
    {"cpu_time_ms", offsetof(struct rlm_limits, cpu_time_ms), true},
    {"workers", offsetof(struct rlm_limits, workers), false},
    {"max_live", offsetof(struct rlm_limits, max_live), false},
    {"max_agents", offsetof(struct rlm_limits, max_agents), false},
    {"max_input_bytes", offsetof(struct rlm_limits, max_input_bytes), true},
};

enum { N_LIMITS = sizeof limit_table / sizeof *limit_table };

static void put_limits(struct rlm_json_writer *w, const struct rlm_limits *limits)
{
    rlm_json_begin(w, '{');
    for (size_t i = 0; i < N_LIMITS; i++) {
        const char *at = (const char *)limits + limit_table[i].offset;
        rlm_json_member_int(w, limit_table[i].name,
                            limit_table[i].wide ? *(const int64_t *)(const void *)at
                                                : *(const int *)(const void *)at);
    }
    rlm_json_end(w, '}');
}

void rlm_record_get_limits(const rlm_json *options, struct rlm_limits *limits)
{
    const rlm_json *from = rlm_json_get(options, "limits");
    for (size_t i = 0; i < N_LIMITS; i++) {
        char *at = (char *)limits + limit_table[i].offset;
        const rlm_json *value = rlm_json_get(from, limit_table[i].name);
        if (value && limit_table[i].wide) {
            *(int64_t *)(void *)at = rlm_json_int(value, 0);
        } else if (value) {
            *(int *)(void *)at = (int)rlm_json_int(value, 0);
        }
    }
}

char *rlm_record_options(const rlm_run *run)
{
    const rlm_flow *flow = run->flow;
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RECORD_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_begin(&w, '{');
    rlm_json_key(&w, "limits"), put_limits(&w, &flow->limits);
    rlm_json_key(&w, "models");
    rlm_json_begin(&w, '{');
    for (size_t i = 0; i < flow->models.len; i++) {
        const struct rlm_flow_model *m = flow->models.items[i];
        rlm_json_key(&w, m->name);
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "name", rlm_model_name(m->model));
        rlm_json_member_text(&w, "address", rlm_model_address(m->model));
        rlm_json_end(&w, '}');
    }
    rlm_json_end(&w, '}');
    rlm_json_member_text(&w, "child_model", flow->child_model->name);
    rlm_json_member_text(&w, "runtime", rlm_runtime_name(flow->runtime));
    rlm_json_key(&w, "tools");
    rlm_json_begin(&w, '[');
    for (size_t i = 0; i < flow->tools.list.len; i++) {
        rlm_json_put_text(&w, flow->tools.list.items[i]->name);
    }
    rlm_json_end(&w, ']');
    rlm_json_member_text(&w, "system_prompt", flow->system_prompt);
    if (run->program) {
        rlm_json_member_raw(&w, "program", rlm_str_of(run->program));
    }
    rlm_json_end(&w, '}');
    return rlm_buf_take(&buf);
}
