/* Restore: a new session is brought to where an earlier one was, by running its cells again.
 *
 * One mechanism for a resumed run, a worker that died, and an edited graph. The cells run in order,
 * under the same limits; no model, tool or child is reached: a host call is matched with a recorded
 * one by its key (and by how many equal ones came before it in the cell), and gets the recorded
 * answer, in the recorded order of delivery. A cell that was in flight goes on: when all that had been
 * delivered is delivered again, the rest of it is live, and a call that had been made and not
 * answered is taken up again.
 *
 * No clock of the session runs while a host call is open, and none of these is performed. So what a cell
 * does not do in time ends the restore as well: a call that it had made, within exec_timeout; its end, within
 * that and the time that it took then.
 *
 * A cell that prints something else is told to the model. One that makes other calls ends the
 * restore: the session is made anew without that cell and those behind it, and the model is told
 * what is gone.
 */
#pragma once

#include "flow/past.h"
#include "flow/run.h"

/* ---- restore_plan.c ---- */
/* Decides what becomes of an agent's last session and of a cell in flight. Takes `past`. The agent is
 * scheduled by the caller. False: the run has failed. */
bool rlm_restore_plan(struct rlm_agent *agent, struct rlm_past *past);
/* The session has died by itself (and SESSION_ENDED says so): decides the same, and adds what the model is
 * told of its variables. False: the run has failed. */
bool rlm_restore_after_death(struct rlm_agent *agent, struct rlm_buf *text);
/* The agent is asked more, and the session that it had is gone: decides the same. False: the run has
 * failed. */
bool rlm_restore_after_end(struct rlm_agent *agent);
/* The next session begins with the cells that ran again in this one. False: the run has failed. */
bool rlm_restore_cells_of(struct rlm_agent *agent, const struct rlm_past_session *session);

/* ---- restore.c ---- */
/* These cells, and then one that was in flight (or NULL) and goes on. NULL: no memory. */
struct rlm_restore *rlm_restore_new(struct rlm_agent *agent,
                                    struct rlm_past_cell *const *cells,
                                    size_t n_cells,
                                    struct rlm_past_cell *in_flight);
void rlm_restore_free(struct rlm_restore *restore);
/* The numbers of the cells that are about to run again, for SESSION_OPENED. */
const int64_t *rlm_restore_cells(const struct rlm_restore *restore, size_t *ret_n);
/* The last cell was in flight and goes on: the session is needed now. */
bool rlm_restore_goes_on(const struct rlm_restore *restore);
/* The events of a session that is being restored. */
void rlm_restore_ready(struct rlm_agent *agent);
void rlm_restore_suspended(struct rlm_agent *agent,
                           const struct rlm_host_call *calls,
                           size_t n_calls);
void rlm_restore_given_up(struct rlm_agent *agent, const int64_t *ids, size_t n_ids);
void rlm_restore_finished(struct rlm_agent *agent, const struct rlm_cell_finished *how);
void rlm_restore_died(struct rlm_agent *agent, const struct rlm_session_death *how);

/* ---- restore_told.c ---- */
/* Adds to what the model is told with its next observation: `agent->lost`. */
void rlm_restore_tell(struct rlm_agent *agent, rlm_str text);
/* Adds "These variables are gone: a, b, c." of the names that these cells left bound, or nothing. */
void rlm_restore_put_gone(struct rlm_past_cell *const *cells,
                          size_t n_cells,
                          struct rlm_buf *out,
                          rlm_error **err);
/* A cell that was in flight and does not run again: when its children have ended, its observation. */
void rlm_interrupted_step(struct rlm_agent *agent);
/* Launches of that cell that stand open in the graph get their resume_action. False: the run has failed. */
bool rlm_interrupted_close(struct rlm_agent *agent);
