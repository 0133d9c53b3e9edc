/* Gates of host calls and of model calls, and hooks that end what they are asked about. */
#include "reviewer.h"

/* ---- host calls ---- */

static void tool(void *arg, rlm_tool_call *call, struct rlm_str arguments_json)
{
    (*(int *)arg)++;
    (void)arguments_json;
    rlm_tool_call_return(call, (struct rlm_str){"\"sent\"", 6});
}

static void add_tool(struct setup *s, int *calls)
{
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    o.name = "send";
    o.description = "Sends.";
    o.parameters_json = "{\"type\":\"object\",\"properties\":{\"to\":{\"type\":\"string\"}}}";
    o.run = tool;
    o.arg = calls;
    o.limits.timeout_ms = 60 * 1000;
    CHECK_INT(rlm_flow_add_tool(s->flow, &o, NULL), 0);
}

static const char sending[] =
    "@reply turn=1\n```repl\ntry:\n    r = send('you')\nexcept HostCallError as e:\n"
    "    r = e.reason + ': ' + e.message\nprint(r)\n```\n"
    "@reply turn=2\n```repl\ndone(r)\n```\n";

/* A run whose reviewer has been asked of its call of the tool. */
static struct setup asked_to_send(struct reviewer *r, int *calls)
{
    struct setup s = setup(sending, defaults);
    add_tool(&s, calls);
    hook(&s, r, CALL);
    start(&s, journal(), NULL, NULL);
    turn_until_asked(&s, r, 1);
    return s;
}

TEST(a_host_call_waits_for_its_answer_and_no_clock_runs)
{
    struct reviewer r = {.only = "send"};
    int calls = 0;
    struct setup s = asked_to_send(&r, &calls);
    CHECK_TEXT(r.asked, "call send\nwith {\"args\":[],\"kwargs\":{\"to\":\"you\"}}\n");
    CHECK_TEXT(state(&s, "root"), "gated");
    an_hour_later(&s); /* exec_timeout and the tool's own are shorter */
    CHECK_INT(calls, 0);
    rlm_gate_allow(r.kept[0], "tester");
    finish(&s, "answered", "sent");
    CHECK_INT(calls, 1);
    r.call = ALLOW;
    replay(&s, true, false);
    CHECK_INT(calls, 1);
    r.call = REJECT;
    replay(&s, false, true);
    teardown(&s);
}

TEST(the_processor_time_of_a_cell_stands_still_too)
{
    /* A thread goes on computing behind an open gate, then makes a call that lets the first one pass. */
    struct reviewer r = {.only = "send"};
    int calls = 0;
    struct rlm_limits limits = defaults;
    limits.cpu_time_ms = 1000;
    struct setup s = setup("@reply\n```repl\nimport threading, time\n"
                           "def burn():\n    while time.process_time() < 3: pass\n    budget()\n"
                           "t = threading.Thread(target=burn)\nt.start()\nr = send('you')\n"
                           "t.join()\ndone(r)\n```\n",
                           limits);
    add_tool(&s, &calls);
    hook(&s, &r, CALL);
    start(&s, NULL, NULL, NULL);
    while (r.calls < 2) {
        CHECK(rlm_loop_turn(s.loop));
    }
    rlm_gate_allow(r.kept[0], NULL);
    finish(&s, "answered", "sent");
    teardown(&s);
}

TEST(a_host_call_that_is_refused_is_an_error_in_the_code)
{
    struct reviewer r = {.only = "send", .call = REJECT, .text = "not to them"};
    int calls = 0;
    struct setup s = setup(sending, defaults);
    add_tool(&s, &calls);
    hook(&s, &r, CALL);
    start(&s, journal(), NULL, NULL);
    finish(&s, "answered", "rejected: not to them");
    CHECK_INT(calls, 0);
    r.call = ALLOW;
    replay(&s, true, false);
    replay(&s, false, false);
    CHECK_INT(calls, 0);
    teardown(&s);
}

TEST(done_and_launches_can_be_refused_and_replayed)
{
    struct reviewer r = {.call = REJECT, .text = "no", .only = "launch_subagents"};
    struct setup s = setup("@reply agent=root turn=1\n```repl\ntry:\n"
                           "    await launch_subagents([{'query': 'q'}])\n"
                           "except HostCallError as e:\n    print(e.message)\n```\n"
                           "@reply agent=root turn=2\n```repl\ndone('alone')\n```\n",
                           defaults);
    hook(&s, &r, CALL);
    start(&s, journal(), NULL, NULL);
    finish(&s, "answered", "alone");
    CHECK_INT(rlm_graph_agent_count(rlm_run_graph(s.run)), 1);
    CHECK_STR(node(&s, "root", 3)->content, "no");
    r.call = ALLOW;
    replay(&s, false, false);
    replay(&s, true, false);
    teardown(&s);
}

TEST(a_tool_behind_an_open_gate_was_not_at_work_and_is_asked_for_again)
{
    struct reviewer r = {.only = "send"};
    int calls = 0;
    struct setup s = asked_to_send(&r, &calls);
    rlm_run_stop(s.run);
    finish(&s, "interrupted", "");
    CHECK_INT(r.cancelled, 1);
    rlm_gate_allow(r.kept[0], "too late");
    r.call = ALLOW;
    replay(&s, true, false);
    resume(&s);
    finish(&s, "answered", "sent");
    CHECK_INT(calls, 1);
    replay(&s, true, false);
    teardown(&s);
}

