#include "played_worker.h"

/* A session that the embedding program runs, the program's part played by the tests: what it is asked stands
 * in w.log, what the engine is told in w.told. */

static struct {
    rlm_runtime *runtime;
    rlm_backend *backend;
    uint64_t step;
    struct rlm_buf inner; /* outcomes of the inner session */
    bool wraps;           /* opens one, of the played worker */
    bool answers_at_once; /* opened, inside the callback */
    bool is_closed;
} p;

static void
on_open(void *arg, rlm_backend *b, uint64_t step, const struct rlm_backend_session *session)
{
    p.backend = b;
    p.step = step;
    rlm_buf_addf(&w.log, "open %s %d %.*s|", session->agent_id, session->depth,
                 RLM_FMT(session->open_json));
    if (p.wraps) {
        CHECK_INT(rlm_backend_open_inner(b, &w.runtime, NULL), 0);
    } else if (p.answers_at_once) {
        rlm_backend_opened(b, step);
    }
}

static void on_start(void *arg, rlm_backend *b, uint64_t step, rlm_str code)
{
    p.step = step;
    rlm_buf_addf(&w.log, "start %.*s|", RLM_FMT(code));
}

static void on_resume(void *arg, rlm_backend *b, uint64_t step, rlm_str results)
{
    p.step = step;
    rlm_buf_addf(&w.log, "resume %.*s|", RLM_FMT(results));
}

static void on_close(void *arg, rlm_backend *b)
{
    rlm_buf_addf(&w.log, "close|");
    p.is_closed = true;
}

static void on_inner(void *arg, rlm_backend *b, enum rlm_inner_outcome what, rlm_str json)
{
    static const char *const names[] = {"ready", "finished", "suspended", "died"};
    rlm_buf_addf(&p.inner, "%s %.*s|", names[what], RLM_FMT(json));
}

static void open_one(void)
{
    struct rlm_backend_options o = RLM_BACKEND_OPTIONS_INIT;
    o.open = on_open;
    o.start = on_start;
    o.resume = on_resume;
    o.close = on_close;
    o.inner = on_inner;
    static struct rlm_session_options options = {
        .agent_id = "root", .depth = 1, .last_call = 10, .open_json = {"{}", 2}};
    CHECK_INT(rlm_loop_new(&w.loop, NULL), 0);
    CHECK_INT(rlm_blobs_open(NULL, &w.blobs, NULL), 0);
    options.blobs = w.blobs;
    w.runtime = (rlm_runtime){&runtime_ops, w.loop};
    w.heard = RLM_FRAME_DECODER_INIT;
    w.log = RLM_BUF(64 << 20);
    w.told = RLM_BUF(64 << 20);
    p.inner = RLM_BUF(64 << 20);
    CHECK_INT(rlm_runtime_new_custom(w.loop, &o, &p.runtime, NULL), 0);
    CHECK_INT(rlm_session_open(p.runtime, &options, &session_events, NULL, &w.session, NULL), 0);
}

/* The session and its runtime end; the program answers to that last of all. */
static void end_all(void)
{
    rlm_session_close(w.session);
    CHECK(p.is_closed);
    rlm_runtime_free(p.runtime);
    rlm_backend_closed(p.backend);
    rlm_blobs_free(w.blobs);
    rlm_frame_decoder_deinit(&w.heard);
    rlm_buf_deinit(&w.log);
    rlm_buf_deinit(&w.told);
    rlm_buf_deinit(&p.inner);
    rlm_loop_free(w.loop);
}

static void start_cell(void)
{
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("f()"), NULL), 0);
    rlm_buf_clear(&w.log);
    rlm_buf_clear(&w.told);
    rlm_buf_clear(&p.inner);
}

/* Ready, with a cell under way. */
static void open_in_cell(void)
{
    p.answers_at_once = true;
    open_one();
    run_until(&w.told, "ready");
    start_cell();
}

static void suspend(const char *json)
{
    rlm_backend_suspended(p.backend, p.step, rlm_str_of(json));
    CHECK_TEXT(text(&w.told), ""); /* nothing comes inside the answer */
    run_until(&w.told, "|");
}

static void finish(const char *json)
{
    rlm_backend_finished(p.backend, p.step, rlm_str_of(json));
    run_until(&w.told, "|");
}

