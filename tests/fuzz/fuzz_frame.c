/* The decoder of frames: the first byte says in which pieces the rest is fed. Whatever the pieces,
 * the same frames must come out, with an unbroken sequence, and as many bytes as went in. */
#include "base/error.h"
#include "runtime/frame.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    uint64_t frames;
    uint64_t bytes;
    uint32_t hash;
    bool broken;
};

static void note(struct outcome *o, const struct rlm_frame *f)
{
    if (f->sequence != ++o->frames || f->payload.len > RLM_FRAME_MAX_PAYLOAD || f->kind < 1 ||
        f->kind > RLM_FRAME_LAST) {
        abort();
    }
    o->bytes += RLM_FRAME_HEADER + f->payload.len;
    for (size_t i = 0; i < f->payload.len; i++) {
        o->hash = o->hash * 31 + (uint8_t)f->payload.ptr[i];
    }
}

static struct outcome decode(const uint8_t *data, size_t size, size_t step)
{
    struct rlm_frame_decoder d = RLM_FRAME_DECODER_INIT;
    struct outcome o = {0};
    for (size_t at = 0; at < size && !o.broken; at += step) {
        size_t len = size - at < step ? size - at : step;
        char *piece = malloc(len);
        memcpy(piece, data + at, len);
        rlm_frame_decoder_feed(&d, piece, len);
        struct rlm_frame f;
        rlm_autoerr rlm_error *err = NULL;
        int r;
        while ((r = rlm_frame_decoder_next(&d, &f, &err)) > 0) {
            note(&o, &f);
        }
        o.broken = r < 0;
        free(piece);
    }
    if (o.bytes > size) {
        abort();
    }
    rlm_frame_decoder_deinit(&d);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    struct outcome whole = decode(data + 1, size - 1, size);
    struct outcome pieces = decode(data + 1, size - 1, (size_t)data[0] + 1);
    if (whole.frames != pieces.frames || whole.bytes != pieces.bytes || whole.hash != pieces.hash ||
        whole.broken != pieces.broken) {
        abort();
    }
    return 0;
}
