/* Whole runs: tools of the host, how runs end, embedding, what the journal keeps. */
#include "whole_run.h"

#include "base/loop.h"

#include <poll.h>

/* ---- tools ---- */

struct later {
    rlm_loop *loop;
    rlm_timer *timer;
    rlm_tool_call *call;
    int cancelled;
    char arguments[200];
};

static void answer_now(void *arg, rlm_tool_call *call, struct rlm_str arguments)
{
    struct later *l = arg;
    snprintf(l->arguments, sizeof l->arguments, "%.*s", (int)arguments.len, arguments.ptr);
    rlm_tool_call_return(call, rlm_str_of("{\"n\": [1, \"\\udc80\", null]}"));
}

static void answer_late(void *arg)
{
    struct later *l = arg;
    rlm_tool_call_return(l->call, (struct rlm_str){"\"late\"", 6});
    l->call = NULL;
}

static void was_cancelled(void *arg)
{
    ((struct later *)arg)->cancelled++;
}

static void answer_later(void *arg, rlm_tool_call *call, struct rlm_str arguments)
{
    struct later *l = arg;
    (void)arguments;
    l->call = call;
    rlm_tool_call_on_cancel(call, was_cancelled, l);
    rlm_timer_set(l->timer, 30);
}

static void never(void *arg, rlm_tool_call *call, struct rlm_str arguments)
{
    struct later *l = arg;
    (void)arguments;
    l->call = call;
    rlm_tool_call_on_cancel(call, was_cancelled, l);
}

static void refuse(void *arg, rlm_tool_call *call, struct rlm_str arguments)
{
    (void)arg, (void)arguments;
    rlm_tool_call_fail(call, "the shop is closed");
}

static void nonsense(void *arg, rlm_tool_call *call, struct rlm_str arguments)
{
    (void)arg, (void)arguments;
    rlm_tool_call_return(call, (struct rlm_str){"{not json", 9});
}

static void add_tool(struct setup *s,
                     const char *name,
                     rlm_tool_callback run,
                     void *arg,
                     struct rlm_tool_limits limits)
{
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    rlm_error *err = NULL;
    o.name = name;
    o.description = "A tool.";
    o.parameters_json =
        "{\"type\":\"object\",\"properties\":{\"article\":{\"type\":\"string\"},\"count\":{\"type\":"
        "\"integer\",\"minimum\":1}},\"additionalProperties\":false}";
    o.run = run;
    o.arg = arg;
    o.limits = limits;
    if (rlm_flow_add_tool(s->flow, &o, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
}

TEST(a_tool_answers_at_once_with_checked_arguments)
{
    struct setup s = setup("@reply\n```repl\n"
                           "a = lookup('x', count=2)\n"
                           "e = []\n"
                           "for args in (('x', 0), (1,), ('x', 1, 2)):\n"
                           "    try:\n"
                           "        lookup(*args)\n"
                           "    except TypeError as err:\n"
                           "        e.append(str(err))\n"
                           "done(repr(a) + str(len(e)) + str('count' in e[0]))\n```\n",
                           defaults);
    struct later l = {0};
    add_tool(&s, "lookup", answer_now, &l, (struct rlm_tool_limits){0});
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "{'n': [1, '\\udc80', None]}3True");
    CHECK_TEXT(l.arguments, "{\"article\":\"x\",\"count\":2}");
    teardown(&s);
}

TEST(a_tool_answers_later_while_others_do_too)
{
    struct setup s = setup("@reply\n```repl\n"
                           "import threading\n"
                           "out = []\n"
                           "t = threading.Thread(target=lambda: out.append(slow()))\n"
                           "t.start()\n"
                           "q = quick('y')\n"
                           "t.join()\n"
                           "done(out[0] + str(q['n'][0]))\n```\n",
                           defaults);
    struct later l = {.loop = s.loop};
    l.timer = rlm_timer_new(s.loop, answer_late, &l);
    add_tool(&s, "slow", answer_later, &l, (struct rlm_tool_limits){0});
    struct later q = {0};
    add_tool(&s, "quick", answer_now, &q, (struct rlm_tool_limits){0});
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "late1");
    CHECK_INT(l.cancelled, 0);
    rlm_timer_free(l.timer);
    teardown(&s);
}

