/* A database of a run: the graph's agents and nodes, and what the records say of cells, calls and usage. */
#include "flow/past_edit.h"
#include "view/export.h"
#include "view/sqlite_rows.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const record_names[] = {
    [RLM_RECORD_RUN] = "run",
    [RLM_RECORD_RESUMED] = "resumed",
    [RLM_RECORD_NODE] = "node",
    [RLM_RECORD_CHILD] = "child",
    [RLM_RECORD_INPUT_LIST] = "input_list",
    [RLM_RECORD_SESSION_OPENED] = "session_opened",
    [RLM_RECORD_CELL_STARTED] = "cell_started",
    [RLM_RECORD_CALL_STARTED] = "call_started",
    [RLM_RECORD_CALL_FINISHED] = "call_finished",
    [RLM_RECORD_CALL_DELIVERED] = "call_delivered",
    [RLM_RECORD_RESERVE] = "reserve",
    [RLM_RECORD_SETTLE] = "settle",
    [RLM_RECORD_GATE] = "gate",
    [RLM_RECORD_SESSION_ENDED] = "session_ended",
    [RLM_RECORD_RUN_ENDED] = "run_ended",
    [RLM_RECORD_EDIT] = "edit",
    [RLM_RECORD_BLOB] = "blob",
};

/* A model call that was reserved. */
struct ask {
    rlm_str agent, model;
    int64_t number, cell, call, part;
    bool query; /* else of a turn */
    struct rlm_usage held;
};

struct database {
    struct rlm_export *x;
    struct sqlite_rows rows;
    rlm_arena *scratch; /* of one record */
    struct rlm_undone_list undone;
    struct rlm_map replies; /* ids of the graph's llm_outputs */
    struct rlm_map asks; /* number of an ask that is not settled -> struct ask, in undone's arena */
};

/* ---- the graph ------------------------------------------------------------------------------- */

static int put_fact(struct database *d, const char *key, rlm_str value)
{
    return rlm_sqlite_put(&d->rows, INSERT_RUN, "ts", rlm_str_of(key), value);
}

/* A JSON text with its large values whole, in `buf`. */
static int whole(struct database *d, rlm_str json, struct rlm_buf *buf)
{
    struct rlm_json_writer w = {.buf = buf};
    rlm_buf_clear(buf);
    int r = json.len ? rlm_export_put_json(d->x, &w, json, d->rows.err) : 0;
    return r < 0 ? r : rlm_buf_check(buf, d->rows.err);
}

/* What an agent spent that was taken out is its parent's. */
static rlm_str payer(struct database *d, rlm_str agent_id)
{
    while (agent_id.len && !rlm_map_has(&d->x->root->agents, agent_id)) {
        const char *dot = memrchr(agent_id.ptr, '.', agent_id.len);
        agent_id.len = dot ? (size_t)(dot - agent_id.ptr) : 0;
    }
    return agent_id.len ? agent_id : rlm_str_of(d->x->root->agent_id);
}

/* What was charged for an ask: at a node (0: none; a reply is never the first), or in a call. */
static int put_charge(struct database *d,
                      const char *kind,
                      const struct ask *ask,
                      int64_t node_seq,
                      const struct rlm_usage *u,
                      rlm_str reply)
{
    return rlm_sqlite_put(&d->rows, INSERT_USAGE,
                          ask->query ? "ttnniiisiiiiiis" : "ttnnnnnsiiiiiis", payer(d, ask->agent),
                          rlm_str_of(kind), ask->number, node_seq, ask->cell, ask->call, ask->part,
                          ask->model, u->calls, u->input_tokens, u->cached_tokens, u->output_tokens,
                          u->cost_nano, u->estimated, reply);
}

static int put_node(struct database *d, const rlm_graph *g, const struct rlm_node *node)
{
    rlm_auto_buf struct rlm_buf agents = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    struct rlm_json_writer w = {.buf = &agents};
    if (node->n_agents) {
        rlm_json_begin(&w, '[');
        for (size_t i = 0; i < node->n_agents; i++) {
            rlm_json_put_text(&w, node->agents[i]);
        }
        rlm_json_end(&w, ']');
    }
    int r = rlm_buf_check(&agents, d->rows.err);
    if (r == 0) {
        r = rlm_sqlite_put(&d->rows, INSERT_NODE, "tittitssssssnss", rlm_str_of(g->agent_id),
                           (int64_t)node->seq, rlm_str_of(node->id),
                           rlm_str_of(rlm_node_type_tag(node->type)), node->time_us, node->content,
                           node->code, node->output, node->error, node->result, node->reason,
                           node->model, node->call_id, rlm_buf_str(&agents), node->metadata);
    }
    if (r == 0 && node->type == RLM_LLM_OUTPUT) {
        struct ask ask = {
            .agent = rlm_str_of(g->agent_id), .model = node->model, .number = node->call_id};
        r = put_charge(d, "turn", &ask, node->seq, &node->usage, RLM_STR(""));
        if (r == 0 && rlm_map_set(&d->replies, rlm_str_of(node->id), d) < 0) {
            r = rlm_error_nomem(d->rows.err);
        }
    }
    return r;
}

