#include "flow/run.h"
#include "flow/gate.h"
#include "flow/replay.h"
#include "graph/record.h"

#include <stdarg.h>
#include <stdio.h>

void rlm_run_emit(
    rlm_run *run, enum rlm_event_type type, rlm_graph *g, const struct rlm_node *node, rlm_str text)
{
    const struct rlm_flow_hooks *hooks = &run->flow->hooks;
    struct rlm_event event = {.type = type, .graph = g, .node = node, .text = text};
    if (hooks->event_committed && type <= RLM_EVENT_REMOVE_CHILD && !run->replay) {
        hooks->event_committed(hooks->arg, run, &event);
    }
    if (run->events.event) {
        run->events.event(run->arg, run, &event);
    }
}

void rlm_run_notice(rlm_run *run, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len >= 0) {
        rlm_run_emit(run, RLM_EVENT_NOTICE, NULL, NULL, (rlm_str){text, (size_t)len});
        free(text);
    }
}

static void set_text(char **text, const char *value)
{
    free(*text);
    *text = rlm_strdup(value);
}

void rlm_run_fail(rlm_run *run, rlm_error *err)
{
    if (!run->stopping) {
        set_text(&run->reason, "failed");
        set_text(&run->message, rlm_error_message(err));
        run->error = rlm_steal(&err);
        run->stopping = true;
        rlm_run_poke(run);
    }
    rlm_error_free(err);
}

void rlm_run_fail_no_memory(rlm_run *run)
{
    rlm_error *err = NULL;
    rlm_error_nomem(&err);
    rlm_run_fail(run, err);
}

void rlm_run_poke(rlm_run *run)
{
    rlm_defer_schedule(run->turn);
}

void rlm_run_schedule(struct rlm_agent *agent)
{
    rlm_run *run = agent->run;
    if (agent->scheduled || rlm_agent_finished(agent)) {
        return;
    }
    struct rlm_agent **slot = rlm_vec_push(&run->ready);
    if (!slot) {
        rlm_run_fail_no_memory(run);
        return;
    }
    *slot = agent;
    agent->scheduled = true;
    rlm_run_poke(run);
}

void rlm_run_close_session(rlm_run *run, rlm_session *session)
{
    rlm_session **slot = rlm_vec_push(&run->closing);
    if (slot) {
        *slot = session;
    } else {
        rlm_session_close(session);
    }
    rlm_run_poke(run);
}

enum { MOST_IDLE = 64, IDLE_MS = 50 };

static void close_idle(void *arg)
{
    rlm_run *run = arg;
    for (size_t i = 0; i < run->idle.len; i++) {
        rlm_session_close(run->idle.items[i]);
    }
    run->idle.len = 0;
}

void rlm_run_retire_session(rlm_run *run, rlm_session *session)
{
    rlm_session **slot = run->idle.len < MOST_IDLE ? rlm_vec_push(&run->idle) : NULL;
    if (!slot) {
        rlm_run_close_session(run, session);
        return;
    }
    *slot = session;
    rlm_timer_set(run->idle_timer, IDLE_MS);
}

void rlm_run_drop_chat(rlm_run *run, rlm_chat *chat)
{
    rlm_chat **slot = rlm_vec_push(&run->finished_chats);
    if (slot) {
        *slot = chat;
    } else {
        rlm_chat_free(chat);
    }
    rlm_run_poke(run);
}

static void let_go(rlm_run *run)
{
    for (size_t i = 0; i < run->closing.len; i++) {
        rlm_session_close(run->closing.items[i]);
    }
    run->closing.len = 0;
    for (size_t i = 0; i < run->finished_chats.len; i++) {
        rlm_chat_free(run->finished_chats.items[i]);
    }
    run->finished_chats.len = 0;
}

static void drop_all(rlm_run *run)
{
    size_t pos = 0;
    void *agent;
    while (rlm_map_next(&run->agents, &pos, NULL, &agent)) {
        rlm_agent_drop(agent);
    }
    let_go(run);
    rlm_timer_stop(run->ask_timer);
    rlm_timer_stop(run->time_limit);
}

static void end(rlm_run *run)
{
    if (run->ended) {
        return;
    }
    run->ended = true;
    run->stopping = true;
    atomic_store(&run->reads_canceled, true);
    drop_all(run);
    if (run->root) {
        rlm_record_end(run);
    }
    if (run->events.ended) {
        run->events.ended(run->arg, run);
    }
}

void rlm_run_end(rlm_run *run)
{
    const struct rlm_node *last = rlm_graph_current(run->root);
    if (!run->stopping && last && last->type == RLM_DONE_OUTPUT) {
        run->reason = rlm_strndup(last->reason.ptr, last->reason.len);
        if (!rlm_str_is(last->reason, "answered")) {
            free(run->message);
            run->message = rlm_strndup(last->content.ptr, last->content.len);
        }
        run->stopping = true;
    }
    rlm_run_poke(run);
}

