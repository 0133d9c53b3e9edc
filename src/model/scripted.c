/* The scripted model: replies from a file, for tests, demonstrations and benchmarks. It costs
 * nothing and answers on the next turn of the loop, unless the script asks for a delay. */
#include "base/alloc.h"
#include "model/model.h"
#include "model/script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

struct scripted_model {
    rlm_model base;
    rlm_script *script;
};

struct scripted_chat {
    rlm_chat base;
    const struct rlm_script_entry *entry; /* NULL: none fits */
    rlm_error *problem;
    rlm_defer *answer;
    rlm_timer *wait; /* only with a delay or a stall */
    size_t delivered_bytes;
    bool stalled;
};

enum { STALL_MS = 120 * 1000, DELTAS = 4 };

static rlm_str visible(const struct scripted_chat *c)
{
    return c->entry ? rlm_str_sub(c->entry->body, 0, c->delivered_bytes) : RLM_STR_NONE;
}

/* Moves a cut position back to the start of a character. */
static size_t character_start(rlm_str s, size_t at)
{
    while (at > 0 && at < s.len && ((unsigned char)s.ptr[at] & 0xc0) == 0x80) {
        at--;
    }
    return at;
}

/* Hands the body on in a few pieces, up to `end`. */
static void deliver(struct scripted_chat *c, size_t end)
{
    rlm_str body = c->entry->body;
    for (size_t i = 1; i <= DELTAS && rlm_chat_live(&c->base); i++) {
        size_t to = i == DELTAS ? end : character_start(body, end * i / DELTAS);
        if (to > c->delivered_bytes) {
            rlm_str piece = rlm_str_sub(body, c->delivered_bytes, to);
            c->delivered_bytes = to;
            c->base.received_bytes += piece.len;
            rlm_chat_delta(&c->base, piece);
        }
    }
}

static void set_usage(const struct scripted_chat *c, struct rlm_usage *usage)
{
    const struct rlm_script_entry *e = c->entry;
    usage->input_tokens =
        e->input_tokens >= 0 ? e->input_tokens : (int64_t)(c->base.sent_bytes / 4);
    usage->output_tokens =
        e->output_tokens >= 0 ? e->output_tokens : (int64_t)(c->base.received_bytes / 4);
}

static void finish(struct scripted_chat *c, const char *reason)
{
    struct rlm_chat_reply reply = {
        .text = visible(c),
        .finish_reason = rlm_str_of(reason),
        .usage_known = !c->base.cut,
    };
    if (reply.usage_known) {
        set_usage(c, &reply.usage);
    }
    rlm_chat_finish(&c->base, &reply);
}

static void
fail(struct scripted_chat *c, struct rlm_chat_failure failure, int code, const char *what)
{
    rlm_autoerr rlm_error *err = NULL;
    rlm_error_set(&err, code, "%s: %s (the reply at line %zu says so)", c->base.model->address,
                  what, c->entry->line);
    failure.error = err;
    failure.retry_after_ms = c->entry->retry_after_ms;
    rlm_chat_fail(&c->base, &failure);
}

static void fail_as_scripted(struct scripted_chat *c)
{
    switch (c->entry->fault) {
    case RLM_FAULT_RATE_LIMIT:
        fail(c, (struct rlm_chat_failure){.http_status = 429, .retry = true}, RLM_E_RATE_LIMIT,
             "too many requests (HTTP 429)");
        break;
    case RLM_FAULT_SERVER:
        fail(c, (struct rlm_chat_failure){.http_status = 500, .retry = true}, RLM_E_SERVER,
             "the server failed (HTTP 500)");
        break;
    case RLM_FAULT_AUTH:
        fail(c, (struct rlm_chat_failure){.http_status = 401}, RLM_E_AUTH,
             "the key was refused (HTTP 401)");
        break;
    case RLM_FAULT_CONTEXT:
        fail(c,
             (struct rlm_chat_failure){.http_status = 400,
                                       .context_tokens = c->entry->context_tokens},
             RLM_E_CONTEXT, "the prompt is longer than the model's context");
        break;
    case RLM_FAULT_STALL:
        fail(c, (struct rlm_chat_failure){.retry = true}, RLM_E_TIMEOUT,
             "nothing came within the time limit");
        break;
    case RLM_FAULT_CUT:
    case RLM_FAULT_NONE:
        fail(c, (struct rlm_chat_failure){.retry = true}, RLM_E_UNREACHABLE, "the stream was cut");
        break;
    }
}

static void fail_without_reply(struct scripted_chat *c)
{
    struct rlm_chat_failure failure = {.error = c->problem, .retry_after_ms = -1};
    rlm_chat_fail(&c->base, &failure);
}

static void play(struct scripted_chat *c)
{
    const struct rlm_script_entry *e = c->entry;
    if (!e) {
        fail_without_reply(c);
        return;
    }
    bool breaks_off = e->fault == RLM_FAULT_CUT || e->fault == RLM_FAULT_STALL;
    if (e->fault == RLM_FAULT_NONE) {
        deliver(c, e->body.len);
    } else if (breaks_off && !c->stalled) {
        deliver(c, character_start(e->body, e->body.len / 2));
    }
    if (!rlm_chat_live(&c->base)) {
        return; /* freed, or cut: then the defer is scheduled again */
    }
    if (e->fault == RLM_FAULT_STALL && !c->stalled) {
        c->stalled = true;
        rlm_timer_set(c->wait, e->delay_ms >= 0 ? (uint64_t)e->delay_ms : STALL_MS);
    } else if (e->fault == RLM_FAULT_NONE) {
        finish(c, e->finish ? e->finish : "stop");
    } else {
        fail_as_scripted(c);
    }
}

