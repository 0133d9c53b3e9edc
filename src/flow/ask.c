/* One model call from its wish to its reply: reserve, wait, send, settle, try again.
 *
 * Every attempt is reserved before it is sent and settled after it, so the ledger holds the worst case
 * at any moment. An ask waits for one of three things: a width (`workers`), what others hold in the
 * ledger, or a provider's pause; `rlm_asks_pump` starts what may start, oldest first.
 */
#include "flow/gate.h"
#include "flow/messages.h"
#include "flow/run.h"
#include "model/backoff.h"

#include <inttypes.h>

enum { ATTEMPTS_KNOWN = 8, ATTEMPTS_NEW = 3, MESSAGES_MAX = 1024 * 1024 * 1024 };

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

/* ---- messages and their bound ---- */

/* The bound of the input: what the provider reported for the part that stands since the last turn,
 * and the bytes of the rest. */
static int64_t bound_of(const struct rlm_agent *agent, const struct rlm_messages *m)
{
    uint64_t hash = 0, new_bytes = m->bytes;
    for (size_t i = 0; agent && agent->known_tokens && i < m->count && i < agent->known_messages;
         i++) {
        hash = rlm_message_hash(hash, &m->items[i]);
        new_bytes -= m->items[i].text.len;
        if (i + 1 == agent->known_messages && hash == agent->known_hash) {
            return rlm_ledger_input_bound(new_bytes, m->count - i - 1, agent->known_tokens);
        }
    }
    return rlm_ledger_input_bound(m->bytes, m->count, 0);
}

/* Remembers what a turn's messages and reply cost, for the next turn's bound. */
static void
remember(struct rlm_ask *ask, const struct rlm_chat_reply *reply, const struct rlm_usage *usage)
{
    struct rlm_agent *agent = ask->options.agent;
    agent->known_tokens = 0;
    if (usage->estimated || reply->tool_code.len || !reply->text.len) {
        return;
    }
    struct rlm_message answer = {.role = RLM_ASSISTANT, .text = reply->text};
    agent->known_hash = rlm_message_hash(ask->messages_hash, &answer);
    agent->known_messages = ask->messages.count + 1;
    agent->known_tokens = usage->input_tokens + usage->output_tokens;
}

static int build_messages(struct rlm_ask *ask, rlm_error **err)
{
    struct rlm_agent *agent = ask->options.agent;
    rlm_arena_free(ask->arena);
    if (!(ask->arena = rlm_arena_new(MESSAGES_MAX))) {
        return rlm_error_nomem(err);
    }
    if (ask->options.turn) {
        struct rlm_messages_options options = {agent->turns_dropped, ask->options.final};
        ask->projected = false;
        int r = rlm_messages_build(agent, &options, ask->arena, &ask->messages, err);
        if (r == 0) {
            ask->input_bound = bound_of(agent, &ask->messages);
            ask->messages_hash = rlm_messages_hash(&ask->messages);
        }
        return r;
    }
    struct rlm_message *prompt = rlm_arena_alloc(ask->arena, sizeof *prompt);
    rlm_str text = rlm_arena_copy(ask->arena, ask->options.prompt);
    if (!prompt || !text.ptr) {
        return rlm_error_nomem(err);
    }
    *prompt = (struct rlm_message){.role = RLM_USER, .text = text};
    ask->options.prompt = text;
    ask->messages = (struct rlm_messages){.items = prompt, .count = 1, .bytes = text.len};
    ask->input_bound = bound_of(NULL, &ask->messages);
    ask->messages_hash = rlm_messages_hash(&ask->messages);
    return 0;
}

/* ---- the list of asks ---- */