/* max_time stands still while every unfinished agent waits for a gate. */
static void hold_clock(rlm_run *run)
{
    int64_t most = run->flow->limits.max_time_ms;
    bool still = run->still_since_ms != 0;
    if (run->replay || run->stopping || (!still && !run->open_gates) ||
        rlm_gates_hold(run) == still) {
        return;
    }
    if (!still) {
        run->still_since_ms = rlm_now_ms();
        rlm_timer_stop(run->time_limit);
        return;
    }
    run->still_ms += rlm_now_ms() - run->still_since_ms;
    run->still_since_ms = 0;
    int64_t used = rlm_run_elapsed_ms(run);
    if (most) {
        rlm_timer_set(run->time_limit, most > used ? (uint64_t)(most - used) : 0);
    }
}

/* Takes the steps of every agent that is ready, and what became possible by them. */
static void turn_now(rlm_run *run)
{
    let_go(run);
    rlm_asks_send(run);
    /* With `sync` a second round would act on records of the first that are not on disk yet. */
    bool again = true;
    while (again && run->ready.len && !run->stopping) {
        again = !run->sync || !run->journal;
        __typeof__(run->ready) ready = run->ready;
        memset(&run->ready, 0, sizeof run->ready);
        for (size_t i = 0; i < ready.len; i++) {
            ready.items[i]->scheduled = false;
            if (!run->stopping) {
                rlm_agent_step(ready.items[i]);
            }
        }
        free(ready.items);
    }
    if (!run->stopping) {
        rlm_asks_pump(run);
    }
    if (run->replay && !run->stopping) {
        rlm_replay_look_for_end(run);
    }
    hold_clock(run);
    if (run->stopping && run->reason) {
        end(run);
    }
}

static void flushed(void *arg, int result)
{
    rlm_run *run = arg;
    run->flushing = false;
    if (result < 0) {
        rlm_error *err = NULL;
        rlm_error_set(&err, result, "the journal %s could not be written to disk",
                      rlm_run_path(run));
        rlm_run_fail(run, err);
    }
    turn_now(run);
}

static void turn(void *arg)
{
    rlm_run *run = arg;
    if (run->ended || run->flushing) {
        return;
    }
    /* With `sync` nothing acts on a record before it is on disk. */
    if (run->sync && run->journal && (run->ready.len || run->unsent_asks) && !run->stopping) {
        rlm_error *err = NULL;
        if (rlm_journal_flush(run->journal, flushed, run, &err) == 0) {
            run->flushing = true;
            return;
        }
        rlm_run_fail(run, err);
    }
    turn_now(run);
}

static void time_is_over(void *arg)
{
    rlm_run *run = arg;
    struct rlm_agent *root = rlm_map_get(&run->agents, RLM_STR("root"));
    if (!root && !run->stopping) {
        set_text(&run->reason, "time");
        set_text(&run->message, "max_time passed while the inputs were taken in");
        run->stopping = true;
        rlm_run_poke(run);
    } else if (root && !rlm_agent_finished(root)) {
        rlm_agent_finish(root, "time", RLM_STR(""), RLM_STR(""), RLM_STR("max_time passed"));
    }
}

/* The inputs are there: the graph begins. */
static int begin_graph(rlm_run *run, const struct rlm_graph_options *graph_options, rlm_error **err)
{
    int r = rlm_graph_new(graph_options, &run->root, err);
    if (r < 0) {
        return r;
    }
    rlm_autofree char *options = rlm_record_options(run);
    if (!options) {
        return rlm_error_nomem(err);
    }
    if ((r = rlm_record_run(run->journal, run->root, rlm_str_of(options), err)) < 0) {
        return r;
    }
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *inputs;
    if (!arena || rlm_json_parse(arena, run->root->inputs, &inputs, NULL) < 0) {
        return rlm_error_nomem(err);
    }
    if (rlm_record_blobs_of(run, inputs) < 0 || rlm_inputs_record(run) < 0) {
        return 0; /* the run has failed and said so */
    }
    struct rlm_agent *root;
    if ((r = rlm_agent_new(run, run->root, NULL, &root, err)) < 0) {
        return r;
    }
    rlm_run_emit(run, RLM_EVENT_GRAPH_CREATED, run->root, NULL, RLM_STR_NONE);
    struct rlm_node query = {.type = RLM_USER_QUERY, .content = run->root->query};
    if (rlm_agent_append(root, &query)) {
        rlm_run_schedule(root);
    }
    return 0;
}