TEST(failures_and_limits_of_tools_are_errors_in_the_code)
{
    struct setup s = setup("@reply\n```repl\n"
                           "out = []\n"
                           "for f in (closed, broken, hang, once, once):\n"
                           "    try:\n"
                           "        f()\n"
                           "    except HostCallError as e:\n"
                           "        out.append(e.reason + ': ' + e.message)\n"
                           "done('|'.join(out))\n```\n",
                           defaults);
    struct later l = {0}, o = {0};
    add_tool(&s, "closed", refuse, NULL, (struct rlm_tool_limits){0});
    add_tool(&s, "broken", nonsense, NULL, (struct rlm_tool_limits){0});
    add_tool(&s, "hang", never, &l, (struct rlm_tool_limits){.timeout_ms = 50});
    add_tool(&s, "once", answer_now, &o, (struct rlm_tool_limits){.max_calls = 1});
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered",
           "tool: the shop is closed|result: the tool broken returned what is no JSON|"
           "timeout: the tool hang did not answer within 0.1 s|"
           "limit: the tool once may be called 1 times in a run, and has been");
    CHECK_INT(l.cancelled, 1);
    rlm_tool_call_return(l.call, (struct rlm_str){"1", 1}); /* too late: dropped */
    teardown(&s);
}

#define CALL_ONCE_TWICE                                                       \
    "@reply\n```repl\nonce()\ntry:\n    once()\nexcept HostCallError as e:\n" \
    "    done(e.reason)\n```\n"

TEST(the_calls_of_a_tool_are_counted_for_each_run)
{
    struct setup s = setup(CALL_ONCE_TWICE CALL_ONCE_TWICE, defaults);
    struct later first = {0}, other = {0};
    add_tool(&s, "other", answer_now, &other, (struct rlm_tool_limits){.max_calls = 1});
    add_tool(&s, "once", answer_now, &first, (struct rlm_tool_limits){.max_calls = 1});
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "limit");
    rlm_run_free(s.run);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "limit");
    teardown(&s);
}

TEST(done_cancels_a_tool_that_is_under_way)
{
    struct setup s = setup("@reply\n```repl\n"
                           "import threading, time\n"
                           "threading.Thread(target=hang, daemon=True).start()\n"
                           "time.sleep(0.2)\n"
                           "done('first')\n```\n",
                           defaults);
    struct later l = {0};
    add_tool(&s, "hang", never, &l, (struct rlm_tool_limits){0});
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "first");
    CHECK_INT(l.cancelled, 1);
    rlm_tool_call_fail(l.call, "nobody hears");
    teardown(&s);
}

TEST(tools_come_before_the_first_run)
{
    struct setup s = setup("@reply\n```repl\ndone(1)\n```\n", defaults);
    start(&s, NULL, NULL, NULL);
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    o.name = "x", o.description = "d", o.run = refuse;
    CHECK_INT(rlm_flow_add_tool(s.flow, &o, NULL), RLM_E_INVAL);
    finish(&s, "answered", "1");
    teardown(&s);
}

TEST(no_tool_may_take_a_name_that_a_session_has)
{
    struct setup s = setup("@reply\n```repl\n"
                           "done(' '.join(n for n in globals() if not n.startswith('__')))\n```\n",
                           defaults);
    start(&s, NULL, NULL, NULL);
    CHECK(rlm_run_wait(s.run, NULL) == 0);
    char names[1000];
    snprintf(names, sizeof names, "%.*s", RLM_FMT(rlm_run_answer(s.run)));
    CHECK_CONTAINS(names, "launch_subagents");
    teardown(&s);
    s = setup("@reply\nnothing\n", defaults);
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
        o.name = name, o.description = "d", o.run = refuse;
        if (rlm_flow_add_tool(s.flow, &o, NULL) != RLM_E_INVAL) {
            harness_fail(__FILE__, __LINE__, "a tool may be named \"%s\"", name);
        }
    }
    teardown(&s);
}

/* ---- ends ---- */

static const char forever[] =
    "@reply agent=root turn=1\n```repl\n"
    "r = await launch_subagents([{'query': 'loop', 'name': 'a'}, {'query': 'loop', 'name': 'b'}])\n"
    "print([x.reason for x in r])\n```\n"
    "@reply agent=root\n```repl\ndone(','.join(x.reason for x in r))\n```\n"
    "@reply\n```repl\nwhile True: pass\n```\n";

