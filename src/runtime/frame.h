/* Frames: how both ends of the session protocol cut their byte streams (docs/protocol.md).
 *
 * The decoder takes bytes as they come and gives whole frames out:
 *
 *     rlm_frame_decoder_feed(&d, bytes, len);
 *     while ((r = rlm_frame_decoder_next(&d, &frame, err)) > 0) {
 *         ...
 *     }
 *
 * A frame that stands whole in the bytes fed is not copied. What is left of a frame is kept, at most
 * one frame's size. A header is checked as soon as its 16 bytes are there: a wrong sequence, an
 * unknown kind, an unknown flag or a length past the limit is an error, and the decoder stays
 * broken. Which kinds may come in which state is the session's business.
 */
#pragma once

#include "base/buf.h"

#include <stdint.h>

enum rlm_frame_kind {
    RLM_FRAME_OPEN = 1,
    RLM_FRAME_READY = 2,
    RLM_FRAME_START = 3,
    RLM_FRAME_RESUME = 4,
    RLM_FRAME_SUSPENDED = 5,
    RLM_FRAME_FINISHED = 6,
    RLM_FRAME_WAKE = 7,
    RLM_FRAME_YIELD = 8,
    RLM_FRAME_INTERRUPT = 9,
    RLM_FRAME_CLOSE = 10,
    RLM_FRAME_TEXT = 11,
    RLM_FRAME_BYTES = 12,
    RLM_FRAME_BODY = 13,
    RLM_FRAME_CREDIT = 14,
    RLM_FRAME_BLOB = 15,
    RLM_FRAME_SYNC = 16,
    RLM_FRAME_OUTPUT = 17,
    RLM_FRAME_FATAL = 18,
    RLM_FRAME_LAST = RLM_FRAME_FATAL,
};

enum {
    RLM_FRAME_END = 1,        /* text, bytes, body: the last of the stream */
    RLM_FRAME_DESCRIPTOR = 2, /* blob: a descriptor comes with it */
    RLM_FRAME_HAS_BODY = 4,   /* control: the payload is the body of the stream named */
    RLM_FRAME_FLAGS = 7,

    RLM_FRAME_HEADER = 16,
    RLM_FRAME_MAX_PAYLOAD = 1024 * 1024,
    RLM_FRAME_MAX_CHUNK = 256 * 1024,  /* of a stream */
    RLM_FRAME_MAX_CONTROL = 64 * 1024, /* above this a payload travels as a body */
    RLM_STREAM_CREDIT = 1024 * 1024,   /* that a stream starts with */
};

struct rlm_frame {
    uint8_t kind; /* enum rlm_frame_kind */
    uint8_t flags;
    uint16_t stream;
    uint64_t sequence;
    rlm_str payload; /* borrowed until the next call of the decoder */
};

/* Writes the 16 bytes of a header; `payload_bytes` is at most RLM_FRAME_MAX_PAYLOAD. */
void rlm_frame_put_header(void *out, const struct rlm_frame *frame, size_t payload_bytes);
/* "suspended", ...; "?" for what is no kind. */
const char *rlm_frame_name(uint8_t kind);

struct rlm_frame_decoder {
    uint64_t sequence; /* of the last frame given out; 0 at the start */
    struct rlm_buf kept;
    rlm_str input;
    bool kept_is_out; /* the last frame given out stands in `kept` */
    bool broken;
};

#define RLM_FRAME_DECODER_INIT \
    ((struct rlm_frame_decoder){.kept = {.max_bytes = RLM_FRAME_HEADER + RLM_FRAME_MAX_PAYLOAD}})

void rlm_frame_decoder_deinit(struct rlm_frame_decoder *d);
/* Borrows the bytes until rlm_frame_decoder_next returned 0 or less. */
void rlm_frame_decoder_feed(struct rlm_frame_decoder *d, const void *bytes, size_t len);
/* 1: a frame; 0: more bytes are needed; RLM_E_PROTOCOL, RLM_E_NOMEM. */
int rlm_frame_decoder_next(struct rlm_frame_decoder *d,
                           struct rlm_frame *ret_frame,
                           rlm_error **err);

/* The little-endian number that a credit frame carries. */
uint32_t rlm_frame_get_u32(const void *ptr);
void rlm_frame_put_u32(void *ptr, uint32_t number);
