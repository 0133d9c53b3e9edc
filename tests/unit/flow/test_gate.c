/* Gates: what hooks are asked, what their answers do, and what stands still while they think. */
#include "whole_run.h"

#include "base/loop.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A clock that can be advanced: the engine and its event loop read this one. */
static int64_t advanced_s;

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *t)
{
    int r = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE) {
        t->tv_sec += advanced_s;
    }
    return r;
}

enum { HOUR_S = 3600, MOST = 16 };

enum answer { LATER, ALLOW, REWRITE, REJECT, POSTPONE };

/* What a test says at its gates, and what it was asked. */
struct reviewer {
    enum answer turn, call, model; /* LATER keeps the question */
    const char *agent;             /* turns of this one; others are allowed */
    int skip;                      /* the first turns of that one are allowed too */
    const char *only;              /* the same for host calls, by name */
    const char *text;              /* of a rewrite or a rejection */
    rlm_gate *kept[MOST];
    int n_kept, turns, calls, models, cancelled, commits, replayed;
    char asked[4096];
};

static void give(struct reviewer *r, enum answer how, rlm_gate *gate)
{
    struct rlm_str text = {r->text ? r->text : "", r->text ? strlen(r->text) : 0};
    switch (how) {
    case LATER:
        CHECK(r->n_kept < MOST);
        r->kept[r->n_kept++] = gate;
        break;
    case ALLOW:
        rlm_gate_allow(gate, "tester");
        break;
    case REWRITE:
        rlm_gate_rewrite(gate, "tester", text);
        break;
    case REJECT:
        rlm_gate_reject(gate, "tester", text);
        break;
    case POSTPONE:
        rlm_gate_postpone(gate, "nobody is here");
        break;
    }
}

static void note(struct reviewer *r, const char *what, struct rlm_str text)
{
    size_t len = strlen(r->asked);
    snprintf(r->asked + len, sizeof r->asked - len, "%s %.*s\n", what, RLM_FMT(text));
}

static void cancelled(void *arg)
{
    ((struct reviewer *)arg)->cancelled++;
}

static void exec_turn(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str code, bool replay)
{
    struct reviewer *r = arg;
    r->turns++;
    r->replayed += replay;
    note(r, rlm_graph_agent_id(g), code);
    rlm_gate_on_cancel(gate, cancelled, r);
    bool meant = !r->agent || strcmp(rlm_graph_agent_id(g), r->agent) == 0;
    meant = meant && r->skip-- <= 0;
    give(r, meant ? r->turn : ALLOW, gate);
}

static void model_call(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str call_json)
{
    struct reviewer *r = arg;
    r->models++;
    note(r, rlm_graph_agent_id(g), call_json);
    rlm_gate_on_cancel(gate, cancelled, r);
    give(r, memmem(call_json.ptr, call_json.len, "\"turn\":0", 8) ? r->model : ALLOW, gate);
}

static void host_call(void *arg,
                      rlm_gate *gate,
                      rlm_graph *g,
                      struct rlm_str name,
                      struct rlm_str arguments_json,
                      bool replay)
{
    struct reviewer *r = arg;
    (void)g;
    r->calls++;
    r->replayed += replay;
    bool meant = !r->only || rlm_str_is(name, r->only);
    if (meant) {
        note(r, "call", name);
        note(r, "with", arguments_json);
        rlm_gate_on_cancel(gate, cancelled, r);
    }
    give(r, meant ? r->call : ALLOW, gate);
}

static void event_committed(void *arg, rlm_run *run, const struct rlm_event *event)
{
    (void)run;
    ((struct reviewer *)arg)->commits += event->type == RLM_EVENT_APPEND_NODE;
}

enum { TURN = 1, CALL = 2, MODEL = 4 };

static void hook(struct setup *s, struct reviewer *r, int which)
{
    struct rlm_flow_hooks hooks = RLM_FLOW_HOOKS_INIT;
    hooks.arg = r;
    hooks.exec_turn = which & TURN ? exec_turn : NULL;
    hooks.host_call = which & CALL ? host_call : NULL;
    hooks.model_call = which & MODEL ? model_call : NULL;
    hooks.event_committed = event_committed;
    CHECK_INT(rlm_flow_set_hooks(s->flow, &hooks, NULL), 0);
}

static void turn_until_asked(struct setup *s, struct reviewer *r, int n)
{
    while (r->n_kept < n) {
        CHECK(rlm_loop_turn(s->loop));
        CHECK(!rlm_run_has_ended(s->run));
    }
}

/* Lets an hour pass, and everything happen that would happen in it. */
static void an_hour_later(struct setup *s)
{
    for (int i = 0; i < 40; i++) {
        advanced_s += i == 20 ? HOUR_S : 0;
        rlm_loop_dispatch(s->loop);
        usleep(1000);
    }
}

static const struct rlm_node *node(const struct setup *s, const char *agent, size_t i)
{
    const struct rlm_node *n = rlm_graph_node(rlm_graph_agent(rlm_run_graph(s->run), agent), i);
    CHECK(n != NULL);
    return n;
}

static const char *journal(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/run.rlm", harness_directory());
    return path;
}

/* Whether the journal's file holds a text. */
static bool is_recorded(const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/journal", journal());
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    static char all[1 << 20];
    size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    return memmem(all, n, text, strlen(text)) != NULL;
}

/* Plays the run again; `code`: 0, or that it must differ. */
static void replay(struct setup *s, bool execute, bool differs)
{
    struct rlm_replay_options o = RLM_REPLAY_OPTIONS_INIT;
    rlm_run_free(s->run);
    o.journal = journal();
    o.execute = execute;
    CHECK_INT(rlm_flow_replay(s->flow, &o, NULL, NULL, &s->run, NULL), 0);
    CHECK_INT(rlm_run_wait(s->run, NULL), 0);
    const struct rlm_replay_report *report = rlm_run_replay_report(s->run);
    if (report->diverged != differs) {
        harness_fail(__FILE__, __LINE__, "%s: %.*s, %.*s", report->diverged ? report->what : "same",
                     RLM_FMT(report->recorded), RLM_FMT(report->replayed));
    }
}

static void resume(struct setup *s)
{
    struct rlm_resume_options o = RLM_RESUME_OPTIONS_INIT;
    rlm_error *err = NULL;
    rlm_run_free(s->run);
    o.journal = journal();
    o.restore = RLM_RESTORE_REPLAY;
    if (rlm_flow_resume(s->flow, &o, NULL, NULL, &s->run, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
}

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

static const char *state(const struct setup *s, const char *agent)
{
    static const char *const names[] = {[RLM_AGENT_GATED] = "gated",
                                        [RLM_AGENT_WAITING] = "waiting",
                                        [RLM_AGENT_FINISHED] = "finished"};
    enum rlm_agent_state now =
        rlm_run_agent_state(s->run, rlm_graph_agent(rlm_run_graph(s->run), agent));
    return names[now] ? names[now] : "at work";
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

TEST(a_host_call_waits_for_its_answer_and_no_clock_runs)
{
    struct reviewer r = {.only = "send"};
    int calls = 0;
    struct setup s = setup(sending, defaults);
    add_tool(&s, &calls);
    hook(&s, &r, CALL);
    start(&s, journal(), NULL, NULL);
    turn_until_asked(&s, &r, 1);
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
    struct setup s = setup(sending, defaults);
    add_tool(&s, &calls);
    hook(&s, &r, CALL);
    start(&s, journal(), NULL, NULL);
    turn_until_asked(&s, &r, 1);
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
