/* A program with tools over the public API, for tests that kill it:
 *
 *     tool_host run|resume|replay RUN BASE_URL LOG PYTHON RESTORE [NAME=VALUE]...
 *
 * The tools append a line "NAME KEY" to LOG, which outlives every kill, and answer after `delay` ms:
 * `buy(key)` may not be called twice, `look(key)` may (idempotent). Options: delay, max_calls (of
 * buy), max_iters, max_budget, workers, query, execute. The answer goes to stdout, everything else to
 * stderr. Exit codes: 0 answered (replay: nothing differs), 1 not, 2 it could not start. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rlmflow.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct pending {
    rlm_tool_call *call;
    int64_t due_ms;
    char value[300];
    struct pending *next;
};

struct host {
    const char *command, *journal, *url, *log, *python, *restore;
    const char *query;
    struct rlm_limits limits;
    int64_t delay_ms, max_calls;
    bool execute;
    struct pending *pending;
    struct tool {
        struct host *host;
        const char *name;
    } tools[2];
    rlm_loop *loop;
    rlm_model *model;
    rlm_runtime *runtime;
    rlm_flow *flow;
    rlm_run *run;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int fail(rlm_error *err)
{
    fprintf(stderr, "%s\n", rlm_error_message(err));
    rlm_error_free(err);
    return 2;
}

/* ---- tools ---- */

/* The arguments are {"key": "..."} with a key of letters and digits. */
static void read_key(struct rlm_str arguments, char *key, size_t size)
{
    snprintf(key, size, "%.*s", (int)arguments.len, arguments.ptr);
    char *colon = strchr(key, ':'), *first = colon ? strchr(colon, '"') : NULL;
    char *last = first ? strchr(first + 1, '"') : NULL;
    if (!last) {
        abort();
    }
    *last = '\0';
    memmove(key, first + 1, (size_t)(last - first));
}

static void call_tool(void *arg, rlm_tool_call *call, struct rlm_str arguments_json)
{
    struct tool *tool = arg;
    struct host *h = tool->host;
    char key[200], line[300];
    read_key(arguments_json, key, sizeof key);
    int len = snprintf(line, sizeof line, "%s %s\n", tool->name, key);
    int fd = open(h->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)len) != len) {
        perror(h->log);
        abort();
    }
    close(fd);
    struct pending *p = calloc(1, sizeof *p), **last = &h->pending;
    if (!p) {
        abort();
    }
    p->call = call;
    p->due_ms = now_ms() + h->delay_ms;
    snprintf(p->value, sizeof p->value, "\"%s:%s\"", tool->name, key);
    while (*last) {
        last = &(*last)->next;
    }
    *last = p;
}

/* Answers what is due, or all; the milliseconds until the next is, or -1. */
static int answer_due(struct host *h, bool all)
{
    while (h->pending && (all || h->pending->due_ms <= now_ms())) {
        struct pending *p = h->pending;
        h->pending = p->next;
        rlm_tool_call_return(p->call, (struct rlm_str){p->value, strlen(p->value)});
        free(p);
    }
    if (!h->pending) {
        return -1;
    }
    int64_t left = h->pending->due_ms - now_ms();
    return left > 0 ? (int)left : 0;
}

