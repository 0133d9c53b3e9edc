#include "model/model.h"

#include "base/alloc.h"
#include "model/hub.h"
#include "model/price.h"

#include <assert.h>
#include <inttypes.h>

int rlm_model_init(rlm_model *m,
                   rlm_loop *loop,
                   const struct rlm_model_ops *ops,
                   const char *name,
                   const char *address,
                   const char *server,
                   const struct rlm_price *price,
                   rlm_error **err)
{
    m->ops = ops;
    m->loop = loop;
    m->name = rlm_strdup(name);
    m->address = rlm_strdup(address);
    m->hub = rlm_hub_ref(loop);
    m->backoff = m->hub ? rlm_hub_backoff(m->hub, server) : NULL;
    if (!m->name || !m->address || !m->backoff) {
        rlm_model_deinit(m);
        return rlm_error_nomem(err);
    }
    m->price = (struct rlm_price){-1, -1, -1, -1};
    if (price && rlm_price_known(price)) {
        m->price = *price;
    } else {
        rlm_price_find(name, &m->price);
    }
    return 0;
}

static void check_free(struct rlm_check *check)
{
    rlm_defer_free(check->defer);
    free(check);
}

void rlm_model_deinit(rlm_model *m)
{
    while (m->checks) {
        struct rlm_check *check = m->checks;
        m->checks = check->next;
        if (m->ops->check_stop) {
            m->ops->check_stop(check);
        }
        check_free(check);
    }
    rlm_hub_unref(m->hub);
    free(m->name);
    free(m->address);
    m->hub = NULL;
    m->backoff = NULL;
    m->name = m->address = NULL;
}

void rlm_model_free(rlm_model *m)
{
    if (!m) {
        return;
    }
    assert(m->n_open == 0);
    if (m->n_chats) {
        m->doomed = true; /* a chat's callback is on the stack: the chat takes the model with it */
    } else {
        m->ops->free(m);
    }
}

struct rlm_backoff *rlm_model_backoff(rlm_model *m)
{
    return m->backoff;
}

bool rlm_model_has_price(const rlm_model *m)
{
    return rlm_price_known(&m->price);
}

bool rlm_model_is_one_at_a_time(const rlm_model *m)
{
    return m->one_at_a_time;
}

int64_t rlm_model_cost(const rlm_model *m, const struct rlm_usage *usage, bool worst)
{
    return rlm_price_cost(&m->price, usage, 0, worst);
}

const char *rlm_model_name(const rlm_model *m)
{
    return m->name;
}

const char *rlm_model_address(const rlm_model *m)
{
    return m->address;
}

/* ---- chats ---- */

static void timed_out(void *arg)
{
    rlm_chat *c = arg;
    rlm_error *err = NULL;
    rlm_error_set(&err, RLM_E_TIMEOUT, "the model has not replied within %.3g s",
                  (double)c->timeout_ms / 1e3);
    struct rlm_chat_failure failure = {.error = err, .retry_after_ms = -1};
    rlm_chat_fail(c, &failure);
    rlm_error_free(err);
}

static void set_ended(rlm_chat *c)
{
    c->ended = true;
    if (c->timer) {
        rlm_timer_stop(c->timer);
    }
}

static void discard(rlm_chat *c)
{
    rlm_timer_free(c->timer);
    free(c);
}

int rlm_chat_start(rlm_model *m,
                   const struct rlm_chat_request *request,
                   const struct rlm_chat_events *events,
                   void *arg,
                   rlm_chat **ret_chat,
                   rlm_error **err)
{
    assert(m->ops->chat_size >= sizeof(rlm_chat));
    rlm_chat *c = rlm_calloc(1, m->ops->chat_size);
    if (!c) {
        return rlm_error_nomem(err);
    }
    c->model = m;
    c->events = *events;
    c->arg = arg;
    for (size_t i = 0; i < request->n_messages; i++) {
        c->sent_bytes += request->messages[i].text.len;
    }
    c->timeout_ms = request->timeout_ms;
    if (c->timeout_ms && !(c->timer = rlm_timer_new(m->loop, timed_out, c))) {
        free(c);
        return rlm_error_nomem(err);
    }
    int r = m->ops->start(m, request, c, err);
    if (r < 0) {
        discard(c);
        return r;
    }
    if (c->timer) {
        rlm_timer_set(c->timer, (uint64_t)c->timeout_ms);
    }
    m->n_open++;
    m->n_chats++;
    *ret_chat = c;
    return 0;
}

