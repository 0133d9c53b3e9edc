/* A model that the embedding program answers for: each chat is a call that it answers when it likes. */
#include "base/alloc.h"
#include "base/link.h"
#include "model/model.h"

/* Lives until it has been answered, also when nobody waits any more; at most as long as the model. */
struct rlm_model_call {
    struct rlm_link link;     /* in the model's list */
    struct custom_chat *chat; /* NULL once nobody waits */
    void (*cancelled)(void *arg);
    void *cancelled_arg;
    bool *
        gone; /* set when it is freed while a piece of its text is handed on; NULL at other times */
};

struct custom_model {
    rlm_model base;
    void (*chat)(void *arg, rlm_model_call *call, const struct rlm_model_request *request);
    void *arg;
    struct rlm_link *calls;
};

struct custom_chat {
    rlm_chat base;
    rlm_model_call *call; /* NULL once it is answered */
    rlm_defer *end;
    struct rlm_buf text;
    char *finish_reason;
    struct rlm_chat_reply reply;
    struct rlm_chat_failure failure; /* `error`: owned */
    bool failed;
    bool starting; /* rlm_chat_start has not returned: no event may come */
};

enum { TEXT_MAX = 1 << 30 };

static const char *const roles[] = {
    [RLM_SYSTEM] = "system",
    [RLM_USER] = "user",
    [RLM_ASSISTANT] = "assistant",
};

/* Chats end on the loop, whenever the answer came. */
static void end(void *arg)
{
    struct custom_chat *c = arg;
    rlm_autoerr rlm_error *nomem = NULL;
    if (!c->failed && rlm_buf_check(&c->text, &nomem) < 0) {
        c->failed = true;
        c->failure = (struct rlm_chat_failure){.retry_after_ms = -1};
    }
    if (c->failed) {
        struct rlm_chat_failure failure = c->failure;
        failure.error = failure.error ? failure.error : nomem;
        rlm_chat_fail(&c->base, &failure);
        return;
    }
    c->reply.text = rlm_buf_str(&c->text);
    c->reply.finish_reason = rlm_str_of(c->base.cut        ? "cut"
                                        : c->finish_reason ? c->finish_reason
                                                           : "stop");
    rlm_chat_finish(&c->base, &c->reply);
}

static void call_free(rlm_model_call *call)
{
    rlm_link_remove(&call->link);
    if (call->gone) {
        *call->gone = true;
    }
    free(call);
}

/* Nobody waits any more. */
static void give_up(struct custom_chat *c)
{
    rlm_model_call *call = rlm_steal(&c->call);
    if (call) {
        call->chat = NULL;
        if (call->cancelled) {
            call->cancelled(call->cancelled_arg);
        }
    }
}

static int call_program(struct custom_model *m,
                        const struct rlm_chat_request *request,
                        rlm_model_call *call,
                        rlm_error **err)
{
    rlm_autofree struct rlm_model_message *messages =
        rlm_calloc(request->n_messages ? request->n_messages : 1, sizeof *messages);
    if (!messages) {
        return rlm_error_nomem(err);
    }
    for (size_t i = 0; i < request->n_messages; i++) {
        messages[i] =
            (struct rlm_model_message){roles[request->messages[i].role], request->messages[i].text};
    }
    struct rlm_model_request asked = {
        .messages = messages,
        .n_messages = request->n_messages,
        .max_output_tokens = request->max_output_tokens,
        .agent_id = request->agent_id ? request->agent_id : "",
        .turn = request->turn,
    };
    m->chat(m->arg, call, &asked);
    return 0;
}

static void release(struct custom_chat *c)
{
    rlm_defer_free(c->end);
    rlm_buf_deinit(&c->text);
    rlm_error_free(c->failure.error);
    free(c->finish_reason);
}

static int
custom_start(rlm_model *m, const struct rlm_chat_request *request, rlm_chat *chat, rlm_error **err)
{
    struct custom_chat *c = (struct custom_chat *)chat;
    rlm_model_call *call;
    c->text = RLM_BUF(TEXT_MAX);
    c->end = rlm_defer_new(m->loop, end, c);
    if (!c->end || !RLM_NEW(call)) {
        release(c);
        return rlm_error_nomem(err);
    }
    c->call = call;
    call->chat = c;
    rlm_link_add(&((struct custom_model *)m)->calls, &call->link);
    c->starting = true;
    int r = call_program((struct custom_model *)m, request, call, err);
    c->starting = false;
    if (r < 0) {
        call_free(call);
        release(c);
    }
    return r;
}

