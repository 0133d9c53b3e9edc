/* The inside of a run: what the files of flow share, and the map of the layer.
 *
 *     flow.c          the policy: limits, models, tools                   struct rlm_flow
 *     run.c           one drive of one graph: turns, halts, the end       struct rlm_run
 *     run_start.c     a new run (run_program.c: what the program keeps with it)
 *     run_clock.c     max_time
 *     input.h         takes the inputs in before the first step
 *     agent.c         performs the steps of the step machine (step.h)     struct rlm_agent
 *     cell.c, open.c  its session, and the cells that run there
 *     ask.h           one model call: reserve, wait, send, settle, retry  struct rlm_ask
 *     call.h          host calls of a cell, and who performs them         struct rlm_call
 *     gate.h          questions before code runs, a model is asked or a call is performed
 *     append.c        what the embedding program puts into the graph meanwhile
 *     record.h        what the journal says of all this
 *
 * A run that goes on: past.h (what its journal says), resume.c, restore.h (cells run again in a new
 * session); follow_up.c (one that has ended is asked more). One that is played again: replay.h.
 *
 * Pure, with a header each: step, ledger, code (what of a reply is run), observe (what is shown of
 * a cell); messages and prompt project a graph into a conversation.
 *
 * All of it lives on the loop's thread. An agent lives as long as its run; what it holds (session,
 * calls) ends with its last node. Sessions and chats are let go of on the next turn of the loop,
 * never inside their own callbacks.
 */
#pragma once

#include "base/link.h"
#include "base/loop.h"
#include "flow/ledger.h"
#include "flow/step.h"
#include "graph/journal.h"
#include "model/model.h"
#include "runtime/runtime.h"
#include "tool/tool.h"

struct rlm_flow_model {
    char *name;
    rlm_model *model;
    struct rlm_ledger_rates rates;
    bool answered;      /* the server has answered before: worth more patience when it fails */
    int64_t max_output; /* of a reply where the context is too short for the limit; 0: the limit */
};

struct rlm_flow {
    rlm_loop *loop;
    struct rlm_limits limits;
    RLM_VEC(struct rlm_flow_model *) models; /* the first is "default" */
    struct rlm_tools tools;
    rlm_runtime *runtime;
    bool runtime_works; /* it has opened a session */
    struct rlm_flow_model *child_model;
    char *system_prompt;
    struct rlm_flow_hooks hooks;
    struct rlm_link *gates, *tool_calls; /* that the program has to answer */
    int runs;
};

struct rlm_agent;
struct rlm_ask;
struct rlm_call;
struct rlm_part;
struct rlm_past;
struct rlm_past_cell;
struct rlm_past_call;
struct rlm_restore;
struct rlm_replay;
struct rlm_held;

enum rlm_slot { RLM_SLOT_NONE, RLM_SLOT_QUEUED, RLM_SLOT_HELD };

struct rlm_agent {
    rlm_run *run;
    rlm_graph *graph;
    struct rlm_agent *parent;
    struct rlm_part *part; /* the spec it was launched by; NULL once the launch is given up */
    struct rlm_flow_model *model;
    rlm_schema *output_schema;
    enum rlm_agent_state state;

    bool scheduled; /* in run->ready */
    enum rlm_slot slot;
    struct rlm_ask *ask;
    rlm_gate *gate;      /* exec_turn's on the code of the last reply */
    rlm_gate *step_gate; /* next_step's */
    size_t let_step;     /* nodes after which next_step has let it go on */
    int open_gates;      /* of the agent, its asks and its calls: not answered */
    const char *refused; /* see struct rlm_account */
    bool last_affordable;
    int turns_dropped; /* oldest turns left out because the model's context is too short */
    int default_names; /* used up by unnamed children */

