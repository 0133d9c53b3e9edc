/* What sessions tell, as text, and what tests of them do alike. */
#pragma once

#include "harness.h"

#include "base/error.h"
#include "base/loop.h"
#include "runtime/runtime.h"

static inline void tell_suspended(struct rlm_buf *told, const struct rlm_host_call *calls, size_t n)
{
    rlm_buf_addf(told, "suspended");
    for (size_t i = 0; i < n; i++) {
        struct rlm_json_writer w = {.buf = told};
        rlm_buf_addf(told, " %d %.*s ", (int)calls[i].id, RLM_FMT(calls[i].name));
        rlm_json_put(&w, calls[i].args);
        w.comma = false;
        rlm_json_put(&w, calls[i].kwargs);
    }
    rlm_buf_addf(told, "|");
}

static inline void tell_died(struct rlm_buf *told, const struct rlm_session_death *how)
{
    rlm_buf_addf(told, "died %s%s: %.*s <%.*s>|", how->reason, how->during_cell ? " in a cell" : "",
                 RLM_FMT(how->message), (int)how->output.len,
                 how->output.ptr ? how->output.ptr : "");
}

static inline void give_to(rlm_session *session, int64_t id, const char *value)
{
    struct rlm_call_result result = {.id = id, .value_json = rlm_str_of(value)};
    rlm_autoerr rlm_error *err = NULL;
    rlm_session_resume(session, &result, 1, &err);
    CHECK_TEXT(rlm_error_message(err), "");
}

static inline void stop_loop(void *arg)
{
    rlm_loop_stop(arg);
}

static inline void run_loop(rlm_loop *loop, uint64_t ms)
{
    rlm_timer *t = rlm_timer_new(loop, stop_loop, loop);
    CHECK(t != NULL);
    rlm_timer_set(t, ms);
    rlm_loop_run(loop);
    rlm_timer_free(t);
}