static void inputs_taken(rlm_run *run, const char *inputs_json, rlm_error *error)
{
    rlm_error *err = error;
    int r = error ? rlm_error_code(error) : 0;
    if (r == 0) {
        struct rlm_graph_options options = {
            .agent_id = "root",
            .query = {run->query, run->query_len},
            .inputs = rlm_str_of(inputs_json),
            .model = RLM_STR("default"),
            .output_schema = rlm_str_of(run->output_schema ? run->output_schema : ""),
        };
        r = begin_graph(run, &options, &err);
    }
    if (r < 0) {
        rlm_run_fail(run, err);
    }
}

static int check(const struct rlm_run_options *options, rlm_error **err)
{
    if (!options->query.len) {
        return rlm_error_set(err, RLM_E_INVAL, "the query is empty; say what the agent shall do");
    }
    if (options->output_schema) {
        rlm_schema *schema;
        int r = rlm_schema_new(rlm_str_of(options->output_schema), &schema, err);
        if (r < 0) {
            return rlm_error_wrap(err, r, "the output schema");
        }
        rlm_schema_free(schema);
    }
    return 0;
}

int rlm_run_new(rlm_flow *flow,
                const struct rlm_run_events *events,
                void *arg,
                rlm_run **ret_run,
                rlm_error **err)
{
    rlm_run *run;
    if (!RLM_NEW(run)) {
        return rlm_error_nomem(err);
    }
    flow->runs++;
    run->flow = flow;
    run->loop = flow->loop;
    run->events = events ? *events : (struct rlm_run_events){0};
    run->arg = arg;
    run->ledger.max_tokens = flow->limits.max_budget;
    run->ledger.max_cost_nano = flow->limits.max_cost_nano;
    run->turn = rlm_defer_new(run->loop, turn, run);
    run->idle_timer = rlm_timer_new(run->loop, close_idle, run);
    run->ask_timer = rlm_timer_new(run->loop, (rlm_callback)rlm_asks_pump, run);
    run->time_limit = rlm_timer_new(run->loop, time_is_over, run);
    run->tool_calls = rlm_calloc(flow->tools.list.len + 1, sizeof *run->tool_calls);
    if (!run->turn || !run->ask_timer || !run->idle_timer || !run->time_limit || !run->tool_calls) {
        rlm_run_free(run);
        return rlm_error_nomem(err);
    }
    *ret_run = run;
    return 0;
}

void rlm_run_start_clock(rlm_run *run)
{
    int64_t most = run->flow->limits.max_time_ms;
    run->started_ms = rlm_now_ms();
    if (most) {
        rlm_timer_set(run->time_limit,
                      most > run->earlier_ms ? (uint64_t)(most - run->earlier_ms) : 0);
    }
}

int64_t rlm_run_still_ms(const rlm_run *run)
{
    uint64_t now = run->still_since_ms ? rlm_now_ms() - run->still_since_ms : 0;
    return (int64_t)(run->still_ms + now);
}

int64_t rlm_run_elapsed_ms(const rlm_run *run)
{
    return run->earlier_ms + (int64_t)(rlm_now_ms() - run->started_ms) - rlm_run_still_ms(run);
}

int rlm_run_set_program(rlm_run *run, const char *program, rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *object;
    if (!program) {
        return 0;
    }
    int r = arena ? rlm_json_parse(arena, rlm_str_of(program), &object, err) : rlm_error_nomem(err);
    if (r == 0 && object->type != RLM_JSON_OBJECT) {
        r = rlm_error_set(err, RLM_E_INVAL, "it is no JSON object");
    }
    if (r < 0) {
        return rlm_error_wrap(err, r, "what the program keeps with the run");
    }
    run->program = rlm_strdup(program);
    return run->program ? 0 : rlm_error_nomem(err);
}

static int open_journal(rlm_run *run, const struct rlm_run_options *options, rlm_error **err)
{
    if (!options->journal) {
        return rlm_blobs_open(NULL, &run->blobs, err);
    }
    struct rlm_journal_options journal = {.sync = options->sync};
    int r = rlm_journal_create(run->loop, options->journal, &journal, &run->journal, err);
    run->blobs = r == 0 ? rlm_journal_blobs(run->journal) : NULL;
    return r;
}

int rlm_run_start(rlm_flow *flow,
                  const struct rlm_run_options *options,
                  const struct rlm_run_events *events,
                  void *arg,
                  rlm_run **ret_run,
                  rlm_error **err)
{
    int r = check(options, err);
    rlm_run *run;
    if (r < 0 || (r = rlm_run_new(flow, events, arg, &run, err)) < 0) {
        return r;
    }
    run->sync = options->sync;
    run->restore = options->restore;
    run->query = rlm_strndup(options->query.ptr, options->query.len);
    run->query_len = options->query.len;
    run->output_schema = options->output_schema ? rlm_strdup(options->output_schema) : NULL;
    if (!run->query || (options->output_schema && !run->output_schema)) {
        r = rlm_error_nomem(err);
    }
    if (r == 0) {
        r = rlm_run_set_program(run, options->program, err);
    }
    rlm_run_start_clock(run);
    if (r < 0 || (r = open_journal(run, options, err)) < 0 ||
        (r = rlm_inputs_begin(run, options, inputs_taken, err)) < 0) {
        rlm_run_free(run);
        return r;
    }
    *ret_run = run;
    return 0;
}

