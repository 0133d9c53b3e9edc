/* Stepping a run, what the program appends between steps, and messages that it makes itself. */
#include "whole_run.h"

#include "base/alloc.h"
#include "base/loop.h"

/* Keeps the questions of next_step and exec_turn, one of each agent at a time. */
struct program {
    struct setup *s;
    rlm_gate *step, *turn; /* not answered yet */
    int steps, turns;
    char seen[2048];      /* "root user_query; root llm_output; ..." by next_step */
    const char *messages; /* what `messages` rewrites to; NULL: it allows */
    char asked[4096];
    int projections;
    bool final;
};

static void next_step(void *arg, rlm_gate *gate, rlm_graph *g)
{
    struct program *p = arg;
    size_t len = strlen(p->seen);
    snprintf(p->seen + len, sizeof p->seen - len, "%s %s; ", rlm_graph_agent_id(g),
             rlm_node_type_tag(rlm_graph_current(g)->type));
    CHECK(p->step == NULL);
    p->step = gate;
    p->steps++;
}

static void exec_turn(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str code, bool replay)
{
    struct program *p = arg;
    (void)g, (void)code;
    p->turns++;
    if (replay) {
        rlm_gate_allow(gate, NULL);
    } else {
        p->turn = gate;
    }
}

static void
messages(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str messages_json, bool final)
{
    struct program *p = arg;
    (void)g;
    snprintf(p->asked, sizeof p->asked, "%.*s", RLM_FMT(messages_json));
    p->final = final;
    p->projections++;
    if (p->messages) {
        rlm_gate_rewrite(gate, NULL, (struct rlm_str){p->messages, strlen(p->messages)});
    } else {
        rlm_gate_allow(gate, NULL);
    }
}

enum { STEP = 1, TURN = 2, MESSAGES = 4 };

static void hook(struct setup *s, struct program *p, int which)
{
    struct rlm_flow_hooks hooks = RLM_FLOW_HOOKS_INIT;
    p->s = s;
    hooks.arg = p;
    hooks.next_step = which & STEP ? next_step : NULL;
    hooks.exec_turn = which & TURN ? exec_turn : NULL;
    hooks.messages = which & MESSAGES ? messages : NULL;
    CHECK_INT(rlm_flow_set_hooks(s->flow, &hooks, NULL), 0);
}

static const char *journal(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/run.rlm", harness_directory());
    return path;
}

static const char two_turns[] = "@reply turn=1\n```repl\nx = 1\nprint('one', x)\n```\n"
                                "@reply turn=2\n```repl\ndone(f'x is {x}')\n```\n";

static void turn_until(struct setup *s, rlm_gate **gate)
{
    while (!*gate && !rlm_run_has_ended(s->run)) {
        CHECK(rlm_loop_turn(s->loop));
    }
}

static void check_replay(struct setup *s)
{
    replay_run(s, journal(), false, false);
    replay_run(s, journal(), true, false);
}

TEST(a_run_is_stepped_node_by_node)
{
    struct program p = {0};
    struct setup s = setup(two_turns, defaults);
    hook(&s, &p, STEP);
    start(&s, journal(), NULL, NULL);
    size_t n = 0;
    for (turn_until(&s, &p.step); p.step; turn_until(&s, &p.step)) {
        CHECK(rlm_run_is_held(s.run));
        size_t now = rlm_graph_node_count(rlm_run_graph(s.run));
        CHECK_INT(now, n + 1);
        n = now;
        rlm_gate_allow(rlm_steal(&p.step), NULL);
        CHECK(!rlm_run_is_held(s.run));
    }
    finish(&s, "answered", "x is 1");
    CHECK_TEXT(p.seen, "root user_query; root llm_output; root exec_action; root exec_output; "
                       "root llm_output; root exec_action; ");
    check_replay(&s);
    CHECK_INT(p.steps, 6); /* a replay is not stepped */
    teardown(&s);
}

TEST(children_are_stepped_while_their_parents_cell_waits)
{
    struct program p = {0};
    struct setup s = setup("@reply agent=root\n```repl\n"
                           "done((await launch_subagents([{'query': 'q', 'name': 'a'}]))[0])\n```\n"
                           "@reply agent=root.a\n```repl\ndone('from a')\n```\n",
                           defaults);
    hook(&s, &p, STEP);
    start(&s, NULL, NULL, NULL);
    for (turn_until(&s, &p.step); p.step; turn_until(&s, &p.step)) {
        CHECK(rlm_run_is_held(s.run));
        rlm_gate_allow(rlm_steal(&p.step), NULL);
    }
    finish(&s, "answered", "from a");
    CHECK_TEXT(p.seen, "root user_query; root llm_output; root exec_action; root.a user_query; "
                       "root.a llm_output; root.a exec_action; root supervising_output; ");
    teardown(&s);
}

