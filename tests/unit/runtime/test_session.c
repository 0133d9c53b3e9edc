/* A session against a worker that the test plays itself: every frame that comes and goes is in its
 * hands, also those that an honest worker never sends. */
#include "harness.h"

#include "base/error.h"
#include "base/loop.h"
#include "runtime/frame.h"
#include "runtime/runtime.h"

#include <stdarg.h>
#include <unistd.h>

/* ---- the played worker ------------------------------------------------------------------------ */

static struct {
    rlm_runtime runtime;
    struct rlm_transport transport;
    rlm_loop *loop;
    rlm_blobs *blobs;
    rlm_session *session;
    uint64_t sequence;
    struct rlm_frame_decoder heard;
    struct rlm_buf log;  /* of frames sent to the worker */
    struct rlm_buf told; /* of events */
    size_t queued;
    int64_t cpu_ms;
    bool killed, freed;
    int descriptors;
    uint64_t blob_bytes;
    /* What happens inside an event. */
    void (*on_suspended)(void);
    void (*on_finished)(void);
} w;

static int
fake_send(struct rlm_transport *t, const void *bytes, size_t len, int fd, rlm_error **err)
{
    CHECK(!w.freed);
    if (fd >= 0) {
        w.descriptors++;
        close(fd);
    }
    rlm_frame_decoder_feed(&w.heard, bytes, len);
    struct rlm_frame f;
    int r;
    rlm_autoerr rlm_error *why = NULL;
    while ((r = rlm_frame_decoder_next(&w.heard, &f, &why)) > 0) {
        if (f.kind == RLM_FRAME_TEXT || f.kind == RLM_FRAME_BYTES || f.kind == RLM_FRAME_BODY) {
            w.blob_bytes += f.payload.len;
            rlm_buf_addf(&w.log, "%s:%zu%s|", rlm_frame_name(f.kind), f.payload.len,
                         f.flags & RLM_FRAME_END ? "." : "");
        } else if (f.kind == RLM_FRAME_CREDIT) {
            rlm_buf_addf(&w.log, "credit %u on %d|", rlm_frame_get_u32(f.payload.ptr), f.stream);
        } else {
            rlm_buf_addf(&w.log, "%s %.*s|", rlm_frame_name(f.kind), RLM_FMT(f.payload));
        }
    }
    CHECK_TEXT(rlm_error_message(why), "");
    return 0;
}

static size_t fake_queued(const struct rlm_transport *t)
{
    return w.queued;
}

static int64_t fake_cpu_ms(const struct rlm_transport *t)
{
    return w.cpu_ms;
}

static void fake_kill(struct rlm_transport *t)
{
    w.killed = true;
}

static void fake_free(struct rlm_transport *t)
{
    w.freed = true;
}

static struct rlm_transport_ops fake_ops = {
    .send = fake_send,
    .passes_descriptors = true,
    .queued = fake_queued,
    .cpu_ms = fake_cpu_ms,
    .kill = fake_kill,
    .free = fake_free,
};

static int fake_connect(rlm_runtime *r,
                        const struct rlm_session_options *o,
                        struct rlm_transport **ret_transport,
                        rlm_error **err)
{
    w.transport.ops = &fake_ops;
    *ret_transport = &w.transport;
    return 0;
}

static const struct rlm_runtime_ops runtime_ops = {"fake", "none", fake_connect, NULL};

static void say_frame(uint8_t kind, uint8_t flags, uint16_t stream, const void *payload, size_t len)
{
    char *frame = malloc(RLM_FRAME_HEADER + len);
    struct rlm_frame f = {.kind = kind, .flags = flags, .stream = stream, .sequence = ++w.sequence};
    rlm_frame_put_header(frame, &f, len);
    memcpy(frame + RLM_FRAME_HEADER, payload, len);
    w.transport.events->received(w.transport.arg, frame, RLM_FRAME_HEADER + len);
    free(frame);
}

static void say(uint8_t kind, const char *payload)
{
    say_frame(kind, 0, 0, payload, strlen(payload));
}

static void grant(uint16_t stream, uint32_t bytes)
{
    char number[4];
    rlm_frame_put_u32(number, bytes);
    say_frame(RLM_FRAME_CREDIT, 0, stream, number, 4);
}

/* ---- the engine's side ------------------------------------------------------------------------ */

static void on_ready(void *arg, rlm_str json)
{
    rlm_buf_addf(&w.told, "ready|");
}