int rlm_run_wait(rlm_run *run, rlm_error **err)
{
    while (!run->ended) {
        if (!rlm_loop_turn(run->loop) && !run->ended) {
            return rlm_error_set(err, RLM_E_INVAL,
                                 "the run waits for nothing; this is a fault of rlmflow");
        }
    }
    return 0;
}

int rlm_run_terminate(rlm_run *run, const char *agent_id, rlm_error **err)
{
    struct rlm_agent *agent = rlm_map_get(&run->agents, rlm_str_of(agent_id ? agent_id : "root"));
    if (!agent) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "no agent is named \"%s\"", agent_id);
    }
    if (!rlm_agent_finished(agent) && !run->stopping) {
        rlm_agent_finish(agent, "terminated", RLM_STR(""), RLM_STR(""),
                         RLM_STR("terminated by the user"));
    }
    return 0;
}

void rlm_run_halt_because(rlm_run *run, const char *reason, const char *message)
{
    if (!run->stopping) {
        run->stopping = true;
        set_text(&run->reason, reason);
        set_text(&run->message, message);
        rlm_run_poke(run);
    }
}

void rlm_run_halt(rlm_run *run, const char *reason)
{
    rlm_run_halt_because(run, reason, "");
}

void rlm_run_stop(rlm_run *run)
{
    rlm_run_halt(run, "interrupted");
}

void rlm_run_free(rlm_run *run)
{
    if (!run) {
        return;
    }
    if (!run->ended && run->root) {
        run->events = (struct rlm_run_events){0};
        run->stopping = true;
        drop_all(run);
    }
    atomic_store(&run->reads_canceled, true);
    size_t pos = 0;
    void *agent;
    while (rlm_map_next(&run->agents, &pos, NULL, &agent)) {
        rlm_agent_free(agent);
    }
    while (run->reads) {
        rlm_loop_turn(run->loop);
    }
    rlm_inputs_free(run->inputs);
    let_go(run);
    close_idle(run);
    rlm_map_deinit(&run->agents);
    rlm_map_deinit(&run->recorded_blobs);
    free(run->tool_calls);
    free(run->ready.items);
    free(run->slot_queue.items);
    free(run->asks.items);
    free(run->closing.items);
    free(run->idle.items);
    free(run->finished_chats.items);
    rlm_defer_free(run->turn);
    rlm_timer_free(run->ask_timer);
    rlm_timer_free(run->idle_timer);
    rlm_timer_free(run->time_limit);
    if (run->journal && rlm_journal_records(run->journal) == 0) {
        rlm_journal_discard(run->journal);
    } else if (run->journal) {
        rlm_journal_close(run->journal);
    } else if (run->blobs) {
        rlm_blobs_free(run->blobs);
    }
    rlm_graph_free(run->root);
    rlm_replay_free(run->replay);
    free(run->query);
    free(run->output_schema);
    free(run->program);
    free(run->reason);
    free(run->message);
    rlm_error_free(run->error);
    run->flow->runs--;
    free(run);
}

bool rlm_run_has_ended(const rlm_run *run)
{
    return run->ended;
}

rlm_graph *rlm_run_graph(rlm_run *run)
{
    return run->root;
}

enum rlm_agent_state rlm_run_agent_state(const rlm_run *run, const rlm_graph *g)
{
    const struct rlm_agent *agent = rlm_map_get(&run->agents, rlm_str_of(g->agent_id));
    return agent ? agent->state : RLM_AGENT_FINISHED;
}

rlm_str rlm_run_answer(const rlm_run *run)
{
    return run->root ? rlm_graph_result(run->root) : RLM_STR("");
}

const char *rlm_run_reason(const rlm_run *run)
{
    return run->ended && run->reason ? run->reason : "";
}

const char *rlm_run_message(const rlm_run *run)
{
    return run->message ? run->message : "";
}

const rlm_error *rlm_run_error(const rlm_run *run)
{
    return run->error;
}

struct rlm_usage rlm_run_usage(const rlm_run *run)
{
    return run->ledger.settled;
}

const char *rlm_run_path(const rlm_run *run)
{
    return run->journal ? rlm_journal_path(run->journal) : NULL;
}

int rlm_run_check_kept(const rlm_run *run, rlm_error **err)
{
    return run->journal ? rlm_journal_check_place(run->journal, err) : 0;
}

uint64_t rlm_run_disk_bytes(const rlm_run *run)
{
    return run->journal ? rlm_journal_disk_bytes(run->journal) : 0;
}
