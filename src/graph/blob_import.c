/* Taking a file in. What is hashed is what is stored: either the clone is read, or each buffer that
 * is hashed is the one that is written. Reading and writing go on a second thread, so that the time
 * is that of the slower of copying and hashing. */
#include "graph/blob_store.h"

#include "base/alloc.h"

#include <errno.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SLOT_BYTES = 64 * 1024, /* all slots together stay in a core's cache: larger ones were slower */
    N_SLOTS = 16,
    LARGE_BYTES = 1024 * 1024, /* from here on a second thread is worth its start */
};

struct import {
    struct blob_sink *sink;
    int source;
    bool seekable; /* read from its beginning, whatever its position */
    bool write;    /* false: a clone, which is there already */
    uint64_t offset;
    rlm_sha256 *hash;
    struct rlm_utf8_scan scan;
    bool scanned;
    /* the ring: the carrier fills slots, this thread hashes them */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t filled, hashed;
    bool ended;
    int status;
    rlm_error *error;
    size_t lengths[N_SLOTS];
    char *slots;
};

static int read_slot(struct import *m, char *slot, size_t *ret_len, rlm_error **err)
{
    size_t len = 0;
    while (len < SLOT_BYTES) {
        ssize_t n = m->seekable ? pread(m->source, slot + len, SLOT_BYTES - len, (off_t)m->offset)
                                : read(m->source, slot + len, SLOT_BYTES - len);
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

static void digest(struct import *m, const char *slot, size_t len)
{
    rlm_sha256_add(m->hash, slot, len);
    if (m->scanned) {
        rlm_utf8_scan(&m->scan, slot, len);
    }
}

/* The carrier's thread. */
static void *carry(void *arg)
{
    struct import *m = arg;
    rlm_error *error = NULL;
    int r = 0;
    for (bool more = true; more;) {
        pthread_mutex_lock(&m->lock);
        while (m->filled - m->hashed == N_SLOTS) {
            pthread_cond_wait(&m->changed, &m->lock);
        }
        size_t slot = m->filled % N_SLOTS, len = 0;
        pthread_mutex_unlock(&m->lock);
        char *bytes = m->slots + slot * SLOT_BYTES;
        r = read_slot(m, bytes, &len, &error);
        more = r == 0 && len == SLOT_BYTES;
        if (r == 0 && len) {
            pthread_mutex_lock(&m->lock);
            m->lengths[slot] = len;
            m->filled++;
            pthread_cond_signal(&m->changed);
            pthread_mutex_unlock(&m->lock);
            /* The slot is filled anew by this thread only, so both may read it meanwhile. */
            r = m->write ? rlm_blob_sink_write(m->sink, bytes, len, &error) : 0;
            more &= r == 0;
        }
    }
    pthread_mutex_lock(&m->lock);
    m->ended = true;
    m->status = r;
    m->error = error;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static void digest_ring(struct import *m)
{
    for (;;) {
        pthread_mutex_lock(&m->lock);
        while (m->filled == m->hashed && !m->ended) {
            pthread_cond_wait(&m->changed, &m->lock);
        }
        bool more = m->filled > m->hashed && m->status == 0;
        size_t slot = m->hashed % N_SLOTS, len = m->lengths[slot];
        pthread_mutex_unlock(&m->lock);
        if (!more) {
            return;
        }
        digest(m, m->slots + slot * SLOT_BYTES, len);
        pthread_mutex_lock(&m->lock);
        m->hashed++;
        pthread_cond_signal(&m->changed);
        pthread_mutex_unlock(&m->lock);
    }
}

/* For what is small, and where no thread can be had. */
static int carry_and_digest(struct import *m, rlm_error **err)
{
    size_t len;
    int r;
    do {
        if ((r = read_slot(m, m->slots, &len, err)) < 0) {
            return r;
        }
        digest(m, m->slots, len);
        if (m->write && (r = rlm_blob_sink_write(m->sink, m->slots, len, err)) < 0) {
            return r;
        }
    } while (len == SLOT_BYTES);
    return 0;
}

static int transfer(struct import *m, bool large, rlm_error **err)
{
    pthread_t carrier;
    m->slots = rlm_malloc((size_t)SLOT_BYTES * (large ? N_SLOTS : 1));
    if (!m->slots || !(m->hash = rlm_sha256_new())) {
        return rlm_error_nomem(err);
    }
    if (!large || pthread_create(&carrier, NULL, carry, m) != 0) {
        return carry_and_digest(m, err);
    }
    digest_ring(m);
    pthread_join(carrier, NULL);
    if (m->status < 0) {
        if (err) {
            rlm_error_free(*err);
            *err = rlm_steal(&m->error);
        }
        rlm_error_free(m->error);
    }
    return m->status;
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
    if (r == 0) {
        r = settle(&m, type, ret_facts, ret_bad_offset, err);
    }
    rlm_blob_sink_abort(&sink);
    rlm_sha256_free(m.hash);
    free(m.slots);
    return r;
}
