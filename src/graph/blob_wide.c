/* What a worker maps: the characters of a Python `str` as an array of 1, 2 or 4 bytes each. For ASCII
 * that is the blob itself; else it is derived once, in one pass, and kept beside it. */
#include "graph/blob_store.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 256 * 1024 };

static int width_of(uint32_t max_char)
{
    return max_char < 0x100 ? 1 : max_char < 0x10000 ? 2 : 4;
}

/* Rewrites the UTF-8 in `from` to the sink. The facts of the blob are checked on the way: a file that
 * is not what they say must not become characters beyond what Python allows. */
static int
widen(int from, const struct rlm_blob *blob, int width, struct blob_sink *to, rlm_error **err)
{
    rlm_autofree char *in = rlm_malloc(CHUNK_BYTES);
    rlm_autofree char *out = rlm_malloc((size_t)(CHUNK_BYTES + 4) * (size_t)width);
    if (!in || !out) {
        return rlm_error_nomem(err);
    }
    struct rlm_utf8_scan scan = {0};
    struct rlm_utf8_carry carry = {0};
    for (uint64_t offset = 0;;) {
        ssize_t n = pread(from, in, CHUNK_BYTES, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "reading blob %s", blob->id);
        }
        if (n == 0) {
            break;
        }
        offset += (uint64_t)n;
        rlm_utf8_scan(&scan, in, (size_t)n);
        if (scan.bad || width_of(scan.max_char) > width) {
            break;
        }
        size_t len = rlm_utf8_widen(&carry, in, (size_t)n, width, out);
        int r = rlm_blob_sink_write(to, out, len, err);
        if (r < 0) {
            return r;
        }
    }
    rlm_utf8_scan_end(&scan);
    if (scan.bad || scan.chars != blob->chars || width_of(scan.max_char) > width) {
        return rlm_error_set(err, RLM_E_CORRUPT,
                             "blob %s is not the text that the run says it is: the file is damaged",
                             blob->id);
    }
    return 0;
}

static int derive(rlm_blobs *b,
                  const struct rlm_blob *blob,
                  int width,
                  bool in_memory,
                  struct blob_sink *ret_sink,
                  rlm_error **err)
{
    int from;
    int r = rlm_blobs_open_content(b, rlm_str_of(blob->id), &from, err);
    if (r < 0) {
        return r;
    }
    if ((r = rlm_blob_sink_open(b, in_memory, ret_sink, err)) == 0) {
        if ((r = widen(from, blob, width, ret_sink, err)) < 0) {
            rlm_blob_sink_abort(ret_sink);
        }
    }
    close(from);
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
        width = width_of(blob->max_char);
        r = b->directory ? open_wide_file(b, blob, width, ret_fd, err)
                         : open_wide_memory(b, blob, width, ret_fd, err);
    }
    if (r == 0) {
        *ret_width = width;
        *ret_ascii = ascii;
    }
    return r;
}
