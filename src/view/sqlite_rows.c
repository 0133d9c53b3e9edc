#include "view/sqlite_rows.h"

#include "base/error.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

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

int rlm_sqlite_fail(struct sqlite_rows *d)
{
    int number = d->db ? d->lib.system_errno(d->db) : 0;
    const char *message = d->db ? d->lib.errmsg(d->db) : "out of memory";
    return number
               ? rlm_error_set_errno(d->err, RLM_E_IO, number, "writing the database (%s)", message)
               : rlm_error_set(d->err, RLM_E_IO, "writing the database: %s", message);
}

/* Text that SQLite's own functions can take for UTF-8; what is none is a blob of the same bytes. */
static int bind_text(struct sqlite_rows *d, sqlite3_stmt *s, int index, rlm_str text)
{
    const char *ptr = text.ptr ? text.ptr : "";
    return rlm_utf8_valid(text)
               ? d->lib.bind_text64(s, index, ptr, text.len, SQLITE_STATIC, SQLITE_UTF8)
               : d->lib.bind_blob64(s, index, ptr, text.len, SQLITE_STATIC);
}

int rlm_sqlite_put(struct sqlite_rows *d, enum statement_id id, const char *types, ...)
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
    int r = code == SQLITE_DONE || code == SQLITE_OK ? 0 : rlm_sqlite_fail(d);
    d->lib.reset(s);
    return r;
}

/* SQLite would make it readable for others, as far as the umask goes. */
static int make_file(struct sqlite_rows *d)
{
    int fd = open(d->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return rlm_error_set_errno(d->err, RLM_E_IO, errno, "making the database");
    }
    close(fd);
    return 0;
}

static int sync_file(struct sqlite_rows *d)
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

static int open_database(struct sqlite_rows *d)
{
    if (d->lib.open_v2(d->path, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) !=
            SQLITE_OK ||
        d->lib.exec(d->db, schema, NULL, NULL, NULL) != SQLITE_OK) {
        return rlm_sqlite_fail(d);
    }
    for (int i = 0; i < N_STATEMENTS; i++) {
        if (d->lib.prepare_v2(d->db, statements[i], -1, &d->prepared[i], NULL) != SQLITE_OK) {
            return rlm_sqlite_fail(d);
        }
    }
    return 0;
}

int rlm_sqlite_open(struct sqlite_rows *d, const char *path, rlm_error **err)
{
    *d = (struct sqlite_rows){.path = path, .err = err};
    int r = rlm_sqlite_library_open(&d->lib, err);
    if (r < 0) {
        return r;
    }
    r = make_file(d);
    if (r == 0) {
        r = open_database(d);
    }
    return r < 0 ? rlm_sqlite_close(d, r) : 0;
}

int rlm_sqlite_close(struct sqlite_rows *d, int r)
{
    if (r == 0 && d->lib.exec(d->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        r = rlm_sqlite_fail(d);
    }
    for (int i = 0; i < N_STATEMENTS; i++) {
        d->lib.finalize(d->prepared[i]);
    }
    if (d->lib.close_v2(d->db) != SQLITE_OK && r == 0) {
        r = rlm_sqlite_fail(d);
    }
    return r == 0 ? sync_file(d) : r;
}
