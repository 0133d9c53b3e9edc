/* A database of a run: the graph's agents and nodes, and what the records say of cells, calls and usage. */
#include "base/utf8.h"
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

struct database {
    struct rlm_export *x;
    struct sqlite_library lib;
    sqlite3 *db;
    sqlite3_stmt *prepared[N_STATEMENTS];
    rlm_arena *scratch; /* of one record */
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

static int put_usage(struct database *d,
                     const char *agent_id,
                     const char *kind,
                     int64_t node_seq,
                     const struct rlm_usage *u,
                     rlm_str model,
                     int64_t ask)
{
    return put_row(d, INSERT_USAGE, "ttninnnsiiiiiis", rlm_str_of(agent_id), rlm_str_of(kind), ask,
                   node_seq, (int64_t)0, (int64_t)0, (int64_t)0, model, u->calls, u->input_tokens,
                   u->cached_tokens, u->output_tokens, u->cost_nano, u->estimated, RLM_STR(""));
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
        r = put_usage(d, g->agent_id, "turn", node->seq, &node->usage, node->model, node->call_id);
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

/* Of an llm_query, or of an attempt without a reply. */
static int put_settled(struct database *d, const rlm_json *record)
{
    rlm_str reply;
    bool query = rlm_json_get(record, "reply") != NULL;
    int r = rlm_export_get_text(d->x, rlm_json_get(record, "reply"), d->scratch, &reply, d->err);
    return r < 0 ? r
                 : put_row(d, INSERT_USAGE, query ? "ttnniiisiiiiiit" : "ttnnnnnsiiiiiis",
                           text(record, "agent"), query ? RLM_STR("llm_query") : RLM_STR("attempt"),
                           number(record, "ask"), (int64_t)0, number(record, "cell"),
                           number(record, "call"), number(record, "part"), RLM_STR(""),
                           number(record, "calls"), number(record, "input_tokens"),
                           number(record, "cached_tokens"), number(record, "output_tokens"),
                           number(record, "cost_nano"), number(record, "estimated"), reply);
}

static int put_parts(struct database *d, enum rlm_record_kind kind, const rlm_json *record)
{
    switch (kind) {
    case RLM_RECORD_CELL_STARTED:
        return put_cell(d, record);
    case RLM_RECORD_CALL_STARTED:
        return put_call(d, record);
    case RLM_RECORD_CALL_FINISHED:
        return finish_call(d, record);
    case RLM_RECORD_CALL_DELIVERED:
        return deliver_calls(d, record);
    case RLM_RECORD_SETTLE:
        return put_settled(d, record);
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
    bool known = kind < _RLM_RECORD_MAX;
    r = put_row(d, INSERT_RECORD, "iisst", offset, (int64_t)kind,
                known ? rlm_str_of(record_names[kind]) : RLM_STR(""),
                r == 0 ? text(record, "agent") : RLM_STR(""), payload);
    return r < 0 || !known ? r : put_parts(d, kind, record);
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
        r = rlm_journal_read(d->x->journal, on_record, d, NULL, d->err);
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
    rlm_arena_free(d.scratch);
    return r;
}