static int put_agent(struct database *d, const rlm_graph *g)
{
    rlm_auto_buf struct rlm_buf inputs = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    rlm_auto_buf struct rlm_buf output_schema = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    int r = whole(d, g->inputs, &inputs);
    if (r == 0) {
        r = whole(d, g->output_schema, &output_schema);
    }
    if (r == 0) {
        const struct rlm_node *last = rlm_graph_finished(g) ? rlm_graph_current(g) : NULL;
        rlm_str none = RLM_STR("");
        r = rlm_sqlite_put(
            &d->rows, INSERT_AGENT, g->launch ? "tstiiiittssiss" : "tstiinnttssiss",
            rlm_str_of(g->agent_id), g->parent ? rlm_str_of(g->parent->agent_id) : none,
            rlm_str_of(g->name), (int64_t)g->index, (int64_t)g->depth, g->launch, g->launch_part,
            g->query, rlm_buf_str(&inputs), g->model, rlm_buf_str(&output_schema),
            (int64_t)g->turns, last ? last->reason : none, last ? last->result : none);
    }
    for (size_t i = 0; r == 0 && i < g->nodes.len; i++) {
        r = put_node(d, g, g->nodes.items[i]);
    }
    return r;
}

static int put_facts(struct database *d)
{
    struct rlm_export *x = d->x;
    const rlm_graph *root = x->root;
    char started[24] = "";
    if (x->started_us) {
        snprintf(started, sizeof started, "%" PRId64, x->started_us);
    }
    const struct {
        const char *key;
        rlm_str value;
    } facts[] = {
        {"graph_id", rlm_str_of(rlm_graph_id(root))},
        {"version", RLM_STR(RLM_VERSION)},
        {"run_version", x->version},
        {"started_us", rlm_str_of(started)},
        {"options", x->options},
        {"reason", rlm_graph_reason(root)},
        {"answer", rlm_graph_result(root)},
        {"note", rlm_str_of(x->note)},
    };
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof facts / sizeof *facts; i++) {
        r = put_fact(d, facts[i].key, facts[i].value);
    }
    return r;
}

/* ---- records --------------------------------------------------------------------------------- */

static int64_t number(const rlm_json *record, const char *key)
{
    return rlm_json_int(rlm_json_get(record, key), 0);
}

static rlm_str text(const rlm_json *record, const char *key)
{
    return rlm_json_text(rlm_json_get(record, key), RLM_STR(""));
}

/* A member as JSON with large values whole; absent: empty. */
static int
member_json(struct database *d, const rlm_json *record, const char *key, struct rlm_buf *buf)
{
    struct rlm_json_writer w = {.buf = buf};
    const rlm_json *value = rlm_json_get(record, key);
    int r = value ? rlm_export_put_value(d->x, &w, value, d->rows.err) : 0;
    return r < 0 ? r : rlm_buf_check(buf, d->rows.err);
}

static int put_cell(struct database *d, const rlm_json *record)
{
    rlm_str code;
    int r = rlm_export_get_text(d->x, rlm_json_get(record, "code"), d->scratch, &code, d->rows.err);
    return r < 0 ? r
                 : rlm_sqlite_put(&d->rows, INSERT_CELL, "tiiit", text(record, "agent"),
                                  number(record, "cell"), number(record, "session"),
                                  number(record, "node"), code);
}

static int put_call(struct database *d, const rlm_json *record)
{
    rlm_auto_buf struct rlm_buf args = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    rlm_auto_buf struct rlm_buf kwargs = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    int r = member_json(d, record, "args", &args);
    if (r == 0) {
        r = member_json(d, record, "kwargs", &kwargs);
    }
    return r < 0 ? r
                 : rlm_sqlite_put(&d->rows, INSERT_CALL, "tiitssn", text(record, "agent"),
                                  number(record, "call"), number(record, "cell"),
                                  text(record, "name"), rlm_buf_str(&args), rlm_buf_str(&kwargs),
                                  number(record, "again"));
}