int rlm_ask_start(const struct rlm_ask_options *options, struct rlm_ask **ret_ask, rlm_error **err)
{
    rlm_run *run = options->agent->run;
    struct rlm_ask *ask;
    struct rlm_ask **slot = NULL;
    int r = 0;
    if (!RLM_NEW(ask)) {
        return rlm_error_nomem(err);
    }
    ask->options = *options;
    ask->run = run;
    ask->id = ++run->last_ask;
    if ((r = build_messages(ask, err)) < 0 || !(slot = rlm_vec_push(&run->asks))) {
        rlm_arena_free(ask->arena);
        free(ask);
        return r < 0 ? r : rlm_error_nomem(err);
    }
    *slot = ask;
    *ret_ask = ask;
    rlm_run_poke(run);
    return 0;
}

static void ask_free(struct rlm_ask *ask)
{
    rlm_run *run = ask->run;
    for (size_t i = 0; i < run->asks.len; i++) {
        if (run->asks.items[i] == ask) {
            rlm_vec_remove(&run->asks, i);
            break;
        }
    }
    rlm_gate_give_up(&ask->gate);
    rlm_gate_give_up(&ask->projection);
    rlm_arena_free(ask->arena);
    free(ask);
}

bool rlm_ask_is_gated(const struct rlm_ask *ask)
{
    return (ask->gate && !rlm_gate_is_answered(ask->gate)) ||
           (ask->projection && !rlm_gate_is_answered(ask->projection));
}

int64_t rlm_ask_id(const struct rlm_ask *ask)
{
    return ask->id;
}

bool rlm_ask_was_shrunk(const struct rlm_ask *ask)
{
    return ask->held.shrunk;
}

static void fail(struct rlm_ask *ask, const char *reason, const rlm_error *error)
{
    void (*failed)(void *, struct rlm_ask *, const char *, const rlm_error *) = ask->options.failed;
    failed(ask->options.arg, ask, reason, error);
    ask_free(ask);
}

/* ---- settling ---- */

static void count_in_flight(struct rlm_ask *ask, int by)
{
    ask->run->asks_in_flight += by;
    ask->run->single_asks += rlm_model_is_one_at_a_time(ask->options.model->model) ? by : 0;
}

/* Ends the attempt under way in the ledger; `ended`: by an event of its chat, which is still being told.
 * The reply to a turn becomes a node, which settles it in the journal: so no reply is ever paid for
 * and not kept. False: the run has failed. */
static bool
settle(struct rlm_ask *ask, struct rlm_usage *usage, const struct rlm_chat_reply *reply, bool ended)
{
    rlm_run *run = ask->run;
    struct rlm_flow_model *model = ask->options.model;
    usage->cost_nano = rlm_model_cost(model->model, usage, usage->estimated);
    rlm_ledger_settle(&run->ledger, &ask->held, usage);
    if (rlm_ledger_learn(&model->rates, &ask->held, usage)) {
        rlm_run_notice(run,
                       "model %s billed %" PRId64 " input tokens where at most %" PRId64
                       " were expected; its bound is raised by that ratio from now on",
                       rlm_model_name(model->model), usage->input_tokens, ask->held.input_tokens);
    }
    if (ended) {
        rlm_run_drop_chat(run, ask->chat); /* the caller still needs what the chat holds */
    } else {
        rlm_chat_free(ask->chat); /* no event may come to an ask that is gone */
    }
    ask->chat = NULL;
    count_in_flight(ask, -1);
    if (reply && ask->options.turn) {
        return true;
    }
    rlm_graph_add_usage(ask->options.agent->graph, usage);
    return rlm_record_settle(&ask->options, ask->id, usage, reply, ask->held.shrunk) == 0;
}

/* A reservation of which nothing was sent. */
static void settle_unsent(struct rlm_ask *ask)
{
    struct rlm_usage nothing = {0};
    ask->unsent = false;
    rlm_ledger_settle(&ask->run->ledger, &ask->held, &nothing);
    rlm_record_settle(&ask->options, ask->id, &nothing, NULL, false);
    count_in_flight(ask, -1);
}

