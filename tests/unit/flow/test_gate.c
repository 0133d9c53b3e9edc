/* Gates: what hooks are asked of a turn, what their answers do, and what stands still while they think. */
#include "reviewer.h"

static const char two_turns[] = "@reply turn=1\n```repl\nx = 1\nprint('one', x)\n```\n"
                                "@reply turn=2\n```repl\ndone(f'x is {x}')\n```\n";

TEST(without_hooks_nothing_is_asked_and_with_them_each_turn_is)
{
    struct reviewer r = {.turn = ALLOW};
    struct setup s = setup(two_turns, defaults);
    hook(&s, &r, TURN);
    start(&s, journal(), NULL, NULL);
    CHECK_INT(rlm_flow_set_hooks(s.flow, &(struct rlm_flow_hooks){0}, NULL), RLM_E_INVAL);
    finish(&s, "answered", "x is 1");
    CHECK_TEXT(r.asked, "root x = 1\nprint('one', x)\nroot done(f'x is {x}')\n");
    CHECK_INT(r.commits, (int)rlm_graph_node_count(rlm_run_graph(s.run)));
    CHECK(is_recorded("\"shown\":\"x = 1\\nprint('one', x)\""));
    CHECK(is_recorded("\"who\":\"tester\",\"decision\":\"allow\""));
    replay(&s, false, false);
    replay(&s, true, false);
    CHECK_INT(r.turns, 6);
    CHECK_INT(r.replayed, 4);
    teardown(&s);
}

TEST(what_is_rewritten_runs_and_the_model_is_told)
{
    struct reviewer r = {.turn = REWRITE, .text = "print('mine')\nx = 7"};
    struct setup s = setup(two_turns, defaults);
    hook(&s, &r, TURN);
    start(&s, journal(), NULL, NULL);
    while (!rlm_run_has_ended(s.run)) {
        CHECK(rlm_loop_turn(s.loop));
        r.turn = r.turns ? ALLOW : REWRITE;
    }
    finish(&s, "answered", "x is 7");
    CHECK_STR(node(&s, "root", 1)->code, "x = 1\nprint('one', x)");
    CHECK_STR(node(&s, "root", 2)->code, "print('mine')\nx = 7");
    CHECK_STR(
        node(&s, "root", 3)->content,
        "mine\n[Your code was changed before it ran. This is what ran:\nprint('mine')\nx = 7]");
    CHECK(is_recorded("\"decision\":\"rewrite\",\"text\":\"print('mine')\\nx = 7\""));
    /* Who agrees, and who would have let something else run. */
    replay(&s, false, false);
    replay(&s, true, false);
    r.turn = REWRITE;
    r.text = "print('another')";
    replay(&s, false, true);
    CHECK_TEXT(rlm_run_replay_report(s.run)->what, "what was decided at a gate");
    r.turn = REJECT;
    replay(&s, true, true);
    CHECK_INT(rlm_run_replay_report(s.run)->cells_run, 0);
    r.turn = LATER;
    replay(&s, true, false);
    for (int i = 0; i < r.n_kept; i++) {
        rlm_gate_allow(r.kept[i], NULL);
    }
    teardown(&s);
}

TEST(who_has_not_answered_is_told_when_the_flow_goes)
{
    struct reviewer r = {.turn = ALLOW};
    struct setup s = setup(two_turns, defaults);
    hook(&s, &r, TURN);
    start(&s, journal(), NULL, NULL);
    finish(&s, "answered", "x is 1");
    r.turn = LATER;
    replay(&s, false, false);
    CHECK_INT(r.n_kept, 2);
    rlm_gate_allow(r.kept[0], NULL); /* too late, and all the same */
    CHECK_INT(r.cancelled, 0);
    teardown(&s);
    CHECK_INT(r.cancelled, 1);
}

