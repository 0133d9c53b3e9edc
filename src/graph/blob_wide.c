/* What a worker maps: the characters of a Python `str` as an array of 1, 2 or 4 bytes each. For ASCII
 * that is the blob itself; else it is derived once and kept beside it.
 *
 * Two threads derive a large one, the one from its beginning, the other from its end backwards: how
 * long the result will be is known, so neither needs to know where the other will get to. */
#include "graph/blob_store.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 512 * 1024,
    CUT_BYTES = 3,                 /* of a character that begins before its chunk's end */
    LARGE_BYTES = 2 * 1024 * 1024, /* from here on a second thread is worth its start */
};

struct widening {
    const struct rlm_blob *blob;
    int width;
    bool trusted; /* the facts were found here, in this very content */
    int from, to;
    uint64_t size_bytes;  /* of the wide form */
    pthread_mutex_t lock; /* of what follows */
    uint64_t front, back; /* the bytes of the blob between them are yet to be done */
};

/* One of the two threads. */
struct widener {
    struct widening *job;
    bool backwards;
    uint64_t at; /* how far the wide form is written, from its beginning or from its end */
    int status;
    rlm_error *error;
};

static int width_of(uint32_t max_char)
{
    return max_char < 0x100 ? 1 : max_char < 0x10000 ? 2 : 4;
}

static int damaged(const struct widening *w, rlm_error **err)
{
    return rlm_error_set(err, RLM_E_CORRUPT,
                         "blob %s is not the text that the run says it is: the file is damaged",
                         w->blob->id);
}

/* The next chunk; false when there is none. */
static bool claim(struct widening *w, bool backwards, uint64_t *ret_start, size_t *ret_len)
{
    pthread_mutex_lock(&w->lock);
    uint64_t left = w->back - w->front;
    size_t len = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    *ret_start = backwards ? w->back - len : w->front;
    *ret_len = len;
    w->back -= backwards ? len : 0;
    w->front += backwards ? 0 : len;
    pthread_mutex_unlock(&w->lock);
    return len > 0;
}

/* After a failure the other one need not go on. */
static void claim_all(struct widening *w)
{
    pthread_mutex_lock(&w->lock);
    w->front = w->back;
    pthread_mutex_unlock(&w->lock);
}

static int
read_at(const struct widening *w, char *in, size_t len, uint64_t at, size_t *ret_n, rlm_error **err)
{
    size_t taken = 0;
    while (taken < len) {
        ssize_t n = pread(w->from, in + taken, len - taken, (off_t)(at + taken));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "reading blob %s", w->blob->id);
        }
        if (n == 0) {
            break;
        }
        taken += (size_t)n;
    }
    *ret_n = taken;
    return 0;
}

