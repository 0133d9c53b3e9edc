/* The journal: an append-only log of framed records in a run's directory.
 *
 * A run is a directory NAME.rlm with `journal` and `blobs/`. The file starts with the eight bytes
 * "rlmflow\x01" (the last is the format version). A record is
 *
 *     u32 length of payload, u32 crc32c, u8 kind, payload          (little endian)
 *
 * and the CRC covers length, kind, payload and the record's offset in the file (as u64), in this
 * order, so that a record copied elsewhere is not valid there. Payloads are JSON objects (record.h).
 *
 * Appending is one write(2) on the loop's thread. Durability: an fdatasync on the pool at most one
 * second after an append, behind those of the blobs; with `sync`, rlm_journal_flush completes after
 * a (grouped) fdatasync of all that was appended before it.
 *
 * A bad record is a torn tail only if no valid record follows: it is cut when opened for writing,
 * and reported. Otherwise reading ends before it, with `damage` filled. Framing and reading are in
 * journal_scan.h.
 */
#pragma once

#include "base/loop.h"
#include "graph/blob.h"

enum rlm_record_kind {
    RLM_RECORD_RUN = 1,        /* what was asked, by which version, with which models and limits */
    RLM_RECORD_RESUMED,        /* the run goes on: by which version, with which options */
    RLM_RECORD_NODE,           /* append_node */
    RLM_RECORD_CHILD,          /* add_child */
    RLM_RECORD_INPUT_LIST,     /* the list of a directory input */
    RLM_RECORD_SESSION_OPENED, /* agent, seed, python, effects */
    RLM_RECORD_CELL_STARTED,   /* agent, cell, code as run */
    RLM_RECORD_CALL_STARTED,   /* agent, cell, call, name, arguments, key */
    RLM_RECORD_CALL_FINISHED,  /* agent, cell, call, value or error */
    RLM_RECORD_CALL_DELIVERED, /* agent, cell, calls in order of delivery */
    RLM_RECORD_RESERVE,        /* agent, call of a model, tokens and cost held */
    RLM_RECORD_SETTLE,         /* agent, call of a model, usage */
    RLM_RECORD_GATE,           /* who, when, what was shown, what was run */
    RLM_RECORD_SESSION_ENDED,  /* agent, why */
    RLM_RECORD_RUN_ENDED,      /* reason */
    RLM_RECORD_EDIT,           /* insert, replace, remove */
    RLM_RECORD_BLOB,           /* facts of a blob that later records name */
    _RLM_RECORD_MAX,
};

enum {
    RLM_RECORD_KIND_LIMIT = 64, /* kinds are below it, those of later programs too */
    RLM_RECORD_MAX_BYTES =
        16 * 1024 * 1024, /* a record may not be larger; larger values are blobs */
};

typedef struct rlm_journal rlm_journal;

struct rlm_journal_options {
    bool sync; /* a flush waits for its fdatasync */
};

/* Makes the directory (an existing path is RLM_E_EXISTS), the journal and blobs/, and locks it. `loop`
 * may be NULL: then only rlm_journal_close syncs. */
int rlm_journal_create(rlm_loop *loop,
                       const char *path,
                       const struct rlm_journal_options *options,
                       rlm_journal **ret_journal,
                       rlm_error **err);

/* What is wrong with a journal. */
struct rlm_journal_damage {
    int64_t offset;      /* of the first bad record; -1: none */
    int64_t lost_bytes;  /* from there to the end */
    int64_t valid_after; /* valid records found behind it: 0 means a torn tail */
};

/* Opens for appending, reading all of it before: locks (RLM_E_BUSY when a living process holds it),
 * cuts a torn tail. Damage before the end is RLM_E_CORRUPT unless `cut`, which gives up all from
 * there on. RLM_E_NOT_FOUND (no such path), RLM_E_PARSE (no run), RLM_E_VERSION, RLM_E_IO.
 * `ret_damage` (may be NULL) is filled in the case of RLM_E_CORRUPT too. */
int rlm_journal_open(rlm_loop *loop,
                     const char *path,
                     const struct rlm_journal_options *options,
                     bool cut,
                     rlm_journal **ret_journal,
                     struct rlm_journal_damage *ret_damage,
                     rlm_error **err);

/* Reads a run's records in order, without a lock: also one that is being written, up to the last
 * record that is whole. `record` returns 0 to go on, anything else ends the reading and is returned.
 * `ret_damage` may be NULL. */
typedef int (*rlm_journal_record)(
    void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err);
int rlm_journal_read(const char *path,
                     rlm_journal_record record,
                     void *arg,
                     struct rlm_journal_damage *ret_damage,
                     rlm_error **err);

/* Appends one record. RLM_E_LIMIT for one that is too large. On a failed write (a full disk) the file is cut back to the last whole record
 * and every later append fails with the same message: nothing may act on what was not written. */
int rlm_journal_append(rlm_journal *j, enum rlm_record_kind kind, rlm_str payload, rlm_error **err);

/* Gives up all from the record at `offset` on (where rlm_record_load failed). RLM_E_INVAL when no record
 * starts there. No flush may be outstanding. */
int rlm_journal_cut(rlm_journal *j, int64_t offset, rlm_error **err);

/* Completes on the loop when all that was appended before is on disk (with `sync`), or on the next
 * turn (without). `done` gets a negative code when the disk failed. Appends go on meanwhile. */
typedef void (*rlm_journal_flushed)(void *arg, int result);
int rlm_journal_flush(rlm_journal *j, rlm_journal_flushed done, void *arg, rlm_error **err);

rlm_blobs *rlm_journal_blobs(rlm_journal *j);
const char *rlm_journal_path(const rlm_journal *j);
/* The offset at which the next record will stand. */
int64_t rlm_journal_end(const rlm_journal *j);
/* Whether the path still names the file that is written: RLM_E_NOT_FOUND when it was removed or
 * replaced, RLM_E_IO when that cannot be found out. */
int rlm_journal_check_place(const rlm_journal *j, rlm_error **err);
/* Bytes of the run on disk, blobs included. */
uint64_t rlm_journal_disk_bytes(const rlm_journal *j);
uint64_t rlm_journal_records(const rlm_journal *j);

/* Nothing more will be appended: others may open it from now on. */
void rlm_journal_unlock(rlm_journal *j);
/* Syncs (blocking, also behind a sync on the pool), completes flushes, unlocks, closes. NULL allowed. */
void rlm_journal_close(rlm_journal *j);
/* Closes a run that never began and removes it from the disk. */
void rlm_journal_discard(rlm_journal *j);
