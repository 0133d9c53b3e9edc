/* Sessions over descriptors that the embedding program gives: the test plays program and worker. */
#include "told.h"

#include "runtime/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static struct {
    rlm_loop *loop;
    rlm_blobs *blobs;
    rlm_runtime *runtime;
    rlm_session *session;
    struct rlm_stream_options options;
    rlm_stream *stream;
    struct rlm_buf told; /* what the program is asked, and the session's events */
    int in, out;         /* the worker's ends */
    uint64_t sequence;
} t;

/* ---- the program ------------------------------------------------------------------------------ */

static void on_connect(void *arg, rlm_stream *stream, const struct rlm_stream_session *session)
{
    CHECK(arg == &t);
    t.stream = stream;
    rlm_buf_addf(&t.told, "connect %s %d %s|", session->agent_id, session->depth,
                 session->working_directory ? session->working_directory : "-");
}

static void on_kill(void *arg, rlm_stream *stream)
{
    CHECK(stream == t.stream);
    rlm_buf_addf(&t.told, "kill|");
}

static void on_closed(void *arg, rlm_stream *stream)
{
    CHECK(stream == t.stream);
    t.stream = NULL;
    rlm_buf_addf(&t.told, "closed|");
}

static void on_ready(void *arg, rlm_str json)
{
    rlm_buf_addf(&t.told, "ready|");
}

static void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    tell_suspended(&t.told, calls, n);
}

static void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    rlm_buf_addf(&t.told, "finished|");
}

static void on_died(void *arg, const struct rlm_session_death *how)
{
    tell_died(&t.told, how);
}

static const struct rlm_session_events session_events = {
    .ready = on_ready,
    .suspended = on_suspended,
    .finished = on_finished,
    .died = on_died,
};

