#include "model/remote_chat.h"

#include "base/alloc.h"
#include "model/hub.h"

enum {
    MAX_REQUEST_BYTES = 512 * 1024 * 1024,
    MAX_ANSWER_BYTES = 256 * 1024 * 1024,
    MAX_REFUSAL_BYTES = 1024 * 1024,
    MAX_EVENT_BYTES = 32 * 1024 * 1024,
};

static struct remote_model *model_of(const struct remote_chat *c)
{
    return (struct remote_model *)c->base.model;
}

static bool is_success(int status)
{
    return status >= 200 && status < 300;
}

/* ---- ends ---- */

static void drop_call(struct remote_chat *c)
{
    c->sent |= c->call && rlm_http_call_sent(c->call);
    rlm_http_call_free(c->call);
    c->call = NULL;
}

static void finish(struct remote_chat *c, const char *reason)
{
    rlm_auto_buf struct rlm_buf code = RLM_BUF(RLM_STREAM_MAX_TEXT);
    if (rlm_stream_tool_code(&c->stream, &code, NULL) < 0) {
        rlm_autoerr rlm_error *err = NULL;
        rlm_error_nomem(&err);
        struct rlm_chat_failure failure = {.error = err, .retry_after_ms = -1};
        rlm_chat_fail(&c->base, &failure);
        return;
    }
    bool known = c->stream.usage_known && !c->base.cut;
    struct rlm_chat_reply reply = {
        .text = rlm_buf_str(&c->stream.text),
        .tool_code = rlm_buf_str(&code),
        .finish_reason = rlm_str_of(reason),
        .usage_known = known,
        .usage = known ? c->stream.usage : (struct rlm_usage){0},
        .cache_write_tokens = known ? c->stream.cache_write_tokens : 0,
    };
    rlm_chat_finish(&c->base, &reply);
}

/* Takes the error. */
static void fail(struct remote_chat *c, struct rlm_chat_failure *failure, rlm_error *take_error)
{
    rlm_autoerr rlm_error *masked = NULL;
    rlm_remote_mask(model_of(c), take_error, &masked);
    failure->error = masked;
    failure->usage_known = c->stream.usage_known;
    if (failure->usage_known) {
        failure->usage = c->stream.usage;
        failure->cache_write_tokens = c->stream.cache_write_tokens;
    }
    drop_call(c);
    rlm_chat_fail(&c->base, failure);
}

static void fail_refused(struct remote_chat *c,
                         const struct rlm_refusal *refusal,
                         int status,
                         int64_t retry_after_ms)
{
    struct rlm_chat_failure failure = {
        .http_status = status,
        .retry = refusal->retry,
        .retry_after_ms = retry_after_ms,
        .context_tokens = refusal->context_tokens,
    };
    rlm_error *err = NULL;
    rlm_remote_explain(model_of(c), refusal, &err);
    fail(c, &failure, err);
}

/* The stream or the answer is broken: `take_error` says how. */
static void fail_broken(struct remote_chat *c, int status, bool final, rlm_error *take_error)
{
    int code = rlm_error_code(take_error);
    struct rlm_chat_failure failure = {
        .http_status = status,
        .retry =
            !final && (code == RLM_E_UNREACHABLE || code == RLM_E_TIMEOUT || code == RLM_E_SERVER),
        .retry_after_ms = -1,
    };
    fail(c, &failure, take_error);
}

/* ---- requests ---- */

static int send(struct remote_chat *c, rlm_error **err);

static int write_options(struct remote_chat *c, rlm_error **err)
{
    struct remote_model *m = model_of(c);
    c->sent_completion_tokens = m->max_completion_tokens;
    c->sent_stream_options = m->stream && !m->no_stream_options;
    c->sent_temperature = m->temperature >= 0 && !m->no_temperature;
    struct rlm_dialect_options options = {
        .model = m->base.name,
        .max_output_tokens = c->max_output_tokens,
        .temperature = c->sent_temperature ? m->temperature : -1,
        .reasoning_effort = m->reasoning_effort,
        .stream = m->stream,
        .stream_options = c->sent_stream_options,
        .max_completion_tokens = c->sent_completion_tokens,
        .extra = m->extra,
    };
    c->body.len = c->messages_len;
    struct rlm_json_writer w = {.buf = &c->body, .comma = c->messages_len > 1};
    m->dialect->write_options(&w, &options);
    rlm_json_end(&w, '}');
    int r = rlm_buf_check(&c->body, err);
    return r < 0 ? rlm_error_wrap(err, r, "the request to %s", m->base.address) : 0;
}