TEST(what_is_appended_stands_in_place_of_the_code)
{
    struct program p = {0};
    struct setup s = setup(two_turns, defaults);
    hook(&s, &p, TURN);
    start(&s, journal(), NULL, NULL);
    turn_until(&s, &p.turn);
    struct rlm_node wrong = {.type = RLM_ERROR_OUTPUT,
                             .content = RLM_STR("not like this"),
                             .error = RLM_STR("rejected"),
                             .metadata = RLM_STR("{\"why\":\"rm\",\"by\":\"me\"}")};
    const struct rlm_node *kept;
    CHECK_INT(rlm_run_append(s.run, "nobody", &wrong, NULL, NULL), RLM_E_NOT_FOUND);
    CHECK_INT(rlm_run_append(s.run, "root", &wrong, &kept, NULL), 0);
    CHECK_STR(kept->metadata, "{\"why\":\"rm\",\"by\":\"program\"}");
    rlm_loop_dispatch(s.loop);
    CHECK_INT(rlm_graph_node_count(rlm_run_graph(s.run)), 3); /* it waits for the answer */
    rlm_gate_skip(rlm_steal(&p.turn), "me");
    turn_until(&s, &p.turn);
    struct rlm_node done = {.type = RLM_DONE_OUTPUT, .result = RLM_STR("mine")};
    CHECK_INT(rlm_run_append(s.run, "root", &done, NULL, NULL), 0);
    rlm_gate_skip(rlm_steal(&p.turn), "me"); /* too late, and dropped */
    finish(&s, "answered", "mine");
    CHECK_INT(rlm_graph_node_count(rlm_run_graph(s.run)), 5);
    CHECK_INT(rlm_run_append(s.run, "root", &wrong, NULL, NULL), RLM_E_INVAL);
    check_replay(&s);
    CHECK_INT(p.turns, 2 + 2 * 2); /* the gate is passed in each replay too */
    teardown(&s);
}

TEST(a_skip_with_nothing_in_its_place_is_told)
{
    struct program p = {0};
    struct setup s = setup(two_turns, defaults);
    hook(&s, &p, TURN);
    start(&s, journal(), NULL, NULL);
    turn_until(&s, &p.turn);
    rlm_gate_skip(rlm_steal(&p.turn), "me");
    turn_until(&s, &p.turn);
    const struct rlm_node *told = rlm_graph_node(rlm_run_graph(s.run), 3);
    CHECK_STR(told->error, "rejected");
    CHECK_STR(told->content, "this was looked at, and not run");
    rlm_gate_skip(rlm_steal(&p.turn), "me");
    CHECK_INT(rlm_run_wait(s.run, NULL), 0); /* the script has no more */
    CHECK_TEXT(rlm_run_reason(s.run), "failed");
    check_replay(&s);
    teardown(&s);
}

TEST(nothing_is_appended_while_an_agent_is_at_work)
{
    struct program p = {0};
    struct setup s = setup("@reply delay=60s\nslow\n", defaults);
    hook(&s, &p, 0);
    start(&s, NULL, NULL, NULL);
    while (!rlm_run_graph(s.run) ||
           rlm_run_agent_state(s.run, rlm_run_graph(s.run)) != RLM_AGENT_ASKING) {
        CHECK(rlm_loop_turn(s.loop));
    }
    struct rlm_node node = {.type = RLM_USER_QUERY, .content = RLM_STR("more")};
    CHECK_INT(rlm_run_append(s.run, "root", &node, NULL, NULL), RLM_E_BUSY);
    teardown(&s);
}

TEST(messages_of_the_program_are_what_is_sent)
{
    struct program p = {
        .messages =
            "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"mine\"}]"};
    struct setup s = setup("@reply match=^mine$\n```repl\ndone('seen')\n```\n", defaults);
    hook(&s, &p, MESSAGES);
    start(&s, journal(), NULL, NULL);
    finish(&s, "answered", "seen");
    CHECK(strstr(p.asked, "[{\"role\":\"system\",\"content\":") == p.asked);
    CHECK(strstr(p.asked, "do it") != NULL);
    CHECK(!p.final);
    p.asked[0] = '\0';
    check_replay(&s);
    CHECK_TEXT(p.asked, "");
    teardown(&s);
}

TEST(messages_that_a_small_budget_makes_anew_are_the_programs_too)
{
    struct program p = {.messages = "[{\"role\":\"user\",\"content\":\"mine\"}]"};
    struct rlm_limits limits = defaults;
    limits.max_budget = 2000; /* for the program's messages, but not for those of the engine */
    struct setup s = setup("@reply match=^mine$\n```repl\ndone('seen')\n```\n", limits);
    hook(&s, &p, MESSAGES);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "seen");
    CHECK(p.final);
    CHECK_INT(p.projections, 2);
    teardown(&s);
}

TEST(messages_that_are_none_fail_the_agent_and_say_why)
{
    static const struct {
        const char *messages, *told;
    } cases[] = {
        {"nonsense", "the messages: "},
        {"[]", "the messages must be a list with one of the user's in it"},
        {"[{\"role\":\"user\",\"content\":1}]", "message 0 is none: "},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":\"x\"}]",
         "message 1 is none: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p = {.messages = cases[i].messages};
        struct setup s = setup(two_turns, defaults);
        hook(&s, &p, MESSAGES);
        start(&s, NULL, NULL, NULL);
        CHECK_INT(rlm_run_wait(s.run, NULL), 0);
        CHECK_TEXT(rlm_run_reason(s.run), "failed");
        CHECK(strncmp(rlm_run_message(s.run), cases[i].told, strlen(cases[i].told)) == 0);
        teardown(&s);
    }
}
