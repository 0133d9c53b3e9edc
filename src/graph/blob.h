/* Blobs: values of 64 KiB and more, stored once, named by the SHA-256 of their bytes.
 *
 * On disk a blob is a file DIR/HASH (mode 0400), written whole under a temporary name and renamed.
 * A text blob is WTF-8; when it is not pure ASCII its 1-, 2- or 4-byte form (what a worker maps as
 * the characters of a Python `str`) is a derived file HASH.w1, .w2 or .w4, not synced, remade when
 * missing. Without a directory (a run in memory) blobs are sealed memfds.
 *
 * A directory has one owning store (the journal's lock sees to it). Its calls may come from any
 * thread; those marked "pool" take the time of reading or writing a whole content, as do the writer's
 * and rlm_blobs_put for a large value: not on the loop's thread.
 */
#pragma once

#include "base/error.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/utf8.h"

#include <stdatomic.h>
#include <stdint.h>

/* Values from this size on are stored as blobs wherever a value can be one. */
enum { RLM_BLOB_THRESHOLD = 64 * 1024 };

enum rlm_blob_type {
    RLM_BLOB_TEXT,
    RLM_BLOB_BYTES,
    RLM_BLOB_AUTO, /* only as an argument: text if it is UTF-8, else bytes */
};

struct rlm_blob {
    char id[RLM_SHA256_HEX + 1];
    enum rlm_blob_type type;
    uint64_t size_bytes; /* of the WTF-8 or the bytes */
    uint64_t chars;      /* text: code points */
    uint32_t max_char;   /* text: 0x7f, 0xff, 0xffff or 0x10ffff, as struct rlm_utf8_scan */
};

typedef struct rlm_blobs rlm_blobs;

/* `directory` is made if missing (0700), what a killed process left (temporary and derived files) is
 * removed; NULL: in memory. */
int rlm_blobs_open(const char *directory, rlm_blobs **ret_blobs, rlm_error **err);
/* For looking at a run, also one that is being written: makes and removes nothing there; a directory
 * that is missing has no blobs. New blobs are in memory. */
int rlm_blobs_open_to_view(const char *directory, rlm_blobs **ret_blobs, rlm_error **err);
/* Another holder of the store, who also frees it: it goes with the last one. Work of the pool outlives
 * those who asked for it. Loop thread only. */
rlm_blobs *rlm_blobs_ref(rlm_blobs *b);
void rlm_blobs_free(rlm_blobs *b);

/* What is known of a blob: of those put or registered in this process. NULL if unknown. Bytes that are
 * known both as a text and as bytes are found as the text. */
const struct rlm_blob *rlm_blobs_find(const rlm_blobs *b, rlm_str id);
/* Makes a blob known that was imported or that a journal names. Its file must exist
 * (RLM_E_NOT_FOUND) and have the size (RLM_E_CORRUPT); the other facts are believed. */
int rlm_blobs_register(rlm_blobs *b, const struct rlm_blob *facts, rlm_error **err);

/* Stores a value whole. `*ret_blob` is borrowed from the store and lives as long as it. */
int rlm_blobs_put(rlm_blobs *b,
                  enum rlm_blob_type type,
                  rlm_str value,
                  const struct rlm_blob **ret_blob,
                  rlm_error **err);

/* Stores a value that comes in pieces. A text that is not WTF-8 is RLM_E_PARSE at the end; more than
 * `max_bytes` is RLM_E_LIMIT, after which only an abort makes sense. */
typedef struct rlm_blob_writer rlm_blob_writer;
int rlm_blob_writer_new(rlm_blobs *b,
                        enum rlm_blob_type type,
                        uint64_t max_bytes,
                        rlm_blob_writer **ret_writer,
                        rlm_error **err);
int rlm_blob_writer_add(rlm_blob_writer *w, const void *ptr, size_t len, rlm_error **err);
/* Frees the writer in every case. */
int rlm_blob_writer_finish(rlm_blob_writer *w, const struct rlm_blob **ret_blob, rlm_error **err);
void rlm_blob_writer_abort(rlm_blob_writer *w);

/* What ends a taking in before its time: RLM_E_LIMIT after `max_bytes`, RLM_E_CANCELED soon after
 * another thread has set `*canceled`. */
struct rlm_import_bounds {
    uint64_t max_bytes;
    const atomic_bool *canceled;
};
/* Takes a file in (pool; blocking): cloned where the file system can, else copied, hashed and
 * scanned in one pass over its bytes. `facts` is filled; it becomes known by rlm_blobs_register on
 * the loop thread. `fd` is read from its beginning if it can seek, else (a pipe) to its end, both
 * within `bounds` (NULL: none). With AUTO, `*ret_bad_offset` (may be NULL) says where it ceased to be
 * UTF-8, or is -1. */
int rlm_blobs_import(rlm_blobs *b,
                     int fd,
                     enum rlm_blob_type type,
                     const struct rlm_import_bounds *bounds,
                     struct rlm_blob *ret_facts,
                     int64_t *ret_bad_offset,
                     rlm_error **err);

/* A read-only descriptor of the blob as a worker maps it (pool; may have to derive the wide form):
 * `*ret_width` is 1, 2 or 4 bytes a code point (1 also for bytes), `*ret_ascii` whether pure ASCII.
 * The caller closes it. */
int rlm_blobs_open_mapped(rlm_blobs *b,
                          const struct rlm_blob *blob,
                          int *ret_fd,
                          int *ret_width,
                          bool *ret_ascii,
                          rlm_error **err);

/* Reads a blob whole (pool) and compares it with its name: RLM_E_CORRUPT. For what is mapped and never
 * read; who reads a value of a record has compared it. */
int rlm_blobs_check(rlm_blobs *b, rlm_str id, rlm_error **err);

/* Appends the blob's WTF-8 or bytes to `out`. */
int rlm_blobs_read(rlm_blobs *b, rlm_str id, struct rlm_buf *out, rlm_error **err);
/* Appends at most `count` bytes from `start`: a preview without reading a gigabyte. */
int rlm_blobs_read_range(
    rlm_blobs *b, rlm_str id, uint64_t start, size_t count, struct rlm_buf *out, rlm_error **err);

/* Bytes on disk of all blobs and derived files (0 in memory). */
uint64_t rlm_blobs_disk_bytes(const rlm_blobs *b);
/* A write has failed (a full disk, a directory that is gone): the run cannot keep its values, and what
 * the error says names a path of the host. Other errors are of what was to be stored. */
bool rlm_blobs_write_failed(const rlm_blobs *b);

/* For the journal's durability: syncs all blobs written since the last call, and the directory
 * (pool). A snapshot is taken first on the loop thread. */
typedef struct rlm_blob_sync rlm_blob_sync;
rlm_blob_sync *rlm_blobs_sync_begin(rlm_blobs *b);         /* NULL when there is nothing to sync */
int rlm_blobs_sync_run(rlm_blob_sync *s, rlm_error **err); /* pool */
void rlm_blobs_sync_end(rlm_blob_sync *s);