/* A refusal that names a field of ours costs nothing: the request is sent again without it, and the
 * model remembers. False when there is nothing (more) to change. */
static bool adapt(struct remote_chat *c, const struct rlm_refusal *refusal)
{
    struct remote_model *m = model_of(c);
    if (refusal->code == RLM_E_CONTEXT) {
        return false;
    }
    bool names_tokens = c->sent_completion_tokens ? refusal->names_max_completion_tokens
                                                  : refusal->names_max_tokens;
    if (names_tokens && !c->changed_tokens && m->dialect == &rlm_dialect_openai) {
        c->changed_tokens = true;
        m->max_completion_tokens = !c->sent_completion_tokens;
        return true;
    }
    if (refusal->names_stream_options && c->sent_stream_options && !c->changed_stream_options) {
        c->changed_stream_options = true;
        m->no_stream_options = true;
        return true;
    }
    if (refusal->names_temperature && c->sent_temperature && !c->changed_temperature) {
        c->changed_temperature = true;
        m->no_temperature = true;
        return true;
    }
    return false;
}

static void send_again(struct remote_chat *c)
{
    rlm_error *err = NULL;
    drop_call(c);
    rlm_buf_clear(&c->answer);
    c->form = FORM_UNKNOWN;
    int r = write_options(c, &err);
    if (r < 0 || (r = send(c, &err)) < 0) {
        fail_broken(c, 0, true, err);
    }
}

/* ---- answers ---- */

static void on_piece(void *arg, rlm_str text)
{
    struct remote_chat *c = arg;
    c->base.received_bytes = c->stream.received_bytes;
    rlm_chat_delta(&c->base, text);
}

static int on_event(void *arg, rlm_str event, rlm_str data, rlm_error **err)
{
    struct remote_chat *c = arg;
    int r = rlm_dialect_event(model_of(c)->dialect, &c->stream, event, data, err);
    if (r < 0) {
        return r;
    }
    return !rlm_chat_live(&c->base) || c->stream.refused || c->stream.over;
}

/* A server that ignored "stream" is known by the type of its answer, or by how it begins. */
static void find_form(struct remote_chat *c, const struct rlm_http_answer *answer, rlm_str chunk)
{
    size_t i = 0;
    while (i < chunk.len && strchr(" \t\r\n", chunk.ptr[i])) {
        i++;
    }
    bool json = strstr(answer->content_type, "json") || (i < chunk.len && chunk.ptr[i] == '{');
    bool page = strcmp(answer->content_type, "text/html") == 0;
    bool events = strcmp(answer->content_type, "text/event-stream") == 0;
    c->form = is_success(answer->status) && (events || (!json && !page)) ? FORM_EVENTS : FORM_WHOLE;
}

static void settle_events(struct remote_chat *c, const struct rlm_http_answer *answer, int result)
{
    if (!rlm_chat_live(&c->base)) {
        return;
    }
    if (result < 0) {
        rlm_error_wrap(&c->problem, result, "%s", c->base.model->address);
        fail_broken(c, answer->status, false, rlm_steal(&c->problem));
    } else if (c->stream.refused) {
        fail_refused(c, &c->stream.refusal, c->stream.refusal.status, answer->retry_after_ms);
    } else if (c->stream.over) {
        rlm_http_expect_end(c->call);
    }
}

