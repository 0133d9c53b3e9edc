/* The clock of max_time, over all drives of the run. It stands still while every unfinished agent waits for
 * a gate, or for sub-agents that do. */
#include "flow/gate.h"
#include "flow/run.h"

void rlm_run_time_is_over(void *arg)
{
    rlm_run *run = arg;
    struct rlm_agent *root = rlm_map_get(&run->agents, RLM_STR("root"));
    if (!root) {
        rlm_run_halt_because(run, "time", "max_time passed while the inputs were taken in");
    } else if (!rlm_agent_finished(root)) {
        rlm_agent_finish(root, "time", RLM_STR(""), RLM_STR(""), RLM_STR("max_time passed"));
    }
}

int64_t rlm_run_still_ms(const rlm_run *run)
{
    uint64_t now = run->still_since_ms ? rlm_now_ms() - run->still_since_ms : 0;
    return (int64_t)(run->still_ms + now);
}

int64_t rlm_run_elapsed_ms(const rlm_run *run)
{
    uint64_t now = run->ended ? run->ended_ms : rlm_now_ms();
    return run->earlier_ms + (int64_t)(now - run->started_ms) - rlm_run_still_ms(run);
}

static void set_limit(rlm_run *run)
{
    int64_t most = run->flow->limits.max_time_ms, used = rlm_run_elapsed_ms(run);
    if (most) {
        rlm_timer_set(run->time_limit, most > used ? (uint64_t)(most - used) : 0);
    }
}

void rlm_run_start_clock(rlm_run *run)
{
    run->started_ms = rlm_now_ms();
    set_limit(run);
}

void rlm_run_stop_clock(rlm_run *run)
{
    run->still_ms = (uint64_t)rlm_run_still_ms(run);
    run->still_since_ms = 0;
    run->ended_ms = rlm_now_ms();
    rlm_timer_stop(run->time_limit);
}

void rlm_run_hold_clock(rlm_run *run)
{
    bool still = run->still_since_ms != 0;
    if (run->replay || run->stopping || (!still && !run->open_gates) ||
        rlm_gates_hold(run) == still) {
        return;
    }
    if (!still) {
        run->still_since_ms = rlm_now_ms();
        rlm_timer_stop(run->time_limit);
        return;
    }
    run->still_ms += rlm_now_ms() - run->still_since_ms;
    run->still_since_ms = 0;
    set_limit(run);
}
