/* Replay: a recorded run once more, without a model, a tool or a file of its inputs.
 *
 * The step machine, the parser, the projection of messages, delegation and the answers of agents are
 * computed again; the model's replies, the answers to other host calls and what ended an agent from
 * outside (a limit of time, a person, a dead worker) are taken from the record. Cells run again
 * where their effects stayed inside, or all of them when asked; else their calls and output come
 * from the record too. Each node is compared with the recorded one at its place.
 *
 * A recording may have been stopped, or cut off: an agent that has come to the end of what there is of it
 * is parked, and the replay ends when every agent is.
 */
#pragma once

#include "flow/past.h"
#include "flow/run.h"

struct rlm_replay {
    struct rlm_past_run *past; /* with the recorded graph */
    bool execute;              /* cells run whatever their effects were */
    struct rlm_replay_report report;
    struct rlm_buf recorded, replayed, what; /* of the first difference */
    struct rlm_buf agent_id;
    rlm_timer *patience; /* while nothing goes on but cells that wait */
    size_t deliveries;   /* made, of all agents */
    size_t progress;     /* steps, calls and deliveries when it was set */
};

/* ---- replay.c: the run, its turns, and what came from outside ---- */
void rlm_replay_free(struct rlm_replay *replay);
/* What the recording says of the sessions of an agent that has just been made; the caller owns it. */
struct rlm_past *rlm_replay_past(const rlm_run *run, const rlm_graph *g);
/* The agent's graph in the recording, or NULL. */
const rlm_graph *rlm_replay_graph(const struct rlm_agent *agent);
/* The recorded node that the agent's next one must be like; NULL: the recording ends here. */
const struct rlm_node *rlm_replay_next(const struct rlm_agent *agent);
/* The recording holds nothing more of the agent: it stays where it is. */
void rlm_replay_park(struct rlm_agent *agent);
/* Whether all agents below have come to where an end from outside stands. */
bool rlm_replay_below_is_parked(const struct rlm_agent *agent);
/* Wakes those above an agent that was parked, or has ended: they may wait for it. */
void rlm_replay_wake_above(struct rlm_agent *agent);
/* Whether the recording has this node from a limit, a person or the program; it is taken as it is. */
bool rlm_replay_is_from_outside(const rlm_run *run, const struct rlm_node *node);
/* What came from outside, and the cell that is taken from the record. True: there is no other step. */
bool rlm_replay_step(struct rlm_agent *agent);
/* Instead of asking the model. */
void rlm_replay_turn(struct rlm_agent *agent, bool final);

/* ---- replay_cell.c: cells and their calls ---- */
/* Instead of running the code (as exec_turn let it pass): true when the cell is taken from the record. */
bool rlm_replay_cell(struct rlm_agent *agent, rlm_str code);
/* The cell that is taken from the record goes on as far as it can. */
void rlm_replay_go_on(struct rlm_agent *agent);
/* A call of a cell. True: it has been dealt with; false: it is to be performed (`launch_subagents`,
 * `done`). */
bool rlm_replay_call(struct rlm_agent *agent, const struct rlm_host_call *call);
/* How many of the first results may be handed over now; they have been put in the recorded order.
 * SIZE_MAX: none, they are not all there. */
size_t rlm_replay_deliverable(struct rlm_agent *agent);
/* A launch that has ended here, while in the recording another one of the agent ended, or began, first. */
bool rlm_replay_ends_later(const struct rlm_agent *agent, const struct rlm_call *call);
/* What the recording says with the next observation of a session that went before: `agent->lost`. */
void rlm_replay_take_note(struct rlm_agent *agent);
/* A cell that ran again has ended: it must have made all calls that were answered in the recording. False:
 * the run is over. */
bool rlm_replay_cell_ended(struct rlm_agent *agent);
/* The first call of the first `n` deliveries that has not been made again, or NULL. */
const struct rlm_past_call *rlm_replay_unmade(const struct rlm_past_cell *cell, size_t n);

/* ---- replay_hold.c: what ends sub-agents waits for them ---- */
/* The events of a session whose cell runs again. */
void rlm_replay_session_suspended(struct rlm_agent *agent,
                                  const struct rlm_host_call *calls,
                                  size_t n_calls);
void rlm_replay_session_given_up(struct rlm_agent *agent, const int64_t *ids, size_t n_ids);
void rlm_replay_session_finished(struct rlm_agent *agent, const struct rlm_cell_finished *how);
/* Takes in what had to wait and need not any more. True: there is no other step. */
bool rlm_replay_take_held(struct rlm_agent *agent);
void rlm_replay_forget_held(struct rlm_agent *agent);
/* The same for a cell that is taken from the record, before it makes its next call. False: it waits. */
bool rlm_replay_may_call(struct rlm_agent *agent, const struct rlm_past_call *next);

/* ---- replay_wait.c: nobody waits for ever ---- */
/* To be called when no agent is ready: a recording that was stopped has come to its end, or nothing can
 * follow that is like it. */
void rlm_replay_look_for_end(rlm_run *run);
/* For `patience`; `arg` is the run. */
void rlm_replay_patience_is_over(void *arg);

/* ---- replay_check.c: comparing ---- */
/* A difference: the first one ends the replay. */
void rlm_replay_diverge(struct rlm_agent *agent,
                        const char *what,
                        rlm_str recorded,
                        rlm_str replayed);
/* A host call of the recording that is not made here. */
void rlm_replay_diverge_by_call(struct rlm_agent *agent, const struct rlm_past_call *call);
/* Records that are each good, and cannot all be true. */
void rlm_replay_contradict(struct rlm_agent *agent);
/* After a node was appended: compares it. False: the run is over. */
bool rlm_replay_check(struct rlm_agent *agent, const struct rlm_node *node);
/* A child as it was made: its task must be the recorded one. */
bool rlm_replay_child(struct rlm_agent *child);
/* An answer to a call has been computed: it must be the recorded one. */
void rlm_replay_answered(struct rlm_agent *agent, const struct rlm_call_result *result);
/* What a cell that ran again showed, beside what is recorded: the node to append. NULL: the run is
 * over. */
const struct rlm_node *rlm_replay_observed(struct rlm_agent *agent, const struct rlm_node *node);
