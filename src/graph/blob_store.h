/* Inside of the blob store, shared by blob.c (the store), blob_write.c (values that come in pieces),
 * blob_import.c (files) and blob_wide.c (what a worker maps). Not for other modules.
 *
 * What is being written is a sink: a file under a temporary name, or a memfd. A sink becomes a blob
 * when its hash is known: the file is renamed, the memfd sealed and kept.
 */
#pragma once

#include "base/map.h"
#include "base/vec.h"
#include "graph/blob.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RLM_BLOB_NAME_SIZE = RLM_SHA256_HEX + 4 }; /* "HASH.w2" and a NUL */

/* One content. The same bytes may be known as a text and as bytes. */
struct blob_entry {
    struct rlm_blob facts[2]; /* by type: text, bytes */
    bool known[2];            /* false: imported, not yet registered */
    bool found[2];            /* the facts were found here while the content was stored, not read in
                               * a journal */
    bool ours;                /* the content was stored by this process */
    int fd;                   /* memfd, or -1 */
    int wide_fd;              /* memfd of the wide form, or -1 */
    bool widening;            /* a thread looks for the wide form, or derives it: others wait */
};

struct blob_name {
    char text[RLM_BLOB_NAME_SIZE];
};

struct rlm_blob_sync {
    rlm_blobs *blobs;
    struct blob_name *names;
    size_t n_names;
    bool synced;
};

struct rlm_blobs {
    unsigned more_holders; /* beside the one who opened it; loop thread only */
    pthread_mutex_t lock;  /* of all that follows; never held during I/O on contents */
    pthread_cond_t widened;
    char *directory; /* NULL: in memory */
    int dir_fd;      /* -1: in memory, or a run looked at that has no blobs */
    bool read_only;
    struct rlm_map entries;             /* id -> struct blob_entry */
    RLM_VEC(struct blob_name) unsynced; /* files that a power cut may take */
    struct rlm_blob_sync *next_sync;    /* there whenever `unsynced` is not empty */
    uint64_t disk_bytes;
    uint64_t next_temporary;
    atomic_bool write_failed;
};

struct blob_sink {
    rlm_blobs *blobs;
    int fd;
    char temporary[48]; /* the file's name; empty: a memfd */
    uint64_t size_bytes;
};

/* `in_memory` forces a memfd. */
int rlm_blob_sink_open(rlm_blobs *b, bool in_memory, struct blob_sink *ret_sink, rlm_error **err);
int rlm_blob_sink_write(struct blob_sink *s, const void *ptr, size_t len, rlm_error **err);
/* Removes what was written. Harmless after any of the calls below. */
void rlm_blob_sink_abort(struct blob_sink *s);
/* Seals a memfd and moves it out. */
int rlm_blob_sink_seal(struct blob_sink *s, int *ret_fd, rlm_error **err);
/* Gives a file its name; one that stands there whole is kept instead. */
int rlm_blob_sink_rename(struct blob_sink *s, const char *name, bool sync, rlm_error **err);
/* Makes the sink the blob of `facts`; found by rlm_blobs_find at once if `known`. */
int rlm_blob_sink_keep(struct blob_sink *s,
                       const struct rlm_blob *facts,
                       bool known,
                       const struct rlm_blob **ret_blob,
                       rlm_error **err);

/* Decides what was stored, from its bytes' hash and scan: fills all of `ret_facts` but the id.
 * RLM_E_PARSE for a text that is none. `*ret_bad_offset` is -1 unless AUTO gave bytes; -2 then says
 * that the fault is a lone surrogate at a place not known. */
int rlm_blob_judge(enum rlm_blob_type type,
                   const struct rlm_utf8_scan *scan,
                   uint64_t size_bytes,
                   struct rlm_blob *ret_facts,
                   int64_t *ret_bad_offset,
                   rlm_error **err);

/* A descriptor of the blob's own bytes for reading; the caller closes it. */
int rlm_blobs_open_content(rlm_blobs *b, rlm_str id, int *ret_fd, rlm_error **err);
/* A second, read-only description of an open file. -1 with errno. */
int rlm_fd_reopen(int fd);
