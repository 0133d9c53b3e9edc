/* What the engine asks of Python while a run goes on. Called by the engine's thread, or by one that holds its
 * lock; the GIL is not held, or not needed. */
#include "answer.h"
#include "run.h"

#include <stdlib.h>

static bool set_messages(struct request *r, const struct rlm_model_request *asked)
{
    r->messages = calloc(asked->n_messages ? asked->n_messages : 1, sizeof *r->messages);
    for (size_t i = 0; r->messages && i < asked->n_messages; i++) {
        struct rlm_str text = asked->messages[i].text;
        r->messages[i] = (struct message){asked->messages[i].role, malloc(text.len + 1), text.len};
        if (!r->messages[i].text) {
            return false;
        }
        memcpy(r->messages[i].text, text.ptr, text.len);
        r->n_messages++;
    }
    return r->messages != NULL;
}

/* Puts the request with its answer; without memory the call fails. */
static void put(struct run_object *self, struct request *r, struct answer *a, bool whole)
{
    if (r && a && whole) {
        r->answer = a;
        port_put(self->port, r);
        return;
    }
    if (a) {
        answer_refuse(a, "out of memory");
        answer_unref(a);
    }
    if (r) {
        request_free(r);
    }
}

void run_on_chat(void *arg, rlm_model_call *call, const struct rlm_model_request *asked)
{
    struct callee *callee = arg;
    struct request *r = request_new(REQUEST_CHAT, asked->agent_id);
    struct answer *a = answer_new_model(callee->run->port, call);
    if (!a) {
        rlm_model_call_fail(call, RLM_E_NOMEM, "out of memory");
    }
    bool whole = r && set_messages(r, asked);
    if (r) {
        r->index = callee->index;
        r->max_output_tokens = asked->max_output_tokens;
        r->turn = asked->turn;
    }
    put(callee->run, r, a, whole);
}

void run_on_tool(void *arg, rlm_tool_call *call, struct rlm_str arguments_json)
{
    struct callee *callee = arg;
    struct request *r = request_new(REQUEST_TOOL, rlm_tool_call_agent_id(call));
    struct answer *a = answer_new_tool(callee->run->port, call);
    if (!a) {
        rlm_tool_call_fail(call, "out of memory");
    }
    bool whole = r && request_set_text(r, arguments_json);
    if (r) {
        r->index = callee->index;
    }
    put(callee->run, r, a, whole);
}

static void put_gate(struct run_object *self,
                     enum request_kind kind,
                     rlm_gate *gate,
                     const rlm_graph *g,
                     struct rlm_str text,
                     bool replay)
{
    struct request *r = request_new(kind, rlm_graph_agent_id(g));
    struct answer *a = answer_new_gate(self->port, gate);
    if (!a) {
        rlm_gate_reject(gate, NULL, (struct rlm_str){"out of memory", 13});
    }
    bool whole = r && request_set_text(r, text);
    if (r) {
        r->replay = replay;
    }
    put(self, r, a, whole);
}

static void on_exec_turn(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str code, bool replay)
{
    put_gate(arg, REQUEST_EXEC_TURN, gate, g, code, replay);
}

static void
on_messages(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str messages_json, bool final)
{
    put_gate(arg, REQUEST_MESSAGES, gate, g, messages_json, final);
}

static void on_next_step(void *arg, rlm_gate *gate, rlm_graph *g)
{
    struct run_object *self = arg;
    if (!(self->hooks & HOOK_NEXT_STEP)) {
        rlm_gate_allow(gate, NULL);
        return;
    }
    put_gate(arg, REQUEST_NEXT_STEP, gate, g, (struct rlm_str){"", 0}, false);
}

static void on_event(void *arg, rlm_run *run, const struct rlm_event *event)
{
    (void)run;
    struct run_object *self = arg;
    if (event->type > RLM_EVENT_REMOVE_CHILD || !(self->hooks & HOOK_EVENTS)) {
        return;
    }
    struct request *r = request_new(REQUEST_EVENT, "");
    char *line = r ? rlm_event_json(event) : NULL;
    if (!line) {
        free(r);
        return; /* what is only shown may be lost without memory */
    }
    r->text = line;
    r->text_len = strlen(line);
    port_put(self->port, r);
}

static void on_ended(void *arg, rlm_run *run)
{
    (void)run;
    struct run_object *self = arg;
    port_put(self->port, request_new(REQUEST_ENDED, ""));
}

const struct rlm_run_events run_events = {.event = on_event, .ended = on_ended};

struct rlm_flow_hooks run_hooks(struct run_object *self)
{
    struct rlm_flow_hooks hooks = RLM_FLOW_HOOKS_INIT;
    hooks.arg = self;
    hooks.exec_turn = self->hooks & HOOK_EXEC_TURN ? on_exec_turn : NULL;
    hooks.messages = self->hooks & HOOK_MESSAGES ? on_messages : NULL;
    hooks.next_step = on_next_step;
    return hooks;
}
