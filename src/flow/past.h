/* What the journal says of a run so far: the past that resume, restore and replay go by.
 *
 * rlm_past_load (past_load.h shows how) reads a run once: the graph, and for each agent what its
 * sessions did. All texts are in arenas of the past's own. past.c finds things in it. Nothing here
 * acts; restore.c runs cells again, resume.c builds the run.
 */
#pragma once

#include "base/hash.h"
#include "flow/ledger.h"
#include "graph/graph.h"
#include "graph/journal.h"
#include "runtime/runtime.h"

/* The reason of a SESSION_ENDED whose namespace is not to be made again. */
#define RLM_SESSION_GIVEN_UP "given up"

/* What was decided at a gate. */
enum rlm_gate_decision {
    RLM_DECISION_NONE,
    RLM_DECISION_ALLOW,
    RLM_DECISION_REWRITE,
    RLM_DECISION_REJECT,
    RLM_DECISION_SKIP, /* of exec_turn: nodes of the program stand in its place */
};

struct rlm_past_gate {
    enum rlm_gate_decision decision; /* NONE: it was not answered */
    rlm_str text;                    /* the code that a rewrite ran, or what a rejection said */
};

/* The gate of a reply's code. */
struct rlm_past_turn_gate {
    rlm_str node; /* id of the llm_output */
    struct rlm_past_gate gate;
};

/* The reply to one prompt of an llm_query. */
struct rlm_past_reply {
    int64_t part;
    rlm_str text, finish_reason;
    bool shrunk;
};

struct rlm_past_call {
    int64_t id;
    int64_t
        first_id; /* when a restored cell made it again: the id it had at first, else the same */
    char key[RLM_SHA256_HEX + 1]; /* rlm_host_call_key */
    rlm_str name;
    rlm_str args_json, kwargs_json; /* empty: they were too large, and the call was refused */
    bool finished;                  /* it was answered: with a value, or with an error */
    bool delivered;                 /* and the session got that */
    rlm_str value_json;
    rlm_str error_type, error_reason, error_message;
    RLM_VEC(struct rlm_past_reply) replies;
    bool gated;                /* somebody was asked before it was performed */
    struct rlm_past_gate gate; /* and this was said */
    int64_t made_as;           /* the id under which a session made it again; 0: not yet */
};

/* Results that were handed over together, in this order. */
struct rlm_past_delivery {
    int64_t time_us;     /* 0: an older record does not say */
    size_t calls_before; /* how many calls the cell had made by then */
    struct rlm_past_call **calls;
    size_t n_calls;
};

struct rlm_past_cell {
    int64_t number;
    int64_t session;
    rlm_str code;
    rlm_str recovered; /* the value of RECOVERED that it got (JSON), or empty */
    rlm_str answer;    /* that was accepted from it; valid if `answered` */
    bool answered;
    uint32_t action;            /* seq of its exec_action */
    const struct rlm_node *end; /* its observation or done_output; NULL: in flight */
    bool broken;                /* its session ended in it, or it was not finished when the
                                          * run went on: its effects are in no namespace */
    RLM_VEC(struct rlm_past_call *) calls; /* in the order in which they were made */
    RLM_VEC(struct rlm_past_delivery) deliveries;
};

struct rlm_past_session {
    int64_t number;
    bool outside;  /* its effects */
    bool given_up; /* its namespace was not to be made again, and the model was told so */
    RLM_VEC(int64_t) restored; /* cells of earlier sessions that ran again in it */
};

struct rlm_past {
    rlm_graph *graph;
    rlm_arena *arena;
    RLM_VEC(struct rlm_past_session) sessions;
    RLM_VEC(struct rlm_past_cell *) cells; /* by number, ascending */
    int64_t last_call;
    char seed[20]; /* of its sessions; empty: there was none */
    RLM_VEC(struct rlm_past_ask)
    turns; /* by number of the turn, from 1: the last attempt of each */
    RLM_VEC(struct rlm_past_turn_gate) gates;
};

/* What a turn of a model was asked with. */
struct rlm_past_ask {
    uint64_t messages; /* hash of the messages */
    bool final;
    int turns_dropped;
    size_t drive; /* in which it was asked */
};

/* A model call that was reserved and never settled: its reply is lost, but may have been billed. */
struct rlm_lost_ask {
    int64_t ask;
    rlm_str agent_id;
    struct rlm_reservation held;
};

struct rlm_past_run {
    rlm_graph *root;
    struct rlm_map agents; /* agent id -> struct rlm_past */
    RLM_VEC(struct rlm_lost_ask) lost_asks;
    RLM_VEC(rlm_str) input_lists; /* payloads of INPUT_LIST records */
    RLM_VEC(struct rlm_limits)
    drives; /* the limits of each: the RUN record's, then those of RESUMED */
    int64_t last_ask;
    int64_t elapsed_ms; /* in which the engine ran the tree */
    rlm_arena *arena;
};

/* `blobs` are the run's; they learn of every blob that the run names. Those that are only mapped are read, too,
 * when `check_blobs`: before code runs, since a damaged one would be found by nobody. Errors are those of
 * rlm_record_load. Free with rlm_past_free. */
int rlm_past_load(const char *path,
                  rlm_blobs *blobs,
                  bool check_blobs,
                  struct rlm_past_run **ret_past,
                  struct rlm_journal_damage *ret_damage,
                  rlm_error **err);
/* The graph goes too unless it was taken (`root` set to NULL). NULL allowed. */
void rlm_past_free(struct rlm_past_run *past);

/* Moves an agent's past out; it goes by `g`, which stands for the same agent, from now on. NULL when its
 * sessions did nothing. The caller frees it. */
struct rlm_past *rlm_past_take(struct rlm_past_run *past, rlm_graph *g);
void rlm_past_agent_free(struct rlm_past *past);
/* For past_edit.c: lets go of what the cell holds beside its arena. */
void rlm_past_cell_deinit(struct rlm_past_cell *cell);

/* The first call of the cell with the key of `call` that has not been made again, or NULL. */
struct rlm_past_call *rlm_past_match(const struct rlm_past_cell *cell,
                                     const struct rlm_host_call *call);
/* The recorded answer, under the id under which the call was made again. Borrowed. */
struct rlm_call_result rlm_past_result(const struct rlm_past_call *call);
/* No call of the cell has been made again. */
void rlm_past_forget_calls(struct rlm_past_cell *cell);

/* The answer on the code of the reply at `seq` of the past's graph; NULL: none was given. */
const struct rlm_past_gate *rlm_past_turn_gate(const struct rlm_past *past, uint32_t seq);
struct rlm_past *rlm_past_of(const struct rlm_past_run *past, const rlm_graph *g);
struct rlm_past_cell *rlm_past_cell(const struct rlm_past *past, int64_t number);
/* The last session, or NULL when there was none. */
const struct rlm_past_session *rlm_past_session(const struct rlm_past *past);
/* The one of that number, or NULL. */
const struct rlm_past_session *rlm_past_session_of(const struct rlm_past *past, int64_t number);
/* Whether the cell ran in that session, for the first time or again. */
bool rlm_past_is_in(const struct rlm_past *past, int64_t session, const struct rlm_past_cell *cell);
/* The cell that was running when the run stopped, or NULL. */
struct rlm_past_cell *rlm_past_in_flight(const struct rlm_past *past);
/* The cells whose effects the last session's namespace shows, oldest first, without one in flight: a
 * list that the caller frees. RLM_E_NOMEM. */
int rlm_past_namespace(const struct rlm_past *past,
                       struct rlm_past_cell ***ret_cells,
                       size_t *ret_n,
                       rlm_error **err);
