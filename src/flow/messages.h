/* The conversation of one agent, as its model sees it: projected from the graph.
 *
 * A system message, then user and assistant in turns: adjacent ones of a role are merged, none is
 * empty. The task is never dropped: a cap of messages, or a context that is too short, drops the
 * oldest turns behind a marker.
 */
#pragma once

#include "flow/run.h"

struct rlm_messages {
    struct rlm_message *items; /* in the arena */
    size_t count;
    uint64_t bytes;     /* of all texts */
    size_t turns_shown; /* model replies in it */
};

struct rlm_messages_options {
    int turns_dropped; /* the oldest replies to leave out, with what followed them */
    bool final;        /* the last turn: a note says so */
};

int rlm_messages_build(const struct rlm_agent *agent,
                       const struct rlm_messages_options *options,
                       rlm_arena *arena,
                       struct rlm_messages *ret_messages,
                       rlm_error **err);

/* As JSON: [{"role": "user", "content": TEXT}...]. */
void rlm_messages_put(const struct rlm_messages *m, struct rlm_buf *out);
/* The messages that such a text says. RLM_E_PARSE, RLM_E_INVAL (what no provider takes: another role, a
 * system message that is not the first, none of the user's). */
int rlm_messages_parse(rlm_str json,
                       rlm_arena *arena,
                       struct rlm_messages *ret_messages,
                       rlm_error **err);

/* A hash of what is sent, for comparing: of one message behind others, and of all. */
uint64_t rlm_message_hash(uint64_t before, const struct rlm_message *m);
uint64_t rlm_messages_hash(const struct rlm_messages *m);