static void answer(void *arg)
{
    struct scripted_chat *c = arg;
    rlm_chat_enter(&c->base);
    if (c->base.cut) {
        finish(c, "cut");
    } else {
        play(c);
    }
    rlm_chat_leave(&c->base);
}

static void release(struct scripted_chat *c)
{
    rlm_defer_free(c->answer);
    rlm_timer_free(c->wait);
    rlm_error_free(c->problem);
}

static rlm_str last_user_message(const struct rlm_chat_request *request)
{
    for (size_t i = request->n_messages; i-- > 0;) {
        if (request->messages[i].role == RLM_USER) {
            return request->messages[i].text;
        }
    }
    return RLM_STR_NONE;
}

static int scripted_start(rlm_model *m,
                          const struct rlm_chat_request *request,
                          rlm_chat *chat,
                          rlm_error **err)
{
    struct scripted_model *model = (struct scripted_model *)m;
    struct scripted_chat *c = (struct scripted_chat *)chat;
    const char *agent = request->agent_id ? request->agent_id : "";
    int r = rlm_script_find(model->script, agent, request->turn, last_user_message(request),
                            &c->entry, &c->problem);
    if (r == RLM_E_NOMEM) {
        rlm_error_free(c->problem);
        return rlm_error_nomem(err);
    }
    if (r > 0) {
        rlm_error_set(&c->problem, RLM_E_NOT_FOUND,
                      "%s has no reply for agent \"%s\" at turn %d: add an @reply that fits (its "
                      "agent=, turn=, match= and times= decide)",
                      m->address, agent, request->turn);
    }
    const struct rlm_script_entry *e = c->entry;
    bool stalls = e && e->fault == RLM_FAULT_STALL;
    bool waits = e && e->delay_ms > 0 && !stalls;
    c->answer = rlm_defer_new(m->loop, answer, c);
    c->wait = waits || stalls ? rlm_timer_new(m->loop, answer, c) : NULL;
    if (!c->answer || ((waits || stalls) && !c->wait)) {
        release(c);
        return rlm_error_nomem(err);
    }
    if (waits) {
        rlm_timer_set(c->wait, (uint64_t)e->delay_ms);
    } else {
        rlm_defer_schedule(c->answer);
    }
    return 0;
}

static void scripted_cut(rlm_chat *chat)
{
    struct scripted_chat *c = (struct scripted_chat *)chat;
    if (c->wait) {
        rlm_timer_stop(c->wait);
    }
    rlm_defer_schedule(c->answer);
}

static bool scripted_sent(const rlm_chat *chat)
{
    return !((const struct scripted_chat *)chat)->problem;
}

static void scripted_stop(rlm_chat *chat)
{
    release((struct scripted_chat *)chat);
}

static void scripted_free(rlm_model *m)
{
    struct scripted_model *model = (struct scripted_model *)m;
    rlm_script_free(model->script);
    rlm_model_deinit(m);
    free(model);
}

static const struct rlm_model_ops ops = {
    .chat_size = sizeof(struct scripted_chat),
    .start = scripted_start,
    .cut = scripted_cut,
    .stop = scripted_stop,
    .sent = scripted_sent,
    .free = scripted_free,
};

static int read_file(const char *path, struct rlm_buf *into, rlm_error **err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int code = errno == ENOENT || errno == ENOTDIR ? RLM_E_NOT_FOUND : RLM_E_IO;
        return rlm_error_set_errno(err, code, errno, "opening the script \"%s\"", path);
    }
    int r = 0;
    for (;;) {
        char *room = rlm_buf_reserve(into, 65536);
        ssize_t got = room ? read(fd, room, 65536) : 0;
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            r = rlm_error_set_errno(err, RLM_E_IO, errno, "reading the script \"%s\"", path);
        }
        if (got <= 0) {
            break;
        }
        rlm_buf_commit(into, (size_t)got);
    }
    close(fd);
    if (r == 0 && (r = rlm_buf_check(into, err)) < 0) {
        rlm_error_wrap(err, r, "reading the script \"%s\"", path);
    }
    return r;
}

int rlm_model_new_script(
    rlm_loop *loop, const char *name, rlm_str text, rlm_model **ret_model, rlm_error **err)
{
    rlm_script *script = NULL;
    int r = rlm_script_parse(text, &script, err);
    if (r < 0) {
        return rlm_error_wrap(err, r, "script \"%s\"", name);
    }
    rlm_autofree char *address = NULL;
    struct scripted_model *m = NULL;
    if (asprintf(&address, "script:%s", name) < 0) {
        address = NULL;
    }
    if (!address || !RLM_NEW(m)) {
        rlm_script_free(script);
        return rlm_error_nomem(err);
    }
    m->script = script;
    struct rlm_price free_of_charge = {0, 0, 0, 0};
    r = rlm_model_init(&m->base, loop, &ops, address, address, address, &free_of_charge, err);
    if (r < 0) {
        rlm_script_free(script);
        free(m);
        return r;
    }
    *ret_model = &m->base;
    return 0;
}

int rlm_model_new_scripted(rlm_loop *loop, const char *path, rlm_model **ret_model, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf text = RLM_BUF(RLM_SCRIPT_MAX_BYTES + 65536);
    int r = read_file(path, &text, err);
    return r < 0 ? r : rlm_model_new_script(loop, path, rlm_buf_str(&text), ret_model, err);
}
