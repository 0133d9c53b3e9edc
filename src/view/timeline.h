/* When the agents of a run did what: the times of its nodes, as spans, and in between what the records say
 * of their calls, questions and rewinds.
 *
 * A run may have been stopped and resumed. The time in between, in which nothing ran, is left out of
 * the axis: a place on it is the time since the run began less the stops before.
 *
 *     struct rlm_timeline t;
 *     if ((r = rlm_timeline_load(root, path, &t, err)) < 0) return r;
 *     rlm_timeline_each(&t, g, on_span, arg);
 *     rlm_timeline_deinit(&t);
 *
 * Files: timeline_read.c reads the journal, timeline.c makes spans of it, timeline_text.c shows them.
 */
#pragma once

#include "base/buf.h"
#include "graph/graph.h"

enum rlm_span_kind {
    RLM_SPAN_MODEL, /* until the reply was there, to a turn or an llm_query; waiting for a width or a
                       * pause counts too */
    RLM_SPAN_CODE,  /* a cell ran */
    RLM_SPAN_TOOL,  /* it waited for a tool of the host */
    RLM_SPAN_WAITING, /* for sub-agents, or for the session that is to run the code of a reply */
    RLM_SPAN_GATE,    /* until somebody answered, or from the question on */
    RLM_SPAN_UNDONE,  /* what was done was taken back */
    _RLM_SPAN_KINDS,
};

/* The word for a kind: "model", "code", "tools", "waiting", "approval", "rewound". */
extern const char *const rlm_span_names[_RLM_SPAN_KINDS];

/* A time in which an agent did something else than its nodes tell. */
struct rlm_aside {
    size_t agent; /* its number */
    enum rlm_span_kind kind;
    int64_t from_us, to_us; /* since 1970 */
};

struct rlm_stop {
    int64_t last_us;    /* the last that is known of the drive that was stopped */
    int64_t resumed_us; /* the next drive began */
};

/* A question to a gate, and what was said. It belongs to the node that was its agent's last. */
struct rlm_gate_said {
    rlm_str kind;  /* "exec_turn", "model_call", "host_call" */
    rlm_str agent; /* id */
    int64_t call;  /* of a host_call */
    int64_t ask;   /* of a model_call */
    int64_t asked_us;
    int64_t answered_us;   /* 0: nobody has answered */
    rlm_str decision, who; /* "allow", "rewrite", "reject", ...; empty: not answered */
    size_t next;           /* one more than the place of the next of the same node; 0: the last */
};

struct rlm_timeline {
    int64_t start_us; /* since 1970 */
    int64_t last_us;  /* since 1970: the last that is known of the run */
    int64_t total_us; /* of the axis */
    RLM_VEC(struct rlm_stop) stops;
    RLM_VEC(struct rlm_gate_said) gates;
    struct rlm_map gates_of;          /* id of a node -> one more than the place of its first */
    RLM_VEC(struct rlm_aside) asides; /* by agent and time; those of an agent do not overlap */
    struct rlm_map asides_of;         /* id of an agent -> one more than the place of its first */
    rlm_arena *arena;                 /* of the gates' texts */
};

/* `turn` is the agent's turn that the span belongs to, from 1; `end` the node that ended it, NULL when none
 * has come; places in microseconds. */
typedef void (*rlm_timeline_span)(void *arg,
                                  enum rlm_span_kind kind,
                                  int turn,
                                  const struct rlm_node *end,
                                  int64_t from_us,
                                  int64_t to_us);

/* `journal` is the path of the run; NULL: only the nodes are known. Errors are those of
 * rlm_journal_read; a damaged end is none. */
int rlm_timeline_load(const rlm_graph *root,
                      const char *journal,
                      struct rlm_timeline *ret_timeline,
                      rlm_error **err);
void rlm_timeline_deinit(struct rlm_timeline *t);
/* The part of loading that reads the journal. */
int rlm_timeline_read(struct rlm_timeline *t, const char *journal, rlm_error **err);
/* The place of a time on the axis, 0 to total_us. */
int64_t rlm_timeline_place(const struct rlm_timeline *t, int64_t time_us);
/* The stop after which `node` was the first of its agent (`before`: the one before it), or NULL. */
const struct rlm_stop *rlm_timeline_stop_before(const struct rlm_timeline *t,
                                                const struct rlm_node *before,
                                                const struct rlm_node *node);
/* The first question at a node, or NULL; and the one after it. */
const struct rlm_gate_said *rlm_timeline_gate(const struct rlm_timeline *t, const char *node_id);
const struct rlm_gate_said *rlm_timeline_next_gate(const struct rlm_timeline *t,
                                                   const struct rlm_gate_said *gate);
/* "code allowed by ada, 3.2 s after it was asked", for people. */
void rlm_timeline_put_gate(struct rlm_buf *out, const struct rlm_gate_said *gate);
void rlm_timeline_each(const struct rlm_timeline *t,
                       const rlm_graph *g,
                       rlm_timeline_span span,
                       void *arg);