static void custom_cut(rlm_chat *chat)
{
    struct custom_chat *c = (struct custom_chat *)chat;
    give_up(c);
    rlm_defer_schedule(c->end);
}

static void custom_stop(rlm_chat *chat)
{
    struct custom_chat *c = (struct custom_chat *)chat;
    give_up(c);
    release(c);
}

static void custom_free(rlm_model *m)
{
    struct custom_model *custom = (struct custom_model *)m;
    while (custom->calls) {
        call_free((rlm_model_call *)custom->calls);
    }
    rlm_model_deinit(m);
    free(m);
}

static const struct rlm_model_ops ops = {
    .chat_size = sizeof(struct custom_chat),
    .start = custom_start,
    .cut = custom_cut,
    .stop = custom_stop,
    .free = custom_free,
};

int rlm_model_new_custom(rlm_loop *loop,
                         const struct rlm_custom_model_options *options,
                         rlm_model **ret_model,
                         rlm_error **err)
{
    struct custom_model *m;
    if (!options->name || !options->name[0] || !options->chat) {
        return rlm_error_set(err, RLM_E_INVAL, "a custom model needs a name and a chat callback");
    }
    if (!RLM_NEW(m)) {
        return rlm_error_nomem(err);
    }
    m->chat = options->chat;
    m->arg = options->arg;
    int r = rlm_model_init(&m->base, loop, &ops, options->name, "custom", options->name,
                           &options->price, err);
    if (r < 0) {
        free(m);
        return r;
    }
    m->base.one_at_a_time = options->one_at_a_time;
    *ret_model = &m->base;
    return 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

bool rlm_model_call_delta(rlm_model_call *call, rlm_str piece)
{
    struct custom_chat *c = call->chat;
    if (!c) {
        return false;
    }
    rlm_buf_add_str(&c->text, piece);
    c->base.received_bytes += piece.len;
    if (c->starting) {
        return true;
    }
    bool gone = false, *outer = call->gone;
    call->gone = &gone;
    rlm_chat_enter(&c->base);
    rlm_chat_delta(&c->base, piece);
    rlm_chat_leave(&c->base); /* which may free the chat */
    if (gone) {               /* it was cut, and answered by whoever heard of that */
        if (outer) {
            *outer = true;
        }
        return false;
    }
    call->gone = outer;
    return call->chat != NULL;
}

/* The answer ends the object; NULL: nobody waits. */
static struct custom_chat *answer(rlm_model_call *call)
{
    struct custom_chat *c = call->chat;
    if (c) {
        c->call = NULL;
        rlm_defer_schedule(c->end);
    }
    call_free(call);
    return c;
}

void rlm_model_call_return(rlm_model_call *call, const struct rlm_model_reply *reply)
{
    struct custom_chat *c = answer(call);
    if (!c) {
        return;
    }
    if (reply->text.len) { /* the whole, whatever was streamed before */
        rlm_buf_clear(&c->text);
        rlm_buf_add_str(&c->text, reply->text);
        c->base.received_bytes = reply->text.len;
    }
    c->finish_reason = reply->finish_reason ? rlm_strdup(reply->finish_reason) : NULL;
    c->reply.usage_known = reply->input_tokens >= 0 && reply->output_tokens >= 0;
    if (c->reply.usage_known) {
        c->reply.usage = (struct rlm_usage){
            .input_tokens = reply->input_tokens,
            .cached_tokens = reply->cached_tokens,
            .output_tokens = reply->output_tokens,
        };
    }
}

static bool is_worth_retrying(enum rlm_code code)
{
    return code == RLM_E_RATE_LIMIT || code == RLM_E_UNREACHABLE || code == RLM_E_TIMEOUT ||
           code == RLM_E_SERVER;
}

void rlm_model_call_fail(rlm_model_call *call, enum rlm_code code, const char *message)
{
    struct custom_chat *c = answer(call);
    if (!c) {
        return;
    }
    c->failed = true;
    c->failure = (struct rlm_chat_failure){.retry = is_worth_retrying(code), .retry_after_ms = -1};
    rlm_error_set(&c->failure.error, code, "%s", message);
}

void rlm_model_call_on_cancel(rlm_model_call *call, void (*cancelled)(void *arg), void *arg)
{
    call->cancelled = cancelled;
    call->cancelled_arg = arg;
}
