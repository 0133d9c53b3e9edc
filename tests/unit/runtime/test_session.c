/* Cells, the rules that every frame of a worker is held to, and how sessions end. */
#include "played_worker.h"

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

#define CANCELLED(calls, ids) "{\"calls\":[" calls "],\"pending\":[],\"cancelled\":" ids "}"

TEST(session_tells_which_calls_the_code_gave_up)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]") "," CALL(2, "[]") "," CALL(3, "[]")));
    say(RLM_FRAME_WAKE, "{}");
    text(&w.told);
    say(RLM_FRAME_SUSPENDED, CANCELLED(CALL(4, "[]"), "[1,3]"));
    CHECK_TEXT(text(&w.told), "given up 1 3|suspended 4 f []{}|");
    text(&w.log);
    give(1, "1");
    CHECK_TEXT(text(&w.log), "");
    give(2, "2");
    CHECK_TEXT(text(&w.log), "resume {\"results\":[{\"id\":2,\"value\":2}]}|");
    end();
}

TEST(session_lets_a_cell_go_on_that_gave_up_its_last_call)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]")));
    say(RLM_FRAME_WAKE, "{}");
    text(&w.told), text(&w.log);
    say(RLM_FRAME_SUSPENDED, CANCELLED("", "[1]"));
    CHECK_TEXT(text(&w.told), "given up 1|");
    CHECK_TEXT(text(&w.log), "resume {\"results\":[]}|");
    say(RLM_FRAME_FINISHED, FINISHED);
    CHECK_CONTAINS(text(&w.told), "finished");
    end();
}

TEST(session_passes_over_forged_ids_of_calls_given_up)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]") "," CALL(2, "[]")));
    give(1, "1");
    text(&w.told), text(&w.log);
    say(RLM_FRAME_SUSPENDED,
        CANCELLED(CALL(3, "[]"), "[-1,0,1,\"2\",null,{\"id\":2},3,9,9999999999999999999999,2]"));
    CHECK_TEXT(text(&w.told), "suspended 3 f []{}|");
    give(2, "2");
    CHECK_TEXT(text(&w.log), "resume {\"results\":[{\"id\":2,\"value\":2}]}|");
    end();
}

TEST(session_refuses_to_wait_for_calls_that_were_not_given_up)
{
    begin_cell(plain());
    say(RLM_FRAME_SUSPENDED, CANCELLED("", "[1]"));
    expect_death("without waiting");
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
    CHECK_TEXT(text(&w.told), "died exit in a cell: the worker ended with exit status 7 <ab>|");
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