static void begin(const char *open_json)
{
    t.told = RLM_BUF(1 << 20);
    t.in = t.out = -1;
    CHECK_INT(rlm_loop_new(&t.loop, NULL), 0);
    CHECK_INT(rlm_blobs_open(NULL, &t.blobs, NULL), 0);
    t.options.size = sizeof t.options;
    t.options.connect = on_connect;
    t.options.kill = on_kill;
    t.options.closed = on_closed;
    t.options.arg = &t;
    CHECK_INT(rlm_runtime_new_stream(t.loop, &t.options, &t.runtime, NULL), 0);
    struct rlm_session_options o = {
        .blobs = t.blobs,
        .agent_id = "root.a",
        .depth = 1,
        .open_json = rlm_str_of(open_json),
    };
    rlm_autoerr rlm_error *err = NULL;
    rlm_session_open(t.runtime, &o, &session_events, NULL, &t.session, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

static void end(void)
{
    rlm_session_close(t.session);
    CHECK(t.stream == NULL);
    rlm_runtime_free(t.runtime);
    rlm_blobs_free(t.blobs);
    rlm_loop_free(t.loop);
    rlm_buf_deinit(&t.told);
    close(t.in);
    close(t.out);
}

static void connect_socket(void)
{
    int pair[2];
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    t.in = t.out = pair[1];
    rlm_stream_connected(t.stream, pair[0], pair[0]);
}

static void connect_pipes(void)
{
    int to[2], from[2];
    CHECK_INT(pipe2(to, O_CLOEXEC), 0);
    CHECK_INT(pipe2(from, O_CLOEXEC), 0);
    t.in = to[0];
    t.out = from[1];
    rlm_stream_connected(t.stream, from[0], to[1]);
}

static const char *wait_for(const char *part)
{
    while (!t.told.ptr || !strstr(t.told.ptr, part)) {
        run_loop(t.loop, 1); /* the harness has the time limit */
    }
    return t.told.ptr;
}

/* ---- the worker ------------------------------------------------------------------------------- */

static void say(uint8_t kind, const char *payload)
{
    char frame[RLM_FRAME_HEADER + 256];
    size_t len = strlen(payload);
    struct rlm_frame f = {.kind = kind, .sequence = ++t.sequence};
    rlm_frame_put_header(frame, &f, len);
    memcpy(frame + RLM_FRAME_HEADER, payload, len);
    CHECK_INT(write(t.out, frame, RLM_FRAME_HEADER + len), RLM_FRAME_HEADER + len);
}

/* Takes `size` bytes, while the loop goes on. */
static char *hear(size_t size)
{
    char *bytes = calloc(1, size + 1);
    size_t len = 0;
    fcntl(t.in, F_SETFL, O_NONBLOCK);
    while (len < size) {
        ssize_t n = read(t.in, bytes + len, size - len);
        CHECK(n > 0 || (n < 0 && errno == EAGAIN));
        len += n > 0 ? (size_t)n : 0;
        run_loop(t.loop, 0);
    }
    return bytes;
}

static void expect_heard(const char *payload)
{
    char *bytes = hear(RLM_FRAME_HEADER + strlen(payload));
    CHECK_TEXT(bytes + RLM_FRAME_HEADER, payload);
    free(bytes);
}

static void run_a_cell(void)
{
    expect_heard("{\"a\":1}");
    say(RLM_FRAME_READY, "{}");
    wait_for("ready");
    CHECK_INT(rlm_session_start(t.session, 1, RLM_STR("x"), NULL), 0);
    expect_heard("{\"cell\":1,\"code\":\"x\"}");
    say(RLM_FRAME_FINISHED, "{\"cell\":1,\"output\":\"\"}");
    wait_for("finished");
}

/* ---- tests ------------------------------------------------------------------------------------ */

TEST(stream_asks_to_connect_and_tells_when_it_is_over)
{
    t.options.working_directory = "/some/where";
    begin("{\"a\":1}");
    CHECK_TEXT(t.told.ptr, "connect root.a 1 /some/where|");
    CHECK_TEXT(rlm_runtime_name(t.runtime), "stream");
    CHECK_TEXT(rlm_runtime_effects(t.runtime), "outside");
    connect_socket();
    run_a_cell();
    rlm_session_close(t.session);
    t.session = NULL;
    CHECK_CONTAINS(t.told.ptr, "|finished|closed|");
    expect_heard("{}"); /* `close` */
    char byte;
    CHECK_INT(read(t.in, &byte, 1), 0);
    end();
}

TEST(stream_goes_over_two_pipes_too)
{
    begin("{\"a\":1}");
    connect_pipes();
    run_a_cell();
    end();
}

TEST(stream_keeps_what_it_sends_until_it_is_connected)
{
    /* More than a socket takes at once. */
    size_t size = 900 * 1000;
    char *json = malloc(size + 3);
    memset(json, ' ', size + 2);
    memcpy(json, "{\"a\":1", 6);
    memcpy(json + size, "}", 2);
    begin(json);
    run_loop(t.loop, 5);
    connect_socket();
    char *heard = hear(RLM_FRAME_HEADER + RLM_FRAME_MAX_CHUNK);
    CHECK(memcmp(heard + RLM_FRAME_HEADER, "{\"a\":1   ", 9) == 0);
    free(heard);
    free(json);
    end();
}

TEST(stream_that_cannot_be_connected_fails_with_the_programs_words)
{
    begin("{}");
    rlm_stream_fail(t.stream, RLM_STR("no seat is free"));
    CHECK(!strstr(t.told.ptr, "died")); /* never inside of a call */
    CHECK_CONTAINS(wait_for("died"), "died open: the worker could not be reached before it was "
                                     "ready: no seat is free <>|");
    connect_socket(); /* too late: they are closed */
    char byte;
    CHECK_INT(read(t.in, &byte, 1), 0);
    end();
}

TEST(stream_whose_worker_hangs_up_ends_its_session)
{
    begin("{}");
    connect_pipes();
    say(RLM_FRAME_READY, "{}");
    close(t.out);
    t.out = -1;
    CHECK_CONTAINS(wait_for("died"), "ready|died exit: the worker closed its connection <>|");
    end();
}

TEST(stream_survives_a_pipe_that_nobody_reads)
{
    signal(SIGPIPE, SIG_DFL);
    begin("{}");
    connect_pipes();
    close(t.in);
    t.in = -1;
    say(RLM_FRAME_READY, "{}");
    wait_for("ready");
    CHECK_INT(rlm_session_start(t.session, 1, RLM_STR("x"), NULL), 0);
    CHECK_CONTAINS(wait_for("died"), "the worker closed its connection");
    end();
}

TEST(stream_tells_of_a_kill_in_the_words_of_its_runtime)
{
    t.options.killed = "it was left alone";
    begin("{}");
    connect_socket();
    say(RLM_FRAME_READY, "{}");
    wait_for("ready");
    CHECK_INT(rlm_session_start(t.session, 1, RLM_STR("x"), NULL), 0);
    rlm_session_interrupt(t.session, "stop", RLM_STR("m"), 10);
    CHECK_CONTAINS(wait_for("died"),
                   "kill|died killed in a cell: the cell did not end within 10 ms "
                   "of being interrupted (stop); it was left alone <>|");
    end();
}

TEST(stream_runtime_checks_its_options)
{
    rlm_autoerr rlm_error *err = NULL;
    struct rlm_stream_options o = RLM_STREAM_OPTIONS_INIT;
    CHECK_INT(rlm_runtime_new_stream(NULL, &o, &t.runtime, &err), RLM_E_INVAL);
    CHECK_CONTAINS(rlm_error_message(err), "`connect`");
    rlm_error_free(err), err = NULL;
    o.connect = on_connect;
    o.effects = "some";
    CHECK_INT(rlm_runtime_new_stream(NULL, &o, &t.runtime, &err), RLM_E_INVAL);
    CHECK_CONTAINS(rlm_error_message(err), "not \"some\"");
}
