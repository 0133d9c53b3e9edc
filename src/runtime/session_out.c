#include "runtime/session.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* What is sent in its turn stands in a queue: frames, bodies and blobs, one at a time at its head.
 * The transport gets more only while it holds less than HIGH_WATER, so that what is urgent (an
 * interrupt, credit) never waits behind much, and so that at most one descriptor is in flight. */
enum { HIGH_WATER = 256 * 1024 };
/* What became of the head of the queue; negative: it failed. */
enum { STEP_WAITS, STEP_DONE, STEP_MORE };
/* Credit is a number that the worker makes up; more than this it never needs. */
#define MAX_CREDIT (1ull << 31)

/* ---- frames ---------------------------------------------------------------------------------- */

struct rlm_buf *session_new_frame(struct worker_session *s)
{
    static const char room[RLM_FRAME_HEADER];
    struct rlm_buf *b = &s->out.frame;
    rlm_buf_clear(b);
    rlm_buf_add(b, room, sizeof room);
    return b;
}

/* Numbers and sends a frame whose first 16 bytes are free. */
static int send_frame(struct worker_session *s,
                      char *frame,
                      size_t len,
                      struct rlm_frame head,
                      int fd,
                      rlm_error **err)
{
    head.sequence = s->out.sequence + 1;
    rlm_frame_put_header(frame, &head, len - RLM_FRAME_HEADER);
    int r = s->transport->ops->send(s->transport, frame, len, fd, err);
    if (r == 0) {
        s->out.sequence++;
    }
    return r;
}

int session_send_now(
    struct worker_session *s, uint8_t kind, uint16_t stream, rlm_str payload, rlm_error **err)
{
    char frame[RLM_FRAME_HEADER + 64];
    if (payload.len > sizeof frame - RLM_FRAME_HEADER) {
        return rlm_error_set(err, RLM_E_LIMIT, "a %s frame is too long", rlm_frame_name(kind));
    }
    if (payload.len) {
        memcpy(frame + RLM_FRAME_HEADER, payload.ptr, payload.len);
    }
    struct rlm_frame head = {.kind = kind, .stream = stream};
    return send_frame(s, frame, RLM_FRAME_HEADER + payload.len, head, -1, err);
}