TEST(backend_opens_runs_and_closes)
{
    p.answers_at_once = true;
    open_one();
    CHECK_TEXT(text(&w.log), "open root 1 {}|");
    CHECK_TEXT(text(&w.told), "");
    CHECK_INT(rlm_session_start(w.session, 1, RLM_STR("x"), NULL), RLM_E_INVAL);
    run_until(&w.told, "ready");
    start_cell();
    CHECK(rlm_session_is_busy(w.session));
    finish(
        "{\"output\":\"1\\n\",\"omitted\":7,\"notes\":[\"n\"],\"error\":{\"type\":\"ValueError\","
        "\"message\":\"m\"}}");
    CHECK_TEXT(text(&w.told), "finished \"1\n\" omitted 7 ValueError: m () notes 1|");
    CHECK(!rlm_session_is_busy(w.session));
    end_all();
}

TEST(backend_calls_get_the_engines_ids_and_results_its_own)
{
    open_in_cell();
    suspend("{\"calls\":[" CALL(3, "[1]") "," CALL(7, "[]") "]}");
    CHECK_TEXT(text(&w.told), "suspended 11 f [1]{} 12 f []{}|");
    give(12, "5");
    CHECK_TEXT(text(&w.log), "resume [{\"id\":7,\"value\":5}]|");
    /* Kept while it runs. */
    give(11, "6");
    CHECK_TEXT(text(&w.log), "");
    suspend("{\"calls\":[" CALL(8, "[]") "],\"pending\":[3,8]}");
    CHECK_TEXT(text(&w.told), "suspended 13 f []{}|");
    CHECK_TEXT(text(&w.log), "resume [{\"id\":3,\"value\":6}]|");
    finish("{\"output\":\"\"}");
    CHECK_TEXT(text(&w.told), "finished \"\" omitted 0 ok:  () notes -1|");
    end_all();
}

TEST(backend_gives_up_what_it_does_not_wait_for)
{
    open_in_cell();
    suspend("{\"calls\":[" CALL(1, "[]") "," CALL(2, "[]") "]}");
    text(&w.told);
    give(11, "1");
    text(&w.log);
    suspend("{\"calls\":[" CALL(3, "[]") "],\"pending\":[3]}");
    CHECK_TEXT(text(&w.told), "given up 12|suspended 13 f []{}|");
    give(12, "2"); /* nobody waits for it */
    CHECK_TEXT(text(&w.log), "");
    end_all();
}

TEST(backend_without_wake_is_asked_every_100_ms)
{
    open_in_cell();
    suspend("{\"calls\":[" CALL(1, "[]") "]}");
    CHECK_TEXT(text(&w.log), "");
    run_until(&w.log, "resume []|");
    rlm_buf_clear(&w.log);
    rlm_backend_suspended(p.backend, p.step, RLM_STR("{\"calls\":[]}"));
    run_until(&w.log, "resume []|");
    end_all();
}

TEST(backend_answers_late_and_twice_change_nothing)
{
    open_in_cell();
    uint64_t step = p.step;
    rlm_backend_finished(p.backend, step - 1, RLM_STR("{\"output\":\"early\"}"));
    rlm_backend_finished(p.backend, step, RLM_STR("{\"output\":\"one\"}"));
    rlm_backend_finished(p.backend, step, RLM_STR("{\"output\":\"two\"}"));
    run_until(&w.told, "|");
    CHECK_CONTAINS(w.told.ptr, "\"one\"");
    start_cell();
    rlm_backend_fail(p.backend, step, RLM_STR("late"));
    rlm_backend_opened(p.backend, step);
    run_ms(2);
    CHECK_TEXT(text(&w.told), "");
    finish("{\"output\":\"three\"}");
    CHECK_CONTAINS(w.told.ptr, "\"three\"");
    end_all();
}

TEST(backend_answers_after_close_change_nothing)
{
    open_in_cell();
    close_it();
    rlm_backend_finished(p.backend, p.step, RLM_STR("{\"output\":\"\"}"));
    rlm_backend_fail(p.backend, p.step, RLM_STR("x"));
    rlm_backend_inner_close(p.backend);
    CHECK_INT(rlm_backend_open_inner(p.backend, &w.runtime, NULL), RLM_E_SESSION);
    char *bytes;
    size_t len;
    bool is_text;
    CHECK_INT(rlm_backend_read(p.backend, RLM_STR("x"), &bytes, &len, &is_text, NULL),
              RLM_E_NOT_FOUND);
    run_ms(2);
    CHECK_TEXT(text(&w.told), "");
    end_all();
}

