/* The questions to the program before an ask is reserved and sent. */
#include "flow/ask.h"
#include "flow/gate.h"

enum { MESSAGES_MAX = 1024 * 1024 * 1024 };

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
    rlm_ask_fail(ask, ask->options.turn ? "failed" : "refused", err);
}

/* A gate of its has been passed. */
static void show_queued(struct rlm_ask *ask)
{
    struct rlm_agent *agent = ask->options.agent;
    if (agent->state == RLM_AGENT_GATED && !agent->open_gates) {
        rlm_agent_set_state(agent, ask->options.turn ? RLM_AGENT_QUEUED : RLM_AGENT_WAITING);
    }
}

/* What model_call says to the ask; as rlm_ask_pass_gates. */
static bool pass_model_call(struct rlm_ask *ask, bool *ret_changed)
{
    *ret_changed = false;
    if (ask->allowed || !ask->run->flow->hooks.model_call) {
        return true;
    }
    if (!ask->gate) {
        rlm_auto_buf struct rlm_buf json = RLM_BUF(MESSAGES_MAX);
        put_question(ask, &json);
        if (!rlm_gate_can_show(ask->options.agent, &json)) {
            return false;
        }
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

/* What the hook `messages` says to a turn's; as rlm_ask_pass_gates. */
static bool pass_projection(struct rlm_ask *ask, bool *ret_changed)
{
    *ret_changed = false;
    if (ask->projected || !ask->options.turn || !ask->run->flow->hooks.messages) {
        return true;
    }
    if (!ask->projection) {
        rlm_auto_buf struct rlm_buf json = RLM_BUF(MESSAGES_MAX);
        rlm_messages_put(&ask->messages, &json);
        if (!rlm_gate_can_show(ask->options.agent, &json)) {
            return false;
        }
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
        rlm_ask_fail(ask, "failed", err);
        *ret_changed = true;
        return false;
    }
    show_queued(ask);
    return true;
}

bool rlm_ask_pass_gates(struct rlm_ask *ask, bool *ret_changed)
{
    return pass_projection(ask, ret_changed) && pass_model_call(ask, ret_changed);
}
