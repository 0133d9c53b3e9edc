/* Asking a run that has ended something more. */
#include "whole_run.h"

#include "base/loop.h"
#include "graph/journal.h"

#include <stdlib.h>

static const char two_answers[] = "@reply turn=1\n```repl\nx = 41\ndone('first')\n```\n"
                                  "@reply turn=2\n```repl\ndone(f'{x + 1}')\n```\n";

static const char *journal(const char *name)
{
    static char paths[2][256];
    static int n;
    char *path = paths[n++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", harness_directory(), name);
    return path;
}

static void begin(struct setup *s, const char *path, bool keep)
{
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    o.query = RLM_STR("do it");
    o.journal = path;
    o.keep_sessions = keep;
    CHECK_INT(rlm_run_start(s->flow, &o, NULL, NULL, &s->run, NULL), 0);
}

static void ask(struct setup *s)
{
    rlm_error *err = NULL;
    if (rlm_run_ask(s->run, RLM_STR("and now?"), &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
    CHECK(!rlm_run_has_ended(s->run));
    CHECK_TEXT(rlm_run_reason(s->run), "");
}

static void resume(struct setup *s, const char *path)
{
    struct rlm_resume_options o = RLM_RESUME_OPTIONS_INIT;
    rlm_run_free(s->run);
    s->run = NULL;
    o.journal = path;
    o.restore = RLM_RESTORE_REPLAY;
    CHECK_INT(rlm_flow_resume(s->flow, &o, NULL, NULL, &s->run, NULL), 0);
}

static void check_replay(struct setup *s, const char *path, size_t cells)
{
    for (int execute = 0; execute < 2; execute++) {
        const struct rlm_replay_report *report = replay_run(s, path, execute, false);
        CHECK_INT(execute ? report->cells_run : report->cells_not_run, cells);
        CHECK_INT(rlm_run_ask(s->run, RLM_STR("more"), NULL), RLM_E_INVAL);
    }
}

static int keep_kind(
    void *arg, enum rlm_record_kind kind, int64_t offset, struct rlm_str payload, rlm_error **err)
{
    static const char letters[RLM_RECORD_KIND_LIMIT] = {
        [RLM_RECORD_RUN] = 'B',           [RLM_RECORD_RESUMED] = 'B',
        [RLM_RECORD_RUN_ENDED] = 'E',     [RLM_RECORD_SESSION_OPENED] = 's',
        [RLM_RECORD_SESSION_ENDED] = 'x',
    };
    char *kinds = arg;
    (void)offset, (void)payload, (void)err;
    kinds[strlen(kinds)] = letters[kind];
    return 0;
}

/* Which drives began and ended, and sessions were opened and died. */
static const char *drives(const char *path)
{
    static char kinds[100];
    memset(kinds, 0, sizeof kinds);
    CHECK_INT(rlm_journal_read(path, keep_kind, kinds, NULL, NULL), 0);
    return kinds;
}

/* The session that was kept, which has descriptors, is gone. */
static void turn_until_fewer(struct setup *s, int fds)
{
    while (count_fds() >= fds) {
        CHECK(rlm_loop_turn(s->loop));
    }
}

static const struct rlm_node *node_at(struct setup *s, size_t index)
{
    const struct rlm_node *node = rlm_graph_node(rlm_run_graph(s->run), index);
    CHECK(node != NULL);
    return node;
}

TEST(a_kept_session_has_its_variables)
{
    struct setup s = setup(two_answers, defaults);
    begin(&s, NULL, true);
    CHECK_INT(rlm_run_ask(s.run, RLM_STR("too soon"), NULL), RLM_E_BUSY);
    finish(&s, "answered", "first");
    CHECK_INT(rlm_run_ask(s.run, RLM_STR(""), NULL), RLM_E_INVAL);
    ask(&s);
    finish(&s, "answered", "42");
    CHECK_INT(node_at(&s, 4)->type, RLM_USER_QUERY);
    CHECK_STR(node_at(&s, 4)->content, "and now?");
    CHECK_INT(rlm_run_usage(s.run).calls, 2);
    int fds = count_fds();
    rlm_run_close_sessions(s.run);
    turn_until_fewer(&s, fds);
    teardown(&s);
}

TEST(a_recorded_follow_up_is_replayed)
{
    struct setup s = setup(two_answers, defaults);
    begin(&s, journal("run.rlm"), true);
    finish(&s, "answered", "first");
    ask(&s);
    finish(&s, "answered", "42");
    CHECK_TEXT(drives(journal("run.rlm")), "BsEBE");
    check_replay(&s, journal("run.rlm"), 2);
    teardown(&s);
}

TEST(a_killed_follow_up_goes_on_from_its_journal)
{
    struct setup s = setup("@reply turn=1\n```repl\nx = 41\ndone('first')\n```\n"
                           "@reply turn=2\n```repl\ny = x + 1\nprint(y)\n```\n"
                           "@reply turn=3 delay=60s\nslow\n",
                           defaults);
    begin(&s, journal("run.rlm"), true);
    finish(&s, "answered", "first");
    ask(&s);
    while (rlm_graph_node_count(rlm_run_graph(s.run)) < 8) {
        CHECK(rlm_loop_turn(s.loop));
    }
    char copy[600];
    snprintf(copy, sizeof copy, "cp -r '%s' '%s'", journal("run.rlm"), journal("killed.rlm"));
    CHECK_INT(system(copy), 0);
    teardown(&s);
    s = setup("@reply turn=3\n```repl\ndone(f'{x} {y}')\n```\n", defaults);
    resume(&s, journal("killed.rlm"));
    finish(&s, "answered", "41 42");
    check_replay(&s, journal("killed.rlm"), 3);
    teardown(&s);
}

TEST(without_a_kept_session_the_model_is_told_what_is_gone)
{
    struct setup s = setup("@reply turn=1\n```repl\nx = 41\ndone('first')\n```\n"
                           "@reply turn=2 match=\"All variables are lost\"\n```repl\n"
                           "done(str('x' in globals()))\n```\n",
                           defaults);
    begin(&s, NULL, false);
    finish(&s, "answered", "first");
    ask(&s);
    CHECK_STR(node_at(&s, 5)->error, "session_lost");
    finish(&s, "answered", "False");
    teardown(&s);
}

TEST(a_run_with_a_journal_makes_its_session_again)
{
    struct setup s = setup(two_answers, defaults);
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    o.query = RLM_STR("do it");
    o.journal = journal("run.rlm");
    o.restore = RLM_RESTORE_REPLAY;
    CHECK_INT(rlm_run_start(s.flow, &o, NULL, NULL, &s.run, NULL), 0);
    finish(&s, "answered", "first");
    ask(&s);
    finish(&s, "answered", "42");
    check_replay(&s, journal("run.rlm"), 2);
    teardown(&s);
}

TEST(a_kept_session_that_dies_is_one_that_was_not_kept)
{
    struct setup s = setup("@reply turn=1\n```repl\nimport os, threading\n"
                           "threading.Timer(0.05, os._exit, (3,)).start()\ndone('first')\n```\n"
                           "@reply turn=2\n```repl\ndone(str('threading' in globals()))\n```\n",
                           defaults);
    begin(&s, journal("run.rlm"), true);
    finish(&s, "answered", "first");
    turn_until_fewer(&s, count_fds()); /* it dies */
    CHECK_TEXT(drives(journal("run.rlm")), "BsE");
    ask(&s);
    CHECK_STR(node_at(&s, 5)->error, "session_lost");
    finish(&s, "answered", "False");
    CHECK_TEXT(drives(journal("run.rlm")), "BsEBxsE");
    check_replay(&s, journal("run.rlm"), 2);
    teardown(&s);
}

TEST(after_a_limit_a_follow_up_has_turns_of_its_own)
{
    struct rlm_limits limits = defaults;
    limits.max_iters = 1;
    struct setup s = setup("@reply turn=1\n```repl\nx = 41\n```\n"
                           "@reply turn=2\n```repl\ndone(f'{x + 1}')\n```\n",
                           limits);
    begin(&s, journal("run.rlm"), true);
    finish(&s, "max_iters", "");
    CHECK(rlm_run_message(s.run)[0] != '\0');
    ask(&s);
    finish(&s, "answered", "42");
    CHECK_TEXT(rlm_run_message(s.run), "");
    check_replay(&s, journal("run.rlm"), 2);
    teardown(&s);
}

TEST(a_run_that_was_stopped_is_asked_nothing)
{
    struct setup s = setup("@reply delay=60s\nslow\n", defaults);
    begin(&s, NULL, true);
    rlm_run_stop(s.run);
    CHECK_INT(rlm_run_wait(s.run, NULL), 0);
    CHECK_INT(rlm_run_ask(s.run, RLM_STR("more"), NULL), RLM_E_INVAL);
    teardown(&s);
}
