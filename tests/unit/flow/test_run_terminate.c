/* One agent of a tree is terminated: its descendants end with it, everybody else goes on. */
#include "whole_run.h"

#include "base/loop.h"

#include <errno.h>
#include <signal.h>

/* a has two children: x computes for ever, y's model does not answer. b waits for a file. */
static const char family[] =
    "@reply agent=root turn=1\n```repl\n"
    "r = await launch_subagents([{'query': 'q', 'name': 'a'}, {'query': 'q', 'name': 'b'}])\n"
    "done('|'.join(x.reason + ': ' + x.message if isinstance(x, Failure) else x for x in r))\n```\n"
    "@reply agent=root.a turn=1\n```repl\n"
    "r = await launch_subagents([{'query': 'q', 'name': 'x'}, {'query': 'q', 'name': 'y'}])\n"
    "done(r[0].reason + ', ' + r[1])\n```\n"
    "@reply agent=root.a.x\n```repl\n"
    "import os\nwrite_file('%s/pid', str(os.getpid()))\nwhile True: pass\n```\n"
    "@reply agent=root.a.y delay=%s\n```repl\ndone('y')\n```\n"
    "@reply agent=root.b turn=1\n```repl\n"
    "import os, time\nwhile not os.path.exists('%s/go'): time.sleep(0.005)\nprint('seen')\n```\n"
    "@reply agent=root.b turn=2\n```repl\ndone('b went on')\n```\n";

struct seen {
    bool x_runs, b_runs, y_asks;
    char ends[200]; /* in order */
    const char *after_its_end;
};

static void event(void *arg, rlm_run *run, const struct rlm_event *e)
{
    struct seen *seen = arg;
    const char *id = e->graph ? rlm_graph_agent_id(e->graph) : "";
    seen->y_asks |= strcmp(id, "root.a.y") == 0 && e->type == RLM_EVENT_STATE &&
                    rlm_run_agent_state(run, e->graph) == RLM_AGENT_ASKING;
    if (e->type != RLM_EVENT_APPEND_NODE) {
        return;
    }
    seen->b_runs |= strcmp(id, "root.b") == 0 && e->node->type == RLM_EXEC_ACTION;
    if (e->node->type == RLM_DONE_OUTPUT) {
        size_t len = strlen(seen->ends);
        snprintf(seen->ends + len, sizeof seen->ends - len, "%s %.*s, ", id,
                 RLM_FMT(e->node->reason));
    }
    rlm_graph *parent = e->graph ? rlm_graph_parent(e->graph) : NULL;
    if (parent && rlm_graph_finished(parent)) {
        seen->after_its_end = id;
    }
}

static const struct rlm_run_events watch = {.event = event};

/* The worker that has written its process id, or 0. */
static pid_t worker_of_x(void)
{
    char path[256], text[32] = "";
    snprintf(path, sizeof path, "%s/pid", harness_directory());
    FILE *f = fopen(path, "r");
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
    }
    return atoi(text);
}

/* Starts the family and turns the loop until x and b run and y's model is asked. */
static struct setup begin(const char *delay_of_y, const char *journal, struct seen *seen)
{
    char script[4096];
    snprintf(script, sizeof script, family, harness_directory(), delay_of_y, harness_directory());
    struct setup s = setup(script, defaults);
    start(&s, journal, &watch, seen);
    while (!(worker_of_x() && seen->b_runs && seen->y_asks)) {
        rlm_loop_turn(s.loop);
    }
    return s;
}

static void let_b_go_on(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/go", harness_directory());
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fclose(f);
}

static const char *reason(const struct setup *s, const char *id)
{
    static char text[32];
    snprintf(text, sizeof text, "%.*s",
             RLM_FMT(rlm_graph_reason(rlm_graph_agent(rlm_run_graph(s->run), id))));
    return text;
}

TEST(a_subtree_ends_and_its_sibling_runs_to_its_answer)
{
    struct seen seen = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/run.rlm", harness_directory());
    struct setup s = begin("600s", path, &seen);
    CHECK_INT(rlm_run_terminate(s.run, "root.a", NULL), 0);
    /* At once, the descendants first; nobody else. */
    CHECK(strcmp(seen.ends, "root.a.x terminated, root.a.y terminated, root.a terminated, ") == 0 ||
          strcmp(seen.ends, "root.a.y terminated, root.a.x terminated, root.a terminated, ") == 0);
    CHECK_TEXT(reason(&s, "root.b"), "");
    CHECK_TEXT(reason(&s, "root"), "");
    /* Again it does nothing, for the agent and for those below it. */
    size_t nodes = rlm_graph_node_count(rlm_graph_agent(rlm_run_graph(s.run), "root.a"));
    CHECK_INT(rlm_run_terminate(s.run, "root.a", NULL), 0);
    CHECK_INT(rlm_run_terminate(s.run, "root.a.x", NULL), 0);
    CHECK_INT(rlm_graph_node_count(rlm_graph_agent(rlm_run_graph(s.run), "root.a")), nodes);
    let_b_go_on();
    finish(&s, "answered", "terminated: terminated by the user|b went on");
    CHECK_TEXT(reason(&s, "root.a"), "terminated");
    CHECK_TEXT(reason(&s, "root.a.x"), "terminated");
    CHECK_TEXT(reason(&s, "root.a.y"), "terminated");
    CHECK_TEXT(reason(&s, "root.b"), "answered");
    CHECK(!seen.after_its_end);
    /* Once for root, a and x, twice for b; y's is charged though nothing came. */
    CHECK_INT(rlm_run_usage(s.run).calls, 6);
    pid_t worker = worker_of_x();
    teardown(&s);
    CHECK(kill(worker, 0) < 0 && errno == ESRCH);
    rlm_graph *loaded;
    CHECK(rlm_graph_load(path, &loaded, NULL, NULL) == 0);
    CHECK_STR(rlm_graph_reason(rlm_graph_agent(loaded, "root.a.y")), "terminated");
    CHECK_STR(rlm_graph_result(loaded), "terminated: terminated by the user|b went on");
    rlm_graph_free(loaded);
}

TEST(a_leaf_ends_and_its_parent_uses_what_the_others_say)
{
    struct seen seen = {0};
    struct setup s = begin("300ms", NULL, &seen);
    CHECK_INT(rlm_run_terminate(s.run, "root.a.x", NULL), 0);
    CHECK_TEXT(seen.ends, "root.a.x terminated, ");
    let_b_go_on();
    finish(&s, "answered", "terminated, y|b went on");
    CHECK_TEXT(reason(&s, "root.a"), "answered");
    CHECK_TEXT(reason(&s, "root.a.y"), "answered");
    teardown(&s);
}