void rlm_chat_cut(rlm_chat *c)
{
    if (rlm_chat_live(c)) {
        c->cut = true;
        c->model->ops->cut(c);
    }
}

uint64_t rlm_chat_received_bytes(const rlm_chat *c)
{
    return c->received_bytes;
}

uint64_t rlm_chat_sent_bytes(const rlm_chat *c)
{
    bool sent = !c->model->ops->sent || c->model->ops->sent(c);
    return sent ? c->sent_bytes : 0;
}

static void release(rlm_chat *c)
{
    rlm_model *m = c->model;
    m->ops->stop(c);
    discard(c);
    if (--m->n_chats == 0 && m->doomed) {
        m->ops->free(m);
    }
}

void rlm_chat_free(rlm_chat *c)
{
    if (!c) {
        return;
    }
    assert(!c->dropped);
    c->dropped = true;
    c->model->n_open--;
    if (c->busy == 0) {
        release(c);
    }
}

void rlm_chat_enter(rlm_chat *c)
{
    c->busy++;
}

void rlm_chat_leave(rlm_chat *c)
{
    if (--c->busy == 0 && c->dropped) {
        release(c);
    }
}

void rlm_chat_delta(rlm_chat *c, rlm_str text)
{
    assert(c->busy > 0);
    c->pieces++;
    if (rlm_chat_live(c) && c->events.delta) {
        c->events.delta(c->arg, text, c->pieces);
    }
}

static void
count(const rlm_chat *c, bool usage_known, struct rlm_usage *usage, int64_t cache_write_tokens)
{
    usage->calls = 1;
    usage->cost_nano =
        usage_known ? rlm_price_cost(&c->model->price, usage, cache_write_tokens, false) : 0;
}

void rlm_chat_finish(rlm_chat *c, struct rlm_chat_reply *reply)
{
    if (c->ended || c->dropped) {
        return;
    }
    set_ended(c);
    reply->sent_bytes = c->sent_bytes;
    reply->received_bytes = c->received_bytes;
    count(c, reply->usage_known, &reply->usage, reply->cache_write_tokens);
    rlm_chat_enter(c);
    c->events.done(c->arg, reply);
    rlm_chat_leave(c);
}

void rlm_chat_fail(rlm_chat *c, struct rlm_chat_failure *failure)
{
    if (c->ended || c->dropped) {
        return;
    }
    set_ended(c);
    failure->sent_bytes = rlm_chat_sent_bytes(c);
    failure->received_bytes = c->received_bytes;
    count(c, failure->usage_known, &failure->usage, failure->cache_write_tokens);
    rlm_chat_enter(c);
    c->events.failed(c->arg, failure);
    rlm_chat_leave(c);
}

/* ---- checks ---- */

static void all_is_well(void *arg)
{
    rlm_check_finish(arg, NULL);
}

int rlm_model_check(rlm_model *m,
                    void (*done)(void *arg, const rlm_error *problem),
                    void *arg,
                    rlm_error **err)
{
    struct rlm_check *check;
    if (!RLM_NEW(check)) {
        return rlm_error_nomem(err);
    }
    check->model = m;
    check->done = done;
    check->arg = arg;
    if (m->ops->check) {
        int r = m->ops->check(m, check, err);
        if (r < 0) {
            check_free(check);
            return r;
        }
    } else {
        check->defer = rlm_defer_new(m->loop, all_is_well, check);
        if (!check->defer) {
            check_free(check);
            return rlm_error_nomem(err);
        }
        rlm_defer_schedule(check->defer);
    }
    check->next = m->checks;
    m->checks = check;
    return 0;
}

void rlm_check_finish(struct rlm_check *check, rlm_error *take_problem)
{
    struct rlm_check **at = &check->model->checks;
    while (*at != check) {
        at = &(*at)->next;
    }
    *at = check->next;
    void (*done)(void *arg, const rlm_error *problem) = check->done;
    void *arg = check->arg;
    if (check->model->ops->check_stop) {
        check->model->ops->check_stop(check);
    }
    check_free(check);
    done(arg, take_problem); /* may free the model */
    rlm_error_free(take_problem);
}
