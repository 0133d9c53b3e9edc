#include "graph/blob_store.h"

#include "base/alloc.h"

/* Small pieces are gathered, so that a value that trickles in costs few system calls. */
enum { GATHER_BYTES = 64 * 1024 };

struct rlm_blob_writer {
    struct blob_sink sink;
    enum rlm_blob_type type;
    uint64_t max_bytes;
    rlm_sha256 *hash;
    struct rlm_utf8_scan scan;
    size_t n_gathered;
    char gathered[GATHER_BYTES];
};

int rlm_blob_judge(enum rlm_blob_type type,
                   const struct rlm_utf8_scan *scan,
                   uint64_t size_bytes,
                   struct rlm_blob *ret_facts,
                   int64_t *ret_bad_offset,
                   rlm_error **err)
{
    struct rlm_blob facts = {.type = type, .size_bytes = size_bytes};
    int64_t bad_offset = -1;
    if (type == RLM_BLOB_TEXT && scan->bad) {
        return rlm_error_set(err, RLM_E_PARSE, "not UTF-8 at byte %llu: store it as bytes",
                             (unsigned long long)scan->bad_offset);
    }
    if (type == RLM_BLOB_AUTO) {
        bool text = !scan->bad && !scan->surrogates;
        facts.type = text ? RLM_BLOB_TEXT : RLM_BLOB_BYTES;
        bad_offset = text ? -1 : scan->surrogates ? -2 : (int64_t)scan->bad_offset;
    }
    if (facts.type == RLM_BLOB_TEXT) {
        facts.chars = scan->chars;
        facts.max_char = scan->max_char;
    }
    *ret_facts = facts;
    *ret_bad_offset = bad_offset;
    return 0;
}

int rlm_blob_writer_new(rlm_blobs *b,
                        enum rlm_blob_type type,
                        uint64_t max_bytes,
                        rlm_blob_writer **ret_writer,
                        rlm_error **err)
{
    rlm_blob_writer *w = rlm_calloc(1, sizeof *w);
    if (!w || !(w->hash = rlm_sha256_new())) {
        free(w);
        return rlm_error_nomem(err);
    }
    int r = rlm_blob_sink_open(b, false, &w->sink, err);
    if (r < 0) {
        rlm_blob_writer_abort(w);
        return r;
    }
    w->type = type;
    w->max_bytes = max_bytes;
    *ret_writer = w;
    return 0;
}

static int take(rlm_blob_writer *w, const void *ptr, size_t len, rlm_error **err)
{
    rlm_sha256_add(w->hash, ptr, len);
    if (w->type != RLM_BLOB_BYTES) {
        rlm_utf8_scan(&w->scan, ptr, len);
    }
    return rlm_blob_sink_write(&w->sink, ptr, len, err);
}

static int take_gathered(rlm_blob_writer *w, rlm_error **err)
{
    size_t len = w->n_gathered;
    w->n_gathered = 0;
    return take(w, w->gathered, len, err);
}

int rlm_blob_writer_add(rlm_blob_writer *w, const void *ptr, size_t len, rlm_error **err)
{
    uint64_t so_far = w->sink.size_bytes + w->n_gathered;
    if (so_far > w->max_bytes || len > w->max_bytes - so_far) {
        return rlm_error_set(err, RLM_E_LIMIT, "a value of more than %llu bytes",
                             (unsigned long long)w->max_bytes);
    }
    if (len > GATHER_BYTES - w->n_gathered) {
        int r = take_gathered(w, err);
        if (r < 0) {
            return r;
        }
    }
    if (len >= GATHER_BYTES) {
        return take(w, ptr, len, err);
    }
    if (len) {
        memcpy(w->gathered + w->n_gathered, ptr, len);
        w->n_gathered += len;
    }
    return 0;
}

int rlm_blob_writer_finish(rlm_blob_writer *w, const struct rlm_blob **ret_blob, rlm_error **err)
{
    struct rlm_blob facts;
    int64_t bad_offset;
    int r = take_gathered(w, err);
    if (r == 0) {
        rlm_utf8_scan_end(&w->scan);
        r = rlm_blob_judge(w->type, &w->scan, w->sink.size_bytes, &facts, &bad_offset, err);
    }
    if (r == 0) {
        rlm_sha256_hex(w->hash, facts.id);
        r = rlm_blob_sink_keep(&w->sink, &facts, true, ret_blob, err);
    }
    rlm_blob_writer_abort(w);
    return r;
}

void rlm_blob_writer_abort(rlm_blob_writer *w)
{
    if (!w) {
        return;
    }
    if (w->sink.blobs) {
        rlm_blob_sink_abort(&w->sink);
    }
    rlm_sha256_free(w->hash);
    free(w);
}

int rlm_blobs_put(rlm_blobs *b,
                  enum rlm_blob_type type,
                  rlm_str value,
                  const struct rlm_blob **ret_blob,
                  rlm_error **err)
{
    struct rlm_utf8_scan scan = {0};
    struct rlm_blob facts;
    int64_t bad_offset;
    if (type != RLM_BLOB_BYTES) {
        rlm_utf8_scan(&scan, value.ptr, value.len);
        rlm_utf8_scan_end(&scan);
    }
    int r = rlm_blob_judge(type, &scan, value.len, &facts, &bad_offset, err);
    if (r < 0) {
        return r;
    }
    if (rlm_sha256_of(value, facts.id) < 0) {
        return rlm_error_nomem(err);
    }
    const struct rlm_blob *known = rlm_blobs_find(b, rlm_str_of(facts.id));
    if (known && known->type == facts.type) {
        *ret_blob = known; /* stored once, however many name it */
        return 0;
    }
    struct blob_sink sink;
    if ((r = rlm_blob_sink_open(b, false, &sink, err)) < 0) {
        return r;
    }
    if ((r = rlm_blob_sink_write(&sink, value.ptr, value.len, err)) < 0) {
        rlm_blob_sink_abort(&sink);
        return r;
    }
    return rlm_blob_sink_keep(&sink, &facts, true, ret_blob, err);
}
