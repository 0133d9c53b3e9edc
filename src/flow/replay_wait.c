/* When nobody is ready in a replay: its end, or a wait that must have one. */
#include "flow/replay.h"

/* A cell that runs again, and has calls open: no clock of its session bounds it then. */
static bool is_waiting(const struct rlm_agent *agent)
{
    const struct rlm_past_cell *cell = agent->again;
    size_t open = 0;
    if (!agent->session || !agent->cell_open || agent->from_record || !cell) {
        return false;
    }
    for (size_t i = 0; i < cell->calls.len; i++) {
        open += cell->calls.items[i]->made_as != 0;
    }
    for (size_t i = 0; i < agent->deliveries_made && i < cell->deliveries.len; i++) {
        size_t n = cell->deliveries.items[i].n_calls;
        open -= open < n ? open : n;
    }
    return open > 0;
}

/* Its session is being opened or restored, or runs code: its clocks bound that. */
static bool is_at_work(const struct rlm_agent *agent)
{
    return agent->session && !agent->held.len &&
           (!agent->session_ready || agent->restore ||
            (agent->cell_open && !agent->from_record && !is_waiting(agent)));
}

/* The first agent of which the recording has more; of all these, whether one is at work, and one that waits. */
static struct rlm_agent *
find_unfinished(rlm_run *run, bool *ret_works, struct rlm_agent **ret_waits)
{
    struct rlm_agent *first = NULL;
    size_t pos = 0;
    void *value;
    *ret_works = false;
    *ret_waits = NULL;
    while (rlm_map_next(&run->agents, &pos, NULL, &value)) {
        struct rlm_agent *agent = value;
        if (!rlm_agent_finished(agent) && !agent->parked && rlm_replay_next(agent)) {
            first = first ? first : agent;
            *ret_works |= is_at_work(agent);
            *ret_waits = !*ret_waits && is_waiting(agent) ? agent : *ret_waits;
        }
    }
    return first;
}

/* Such a cell may go on by itself, for a timer or a thread of its code. It gets the time that it took when
 * it was recorded, and exec_timeout, and both anew when anything happens. */
static void be_patient(rlm_run *run, const struct rlm_agent *waits)
{
    struct rlm_replay *r = run->replay;
    const struct rlm_past_cell *cell = waits->again;
    const rlm_graph *g = rlm_replay_graph(waits);
    size_t progress = r->report.nodes + r->report.calls + r->deliveries;
    int64_t then_ms = 0;
    if (rlm_timer_is_set(r->patience) && r->progress == progress) {
        return;
    }
    if (cell->end && cell->action < g->nodes.len) {
        then_ms = (cell->end->time_us - g->nodes.items[cell->action]->time_us) / 1000;
    }
    r->progress = progress;
    rlm_timer_set(r->patience, (uint64_t)run->flow->limits.exec_timeout_ms +
                                   (uint64_t)(then_ms > 0 ? then_ms : 0));
}

void rlm_replay_look_for_end(rlm_run *run)
{
    bool works;
    struct rlm_agent *waits, *first = find_unfinished(run, &works, &waits);
    if (!first) {
        rlm_run_halt(run, "end of the recording");
    } else if (works) {
        rlm_timer_stop(run->replay->patience);
    } else if (waits) {
        be_patient(run, waits);
    } else {
        rlm_replay_contradict(first);
    }
}

void rlm_replay_patience_is_over(void *arg)
{
    rlm_run *run = arg;
    bool works;
    struct rlm_agent *waits;
    if (run->stopping || !find_unfinished(run, &works, &waits) || works || !waits) {
        return;
    }
    const struct rlm_past_call *unmade =
        rlm_replay_unmade(waits->again, waits->deliveries_made + 1);
    if (unmade) {
        rlm_replay_diverge_by_call(waits, unmade);
    } else {
        rlm_replay_diverge(waits, "a cell that waits, and does not end", RLM_STR(""), RLM_STR(""));
    }
}
