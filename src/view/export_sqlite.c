/* A database of a run: the graph's agents and nodes, and what the records say of cells, calls and usage. */
#include "base/utf8.h"
#include "flow/past_edit.h"
#include "view/export.h"
#include "view/sqlite_library.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* docs/runs.md says what each column means. */
static const char schema[] =
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA user_version = 1; BEGIN;"
    "CREATE TABLE run (key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE agents (agent_id TEXT PRIMARY KEY, parent_id TEXT REFERENCES agents, name TEXT,"
    " position INTEGER, depth INTEGER, launch INTEGER, launch_part INTEGER, query TEXT, inputs TEXT,"
    " model TEXT, output_schema TEXT, turns INTEGER, reason TEXT, result TEXT);"
    "CREATE TABLE nodes (agent_id TEXT REFERENCES agents, seq INTEGER, node_id TEXT, type TEXT,"
    " time_us INTEGER, content TEXT, code TEXT, output TEXT, error TEXT, result TEXT, reason TEXT,"
    " model TEXT, call INTEGER, agents TEXT, metadata TEXT, PRIMARY KEY (agent_id, seq));"
    "CREATE TABLE cells (agent_id TEXT REFERENCES agents, cell INTEGER, session INTEGER,"
    " node_seq INTEGER, code TEXT, PRIMARY KEY (agent_id, cell));"
    "CREATE TABLE calls (agent_id TEXT REFERENCES agents, call INTEGER, cell INTEGER, name TEXT,"
    " args TEXT, kwargs TEXT, again INTEGER, value TEXT, error_type TEXT, error_reason TEXT,"
    " error_message TEXT, delivered INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (agent_id, call));"
    "CREATE TABLE usage (agent_id TEXT REFERENCES agents, kind TEXT, ask INTEGER, node_seq INTEGER,"
    " cell INTEGER, call INTEGER, part INTEGER, model TEXT, calls INTEGER, input_tokens INTEGER,"
    " cached_tokens INTEGER, output_tokens INTEGER, cost_nano INTEGER, estimated INTEGER, reply TEXT);"
    "CREATE INDEX usage_of_agent ON usage (agent_id);"
    "CREATE TABLE records (offset INTEGER PRIMARY KEY, kind INTEGER, name TEXT, agent_id TEXT,"
    " payload TEXT);";

enum statement_id {
    INSERT_RUN,
    INSERT_AGENT,
    INSERT_NODE,
    INSERT_CELL,
    INSERT_CALL,
    FINISH_CALL,
    DELIVER_CALL,
    INSERT_USAGE,
    INSERT_RECORD,
    N_STATEMENTS,
};

static const char *const statements[N_STATEMENTS] = {
    [INSERT_RUN] = "INSERT OR REPLACE INTO run VALUES (?, ?)",
    [INSERT_AGENT] = "INSERT INTO agents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_NODE] = "INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_CELL] = "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)",
    [INSERT_CALL] =
        "INSERT OR REPLACE INTO calls (agent_id, call, cell, name, args, kwargs, again) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
    [FINISH_CALL] =
        "UPDATE calls SET value = ?, error_type = ?, error_reason = ?, error_message = ? "
        "WHERE agent_id = ? AND call = ?",
    [DELIVER_CALL] = "UPDATE calls SET delivered = 1 WHERE agent_id = ? AND call = ?",
    [INSERT_USAGE] = "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [INSERT_RECORD] = "INSERT INTO records VALUES (?, ?, ?, ?, ?)",
};

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
    struct sqlite_library lib;
    sqlite3 *db;
    sqlite3_stmt *prepared[N_STATEMENTS];
    rlm_arena *scratch; /* of one record */
    struct rlm_undone_list undone;
    struct rlm_map replies; /* ids of the graph's llm_outputs */
    struct rlm_map asks; /* number of an ask that is not settled -> struct ask, in undone's arena */
    const char *path;
    rlm_error **err;
};

/* ---- rows ------------------------------------------------------------------------------------ */

static int fail(struct database *d)
{
    int number = d->db ? d->lib.system_errno(d->db) : 0;
    const char *message = d->db ? d->lib.errmsg(d->db) : "out of memory";
    return number
               ? rlm_error_set_errno(d->err, RLM_E_IO, number, "writing the database (%s)", message)
               : rlm_error_set(d->err, RLM_E_IO, "writing the database: %s", message);
}