    rlm_session *session;
    bool session_ready;
    bool keeps_session; /* it outlives the run's end: see follow_up.c */
    int sessions;       /* opened so far */
    char seed[20];      /* of the sessions that it had before the run went on; empty: none */
    char *lost;   /* the session died between two cells: what the model has not been told yet */
    int64_t cell; /* number of the last one started */
    bool cell_open;
    bool cell_unsent; /* with `sync`: it starts when its record is on disk */
    char *answer;     /* accepted by done(): what the agent ends with once the cell has unwound */
    size_t answer_len;
    int64_t last_call; /* id of the last host call of any of its sessions */
    RLM_VEC(struct rlm_call *) calls;
    RLM_VEC(struct rlm_call_result) results; /* answered, to be delivered; texts are owned */

    /* After a resume, or the death of its worker: see restore.h. */
    struct rlm_past *past;
    struct rlm_restore *restore;       /* cells are to run again before the next one */
    struct rlm_past_cell *interrupted; /* a cell in flight that does not run again */
    struct rlm_past_cell *again;       /* the cell under way was in flight, and has gone on */
    char *recovered;                   /* JSON: what RECOVERED is bound to with the next cell */
    /* In a replay: see replay.h. `again` is then the cell under way. */
    bool from_record; /* its calls and output are taken from the record */
    bool parked;      /* at the end of the record, or at an end that its parent will bring */
    size_t calls_made, deliveries_made; /* of the cell */
    RLM_VEC(struct rlm_held *) held; /* of its session, to be taken in later: see replay_hold.c */
    size_t turn_checked;      /* the reply, counted from 1, whose code exec_turn has looked at */
    int64_t recorded_session; /* that the session stands for; 0: none yet */

    /* What the provider reported for the messages of the last turn: see ledger.h. */
    size_t known_messages;
    uint64_t known_hash;
    int64_t known_tokens;
};

struct rlm_run {
    rlm_flow *flow;
    rlm_loop *loop;
    struct rlm_run_events events;
    void *arg;
    rlm_journal *journal; /* NULL: in memory */
    rlm_blobs *blobs;     /* the journal's, or the run's own */
    bool sync;
    char *query; /* until the graph has it */
    size_t query_len;
    char *output_schema;
    char *program;         /* JSON that the embedding program keeps with the run, or NULL */
    rlm_graph *root;       /* NULL until the inputs are taken in */
    struct rlm_map agents; /* agent id -> struct rlm_agent */
    int n_agents;
    struct rlm_ledger ledger;
    struct rlm_map recorded_blobs; /* blobs that the journal has facts of */
    uint64_t *tool_calls;          /* made so far, by the index of the tool */

    RLM_VEC(struct rlm_agent *) ready;
    rlm_defer *turn;
    bool flushing;    /* a turn waits for its records to be on disk */
    bool unsent_asks; /* with `sync`: reserved, to be sent when that is on disk */
    RLM_VEC(struct rlm_agent *) slot_queue; /* parents that resume stand in front */
    int slots_held;
    RLM_VEC(struct rlm_ask *) asks; /* all that are under way, in order of their start */
    int asks_in_flight;
    int single_asks; /* of those, the ones of models that are asked one at a time */
    int64_t last_ask;
    rlm_timer *ask_timer; /* the end of a provider's pause */
    RLM_VEC(rlm_session *) closing;
    RLM_VEC(rlm_session *) idle; /* of agents that have answered: closed when there is time */
    rlm_timer *idle_timer;
    RLM_VEC(rlm_chat *) finished_chats;

    struct rlm_inputs *inputs;  /* while they are taken in, and the directories after it */
    int reads;                  /* files of directories that are being read on the pool */
    atomic_bool reads_canceled; /* the pool shall stop reading: nobody waits for it any more */
    enum rlm_restore_mode restore;
    bool keep_sessions;
    struct rlm_replay *replay; /* NULL: a run of its own */
    int64_t earlier_ms;        /* in which earlier drives ran the tree */
    uint64_t started_ms, ended_ms;
    int open_gates;
    uint64_t still_since_ms; /* every unfinished agent has waited for a gate since then; 0: no */
    uint64_t still_ms;       /* how long they did before */
    rlm_timer *time_limit;
    bool stopping;
    bool ended;
    char reason[32]; /* a word; "": it goes on. No memory is needed for a run to end */
    char *message;
    rlm_error *error; /* what rlm_run_fail got */
};

