/* Files as inputs: small ones become JSON values, large ones blobs. */
#include "base/base64.h"
#include "flow/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

char *rlm_input_small_value(enum rlm_blob_type type, rlm_str value)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RLM_INPUT_JSON_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    if (type == RLM_BLOB_TEXT) {
        rlm_json_put_str(&w, value);
    } else {
        rlm_buf_adds(&buf, "{\"$bytes\":\"");
        rlm_base64_encode(&buf, value);
        rlm_buf_adds(&buf, "\"}");
    }
    return rlm_buf_take(&buf);
}

char *rlm_input_blob_value(const struct rlm_blob *blob)
{
    char *json = NULL;
    return asprintf(&json, "{\"$blob\":\"%s\"}", blob->id) < 0 ? NULL : json;
}

void rlm_input_file_init(struct rlm_input_file *f, rlm_run *run)
{
    f->fd = -1;
    f->blobs = run->blobs;
    f->bounds = (struct rlm_import_bounds){
        .max_bytes = (uint64_t)run->flow->limits.max_input_bytes,
        .canceled = &run->reads_canceled,
    };
}

static int check_size(const struct rlm_input_file *f, uint64_t size, rlm_error **err)
{
    if (size <= f->bounds.max_bytes) {
        return 0;
    }
    return rlm_error_set(err, RLM_E_LIMIT, "%s %llu bytes; max_input_size allows %llu",
                         f->stream ? "it has at least" : "it has", (unsigned long long)size,
                         (unsigned long long)f->bounds.max_bytes);
}

static int check_canceled(const struct rlm_input_file *f, rlm_error **err)
{
    return *f->bounds.canceled ? rlm_error_set(err, RLM_E_CANCELED, "cancelled while it was read")
                               : 0;
}

static int write_all(int fd, const char *bytes, size_t len, rlm_error **err)
{
    while (len) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "writing a copy of it");
        }
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The next bytes of a descriptor that may have none yet; 0 at its end. */
static int
read_next(struct rlm_input_file *f, char *bytes, size_t size, size_t *ret_len, rlm_error **err)
{
    enum { LOOK_MS = 50 }; /* how soon it is noticed that nobody waits any more */
    for (;;) {
        struct pollfd ready = {.fd = f->fd, .events = POLLIN};
        int r = check_canceled(f, err);
        if (r < 0) {
            return r;
        }
        if (f->stream && poll(&ready, 1, LOOK_MS) <= 0) {
            continue;
        }
        ssize_t n = read(f->fd, bytes, size);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "reading");
        }
        if (n >= 0) {
            *ret_len = (size_t)n;
            return 0;
        }
    }
}

/* Rewrites the file into an unnamed one, which takes its place: what is Latin-1 as UTF-8, and what
 * cannot seek as it is. */
static int rewrite(struct rlm_input_file *f, bool latin1, rlm_error **err)
{
    char in[32 * 1024], wide[2 * sizeof in];
    uint64_t total = 0;
    size_t len = 0;
    int out = memfd_create("input", MFD_CLOEXEC), r;
    if (out < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "making a copy of it");
    }
    while ((r = read_next(f, in, sizeof in, &len, err)) == 0 && len) {
        size_t wide_len = 0;
        for (size_t i = 0; latin1 && i < len; i++) {
            wide_len += rlm_utf8_encode((unsigned char)in[i], wide + wide_len);
        }
        total += len;
        if ((r = check_size(f, total, err)) < 0 ||
            (r = write_all(out, latin1 ? wide : in, latin1 ? wide_len : len, err)) < 0) {
            break;
        }
    }
    close(f->fd);
    f->fd = out;
    f->size = total;
    lseek(out, 0, SEEK_SET);
    return r;
}

static int read_all(int fd, struct rlm_buf *out, rlm_error **err)
{
    for (;;) {
        char *room = rlm_buf_reserve(out, 64 * 1024);
        if (!room) {
            return rlm_buf_check(out, err);
        }
        ssize_t n = read(fd, room, 64 * 1024);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? rlm_error_set_errno(err, RLM_E_IO, errno, "reading") : 0;
        }
        rlm_buf_commit(out, (size_t)n);
    }
}

