/* libsqlite3, opened when a database is written: a program that writes none must not pay for loading it.
 * For sqlite_rows.c alone. */
#pragma once

#include "base/error.h"

#include <sqlite3.h>

struct sqlite_library {
    int (*open_v2)(const char *path, sqlite3 **ret_db, int flags, const char *vfs);
    int (*close_v2)(sqlite3 *db);
    int (*exec)(sqlite3 *db,
                const char *sql,
                int (*row)(void *, int, char **, char **),
                void *arg,
                char **ret_message);
    int (*prepare_v2)(sqlite3 *db,
                      const char *sql,
                      int bytes,
                      sqlite3_stmt **ret_statement,
                      const char **ret_tail);
    int (*bind_int64)(sqlite3_stmt *statement, int index, sqlite3_int64 value);
    int (*bind_null)(sqlite3_stmt *statement, int index);
    int (*bind_text64)(sqlite3_stmt *statement,
                       int index,
                       const char *text,
                       sqlite3_uint64 bytes,
                       void (*done)(void *),
                       unsigned char encoding);
    int (*bind_blob64)(sqlite3_stmt *statement,
                       int index,
                       const void *bytes,
                       sqlite3_uint64 size,
                       void (*done)(void *));
    int (*step)(sqlite3_stmt *statement);
    int (*reset)(sqlite3_stmt *statement);
    int (*finalize)(sqlite3_stmt *statement);
    const char *(*errmsg)(sqlite3 *db);
    int (*system_errno)(sqlite3 *db);
};

/* RLM_E_UNSUPPORTED says what is missing. */
int rlm_sqlite_library_open(struct sqlite_library *ret_library, rlm_error **err);
