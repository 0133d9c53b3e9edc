/* Values that travel in pieces: what a session sends under credit, and what it takes. */
#include "played_worker.h"

static void say_pieces(uint8_t kind, uint16_t stream, char byte, size_t total, size_t piece)
{
    char *bytes = malloc(piece);
    memset(bytes, byte, piece);
    while (total) {
        size_t len = total < piece ? total : piece;
        total -= len;
        say_frame(kind, total ? 0 : RLM_FRAME_END, stream, bytes, len);
    }
    free(bytes);
}

TEST(session_stores_streams_as_blobs)
{
    begin_cell(plain());
    say_pieces(RLM_FRAME_TEXT, 7, 'a', 3 << 20, 256 << 10);
    CHECK_CONTAINS(text(&w.log), "credit 262144 on 7|credit 262144 on 7|");
    char id[RLM_SHA256_HEX + 1];
    char *same = malloc(3 << 20);
    memset(same, 'a', 3 << 20);
    rlm_sha256_of((rlm_str){same, 3 << 20}, id);
    free(same);
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[{\"k\":[{\"$stream\":7}]}]")));
    char expected[200];
    snprintf(expected, sizeof expected, "suspended 1 f [{\"k\":[{\"$blob\":\"%s\"}]}]{}|", id);
    CHECK_TEXT(text(&w.told), expected);
    const struct rlm_blob *blob = rlm_blobs_find(w.blobs, rlm_str_of(id));
    CHECK(blob != NULL);
    CHECK_INT(blob->size_bytes, 3 << 20);
    CHECK_INT(blob->type, RLM_BLOB_TEXT);
    /* It may name the blob from now on, and when a result does, the worker is told of it first. */
    char value[120];
    snprintf(value, sizeof value, "{\"$blob\":\"%s\"}", id);
    text(&w.log);
    give(1, value);
    CHECK_INT(w.descriptors, 1);
    snprintf(expected, sizeof expected, "blob {\"id\":\"%s\",\"type\":\"text\",\"bytes\":3145728,",
             id);
    CHECK_CONTAINS(w.log.ptr, expected);
    CHECK_CONTAINS(strstr(w.log.ptr, "blob"), "|resume {");
    char again[400];
    snprintf(again, sizeof again, SUSPENDED(CALL(2, "[%s]")), value);
    say(RLM_FRAME_SUSPENDED, again);
    CHECK_CONTAINS(text(&w.told), "suspended 2 f");
    /* A second time it is known. */
    text(&w.log);
    give(2, value);
    CHECK(!strstr(w.log.ptr, "bytes"));
    end();
}

TEST(session_takes_messages_in_bodies)
{
    begin_cell(plain());
    static char message[200100];
    size_t len = (size_t)snprintf(message, sizeof message, "{\"cell\":1,\"output\":\"");
    memset(message + len, 'x', 200000);
    strcpy(message + len + 200000, "\"}");
    size_t total = strlen(message);
    say_frame(RLM_FRAME_BODY, 0, 5, message, 100000);
    say_frame(RLM_FRAME_BODY, RLM_FRAME_END, 5, message + 100000, total - 100000);
    say_frame(RLM_FRAME_FINISHED, RLM_FRAME_HAS_BODY, 5, "", 0);
    CHECK_CONTAINS(w.told.ptr, "finished \"xxxx");
    CHECK(w.told.len > 200000);
    end();
}

TEST(session_refuses_pieces_that_are_too_long)
{
    begin_cell(plain());
    size_t len = (256 << 10) + 1;
    char *big = calloc(1, len);
    say_frame(RLM_FRAME_BYTES, 0, 3, big, len - 1);
    CHECK(!w.killed);
    say_frame(RLM_FRAME_BYTES, 0, 3, big, len);
    free(big);
    expect_death("the limit is 262144");
}

TEST(session_refuses_many_streams)
{
    begin_cell(plain());
    for (uint16_t i = 1; i <= 65; i++) {
        say_frame(RLM_FRAME_TEXT, 0, i, "x", 1);
    }
    expect_death("more than 64 streams");
}

TEST(session_refuses_a_stream_of_two_kinds)
{
    begin_cell(plain());
    say_frame(RLM_FRAME_TEXT, 0, 1, "x", 1);
    say_frame(RLM_FRAME_BYTES, 0, 1, "x", 1);
    expect_death("a bytes frame came on stream 1, which carries text");
}

TEST(session_refuses_a_text_that_is_none)
{
    begin_cell(plain());
    say_frame(RLM_FRAME_TEXT, RLM_FRAME_END, 1, "\xff", 1);
    expect_death("not UTF-8");
}

TEST(session_refuses_endless_bodies)
{
    begin_cell(plain());
    char *big = calloc(1, 256 << 10);
    for (int i = 0; i < 129 && !w.killed; i++) {
        say_frame(RLM_FRAME_BODY, 0, (uint16_t)(1 + i % 2), big, 256 << 10);
    }
    free(big);
    expect_death("more than 32 MiB");
}

