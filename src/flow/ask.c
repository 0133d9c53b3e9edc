#include "flow/ask.h"

#include "flow/gate.h"
#include "flow/record.h"
#include "model/backoff.h"

#include <inttypes.h>

enum { ATTEMPTS_KNOWN = 8, ATTEMPTS_NEW = 3 };

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
    if ((r = rlm_ask_build(ask, err)) < 0 || !(slot = rlm_vec_push(&run->asks))) {
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

void rlm_ask_fail(struct rlm_ask *ask, const char *reason, const rlm_error *error)
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
        rlm_ask_remember(ask, reply, &usage);
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
        if (rlm_ask_build(ask, &err) < 0) {
            rlm_run_fail(ask->run, err);
            return;
        }
        rlm_run_poke(ask->run);
        return;
    }
    ask->attempts++;
    if (!f->retry || ask->attempts >= (model->answered ? ATTEMPTS_KNOWN : ATTEMPTS_NEW)) {
        rlm_ask_fail(ask, "failed", f->error);
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

/* Reserves. 1: the turn gets less output than it wants, and is built anew as the last one: its hooks have
 * not seen these messages. */
static int reserve(struct rlm_ask *ask, enum rlm_reserve_outcome *ret_outcome, rlm_error **err)
{
    struct rlm_ledger *ledger = &ask->run->ledger;
    int64_t wanted = ask->options.model->max_output ? ask->options.model->max_output
                                                    : ask->run->flow->limits.max_output_tokens;
    *ret_outcome = rlm_ledger_reserve(ledger, &ask->options.model->rates, ask->input_bound, wanted,
                                      &ask->held);
    if (*ret_outcome != RLM_RESERVED || !ask->held.shrunk || !ask->options.turn ||
        ask->options.final) {
        return 0;
    }
    rlm_ledger_release(ledger, &ask->held);
    ask->options.final = true;
    int r = rlm_ask_build(ask, err);
    return r < 0 ? r : 1;
}

static void refuse(struct rlm_ask *ask, bool by_cost)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_error_set(&err, RLM_E_BUDGET, "the call does not fit what is left of %s",
                  by_cost ? "max_cost" : "max_budget");
    rlm_ask_fail(ask, by_cost ? "cost" : "budget", err);
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
        rlm_ask_fail(ask, "failed", err);
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

/* True if the list of asks may have changed, or this one is to be tried again. */
static bool try_start(struct rlm_ask *ask)
{
    rlm_run *run = ask->run;
    bool changed;
    if (!rlm_ask_pass_gates(ask, &changed) || run->stopping) {
        return changed;
    }
    if (run->single_asks && rlm_model_is_one_at_a_time(ask->options.model->model)) {
        return false;
    }
    enum rlm_reserve_outcome outcome;
    rlm_error *err = NULL;
    int r = reserve(ask, &outcome, &err);
    if (r < 0) {
        rlm_run_fail(run, err);
        return false;
    }
    if (r > 0) {
        return true;
    }
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