TEST(what_is_rejected_does_not_run)
{
    struct reviewer r = {.turn = REJECT, .text = "not like this"};
    char script[1024];
    snprintf(script, sizeof script,
             "@reply turn=1\n```repl\nwrite_file('%s/ran', 'x')\n```\n"
             "@reply turn=2\n```repl\ndone('gave up')\n```\n",
             harness_directory());
    struct setup s = setup(script, defaults);
    hook(&s, &r, TURN);
    start(&s, journal(), NULL, NULL);
    while (!rlm_run_has_ended(s.run)) {
        CHECK(rlm_loop_turn(s.loop));
        r.turn = r.turns ? ALLOW : REJECT;
    }
    finish(&s, "answered", "gave up");
    CHECK_INT(node(&s, "root", 2)->type, RLM_EXEC_ACTION);
    CHECK_STR(node(&s, "root", 2)->code, "");
    CHECK_INT(node(&s, "root", 3)->type, RLM_ERROR_OUTPUT);
    CHECK_STR(node(&s, "root", 3)->error, "rejected");
    CHECK_STR(node(&s, "root", 3)->content, "not like this");
    char path[256];
    snprintf(path, sizeof path, "%s/ran", harness_directory());
    CHECK(access(path, F_OK) < 0);
    r.turn = ALLOW; /* in a replay this cannot make it run */
    replay(&s, true, false);
    CHECK(access(path, F_OK) < 0);
    teardown(&s);
}

/* b answers while a's code is looked at; the parent waits for both. */
static const char siblings[] =
    "@reply agent=root turn=1\n```repl\n"
    "r = await launch_subagents([{'query': 'q', 'name': 'a'}, {'query': 'q', 'name': 'b'}])\n"
    "done('|'.join(x.reason if isinstance(x, Failure) else x for x in r))\n```\n"
    "@reply agent=root.a turn=1\n```repl\nprint('one')\n```\n"
    "@reply agent=root.a turn=2\n```repl\ndone('a')\n```\n"
    "@reply agent=root.b turn=1\n```repl\nprint('one')\n```\n"
    "@reply agent=root.b turn=2\n```repl\ndone('b')\n```\n";

TEST(others_go_on_and_an_hour_of_thinking_is_no_time_of_the_run)
{
    struct reviewer r = {.agent = "root.a", .skip = 1}; /* its session is there by then */
    struct rlm_limits limits = defaults;
    limits.max_time_ms = 600 * 1000;
    limits.max_live = 1; /* who waits for a person takes nobody's place */
    struct setup s = setup(siblings, limits);
    hook(&s, &r, TURN);
    start(&s, journal(), NULL, NULL);
    turn_until_asked(&s, &r, 1);
    while (strcmp(state(&s, "root.b"), "finished") != 0) {
        CHECK(rlm_loop_turn(s.loop));
    }
    CHECK_TEXT(state(&s, "root.a"), "gated");
    CHECK_TEXT(state(&s, "root"), "waiting");
    an_hour_later(&s);
    CHECK(!rlm_run_has_ended(s.run));
    CHECK_TEXT(state(&s, "root.a"), "gated");
    rlm_gate_allow(r.kept[0], "somebody");
    r.turn = ALLOW;
    finish(&s, "answered", "a|b");
    /* The hour is in the records, and in no time of the run. */
    CHECK(is_recorded("\"still_ms\":36"));
    replay(&s, true, false);
    teardown(&s);
}

TEST(the_clock_runs_while_anybody_is_at_work)
{
    struct reviewer r = {0};
    struct rlm_limits limits = defaults;
    limits.max_time_ms = 600 * 1000;
    struct setup s = setup("@reply agent=root turn=1\n```repl\n"
                           "r = await launch_subagents([{'query': 'q', 'name': 'a'}, "
                           "{'query': 'q', 'name': 'b'}])\n```\n"
                           "@reply agent=root.a\n```repl\ndone('a')\n```\n"
                           "@reply agent=root.b delay=100m\n```repl\ndone('b')\n```\n",
                           limits);
    hook(&s, &r, TURN);
    start(&s, NULL, NULL, NULL);
    turn_until_asked(&s, &r, 1);
    rlm_gate_allow(r.kept[0], NULL);
    turn_until_asked(&s, &r, 2);
    an_hour_later(&s);
    finish(&s, "time", "");
    CHECK_INT(r.cancelled, 1);
    rlm_gate_reject(r.kept[1], NULL, (struct rlm_str){"too late", 8});
    teardown(&s);
}