/* Text that SQLite's own functions can take for UTF-8; what is none is a blob of the same bytes. */
static int bind_text(struct database *d, sqlite3_stmt *s, int index, rlm_str text)
{
    const char *ptr = text.ptr ? text.ptr : "";
    return rlm_utf8_valid(text)
               ? d->lib.bind_text64(s, index, ptr, text.len, SQLITE_STATIC, SQLITE_UTF8)
               : d->lib.bind_blob64(s, index, ptr, text.len, SQLITE_STATIC);
}

/* One row. `types` has a letter for each value: t a text (rlm_str), s a text that may be empty or absent
 * and is NULL then (rlm_str), i a number (int64_t), n the same, NULL when 0. */
static int put_row(struct database *d, enum statement_id id, const char *types, ...)
{
    sqlite3_stmt *s = d->prepared[id];
    int code = SQLITE_OK;
    va_list args;
    va_start(args, types);
    for (int i = 1; *types && code == SQLITE_OK; types++, i++) {
        if (*types == 't' || *types == 's') {
            rlm_str text = va_arg(args, rlm_str);
            code = *types == 's' && !text.len ? d->lib.bind_null(s, i) : bind_text(d, s, i, text);
        } else {
            int64_t number = va_arg(args, int64_t);
            code =
                *types == 'n' && !number ? d->lib.bind_null(s, i) : d->lib.bind_int64(s, i, number);
        }
    }
    va_end(args);
    if (code == SQLITE_OK) {
        code = d->lib.step(s);
    }
    int r = code == SQLITE_DONE || code == SQLITE_OK ? 0 : fail(d);
    d->lib.reset(s);
    return r;
}