struct seen {
    int children;
    rlm_run *run;
    const char *terminate;
    bool stop;
    int ended;
};

static void event(void *arg, rlm_run *run, const struct rlm_event *e)
{
    struct seen *seen = arg;
    if (e->type == RLM_EVENT_APPEND_NODE && e->node->type == RLM_EXEC_ACTION &&
        rlm_graph_depth(e->graph) == 1) {
        seen->children++;
        if (seen->children == 2 && seen->stop) {
            rlm_run_stop(run);
        }
    }
}

static void ended(void *arg, rlm_run *run)
{
    struct seen *seen = arg;
    (void)run;
    seen->ended++;
}

static const struct rlm_run_events watch = {.event = event, .ended = ended};

TEST(one_subtree_is_terminated_and_the_parent_sees_it)
{
    struct setup s = setup(forever, defaults);
    struct seen seen = {0};
    start(&s, NULL, &watch, &seen);
    while (seen.children < 2) {
        rlm_loop_turn(s.loop);
    }
    CHECK_INT(rlm_run_terminate(s.run, "root.nobody", NULL), RLM_E_NOT_FOUND);
    CHECK_INT(rlm_run_terminate(s.run, "root.a", NULL), 0);
    CHECK_INT(rlm_run_terminate(s.run, "root.b", NULL), 0);
    finish(&s, "answered", "terminated,terminated");
    CHECK_INT(seen.ended, 1);
    CHECK_STR(rlm_graph_reason(rlm_graph_agent(rlm_run_graph(s.run), "root.a")), "terminated");
    teardown(&s);
}

TEST(the_whole_run_is_terminated)
{
    struct setup s = setup(forever, defaults);
    struct seen seen = {0};
    start(&s, NULL, &watch, &seen);
    while (seen.children < 2) {
        rlm_loop_turn(s.loop);
    }
    CHECK_INT(rlm_run_terminate(s.run, NULL, NULL), 0);
    finish(&s, "terminated", "");
    CHECK_STR(rlm_graph_reason(rlm_graph_agent(rlm_run_graph(s.run), "root.b")), "terminated");
    teardown(&s);
}

static void terminate_at_first_text(void *arg, rlm_run *run, const struct rlm_event *e)
{
    struct seen *seen = arg;
    if (e->type == RLM_EVENT_DELTA) {
        seen->children++;
        CHECK_INT(rlm_run_terminate(run, NULL, NULL), 0);
    }
}

TEST(whoever_sees_a_piece_of_a_reply_may_end_the_run)
{
    static const struct rlm_run_events events = {.event = terminate_at_first_text, .ended = ended};
    struct setup s = setup("@reply\nmany words of a reply that is long enough\n", defaults);
    struct seen seen = {0};
    start(&s, NULL, &events, &seen);
    finish(&s, "terminated", "");
    CHECK_INT(seen.children, 1); /* nothing comes of a call that was given up */
    CHECK_INT(seen.ended, 1);
    teardown(&s);
}

TEST(max_time_ends_every_agent_with_that_reason)
{
    struct rlm_limits limits = defaults;
    limits.max_time_ms = 1500;
    struct setup s = setup(forever, limits);
    start(&s, NULL, NULL, NULL);
    finish(&s, "time", "");
    rlm_graph *a = rlm_graph_agent(rlm_run_graph(s.run), "root.a");
    CHECK_STR(rlm_graph_reason(a), "time");
    teardown(&s);
}

TEST(a_stopped_run_adds_nothing_to_its_graph)
{
    struct setup s = setup(forever, defaults);
    struct seen seen = {.stop = true};
    start(&s, NULL, &watch, &seen);
    finish(&s, "interrupted", "");
    CHECK_INT(seen.ended, 1);
    CHECK(!rlm_graph_finished(rlm_run_graph(s.run)));
    CHECK_INT(rlm_graph_current(rlm_graph_agent(rlm_run_graph(s.run), "root.b"))->type,
              RLM_EXEC_ACTION);
    teardown(&s);
}

