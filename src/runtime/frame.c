#include "runtime/frame.h"

#include "base/error.h"

#include <inttypes.h>

static const char *const names[] = {
    [RLM_FRAME_OPEN] = "open",           [RLM_FRAME_READY] = "ready",
    [RLM_FRAME_START] = "start",         [RLM_FRAME_RESUME] = "resume",
    [RLM_FRAME_SUSPENDED] = "suspended", [RLM_FRAME_FINISHED] = "finished",
    [RLM_FRAME_WAKE] = "wake",           [RLM_FRAME_YIELD] = "yield",
    [RLM_FRAME_INTERRUPT] = "interrupt", [RLM_FRAME_CLOSE] = "close",
    [RLM_FRAME_TEXT] = "text",           [RLM_FRAME_BYTES] = "bytes",
    [RLM_FRAME_BODY] = "body",           [RLM_FRAME_CREDIT] = "credit",
    [RLM_FRAME_BLOB] = "blob",           [RLM_FRAME_SYNC] = "sync",
    [RLM_FRAME_OUTPUT] = "output",       [RLM_FRAME_FATAL] = "fatal",
};

const char *rlm_frame_name(uint8_t kind)
{
    return kind >= 1 && kind <= RLM_FRAME_LAST ? names[kind] : "?";
}

static void put(uint8_t *out, uint64_t number, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        out[i] = (uint8_t)(number >> (8 * i));
    }
}

static uint64_t get(const uint8_t *in, size_t width)
{
    uint64_t number = 0;
    for (size_t i = width; i-- > 0;) {
        number = number << 8 | in[i];
    }
    return number;
}

uint32_t rlm_frame_get_u32(const void *ptr)
{
    return (uint32_t)get(ptr, 4);
}

void rlm_frame_put_u32(void *ptr, uint32_t number)
{
    put(ptr, number, 4);
}

void rlm_frame_put_header(void *out, const struct rlm_frame *frame, size_t payload_bytes)
{
    uint8_t *p = out;
    put(p, payload_bytes, 4);
    p[4] = frame->kind;
    p[5] = frame->flags;
    put(p + 6, frame->stream, 2);
    put(p + 8, frame->sequence, 8);
}

void rlm_frame_decoder_deinit(struct rlm_frame_decoder *d)
{
    rlm_buf_deinit(&d->kept);
}

void rlm_frame_decoder_feed(struct rlm_frame_decoder *d, const void *bytes, size_t len)
{
    d->input = (rlm_str){bytes, len};
}

static int check_header(const struct rlm_frame_decoder *d,
                        const struct rlm_frame *f,
                        size_t payload_bytes,
                        rlm_error **err)
{
    if (f->sequence != d->sequence + 1) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "a frame came with sequence %" PRIu64 " instead of %" PRIu64,
                             f->sequence, d->sequence + 1);
    }
    if (f->kind < 1 || f->kind > RLM_FRAME_LAST) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a frame of unknown kind %d came", f->kind);
    }
    if (f->flags & ~RLM_FRAME_FLAGS) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a frame came with unknown flags (%#x)",
                             (unsigned)f->flags);
    }
    if (payload_bytes > RLM_FRAME_MAX_PAYLOAD) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a frame of %zu bytes came; the limit is %d",
                             payload_bytes, RLM_FRAME_MAX_PAYLOAD);
    }
    return 0;
}

static void read_header(const char *from, struct rlm_frame *f, size_t *ret_payload_bytes)
{
    const uint8_t *p = (const uint8_t *)from;
    *ret_payload_bytes = (size_t)get(p, 4);
    f->kind = p[4];
    f->flags = p[5];
    f->stream = (uint16_t)get(p + 6, 2);
    f->sequence = get(p + 8, 8);
}

/* Moves bytes of the input to the kept ones until `wanted` of them are there: 1 when they are. */
static int keep(struct rlm_frame_decoder *d, size_t wanted, rlm_error **err)
{
    if (d->kept.len >= wanted) {
        return 1;
    }
    size_t missing = wanted - d->kept.len;
    size_t count = missing < d->input.len ? missing : d->input.len;
    if (count && rlm_buf_add(&d->kept, d->input.ptr, count) < 0) {
        return rlm_buf_check(&d->kept, err);
    }
    d->input.ptr += count;
    d->input.len -= count;
    return count == missing;
}

static int decode(struct rlm_frame_decoder *d, struct rlm_frame *f, rlm_error **err)
{
    int r;
    if (d->kept_is_out) {
        d->kept_is_out = false;
        /* A large frame's memory is not held while the session says little. */
        if (d->kept.cap > RLM_FRAME_MAX_CONTROL) {
            rlm_buf_deinit(&d->kept);
            d->kept = RLM_FRAME_DECODER_INIT.kept;
        }
        rlm_buf_clear(&d->kept);
    }
    bool in_place = d->kept.len == 0 && d->input.len >= RLM_FRAME_HEADER;
    if (!in_place && (r = keep(d, RLM_FRAME_HEADER, err)) <= 0) {
        return r;
    }
    size_t payload_bytes;
    read_header(in_place ? d->input.ptr : d->kept.ptr, f, &payload_bytes);
    if ((r = check_header(d, f, payload_bytes, err)) < 0) {
        return r;
    }
    size_t whole = RLM_FRAME_HEADER + payload_bytes;
    if (in_place && d->input.len >= whole) {
        f->payload = (rlm_str){d->input.ptr + RLM_FRAME_HEADER, payload_bytes};
        d->input.ptr += whole;
        d->input.len -= whole;
    } else {
        if ((r = keep(d, whole, err)) <= 0) {
            return r;
        }
        f->payload = (rlm_str){d->kept.ptr + RLM_FRAME_HEADER, payload_bytes};
        d->kept_is_out = true;
    }
    d->sequence = f->sequence;
    return 1;
}

int rlm_frame_decoder_next(struct rlm_frame_decoder *d,
                           struct rlm_frame *ret_frame,
                           rlm_error **err)
{
    if (d->broken) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "the stream of frames broke before");
    }
    struct rlm_frame f = {0};
    int r = decode(d, &f, err);
    if (r < 0) {
        d->broken = true;
    } else if (r > 0) {
        *ret_frame = f;
    }
    return r;
}