TEST(backend_that_closes_before_it_is_asked_to_is_kept)
{
    open_in_cell();
    rlm_backend_closed(p.backend);
    finish("{\"output\":\"x\"}");
    CHECK_CONTAINS(w.told.ptr, "\"x\"");
    end_all();
}

TEST(backend_that_fails_ends_the_session)
{
    open_in_cell();
    rlm_backend_fail(p.backend, p.step, RLM_STR("start raised ValueError: no"));
    run_until(&w.told, "died");
    CHECK_TEXT(text(&w.told),
               "died backend in a cell: the backend of the session failed: start raised "
               "ValueError: no <>|");
    CHECK_INT(rlm_session_start(w.session, 2, RLM_STR("x"), NULL), RLM_E_SESSION);
    end_all();
}

TEST(backend_that_cannot_open_ends_the_session)
{
    open_one();
    rlm_backend_fail(p.backend, p.step, RLM_STR("no room"));
    run_until(&w.told, "died");
    CHECK_TEXT(text(&w.told), "died backend: the backend of the session failed: no room <>|");
    end_all();
}

/* What no answer may say. */
static const struct {
    const char *json, *told;
    bool finishes;
} wrong[] = {
    {"{\"calls\":[]}", "suspended without waiting"},
    {"{\"calls\":[", "no JSON"},
    {"[]", "no JSON object"},
    {"7", "no JSON object", true},
    {"{\"calls\":[" CALL(0, "[]") "]}", "a call came with id 0 after 0"},
    {"{\"calls\":[" CALL(2, "[]") "," CALL(2, "[]") "]}", "id 2 after 2: ids ascend"},
    {"{\"calls\":[{\"id\":1,\"args\":[],\"kwargs\":{}}]}", "without a name"},
    {"{\"calls\":[{\"id\":1,\"name\":\"f\",\"args\":{},\"kwargs\":{}}]}", "without arguments"},
    {"{\"calls\":[" CALL(1, "[]") "],\"pending\":[1,9]}", "waits for call 9"},
    {"{\"calls\":[" CALL(1, "[{\"$blob\":\"abc\"}]") "]}", "was not given"},
    {"{\"calls\":[" CALL(1, "[{\"$stream\":1}]") "]}", "was not given"},
    {"{\"calls\":[" CALL(1, "[{\"$failure\":{}}]") "]}", "\"$failure\" that is none"},
};

TEST(backend_that_says_what_it_must_not_ends_the_session)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memset(&p, 0, sizeof p);
        open_in_cell();
        if (wrong[i].finishes) {
            rlm_backend_finished(p.backend, p.step, rlm_str_of(wrong[i].json));
        } else {
            rlm_backend_suspended(p.backend, p.step, rlm_str_of(wrong[i].json));
        }
        run_until(&w.told, "died");
        CHECK_CONTAINS(w.told.ptr,
                       "died backend in a cell: the backend of the session did what it must");
        CHECK_CONTAINS(w.told.ptr, wrong[i].told);
        end_all();
    }
}

TEST(backend_that_answers_another_question_ends_the_session)
{
    open_one();
    rlm_backend_finished(p.backend, p.step, RLM_STR("{\"output\":\"\"}"));
    run_until(&w.told, "died");
    CHECK_CONTAINS(w.told.ptr, "it answered open with the end of a cell");
    end_all();
}

TEST(backend_large_texts_become_blobs_and_can_be_read)
{
    open_in_cell();
    rlm_auto_buf struct rlm_buf json = RLM_BUF(1 << 20);
    rlm_buf_adds(&json, "{\"calls\":[{\"id\":1,\"name\":\"f\",\"args\":[{\"k\":\"");
    for (int i = 0; i < RLM_BLOB_THRESHOLD; i++) {
        rlm_buf_addc(&json, 'x');
    }
    rlm_buf_adds(&json, "\"}],\"kwargs\":{}}]}");
    suspend(json.ptr);
    CHECK_CONTAINS(w.told.ptr, "suspended 11 f [{\"k\":{\"$blob\":\"");
    char *bytes, id[RLM_SHA256_HEX + 1];
    size_t len;
    bool is_text;
    snprintf(id, sizeof id, "%s", strstr(w.told.ptr, "$blob") + 8);
    CHECK_INT(rlm_backend_read(p.backend, rlm_str_of(id), &bytes, &len, &is_text, NULL), 0);
    CHECK_INT(len, RLM_BLOB_THRESHOLD);
    CHECK(is_text && bytes[0] == 'x' && bytes[len - 1] == 'x');
    free(bytes);
    /* One that it was not given cannot be read until a result names it. */
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(w.blobs, RLM_BLOB_BYTES, RLM_STR("other"), &blob, NULL), 0);
    CHECK_INT(rlm_backend_read(p.backend, rlm_str_of(blob->id), &bytes, &len, &is_text, NULL),
              RLM_E_NOT_FOUND);
    char value[128];
    snprintf(value, sizeof value, "{\"$blob\":\"%s\"}", blob->id);
    give(11, value);
    CHECK_INT(rlm_backend_read(p.backend, rlm_str_of(blob->id), &bytes, &len, &is_text, NULL), 0);
    CHECK(!is_text && len == 5);
    free(bytes);
    end_all();
}