static void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    rlm_buf_addf(&w.told, "suspended");
    for (size_t i = 0; i < n; i++) {
        struct rlm_json_writer jw = {.buf = &w.told};
        rlm_buf_addf(&w.told, " %d %.*s ", (int)calls[i].id, RLM_FMT(calls[i].name));
        rlm_json_put(&jw, calls[i].args);
        jw.comma = false;
        rlm_json_put(&jw, calls[i].kwargs);
    }
    rlm_buf_addf(&w.told, "|");
    if (w.on_suspended) {
        w.on_suspended();
    }
}

static void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    rlm_buf_addf(&w.told, "finished \"%.*s\" omitted %d %s: %.*s (%s) notes %d|",
                 RLM_FMT(how->output), (int)how->omitted_chars,
                 how->error_type ? how->error_type : "ok", (int)how->error_message.len,
                 how->error_message.ptr ? how->error_message.ptr : "", how->clock ? how->clock : "",
                 how->notes ? (int)how->notes->count : -1);
    if (w.on_finished) {
        w.on_finished();
    }
}

static void on_died(void *arg, const struct rlm_session_death *how)
{
    rlm_buf_addf(&w.told, "died %s%s: %.*s <%.*s>|", how->reason,
                 how->during_cell ? " in a cell" : "", RLM_FMT(how->message), (int)how->output.len,
                 how->output.ptr ? how->output.ptr : "");
}

static const struct rlm_session_events session_events = {on_ready, on_suspended, on_finished,
                                                         on_died};

static void begin(struct rlm_session_options *o)
{
    CHECK_INT(rlm_loop_new(&w.loop, NULL), 0);
    if (!o->blobs) {
        CHECK_INT(rlm_blobs_open(NULL, &w.blobs, NULL), 0);
        o->blobs = w.blobs;
    }
    w.runtime = (rlm_runtime){&runtime_ops, w.loop};
    w.heard = RLM_FRAME_DECODER_INIT;
    w.log = RLM_BUF(64 << 20);
    w.told = RLM_BUF(64 << 20);
    o->open_json = o->open_json.ptr ? o->open_json : RLM_STR("{}");
    rlm_autoerr rlm_error *err = NULL;
    rlm_session_open(&w.runtime, o, &session_events, NULL, &w.session, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

static void end(void)
{
    rlm_session_close(w.session);
    CHECK(w.freed);
    rlm_blobs_free(w.blobs);
    rlm_frame_decoder_deinit(&w.heard);
    rlm_buf_deinit(&w.log);
    rlm_buf_deinit(&w.told);
    rlm_loop_free(w.loop);
}

/* A session that is ready, with a cell under way. */
static void begin_cell(struct rlm_session_options *o)
{
    begin(o);
    say(RLM_FRAME_READY, "{\"python\":\"3.11.2\"}");
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("f()"), NULL), 0);
    rlm_buf_clear(&w.log);
    rlm_buf_clear(&w.told);
}

static struct rlm_session_options *plain(void)
{
    static struct rlm_session_options o;
    return &o;
}

static void stop(void *arg)
{
    rlm_loop_stop(arg);
}

/* Lets the loop run. */
static void run_ms(uint64_t ms)
{
    rlm_timer *t = rlm_timer_new(w.loop, stop, w.loop);
    CHECK(t != NULL);
    rlm_timer_set(t, ms);
    rlm_loop_run(w.loop);
    rlm_timer_free(t);
}

static void run_until(const struct rlm_buf *b, const char *part)
{
    while (!b->ptr || !strstr(b->ptr, part)) {
        run_ms(1); /* the harness has the time limit */
    }
}

static const char *text(struct rlm_buf *b)
{
    static char copy[4096];
    snprintf(copy, sizeof copy, "%s", b->ptr && b->len ? b->ptr : "");
    rlm_buf_clear(b);
    return copy;
}

