/* The session of an agent, and the cells that run there: opening, starting, and what comes back. */
#include "flow/call.h"
#include "flow/code.h"
#include "flow/gate.h"
#include "flow/observe.h"
#include "flow/record.h"
#include "flow/replay.h"
#include "flow/restore.h"
#include "flow/run.h"

#include <stdio.h>

enum { TEXT_MAX = 64 * 1024 * 1024, SESSION_OPEN_TIMEOUT_MS = 60 * 1000 };

/* ---- what the model is told of a cell ---- */

/* The note of the extractor on a reply, and whether it was cut off. */
static void note_on_reply(const struct rlm_node *node, struct rlm_buf *note)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    rlm_auto_buf struct rlm_buf code = RLM_BUF(TEXT_MAX);
    const rlm_json *metadata = NULL;
    if (arena) {
        rlm_json_parse(arena, node->metadata, &metadata, NULL);
    }
    if (!rlm_json_bool(rlm_json_get(metadata, "tool_code"), false)) {
        rlm_code_extract(node->content, &code, note);
    }
    rlm_str finish = rlm_json_text(rlm_json_get(metadata, "finish_reason"), RLM_STR(""));
    if (rlm_str_is(finish, "length") || rlm_str_is(finish, "max_tokens")) {
        rlm_buf_adds(note, note->len ? " " : "");
        rlm_buf_adds(note, "Your reply was cut off at its length limit; write less at once.");
    }
}

/* The note on the reply whose code has just run, or what ran in its place. */
static void note_on_code(const rlm_graph *g, struct rlm_buf *note)
{
    rlm_str ran = RLM_STR("");
    for (size_t i = g->nodes.len; i-- > 0;) {
        const struct rlm_node *node = g->nodes.items[i];
        if (node->type == RLM_EXEC_ACTION && !ran.len) {
            ran = node->code;
        } else if (node->type == RLM_LLM_OUTPUT) {
            if (!ran.len || rlm_str_eq(ran, node->code)) {
                note_on_reply(node, note);
            } else {
                rlm_buf_adds(note, "Your code was changed before it ran. This is what ran:\n");
                rlm_buf_add_str(note, ran);
            }
            return;
        }
    }
}

/* What is kept with an observation: which names the cell bound and which it left unbound (what is gone when
 * the session is), and what is said of a session that went before. */
static void
put_metadata(const struct rlm_cell_finished *how, const char *lost, struct rlm_buf *metadata)
{
    struct rlm_json_writer w = {.buf = metadata};
    bool bound = how && how->bound && how->bound->count;
    bool unbound = how && how->unbound && how->unbound->count;
    if (!bound && !unbound && !lost) {
        return;
    }
    rlm_json_begin(&w, '{');
    if (bound) {
        rlm_json_key(&w, "bound"), rlm_json_put(&w, how->bound);
    }
    if (unbound) {
        rlm_json_key(&w, "unbound"), rlm_json_put(&w, how->unbound);
    }
    if (lost) {
        rlm_json_member_text(&w, "lost", lost);
    }
    rlm_json_end(&w, '}');
}

