/* Sessions in child processes, with the worker as it is. */
#pragma once

#include "told.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

static struct {
    rlm_loop *loop;
    rlm_runtime *runtime;
    rlm_blobs *blobs;
    rlm_session *session;
    const char *python;
    const char *const *env;
    int spare;
    const char *const *input_blobs;
    rlm_str inputs; /* JSON object */
    uint64_t exec_timeout_ms, cpu_time_ms;
    struct rlm_buf told;
    pid_t pid;
    int64_t cell;
    int n_descriptors; /* before anything was made */
} t;

static inline int count_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count;
}

/* ---- events ----------------------------------------------------------------------------------- */

static inline void on_ready(void *arg, rlm_str json)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    const rlm_json *v;
    CHECK_INT(rlm_json_parse(a, json, &v, NULL), 0);
    t.pid = (pid_t)rlm_json_int(rlm_json_get(v, "pid"), 0);
    rlm_buf_addf(&t.told, "ready%s|",
                 rlm_json_bool(rlm_json_get(v, "mapped"), false) ? " mapped" : "");
}

static inline void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    tell_suspended(&t.told, calls, n);
}

static inline void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    rlm_buf_addf(&t.told, "finished %s%s%s%s: %.*s|", how->error_type ? how->error_type : "ok",
                 how->clock ? " (" : "", how->clock ? how->clock : "", how->clock ? ")" : "",
                 RLM_FMT(how->output));
}

static inline void on_died(void *arg, const struct rlm_session_death *how)
{
    tell_died(&t.told, how);
}

static const struct rlm_session_events session_events = {
    .ready = on_ready,
    .suspended = on_suspended,
    .finished = on_finished,
    .died = on_died,
};

/* ---- the engine's side ------------------------------------------------------------------------ */

static inline void run_ms(uint64_t ms)
{
    run_loop(t.loop, ms);
}

static inline const char *wait_for(const char *part)
{
    while (!t.told.ptr || !strstr(t.told.ptr, part)) {
        run_ms(1); /* the harness has the time limit */
    }
    static char *copy;
    free(copy);
    copy = strdup(t.told.ptr);
    rlm_buf_clear(&t.told);
    return copy;
}

static inline void begin(void)
{
    /* The first loop of a process opens what all of them share. */
    CHECK_INT(rlm_loop_new(&t.loop, NULL), 0);
    rlm_loop_free(t.loop);
    t.n_descriptors = count_descriptors();
    t.told = RLM_BUF(64 << 20);
    CHECK_INT(rlm_loop_new(&t.loop, NULL), 0);
    CHECK_INT(rlm_blobs_open(harness_directory(), &t.blobs, NULL), 0);
}

static inline void make_runtime(void)
{
    struct rlm_subprocess_options o = RLM_SUBPROCESS_OPTIONS_INIT;
    const char *python = getenv("RLM_TEST_PYTHON"); /* to try another than the system's */
    o.python = t.python ? t.python : python ? python : "/usr/bin/python3";
    o.spare = t.spare;
    o.env = t.env;
    rlm_autoerr rlm_error *err = NULL;
    rlm_runtime_new_subprocess(t.loop, &o, &t.runtime, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

static inline int try_open(rlm_error **err)
{
    static char json[4096];
    snprintf(
        json, sizeof json,
        "{\"protocol\":1,\"seed\":\"00\",\"agent_id\":\"root\",\"depth\":0,\"max_depth\":1,"
        "\"parent_agent_id\":\"\",\"env\":{},\"inputs\":%.*s,\"tools\":[{\"name\":\"ask\","
        "\"description\":\"asks\",\"parameters\":{\"type\":\"object\",\"properties\":{\"what\":"
        "{}},\"required\":[\"what\"]}}],\"file_tools\":false,\"output_schema\":false,"
        "\"limits\":{\"output_bytes\":1048576}}",
        t.inputs.ptr ? (int)t.inputs.len : 2, t.inputs.ptr ? t.inputs.ptr : "{}");
    struct rlm_session_options o = {
        .blobs = t.blobs,
        .open_json = rlm_str_of(json),
        .input_blobs = t.input_blobs,
        .exec_timeout_ms = t.exec_timeout_ms,
        .cpu_time_ms = t.cpu_time_ms,
        .open_timeout_ms = 20000,
    };
    return rlm_session_open(t.runtime, &o, &session_events, NULL, &t.session, err);
}

static inline void open_session(void)
{
    rlm_autoerr rlm_error *err = NULL;
    try_open(&err);
    CHECK_TEXT(rlm_error_message(err), "");
    wait_for("ready");
}

static inline void begin_session(void)
{
    begin();
    make_runtime();
    open_session();
}

/* True when no process of the group is left (one that is being reaped may still be). */
static inline bool group_is_gone(pid_t pid)
{
    for (int i = 0; i < 2000; i++) {
        if (kill(-pid, 0) < 0 && errno == ESRCH) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

static inline void end(void)
{
    rlm_session_close(t.session);
    rlm_runtime_free(t.runtime);
    rlm_blobs_free(t.blobs);
    rlm_loop_free(t.loop);
    rlm_buf_deinit(&t.told);
    if (t.pid) {
        CHECK(group_is_gone(t.pid));
    }
    CHECK_INT(count_descriptors(), t.n_descriptors);
}

static inline void start(const char *code)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_session_start(t.session, ++t.cell, rlm_str_of(code), &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

static inline const char *run(const char *code)
{
    start(code);
    return wait_for("|");
}

static inline void give(int64_t id, const char *value)
{
    give_to(t.session, id, value);
}