static void check_progress(struct remote_chat *c, const struct rlm_http_answer *answer)
{
    int limit_ms = model_of(c)->first_byte_timeout_ms;
    uint64_t now_ms = rlm_now_ms();
    if (c->base.pieces != c->progress_pieces) {
        c->progress_pieces = c->base.pieces;
        c->progress_ms = now_ms;
    } else if (limit_ms > 0 && now_ms - c->progress_ms > (uint64_t)limit_ms) {
        rlm_error *err = NULL;
        rlm_error_set(&err, RLM_E_TIMEOUT,
                      "%s: nothing but keep-alives came for %g s (the first-byte timeout)",
                      c->base.model->address, (double)limit_ms / 1000);
        fail_broken(c, answer->status, false, err);
    }
}

static void on_data(void *arg, const struct rlm_http_answer *answer, rlm_str chunk)
{
    struct remote_chat *c = arg;
    rlm_chat_enter(&c->base);
    if (c->form == FORM_UNKNOWN) {
        find_form(c, answer, chunk);
    }
    if (c->form == FORM_WHOLE) {
        rlm_buf_add_str(&c->answer, chunk); /* its maximum is looked at in the end */
    } else if (!c->stream.over) {
        int r = rlm_sse_feed(&c->sse, chunk, on_event, c, &c->problem);
        settle_events(c, answer, r);
        if (rlm_chat_live(&c->base) && !c->stream.over) {
            check_progress(c, answer);
        }
    }
    rlm_chat_leave(&c->base);
}

static void end_refused(struct remote_chat *c, const struct rlm_http_answer *answer)
{
    struct rlm_refusal refusal = {0};
    rlm_str body = rlm_buf_str(&c->answer);
    body.len = body.len < MAX_REFUSAL_BYTES ? body.len : MAX_REFUSAL_BYTES;
    if (rlm_refusal_of_answer(answer->status, body, &refusal) < 0) {
        rlm_error *err = NULL;
        rlm_error_nomem(&err);
        fail_broken(c, answer->status, true, err);
        return;
    }
    if (adapt(c, &refusal)) {
        send_again(c);
    } else {
        fail_refused(c, &refusal, answer->status, answer->retry_after_ms);
    }
    rlm_refusal_deinit(&refusal);
}

static int read_whole(struct remote_chat *c, const struct rlm_http_answer *answer)
{
    int r = rlm_buf_check(&c->answer, &c->problem);
    if (r < 0) {
        return r;
    }
    if (strcmp(answer->content_type, "text/html") == 0) {
        return rlm_error_set(&c->problem, RLM_E_NOT_FOUND,
                             "the answer is a web page, not JSON; the base URL may lack /v1");
    }
    /* A reply that comes as one is no stream: it is not handed on in pieces. */
    c->stream.piece = NULL;
    r = rlm_dialect_whole(model_of(c)->dialect, &c->stream, rlm_buf_str(&c->answer), &c->problem);
    c->base.received_bytes = c->stream.received_bytes;
    return r;
}

static void end_whole(struct remote_chat *c, const struct rlm_http_answer *answer)
{
    int r = read_whole(c, answer);
    if (r < 0) {
        rlm_error_wrap(&c->problem, r, "%s", c->base.model->address);
        fail_broken(c, answer->status, false, rlm_steal(&c->problem));
    } else if (c->stream.refused) {
        fail_refused(c, &c->stream.refusal, c->stream.refusal.status, answer->retry_after_ms);
    } else {
        finish(c, c->stream.finish_reason);
    }
}

static void end_events(struct remote_chat *c,
                       const struct rlm_http_answer *answer,
                       const rlm_error *problem,
                       bool final)
{
    if (!c->stream.over && !problem) {
        /* What is incomplete here is cut, not wrong. */
        rlm_sse_end(&c->sse, on_event, c, NULL);
    }
    if (!rlm_chat_live(&c->base)) {
        return;
    }
    if (c->stream.refused) {
        fail_refused(c, &c->stream.refusal, c->stream.refusal.status, answer->retry_after_ms);
        return;
    }
    if (c->stream.over || c->stream.finished) {
        finish(c, c->stream.finish_reason);
        return;
    }
    rlm_error *err = NULL;
    if (problem) {
        rlm_error_set(&err, rlm_error_code(problem), "%s", rlm_error_message(problem));
    } else {
        rlm_error_set(&err, RLM_E_UNREACHABLE,
                      "%s: the stream was cut after %llu bytes: it ended without a finish reason",
                      c->base.model->address, (unsigned long long)answer->body_bytes);
    }
    fail_broken(c, answer->status, final, err);
}

