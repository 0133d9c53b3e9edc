/* Models: something that answers a list of messages.
 *
 * One `rlm_chat` is one attempt at one request. Retrying, reserving and counting are flow's business
 * (so that every attempt stands in the ledger); backoff.h gives the policy, shared by all models of
 * one provider. A model belongs to one loop.
 *
 * Implementations: remote.c (HTTP) with the dialects openai.c (anything that speaks
 * /chat/completions) and anthropic.c (/v1/messages), and scripted.c (a file of replies). A program
 * may bring its own: see the end of this file.
 */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "base/loop.h"

/* `rlm_model` and `struct rlm_model_options` are public. */

enum rlm_role { RLM_SYSTEM, RLM_USER, RLM_ASSISTANT };

struct rlm_message {
    enum rlm_role role;
    rlm_str text; /* WTF-8; becomes strict UTF-8 at this border */
    bool cache;   /* a prompt cache may end behind this message (Anthropic's cache_control) */
};

struct rlm_chat_request {
    const struct rlm_message
        *messages; /* a system message only in front; roles alternate after it */
    size_t n_messages;
    int max_output_tokens;
    /* What a scripted model matches on, and what a log may say; never sent to a server. */
    const char *agent_id;
    int turn;           /* 1, 2, ...; 0 for llm_query */
    int64_t timeout_ms; /* until its end; 0: none. Past it the chat fails with RLM_E_TIMEOUT */
};

struct rlm_chat_reply {
    rlm_str text;      /* the visible reply; reasoning that the provider separates is left out */
    rlm_str tool_code; /* the code of a native tool call, or empty: it is what shall run */
    rlm_str finish_reason; /* "stop", "length", ... as the provider says; "cut" when cut by us */
    bool usage_known;
    struct rlm_usage usage; /* as the provider says; calls = 1; cost_nano is filled by the price */
    int64_t cache_write_tokens; /* of usage.input_tokens, those written into a prompt cache */
    uint64_t sent_bytes;        /* of the request's messages */
    uint64_t received_bytes;    /* of visible text, tool code and reasoning */
};

/* A failed attempt says what to do next. */
struct rlm_chat_failure {
    rlm_error *error;       /* borrowed; code AUTH, RATE_LIMIT, SERVER, UNREACHABLE, CONTEXT, ... */
    int http_status;        /* 0 when there was no answer */
    bool retry;             /* the same request may succeed later */
    int64_t retry_after_ms; /* what the server asked for; -1: nothing */
    uint64_t sent_bytes;
    uint64_t received_bytes; /* a cut stream may have been billed up to here */
    bool usage_known;
    struct rlm_usage usage;
    int64_t cache_write_tokens;
    int64_t
        context_tokens; /* of RLM_E_CONTEXT: the model's context, if the server said it; else 0 */
};

struct rlm_chat_events {
    /* A piece of visible text, with streaming; empty when the piece was reasoning or part of a tool
     * call. `pieces` counts pieces of any kind so far: a server sends one token a piece or more. May
     * be NULL. */
    void (*delta)(void *arg, rlm_str text, uint64_t pieces);
    /* Exactly one of the two comes, once, on the loop, never inside rlm_chat_start or rlm_chat_cut,
     * unless the chat was freed before. What they get is borrowed until they return. */
    void (*done)(void *arg, const struct rlm_chat_reply *reply);
    void (*failed)(void *arg, const struct rlm_chat_failure *failure);
};

typedef struct rlm_chat rlm_chat;

/* Starts an attempt. Messages are copied (encoded) before it returns. */
int rlm_chat_start(rlm_model *m,
                   const struct rlm_chat_request *request,
                   const struct rlm_chat_events *events,
                   void *arg,
                   rlm_chat **ret_chat,
                   rlm_error **err);
/* Ends a stream where it is: `done` comes with finish_reason "cut" and what was received. After the
 * end of the chat it does nothing. */
void rlm_chat_cut(rlm_chat *c);
/* What has been received so far, for settling a call that is given up. */
uint64_t rlm_chat_received_bytes(const rlm_chat *c);
/* 0: nothing has left, so nobody can bill it. */
uint64_t rlm_chat_sent_bytes(const rlm_chat *c);
/* Ends it if it is under way: the connection is dropped, no event comes. Allowed in any callback,
 * its own too. NULL allowed. */
void rlm_chat_free(rlm_chat *c);

/* The back-off state shared by all models with the same server (never NULL). */
struct rlm_backoff *rlm_model_backoff(rlm_model *m);
/* True when a price is known for it. */
bool rlm_model_has_price(const rlm_model *m);
/* True when its replies may be longer than they were asked to be. */
bool rlm_model_is_one_at_a_time(const rlm_model *m);
/* Cost of a usage in nano-dollars by the price table; 0 when no price is known. Reserving uses
 * `worst`: every input token at the dearest input rate (cache write). Never negative; absurd counts
 * give INT64_MAX and not an overflow. */