static int read_small(struct rlm_input_file *f, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf content = RLM_BUF(4 * RLM_BLOB_THRESHOLD);
    int r = read_all(f->fd, &content, err);
    if (r < 0) {
        return r;
    }
    struct rlm_utf8_scan scan = {0};
    rlm_utf8_scan(&scan, content.ptr, content.len);
    rlm_utf8_scan_end(&scan);
    bool text = !scan.bad && !scan.surrogates;
    f->bad_offset = text || f->latin1 ? -1 : (int64_t)scan.bad_offset;
    if (f->type == RLM_BLOB_TEXT && !text && !f->latin1) {
        return rlm_error_set(err, RLM_E_PARSE, "not UTF-8 at byte %llu",
                             (unsigned long long)scan.bad_offset);
    }
    rlm_auto_buf struct rlm_buf wide = RLM_BUF(8 * RLM_BLOB_THRESHOLD);
    if (f->latin1) {
        for (size_t i = 0; i < content.len; i++) {
            char c[4];
            rlm_buf_add(&wide, c, rlm_utf8_encode((unsigned char)content.ptr[i], c));
        }
    }
    rlm_str value = f->latin1 ? rlm_buf_str(&wide) : rlm_buf_str(&content);
    f->value_json =
        rlm_input_small_value(text || f->latin1 ? RLM_BLOB_TEXT : RLM_BLOB_BYTES, value);
    return f->value_json ? 0 : rlm_error_nomem(err);
}

/* On the pool. */
void rlm_input_file_read(struct rlm_input_file *f)
{
    f->bad_offset = -1;
    if (f->stream) {
        f->result = rewrite(f, false, &f->error);
        f->stream = false;
    }
    if (f->result < 0) {
        return;
    }
    if (f->size < RLM_BLOB_THRESHOLD) {
        f->result = read_small(f, &f->error);
        if (f->result != RLM_E_LIMIT) {
            return;
        }
        /* It has grown meanwhile: as a large one. */
        rlm_error_free(rlm_steal(&f->error));
        f->result = 0;
        lseek(f->fd, 0, SEEK_SET);
    }
    if (f->latin1) {
        f->result = rewrite(f, true, &f->error);
    }
    if (f->result == 0) {
        enum rlm_blob_type type = f->latin1 ? RLM_BLOB_TEXT : f->type;
        f->result = rlm_blobs_import(f->blobs, f->fd, type, &f->bounds, &f->facts, &f->bad_offset,
                                     &f->error);
        f->is_blob = f->result == 0;
    }
}

/* On the loop, after it: the value. */
int rlm_input_file_value(rlm_run *run, struct rlm_input_file *f, rlm_error **err)
{
    if (f->result < 0) {
        *err = rlm_steal(&f->error);
        return f->result;
    }
    if (f->is_blob) {
        int r = rlm_blobs_register(run->blobs, &f->facts, err);
        if (r < 0) {
            return r;
        }
        f->value_json = rlm_input_blob_value(&f->facts);
    }
    return f->value_json ? 0 : rlm_error_nomem(err);
}

void rlm_input_file_close(struct rlm_input_file *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    f->fd = -1;
    rlm_error_free(rlm_steal(&f->error));
    free(rlm_steal(&f->value_json));
}

int rlm_input_file_open(struct rlm_input_file *f, int dir_fd, const char *path, rlm_error **err)
{
    struct stat st;
    f->fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0 || fstat(f->fd, &st) < 0) {
        return rlm_error_set_errno(err, errno == ENOENT ? RLM_E_NOT_FOUND : RLM_E_IO, errno, "%s",
                                   path);
    }
    if (S_ISDIR(st.st_mode)) {
        return rlm_error_set(err, RLM_E_INVAL, "%s is a directory", path);
    }
    f->stream = !S_ISREG(st.st_mode);
    f->size = (uint64_t)st.st_size;
    f->type = RLM_BLOB_AUTO;
    if (f->stream && !f->may_stream) {
        return rlm_error_set(err, RLM_E_INVAL, "%s is no regular file", path);
    }
    int r = f->stream ? 0 : check_size(f, f->size, err);
    return r < 0 ? rlm_error_wrap(err, r, "%s", path) : 0;
}
