#include "runtime/session.h"

#include <stdio.h>
#include <unistd.h>

/* The CPU time of a worker costs a system call or two, so a cell's is looked at only when it could
 * have passed its limit: first after BASE_AFTER (most cells are over by then), which is taken as
 * the cell's beginning, then when all processors at once could have used up what is left. */
enum { BASE_AFTER_MS = 20, LEAST_SAMPLE_MS = 20 };

const char *session_duration(uint64_t ms, char out[32])
{
    if (ms % 1000 == 0) {
        snprintf(out, 32, "%llu s", (unsigned long long)(ms / 1000));
    } else if (ms > 1000) {
        snprintf(out, 32, "%.1f s", (double)ms / 1000);
    } else {
        snprintf(out, 32, "%llu ms", (unsigned long long)ms);
    }
    return out;
}

static unsigned processors(void)
{
    static unsigned count; /* a constant of the machine, read once */
    if (count == 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        count = n > 0 ? (unsigned)n : 1;
    }
    return count;
}

static bool exec_counts(const struct worker_session *s)
{
    bool runs = s->by_hand ? s->state == SESSION_RUNNING : session_is_busy(s);
    return runs && s->open_calls.len == 0 && !s->clock.paused && !s->interrupted && !s->unwinding &&
           !session_out_pending(s);
}

static bool cpu_counts(const struct worker_session *s)
{
    return session_is_busy(s) && s->cpu_time_ms && !s->clock.paused && !s->interrupted &&
           s->transport->ops->cpu_ms;
}

static void account_exec(struct worker_session *s, uint64_t now_us)
{
    struct session_clock *c = &s->clock;
    if (c->exec_since_us) {
        c->exec_used_us += now_us - c->exec_since_us;
        c->exec_since_us = 0;
    }
    if (exec_counts(s)) {
        c->exec_since_us = now_us;
    }
}

static uint64_t exec_due_us(const struct worker_session *s, uint64_t now_us)
{
    uint64_t limit_us = s->exec_timeout_ms * 1000;
    if (!limit_us || !s->clock.exec_since_us) {
        return 0;
    }
    return s->clock.exec_used_us >= limit_us ? now_us : now_us + (limit_us - s->clock.exec_used_us);
}

static uint64_t earliest(uint64_t a, uint64_t b)
{
    if (!a || !b) {
        return a ? a : b;
    }
    return a < b ? a : b;
}

void session_clock_update(struct worker_session *s)
{
    struct session_clock *c = &s->clock;
    if (s->state == SESSION_DEAD) {
        rlm_timer_stop(c->timer);
        c->armed_us = 0;
        return;
    }
    uint64_t now_us = rlm_now_us();
    account_exec(s, now_us);
    if (!session_out_waits(s)) {
        c->stall_due_us = 0;
    } else if (!c->stall_due_us) {
        c->stall_due_us = now_us + RLM_SESSION_STALL_MS * 1000ull;
    }
    uint64_t due_us = exec_due_us(s, now_us);
    due_us = earliest(due_us, cpu_counts(s) ? c->cpu_due_us : 0);
    due_us = earliest(due_us, c->open_due_us);
    due_us = earliest(due_us, c->unwind_due_us);
    due_us = earliest(due_us, c->kill_due_us);
    due_us = earliest(due_us, c->stall_due_us);
    /* A timer that fires too early costs less than one that is set for every cell. */
    if (due_us && (!c->armed_us || due_us < c->armed_us)) {
        c->armed_us = due_us;
        rlm_timer_set(c->timer, due_us > now_us ? (due_us - now_us + 999) / 1000 : 0);
    }
}

void session_clock_begin_cell(struct worker_session *s)
{
    struct session_clock *c = &s->clock;
    uint64_t now_us = rlm_now_us();
    c->exec_used_us = 0;
    c->exec_since_us = 0;
    c->cpu_known = false;
    c->cpu_used_ms = 0;
    c->cpu_due_us = now_us + BASE_AFTER_MS * 1000;
    c->unwind_due_us = 0;
    c->kill_due_us = 0;
}

