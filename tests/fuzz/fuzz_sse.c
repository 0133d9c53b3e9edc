/* The events of a stream do not depend on where its chunks were split. The first byte chooses how
 * they are; the rest is the stream. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/error.h"
#include "model/sse.h"

enum { MAX_EVENT = 256 };

struct log {
    struct rlm_buf text;
    int result;
};

static int record(void *arg, rlm_str event, rlm_str data, rlm_error **err)
{
    struct log *log = arg;
    fuzz_require(data.len <= MAX_EVENT && event.len <= MAX_EVENT, "events have a maximum");
    fuzz_require(!event.len || !memchr(event.ptr, '\n', event.len), "a name is one line");
    rlm_buf_addf(&log->text, "%zu:%zu:", event.len, data.len);
    rlm_buf_add_str(&log->text, event);
    rlm_buf_add_str(&log->text, data);
    return 0;
}

/* `seed` 0: all at once. */
static void decode(const uint8_t *data, size_t size, uint32_t seed, struct log *log)
{
    struct rlm_sse sse;
    rlm_sse_init(&sse, MAX_EVENT);
    log->text = RLM_BUF(64 * size + 1024);
    log->result = 0;
    for (size_t at = 0; at < size && log->result == 0;) {
        size_t len = size - at;
        if (seed) {
            seed = seed * 1664525 + 1013904223;
            size_t wanted = 1 + (seed >> 24) % 7;
            len = wanted < len ? wanted : len;
        }
        /* An exact copy, so that a sanitizer sees a read past the chunk. */
        char *copy = malloc(len);
        memcpy(copy, data + at, len);
        log->result = rlm_sse_feed(&sse, (rlm_str){copy, len}, record, log, NULL);
        free(copy);
        at += len;
    }
    if (log->result == 0) {
        log->result = rlm_sse_end(&sse, record, log, NULL);
    }
    fuzz_require(log->result == 0 || log->result == RLM_E_LIMIT, "only a limit stops it");
    rlm_sse_deinit(&sse);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct log whole;
    struct log split;
    decode(data + 1, size - 1, 0, &whole);
    decode(data + 1, size - 1, data[0] + 1U, &split);
    fuzz_require(whole.result == split.result, "the result does not depend on the chunks");
    fuzz_require(rlm_str_eq(rlm_buf_str(&whole.text), rlm_buf_str(&split.text)),
                 "the events do not depend on the chunks");
    rlm_buf_deinit(&whole.text);
    rlm_buf_deinit(&split.text);
    return 0;
}