static int finish_call(struct database *d, const rlm_json *record)
{
    rlm_auto_buf struct rlm_buf value = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    const rlm_json *error = rlm_json_get(record, "error");
    const rlm_json *large = rlm_json_get(record, "value_text");
    rlm_str json;
    int r;
    if (large) {
        r = rlm_export_get_text(d->x, large, d->scratch, &json, d->rows.err);
        if (r == 0) {
            r = whole(d, json, &value);
        }
    } else {
        r = member_json(d, record, "value", &value);
    }
    return r < 0
               ? r
               : rlm_sqlite_put(&d->rows, FINISH_CALL, "ssssti", rlm_buf_str(&value),
                                text(error, "type"), text(error, "reason"), text(error, "message"),
                                text(record, "agent"), number(record, "call"));
}

static int deliver_calls(struct database *d, const rlm_json *record)
{
    const rlm_json *calls = rlm_json_get(record, "calls"), *id;
    int r = 0;
    for (size_t i = 0; r == 0 && (id = rlm_json_at(calls, i)) != NULL; i++) {
        r = rlm_sqlite_put(&d->rows, DELIVER_CALL, "ti", text(record, "agent"),
                           rlm_json_int(id, 0));
    }
    return r;
}

/* ---- usage that no node of the graph has ----------------------------------------------------- */

struct ask_key {
    char text[24];
};

static rlm_str ask_key(const rlm_json *record, const char *member, struct ask_key *key)
{
    int len = snprintf(key->text, sizeof key->text, "%" PRId64, number(record, member));
    return (rlm_str){key->text, (size_t)len};
}

static struct rlm_usage usage_of(const rlm_json *from)
{
    return (struct rlm_usage){
        .calls = number(from, "calls"),
        .input_tokens = number(from, "input_tokens"),
        .cached_tokens = number(from, "cached_tokens"),
        .output_tokens = number(from, "output_tokens"),
        .cost_nano = number(from, "cost_nano"),
        .estimated = number(from, "estimated"),
    };
}

static void set_call(struct ask *ask, const rlm_json *record)
{
    ask->query = true;
    ask->cell = number(record, "cell");
    ask->call = number(record, "call");
    ask->part = number(record, "part");
}

static int reserve(struct database *d, const rlm_json *record)
{
    struct ask_key key;
    rlm_arena *a = d->undone.arena;
    struct ask *ask = rlm_arena_alloc(a, sizeof *ask);
    if (!ask) {
        return rlm_error_nomem(d->rows.err);
    }
    *ask = (struct ask){
        .agent = rlm_arena_copy(a, text(record, "agent")),
        .model = rlm_arena_copy(a, text(record, "model")),
        .number = number(record, "ask"),
        .held = usage_of(record),
    };
    if (rlm_json_get(record, "call")) {
        set_call(ask, record);
    }
    ask->held.calls = ask->held.estimated = 1;
    bool fine = ask->agent.ptr && ask->model.ptr &&
                rlm_map_set(&d->asks, ask_key(record, "ask", &key), ask) == 0;
    return fine ? 0 : rlm_error_nomem(d->rows.err);
}

/* Of an llm_query, or of an attempt without a reply. What charges nothing has no row. */
static int settle(struct database *d, const rlm_json *record, bool undone)
{
    static const struct rlm_usage nothing;
    struct ask_key key;
    const struct ask *reserved = rlm_map_remove(&d->asks, ask_key(record, "ask", &key));
    struct rlm_usage usage = usage_of(record);
    const rlm_json *reply = rlm_json_get(record, "reply");
    const char *kind = undone ? "removed" : reply ? "llm_query" : "attempt";
    struct ask ask = {
        .agent = text(record, "agent"),
        .model = reserved ? reserved->model : RLM_STR(""),
        .number = number(record, "ask"),
    };
    rlm_str said;
    if (reply && !undone) {
        set_call(&ask, record);
    }
    if (memcmp(&usage, &nothing, sizeof usage) == 0 && !reply) {
        return 0;
    }
    int r = rlm_export_get_text(d->x, reply, d->scratch, &said, d->rows.err);
    return r < 0 ? r : put_charge(d, kind, &ask, 0, &usage, said);
}

