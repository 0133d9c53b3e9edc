/* What ends a cell that takes too long, and a session that is never ready. */
#include "played_worker.h"

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
               "(stop); its worker was killed <so far>|");
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