void rlm_ask_cancel(struct rlm_ask *ask)
{
    if (!ask) {
        return;
    }
    if (ask->chat) {
        struct rlm_traffic traffic = {
            .sent_bytes = rlm_chat_sent_bytes(ask->chat),
            .received_bytes = rlm_chat_received_bytes(ask->chat),
            .pieces = ask->pieces,
            .text_bytes = ask->text_bytes,
        };
        struct rlm_usage usage = traffic.sent_bytes
                                     ? rlm_ledger_judge(NULL, false, &ask->held, &traffic)
                                     : (struct rlm_usage){0};
        settle(ask, &usage, NULL, false);
    } else if (ask->unsent) {
        settle_unsent(ask);
    }
    rlm_run_poke(ask->run);
    ask_free(ask);
}

/* ---- events of an attempt ---- */

static void chat_delta(void *arg, rlm_str text, uint64_t pieces)
{
    struct rlm_ask *ask = arg;
    ask->pieces = pieces;
    ask->text_bytes += text.len;
    /* A server that goes on past its limit is cut. */
    struct rlm_traffic traffic = {.pieces = pieces, .text_bytes = ask->text_bytes};
    if (rlm_ledger_overrun(&ask->held, &traffic)) {
        rlm_chat_cut(ask->chat);
    }
    /* The last, since whoever sees it may end the agent, and the ask with it. */
    if (ask->options.turn && text.len) {
        rlm_run_emit(ask->run, RLM_EVENT_DELTA, ask->options.agent->graph, NULL, text);
    }
}

static void chat_done(void *arg, const struct rlm_chat_reply *reply)
{
    struct rlm_ask *ask = arg;
    struct rlm_traffic traffic = {reply->sent_bytes, reply->received_bytes, ask->pieces,
                                  ask->text_bytes};
    struct rlm_usage usage =
        rlm_ledger_judge(&reply->usage, reply->usage_known, &ask->held, &traffic);
    rlm_backoff_succeeded(rlm_model_backoff(ask->options.model->model));
    ask->options.model->answered = true;
    if (ask->options.turn) {
        ask->options.agent->last_affordable = ask->held.shrunk;
    }
    if (!settle(ask, &usage, reply, true)) {
        return;
    }
    if (ask->options.turn) {
        remember(ask, reply, &usage);
    }
    ask->options.done(ask->options.arg, ask, reply, &usage);
    ask_free(ask);
}

/* What a failed attempt used: nothing if the server refused it, else it may have been billed. */
static struct rlm_usage usage_of_failure(const struct rlm_ask *ask,
                                         const struct rlm_chat_failure *f)
{
    struct rlm_traffic traffic = {f->sent_bytes, f->received_bytes, ask->pieces, ask->text_bytes};
    if (f->usage_known) {
        return rlm_ledger_judge(&f->usage, true, &ask->held, &traffic);
    }
    if (f->http_status >= 400 || !f->sent_bytes) {
        return (struct rlm_usage){.calls = 1};
    }
    return rlm_ledger_judge(NULL, false, &ask->held, &traffic);
}

/* Some servers count the reply's bound into the context: the first answer is to ask for less. */
static bool lower_output(struct rlm_ask *ask, const struct rlm_chat_failure *f)
{
    struct rlm_flow_model *model = ask->options.model;
    int64_t fits = f->context_tokens / 4;
    if (!f->context_tokens || ask->held.output_tokens <= fits || fits < RLM_LEDGER_LEAST_OUTPUT) {
        return false;
    }
    model->max_output = fits;
    rlm_run_notice(ask->run,
                   "model %s has a context of %" PRId64 " tokens: at most %" PRId64
                   " are asked for from now on",
                   rlm_model_name(model->model), f->context_tokens, fits);
    return true;
}

/* Too long for the model: leave the older half of the turns out. False: nothing is left to drop. */
static bool drop_turns(struct rlm_ask *ask)
{
    struct rlm_agent *agent = ask->options.agent;
    int shown = (int)ask->messages.turns_shown;
    if (!ask->options.turn || shown < 2) {
        return false;
    }
    agent->turns_dropped = agent->graph->turns - shown + (shown + 1) / 2;
    rlm_run_notice(
        ask->run,
        "%s: the conversation is longer than the model's context; its oldest turns are left out",
        agent->graph->agent_id);
    return true;
}

