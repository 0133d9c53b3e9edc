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
/* To be called when no agent is ready: a recording that was stopped has come to its end. */
void rlm_replay_look_for_end(rlm_run *run);
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

/* ---- replay_check.c: comparing ---- */
/* A difference: the first one ends the replay. */
void rlm_replay_diverge(struct rlm_agent *agent,
                        const char *what,
                        rlm_str recorded,
                        rlm_str replayed);
/* After a node was appended: compares it. False: the run is over. */
bool rlm_replay_check(struct rlm_agent *agent, const struct rlm_node *node);
/* A child as it was made: its task must be the recorded one. */
bool rlm_replay_child(struct rlm_agent *child);
/* An answer to a call has been computed: it must be the recorded one. */
void rlm_replay_answered(struct rlm_agent *agent, const struct rlm_call_result *result);
/* What a cell that ran again showed, beside what is recorded: the node to append. NULL: the run is
 * over. */
const struct rlm_node *rlm_replay_observed(struct rlm_agent *agent, const struct rlm_node *node);