static void
on_end(void *arg, const struct rlm_http_answer *answer, const rlm_error *problem, bool final)
{
    struct remote_chat *c = arg;
    rlm_chat_enter(&c->base);
    if (answer->status && !is_success(answer->status)) {
        end_refused(c, answer); /* a body that is cut says less, but the status says most */
    } else if (c->form == FORM_EVENTS) {
        end_events(c, answer, problem, final);
    } else if (problem) {
        rlm_error *err = NULL;
        rlm_error_set(&err, rlm_error_code(problem), "%s", rlm_error_message(problem));
        fail_broken(c, answer->status, final, err);
    } else if (answer->body_bytes == 0) {
        rlm_error *err = NULL;
        rlm_error_set(&err, RLM_E_SERVER, "%s: the answer is empty (HTTP %d)",
                      c->base.model->address, answer->status);
        fail_broken(c, answer->status, false, err);
    } else {
        end_whole(c, answer);
    }
    rlm_chat_leave(&c->base);
}

/* ---- the operations ---- */

static int send(struct remote_chat *c, rlm_error **err)
{
    static const struct rlm_http_events events = {on_data, on_end};
    struct remote_model *m = model_of(c);
    rlm_http *http;
    int r = rlm_hub_http(m->base.hub, &http, err);
    if (r < 0) {
        return r;
    }
    struct rlm_http_request request;
    rlm_remote_request(m, m->address.chat_url, &request);
    request.post = true;
    request.body = rlm_buf_str(&c->body);
    request.max_answer_bytes = MAX_ANSWER_BYTES;
    c->progress_ms = rlm_now_ms();
    return rlm_http_start(http, &request, &events, c, &c->call, err);
}

static void on_cut(void *arg)
{
    struct remote_chat *c = arg;
    finish(c, "cut");
}

int rlm_remote_chat_start(rlm_model *base,
                          const struct rlm_chat_request *request,
                          rlm_chat *chat,
                          rlm_error **err)
{
    struct remote_model *m = (struct remote_model *)base;
    struct remote_chat *c = (struct remote_chat *)chat;
    c->body = RLM_BUF(MAX_REQUEST_BYTES);
    c->answer = RLM_BUF(MAX_ANSWER_BYTES);
    c->max_output_tokens = request->max_output_tokens;
    if (m->max_output_tokens && m->max_output_tokens < c->max_output_tokens) {
        c->max_output_tokens = m->max_output_tokens;
    }
    rlm_stream_init(&c->stream);
    c->stream.piece = on_piece;
    c->stream.arg = c;
    rlm_sse_init(&c->sse, MAX_EVENT_BYTES);
    struct rlm_json_writer w = {.buf = &c->body};
    rlm_json_begin(&w, '{');
    m->dialect->write_messages(&w, request, m->extra);
    c->messages_len = c->body.len;
    int r = write_options(c, err);
    c->cut = r == 0 ? rlm_defer_new(m->base.loop, on_cut, c) : NULL;
    if (r == 0) {
        r = c->cut ? send(c, err) : rlm_error_nomem(err);
    }
    if (r < 0) {
        rlm_remote_chat_stop(chat);
    }
    return r;
}

bool rlm_remote_chat_sent(const rlm_chat *chat)
{
    const struct remote_chat *c = (const struct remote_chat *)chat;
    return c->sent || (c->call && rlm_http_call_sent(c->call));
}

void rlm_remote_chat_cut(rlm_chat *chat)
{
    struct remote_chat *c = (struct remote_chat *)chat;
    drop_call(c);
    rlm_defer_schedule(c->cut);
}

void rlm_remote_chat_stop(rlm_chat *chat)
{
    struct remote_chat *c = (struct remote_chat *)chat;
    drop_call(c);
    rlm_defer_free(c->cut);
    rlm_buf_deinit(&c->body);
    rlm_buf_deinit(&c->answer);
    rlm_sse_deinit(&c->sse);
    rlm_stream_deinit(&c->stream);
    rlm_error_free(c->problem);
}