TEST(a_run_that_is_freed_in_the_middle_leaves_nothing)
{
    struct setup s = setup(forever, defaults);
    struct seen seen = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/half.rlm", harness_directory());
    start(&s, path, &watch, &seen);
    while (seen.children < 2) {
        rlm_loop_turn(s.loop);
    }
    teardown(&s);
    CHECK_INT(seen.ended, 0);
    rlm_graph *g;
    char *note;
    CHECK(rlm_graph_load(path, &g, &note, NULL) == 0);
    CHECK(!note);
    CHECK_INT(rlm_graph_agent_count(g), 3);
    rlm_graph_free(g);
}

/* ---- the rest ---- */

TEST(the_loop_can_be_embedded)
{
    struct setup s =
        setup("@reply delay=20ms\n```repl\nprint(1)\ndone('embedded')\n```\n", defaults);
    start(&s, NULL, NULL, NULL);
    while (!rlm_run_has_ended(s.run)) {
        struct pollfd p = {.fd = rlm_loop_fd(s.loop), .events = POLLIN};
        poll(&p, 1, rlm_loop_timeout(s.loop));
        rlm_loop_dispatch(s.loop);
    }
    CHECK_STR(rlm_run_answer(s.run), "embedded");
    teardown(&s);
}

TEST(what_was_journaled_loads_as_the_same_graph)
{
    struct setup s = setup(
        "@reply agent=root turn=1\n```repl\n"
        "r = await launch_subagents([{'query': 'q', 'name': 'kid', 'inputs': {'big': 'x' * 100000}}])\n"
        "print(r, len(await llm_query('hello')))\n```\n"
        "@reply agent=root\n```repl\ndone(r[0])\n```\n"
        "@reply turn=0\nhello yourself\n"
        "@reply\n```repl\ndone(big[:3] + str(len(big)))\n```\n",
        defaults);
    char path[256];
    snprintf(path, sizeof path, "%s/run.rlm", harness_directory());
    start(&s, path, NULL, NULL);
    finish(&s, "answered", "xxx100000");
    struct rlm_usage usage = rlm_run_usage(s.run);
    CHECK_INT(usage.calls, 4);
    rlm_graph *live = rlm_run_graph(s.run), *loaded;
    rlm_error *err = NULL;
    char *note = NULL;
    if (rlm_graph_load(path, &loaded, &note, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
    CHECK(!note);
    CHECK_INT(rlm_graph_agent_count(loaded), 2);
    CHECK_INT(rlm_graph_usage(loaded, true).calls, usage.calls);
    CHECK_INT(rlm_graph_usage(loaded, true).input_tokens, usage.input_tokens);
    CHECK_INT(rlm_graph_usage(loaded, false).calls, rlm_graph_usage(live, false).calls);
    for (size_t i = 0; i < rlm_graph_node_count(live); i++) {
        char *a = rlm_node_json(live, rlm_graph_node(live, i));
        char *b = rlm_node_json(loaded, rlm_graph_node(loaded, i));
        CHECK_TEXT(b, a);
        free(a), free(b);
    }
    rlm_graph_free(loaded);
    teardown(&s);
}

TEST(bad_options_are_refused_by_name)
{
    struct setup s = setup("@reply\nx\n", defaults);
    struct rlm_flow_options o = RLM_FLOW_OPTIONS_INIT;
    rlm_flow *flow;
    rlm_error *err = NULL;
    o.model = s.model, o.runtime = s.runtime;
    o.limits.max_depth = 65;
    CHECK_INT(rlm_flow_new(s.loop, &o, &flow, &err), RLM_E_INVAL);
    CHECK_CONTAINS(rlm_error_message(err), "max_depth is 65");
    o.limits.max_depth = 2;
    o.limits.workers = 0;
    CHECK_INT(rlm_flow_new(s.loop, &o, &flow, &err), RLM_E_INVAL);
    CHECK_CONTAINS(rlm_error_message(err), "workers");
    struct rlm_run_options r = RLM_RUN_OPTIONS_INIT;
    CHECK_INT(rlm_run_start(s.flow, &r, NULL, NULL, &s.run, &err), RLM_E_INVAL);
    CHECK_CONTAINS(rlm_error_message(err), "query is empty");
    r.query = (struct rlm_str){"x", 1};
    r.output_schema = "{\"type\":\"no such\"}";
    CHECK_INT(rlm_run_start(s.flow, &r, NULL, NULL, &s.run, &err), RLM_E_SCHEMA);
    rlm_error_free(err);
    teardown(&s);
}
