#include "runtime/session.h"

#include "base/error.h"

#include <stdlib.h>

enum {
    MAX_STREAMS = 64,
    GRANT_FROM = RLM_FRAME_MAX_CHUNK, /* credit goes out in pieces no smaller than this */
    N_NUMBERS = 65536,
};
/* What one session may store: its disk would otherwise be the agent's. */
#define MAX_BLOB_BYTES (8ull << 30)

static struct in_stream *find(struct worker_session *s, uint16_t number)
{
    for (size_t i = 0; i < s->in.open.len; i++) {
        if (s->in.open.items[i].number == number) {
            return &s->in.open.items[i];
        }
    }
    return NULL;
}

static void forget(struct worker_session *s, struct in_stream *st)
{
    s->in.body_bytes -= st->body.len;
    rlm_buf_deinit(&st->body);
    if (st->writer) {
        rlm_blob_writer_abort(st->writer);
    }
    rlm_vec_remove(&s->in.open, (size_t)(st - s->in.open.items));
}

static int begin(struct worker_session *s,
                 const struct rlm_frame *f,
                 struct in_stream **ret_stream,
                 rlm_error **err)
{
    if (f->stream == 0) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a %s frame came without a stream",
                             rlm_frame_name(f->kind));
    }
    if (s->in.open.len >= MAX_STREAMS) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "more than %d streams were opened at once",
                             MAX_STREAMS);
    }
    rlm_blob_writer *writer = NULL;
    if (f->kind != RLM_FRAME_BODY) {
        enum rlm_blob_type type = f->kind == RLM_FRAME_TEXT ? RLM_BLOB_TEXT : RLM_BLOB_BYTES;
        int r = rlm_blob_writer_new(s->blobs, type, RLM_SESSION_MAX_VALUE, &writer, err);
        if (r < 0) {
            return session_stored(s, r, *err);
        }
    }
    struct in_stream *st = rlm_vec_push(&s->in.open);
    if (!st) {
        if (writer) {
            rlm_blob_writer_abort(writer);
        }
        return rlm_error_nomem(err);
    }
    st->number = f->stream;
    st->kind = f->kind;
    st->writer = writer;
    st->body = RLM_BUF(RLM_SESSION_MAX_MESSAGE);
    *ret_stream = st;
    return 0;
}

/* Bodies are held in memory, so their sum is bounded, not only each. */
static int add_body(struct worker_session *s, struct in_stream *st, rlm_str piece, rlm_error **err)
{
    if (piece.len > RLM_SESSION_MAX_MESSAGE - s->in.body_bytes) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "messages of more than %d MiB came (beside texts and bytes of 64 KiB "
                             "and more, which may be larger)",
                             RLM_SESSION_MAX_MESSAGE >> 20);
    }
    if (rlm_buf_add(&st->body, piece.ptr, piece.len) < 0) {
        return rlm_buf_check(&st->body, err);
    }
    s->in.body_bytes += piece.len;
    return 0;
}

static int add_value(struct worker_session *s, struct in_stream *st, rlm_str piece, rlm_error **err)
{
    s->in.blob_bytes += piece.len;
    if (s->in.blob_bytes > MAX_BLOB_BYTES) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "values of more than %llu GiB in all were sent",
                             MAX_BLOB_BYTES >> 30);
    }
    int r = rlm_blob_writer_add(st->writer, piece.ptr, piece.len, err);
    if (r == RLM_E_LIMIT) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a value of more than %d MiB was sent",
                             RLM_SESSION_MAX_VALUE >> 20);
    }
    return session_stored(s, r, *err);
}

/* A value is complete: it has a name now, which the next messages use. */
static int end_value(struct worker_session *s, struct in_stream *st, rlm_error **err)
{
    const struct rlm_blob *blob;
    uint16_t number = st->number;
    bool is_text = st->kind == RLM_FRAME_TEXT;
    int r = rlm_blob_writer_finish(rlm_steal(&st->writer), &blob, err);
    forget(s, st);
    if (r == RLM_E_PARSE && is_text) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a text came that is not UTF-8");
    }
    if (r < 0) {
        return session_stored(s, r, *err);
    }
    if (!s->in.ended && !(s->in.ended = rlm_calloc(N_NUMBERS, sizeof(*s->in.ended)))) {
        return rlm_error_nomem(err);
    }
    s->in.ended[number] = blob;
    return session_allow_blob(s, blob->id, BLOB_ALLOWED, err);
}

/* What comes is taken in at once, so it is granted anew at once, and no stream can be seen to pass
 * its credit. */
static int grant(struct worker_session *s, struct in_stream *st, rlm_error **err)
{
    if (st->owed_bytes < GRANT_FROM) {
        return 0;
    }
    char number[4];
    rlm_frame_put_u32(number, st->owed_bytes);
    st->owed_bytes = 0;
    return session_send_now(s, RLM_FRAME_CREDIT, st->number, (rlm_str){number, 4}, err);
}

static int check(const struct in_stream *st, const struct rlm_frame *f, rlm_error **err)
{
    if (st->ended) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "stream %d was begun anew before its body was used", f->stream);
    }
    if (st->kind != f->kind) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a %s frame came on stream %d, which carries %s",
                             rlm_frame_name(f->kind), f->stream, rlm_frame_name(st->kind));
    }
    if (f->payload.len > RLM_FRAME_MAX_CHUNK) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "a piece of %zu bytes came on stream %d; the limit is %d",
                             f->payload.len, f->stream, RLM_FRAME_MAX_CHUNK);
    }
    return 0;
}

int session_stream_frame(struct worker_session *s, const struct rlm_frame *f, rlm_error **err)
{
    int r;
    struct in_stream *st = find(s, f->stream);
    if (!st && (r = begin(s, f, &st, err)) < 0) {
        return r;
    }
    if ((r = check(st, f, err)) < 0) {
        return r;
    }
    st->owed_bytes += (uint32_t)f->payload.len;
    r = st->writer ? add_value(s, st, f->payload, err) : add_body(s, st, f->payload, err);
    if (r < 0) {
        return r;
    }
    if (!(f->flags & RLM_FRAME_END)) {
        return grant(s, st, err);
    }
    if (st->writer) {
        return end_value(s, st, err);
    }
    st->ended = true;
    return 0;
}

int session_stream_take_body(struct worker_session *s,
                             uint16_t number,
                             struct rlm_buf *ret_body,
                             rlm_error **err)
{
    struct in_stream *st = find(s, number);
    if (!st || !st->ended) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a message names a body (%d) that was not sent",
                             number);
    }
    *ret_body = st->body;
    s->in.body_bytes -= st->body.len;
    st->body = (struct rlm_buf){0};
    forget(s, st);
    return 0;
}

const struct rlm_blob *session_stream_blob(const struct worker_session *s, uint16_t number)
{
    return s->in.ended ? s->in.ended[number] : NULL;
}

void session_streams_deinit(struct worker_session *s)
{
    while (s->in.open.len) {
        forget(s, &s->in.open.items[s->in.open.len - 1]);
    }
    free(s->in.open.items);
    free(s->in.ended);
}