static void give(int64_t id, const char *value)
{
    struct rlm_call_result result = {.id = id, .value_json = rlm_str_of(value)};
    rlm_autoerr rlm_error *err = NULL;
    rlm_session_resume(w.session, &result, 1, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

#define CALL(id, args)   "{\"id\":" #id ",\"name\":\"f\",\"args\":" args ",\"kwargs\":{}}"
#define SUSPENDED(calls) "{\"calls\":[" calls "],\"pending\":[]}"
#define FINISHED         "{\"cell\":1,\"output\":\"1\\n\",\"omitted\":0,\"error\":null,\"notes\":[]}"

/* ---- cells ------------------------------------------------------------------------------------ */

TEST(session_runs_cells)
{
    begin(plain());
    CHECK_TEXT(text(&w.log), "open {}|");
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("x"), NULL), RLM_E_INVAL);
    say(RLM_FRAME_READY, "{}");
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("print(\"1\")"), NULL), 0);
    CHECK(rlm_session_is_busy(w.session));
    CHECK_INT(rlm_session_start(w.session, 2, RLM_STR("x"), NULL), RLM_E_INVAL);
    CHECK_TEXT(text(&w.log), "start {\"cell\":1,\"code\":\"print(\\\"1\\\")\"}|");
    say(RLM_FRAME_FINISHED, FINISHED);
    CHECK(!rlm_session_is_busy(w.session));
    CHECK_TEXT(text(&w.told), "ready|finished \"1\n\" omitted 0 ok:  () notes 0|");
    CHECK_INT(rlm_session_start(w.session, 2, RLM_STR("1/0"), NULL), 0);
    say(RLM_FRAME_FINISHED, "{\"cell\":2,\"output\":\"\",\"omitted\":7,\"error\":{\"type\":"
                            "\"ZeroDivisionError\",\"message\":\"division by zero\","
                            "\"traceback\":\"...\"},\"notes\":[\"a\",\"b\"]}");
    CHECK_TEXT(text(&w.told),
               "finished \"\" omitted 7 ZeroDivisionError: division by zero () notes 2|");
    end();
}

static void start_next(void)
{
    CHECK_INT(rlm_session_start(w.session, 2, RLM_STR("x"), NULL), 0);
}

TEST(session_starts_the_next_cell_inside_an_event)
{
    begin_cell(plain());
    w.on_finished = start_next;
    say(RLM_FRAME_FINISHED, FINISHED);
    CHECK_TEXT(text(&w.log), "start {\"cell\":2,\"code\":\"x\"}|");
    CHECK(rlm_session_is_busy(w.session));
    end();
}

static void close_it(void)
{
    rlm_session_close(w.session);
    w.session = NULL;
}

TEST(session_can_be_closed_inside_its_events)
{
    begin_cell(plain());
    w.on_finished = close_it;
    say(RLM_FRAME_FINISHED, FINISHED);
    CHECK(w.freed);
    end();
}

TEST(session_can_be_closed_while_calls_are_handed_over)
{
    begin_cell(plain());
    w.on_suspended = close_it;
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]")));
    end();
}

TEST(session_answers_calls)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[1,\"x\"]") "," CALL(2, "[]")));
    CHECK_TEXT(text(&w.told), "suspended 1 f [1,\"x\"]{} 2 f []{}|");
    give(2, "[2]");
    CHECK_TEXT(text(&w.log), "resume {\"results\":[{\"id\":2,\"value\":[2]}]}|");
    /* The worker has the word: it is asked for it, once, and both results go together. */
    struct rlm_call_result failed = {
        .id = 1,
        .error_type = "HostCallError",
        .error_message = RLM_STR("no"),
        .error_reason = "refused",
        .error_agent_id = "root.a",
    };
    CHECK_INT(rlm_session_resume(w.session, &failed, 1, NULL), 0);
    CHECK_TEXT(text(&w.log), "yield {}|");
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(3, "[]")));
    CHECK_TEXT(text(&w.log),
               "resume {\"results\":[{\"id\":1,\"error\":{\"type\":\"HostCallError\",\"message\":"
               "\"no\",\"reason\":\"refused\",\"agent_id\":\"root.a\"}}]}|");
    say(RLM_FRAME_FINISHED, FINISHED);
    /* The call of the cell that is over is dropped, one that never was is an error. */
    give(3, "1");
    struct rlm_call_result wrong = {.id = 4, .value_json = RLM_STR("1")};
    CHECK_INT(rlm_session_resume(w.session, &wrong, 1, NULL), RLM_E_INVAL);
    CHECK_TEXT(text(&w.log), "");
    end();
}

static void answer_at_once(void)
{
    give(1, "1");
    give(2, "2");
}

TEST(session_collects_results_given_inside_the_event)
{
    begin_cell(plain());
    w.on_suspended = answer_at_once;
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]") "," CALL(2, "[]")));
    CHECK_TEXT(text(&w.log),
               "resume {\"results\":[{\"id\":1,\"value\":1},{\"id\":2,\"value\":2}]}|");
    end();
}