TEST(backend_that_does_not_end_after_done_is_ended)
{
    open_in_cell();
    suspend("{\"calls\":[" CALL(1, "[]") "]}");
    rlm_session_unwind(w.session);
    give(11, "null");
    run_until(&w.told, "died killed in a cell: the backend did not end its cell");
    end_all();
}

/* ---- the session that it wraps --------------------------------------------------------------- */

static void open_wrapped(void)
{
    p.wraps = true;
    open_one();
    run_until(&w.log, "open {}|"); /* the worker's */
    say(RLM_FRAME_READY, "{\"python\":\"3.11.2\"}");
    CHECK_TEXT(text(&p.inner), "ready {\"python\":\"3.11.2\"}|");
    run_ms(2);
    CHECK_TEXT(text(&w.told), ""); /* not before the backend says so */
    rlm_backend_opened(p.backend, p.step);
    run_until(&w.told, "ready");
    start_cell();
}

static void start_inner(const char *code)
{
    CHECK_INT(rlm_backend_inner_start(p.backend, rlm_str_of(code), NULL), 0);
}

TEST(backend_passes_a_cell_through)
{
    open_wrapped();
    CHECK_TEXT(text(&w.log), ""); /* the worker has not got it yet */
    CHECK_INT(rlm_session_recover(w.session, RLM_STR("{\"a\":1}"), NULL), 0);
    start_inner("g()");
    CHECK_TEXT(text(&w.log), "start {\"cell\":1,\"code\":\"g()\",\"recovered\":{\"a\":1}}|");
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(11, "[{\"$tuple\":[1]}]")));
    CHECK_TEXT(text(&p.inner),
               "suspended {\"calls\":[{\"id\":11,\"name\":\"f\",\"args\":[{\"$tuple\":"
               "[1]}],\"kwargs\":{}}],\"pending\":[11]}|");
    suspend("{\"calls\":[" CALL(11, "[{\"$tuple\":[1]}]") "],\"pending\":[11]}");
    CHECK_TEXT(text(&w.told), "suspended 11 f [{\"$tuple\":[1]}]{}|");
    struct rlm_call_result error = {
        .id = 11, .error_type = "KeyError", .error_message = RLM_STR("k")};
    CHECK_INT(rlm_session_resume(w.session, &error, 1, NULL), 0);
    const char *results =
        "[{\"id\":11,\"error\":{\"type\":\"KeyError\",\"message\":\"k\",\"reason\":"
        "\"\",\"agent_id\":\"\"}}]";
    CHECK_CONTAINS(text(&w.log), results);
    CHECK_INT(rlm_backend_inner_resume(p.backend, rlm_str_of(results), NULL), 0);
    CHECK_CONTAINS(w.log.ptr, results);
    say(RLM_FRAME_FINISHED,
        "{\"cell\":1,\"output\":\"o\",\"omitted\":3,\"error\":null,\"notes\":[\"n\"],"
        "\"bound\":[\"x\"]}");
    CHECK_TEXT(text(&p.inner),
               "finished {\"output\":\"o\",\"omitted\":3,\"error\":null,\"notes\":[\"n\"],"
               "\"bound\":[\"x\"]}|");
    end_all();
}

TEST(backend_wrapped_worker_that_wakes_is_resumed_through_the_wrapper)
{
    open_wrapped();
    start_inner("g()");
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(11, "[]")));
    say(RLM_FRAME_WAKE, "{}"); /* before the wrapper has passed it on */
    text(&w.log);
    suspend("{\"calls\":[" CALL(11, "[]") "]}");
    CHECK_TEXT(text(&w.log), "resume []|");
    CHECK_INT(rlm_backend_inner_resume(p.backend, RLM_STR("[]"), NULL), 0);
    CHECK_TEXT(text(&w.log), "resume {\"results\":[]}|");
    /* A result that comes while it runs has the worker asked for the word. */
    give(11, "1");
    CHECK_TEXT(text(&w.log), "yield {}|");
    say(RLM_FRAME_SUSPENDED, SUSPENDED(""));
    rlm_backend_suspended(p.backend, p.step, RLM_STR("{\"calls\":[],\"pending\":[11]}"));
    run_until(&w.log, "resume [{\"id\":11,\"value\":1}]|");
    end_all();
}

