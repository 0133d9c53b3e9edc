/* A run that has ended goes on with another question to its root: in the journal a drive like that of
 * `run --continue`, but in the same rlm_run, and with the session that was kept, if one was.
 */
#include "flow/record.h"
#include "flow/restore.h"
#include "flow/run.h"

bool rlm_agent_may_keep_session(const struct rlm_agent *agent)
{
    return agent->run->keep_sessions && !agent->parent && agent->session_ready &&
           !rlm_session_closes_early(agent->session) && !agent->cell_open && !agent->restore &&
           !rlm_session_closes_early(agent->session);
}

static struct rlm_agent *root_of(const rlm_run *run)
{
    return run->root ? rlm_map_get(&run->agents, rlm_str_of(run->root->agent_id)) : NULL;
}

static int check(const rlm_run *run, rlm_str query, rlm_error **err)
{
    const struct rlm_agent *root = root_of(run);
    if (run->replay) {
        return rlm_error_set(err, RLM_E_INVAL, "a replay is asked nothing");
    }
    if (!run->ended) {
        return rlm_error_set(err, RLM_E_BUSY, "the run has not ended yet: ask more when it has");
    }
    if (run->error) {
        return rlm_error_set(err, RLM_E_INVAL, "the run cannot go on, for it failed: %s",
                             rlm_run_message(run));
    }
    if (!root || !rlm_agent_finished(root)) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the run was stopped before its end: resume it first, then ask more");
    }
    if (!query.len) {
        return rlm_error_set(err, RLM_E_INVAL, "the query is empty; say what the agent shall do");
    }
    return 0;
}

/* False: the run has failed. */
static bool begin_drive(rlm_run *run)
{
    run->earlier_ms = rlm_run_elapsed_ms(run);
    run->still_ms = 0;
    run->ended = run->stopping = false;
    atomic_store(&run->reads_canceled, false);
    run->reason[0] = '\0';
    free(rlm_steal(&run->message));
    if (run->journal && rlm_record_resumed(run) < 0) {
        return false;
    }
    run->earlier_ms = 0; /* a new question has its own time */
    rlm_run_start_clock(run);
    return true;
}

int rlm_run_ask(rlm_run *run, rlm_str query, rlm_error **err)
{
    int r = check(run, query, err);
    if (r < 0) {
        return r;
    }
    struct rlm_agent *root = root_of(run);
    struct rlm_node node = {.type = RLM_USER_QUERY, .content = query};
    root->keeps_session = false;
    root->refused = NULL;
    root->last_affordable = false;
    if (!begin_drive(run) || !rlm_agent_append(root, &node)) {
        return 0; /* the run has failed and says so */
    }
    rlm_agent_set_state(root, RLM_AGENT_READY);
    if (root->session || rlm_restore_after_end(root)) {
        rlm_run_schedule(root);
        rlm_run_poke(run);
    }
    return 0;
}

void rlm_run_close_sessions(rlm_run *run)
{
    struct rlm_agent *root = root_of(run);
    if (run->ended && root && root->session) {
        root->keeps_session = false;
        rlm_run_close_session(run, rlm_steal(&root->session));
        root->session_ready = false;
    }
}
