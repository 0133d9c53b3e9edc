/* Taking a file in. What is hashed is what is stored: the clone, or what was written. The caller's
 * thread hashes; another reads, writes and scans, and never waits for it: what is written and not yet
 * hashed lies in the page cache. So the time is that of the slower of the two, also where other
 * programs keep the processors busy. */
#include "graph/blob_store.h"

#include "base/alloc.h"

#include <errno.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 512 * 1024,  /* stays in a core's cache */
    LARGE_BYTES = 1024 * 1024, /* from here on a second thread is worth its start */
};

struct import {
    struct blob_sink *sink;
    const struct rlm_import_bounds *bounds; /* NULL: none */
    int source;
    bool seekable; /* read from its beginning, whatever its position */
    bool write;    /* false: a clone, which is there already */
    bool scanned;
    bool alone; /* the one thread hashes too */
    uint64_t offset;
    rlm_sha256 *hash;
    struct rlm_utf8_scan scan;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    uint64_t stored; /* so many bytes of the sink can be hashed */
    bool ended;      /* the carrier has */
    bool given_up;   /* the hashing has */
    int status;      /* the carrier's */
    rlm_error *error;
};

static int read_piece(struct import *m, char *piece, size_t *ret_len, rlm_error **err)
{
    size_t len = 0;
    while (len < PIECE_BYTES) {
        ssize_t n = m->seekable ? pread(m->source, piece + len, PIECE_BYTES - len, (off_t)m->offset)
                                : read(m->source, piece + len, PIECE_BYTES - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "reading the file after %llu bytes",
                                       (unsigned long long)m->offset);
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
        m->offset += (uint64_t)n;
    }
    *ret_len = len;
    return 0;
}

/* Says how much is stored; false when nobody wants more. */
static bool announce(struct import *m)
{
    pthread_mutex_lock(&m->lock);
    m->stored = m->offset;
    bool wanted = !m->given_up;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return wanted;
}

static int check_bounds(const struct import *m, rlm_error **err)
{
    if (m->bounds && atomic_load_explicit(m->bounds->canceled, memory_order_relaxed)) {
        return rlm_error_set(err, RLM_E_CANCELED, "cancelled while the file was read");
    }
    if (m->bounds && m->offset > m->bounds->max_bytes) {
        return rlm_error_set(err, RLM_E_LIMIT, "it has more than %llu bytes",
                             (unsigned long long)m->bounds->max_bytes);
    }
    return 0;
}

static int carry_pieces(struct import *m, rlm_error **err)
{
    rlm_autofree char *piece = rlm_malloc(PIECE_BYTES);
    size_t len = 0;
    int r = 0;
    if (!piece) {
        return rlm_error_nomem(err);
    }
    do {
        if ((r = read_piece(m, piece, &len, err)) < 0 || (r = check_bounds(m, err)) < 0 ||
            (m->write && (r = rlm_blob_sink_write(m->sink, piece, len, err)) < 0)) {
            return r;
        }
        if (m->alone) {
            rlm_sha256_add(m->hash, piece, len);
        } else if (!announce(m)) {
            return 0;
        }
        if (m->scanned) {
            rlm_utf8_scan(&m->scan, piece, len);
        }
    } while (len == PIECE_BYTES);
    return 0;
}

