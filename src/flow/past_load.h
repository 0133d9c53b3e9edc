/* Reading a run's journal into its past: what past_load.c and past_session.c share.
 *
 * past_load.c reads the records one by one. Those of the run (drives, inputs, model calls, edits) it takes
 * itself; those of an agent's sessions it hands to past_session.c. Then it joins all with the graph.
 */
#pragma once

#include "flow/past.h"
#include "flow/past_edit.h"

struct rlm_past_reading {
    struct rlm_past_run *past;
    rlm_blobs *blobs;    /* what the past's texts are read from */
    bool check_blobs;    /* also those that are no texts of the past */
    rlm_arena *scratch;  /* of one record */
    struct rlm_map asks; /* number of an open ask -> struct rlm_lost_ask */
    struct rlm_undone_list undone;
    bool is_undone;     /* what the record says of its agent */
    int64_t began_us;   /* the drive under way */
    int64_t last_us;    /* the last that is known of it */
    int64_t earlier_ms; /* of the drives before it */
    int64_t still_ms;   /* in which all agents of this drive waited for gates */
    size_t n_turns;     /* of all agents */
};

static inline int64_t rlm_past_number(const rlm_json *record, const char *key)
{
    return rlm_json_int(rlm_json_get(record, key), 0);
}

/* The run was still under way at that time. */
static inline void rlm_past_saw(struct rlm_past_reading *r, int64_t time_us)
{
    r->last_us = time_us > r->last_us ? time_us : r->last_us;
}

/* past_load.c: the past of the agent that a record names; made when it is the first. */
int rlm_past_of_record(struct rlm_past_reading *r,
                       const rlm_json *record,
                       struct rlm_past **ret_past,
                       rlm_error **err);

/* past_session.c: a record of an agent's session, its cells, calls or gates; others are left alone. */
int rlm_past_read_session(struct rlm_past_reading *r,
                          enum rlm_record_kind kind,
                          const rlm_json *record,
                          rlm_error **err);
/* The reply to a prompt of an llm_query, which stands in the SETTLE record. */
int rlm_past_read_reply(struct rlm_past_reading *r, const rlm_json *record, rlm_error **err);

/* past.c: which node ended each cell. */
void rlm_past_find_ends(struct rlm_past *past);
