#include "harness.h"

#include "base/error.h"
#include "runtime/frame.h"

/* Appends a frame to `b`. */
static void add(struct rlm_buf *b, uint8_t kind, uint64_t sequence, const char *payload, size_t len)
{
    char head[RLM_FRAME_HEADER];
    struct rlm_frame f = {.kind = kind, .flags = 1, .stream = 0x1234, .sequence = sequence};
    rlm_frame_put_header(head, &f, len);
    rlm_buf_add(b, head, sizeof head);
    rlm_buf_add(b, payload, len);
}

TEST(frame_header_is_little_endian)
{
    uint8_t head[RLM_FRAME_HEADER];
    struct rlm_frame f = {.kind = 3, .flags = 4, .stream = 0x0201, .sequence = 0x0807060504030201};
    rlm_frame_put_header(head, &f, 0x00030201);
    static const uint8_t expected[] = {1, 2, 3, 0, 3, 4, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8};
    CHECK(memcmp(head, expected, sizeof head) == 0);
    CHECK_TEXT(rlm_frame_name(RLM_FRAME_SUSPENDED), "suspended");
    CHECK_TEXT(rlm_frame_name(0), "?");
    CHECK_TEXT(rlm_frame_name(19), "?");
}

TEST(frame_comes_whole_from_any_cut)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(1 << 20);
    add(&b, RLM_FRAME_START, 1, "abc", 3);
    add(&b, RLM_FRAME_WAKE, 2, "", 0);
    add(&b, RLM_FRAME_TEXT, 3, "hello, world", 12);
    for (size_t step = 1; step <= b.len; step++) {
        struct rlm_frame_decoder d = RLM_FRAME_DECODER_INIT;
        rlm_auto_buf struct rlm_buf seen = RLM_BUF(1000);
        for (size_t at = 0; at < b.len; at += step) {
            rlm_autoerr rlm_error *err = NULL;
            struct rlm_frame f;
            size_t len = b.len - at < step ? b.len - at : step;
            /* An exact copy, so that a sanitizer sees a read past it, and one into freed bytes. */
            char *piece = malloc(len);
            memcpy(piece, b.ptr + at, len);
            rlm_frame_decoder_feed(&d, piece, len);
            int r;
            while ((r = rlm_frame_decoder_next(&d, &f, &err)) > 0) {
                CHECK_INT(f.stream, 0x1234);
                CHECK_INT(f.flags, 1);
                rlm_buf_addf(&seen, "%d:%llu:%.*s|", f.kind, (unsigned long long)f.sequence,
                             RLM_FMT(f.payload));
            }
            CHECK_INT(r, 0);
            free(piece);
        }
        CHECK_TEXT(seen.ptr, "3:1:abc|7:2:|11:3:hello, world|");
        rlm_frame_decoder_deinit(&d);
    }
}

/* What the decoder says to one header; it must say so with the header alone. */
static const char *refusal(uint8_t kind, uint8_t flags, uint64_t sequence, size_t len)
{
    static char message[300];
    char head[RLM_FRAME_HEADER];
    struct rlm_frame f = {.kind = kind, .flags = flags, .sequence = sequence};
    rlm_frame_put_header(head, &f, len);
    struct rlm_frame_decoder d = RLM_FRAME_DECODER_INIT;
    rlm_autoerr rlm_error *err = NULL;
    rlm_frame_decoder_feed(&d, head, sizeof head);
    int r = rlm_frame_decoder_next(&d, &f, &err);
    CHECK(r == 0 || r == RLM_E_PROTOCOL);
    snprintf(message, sizeof message, "%s", rlm_error_message(err));
    if (r < 0) {
        /* It stays broken, also for what would be right. */
        CHECK_INT(rlm_frame_decoder_next(&d, &f, NULL), RLM_E_PROTOCOL);
    }
    rlm_frame_decoder_deinit(&d);
    return message;
}

TEST(frame_that_is_wrong_breaks_the_stream)
{
    CHECK_TEXT(refusal(RLM_FRAME_WAKE, 0, 1, RLM_FRAME_MAX_PAYLOAD), "");
    CHECK_CONTAINS(refusal(RLM_FRAME_WAKE, 0, 1, RLM_FRAME_MAX_PAYLOAD + 1), "1048577 bytes");
    CHECK_CONTAINS(refusal(RLM_FRAME_WAKE, 0, 1, 0xFFFFFFFF), "the limit is 1048576");
    CHECK_CONTAINS(refusal(RLM_FRAME_WAKE, 0, 0, 1), "sequence 0 instead of 1");
    CHECK_CONTAINS(refusal(RLM_FRAME_WAKE, 0, 2, 1), "sequence 2 instead of 1");
    CHECK_CONTAINS(refusal(0, 0, 1, 1), "unknown kind 0");
    CHECK_CONTAINS(refusal(RLM_FRAME_LAST + 1, 0, 1, 1), "unknown kind 19");
    CHECK_CONTAINS(refusal(RLM_FRAME_WAKE, 8, 1, 1), "unknown flags (0x8)");
}

TEST(frame_decoder_keeps_no_more_than_a_frame)
{
    struct rlm_frame_decoder d = RLM_FRAME_DECODER_INIT;
    char head[RLM_FRAME_HEADER];
    char *piece = calloc(1, 300000);
    uint64_t sequence = 0;
    for (int round = 0; round < 3; round++) {
        struct rlm_frame f = {.kind = RLM_FRAME_BODY, .sequence = ++sequence};
        rlm_frame_put_header(head, &f, RLM_FRAME_MAX_PAYLOAD);
        rlm_frame_decoder_feed(&d, head, sizeof head);
        CHECK_INT(rlm_frame_decoder_next(&d, &f, NULL), 0);
        size_t left = RLM_FRAME_MAX_PAYLOAD;
        while (left) {
            size_t len = left < 300000 ? left : 300000;
            left -= len;
            rlm_frame_decoder_feed(&d, piece, len);
            CHECK_INT(rlm_frame_decoder_next(&d, &f, NULL), left == 0);
            CHECK(d.kept.cap <= RLM_FRAME_HEADER + RLM_FRAME_MAX_PAYLOAD + 1);
        }
        CHECK_INT(f.payload.len, RLM_FRAME_MAX_PAYLOAD);
        CHECK_INT(rlm_frame_decoder_next(&d, &f, NULL), 0);
        CHECK(d.kept.cap <= RLM_FRAME_MAX_CONTROL);
    }
    free(piece);
    rlm_frame_decoder_deinit(&d);
}