int session_send_ahead(struct worker_session *s,
                       uint8_t kind,
                       struct rlm_buf *frame,
                       rlm_error **err)
{
    int r = rlm_buf_check(frame, err);
    if (r == 0) {
        r = send_frame(s, frame->ptr, frame->len, (struct rlm_frame){.kind = kind}, -1, err);
    }
    rlm_buf_clear(frame);
    return r;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static struct out_item *append(struct worker_session *s)
{
    struct out_item *item;
    if (RLM_NEW(item)) {
        if (!s->out.first) {
            s->out.last = &s->out.first;
        }
        *s->out.last = item;
        s->out.last = &item->next;
    }
    return item;
}

static void drop_first(struct worker_session *s)
{
    struct out_item *item = s->out.first;
    s->out.first = item->next;
    s->out.held_bytes -= item->frame.len;
    rlm_buf_deinit(&item->frame);
    free(item);
}

static bool has_room(const struct worker_session *s)
{
    return s->transport->ops->queued(s->transport) < HIGH_WATER;
}

int session_send(struct worker_session *s, uint8_t kind, struct rlm_buf *frame, rlm_error **err)
{
    int r = rlm_buf_check(frame, err);
    if (r < 0) {
        return r;
    }
    if (!s->out.first && frame->len <= RLM_FRAME_HEADER + RLM_FRAME_MAX_CONTROL && has_room(s)) {
        r = send_frame(s, frame->ptr, frame->len, (struct rlm_frame){.kind = kind}, -1, err);
        rlm_buf_clear(frame);
        return r;
    }
    if (frame->len > RLM_SESSION_MAX_RESULTS - s->out.held_bytes) {
        return rlm_error_set(err, RLM_E_LIMIT,
                             "more than %d MiB wait to be sent to the worker, which does not read",
                             RLM_SESSION_MAX_RESULTS >> 20);
    }
    struct out_item *item = append(s);
    if (!item) {
        return rlm_error_nomem(err);
    }
    item->kind = kind;
    item->frame = *frame;
    *frame = RLM_BUF(frame->max_bytes);
    s->out.held_bytes += item->frame.len;
    session_pump(s);
    return 0;
}

int session_send_blob(struct worker_session *s, const struct rlm_blob *blob, rlm_error **err)
{
    struct out_item *item = append(s);
    if (!item) {
        return rlm_error_nomem(err);
    }
    item->kind = RLM_FRAME_BLOB;
    item->blob = blob;
    session_pump(s);
    return 0;
}

bool session_out_pending(const struct worker_session *s)
{
    return s->out.first != NULL;
}

bool session_out_waits(const struct worker_session *s)
{
    return s->out.first && !s->out.first->opening;
}

bool session_out_has(const struct worker_session *s, uint8_t kind)
{
    for (const struct out_item *item = s->out.first; item; item = item->next) {
        if (item->kind == kind) {
            return true;
        }
    }
    return false;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Numbers go round, so that credit which comes late for a stream that has ended finds none. */
static void begin_stream(struct worker_session *s, struct out_item *item)
{
    s->out.stream = s->out.stream == UINT16_MAX ? 1 : (uint16_t)(s->out.stream + 1);
    item->stream = s->out.stream;
    item->credit_bytes = RLM_STREAM_CREDIT;
}

static size_t next_piece(const struct out_item *item, uint64_t total_bytes)
{
    uint64_t piece = total_bytes - item->sent_bytes;
    piece = piece > RLM_FRAME_MAX_CHUNK ? RLM_FRAME_MAX_CHUNK : piece;
    return (size_t)(piece > item->credit_bytes ? item->credit_bytes : piece);
}

/* Accounts for a piece and gives its frame's head. */
static struct rlm_frame
piece_sent(struct out_item *item, uint8_t kind, size_t piece, uint64_t total_bytes)
{
    item->sent_bytes += piece;
    item->credit_bytes -= piece;
    uint8_t flags = item->sent_bytes == total_bytes ? RLM_FRAME_END : 0;
    return (struct rlm_frame){.kind = kind, .flags = flags, .stream = item->stream};
}

/* The 16 bytes before each piece are the room for the header or have been sent already, so the head
 * is written over them in place. */
static int step_body(struct worker_session *s, struct out_item *item, rlm_error **err)
{
    int r;
    if (!item->stream) {
        begin_stream(s, item);
    }
    uint64_t total_bytes = item->frame.len - RLM_FRAME_HEADER;
    if (item->sent_bytes == total_bytes) {
        char frame[RLM_FRAME_HEADER];
        struct rlm_frame head = {
            .kind = item->kind, .flags = RLM_FRAME_HAS_BODY, .stream = item->stream};
        r = send_frame(s, frame, sizeof frame, head, -1, err);
        return r < 0 ? r : STEP_DONE;
    }
    size_t piece = next_piece(item, total_bytes);
    if (piece == 0) {
        return STEP_WAITS;
    }
    char *frame = item->frame.ptr + item->sent_bytes;
    struct rlm_frame head = piece_sent(item, RLM_FRAME_BODY, piece, total_bytes);
    r = send_frame(s, frame, RLM_FRAME_HEADER + piece, head, -1, err);
    return r < 0 ? r : STEP_MORE;
}

static int step_frame(struct worker_session *s, struct out_item *item, rlm_error **err)
{
    if (item->frame.len > RLM_FRAME_HEADER + RLM_FRAME_MAX_CONTROL) {
        return step_body(s, item, err);
    }
    struct rlm_frame head = {.kind = item->kind};
    int r = send_frame(s, item->frame.ptr, item->frame.len, head, -1, err);
    return r < 0 ? r : STEP_DONE;
}

/* ---- blobs ----------------------------------------------------------------------------------- */

static int blob_frame(struct worker_session *s,
                      const struct rlm_blob *b,
                      int width,
                      bool ascii,
                      struct rlm_frame head,
                      int fd,
                      rlm_error **err)
{
    struct rlm_buf *frame = session_new_frame(s);
    struct rlm_json_writer w = {.buf = frame};
    bool is_text = b->type == RLM_BLOB_TEXT;
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "id", b->id);
    rlm_json_member_text(&w, "type", is_text ? "text" : "bytes");
    rlm_json_member_int(&w, "bytes", (int64_t)b->size_bytes);
    rlm_json_member_int(&w, "chars", (int64_t)(is_text ? b->chars : b->size_bytes));
    rlm_json_member_int(&w, "width", width);
    rlm_json_member_bool(&w, "ascii", ascii);
    rlm_json_end(&w, '}');
    int r = rlm_buf_check(frame, err);
    if (r < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return r;
    }
    return send_frame(s, frame->ptr, frame->len, head, fd, err);
}

static void open_blob(void *arg)
{
    struct blob_opening *o = arg;
    o->result = rlm_blobs_open_mapped(o->blobs, o->blob, &o->fd, &o->width, &o->ascii, &o->err);
}

static void end_opening(struct blob_opening *o)
{
    if (o->fd >= 0) {
        close(o->fd);
    }
    rlm_error_free(o->err);
    rlm_blobs_free(o->blobs);
    free(o);
}

static int blob_opened(struct worker_session *s, struct blob_opening *o, rlm_error **err)
{
    if (o->result < 0) {
        *err = rlm_steal(&o->err);
        return session_stored(s, o->result, *err);
    }
    int fd = o->fd;
    o->fd = -1;
    struct rlm_frame head = {.kind = RLM_FRAME_BLOB, .flags = RLM_FRAME_DESCRIPTOR};
    return blob_frame(s, o->blob, o->width, o->ascii, head, fd, err);
}

static void opening_done(void *arg)
{
    struct blob_opening *o = arg;
    struct worker_session *s = o->session;
    if (s) {
        rlm_autoerr rlm_error *err = NULL;
        int r = s->state == SESSION_DEAD ? 0 : blob_opened(s, o, &err);
        drop_first(s);
        if (r < 0) {
            session_fail(s, err);
        }
        session_pump(s);
        session_clock_update(s);
    }
    end_opening(o);
}

/* Deriving the wide form of a gigabyte takes a second, so the pool does it; what is mapped as it is
 * stored is merely opened. */
static int start_opening(struct worker_session *s, struct out_item *item, rlm_error **err)
{
    struct blob_opening *o;
    if (!RLM_NEW(o)) {
        return rlm_error_nomem(err);
    }
    o->session = s;
    o->blobs = rlm_blobs_ref(s->blobs);
    o->blob = item->blob;
    o->fd = -1;
    if (item->blob->type == RLM_BLOB_BYTES || item->blob->max_char < 0x80) {
        open_blob(o);
        int r = blob_opened(s, o, err);
        end_opening(o);
        return r < 0 ? r : STEP_DONE;
    }
    int r = rlm_work_start(s->loop, open_blob, opening_done, o, err);
    if (r < 0) {
        end_opening(o);
        return r;
    }
    item->opening = o;
    return STEP_WAITS;
}

static int width_of(const struct rlm_blob *b)
{
    if (b->type == RLM_BLOB_BYTES || b->max_char <= 0xFF) {
        return 1;
    }
    return b->max_char <= 0xFFFF ? 2 : 4;
}

static int step_blob_stream(struct worker_session *s, struct out_item *item, rlm_error **err)
{
    const struct rlm_blob *b = item->blob;
    int r;
    if (!item->stream) {
        begin_stream(s, item);
        struct rlm_frame head = {.kind = RLM_FRAME_BLOB, .stream = item->stream};
        bool ascii = b->type == RLM_BLOB_TEXT && b->max_char < 0x80;
        if ((r = blob_frame(s, b, width_of(b), ascii, head, -1, err)) < 0) {
            return r;
        }
    }
    size_t piece = next_piece(item, b->size_bytes);
    if (piece == 0 && b->size_bytes > 0) {
        return STEP_WAITS;
    }
    struct rlm_buf *frame = session_new_frame(s);
    r = rlm_blobs_read_range(s->blobs, rlm_str_of(b->id), item->sent_bytes, piece, frame, err);
    if (r < 0) {
        return session_stored(s, r, *err);
    }
    if ((r = rlm_buf_check(frame, err)) < 0) {
        return r;
    }
    if (frame->len != RLM_FRAME_HEADER + piece) {
        return rlm_error_set(err, RLM_E_CORRUPT, "the blob %s is shorter than it was", b->id);
    }
    uint8_t kind = b->type == RLM_BLOB_TEXT ? RLM_FRAME_TEXT : RLM_FRAME_BYTES;
    struct rlm_frame head = piece_sent(item, kind, piece, b->size_bytes);
    r = send_frame(s, frame->ptr, frame->len, head, -1, err);
    if (r < 0) {
        return r;
    }
    return head.flags & RLM_FRAME_END ? STEP_DONE : STEP_MORE;
}

/* ---- the pump -------------------------------------------------------------------------------- */

static int step(struct worker_session *s, struct out_item *item, rlm_error **err)
{
    if (item->opening) {
        return STEP_WAITS;
    }
    if (!item->blob) {
        return step_frame(s, item, err);
    }
    return s->transport->ops->passes_descriptors ? start_opening(s, item, err)
                                                 : step_blob_stream(s, item, err);
}

void session_pump(struct worker_session *s)
{
    rlm_autoerr rlm_error *err = NULL;
    while (s->out.first && s->state != SESSION_DEAD && has_room(s)) {
        int r = step(s, s->out.first, &err);
        if (r < 0) {
            session_fail(s, err);
            return;
        }
        if (r == STEP_WAITS) {
            return;
        }
        if (r == STEP_DONE) {
            drop_first(s);
        }
    }
}

int session_credit(struct worker_session *s, uint16_t stream, uint32_t bytes, rlm_error **err)
{
    struct out_item *item = s->out.first;
    if (!item || !stream || item->stream != stream) {
        return 0;
    }
    if (bytes > MAX_CREDIT - item->credit_bytes) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "too much credit was granted on stream %d",
                             stream);
    }
    item->credit_bytes += bytes;
    session_pump(s);
    session_clock_progress(s);
    return 0;
}

void session_out_deinit(struct worker_session *s)
{
    while (s->out.first) {
        if (s->out.first->opening) {
            s->out.first->opening->session = NULL;
        }
        drop_first(s);
    }
    rlm_buf_deinit(&s->out.frame);
}