int64_t rlm_model_cost(const rlm_model *m, const struct rlm_usage *usage, bool worst);
const char *rlm_model_name(const rlm_model *m); /* as sent to the server */
const char *
rlm_model_address(const rlm_model *m); /* base URL without credentials, or "script:FILE" */

/* ---- for implementations ----------------------------------------------------------------------
 *
 * An implementation embeds `struct rlm_model` as the first member of its own model and `struct
 * rlm_chat` as the first member of its own chat, fills a table of operations, and makes a model with
 * rlm_model_init. Its chats end through rlm_chat_finish or rlm_chat_fail, from the loop, outside of
 * `start` and `cut`.
 */

struct rlm_check;

struct rlm_model_ops {
    size_t chat_size; /* bytes of the implementation's chat; it comes zeroed, but for `base` */
    /* `base.sent_bytes` is already counted. A negative result: the chat is freed without `stop`. */
    int (*start)(rlm_model *m,
                 const struct rlm_chat_request *request,
                 rlm_chat *chat,
                 rlm_error **err);
    /* Comes only while the chat is under way, once. */
    void (*cut)(rlm_chat *chat);
    /* Drop everything that it holds; its memory goes right after. Comes once for each chat whose
     * start succeeded, also after its end. */
    void (*stop)(rlm_chat *chat);
    /* Whether the server may have got something of the request. NULL: it has. */
    bool (*sent)(const rlm_chat *chat);
    /* Ask the server and finish the check from the loop. NULL: nothing to ask, all is well. */
    int (*check)(rlm_model *m, struct rlm_check *check, rlm_error **err);
    void (*check_stop)(struct rlm_check *check);
    /* Release what the implementation added, call rlm_model_deinit, free the memory. */
    void (*free)(rlm_model *m);
};

struct rlm_model {
    const struct rlm_model_ops *ops;
    rlm_loop *loop;
    struct rlm_hub *hub; /* what the models of one loop share */
    struct rlm_backoff *backoff;
    char *name;
    char *address;
    struct rlm_price price; /* all negative: unknown */
    bool one_at_a_time;     /* see struct rlm_custom_model_options */
    size_t n_open;          /* chats that their owners have not freed */
    size_t n_chats;         /* those and the freed ones with a callback on the stack */
    bool doomed;            /* freed by its owner, waits for these */
    struct rlm_check *checks;
};

struct rlm_chat {
    rlm_model *model;
    struct rlm_chat_events events;
    void *arg;
    uint64_t sent_bytes;
    uint64_t received_bytes; /* the implementation counts it */
    uint64_t pieces;
    rlm_timer *timer; /* of the request's timeout, or NULL */
    int64_t timeout_ms;
    bool cut;     /* rlm_chat_cut was called */
    bool ended;   /* done or failed was called */
    bool dropped; /* freed by its owner, but a callback of it is still on the stack */
    unsigned busy;
};

struct rlm_check {
    rlm_model *model;
    void (*done)(void *arg, const rlm_error *problem);
    void *arg;
    rlm_defer *defer;
    void *work; /* the implementation's */
    struct rlm_check *next;
};

/* `server` names what shares a back-off (scheme, host and port, or the address itself). A `price` of
 * NULL or all negative: the built-in table by name. Texts are copied. */
int rlm_model_init(rlm_model *m,
                   rlm_loop *loop,
                   const struct rlm_model_ops *ops,
                   const char *name,
                   const char *address,
                   const char *server,
                   const struct rlm_price *price,
                   rlm_error **err);
void rlm_model_deinit(rlm_model *m);

/* Brackets code that calls rlm_chat_delta more than once: the owner may free the chat in any of
 * them. After rlm_chat_enter it is only marked; `rlm_chat_live` says whether to go on, and
 * rlm_chat_leave frees what was marked (do not touch the chat after it). */
void rlm_chat_enter(rlm_chat *c);
void rlm_chat_leave(rlm_chat *c);
/* True while it is neither ended, cut nor freed. */
static inline bool rlm_chat_live(const rlm_chat *c)
{
    return !c->ended && !c->cut && !c->dropped;
}

/* Counts one piece and hands it on. Inside enter/leave only. */
void rlm_chat_delta(rlm_chat *c, rlm_str text);
/* The end: fills sent_bytes, received_bytes, usage.calls and usage.cost_nano. The chat may be gone
 * when it returns, unless inside enter/leave. */
void rlm_chat_finish(rlm_chat *c, struct rlm_chat_reply *reply);
void rlm_chat_fail(rlm_chat *c, struct rlm_chat_failure *failure);
/* The end of a check; takes the error (NULL: all is well). */
void rlm_check_finish(struct rlm_check *check, rlm_error *take_problem);