TEST(an_answer_that_comes_too_late_is_dropped)
{
    struct reviewer r = {0};
    struct setup s = setup(two_turns, defaults);
    hook(&s, &r, TURN);
    start(&s, journal(), NULL, NULL);
    turn_until_asked(&s, &r, 1);
    CHECK_INT(rlm_run_terminate(s.run, NULL, NULL), 0);
    CHECK_INT(r.cancelled, 1);
    finish(&s, "terminated", "");
    rlm_gate_allow(r.kept[0], "too late");
    CHECK(!is_recorded("too late"));
    replay(&s, true, false);
    teardown(&s);
}

TEST(a_run_is_freed_with_its_gates_open)
{
    struct reviewer r = {0};
    struct setup s = setup(two_turns, defaults);
    hook(&s, &r, TURN);
    start(&s, NULL, NULL, NULL);
    turn_until_asked(&s, &r, 1);
    rlm_run_free(s.run);
    s.run = NULL;
    CHECK_INT(r.cancelled, 1);
    rlm_gate_rewrite(r.kept[0], NULL, (struct rlm_str){"x", 1});
    teardown(&s);
}

static void silent_tool(void *arg, rlm_tool_call *call, struct rlm_str arguments_json)
{
    (void)call, (void)arguments_json;
    ++*(int *)arg;
}

/* The leak checker of a sanitized build looks. */
TEST(what_the_program_never_answers_ends_with_the_flow)
{
    struct reviewer r = {.only = "send", .turn = ALLOW, .call = ALLOW};
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    int asked = 0;
    struct setup s = setup("@reply\n```repl\nsend()\n```\n", defaults);
    o.name = "send";
    o.description = "Sends.";
    o.parameters_json = "{\"type\":\"object\"}";
    o.run = silent_tool;
    o.arg = &asked;
    CHECK_INT(rlm_flow_add_tool(s.flow, &o, NULL), 0);
    hook(&s, &r, TURN | CALL);
    start(&s, journal(), NULL, NULL);
    while (!asked) {
        CHECK(rlm_loop_turn(s.loop));
    }
    rlm_run_stop(s.run);
    finish(&s, "interrupted", "");
    r.turn = r.call = LATER;
    replay(&s, true, false);
    int questions = r.n_kept;
    CHECK(questions > 0);
    resume(&s);
    turn_until_asked(&s, &r, questions + 1);
    rlm_run_stop(s.run);
    finish(&s, "interrupted", "");
    CHECK_INT(r.cancelled, 1);
    teardown(&s);
}

TEST(a_question_that_nobody_answered_is_asked_again)
{
    struct reviewer r = {.turn = ALLOW};
    struct rlm_limits limits = defaults;
    limits.max_time_ms = 600 * 1000;
    struct setup s = setup(two_turns, limits);
    hook(&s, &r, TURN);
    start(&s, journal(), NULL, NULL);
    while (r.turns < 1) {
        CHECK(rlm_loop_turn(s.loop));
    }
    r.turn = LATER;
    turn_until_asked(&s, &r, 1);
    an_hour_later(&s);
    rlm_gate_postpone(r.kept[0], "nobody is here");
    finish(&s, "awaiting_approval", "");
    CHECK_TEXT(rlm_run_message(s.run), "nobody is here");
    CHECK_INT(r.cancelled, 0);
    r.turn = REJECT; /* what was not decided is no difference */
    r.skip = 1;
    replay(&s, true, false);
    r.asked[0] = '\0';
    r.turn = ALLOW;
    resume(&s);
    finish(&s, "answered", "x is 1");
    CHECK_TEXT(r.asked, "root done(f'x is {x}')\n");
    CHECK_INT(rlm_run_usage(s.run).calls, 2);
    teardown(&s);
}