/* Until the pause of the server and its own are over. */
static uint64_t wait_ms(const struct rlm_ask *ask, uint64_t now_ms)
{
    uint64_t shared_ms = rlm_backoff_wait_ms(rlm_model_backoff(ask->options.model->model), now_ms);
    uint64_t own_ms = ask->not_before_ms > now_ms ? ask->not_before_ms - now_ms : 0;
    return shared_ms > own_ms ? shared_ms : own_ms;
}

static void chat_failed(void *arg, const struct rlm_chat_failure *f)
{
    struct rlm_ask *ask = arg;
    struct rlm_flow_model *model = ask->options.model;
    struct rlm_usage usage = usage_of_failure(ask, f);
    if (!settle(ask, &usage, NULL, true)) {
        return;
    }
    rlm_error *err = NULL;
    if (rlm_error_code(f->error) == RLM_E_CONTEXT && (lower_output(ask, f) || drop_turns(ask))) {
        if (build_messages(ask, &err) < 0) {
            rlm_run_fail(ask->run, err);
            return;
        }
        rlm_run_poke(ask->run);
        return;
    }
    ask->attempts++;
    if (!f->retry || ask->attempts >= (model->answered ? ATTEMPTS_KNOWN : ATTEMPTS_NEW)) {
        fail(ask, "failed", f->error);
        return;
    }
    struct rlm_backoff *backoff = rlm_model_backoff(model->model);
    uint64_t now = rlm_now_ms();
    if (rlm_backoff_is_shared(rlm_error_code(f->error), f->http_status, f->retry_after_ms)) {
        rlm_backoff_failed(backoff, now, ask->started_ms, f->retry_after_ms, ask->attempts);
    } else {
        ask->not_before_ms = now + rlm_backoff_own_ms(backoff, ask->attempts);
    }
    rlm_run_notice(ask->run, "%s: %s; trying again in %.1f s", ask->options.agent->graph->agent_id,
                   rlm_error_message(f->error), (double)wait_ms(ask, now) / 1e3);
    rlm_run_poke(ask->run);
}

static const struct rlm_chat_events chat_events = {
    .delta = chat_delta,
    .done = chat_done,
    .failed = chat_failed,
};

/* ---- starting ---- */

/* Reserves; a turn that gets less output than it wants is built anew as the last one. */
static enum rlm_reserve_outcome reserve(struct rlm_ask *ask)
{
    rlm_run *run = ask->run;
    struct rlm_ledger_rates *rates = &ask->options.model->rates;
    int64_t wanted = ask->options.model->max_output ? ask->options.model->max_output
                                                    : run->flow->limits.max_output_tokens;
    enum rlm_reserve_outcome r =
        rlm_ledger_reserve(&run->ledger, rates, ask->input_bound, wanted, &ask->held);
    if (r != RLM_RESERVED || !ask->held.shrunk || !ask->options.turn || ask->options.final) {
        return r;
    }
    struct rlm_reservation plain = ask->held;
    rlm_ledger_release(&run->ledger, &plain);
    ask->options.final = true;
    rlm_autoerr rlm_error *err = NULL;
    if (build_messages(ask, &err) < 0) {
        return RLM_RESERVE_WAIT;
    }
    return rlm_ledger_reserve(&run->ledger, rates, ask->input_bound, wanted, &ask->held);
}

static void refuse(struct rlm_ask *ask, bool by_cost)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_error_set(&err, RLM_E_BUDGET, "the call does not fit what is left of %s",
                  by_cost ? "max_cost" : "max_budget");
    fail(ask, by_cost ? "cost" : "budget", err);
}

