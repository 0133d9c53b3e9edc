/* What edits of a run did to its past: which records speak of what was undone, and where the cells'
 * exec_actions stand now.
 *
 * A rewind undoes what the agent did behind the record of its last node that stays, and all that the
 * children did that went with it. What was paid for is not undone.
 */
#pragma once

#include "base/json.h"
#include "flow/past.h"

struct rlm_undone {
    rlm_str agent_id;
    bool tree;         /* with all agents below it */
    int64_t from, end; /* the records between these offsets */
};

struct rlm_undone_list {
    rlm_arena *arena;
    RLM_VEC(struct rlm_undone) list;
};

/* Reads the edits of the run. Damage is not looked at: records end there. */
int rlm_undone_read(const char *path, struct rlm_undone_list *undone, rlm_error **err);
/* Whether what the record at `offset` says of its agent was undone later. */
bool rlm_undone_has(const struct rlm_undone_list *undone, rlm_str agent_id, int64_t offset);
bool rlm_undone_covers(const struct rlm_undone *undone, rlm_str agent_id, int64_t offset);
void rlm_undone_deinit(struct rlm_undone_list *undone);

/* An EDIT of the agent's nodes: its cells move with their exec_actions, that of a removed one is left
 * out. */
void rlm_past_edit(struct rlm_past *past, const rlm_json *record);
