/* Sessions and runtimes as their users see them; what they do is their implementation's. */
#include "runtime/runtime.h"

int rlm_session_open(rlm_runtime *r,
                     const struct rlm_session_options *options,
                     const struct rlm_session_events *events,
                     void *arg,
                     rlm_session **ret_session,
                     rlm_error **err)
{
    return r->ops->open ? r->ops->open(r, options, events, arg, ret_session, err)
                        : rlm_session_open_worker(r, options, events, arg, ret_session, err);
}

int rlm_session_recover(rlm_session *s, rlm_str value_json, rlm_error **err)
{
    return s->ops->recover(s, value_json, err);
}

int rlm_session_start(rlm_session *s, int64_t cell, rlm_str code, rlm_error **err)
{
    return s->ops->start(s, cell, code, err);
}

int rlm_session_resume(rlm_session *s,
                       const struct rlm_call_result *results,
                       size_t n_results,
                       rlm_error **err)
{
    return s->ops->resume(s, results, n_results, err);
}

void rlm_session_unwind(rlm_session *s)
{
    s->ops->unwind(s);
}

void rlm_session_interrupt(rlm_session *s, const char *reason, rlm_str message, uint64_t grace_ms)
{
    s->ops->interrupt(s, reason, message, grace_ms);
}

void rlm_session_pause(rlm_session *s, bool paused)
{
    s->ops->pause(s, paused);
}

void rlm_session_close(rlm_session *s)
{
    if (s) {
        s->ops->close(s);
    }
}

bool rlm_session_is_busy(const rlm_session *s)
{
    return s->ops->is_busy(s);
}

bool rlm_session_closes_early(const rlm_session *s)
{
    return s->ops->closes_early;
}

const char *rlm_runtime_effects(const rlm_runtime *r)
{
    return r->ops->effects;
}

const char *rlm_runtime_name(const rlm_runtime *r)
{
    return r->ops->name;
}

bool rlm_runtime_opens_soon(const rlm_runtime *r)
{
    return r->ops->opens_soon;
}

void rlm_runtime_free(rlm_runtime *r)
{
    if (r) {
        r->ops->free(r);
    }
}