static void put_question(const struct rlm_ask *ask, struct rlm_buf *json)
{
    struct rlm_json_writer w = {.buf = json};
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "model", ask->options.model->name);
    rlm_json_member_int(&w, "turn", ask->options.turn);
    rlm_json_member_int(&w, "messages", (int64_t)ask->messages.count);
    rlm_json_member_int(&w, "input_tokens", ask->input_bound);
    if (!ask->options.turn) {
        rlm_json_member_str(&w, "prompt", ask->options.prompt);
    }
    rlm_json_end(&w, '}');
}

static void refuse_by_gate(struct rlm_ask *ask)
{
    rlm_gate *gate = rlm_steal(&ask->gate);
    rlm_autoerr rlm_error *err = NULL;
    rlm_str why;
    rlm_gate_decision(gate, &why);
    rlm_error_set(&err, RLM_E_CANCELED, "the model call was refused: %.*s", RLM_FMT(why));
    rlm_gate_give_up(&gate);
    fail(ask, ask->options.turn ? "failed" : "refused", err);
}

/* A gate of its has been passed. */
static void show_queued(struct rlm_ask *ask)
{
    struct rlm_agent *agent = ask->options.agent;
    if (agent->state == RLM_AGENT_GATED && !agent->open_gates) {
        rlm_agent_set_state(agent, ask->options.turn ? RLM_AGENT_QUEUED : RLM_AGENT_WAITING);
    }
}

/* What model_call says to the ask. False: it does not start now; `ret_changed`: the list of asks may have
 * changed. */
static bool pass_gate(struct rlm_ask *ask, bool *ret_changed)
{
    *ret_changed = false;
    if (ask->allowed || !ask->run->flow->hooks.model_call) {
        return true;
    }
    if (!ask->gate) {
        rlm_auto_buf struct rlm_buf json = RLM_BUF(MESSAGES_MAX);
        put_question(ask, &json);
        struct rlm_gate_subject subject = {
            .kind = RLM_GATE_MODEL_CALL,
            .agent = ask->options.agent,
            .of = &ask->options,
            .ask = ask->id,
            .shown = rlm_buf_str(&json),
        };
        if (!rlm_gate_ask(&ask->gate, &subject)) {
            *ret_changed = true;
            return false;
        }
    }
    if (!rlm_gate_is_answered(ask->gate)) {
        return false;
    }
    rlm_str why;
    if (rlm_gate_decision(ask->gate, &why) != RLM_DECISION_ALLOW) {
        refuse_by_gate(ask);
        *ret_changed = true;
        return false;
    }
    rlm_gate_give_up(&ask->gate);
    ask->allowed = true;
    show_queued(ask);
    return true;
}

/* Takes the messages that the hook has made of the engine's; they are not compared in a replay. */
static int take_projection(struct rlm_ask *ask, rlm_error **err)
{
    rlm_str json;
    enum rlm_gate_decision decision = rlm_gate_decision(ask->projection, &json);
    if (decision == RLM_DECISION_REWRITE) {
        int r = rlm_messages_parse(json, ask->arena, &ask->messages, err);
        ask->input_bound = rlm_ledger_input_bound(ask->messages.bytes, ask->messages.count, 0);
        ask->messages_hash = 0;
        return r;
    }
    return decision == RLM_DECISION_REJECT
               ? rlm_error_set(err, RLM_E_CANCELED, "the messages were not made: %.*s",
                               RLM_FMT(json))
               : 0;
}