void session_clock_pause(struct worker_session *s, bool paused)
{
    struct session_clock *c = &s->clock;
    if (c->paused == paused) {
        return;
    }
    if (paused && c->cpu_known) {
        int64_t cpu_ms = s->transport->ops->cpu_ms(s->transport);
        c->cpu_used_ms += cpu_ms > c->cpu_base_ms ? cpu_ms - c->cpu_base_ms : 0;
        c->cpu_known = false;
    }
    c->paused = paused;
    c->cpu_due_us = rlm_now_us() + BASE_AFTER_MS * 1000;
    session_clock_update(s);
}

void session_clock_progress(struct worker_session *s)
{
    s->clock.stall_due_us = 0;
    session_clock_update(s);
}

static void
run_out(struct worker_session *s, const char *clock, const char *what, uint64_t limit_ms)
{
    char limit[32], message[160];
    snprintf(message, sizeof message, "the cell %s (%s: %s)", what, clock,
             session_duration(limit_ms, limit));
    session_interrupt(s, clock, clock, rlm_str_of(message), RLM_SESSION_INTERRUPT_GRACE_MS);
}

static void sample_cpu(struct worker_session *s, uint64_t now_us)
{
    struct session_clock *c = &s->clock;
    int64_t cpu_ms = s->transport->ops->cpu_ms(s->transport);
    if (cpu_ms < 0) {
        c->cpu_due_us = 0; /* the far side does not tell */
        return;
    }
    if (!c->cpu_known) {
        c->cpu_known = true;
        c->cpu_base_ms = cpu_ms;
    }
    int64_t used_ms = c->cpu_used_ms + (cpu_ms - c->cpu_base_ms);
    int64_t left_ms = (int64_t)s->cpu_time_ms - used_ms;
    if (left_ms <= 0) {
        run_out(s, "cpu_time", "used more than its CPU time", s->cpu_time_ms);
        return;
    }
    uint64_t wait_ms = (uint64_t)left_ms / processors();
    wait_ms = wait_ms < LEAST_SAMPLE_MS ? LEAST_SAMPLE_MS : wait_ms;
    c->cpu_due_us = now_us + wait_ms * 1000;
}

static const char *killed(const struct worker_session *s)
{
    return s->transport->ops->killed ? s->transport->ops->killed : "its worker was killed";
}

static void kill_cell(struct worker_session *s)
{
    char grace[32], limit[32];
    session_duration(s->interrupt_grace_ms, grace);
    const char *clock = s->interrupt_clock;
    if (clock) {
        bool is_exec = clock[0] == 'e';
        session_duration(is_exec ? s->exec_timeout_ms : s->cpu_time_ms, limit);
        session_die(s, clock,
                    "the cell %s (%s: %s) and did not end within %s of being interrupted; %s",
                    is_exec ? "ran too long" : "used more than its CPU time", clock, limit, grace,
                    killed(s));
        return;
    }
    session_die(s, "killed", "the cell did not end within %s of being interrupted (%s); %s", grace,
                s->interrupt_reason, killed(s));
}

static bool passed(uint64_t due_us, uint64_t now_us)
{
    return due_us && due_us <= now_us;
}

void session_clock_fired(void *arg)
{
    struct worker_session *s = arg;
    struct session_clock *c = &s->clock;
    char limit[32];
    uint64_t now_us = rlm_now_us();
    c->armed_us = 0;
    account_exec(s, now_us);
    if (passed(c->open_due_us, now_us)) {
        c->open_due_us = 0;
        session_die(s, "open", "the worker was not ready within %s",
                    session_duration(s->open_timeout_ms, limit));
    } else if (passed(c->kill_due_us, now_us)) {
        c->kill_due_us = 0;
        kill_cell(s);
    } else if (passed(c->stall_due_us, now_us)) {
        session_die(s, "killed", "the worker took nothing for %s of what is being sent to it; %s",
                    session_duration(RLM_SESSION_STALL_MS, limit), killed(s));
    } else if (passed(c->unwind_due_us, now_us)) {
        c->unwind_due_us = 0;
        session_interrupt(s, "done", NULL, RLM_STR("the answer was accepted; the cell is over"),
                          RLM_SESSION_UNWIND_MS);
    } else if (passed(exec_due_us(s, now_us), now_us)) {
        run_out(s, "exec_timeout", "ran too long", s->exec_timeout_ms);
    } else if (cpu_counts(s) && passed(c->cpu_due_us, now_us)) {
        sample_cpu(s, now_us);
    }
    session_clock_update(s);
}
