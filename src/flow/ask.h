/* One model call from its wish to its reply: reserve, wait, send, settle, try again.
 *
 * Every attempt is reserved before it is sent and settled after it, so the ledger holds the worst case
 * at any moment. An ask waits for one of four things: the answer of a gate, a width (`workers`), what others
 * hold in the ledger, or a provider's pause; `rlm_asks_pump` starts what may start, oldest first.
 */
#pragma once

#include "flow/messages.h"
#include "flow/run.h"

struct rlm_ask_options {
    struct rlm_agent *agent; /* whose account it stands on */
    struct rlm_flow_model *model;
    int turn; /* 0: a prompt of llm_query */
    bool final;
    struct rlm_part *part; /* the prompt's; NULL for a turn */
    rlm_str prompt;        /* copied */
    /* One of the two comes once, on the loop, unless the ask was cancelled. */
    void (*done)(void *arg,
                 struct rlm_ask *ask,
                 const struct rlm_chat_reply *reply,
                 const struct rlm_usage *usage);
    void (*failed)(void *arg, struct rlm_ask *ask, const char *reason, const rlm_error *error);
    void *arg;
};
int rlm_ask_start(const struct rlm_ask_options *options, struct rlm_ask **ret_ask, rlm_error **err);
/* Gives it up; if it was sent it is settled as an estimate. NULL allowed. */
void rlm_ask_cancel(struct rlm_ask *ask);
/* Starts what may start: called when a width, the ledger or a pause has changed. */
void rlm_asks_pump(rlm_run *run);
/* With `sync`: sends what has been reserved; the reservations are on disk. */
void rlm_asks_send(rlm_run *run);
/* Its number in the run, as the journal knows it. */
int64_t rlm_ask_id(const struct rlm_ask *ask);
/* It waits for the answer of its gate. */
bool rlm_ask_is_gated(const struct rlm_ask *ask);
/* The reply was allowed fewer tokens than wanted, for want of budget. */
bool rlm_ask_was_shrunk(const struct rlm_ask *ask);

/* ---- for the files of ask ---- */

struct rlm_ask {
    struct rlm_ask_options options;
    rlm_run *run;
    rlm_arena *arena;
    struct rlm_messages messages;
    int64_t input_bound;
    uint64_t messages_hash;
    int64_t id;
    int attempts;
    uint64_t not_before_ms;      /* after a failure of its own; see backoff.h */
    uint64_t started_ms;         /* of the attempt under way */
    uint64_t pieces, text_bytes; /* of its stream */
    rlm_chat *chat;              /* NULL: waits */
    bool unsent;                 /* reserved, but not sent until that is on disk */
    rlm_gate *gate;              /* model_call's, until it has been answered */
    bool allowed;                /* it has let this pass */
    rlm_gate *projection;        /* that of the hook `messages` */
    bool projected;              /* it has seen these */
    struct rlm_reservation held;
};

/* Ends it with its `failed`. */
void rlm_ask_fail(struct rlm_ask *ask, const char *reason, const rlm_error *error);

/* ask_messages.c: makes messages, bound and hash, again after something has changed. */
int rlm_ask_build(struct rlm_ask *ask, rlm_error **err);
/* Remembers what a turn's messages and reply cost, for the next turn's bound. */
void rlm_ask_remember(struct rlm_ask *ask,
                      const struct rlm_chat_reply *reply,
                      const struct rlm_usage *usage);

/* ask_gate.c: what the hooks `messages` and `model_call` say to it. False: it does not start now;
 * `ret_changed`: the list of asks may have changed. */
bool rlm_ask_pass_gates(struct rlm_ask *ask, bool *ret_changed);