/* The carrier's thread. */
static void *carry(void *arg)
{
    struct import *m = arg;
    rlm_error *error = NULL;
    int r = carry_pieces(m, &error);
    pthread_mutex_lock(&m->lock);
    m->ended = true;
    m->status = r;
    m->error = error;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* Waits for more than `hashed` bytes. False at the end, and when the carrier has failed. */
static bool await(struct import *m, uint64_t hashed, uint64_t *ret_stored)
{
    pthread_mutex_lock(&m->lock);
    while (m->stored == hashed && !m->ended) {
        pthread_cond_wait(&m->changed, &m->lock);
    }
    *ret_stored = m->stored;
    bool more = m->stored > hashed && m->status == 0;
    pthread_mutex_unlock(&m->lock);
    return more;
}

static int hash_what_is_stored(struct import *m, char *piece, rlm_error **err)
{
    uint64_t hashed = 0, stored;
    while (await(m, hashed, &stored)) {
        while (hashed < stored) {
            size_t want = stored - hashed < PIECE_BYTES ? (size_t)(stored - hashed) : PIECE_BYTES;
            ssize_t n = pread(m->sink->fd, piece, want, (off_t)hashed);
            if (n < 0 && errno == EINTR) {
                continue;
            }
            if (n <= 0) {
                return rlm_error_set_errno(err, RLM_E_IO, n < 0 ? errno : EIO,
                                           "reading what was stored after %llu bytes",
                                           (unsigned long long)hashed);
            }
            rlm_sha256_add(m->hash, piece, (size_t)n);
            hashed += (uint64_t)n;
        }
    }
    return 0;
}

static int transfer(struct import *m, bool large, rlm_error **err)
{
    pthread_t carrier;
    if (!(m->hash = rlm_sha256_new())) {
        return rlm_error_nomem(err);
    }
    m->alone = !large || (!m->write && !m->scanned);
    rlm_autofree char *piece = m->alone ? NULL : rlm_malloc(PIECE_BYTES);
    if (!piece || pthread_create(&carrier, NULL, carry, m) != 0) {
        m->alone = true;
        return carry_pieces(m, err);
    }
    int r = hash_what_is_stored(m, piece, err);
    pthread_mutex_lock(&m->lock);
    m->given_up = r < 0;
    pthread_mutex_unlock(&m->lock);
    pthread_join(carrier, NULL);
    if (r == 0 && (r = m->status) < 0 && err) {
        rlm_error_free(*err);
        *err = rlm_steal(&m->error);
    }
    rlm_error_free(m->error);
    return r;
}

/* Where the first lone surrogate stands (rare, so it has a pass of its own). */
static int64_t find_surrogate(int fd)
{
    unsigned char bytes[4096];
    bool lead = false;
    int64_t offset = 0;
    for (ssize_t n; (n = pread(fd, bytes, sizeof bytes, (off_t)offset)) > 0; offset += n) {
        for (ssize_t i = 0; i < n; i++) {
            if (lead && bytes[i] >= 0xA0) {
                return offset + i - 1;
            }
            lead = bytes[i] == 0xED;
        }
    }
    return 0;
}

static int settle(struct import *m,
                  enum rlm_blob_type type,
                  struct rlm_blob *ret_facts,
                  int64_t *ret_bad_offset,
                  rlm_error **err)
{
    struct rlm_blob facts;
    const struct rlm_blob *kept;
    int64_t bad_offset;
    rlm_utf8_scan_end(&m->scan);
    int r = rlm_blob_judge(type, &m->scan, m->offset, &facts, &bad_offset, err);
    if (r < 0) {
        return r;
    }
    if (bad_offset == -2) {
        bad_offset = find_surrogate(m->sink->fd);
    }
    rlm_sha256_hex(m->hash, facts.id);
    m->sink->size_bytes = m->offset;
    if ((r = rlm_blob_sink_keep(m->sink, &facts, false, &kept, err)) < 0) {
        return r;
    }
    *ret_facts = facts;
    if (ret_bad_offset) {
        *ret_bad_offset = bad_offset;
    }
    return 0;
}

int rlm_blobs_import(rlm_blobs *b,
                     int fd,
                     enum rlm_blob_type type,
                     const struct rlm_import_bounds *bounds,
                     struct rlm_blob *ret_facts,
                     int64_t *ret_bad_offset,
                     rlm_error **err)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "looking at the file");
    }
    if (S_ISDIR(st.st_mode)) {
        return rlm_error_set(err, RLM_E_INVAL, "a directory cannot be stored as one value");
    }
    struct blob_sink sink;
    int r = rlm_blob_sink_open(b, false, &sink, err);
    if (r < 0) {
        return r;
    }
    struct import m = {
        .sink = &sink,
        .bounds = bounds,
        .source = fd,
        .seekable = S_ISREG(st.st_mode),
        .write = true,
        .scanned = type != RLM_BLOB_BYTES,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    if (sink.temporary[0] && m.seekable && ioctl(sink.fd, FICLONE, fd) == 0) {
        m.source = sink.fd;
        m.write = false;
    }
    r = transfer(&m, !m.seekable || st.st_size >= LARGE_BYTES, err);
    struct stat now;
    /* By the file's own sizes: some say more than can be read of them. */
    if (r == 0 && m.seekable && fstat(fd, &now) == 0 && now.st_size < st.st_size) {
        r = rlm_error_set(err, RLM_E_IO, "the file became shorter while it was read; try again");
    }
    if (r == 0) {
        r = settle(&m, type, ret_facts, ret_bad_offset, err);
    }
    rlm_blob_sink_abort(&sink);
    rlm_sha256_free(m.hash);
    return r;
}
