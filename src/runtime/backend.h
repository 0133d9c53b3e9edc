/* Inside of a session that the embedding program runs (rlm_backend), shared by backend*.c and nobody else.
 *
 *     backend.c         the runtime, the session's life, questions and when they are asked
 *     backend_answer.c  what comes back, checked against the state
 *     backend_inner.c   the session of another runtime, for backends that wrap one
 */
#pragma once

#include "base/map.h"
#include "base/vec.h"
#include "runtime/message.h"
#include "runtime/runtime.h"

struct backend_runtime {
    rlm_runtime runtime; /* first: a runtime is cast to it */
    struct rlm_runtime_ops ops;
    struct rlm_backend_options options;
    char *name, *effects;
    unsigned holders; /* itself until it is freed, and each backend that has not been closed */
};

enum backend_state {
    BACKEND_OPENING,
    BACKEND_IDLE,
    BACKEND_RUNNING, /* a start or resume is outstanding */
    BACKEND_SUSPENDED,
    BACKEND_DEAD,
};

enum backend_answer { ANSWER_OPENED, ANSWER_FINISHED, ANSWER_SUSPENDED, ANSWER_FAILED };

/* A call that is unanswered. The engine numbers calls through all sessions of an agent, a backend as it likes. */
struct backend_call {
    int64_t id;
    int64_t own;
};

struct backend_result {
    int64_t own;
    char *json; /* a RESULT with that id */
    size_t len;
};

enum inner_state {
    INNER_NONE,
    INNER_OPENING,
    INNER_IDLE,
    INNER_RUNNING,
    INNER_SUSPENDED,
    INNER_DEAD
};

struct backend_inner {
    rlm_session *session;
    rlm_runtime *runtime; /* whose session it is */
    rlm_defer *open;
    enum inner_state state;
    bool woken; /* it wants the word */
    RLM_VEC(int64_t) pending;
    struct rlm_buf ready;
    /* How it died, until that has been told. */
    const char *death_reason;
    struct rlm_buf death_message, death_output;
};

struct rlm_backend {
    rlm_session base; /* first: a session is cast to it */
    struct backend_runtime *runtime;
    void *data; /* of the program */
    rlm_blobs *blobs;
    struct rlm_session_events events;
    void *arg;
    /* What it was opened with; texts are in `kept`. */
    rlm_arena *kept;
    struct rlm_session_options options;

    enum backend_state state;
    bool paused, unwinding;
    bool closed; /* by the engine: the program's answer to that is what is left */
    unsigned depth;
    int64_t cell;

    uint64_t step;
    bool is_asked;
    enum backend_answer answer; /* that has come: told on a later turn */
    struct rlm_buf said;
    rlm_defer *tell;
    rlm_timer *timer; /* while suspended: asks again; after done(): ends it */

    struct rlm_map known; /* ids of the blobs that it may name and read */
    int64_t last_call, last_own;
    RLM_VEC(struct backend_call) calls;
    RLM_VEC(struct backend_result) results; /* for the next resume */
    size_t result_bytes;
    struct rlm_buf recovered;
    bool wanted;       /* it is to be resumed without results */
    bool yield_asked;  /* results came while it ran */
    bool in_suspended; /* inside the event: results are collected */

    struct backend_inner inner;
    const char *death_reason;
    struct rlm_buf death_message, death_output;
    bool died_in_cell;
};

enum { BACKEND_MAX_MESSAGE = RLM_SESSION_MAX_RESULTS }; /* bytes of JSON that it says at once */

/* ---- backend.c ------------------------------------------------------------------------------- */

/* Ends the session; `died` follows on a later turn. Once. `reason` is a literal. */
void backend_die(rlm_backend *b, const char *reason, rlm_str message, rlm_str output);
/* It has the word back, or wants to be resumed: asks it to resume when there is a reason. */
void backend_go_on(rlm_backend *b);
void backend_enter(rlm_backend *b);
void backend_leave(rlm_backend *b); /* may free it */
void backend_clear_results(rlm_backend *b);
/* The blobs that a value names may be named and read from now on. */
int backend_know_blobs(rlm_backend *b, rlm_str value_json, rlm_error **err);

/* ---- backend_answer.c ------------------------------------------------------------------------ */

/* Tells the engine what the program has answered. */
void backend_tell(void *arg);

/* ---- backend_inner.c ------------------------------------------------------------------------- */

static inline bool backend_has_inner(const rlm_backend *b)
{
    return b->inner.state != INNER_NONE && b->inner.state != INNER_DEAD;
}
/* A result waits for it: asks for the word. */
void backend_inner_yield(rlm_backend *b);
void backend_inner_deinit(rlm_backend *b);