/* What the hook `messages` says to a turn's; as pass_gate. */
static bool pass_projection(struct rlm_ask *ask, bool *ret_changed)
{
    *ret_changed = false;
    if (ask->projected || !ask->options.turn || !ask->run->flow->hooks.messages) {
        return true;
    }
    if (!ask->projection) {
        rlm_auto_buf struct rlm_buf json = RLM_BUF(MESSAGES_MAX);
        rlm_messages_put(&ask->messages, &json);
        struct rlm_gate_subject subject = {
            .kind = RLM_GATE_MESSAGES,
            .agent = ask->options.agent,
            .final = ask->options.final,
            .shown = rlm_buf_str(&json),
        };
        if (!rlm_gate_ask(&ask->projection, &subject)) {
            *ret_changed = true;
            return false;
        }
    }
    if (!rlm_gate_is_answered(ask->projection)) {
        return false;
    }
    rlm_autoerr rlm_error *err = NULL;
    int r = take_projection(ask, &err);
    rlm_gate_give_up(&ask->projection);
    ask->projected = true;
    if (r < 0) {
        fail(ask, "failed", err);
        *ret_changed = true;
        return false;
    }
    show_queued(ask);
    return true;
}

/* Sends what is reserved. True if the list of asks may have changed. */
static bool send_reserved(struct rlm_ask *ask)
{
    struct rlm_chat_request request = {
        .messages = ask->messages.items,
        .n_messages = ask->messages.count,
        .max_output_tokens = (int)ask->held.output_tokens,
        .agent_id = ask->options.agent->graph->agent_id,
        .turn = ask->options.turn,
        .timeout_ms = ask->run->flow->limits.request_timeout_ms,
    };
    rlm_error *err = NULL;
    ask->pieces = ask->text_bytes = 0;
    ask->started_ms = rlm_now_ms();
    if (rlm_chat_start(ask->options.model->model, &request, &chat_events, ask, &ask->chat, &err) <
        0) {
        settle_unsent(ask);
        fail(ask, "failed", err);
        rlm_error_free(err);
        return true;
    }
    ask->unsent = false;
    if (ask->options.turn) {
        rlm_agent_set_state(ask->options.agent, RLM_AGENT_ASKING);
        rlm_agent_prepare(ask->options.agent);
    }
    return false;
}

/* True if the list of asks may have changed. */
static bool try_start(struct rlm_ask *ask)
{
    rlm_run *run = ask->run;
    bool changed;
    if (!pass_projection(ask, &changed) || !pass_gate(ask, &changed) || run->stopping) {
        return changed;
    }
    if (run->single_asks && rlm_model_is_one_at_a_time(ask->options.model->model)) {
        return false;
    }
    enum rlm_reserve_outcome outcome = reserve(ask);
    if (outcome == RLM_RESERVE_WAIT) {
        return false;
    }
    if (outcome != RLM_RESERVED) {
        refuse(ask, outcome == RLM_RESERVE_COST);
        return true;
    }
    ask->unsent = true;
    count_in_flight(ask, 1);
    if (rlm_record_reserve(&ask->options, ask->id, ask->messages_hash, &ask->held) < 0) {
        return false;
    }
    if (run->sync && run->journal) {
        run->unsent_asks = true;
        rlm_run_poke(run);
        return false;
    }
    return send_reserved(ask);
}

void rlm_asks_send(rlm_run *run)
{
    if (!run->unsent_asks) {
        return;
    }
    run->unsent_asks = false;
    for (size_t i = 0; i < run->asks.len && !run->stopping;) {
        struct rlm_ask *ask = run->asks.items[i];
        i = ask->unsent && send_reserved(ask) ? 0 : i + 1;
    }
}

void rlm_asks_pump(rlm_run *run)
{
    uint64_t now = rlm_now_ms(), soonest = UINT64_MAX;
    for (size_t i = 0; i < run->asks.len && !run->stopping;) {
        struct rlm_ask *ask = run->asks.items[i];
        if (run->asks_in_flight >= run->flow->limits.workers) {
            return;
        }
        bool idle = !ask->chat && !ask->unsent;
        uint64_t wait = idle ? wait_ms(ask, now) : 0;
        soonest = wait && wait < soonest ? wait : soonest;
        /* After a change of the list its order still holds: begin anew. */
        i = idle && !wait && try_start(ask) ? 0 : i + 1;
    }
    if (soonest != UINT64_MAX && !run->stopping) {
        rlm_timer_set(run->ask_timer, soonest);
    }
}