/* ---- model calls ---- */

static const char querying[] = "@reply turn=1\n```repl\nrs = await llm_query_batched(['p', 'q'])\n"
                               "print([x.reason if isinstance(x, Failure) else x for x in rs])\n"
                               "done(str(len(rs)) + rs[0])\n```\n"
                               "@reply turn=0\nreply\n";

TEST(a_model_call_waits_and_is_then_sent)
{
    struct reviewer r = {0};
    struct setup s = setup(querying, defaults);
    hook(&s, &r, MODEL);
    start(&s, journal(), NULL, NULL);
    turn_until_asked(&s, &r, 2);
    CHECK(
        strstr(r.asked, "root {\"model\":\"default\",\"turn\":1,\"messages\":2,\"input_tokens\":"));
    CHECK(strstr(r.asked, "\"prompt\":\"p\"}"));
    CHECK_INT(rlm_run_usage(s.run).calls, 1);
    an_hour_later(&s);
    rlm_gate_allow(r.kept[0], NULL);
    rlm_gate_allow(r.kept[1], NULL);
    finish(&s, "answered", "2reply");
    CHECK_INT(rlm_run_usage(s.run).calls, 3);
    replay(&s, true, false);
    teardown(&s);
}

TEST(a_model_call_that_is_refused_is_a_value)
{
    struct reviewer r = {.model = REJECT, .text = "too dear"};
    struct setup s = setup(querying, defaults);
    hook(&s, &r, MODEL);
    start(&s, journal(), NULL, NULL);
    finish(&s, "answered", "2[refused: the model call was refused: too dear]");
    CHECK_INT(rlm_run_usage(s.run).calls, 1);
    replay(&s, true, false);
    teardown(&s);
}

TEST(model_calls_that_wait_end_with_their_agent)
{
    struct reviewer r = {0};
    struct setup s = setup(querying, defaults);
    hook(&s, &r, MODEL);
    start(&s, NULL, NULL, NULL);
    turn_until_asked(&s, &r, 2);
    CHECK_INT(rlm_run_terminate(s.run, NULL, NULL), 0);
    CHECK_INT(r.cancelled, 2);
    rlm_gate_allow(r.kept[0], NULL);
    rlm_gate_reject(r.kept[1], NULL, (struct rlm_str){"", 0});
    finish(&s, "terminated", "");
    teardown(&s);
}

/* ---- hooks that end what they are asked about ---- */

/* `arg`: the run, and whether the answer comes in the hook or when it is cancelled. */
struct ender {
    rlm_run *run;
    bool answers;
    rlm_gate *gate;
};

static void answer_late(void *arg)
{
    rlm_gate_allow(((struct ender *)arg)->gate, "too late");
}

static void end_the_agent(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str code, bool replay)
{
    struct ender *ender = arg;
    (void)code, (void)replay;
    CHECK_INT(rlm_run_terminate(ender->run, rlm_graph_agent_id(g), NULL), 0);
    if (ender->answers) {
        rlm_gate_allow(gate, NULL);
    } else {
        ender->gate = gate;
        rlm_gate_on_cancel(gate, answer_late, ender);
    }
}

static void end_the_asker(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str call_json)
{
    end_the_agent(arg, gate, g, call_json, false);
}

static void end_the_caller(void *arg,
                           rlm_gate *gate,
                           rlm_graph *g,
                           struct rlm_str name,
                           struct rlm_str arguments_json,
                           bool replay)
{
    (void)name;
    end_the_agent(arg, gate, g, arguments_json, replay);
}

TEST(a_hook_may_end_the_agent_that_it_is_asked_about)
{
    for (int i = 0; i < 6; i++) {
        struct ender ender = {.answers = i % 2};
        struct rlm_flow_hooks hooks = RLM_FLOW_HOOKS_INIT;
        struct setup s = setup(querying, defaults);
        hooks.arg = &ender;
        hooks.exec_turn = i / 2 == 0 ? end_the_agent : NULL;
        hooks.model_call = i / 2 == 1 ? end_the_asker : NULL;
        hooks.host_call = i / 2 == 2 ? end_the_caller : NULL;
        CHECK_INT(rlm_flow_set_hooks(s.flow, &hooks, NULL), 0);
        start(&s, NULL, NULL, NULL);
        ender.run = s.run;
        finish(&s, "terminated", "");
        teardown(&s);
    }
}

TEST(patterns_are_found_or_refused)
{
    rlm_pattern *pattern;
    rlm_error *err = NULL;
    CHECK_INT(rlm_pattern_new((struct rlm_str){"write_|os\\.", 11}, &pattern, &err), 0);
    CHECK_INT(rlm_pattern_search(pattern, (struct rlm_str){"x = os.listdir()", 16}, NULL), 1);
    CHECK_INT(rlm_pattern_search(pattern, (struct rlm_str){"cosmos", 6}, NULL), 0);
    rlm_pattern_free(pattern);
    CHECK_INT(rlm_pattern_new((struct rlm_str){"(", 1}, &pattern, &err), RLM_E_PARSE);
    rlm_error_free(err);
}
