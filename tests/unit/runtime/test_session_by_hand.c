#include "played_worker.h"

/* The caller passes the word: what a wrapper of sessions stands on. */

static void woken(void *arg)
{
    rlm_buf_addf(&w.told, "woken|");
}

static struct rlm_session_options *by_hand(void)
{
    static struct rlm_session_options o = {.by_hand = true};
    session_events.woken = woken;
    return &o;
}

TEST(by_hand_nothing_goes_on_by_itself)
{
    begin_cell(by_hand());
    say(RLM_FRAME_SUSPENDED, SUSPENDED(CALL(1, "[]") "," CALL(2, "[]")));
    CHECK_TEXT(text(&w.told), "suspended 1 f []{} 2 f []{}|");
    say(RLM_FRAME_WAKE, "{}");
    CHECK_TEXT(text(&w.told), "woken|");
    CHECK_TEXT(text(&w.log), "");
    give(2, "5");
    CHECK_TEXT(text(&w.log), "resume {\"results\":[{\"id\":2,\"value\":5}]}|");
    say(RLM_FRAME_SUSPENDED, SUSPENDED(""));
    CHECK_TEXT(text(&w.told), "suspended|");
    CHECK_INT(rlm_session_resume(w.session, NULL, 0, NULL), 0);
    CHECK_TEXT(text(&w.log), "resume {\"results\":[]}|");
    end();
}

TEST(by_hand_it_is_resumed_only_while_it_is_suspended_and_asked_for_the_word_else)
{
    begin_cell(by_hand());
    CHECK_INT(rlm_session_resume(w.session, NULL, 0, NULL), RLM_E_INVAL);
    CHECK_TEXT(text(&w.log), "");
    rlm_session_ask_for_word(w.session);
    rlm_session_ask_for_word(w.session);
    CHECK_TEXT(text(&w.log), "yield {}|");
    say(RLM_FRAME_SUSPENDED, SUSPENDED(""));
    CHECK_TEXT(text(&w.told), "suspended|");
    rlm_session_ask_for_word(w.session);
    CHECK_TEXT(text(&w.log), "");
    end();
}

TEST(by_hand_no_clock_runs_while_the_caller_has_the_word)
{
    struct rlm_session_options *o = by_hand();
    o->exec_timeout_ms = 30;
    begin_cell(o);
    rlm_session_ask_for_word(w.session);
    say(RLM_FRAME_SUSPENDED, SUSPENDED(""));
    text(&w.log);
    run_ms(60);
    CHECK_TEXT(text(&w.log), "");
    CHECK_INT(rlm_session_resume(w.session, NULL, 0, NULL), 0);
    run_until(&w.log, "exec_timeout");
    end();
}