static int put_fact(struct database *d, const char *key, rlm_str value)
{
    return put_row(d, INSERT_RUN, "ts", rlm_str_of(key), value);
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* A JSON text with its large values whole, in `buf`. */
static int whole(struct database *d, rlm_str json, struct rlm_buf *buf)
{
    struct rlm_json_writer w = {.buf = buf};
    rlm_buf_clear(buf);
    int r = json.len ? rlm_export_put_json(d->x, &w, json, d->err) : 0;
    return r < 0 ? r : rlm_buf_check(buf, d->err);
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
    return put_row(d, INSERT_USAGE, ask->query ? "ttnniiisiiiiiis" : "ttnnnnnsiiiiiis",
                   payer(d, ask->agent), rlm_str_of(kind), ask->number, node_seq, ask->cell,
                   ask->call, ask->part, ask->model, u->calls, u->input_tokens, u->cached_tokens,
                   u->output_tokens, u->cost_nano, u->estimated, reply);
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
    int r = rlm_buf_check(&agents, d->err);
    if (r == 0) {
        r = put_row(d, INSERT_NODE, "tittitssssssnss", rlm_str_of(g->agent_id), (int64_t)node->seq,
                    rlm_str_of(node->id), rlm_str_of(rlm_node_type_tag(node->type)), node->time_us,
                    node->content, node->code, node->output, node->error, node->result,
                    node->reason, node->model, node->call_id, rlm_buf_str(&agents), node->metadata);
    }
    if (r == 0 && node->type == RLM_LLM_OUTPUT) {
        struct ask ask = {
            .agent = rlm_str_of(g->agent_id), .model = node->model, .number = node->call_id};
        r = put_charge(d, "turn", &ask, node->seq, &node->usage, RLM_STR(""));
        if (r == 0 && rlm_map_set(&d->replies, rlm_str_of(node->id), d) < 0) {
            r = rlm_error_nomem(d->err);
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
        r = put_row(d, INSERT_AGENT, g->launch ? "tstiiiittssiss" : "tstiinnttssiss",
                    rlm_str_of(g->agent_id), g->parent ? rlm_str_of(g->parent->agent_id) : none,
                    rlm_str_of(g->name), (int64_t)g->index, (int64_t)g->depth, g->launch,
                    g->launch_part, g->query, rlm_buf_str(&inputs), g->model,
                    rlm_buf_str(&output_schema), (int64_t)g->turns, last ? last->reason : none,
                    last ? last->result : none);
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
    int r = value ? rlm_export_put_value(d->x, &w, value, d->err) : 0;
    return r < 0 ? r : rlm_buf_check(buf, d->err);
}

static int put_cell(struct database *d, const rlm_json *record)
{
    rlm_str code;
    int r = rlm_export_get_text(d->x, rlm_json_get(record, "code"), d->scratch, &code, d->err);
    return r < 0 ? r
                 : put_row(d, INSERT_CELL, "tiiit", text(record, "agent"), number(record, "cell"),
                           number(record, "session"), number(record, "node"), code);
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
                 : put_row(d, INSERT_CALL, "tiitssn", text(record, "agent"), number(record, "call"),
                           number(record, "cell"), text(record, "name"), rlm_buf_str(&args),
                           rlm_buf_str(&kwargs), number(record, "again"));
}

static int finish_call(struct database *d, const rlm_json *record)
{
    rlm_auto_buf struct rlm_buf value = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    const rlm_json *error = rlm_json_get(record, "error");
    const rlm_json *large = rlm_json_get(record, "value_text");
    rlm_str json;
    int r;
    if (large) {
        r = rlm_export_get_text(d->x, large, d->scratch, &json, d->err);
        if (r == 0) {
            r = whole(d, json, &value);
        }
    } else {
        r = member_json(d, record, "value", &value);
    }
    return r < 0 ? r
                 : put_row(d, FINISH_CALL, "ssssti", rlm_buf_str(&value), text(error, "type"),
                           text(error, "reason"), text(error, "message"), text(record, "agent"),
                           number(record, "call"));
}

static int deliver_calls(struct database *d, const rlm_json *record)
{
    const rlm_json *calls = rlm_json_get(record, "calls"), *id;
    int r = 0;
    for (size_t i = 0; r == 0 && (id = rlm_json_at(calls, i)) != NULL; i++) {
        r = put_row(d, DELIVER_CALL, "ti", text(record, "agent"), rlm_json_int(id, 0));
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
        return rlm_error_nomem(d->err);
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
    return fine ? 0 : rlm_error_nomem(d->err);
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
    int r = rlm_export_get_text(d->x, reply, d->scratch, &said, d->err);
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
    r = put_row(d, INSERT_RECORD, "iisst", offset, (int64_t)kind,
                known ? rlm_str_of(record_names[kind]) : RLM_STR(""), agent, payload);
    return r < 0 || !known || !read
               ? r
               : put_parts(d, kind, record, rlm_undone_has(&d->undone, agent, offset));
}

static int put_records(struct database *d)
{
    int r = rlm_undone_read(d->x->journal, &d->undone, d->err);
    if (r == 0) {
        r = rlm_journal_read(d->x->journal, on_record, d, NULL, d->err);
    }
    return r < 0 ? r : put_open_asks(d);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* SQLite would make it readable for others, as far as the umask goes. */
static int make_file(struct database *d)
{
    int fd = open(d->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return rlm_error_set_errno(d->err, RLM_E_IO, errno, "making the database");
    }
    close(fd);
    return 0;
}

static int sync_file(struct database *d)
{
    int fd = open(d->path, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 || fsync(fd) < 0
                ? rlm_error_set_errno(d->err, RLM_E_IO, errno, "writing the database")
                : 0;
    if (fd >= 0) {
        close(fd);
    }
    return r;
}

static int open_database(struct database *d)
{
    if (d->lib.open_v2(d->path, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) !=
            SQLITE_OK ||
        d->lib.exec(d->db, schema, NULL, NULL, NULL) != SQLITE_OK) {
        return fail(d);
    }
    for (int i = 0; i < N_STATEMENTS; i++) {
        if (d->lib.prepare_v2(d->db, statements[i], -1, &d->prepared[i], NULL) != SQLITE_OK) {
            return fail(d);
        }
    }
    return 0;
}

static int fill(struct database *d)
{
    int r = make_file(d);
    if (r == 0) {
        r = open_database(d);
    }
    if (r == 0) {
        r = put_facts(d);
    }
    for (rlm_graph *g = d->x->root; r == 0 && g; g = rlm_graph_next(d->x->root, g)) {
        r = put_agent(d, g);
    }
    /* What was imported has no records. */
    if (r == 0 && d->x->version.len) {
        r = put_records(d);
    }
    if (r == 0 && d->lib.exec(d->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        r = fail(d);
    }
    return r;
}

int rlm_export_sqlite(struct rlm_export *x, const char *part, rlm_error **err)
{
    struct database d = {.x = x, .path = part, .err = err, .scratch = rlm_arena_new(0)};
    int r = d.scratch ? rlm_sqlite_library_open(&d.lib, err) : rlm_error_nomem(err);
    if (r == 0) {
        r = fill(&d);
        for (int i = 0; i < N_STATEMENTS; i++) {
            d.lib.finalize(d.prepared[i]);
        }
        if (d.lib.close_v2(d.db) != SQLITE_OK && r == 0) {
            r = fail(&d);
        }
        if (r == 0) {
            r = sync_file(&d);
        }
    }
    rlm_map_deinit(&d.replies);
    rlm_map_deinit(&d.asks);
    rlm_undone_deinit(&d.undone);
    rlm_arena_free(d.scratch);
    return r;
}