static int
write_at(const struct widening *w, const char *out, size_t len, uint64_t at, rlm_error **err)
{
    while (len) {
        ssize_t n = pwrite(w->to, out, len, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rlm_error_set_errno(err, RLM_E_IO, errno,
                                       "writing the %llu bytes that a worker maps of blob %s",
                                       (unsigned long long)w->size_bytes, w->blob->id);
        }
        out += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

/* How many of the first bytes belong to a character that began before them. */
static size_t cut_before(const char *in, size_t len)
{
    size_t n = 0;
    while (n < len && n < CUT_BYTES && ((unsigned char)in[n] & 0xC0) == 0x80) {
        n++;
    }
    return n;
}

/* The characters that begin in a chunk, as `in` has it with what follows it. A file that is not what
 * the facts say must not become characters beyond what Python allows, nor another number of them. */
static int widen_chunk(struct widener *me, const char *in, size_t len, char *out, rlm_error **err)
{
    const struct widening *w = me->job;
    if (!w->trusted) {
        struct rlm_utf8_scan scan = {0};
        rlm_utf8_scan(&scan, in, len);
        rlm_utf8_scan_end(&scan);
        if (scan.bad || width_of(scan.max_char) > w->width) {
            return damaged(w, err);
        }
    }
    struct rlm_utf8_carry carry = {0};
    size_t out_len = rlm_utf8_widen(&carry, in, len, w->width, out);
    uint64_t room = me->backwards ? me->at : w->size_bytes - me->at;
    if (carry.tail_len || out_len > room) {
        return damaged(w, err);
    }
    me->at -= me->backwards ? out_len : 0;
    int r = write_at(w, out, out_len, me->at, err);
    me->at += me->backwards ? 0 : out_len;
    return r;
}

static int widen_chunks(struct widener *me, rlm_error **err)
{
    struct widening *w = me->job;
    rlm_autofree char *in = rlm_malloc(CHUNK_BYTES + CUT_BYTES);
    rlm_autofree char *out = rlm_malloc((size_t)(CHUNK_BYTES + CUT_BYTES + 4) * (size_t)w->width);
    if (!in || !out) {
        return rlm_error_nomem(err);
    }
    uint64_t start;
    size_t len, n = 0;
    while (claim(w, me->backwards, &start, &len)) {
        int r = read_at(w, in, len + CUT_BYTES, start, &n, err);
        if (r == 0 && n < len) {
            r = damaged(w, err);
        }
        if (r == 0) {
            size_t first = start ? cut_before(in, n) : 0;
            size_t end = len + cut_before(in + len, n - len);
            r = widen_chunk(me, in + first, end - first, out, err);
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static void *widen(void *arg)
{
    struct widener *me = arg;
    me->status = widen_chunks(me, &me->error);
    if (me->status < 0) {
        claim_all(me->job);
    }
    return NULL;
}

/* Rewrites the UTF-8 in `w->from` to `w->to`. */
static int widen_all(struct widening *w, rlm_error **err)
{
    struct widener ends[2] = {{.job = w}, {.job = w, .backwards = true, .at = w->size_bytes}};
    pthread_t helper;
    bool helped = w->back >= LARGE_BYTES && pthread_create(&helper, NULL, widen, &ends[1]) == 0;
    widen(&ends[0]);
    if (helped) {
        pthread_join(helper, NULL);
    }
    int failed = ends[0].status < 0 ? 0 : 1, r = ends[failed].status;
    if (r == 0 && ends[0].at != ends[1].at) {
        r = damaged(w, err);
    } else if (r < 0 && err) {
        rlm_error_free(*err);
        *err = rlm_steal(&ends[failed].error);
    }
    rlm_error_free(ends[0].error);
    rlm_error_free(ends[1].error);
    return r;
}

static bool is_trusted(rlm_blobs *b, const struct rlm_blob *blob)
{
    pthread_mutex_lock(&b->lock);
    const struct blob_entry *e = rlm_map_get(&b->entries, rlm_str_of(blob->id));
    const struct rlm_blob *facts = e ? &e->facts[RLM_BLOB_TEXT] : NULL;
    bool trusted = e && e->found[RLM_BLOB_TEXT] && facts->chars == blob->chars &&
                   facts->max_char == blob->max_char;
    pthread_mutex_unlock(&b->lock);
    return trusted;
}

static int derive(rlm_blobs *b,
                  const struct rlm_blob *blob,
                  int width,
                  bool in_memory,
                  struct blob_sink *ret_sink,
                  rlm_error **err)
{
    struct widening w = {
        .blob = blob,
        .width = width,
        .trusted = is_trusted(b, blob),
        .size_bytes = blob->chars * (uint64_t)width,
        .back = blob->size_bytes,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    int r = rlm_blobs_open_content(b, rlm_str_of(blob->id), &w.from, err);
    if (r < 0) {
        return r;
    }
    if ((r = rlm_blob_sink_open(b, in_memory, ret_sink, err)) == 0) {
        w.to = ret_sink->fd;
        if ((r = widen_all(&w, err)) < 0) {
            rlm_blob_sink_abort(ret_sink);
        }
        ret_sink->size_bytes = w.size_bytes;
    }
    close(w.from);
    return r;
}

static int
open_wide_file(rlm_blobs *b, const struct rlm_blob *blob, int width, int *ret_fd, rlm_error **err)
{
    char name[RLM_BLOB_NAME_SIZE];
    struct stat st;
    snprintf(name, sizeof name, "%s.w%d", blob->id, width);
    int fd = b->dir_fd < 0 ? -1 : openat(b->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == blob->chars * (uint64_t)width) {
        *ret_fd = fd;
        return 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    struct blob_sink sink;
    int r = derive(b, blob, width, b->read_only, &sink, err);
    if (r < 0) {
        return r;
    }
    if (b->read_only) {
        return rlm_blob_sink_seal(&sink, ret_fd, err);
    }
    if ((fd = rlm_fd_reopen(sink.fd)) < 0) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "opening %s/%s", b->directory, name);
        rlm_blob_sink_abort(&sink);
        return r;
    }
    /* Not synced: it is made anew when a power cut takes it. */
    if ((r = rlm_blob_sink_rename(&sink, name, false, err)) < 0) {
        close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

static int
open_wide_memory(rlm_blobs *b, const struct rlm_blob *blob, int width, int *ret_fd, rlm_error **err)
{
    pthread_mutex_lock(&b->lock);
    struct blob_entry *e = rlm_map_get(&b->entries, rlm_str_of(blob->id));
    int wide_fd = e ? e->wide_fd : -1;
    pthread_mutex_unlock(&b->lock);
    if (wide_fd < 0) {
        struct blob_sink sink;
        int r = derive(b, blob, width, true, &sink, err);
        if (r < 0) {
            return r;
        }
        if ((r = rlm_blob_sink_seal(&sink, &wide_fd, err)) < 0) {
            rlm_blob_sink_abort(&sink);
            return r;
        }
        pthread_mutex_lock(&b->lock);
        if (e->wide_fd >= 0) {
            close(wide_fd); /* another thread was faster */
            wide_fd = e->wide_fd;
        }
        e->wide_fd = wide_fd;
        pthread_mutex_unlock(&b->lock);
    }
    int fd = rlm_fd_reopen(wide_fd);
    if (fd < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "opening blob %s", blob->id);
    }
    *ret_fd = fd;
    return 0;
}

/* Sessions that want the same text at once must not each derive it. Where nothing is kept (a run
 * looked at) there is nothing to wait for. */
static struct blob_entry *begin_turn(rlm_blobs *b, const struct rlm_blob *blob)
{
    pthread_mutex_lock(&b->lock);
    struct blob_entry *e = b->read_only ? NULL : rlm_map_get(&b->entries, rlm_str_of(blob->id));
    while (e && e->widening) {
        pthread_cond_wait(&b->widened, &b->lock);
    }
    if (e) {
        e->widening = true;
    }
    pthread_mutex_unlock(&b->lock);
    return e;
}

static void end_turn(rlm_blobs *b, struct blob_entry *e)
{
    if (e) {
        pthread_mutex_lock(&b->lock);
        e->widening = false;
        pthread_cond_broadcast(&b->widened);
        pthread_mutex_unlock(&b->lock);
    }
}

int rlm_blobs_open_mapped(rlm_blobs *b,
                          const struct rlm_blob *blob,
                          int *ret_fd,
                          int *ret_width,
                          bool *ret_ascii,
                          rlm_error **err)
{
    bool ascii = blob->type == RLM_BLOB_TEXT && blob->max_char < 0x80;
    int width = 1, r;
    if (ascii || blob->type == RLM_BLOB_BYTES) {
        r = rlm_blobs_open_content(b, rlm_str_of(blob->id), ret_fd, err);
    } else {
        struct blob_entry *turn = begin_turn(b, blob);
        width = width_of(blob->max_char);
        r = b->directory ? open_wide_file(b, blob, width, ret_fd, err)
                         : open_wide_memory(b, blob, width, ret_fd, err);
        end_turn(b, turn);
    }
    if (r == 0) {
        *ret_width = width;
        *ret_ascii = ascii;
    }
    return r;
}
