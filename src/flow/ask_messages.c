/* What an ask sends, and the bound of what that costs. */
#include "flow/ask.h"

enum { MESSAGES_MAX = 1024 * 1024 * 1024 };

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

void rlm_ask_remember(struct rlm_ask *ask,
                      const struct rlm_chat_reply *reply,
                      const struct rlm_usage *usage)
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

int rlm_ask_build(struct rlm_ask *ask, rlm_error **err)
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