TEST(backend_wrapped_session_is_used_only_when_it_is_its_turn)
{
    open_wrapped();
    CHECK_INT(rlm_backend_inner_resume(p.backend, RLM_STR("[]"), NULL), RLM_E_INVAL);
    CHECK_INT(rlm_backend_open_inner(p.backend, &w.runtime, NULL), RLM_E_INVAL);
    start_inner("g()");
    CHECK_INT(rlm_backend_inner_start(p.backend, RLM_STR("h()"), NULL), RLM_E_INVAL);
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(11, "[]")));
    CHECK_INT(rlm_backend_inner_resume(p.backend, RLM_STR("{}"), NULL), RLM_E_INVAL);
    CHECK_INT(rlm_backend_inner_resume(p.backend, RLM_STR("[{\"id\":99,\"value\":1}]"), NULL),
              RLM_E_INVAL);
    CHECK_INT(rlm_backend_inner_resume(p.backend, RLM_STR("[{\"id\":11}]"), NULL), RLM_E_INVAL);
    suspend("{\"calls\":[" CALL(11, "[]") "]}");
    CHECK_INT(rlm_backend_inner_resume(p.backend, RLM_STR("[]"), NULL), RLM_E_INVAL);
    end_all();
    CHECK(w.freed);
}

TEST(backend_death_of_the_wrapped_session_passes_through)
{
    open_wrapped();
    start_inner("g()");
    w.transport.events->ended(w.transport.arg, "signal", RLM_STR("the worker was killed"),
                              RLM_STR(""));
    run_until(&p.inner, "died");
    CHECK_TEXT(text(&p.inner), "died {\"reason\":\"signal\",\"message\":\"the worker was killed\","
                               "\"output\":\"\"}|");
    rlm_backend_fail(p.backend, p.step, RLM_STR("an exception"));
    run_until(&w.told, "died");
    CHECK_TEXT(text(&w.told), "died signal in a cell: the worker was killed <>|");
    end_all();
}

TEST(backend_that_answers_for_a_dead_session_goes_on_without_it)
{
    open_wrapped();
    start_inner("g()");
    w.transport.events->ended(w.transport.arg, "signal", RLM_STR("the worker was killed"),
                              RLM_STR(""));
    run_until(&p.inner, "died");
    finish("{\"output\":\"saved\"}");
    CHECK_CONTAINS(w.told.ptr, "finished \"saved\"");
    start_cell();
    CHECK_INT(rlm_backend_inner_start(p.backend, RLM_STR("x"), NULL), RLM_E_SESSION);
    end_all();
}

TEST(backend_session_dies_with_the_wrapped_one_while_nothing_is_asked)
{
    open_wrapped();
    start_inner("g()");
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(11, "[]")));
    suspend("{\"calls\":[" CALL(11, "[]") "]}");
    text(&w.told);
    w.transport.events->ended(w.transport.arg, "exit", RLM_STR("the worker ended"), RLM_STR(""));
    run_until(&w.told, "died exit in a cell: the worker ended");
    end_all();
}

static int no_connect(rlm_runtime *r,
                      const struct rlm_session_options *o,
                      struct rlm_transport **ret_transport,
                      rlm_error **err)
{
    return rlm_error_set(err, RLM_E_NOT_FOUND, "no interpreter");
}

TEST(backend_whose_wrapped_session_cannot_open_fails_with_its_reason)
{
    static const struct rlm_runtime_ops ops = {
        .name = "fake", .effects = "none", .connect = no_connect};
    open_one();
    rlm_runtime broken = {&ops, w.loop};
    CHECK_INT(rlm_backend_open_inner(p.backend, p.runtime, NULL), RLM_E_INVAL);
    CHECK_INT(rlm_backend_open_inner(p.backend, &broken, NULL), 0);
    run_until(&p.inner, "died");
    CHECK_CONTAINS(p.inner.ptr, "no interpreter");
    rlm_backend_fail(p.backend, p.step, RLM_STR("x"));
    run_until(&w.told, "died open: opening a session (fake): no interpreter");
    end_all();
}
