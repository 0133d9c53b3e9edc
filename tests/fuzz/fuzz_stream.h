/* Foreign bytes as a stream and as a whole answer, through the decoders of a dialect. */
#pragma once

#include "fuzz.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "model/dialect.h"
#include "model/sse.h"

struct fuzz_stream {
    const struct rlm_dialect *dialect;
    struct rlm_stream stream;
    size_t seen_bytes; /* of pieces of text */
};

static inline void fuzz_piece(void *arg, rlm_str text)
{
    struct fuzz_stream *f = arg;
    f->seen_bytes += text.len;
}

static inline int fuzz_event(void *arg, rlm_str event, rlm_str data, rlm_error **err)
{
    struct fuzz_stream *f = arg;
    int r = rlm_dialect_event(f->dialect, &f->stream, event, data, err);
    return r < 0 ? r : f->stream.refused || f->stream.over;
}

static inline void fuzz_check(struct fuzz_stream *f, int r, const rlm_error *err)
{
    struct rlm_stream *s = &f->stream;
    fuzz_require((r < 0) == (err != NULL), "an error is set if and only if it failed");
    fuzz_require(f->seen_bytes == s->text.len, "every byte of text was handed on");
    fuzz_require(s->received_bytes >= s->text.len, "text counts as received");
    fuzz_require(s->usage.input_tokens >= 0 && s->usage.output_tokens >= 0 &&
                     s->usage.cached_tokens >= 0 && s->cache_write_tokens >= 0 &&
                     s->usage.cached_tokens <= s->usage.input_tokens,
                 "usage makes sense");
    fuzz_require(!s->refused || (s->refusal.message && s->refusal.code < 0),
                 "a refusal has a code");
    rlm_auto_buf struct rlm_buf code = RLM_BUF(RLM_STREAM_MAX_TEXT);
    fuzz_require(rlm_stream_tool_code(s, &code, NULL) == 0, "tool code can be looked for");
    rlm_stream_deinit(s);
}

static inline void fuzz_dialect(const struct rlm_dialect *dialect, rlm_str bytes)
{
    struct fuzz_stream f = {.dialect = dialect};
    rlm_autoerr rlm_error *err = NULL;
    struct rlm_sse sse;
    rlm_stream_init(&f.stream);
    f.stream.piece = fuzz_piece;
    f.stream.arg = &f;
    rlm_sse_init(&sse, 1 << 20);
    int r = rlm_sse_feed(&sse, bytes, fuzz_event, &f, &err);
    if (r == 0) {
        r = rlm_sse_end(&sse, fuzz_event, &f, &err);
    }
    rlm_sse_deinit(&sse);
    fuzz_check(&f, r, err);

    rlm_autoerr rlm_error *whole_err = NULL;
    f.seen_bytes = 0;
    rlm_stream_init(&f.stream);
    f.stream.piece = fuzz_piece;
    f.stream.arg = &f;
    r = rlm_dialect_whole(dialect, &f.stream, bytes, &whole_err);
    fuzz_check(&f, r, whole_err);

    struct rlm_refusal refusal = {0};
    fuzz_require(rlm_refusal_of_answer(400, bytes, &refusal) == 0, "any body can be a refusal");
    fuzz_require(rlm_utf8_valid(rlm_str_of(refusal.message)), "its words are UTF-8");
    rlm_refusal_deinit(&refusal);
}
