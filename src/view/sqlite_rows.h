/* The database file of an export: its tables, and one call for each row. docs/runs.md says what each column
 * means.
 *
 *     struct sqlite_rows rows;
 *     r = rlm_sqlite_open(&rows, path, err);
 *     if (r == 0) r = rlm_sqlite_close(&rows, put_all(&rows));
 */
#pragma once

#include "base/str.h"
#include "view/sqlite_library.h"

#include "rlmflow.h"

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

struct sqlite_rows {
    struct sqlite_library lib;
    sqlite3 *db;
    sqlite3_stmt *prepared[N_STATEMENTS];
    const char *path;
    rlm_error **err; /* of all calls */
};

/* Makes the file, with its tables; readable for its owner alone. After an error it is closed. */
int rlm_sqlite_open(struct sqlite_rows *d, const char *path, rlm_error **err);
/* Closes it; if all went well (`r` is 0), what it holds is committed and on disk. */
int rlm_sqlite_close(struct sqlite_rows *d, int r);
/* One row. `types` has a letter for each value: t a text (rlm_str), s a text that may be empty or absent
 * and is NULL then (rlm_str), i a number (int64_t), n the same, NULL when 0. */
int rlm_sqlite_put(struct sqlite_rows *d, enum statement_id id, const char *types, ...);
/* RLM_E_IO with what SQLite says. */
int rlm_sqlite_fail(struct sqlite_rows *d);
