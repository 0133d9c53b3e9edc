/* What becomes of a session that is gone: its cells run again, or the model is told what it has lost. */
#include "flow/record.h"
#include "flow/restore.h"

#include <stdlib.h>

enum { TEXT_MAX = 1024 * 1024 };

static bool may_run_again(const struct rlm_agent *agent, const struct rlm_past_session *session)
{
    switch (agent->run->restore) {
    case RLM_RESTORE_REPLAY:
        return true;
    case RLM_RESTORE_FRESH:
        return false;
    case RLM_RESTORE_AUTO:
        break;
    }
    return !session->outside;
}

/* The namespace is not made again: the model is told at once, or with the interrupted cell. */
static bool give_up(struct rlm_agent *agent,
                    struct rlm_past_cell *const *cells,
                    size_t n_cells,
                    struct rlm_past_cell *in_flight)
{
    rlm_auto_buf struct rlm_buf gone = RLM_BUF(TEXT_MAX);
    rlm_error *err = NULL;
    agent->sessions = (int)rlm_past_session(agent->past)->number;
    agent->cell_open = in_flight != NULL;
    int r = rlm_record_session_ended(agent, RLM_SESSION_GIVEN_UP, RLM_STR("the run went on"));
    agent->cell_open = false;
    if (r < 0) {
        return false;
    }
    rlm_restore_put_gone(cells, n_cells, &gone, &err);
    if (err) {
        rlm_run_fail(agent->run, err);
        return false;
    }
    agent->interrupted = in_flight;
    if (!gone.len) {
        return true;
    }
    if (in_flight) {
        rlm_restore_tell(agent, rlm_buf_str(&gone));
        return true;
    }
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    rlm_buf_adds(&text,
                 "The session in which your code ran has ended; a new one goes on from here. ");
    rlm_buf_add_str(&text, rlm_buf_str(&gone));
    enum rlm_node_type last = rlm_graph_current(agent->graph)->type;
    if (last == RLM_LLM_OUTPUT || last == RLM_EXEC_ACTION) {
        /* Code that was written before waits to run: it is told with what comes out. */
        rlm_restore_tell(agent, rlm_buf_str(&text));
        return true;
    }
    struct rlm_node node = {
        .type = RLM_ERROR_OUTPUT,
        .content = rlm_buf_str(&text),
        .error = RLM_STR("session_lost"),
    };
    return rlm_agent_append(agent, &node);
}

bool rlm_restore_plan(struct rlm_agent *agent, struct rlm_past *past)
{
    struct rlm_past_cell **cells;
    size_t n = 0;
    rlm_error *err = NULL;
    rlm_past_agent_free(agent->past);
    agent->past = past;
    const struct rlm_past_session *session = rlm_past_session(past);
    struct rlm_past_cell *in_flight = rlm_past_in_flight(past);
    if (!session) {
        return true;
    }
    if (rlm_past_namespace(past, &cells, &n, &err) < 0) {
        rlm_run_fail(agent->run, err);
        return false;
    }
    bool ok = true;
    if (session->given_up || (!n && !in_flight)) {
        /* nothing is there to be made again */
    } else if (!may_run_again(agent, session)) {
        ok = give_up(agent, cells, n, in_flight);
    } else {
        agent->restore = rlm_restore_new(agent, cells, n, in_flight);
        ok = agent->restore != NULL;
        if (!ok) {
            rlm_run_fail_no_memory(agent->run);
        }
    }
    free(cells);
    return ok;
}

/* What the journal of the living run says of the agent. */
static struct rlm_past *read_past(struct rlm_agent *agent, rlm_error **err)
{
    struct rlm_past_run *all;
    if (rlm_past_load(rlm_run_path(agent->run), agent->run->blobs, false, &all, NULL, err) < 0) {
        return NULL;
    }
    struct rlm_past *past = rlm_past_take(all, agent->graph);
    rlm_past_free(all);
    return past;
}

bool rlm_restore_after_death(struct rlm_agent *agent, struct rlm_buf *text)
{
    if (!agent->run->journal) {
        rlm_buf_adds(text, " All variables are lost.");
        return true;
    }
    rlm_error *err = NULL;
    struct rlm_past *past = read_past(agent, &err);
    struct rlm_past_cell **cells = NULL;
    size_t n = 0;
    if (!past || rlm_past_namespace(past, &cells, &n, &err) < 0) {
        rlm_past_agent_free(past);
        rlm_run_fail(agent->run, err);
        return false;
    }
    rlm_past_agent_free(agent->past);
    agent->past = past;
    bool ok = true;
    if (!n) {
        rlm_buf_adds(text, " All variables are lost.");
    } else if (may_run_again(agent, rlm_past_session(past))) {
        agent->restore = rlm_restore_new(agent, cells, n, NULL);
        ok = agent->restore != NULL;
        rlm_buf_adds(text,
                     " The variables of the cells before it come back: those run again first.");
    } else {
        size_t before = text->len;
        rlm_restore_put_gone(cells, n, text, &err);
        rlm_buf_adds(text, text->len == before ? " All variables are lost." : "");
        ok = !err && rlm_record_session_ended(agent, RLM_SESSION_GIVEN_UP, RLM_STR("it died")) == 0;
    }
    free(cells);
    if (!ok) {
        err ? rlm_run_fail(agent->run, err) : rlm_run_fail_no_memory(agent->run);
    }
    return ok;
}

bool rlm_restore_after_end(struct rlm_agent *agent)
{
    if (agent->run->journal) {
        rlm_error *err = NULL;
        struct rlm_past *past = read_past(agent, &err);
        if (err) {
            rlm_run_fail(agent->run, err);
        }
        return !err && (!past || rlm_restore_plan(agent, past));
    }
    struct rlm_node node = {
        .type = RLM_ERROR_OUTPUT,
        .content = RLM_STR("The session in which your code ran has ended; a new one goes on from "
                           "here. All variables are lost."),
        .error = RLM_STR("session_lost"),
    };
    return !agent->cell || rlm_agent_append(agent, &node);
}

bool rlm_restore_cells_of(struct rlm_agent *agent, const struct rlm_past_session *session)
{
    struct rlm_past_cell **cells = rlm_calloc(session->restored.len + 1, sizeof *cells);
    size_t n = 0;
    for (size_t i = 0; cells && i < session->restored.len; i++) {
        struct rlm_past_cell *cell = rlm_past_cell(agent->past, session->restored.items[i]);
        if (cell && cell->end) { /* a record may name what is not there */
            rlm_past_forget_calls(cell);
            cells[n++] = cell;
        }
    }
    agent->restore = n ? rlm_restore_new(agent, cells, n, NULL) : NULL;
    bool ok = cells && (!n || agent->restore);
    free(cells);
    if (!ok) {
        rlm_run_fail_no_memory(agent->run);
    }
    return ok;
}