TEST(session_refuses_a_body_that_was_not_sent)
{
    begin_cell(plain());
    say_frame(RLM_FRAME_BODY, 0, 5, "{}", 2);
    say_frame(RLM_FRAME_FINISHED, RLM_FRAME_HAS_BODY, 5, "", 0);
    expect_death("names a body (5)");
}

TEST(session_sends_large_results_under_credit)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]") "," CALL(2, "[]")));
    text(&w.log);
    size_t len = 3 << 20;
    char *value = malloc(len + 1);
    memset(value, 'y', len);
    value[0] = value[len - 1] = '"';
    value[len] = '\0';
    give(1, value);
    free(value);
    CHECK_TEXT(text(&w.log), "body:262144|body:262144|body:262144|body:262144|");
    /* What is urgent does not wait. */
    rlm_session_interrupt(w.session, "stop", RLM_STR("enough"), 60000);
    CHECK_TEXT(text(&w.log), "interrupt {\"reason\":\"stop\",\"message\":\"enough\"}|");
    grant(2, 1 << 20); /* no such stream: late credit is no fault */
    CHECK_TEXT(text(&w.log), "");
    grant(1, 1 << 20);
    CHECK_TEXT(text(&w.log), "body:262144|body:262144|body:262144|body:262144|");
    grant(1, 4 << 20);
    CHECK_CONTAINS(w.log.ptr, "body:262144|body:262144|body:262144|body:262144|body:3");
    CHECK_CONTAINS(w.log.ptr, ".|resume |");
    CHECK_INT(w.blob_bytes, len + strlen("{\"results\":[{\"id\":1,\"value\":}]}"));
    end();
}

TEST(session_sends_blobs_as_bytes_where_no_descriptor_can_go)
{
    struct rlm_session_options o = {0};
    CHECK_INT(rlm_blobs_open(NULL, &w.blobs, NULL), 0);
    o.blobs = w.blobs;
    size_t len = 2500000;
    char *value = malloc(len);
    memset(value, 'z', len);
    memcpy(value, "\xc3\xa9", 2);
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(w.blobs, RLM_BLOB_TEXT, (rlm_str){value, len}, &blob, NULL), 0);
    free(value);
    const char *ids[] = {blob->id, NULL};
    o.input_blobs = ids;
    fake_ops.passes_descriptors = false;
    begin(&o);
    CHECK_CONTAINS(w.log.ptr, "\"type\":\"text\",\"bytes\":2500000,\"chars\":2499999,\"width\":1,"
                              "\"ascii\":false}|text:262144|text:262144|text:262144|text:262144|");
    CHECK(!strstr(w.log.ptr, "open"));
    grant(1, 256 << 10);
    grant(1, 8 << 20);
    CHECK_CONTAINS(w.log.ptr, ".|open {}|");
    CHECK_INT(w.blob_bytes, len);
    CHECK_INT(w.descriptors, 0);
    end();
}

TEST(session_opens_wide_blobs_off_the_loop)
{
    struct rlm_session_options o = {0};
    CHECK_INT(rlm_blobs_open(harness_directory(), &w.blobs, NULL), 0);
    o.blobs = w.blobs;
    size_t len = 300000;
    char *value = malloc(len);
    memset(value, 'z', len);
    memcpy(value, "\xe2\x82\xac", 3);
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(w.blobs, RLM_BLOB_TEXT, (rlm_str){value, len}, &blob, NULL), 0);
    free(value);
    const char *ids[] = {blob->id, blob->id, NULL};
    o.input_blobs = ids;
    begin(&o);
    CHECK_TEXT(text(&w.log), "");
    run_until(&w.log, "open");
    CHECK_CONTAINS(w.log.ptr, "\"chars\":299998,\"width\":2,\"ascii\":false}|open {}|");
    CHECK_INT(w.descriptors, 1);
    end();
}

TEST(session_closed_while_a_blob_is_opened)
{
    struct rlm_session_options o = {0};
    CHECK_INT(rlm_blobs_open(NULL, &w.blobs, NULL), 0);
    o.blobs = w.blobs;
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(w.blobs, RLM_BLOB_TEXT, RLM_STR("\xe2\x82\xac"), &blob, NULL), 0);
    const char *ids[] = {blob->id, NULL};
    o.input_blobs = ids;
    begin(&o);
    close_it();
    rlm_blobs_free(w.blobs); /* the work on the pool holds it */
    w.blobs = NULL;
    rlm_loop_run(w.loop);
    end();
}

TEST(session_waits_while_the_transport_is_full)
{
    begin(plain());
    say(RLM_FRAME_READY, "{}");
    text(&w.log);
    w.queued = 1 << 20;
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("x"), NULL), 0);
    rlm_session_interrupt(w.session, "stop", RLM_STR(""), 60000);
    CHECK_TEXT(text(&w.log), "");
    w.queued = 0;
    w.transport.events->drained(w.transport.arg);
    CHECK_TEXT(text(&w.log), "start {\"cell\":1,\"code\":\"x\"}|"
                             "interrupt {\"reason\":\"stop\",\"message\":\"\"}|");
    end();
}