static int add_tools(struct host *h, rlm_error **err)
{
    static const char *const names[] = {"buy", "look"};
    for (int i = 0; i < 2; i++) {
        struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
        h->tools[i] = (struct tool){h, names[i]};
        o.name = names[i];
        o.description = i ? "Looks something up." : "Buys something.";
        o.parameters_json =
            "{\"type\": \"object\", \"properties\": {\"key\": {\"type\": \"string\"}},"
            " \"required\": [\"key\"]}";
        o.run = call_tool;
        o.arg = &h->tools[i];
        o.idempotent = i == 1;
        o.limits.max_calls = i == 0 ? h->max_calls : 0;
        int r = rlm_flow_add_tool(h->flow, &o, err);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* ---- the run ---- */

static void on_event(void *arg, rlm_run *run, const struct rlm_event *event)
{
    (void)arg, (void)run;
    if (event->type == RLM_EVENT_NOTICE) {
        fprintf(stderr, "notice: %.*s\n", (int)event->text.len, event->text.ptr);
    }
}

static int make_flow(struct host *h, rlm_error **err)
{
    struct rlm_model_options model = RLM_MODEL_OPTIONS_INIT;
    struct rlm_subprocess_options runtime = RLM_SUBPROCESS_OPTIONS_INIT;
    struct rlm_flow_options flow = RLM_FLOW_OPTIONS_INIT;
    model.name = "m";
    model.base_url = h->url;
    runtime.python = h->python;
    int r = rlm_loop_new(&h->loop, err);
    if (r == 0) {
        r = strcmp(h->command, "replay") == 0 ? rlm_model_new_recorded(h->loop, "m", &h->model, err)
                                              : rlm_model_new(h->loop, &model, &h->model, err);
    }
    if (r == 0) {
        r = rlm_runtime_new_subprocess(h->loop, &runtime, &h->runtime, err);
    }
    flow.limits = h->limits;
    flow.model = h->model;
    flow.runtime = h->runtime;
    if (r == 0) {
        r = rlm_flow_new(h->loop, &flow, &h->flow, err);
    }
    return r < 0 ? r : add_tools(h, err);
}

static int begin(struct host *h, rlm_error **err)
{
    struct rlm_run_events events = {.event = on_event};
    enum rlm_restore_mode restore = strcmp(h->restore, "replay") == 0  ? RLM_RESTORE_REPLAY
                                    : strcmp(h->restore, "fresh") == 0 ? RLM_RESTORE_FRESH
                                                                       : RLM_RESTORE_AUTO;
    struct rlm_str query = {h->query, h->query ? strlen(h->query) : 0};
    if (strcmp(h->command, "run") == 0) {
        struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
        o.query = h->query ? query : (struct rlm_str){"go", 2};
        o.journal = h->journal;
        o.restore = restore;
        return rlm_run_start(h->flow, &o, &events, h, &h->run, err);
    }
    if (strcmp(h->command, "resume") == 0) {
        struct rlm_resume_options o = RLM_RESUME_OPTIONS_INIT;
        o.journal = h->journal;
        o.query = query;
        o.restore = restore;
        return rlm_flow_resume(h->flow, &o, &events, h, &h->run, err);
    }
    struct rlm_replay_options o = RLM_REPLAY_OPTIONS_INIT;
    o.journal = h->journal;
    o.execute = h->execute;
    return rlm_flow_replay(h->flow, &o, &events, h, &h->run, err);
}

static void drive(struct host *h)
{
    struct pollfd fd = {.fd = rlm_loop_fd(h->loop), .events = POLLIN};
    while (!rlm_run_has_ended(h->run)) {
        int due = answer_due(h, false), timeout = rlm_loop_timeout(h->loop);
        timeout = timeout < 0 || (due >= 0 && due < timeout) ? due : timeout;
        if (poll(&fd, 1, timeout) < 0 && errno != EINTR) {
            perror("poll");
            abort();
        }
        answer_due(h, false);
        rlm_loop_dispatch(h->loop);
    }
    answer_due(h, true);
}

static int report(struct host *h)
{
    struct rlm_str answer = rlm_run_answer(h->run);
    const struct rlm_replay_report *r = rlm_run_replay_report(h->run);
    if (r) {
        fprintf(stderr, "%s: %zu nodes, %zu calls, %zu cells ran, %zu did not; %s %s\n",
                rlm_run_reason(h->run), r->nodes, r->calls, r->cells_run, r->cells_not_run,
                r->diverged ? r->agent_id : "", r->diverged ? r->what : "");
        return r->diverged || r->outputs_differ ? 1 : 0;
    }
    fprintf(stderr, "%s: %s\n", rlm_run_reason(h->run), rlm_run_message(h->run));
    printf("%.*s\n", (int)answer.len, answer.ptr);
    return strcmp(rlm_run_reason(h->run), "answered") == 0 ? 0 : 1;
}

static int take_option(struct host *h, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : 0;
    const struct {
        const char *name;
        int64_t *wide;
        int *narrow;
    } numbers[] = {
        {"delay", &h->delay_ms, NULL},
        {"max_calls", &h->max_calls, NULL},
        {"max_budget", &h->limits.max_budget, NULL},
        {"max_iters", NULL, &h->limits.max_iters},
        {"workers", NULL, &h->limits.workers},
    };
    if (len == 5 && strncmp(text, "query", len) == 0) {
        h->query = equals + 1;
        return 0;
    }
    if (len == 7 && strncmp(text, "execute", len) == 0) {
        h->execute = true;
        return 0;
    }
    for (size_t i = 0; len && i < sizeof numbers / sizeof *numbers; i++) {
        if (strlen(numbers[i].name) == len && strncmp(text, numbers[i].name, len) == 0) {
            int64_t value = strtoll(equals + 1, NULL, 10);
            numbers[i].wide ? (*numbers[i].wide = value) : (*numbers[i].narrow = (int)value);
            return 0;
        }
    }
    fprintf(stderr, "unknown option: %s\n", text);
    return -1;
}

int main(int argc, char **argv)
{
    struct host h = {.limits = RLM_LIMITS_INIT};
    rlm_error *err = NULL;
    if (argc < 7) {
        fprintf(stderr, "usage: tool_host run|resume|replay RUN BASE_URL LOG PYTHON RESTORE ...\n");
        return 2;
    }
    h.command = argv[1], h.journal = argv[2], h.url = argv[3], h.log = argv[4];
    h.python = argv[5], h.restore = argv[6];
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error, as a full disk is */
    for (int i = 7; i < argc; i++) {
        if (take_option(&h, argv[i]) < 0) {
            return 2;
        }
    }
    int code = make_flow(&h, &err) < 0 || begin(&h, &err) < 0 ? fail(err) : 0;
    if (code == 0) {
        drive(&h);
        code = report(&h);
    }
    rlm_run_free(h.run);
    rlm_flow_free(h.flow);
    rlm_runtime_free(h.runtime);
    rlm_model_free(h.model);
    rlm_loop_free(h.loop);
    return code;
}