/* ---- run.c ---- */
/* A run without a graph or a journal yet. */
int rlm_run_new(rlm_flow *flow,
                const struct rlm_run_events *events,
                void *arg,
                rlm_run **ret_run,
                rlm_error **err);
void rlm_run_emit(rlm_run *run,
                  enum rlm_event_type type,
                  rlm_graph *g,
                  const struct rlm_node *node,
                  rlm_str text);
void rlm_run_notice(rlm_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes the agent take its next step on the next turn of the loop. */
void rlm_run_schedule(struct rlm_agent *agent);
/* Makes the loop turn for the run (sessions to close, queues to look at). */
void rlm_run_poke(rlm_run *run);
/* The root has ended, and the run with it. */
void rlm_run_root_ended(rlm_run *run);
/* Ends the run where it is, for this reason (a literal). */
void rlm_run_halt(rlm_run *run, const char *reason);
void rlm_run_halt_because(rlm_run *run, const char *reason, const char *message);
/* The run cannot go on (journal, memory): ends it as "failed"; what is written stays. */
void rlm_run_fail(rlm_run *run, rlm_error *err);
void rlm_run_fail_no_memory(rlm_run *run);
/* Lets go of the session of an agent that has answered a little later (with the run at the latest),
 * since ending a process takes as long as a short cell, and others may be waiting to run. */
void rlm_run_retire_session(rlm_run *run, rlm_session *session);
/* Lets go of a session or a chat on the next turn. */
void rlm_run_close_session(rlm_run *run, rlm_session *session);
void rlm_run_drop_chat(rlm_run *run, rlm_chat *chat);

/* ---- run_program.c ---- */
/* What the program keeps with the run (JSON, or NULL) is checked and copied. */
int rlm_run_set_program(rlm_run *run, const char *program, rlm_error **err);

/* ---- run_clock.c ---- */
/* The clock of max_time begins, behind what earlier drives took. */
void rlm_run_start_clock(rlm_run *run);
/* The run has ended: so much time has it taken. */
void rlm_run_stop_clock(rlm_run *run);
/* Holds it or lets it go on: agents have come to gates, or gone on from them. */
void rlm_run_hold_clock(rlm_run *run);
/* Time in which the clock has stood still in this drive. */
int64_t rlm_run_still_ms(const rlm_run *run);
/* Time in which the engine has run the tree, earlier drives included. */
int64_t rlm_run_elapsed_ms(const rlm_run *run);
/* Of the timer `time_limit`; `arg` is the run. */
void rlm_run_time_is_over(void *arg);

/* ---- flow.c ---- */
struct rlm_flow_model *rlm_flow_find_model(const rlm_flow *flow, rlm_str name);
/* "default, small, ..." */
void rlm_flow_put_model_names(const rlm_flow *flow, struct rlm_buf *out);

/* ---- agent.c ---- */
int rlm_agent_new(rlm_run *run,
                  rlm_graph *graph,
                  struct rlm_agent *parent,
                  struct rlm_agent **ret_agent,
                  rlm_error **err);
void rlm_agent_free(struct rlm_agent *agent);
void rlm_agent_step(struct rlm_agent *agent);
/* Copies a node into the graph, journals and shows it. On failure the run has failed. */
bool rlm_agent_append(struct rlm_agent *agent, const struct rlm_node *node);
/* Ends the agent: its descendants first, as "terminated" (or with the same reason if that is "time"),
 * its calls and session, then the done_output. */
void rlm_agent_finish(
    struct rlm_agent *agent, const char *reason, rlm_str result, rlm_str output, rlm_str content);
/* The same with a done_output that holds all of this. */
void rlm_agent_finish_with(struct rlm_agent *agent, const struct rlm_node *done);
/* What is said of one that ends for this reason with the agent above it. */
rlm_str rlm_agent_ended_because(const char *reason);
/* Ends it as "failed". */
void rlm_agent_fail(struct rlm_agent *agent, rlm_str message);
/* With the answer that done() was given; `output`: what the cell had printed. */
void rlm_agent_finish_answered(struct rlm_agent *agent, rlm_str output);
/* A reply to its turn: becomes a node. */
void rlm_agent_take_reply(struct rlm_agent *agent,
                          const struct rlm_chat_reply *reply,
                          const struct rlm_usage *usage,
                          int64_t ask);
/* The first launch all of whose children have ended, to be answered; 0: none. */
int64_t rlm_agent_ended_launch(const struct rlm_agent *agent);
/* Lets go of session, calls and model call without a node (a run that is stopped). */
void rlm_agent_drop(struct rlm_agent *agent);
void rlm_agent_set_state(struct rlm_agent *agent, enum rlm_agent_state state);
/* The slot queue: `front` for a parent whose children have ended. True if the slot is held. */
bool rlm_agent_take_slot(struct rlm_agent *agent, bool front);
void rlm_agent_release_slot(struct rlm_agent *agent);
static inline bool rlm_agent_finished(const struct rlm_agent *agent)
{
    return agent->state == RLM_AGENT_FINISHED;
}

/* ---- follow_up.c ---- */
/* Whether the session of an agent that is about to end may stay open for what is asked next. */
bool rlm_agent_may_keep_session(const struct rlm_agent *agent);

/* ---- append.c ---- */
/* rlm_run_append has put it there. */
bool rlm_node_is_by_program(const struct rlm_node *node);

/* ---- cell.c ---- */
/* Its model is being asked: opens its session meanwhile, if a slot is free. */
void rlm_agent_prepare(struct rlm_agent *agent);
/* Before the first model call of a flow: whether it has to wait for the session, which is being opened then, or
 * has failed and with it the agent. So nothing is paid where no code can run. */
bool rlm_agent_awaits_session(struct rlm_agent *agent);
/* Runs the code of the last reply as soon as there is a slot and a session. */
void rlm_agent_run_code(struct rlm_agent *agent);
/* The cell under way has ended so: gives up its open calls, and shows the model what came out. */
void rlm_agent_end_cell(struct rlm_agent *agent, const struct rlm_cell_finished *how);
/* After a resume: takes up what was under way when the run was stopped. True: there is no other step. */
bool rlm_agent_goes_on(struct rlm_agent *agent);
/* With `sync`: sends the cell; its record is on disk. */
void rlm_agent_send_cell(struct rlm_agent *agent);

/* ---- open.c ---- */
/* The seed of the agent's sessions: of run and agent, the same for each of its sessions, also in a run
 * that was copied with them (a fork has an id of its own). */
void rlm_agent_seed(const struct rlm_agent *agent, char ret_seed[20]);
int rlm_agent_open_session(struct rlm_agent *agent,
                           const struct rlm_session_events *events,
                           uint64_t open_timeout_ms,
                           rlm_error **err);

/* ---- input.c ---- */
/* Takes the inputs in (pool), then calls back with their JSON object, or an error. */
int rlm_inputs_begin(rlm_run *run,
                     const struct rlm_run_options *options,
                     void (*done)(rlm_run *run, const char *inputs_json, rlm_error *error),
                     rlm_error **err);
/* The directories of a run that goes on, from their INPUT_LIST records. */
int rlm_inputs_reopen(rlm_run *run, const rlm_str *lists, size_t n_lists, rlm_error **err);
void rlm_inputs_free(struct rlm_inputs *inputs);
/* Journals the lists of directories, behind the RUN record. */
int rlm_inputs_record(rlm_run *run);