TEST(session_asks_for_the_word_once)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]") "," CALL(2, "[]") "," CALL(3, "[]")));
    give(1, "1");
    text(&w.log);
    give(2, "2");
    give(3, "3");
    CHECK_TEXT(text(&w.log), "yield {}|");
    text(&w.told);
    say(RLM_FRAME_SUSPENDED, SUSPENDED(""));
    CHECK_TEXT(text(&w.log),
               "resume {\"results\":[{\"id\":2,\"value\":2},{\"id\":3,\"value\":3}]}|");
    CHECK_TEXT(text(&w.told), "");
    end();
}

TEST(session_resumes_by_itself_when_woken)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]")));
    text(&w.log);
    say(RLM_FRAME_WAKE, "{}");
    say(RLM_FRAME_WAKE, "{}"); /* crosses the resume */
    CHECK_TEXT(text(&w.log), "resume {\"results\":[]}|");
    say(RLM_FRAME_FINISHED, FINISHED);
    end();
}

/* ---- rules ------------------------------------------------------------------------------------ */

static void expect_death(const char *part)
{
    run_until(&w.told, "died");
    CHECK_CONTAINS(w.told.ptr, "died protocol");
    CHECK_CONTAINS(w.told.ptr, part);
    CHECK(w.killed);
    /* Nothing comes after it, and what still arrives is not looked at. */
    size_t len = w.told.len;
    say(RLM_FRAME_FINISHED, FINISHED);
    w.transport.events->ended(w.transport.arg, "signal", RLM_STR("the worker was killed"),
                              RLM_STR(""));
    run_ms(1);
    CHECK_INT(w.told.len, len);
    CHECK_INT(rlm_session_start(w.session, 9, RLM_STR("x"), NULL), RLM_E_SESSION);
    end();
}

static void refuse(uint8_t kind, const char *payload, const char *part)
{
    say(kind, payload);
    expect_death(part);
}

#define REFUSES_IN_CELL(name, kind, payload, part) \
    TEST(session_refuses_##name)                   \
    {                                              \
        begin_cell(plain());                       \
        refuse(kind, payload, part);               \
    }

REFUSES_IN_CELL(a_second_ready, RLM_FRAME_READY, "{}", "a ready frame came while a cell ran")
REFUSES_IN_CELL(host_frames, RLM_FRAME_START, "{}", "a start frame came")
REFUSES_IN_CELL(another_cells_end, RLM_FRAME_FINISHED, "{\"cell\":2}", "another cell")
REFUSES_IN_CELL(another_cells_output, RLM_FRAME_OUTPUT, "{\"cell\":7}", "another cell")
REFUSES_IN_CELL(no_json, RLM_FRAME_FINISHED, "{\"cell\":1,", "a finished frame: not JSON")
REFUSES_IN_CELL(no_object, RLM_FRAME_SUSPENDED, "[]", "no JSON object")
REFUSES_IN_CELL(no_calls, RLM_FRAME_SUSPENDED, "{}", "without its calls")
REFUSES_IN_CELL(waiting_for_nothing, RLM_FRAME_SUSPENDED, SUSPENDED(""), "without waiting")
REFUSES_IN_CELL(a_wrong_id, RLM_FRAME_SUSPENDED, SUSPENDED(CALL(2, "[]")), "id 2 after 0")
REFUSES_IN_CELL(an_id_twice,
                RLM_FRAME_SUSPENDED,
                SUSPENDED(CALL(1, "[]") "," CALL(1, "[]")),
                "id 1 after 1")
REFUSES_IN_CELL(a_call_without_name,
                RLM_FRAME_SUSPENDED,
                SUSPENDED("{\"id\":1,\"name\":\"\",\"args\":[],\"kwargs\":{}}"),
                "without a name")
REFUSES_IN_CELL(a_call_without_args,
                RLM_FRAME_SUSPENDED,
                SUSPENDED("{\"id\":1,\"name\":\"f\",\"args\":{},\"kwargs\":{}}"),
                "without arguments")
REFUSES_IN_CELL(a_blob_it_was_not_given,
                RLM_FRAME_SUSPENDED,
                SUSPENDED(CALL(1,
                               "[{\"$blob\":\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca4"
                               "95991b7852b855\"}]")),
                "was not given")
REFUSES_IN_CELL(a_stream_that_was_not,
                RLM_FRAME_SUSPENDED,
                SUSPENDED(CALL(1, "[[{\"$stream\":3}]]")),
                "names stream 3")
REFUSES_IN_CELL(a_failure_it_made_up,
                RLM_FRAME_SUSPENDED,
                SUSPENDED(CALL(1, "[{\"x\":{\"$failure\":{}}}]")),
                "$failure")
REFUSES_IN_CELL(bytes_that_are_none,
                RLM_FRAME_SUSPENDED,
                SUSPENDED(CALL(1, "[{\"$bytes\":\"a-b=\"}]")),
                "$bytes")
REFUSES_IN_CELL(a_dict_that_is_none,
                RLM_FRAME_SUSPENDED,
                SUSPENDED(CALL(1, "[{\"$dict\":[[1]]}]")),
                "$dict")
REFUSES_IN_CELL(two_special_members,
                RLM_FRAME_SUSPENDED,
                SUSPENDED(CALL(1, "[{\"$set\":[],\"a\":1}]")),
                "$set")

TEST(session_takes_the_values_of_the_encoding)
{
    begin_cell(plain());
#define VALUES                                                                             \
    "[{\"$bytes\":\"AAE=\"},{\"$tuple\":[1]},{\"$set\":[]},{\"$frozenset\":[]},"           \
    "{\"$float\":\"-inf\"},{\"$dict\":[[1,{\"$tuple\":[]}]]},{\"$dir\":{\"name\":\"d\"}}," \
    "{\"a\":null,\"b\":true},123456789012345678901234567890]"
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, VALUES)));
    CHECK_TEXT(text(&w.told), "suspended 1 f " VALUES "{}|");
    end();
}

