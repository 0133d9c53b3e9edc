/* Conformance of runtimes: what every runtime must do, as runs of scripted models (the *.script beside this
 * file), whose agents try it from inside. Only of what rlmflow.h offers, as another program would write it. */
#include "rlmflow.h"
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LINE = 16,            /* bytes of a line of the big text: "line 0000000000\n" */
    BLOCK = 65536 * LINE, /* which are repeated */
    DEFAULT_TEXT = 64 << 20,
    MAX_TIME_MS = 120000,       /* of a check */
    SETTLE_MS = 500,            /* for the first run's session to go */
    PATIENCE_MS = 5000,         /* for what goes on ending after its run */
    THREAD_PATIENCE_MS = 20000, /* the same, where it cannot be killed */
};

#define SCRIPT(name) extern const char rlm_check_script_##name[];
SCRIPT(start)
SCRIPT(resume)
SCRIPT(many)
SCRIPT(wake)
SCRIPT(yield)
SCRIPT(give_up)
SCRIPT(children)
SCRIPT(time_limit)
SCRIPT(flood)
SCRIPT(descriptors)
SCRIPT(unicode)
SCRIPT(input)
SCRIPT(exit)
SCRIPT(death)
SCRIPT(done)
SCRIPT(close)

#define CHECK(check, what) .name = #check, .promise = (what), .script = rlm_check_script_##check

/* In the order in which a runtime is best made: each needs little more than those before it. */
static const struct rlm_conformance_check checks[] = {
    {CHECK(start, "cells run in one namespace, and what they print and raise is shown")},
    {CHECK(resume, "a cell waits for host calls, and goes on with their results")},
    {CHECK(many, "a thousand calls wait at once, and each gets its own answer")},
    {CHECK(wake, "a cell that waits says when it has something new")},
    {CHECK(yield, "a result reaches its thread while the cell computes")},
    {CHECK(give_up, "a call that the code gives up is over for it, and for it alone")},
    {CHECK(children, "sub-agents have sessions of their own, at once"), .max_iters = 3},
    {CHECK(time_limit,
           "exec_timeout interrupts a cell, or ends the session of one that will not stop"),
     .exec_timeout_ms = 1000},
    {CHECK(flood, "of a flood of output head and tail are shown")},
    {CHECK(descriptors, "what C code and child processes print is output; standard input is empty"),
     .own_process = true},
    {CHECK(unicode, "every character crosses in both directions")},
    {CHECK(input, "a big input, and slices of it, are there as they are"), .takes_text = true},
    {CHECK(exit, "code that leaves ends its cell, not its session")},
    {CHECK(death, "an agent whose worker dies is told so, and goes on in a new session"),
     .own_process = true},
    {CHECK(done, "an accepted answer ends even a cell that will not stop")},
    {CHECK(close, "the end of a run ends its sessions, whatever they do"), .reason = "time",
     .max_time_ms = 2000},
};

/* What is looked at behind all others. */
static const struct rlm_conformance_check nothing_left = {
    .name = "leaks",
    .promise = "no process and no descriptor is left when all runs have ended",
};

const struct rlm_conformance_check *rlm_conformance_checks(size_t *ret_n)
{
    *ret_n = sizeof checks / sizeof *checks;
    return checks;
}

/* ---- one check ---- */

/* The text that an agent with `takes_text` gets; NULL: no memory. */
static char *make_text(size_t len)
{
    char *text = malloc(len + LINE + 1);
    size_t block = len < BLOCK ? len : BLOCK;
    for (size_t i = 0; text && i < block; i += LINE) {
        snprintf(text + i, LINE + 1, "line %010zu\n", i / LINE);
    }
    for (size_t done = block; text && done < len;) {
        size_t n = len - done < done ? len - done : done;
        memcpy(text + done, text, n);
        done += n;
    }
    return text;
}

/* What was wrong with a run that has ended; "": nothing. */
static void
judge(const struct rlm_conformance_check *check, const rlm_run *run, char *wrong, size_t size)
{
    struct rlm_str answer = rlm_run_answer(run);
    const char *wanted = check->reason ? check->reason : "answered", *reason = rlm_run_reason(run);
    wrong[0] = '\0';
    if (strcmp(reason, wanted) != 0) {
        snprintf(wrong, size, "its run ended with \"%s\" instead of \"%s\": %s", reason, wanted,
                 rlm_run_message(run));
    } else if (!check->reason && !(answer.len == 2 && memcmp(answer.ptr, "ok", 2) == 0)) {
        snprintf(wrong, size, "%.*s", (int)answer.len, answer.ptr);
    }
}