/* A node, of NODE or of EDIT: the usage of a reply that is no longer in the graph. */
static int reply_came(struct database *d, const rlm_json *record)
{
    struct ask_key key;
    if (!rlm_str_is(text(record, "type"), "llm_output")) {
        return 0;
    }
    rlm_map_remove(&d->asks, ask_key(record, "call_id", &key));
    if (rlm_map_has(&d->replies, text(record, "id"))) {
        return 0;
    }
    struct rlm_usage usage = usage_of(rlm_json_get(record, "usage"));
    struct ask ask = {.agent = text(record, "agent"),
                      .model = text(record, "model"),
                      .number = number(record, "call_id")};
    return put_charge(d, "removed", &ask, 0, &usage, RLM_STR(""));
}

/* Asks of the run that was copied are not the copy's. */
static int edited(struct database *d, const rlm_json *record)
{
    if (rlm_str_is(text(record, "edit"), "fork")) {
        rlm_map_deinit(&d->asks);
        d->asks = (struct rlm_map){0};
    }
    return reply_came(d, record);
}

/* What is still held: `resume` charges it. */
static int put_open_asks(struct database *d)
{
    size_t pos = 0;
    rlm_str key;
    void *value;
    int r = 0;
    while (r == 0 && rlm_map_next(&d->asks, &pos, &key, &value)) {
        const struct ask *ask = value;
        r = put_charge(d, "open", ask, 0, &ask->held, RLM_STR(""));
    }
    return r;
}

/* ---- all records ----------------------------------------------------------------------------- */

static int
put_parts(struct database *d, enum rlm_record_kind kind, const rlm_json *record, bool undone)
{
    switch (kind) {
    case RLM_RECORD_CELL_STARTED:
        return undone ? 0 : put_cell(d, record);
    case RLM_RECORD_CALL_STARTED:
        return undone ? 0 : put_call(d, record);
    case RLM_RECORD_CALL_FINISHED:
        return undone ? 0 : finish_call(d, record);
    case RLM_RECORD_CALL_DELIVERED:
        return undone ? 0 : deliver_calls(d, record);
    case RLM_RECORD_RESERVE:
        return reserve(d, record);
    case RLM_RECORD_SETTLE:
        return settle(d, record, undone);
    case RLM_RECORD_NODE:
        return reply_came(d, record);
    case RLM_RECORD_EDIT:
        return edited(d, record);
    default:
        return 0;
    }
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct database *d = arg;
    const rlm_json *record;
    rlm_arena_reset(d->scratch);
    int r = rlm_json_parse(d->scratch, payload, &record, NULL);
    if (r == RLM_E_NOMEM) {
        return rlm_error_nomem(err);
    }
    bool known = kind < _RLM_RECORD_MAX, read = r == 0;
    rlm_str agent = read ? text(record, "agent") : RLM_STR("");
    r = rlm_sqlite_put(&d->rows, INSERT_RECORD, "iisst", offset, (int64_t)kind,
                       known ? rlm_str_of(record_names[kind]) : RLM_STR(""), agent, payload);
    return r < 0 || !known || !read
               ? r
               : put_parts(d, kind, record, rlm_undone_has(&d->undone, agent, offset));
}

static int put_records(struct database *d)
{
    int r = rlm_undone_read(d->x->journal, &d->undone, d->rows.err);
    if (r == 0) {
        r = rlm_journal_read(d->x->journal, on_record, d, NULL, d->rows.err);
    }
    return r < 0 ? r : put_open_asks(d);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int fill(struct database *d)
{
    int r = put_facts(d);
    for (rlm_graph *g = d->x->root; r == 0 && g; g = rlm_graph_next(d->x->root, g)) {
        r = put_agent(d, g);
    }
    /* What was imported has no records. */
    return r == 0 && d->x->version.len ? put_records(d) : r;
}

int rlm_export_sqlite(struct rlm_export *x, const char *part, rlm_error **err)
{
    struct database d = {.x = x, .scratch = rlm_arena_new(0)};
    int r = d.scratch ? rlm_sqlite_open(&d.rows, part, err) : rlm_error_nomem(err);
    if (r == 0) {
        r = rlm_sqlite_close(&d.rows, fill(&d));
    }
    rlm_map_deinit(&d.replies);
    rlm_map_deinit(&d.asks);
    rlm_undone_deinit(&d.undone);
    rlm_arena_free(d.scratch);
    return r;
}