TEST(session_refuses_an_end_without_a_cell)
{
    begin_cell(plain());
    say(RLM_FRAME_FINISHED, FINISHED);
    refuse(RLM_FRAME_FINISHED, FINISHED, "a finished frame came while no cell ran");
}

TEST(session_refuses_more_while_it_is_suspended)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]")));
    refuse(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(2, "[]")), "while a cell was suspended");
}

TEST(session_refuses_values_before_it_is_ready)
{
    begin(plain());
    say(RLM_FRAME_TEXT, "x");
    expect_death("before it was ready");
}

TEST(session_refuses_an_answer_to_what_was_not_sent)
{
    begin(plain());
    say(RLM_FRAME_READY, "{}");
    w.queued = 1 << 20;
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("x"), NULL), 0);
    refuse(RLM_FRAME_FINISHED, FINISHED, "before it could be asked for");
}

TEST(session_refuses_a_wrong_sequence)
{
    begin_cell(plain());
    w.sequence++;
    refuse(RLM_FRAME_WAKE, "{}", "sequence 3 instead of 2");
}

TEST(session_answers_sync)
{
    begin_cell(plain());
    say(RLM_FRAME_SYNC, "{\"received\":2}");
    CHECK_TEXT(text(&w.log), "sync {\"received\":2}|");
    end();
}

/* ---- streams ---------------------------------------------------------------------------------- */

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

/* ---- clocks ----------------------------------------------------------------------------------- */

TEST(session_interrupts_a_cell_whose_time_is_over)
{
    struct rlm_session_options o = {.exec_timeout_ms = 30};
    begin_cell(&o);
    run_until(&w.log, "interrupt");
    CHECK_TEXT(text(&w.log),
               "interrupt {\"reason\":\"exec_timeout\",\"message\":\"the cell ran too "
               "long (exec_timeout: 30 ms)\"}|");
    say(RLM_FRAME_FINISHED, "{\"cell\":1,\"output\":\"\",\"error\":{\"type\":\"CellInterrupted\","
                            "\"message\":\"m\"}}");
    CHECK_TEXT(text(&w.told),
               "finished \"\" omitted 0 CellInterrupted: m (exec_timeout) notes -1|");
    /* The next one has its own time, and none runs while there is no cell. */
    run_ms(60);
    CHECK_TEXT(text(&w.log), "");
    CHECK_INT(rlm_session_start(w.session, 2, RLM_STR("x"), NULL), 0);
    run_ms(5);
    CHECK(!strstr(w.log.ptr, "interrupt"));
    end();
}

TEST(session_counts_no_time_while_a_call_is_open)
{
    struct rlm_session_options o = {.exec_timeout_ms = 30};
    begin_cell(&o);
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]") "," CALL(2, "[]")));
    give(1, "1"); /* it runs on, with one call open */
    run_ms(80);
    CHECK(!strstr(text(&w.log), "interrupt"));
    give(2, "1");
    run_until(&w.log, "interrupt");
    end();
}