/* Appends the observation of a cell that ended without an answer. */
static void append_observation(struct rlm_agent *agent,
                               const char *error_kind,
                               struct rlm_observation *o,
                               const struct rlm_cell_finished *how)
{
    rlm_auto_buf struct rlm_buf content = RLM_BUF(TEXT_MAX);
    rlm_auto_buf struct rlm_buf note = RLM_BUF(TEXT_MAX);
    rlm_auto_buf struct rlm_buf of_code = RLM_BUF(TEXT_MAX);
    rlm_auto_buf struct rlm_buf metadata = RLM_BUF(TEXT_MAX);
    if (agent->run->replay) {
        rlm_replay_take_note(agent);
    }
    put_metadata(how, agent->lost, &metadata);
    if (agent->lost) {
        rlm_buf_adds(&note, agent->lost);
        free(rlm_steal(&agent->lost));
    }
    note_on_code(agent->graph, &of_code);
    rlm_buf_adds(&note, note.len && of_code.len ? " " : "");
    rlm_buf_add_str(&note, rlm_buf_str(&of_code));
    o->note = rlm_buf_str(&note);
    o->max_chars = agent->run->flow->limits.max_output_length;
    rlm_observe(o, &content);
    rlm_error *err = NULL;
    if (rlm_buf_check(&content, &err) < 0 || rlm_buf_check(&note, &err) < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    struct rlm_node node = {
        .type = error_kind ? RLM_ERROR_OUTPUT : RLM_EXEC_OUTPUT,
        .content = rlm_buf_str(&content),
        .output = o->output,
        .error = rlm_str_of(error_kind ? error_kind : ""),
        .metadata = rlm_buf_str(&metadata),
    };
    const struct rlm_node *shown = agent->run->replay ? rlm_replay_observed(agent, &node) : &node;
    if (shown) {
        rlm_agent_append(agent, shown);
        rlm_run_schedule(agent);
    }
}

/* ---- events of a session ---- */

/* What the cell bound is gone when more is asked and the session is: it is kept here, too. */
static void
finish_answered(struct rlm_agent *agent, rlm_str output, const struct rlm_cell_finished *how)
{
    rlm_autofree char *answer = rlm_steal(&agent->answer);
    rlm_auto_buf struct rlm_buf metadata = RLM_BUF(TEXT_MAX);
    rlm_error *err = NULL;
    if (agent->session && !rlm_agent_may_keep_session(agent)) {
        rlm_run_retire_session(agent->run, rlm_steal(&agent->session));
        agent->session_ready = false;
    }
    put_metadata(how, NULL, &metadata);
    if (rlm_buf_check(&metadata, &err) < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    struct rlm_node done = {
        .type = RLM_DONE_OUTPUT,
        .result = {answer, agent->answer_len},
        .reason = RLM_STR("answered"),
        .output = output,
        .metadata = rlm_buf_str(&metadata),
    };
    rlm_agent_finish_with(agent, &done);
}

void rlm_agent_finish_answered(struct rlm_agent *agent, rlm_str output)
{
    finish_answered(agent, output, NULL);
}

static void session_ready(void *arg, rlm_str ready_json)
{
    struct rlm_agent *agent = arg;
    char seed[20];
    rlm_agent_seed(agent, seed);
    agent->session_ready = agent->run->flow->runtime_works = true;
    size_t n_cells;
    const int64_t *cells = rlm_restore_cells(agent->restore, &n_cells);
    if (rlm_record_session(agent, seed, ready_json, cells, n_cells) < 0) {
        return;
    }
    if (agent->restore) {
        rlm_restore_ready(agent);
    }
    rlm_run_schedule(agent); /* its model can be asked meanwhile */
}

static void session_suspended(void *arg, const struct rlm_host_call *calls, size_t n_calls)
{
    struct rlm_agent *agent = arg;
    if (agent->session && agent->restore) {
        rlm_restore_suspended(agent, calls, n_calls);
    } else if (agent->session && agent->run->replay) {
        rlm_replay_session_suspended(agent, calls, n_calls);
    } else if (agent->session) {
        rlm_calls_begin(agent, calls, n_calls);
    }
}

static void session_given_up(void *arg, const int64_t *ids, size_t n_ids)
{
    struct rlm_agent *agent = arg;
    if (agent->session && agent->restore) {
        rlm_restore_given_up(agent, ids, n_ids);
    } else if (agent->session && agent->run->replay) {
        rlm_replay_session_given_up(agent, ids, n_ids);
    } else if (agent->session) {
        rlm_calls_give_up(agent, ids, n_ids);
    }
}

static void session_finished(void *arg, const struct rlm_cell_finished *how)
{
    struct rlm_agent *agent = arg;
    if (!agent->session) {
        return;
    }
    if (agent->restore) {
        rlm_restore_finished(agent, how);
    } else if (agent->run->replay) {
        rlm_replay_session_finished(agent, how);
    } else {
        rlm_agent_end_cell(agent, how);
    }
}

void rlm_agent_end_cell(struct rlm_agent *agent, const struct rlm_cell_finished *how)
{
    agent->cell_open = false;
    agent->again = NULL;
    rlm_calls_cancel(agent, "terminated");
    if (agent->answer) {
        finish_answered(agent, how->output, how);
        return;
    }
    struct rlm_observation o = {
        .output = how->output,
        .omitted_chars = how->omitted_chars,
        .notes = how->notes,
    };
    const char *kind = NULL;
    if (how->error_type) {
        kind = how->clock ? how->clock : "exec";
        o.error = how->traceback.len ? how->traceback : how->error_message;
    }
    rlm_agent_set_state(agent, RLM_AGENT_READY);
    append_observation(agent, kind, &o, how);
}

static void fail_unopened(struct rlm_agent *agent, rlm_str message)
{
    const rlm_flow *flow = agent->run->flow;
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    if (rlm_runtime_opens_soon(flow->runtime) && !flow->runtime_works) {
        rlm_buf_adds(&text, "no session opens (the interpreter must be Python 3.8 or newer): ");
    }
    rlm_buf_add_str(&text, message);
    rlm_agent_fail(agent, rlm_buf_str(&text));
}

static void session_died(void *arg, const struct rlm_session_death *how)
{
    struct rlm_agent *agent = arg;
    if (!agent->session) {
        return;
    }
    bool was_ready = agent->session_ready, in_cell = agent->cell_open;
    if (agent->restore && was_ready) {
        rlm_restore_died(agent, how);
        return;
    }
    rlm_run_close_session(agent->run, rlm_steal(&agent->session));
    agent->session_ready = false;
    if (rlm_agent_finished(agent)) {
        return; /* it was kept; what is asked next finds it gone */
    }
    if (rlm_record_session_ended(agent, how->reason, how->message) < 0) {
        return;
    }
    if (!agent->answer && strcmp(how->reason, "disk") == 0) {
        rlm_error *err = NULL;
        rlm_error_set(&err, RLM_E_IO, "a value of %s: %.*s", agent->graph->agent_id,
                      RLM_FMT(how->message));
        rlm_run_fail(agent->run, err);
        return;
    }
    agent->cell_open = agent->cell_unsent = false;
    agent->again = NULL;
    rlm_replay_forget_held(agent);
    rlm_calls_cancel(agent, "terminated");
    if (agent->answer) {
        rlm_agent_finish_answered(agent, how->output);
        return;
    }
    if (!was_ready) {
        fail_unopened(agent, how->message);
        return;
    }
    rlm_auto_buf struct rlm_buf error = RLM_BUF(TEXT_MAX);
    rlm_buf_addf(&error, "%s%.*s%s", in_cell ? "" : "Before this cell ", RLM_FMT(how->message),
                 in_cell ? "\nYour next code runs in a new session." : ".");
    if (!rlm_restore_after_death(agent, &error)) {
        return;
    }
    if (in_cell) {
        struct rlm_observation o = {.output = how->output, .error = rlm_buf_str(&error)};
        rlm_agent_set_state(agent, RLM_AGENT_READY);
        append_observation(agent, how->reason, &o, NULL);
    } else {
        rlm_restore_tell(agent, rlm_buf_str(&error));
    }
}

static const struct rlm_session_events session_events = {
    .ready = session_ready,
    .suspended = session_suspended,
    .given_up = session_given_up,
    .finished = session_finished,
    .died = session_died,
};

/* ---- opening ---- */

static int try_open_session(struct rlm_agent *agent, rlm_error **err)
{
    agent->sessions++;
    agent->session_ready = false;
    int r = rlm_agent_open_session(agent, &session_events, SESSION_OPEN_TIMEOUT_MS, err);
    if (r < 0) {
        agent->sessions--;
    }
    return r;
}

static void open_session(struct rlm_agent *agent)
{
    rlm_error *err = NULL;
    if (try_open_session(agent, &err) < 0) {
        rlm_agent_fail(agent, rlm_str_of(rlm_error_message(err)));
        rlm_error_free(err);
    }
}

static bool takes_free_slot(struct rlm_agent *agent)
{
    bool free_slot =
        agent->slot == RLM_SLOT_HELD || agent->run->slots_held < agent->run->flow->limits.max_live;
    return free_slot && rlm_agent_take_slot(agent, false);
}

/* A failure is left to the time when the session is needed: to end the agent here would free the ask
 * that is being sent. */
void rlm_agent_prepare(struct rlm_agent *agent)
{
    if (!agent->session && takes_free_slot(agent)) {
        rlm_autoerr rlm_error *ignored = NULL;
        try_open_session(agent, &ignored);
    }
}

bool rlm_agent_awaits_session(struct rlm_agent *agent)
{
    const rlm_flow *flow = agent->run->flow;
    if (flow->runtime_works || !rlm_runtime_opens_soon(flow->runtime)) {
        return false;
    }
    if (!agent->session) {
        if (!takes_free_slot(agent)) {
            return false;
        }
        open_session(agent);
    }
    return !agent->session_ready;
}

/* ---- running the code of a reply ---- */

void rlm_agent_send_cell(struct rlm_agent *agent)
{
    rlm_error *err = NULL;
    rlm_str code = rlm_graph_current(agent->graph)->code;
    rlm_autofree char *recovered = rlm_steal(&agent->recovered);
    agent->cell_unsent = false;
    int r = recovered ? rlm_session_recover(agent->session, rlm_str_of(recovered), &err) : 0;
    if (r == 0) {
        r = rlm_session_start(agent->session, agent->cell, code, &err);
    }
    if (r < 0) {
        rlm_agent_fail(agent, rlm_str_of(rlm_error_message(err)));
        rlm_error_free(err);
    }
}

static void start_cell(struct rlm_agent *agent, const struct rlm_node *from, rlm_str code)
{
    /* An action that was journaled and not started may be changed when the run goes on. */
    if (from->type == RLM_LLM_OUTPUT || !rlm_str_eq(from->code, code)) {
        struct rlm_node action = {.type = RLM_EXEC_ACTION, .code = code};
        if (!rlm_agent_append(agent, &action) || rlm_agent_finished(agent)) {
            return;
        }
    }
    if (!rlm_gate_lets_step(agent)) {
        return; /* between the action and its cell, too */
    }
    rlm_gate_give_up(&agent->gate);
    agent->cell++;
    rlm_str recovered = agent->recovered ? rlm_str_of(agent->recovered) : RLM_STR("");
    if (rlm_record_cell(agent, rlm_graph_current(agent->graph), recovered) < 0) {
        return;
    }
    agent->cell_open = true;
    rlm_agent_set_state(agent, RLM_AGENT_RUNNING);
    if (agent->run->sync && agent->run->journal) {
        agent->cell_unsent = true;
        rlm_run_schedule(agent);
    } else {
        rlm_agent_send_cell(agent);
    }
}

/* A reply without code is an observation that says what to write. */
static void observe_no_code(struct rlm_agent *agent)
{
    struct rlm_node action = {.type = RLM_EXEC_ACTION};
    rlm_auto_buf struct rlm_buf note = RLM_BUF(TEXT_MAX);
    note_on_code(agent->graph, &note);
    struct rlm_node node = {
        .type = RLM_ERROR_OUTPUT, .content = rlm_buf_str(&note), .error = RLM_STR("no_code")};
    if (rlm_agent_append(agent, &action) && rlm_agent_append(agent, &node)) {
        rlm_run_schedule(agent);
    }
}

/* The code does not run; the model is told why. */
static void observe_rejected(struct rlm_agent *agent, rlm_str why)
{
    rlm_gate *gate = rlm_steal(&agent->gate); /* the text is its own */
    struct rlm_node action = {.type = RLM_EXEC_ACTION};
    struct rlm_observation o = {.error = why};
    bool ok = rlm_graph_current(agent->graph)->type == RLM_EXEC_ACTION ||
              rlm_agent_append(agent, &action);
    if (ok && !rlm_agent_finished(agent)) {
        rlm_agent_set_state(agent, RLM_AGENT_READY);
        append_observation(agent, "rejected", &o, NULL);
    }
    rlm_gate_give_up(&gate);
}

void rlm_agent_run_code(struct rlm_agent *agent)
{
    const struct rlm_node *last = rlm_graph_current(agent->graph);
    rlm_str code;
    enum rlm_gate_decision decision = rlm_gate_turn(agent, &code);
    if (decision == RLM_DECISION_NONE || agent->run->stopping || rlm_agent_finished(agent)) {
        return;
    }
    if (decision == RLM_DECISION_SKIP) {
        observe_rejected(agent,
                         RLM_STR("this was looked at, and not run")); /* nothing was appended */
    } else if (decision == RLM_DECISION_REJECT) {
        observe_rejected(agent, code);
    } else if (!last->code.len) {
        observe_no_code(agent);
    } else if (agent->run->replay && rlm_replay_cell(agent, code)) {
        return;
    } else if (!rlm_agent_take_slot(agent, false)) {
        rlm_agent_set_state(agent, RLM_AGENT_QUEUED);
    } else if (!agent->session) {
        rlm_agent_set_state(agent, RLM_AGENT_RUNNING);
        open_session(agent);
    } else if (!agent->session_ready || agent->restore) {
        rlm_agent_set_state(agent, agent->restore ? RLM_AGENT_RESTORING : RLM_AGENT_RUNNING);
    } else {
        start_cell(agent, last, code);
    }
}

/* ---- what was under way when the run was stopped ---- */

bool rlm_agent_goes_on(struct rlm_agent *agent)
{
    if (agent->answer && !agent->cell_open) {
        rlm_agent_finish_answered(agent, RLM_STR("")); /* accepted before */
        return true;
    }
    if (agent->interrupted) {
        rlm_interrupted_step(agent);
        return true;
    }
    if (!rlm_restore_goes_on(agent->restore)) {
        return false;
    }
    if (!rlm_agent_take_slot(agent, true)) {
        rlm_agent_set_state(agent, RLM_AGENT_QUEUED);
    } else if (!agent->session) {
        rlm_agent_set_state(agent, RLM_AGENT_RESTORING);
        open_session(agent);
    }
    return true;
}