static int run_flow(rlm_flow *flow,
                    const struct rlm_conformance_check *check,
                    size_t text_len,
                    char *wrong,
                    size_t size,
                    rlm_error **err)
{
    char number[24], *text = NULL;
    struct rlm_run_options options = RLM_RUN_OPTIONS_INIT;
    options.query = (struct rlm_str){"check", 5};
    snprintf(number, sizeof number, "%zu", text_len);
    struct rlm_input inputs[2] = {
        {.name = "text", .kind = RLM_INPUT_TEXT},
        {.name = "size", .kind = RLM_INPUT_JSON, .value = {number, strlen(number)}},
    };
    if (check->takes_text) {
        text = make_text(text_len);
        if (!text) {
            snprintf(wrong, size, "there is no memory for a text of %zu bytes", text_len);
            return 0;
        }
        inputs[0].value = (struct rlm_str){text, text_len};
        options.inputs = inputs;
        options.n_inputs = 2;
    }
    rlm_run *run = NULL;
    int r = rlm_run_start(flow, &options, NULL, NULL, &run, err);
    if (r == 0) {
        r = rlm_run_wait(run, err);
    }
    if (r == 0) {
        judge(check, run, wrong, size);
    }
    rlm_run_free(run);
    free(text);
    return r;
}

static int run_check(rlm_loop *loop,
                     rlm_runtime *runtime,
                     const struct rlm_conformance_check *check,
                     size_t text_len,
                     char *wrong,
                     size_t size,
                     rlm_error **err)
{
    struct rlm_flow_options options = RLM_FLOW_OPTIONS_INIT;
    rlm_flow *flow = NULL;
    struct rlm_str script = {check->script, strlen(check->script)};
    int r = rlm_model_new_script(loop, check->name, script, &options.model, err);
    options.runtime = runtime;
    if (check->exec_timeout_ms) {
        options.limits.exec_timeout_ms = check->exec_timeout_ms;
    }
    if (check->max_iters) {
        options.limits.max_iters = check->max_iters;
    }
    options.limits.max_time_ms = check->max_time_ms ? check->max_time_ms : MAX_TIME_MS;
    if (r == 0) {
        r = rlm_flow_new(loop, &options, &flow, err);
    }
    if (r == 0) {
        r = run_flow(flow, check, text_len, wrong, size, err);
    }
    rlm_flow_free(flow);
    rlm_model_free(options.model);
    return r;
}

/* ---- all of them ---- */

/* What is open in this process, and which children it has. */
struct held {
    size_t descriptors, children;
};

static size_t count_words(const char *path)
{
    size_t n = 0;
    int pid;
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%d", &pid) == 1) {
        n++;
    }
    if (file) {
        fclose(file);
    }
    return n;
}

static size_t count_entries(const char *directory, bool children)
{
    size_t n = 0;
    DIR *dir = opendir(directory);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] != '.') {
            char path[300];
            snprintf(path, sizeof path, "%s/%s/children", directory, entry->d_name);
            n += children ? count_words(path) : 1;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

static struct held look(void)
{
    return (struct held){count_entries("/proc/self/fd", false),
                         count_entries("/proc/self/task", true)};
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static bool holds_more(struct held after, struct held before)
{
    return after.descriptors > before.descriptors || after.children > before.children;
}

/* Turns the loop for so long, or until no more is held than there was before. What is held then. */
static struct held settle(rlm_loop *loop, struct held before, int64_t most_ms)
{
    int64_t end = now_ms() + most_ms;
    struct held after = look();
    while (holds_more(after, before) && now_ms() < end) {
        struct pollfd poller = {.fd = rlm_loop_fd(loop), .events = POLLIN};
        poll(&poller, 1, 50);
        rlm_loop_dispatch(loop);
        after = look();
    }
    return after;
}

static void
look_for_leaks(rlm_loop *loop, struct held before, int64_t most_ms, char *wrong, size_t size)
{
    struct held after = settle(loop, before, most_ms);
    wrong[0] = '\0';
    if (holds_more(after, before)) {
        snprintf(
            wrong, size,
            "after the first run there were %zu descriptors and %zu child processes, after all runs "
            "there are %zu and %zu",
            before.descriptors, before.children, after.descriptors, after.children);
    }
}

static void tell(const struct rlm_conformance_options *o,
                 const struct rlm_conformance_check *check,
                 const char *wrong,
                 size_t *failed)
{
    *failed += wrong[0] != '\0';
    if (o->checked) {
        o->checked(o->arg, check, wrong[0] ? wrong : NULL);
    }
}

int rlm_runtime_check(rlm_loop *loop,
                      rlm_runtime *runtime,
                      const struct rlm_conformance_options *options,
                      size_t *ret_failed,
                      rlm_error **err)
{
    char wrong[1000];
    struct held before = {0};
    size_t text_len = options->text_bytes ? options->text_bytes / LINE * LINE : DEFAULT_TEXT;
    *ret_failed = 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].own_process && options->in_process) {
            continue;
        }
        int r = run_check(loop, runtime, &checks[i], text_len, wrong, sizeof wrong, err);
        if (r < 0) {
            return r;
        }
        tell(options, &checks[i], wrong, ret_failed);
        if (i == 0) { /* what the first run makes once for all stays */
            before = settle(loop, before, SETTLE_MS);
        }
    }
    look_for_leaks(loop, before, options->in_process ? THREAD_PATIENCE_MS : PATIENCE_MS, wrong,
                   sizeof wrong);
    tell(options, &nothing_left, wrong, ret_failed);
    return 0;
}