TEST(session_counts_no_time_while_it_is_paused)
{
    struct rlm_session_options o = {.exec_timeout_ms = 30, .cpu_time_ms = 30};
    begin_cell(&o);
    rlm_session_pause(w.session, true);
    w.cpu_ms = 1000;
    run_ms(80);
    CHECK_TEXT(text(&w.log), "");
    rlm_session_pause(w.session, false);
    run_until(&w.log, "interrupt");
    CHECK_CONTAINS(w.log.ptr, "exec_timeout");
    end();
}

TEST(session_counts_cpu_time_also_while_calls_are_open)
{
    struct rlm_session_options o = {.exec_timeout_ms = 60000, .cpu_time_ms = 100};
    begin(&o);
    w.cpu_ms = 5000; /* of earlier cells */
    say(RLM_FRAME_READY, "{}");
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("x"), NULL), 0);
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]")));
    text(&w.log);
    run_ms(60);
    CHECK_TEXT(text(&w.log), "");
    w.cpu_ms = 5099;
    run_ms(60);
    CHECK_TEXT(text(&w.log), "");
    w.cpu_ms = 5100;
    run_until(&w.log, "interrupt");
    CHECK_CONTAINS(w.log.ptr, "(cpu_time: 100 ms)");
    end();
}

TEST(session_kills_a_cell_that_does_not_end)
{
    begin_cell(plain());
    say(RLM_FRAME_OUTPUT, "{\"cell\":1,\"output\":\"so far\"}");
    rlm_session_interrupt(w.session, "stop", RLM_STR("the run was stopped"), 20);
    rlm_session_interrupt(w.session, "later", RLM_STR(""), 90000); /* changes nothing */
    run_until(&w.told, "died");
    CHECK(w.killed);
    CHECK_TEXT(text(&w.told),
               "died killed in a cell: the cell did not end within 20 ms of being interrupted "
               "(stop); its worker was killed and all variables are lost <so far>|");
    end();
}

TEST(session_names_the_clock_of_a_kill)
{
    struct rlm_session_options o = {.exec_timeout_ms = 10};
    begin_cell(&o);
    run_until(&w.log, "interrupt");
    rlm_session_interrupt(w.session, "stop", RLM_STR(""), 10);
    run_until(&w.told, "died");
    CHECK_CONTAINS(w.told.ptr, "died exec_timeout in a cell: the cell ran too long (exec_timeout: "
                               "10 ms) and did not end within 10 ms");
    end();
}

TEST(session_unwinds_after_done)
{
    begin_cell(plain());
    rlm_session_unwind(w.session);
    run_ms(20);
    CHECK_TEXT(text(&w.log), "");
    run_until(&w.log, "interrupt");
    CHECK_CONTAINS(w.log.ptr, "\"reason\":\"done\"");
    run_until(&w.told, "died killed");
    end();
}

TEST(session_that_is_not_ready_in_time_dies)
{
    struct rlm_session_options o = {.open_timeout_ms = 20};
    begin(&o);
    run_until(&w.told, "died");
    CHECK_TEXT(text(&w.told), "died open: the worker was not ready within 20 ms <>|");
    end();
}

/* ---- ends ------------------------------------------------------------------------------------- */

TEST(session_tells_how_its_worker_ended)
{
    begin_cell(plain());
    say(RLM_FRAME_OUTPUT, "{\"cell\":1,\"output\":\"a\"}");
    say(RLM_FRAME_OUTPUT, "{\"cell\":1,\"output\":\"ab\"}");
    w.transport.events->ended(w.transport.arg, "exit",
                              RLM_STR("the worker ended with exit status 7"), RLM_STR(""));
    CHECK_TEXT(text(&w.told), ""); /* not inside */
    run_until(&w.told, "died");
    CHECK_TEXT(text(&w.told), "died exit in a cell: the worker ended with exit status 7; all "
                              "variables are lost <ab>|");
    end();
}

TEST(session_tells_what_a_broken_interpreter_said)
{
    begin(plain());
    w.transport.events->ended(w.transport.arg, "exit",
                              RLM_STR("the worker ended with exit status 1"),
                              RLM_STR("No module named 'json'"));
    run_until(&w.told, "died");
    CHECK_TEXT(text(&w.told), "died open: the worker ended with exit status 1 before it was ready: "
                              "No module named 'json' <>|");
    end();
}

TEST(session_tells_a_fatal_error)
{
    begin_cell(plain());
    say(RLM_FRAME_FATAL, "{\"message\":\"no more descriptors\"}");
    run_until(&w.told, "died");
    CHECK_CONTAINS(w.told.ptr, "died exit in a cell: the worker could not go on: no more");
    end();
}
