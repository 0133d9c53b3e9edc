/* The client: libcurl's multi handle on the loop. */
#include "model/http_call.h"

#include "base/alloc.h"

#include <assert.h>

enum { MAX_CONNECTIONS_KEPT = 1024 };

/* ---- calls with something to deliver ---- */

void rlm_http_make_ready(rlm_http_call *call)
{
    rlm_http *http = call->http;
    if (call->is_ready) {
        return;
    }
    call->is_ready = true;
    call->next_ready = NULL;
    if (http->ready_last) {
        http->ready_last->next_ready = call;
    } else {
        http->ready = call;
    }
    http->ready_last = call;
}

void rlm_http_unready(rlm_http_call *call)
{
    rlm_http *http = call->http;
    rlm_http_call *before = NULL;
    for (rlm_http_call *c = call->is_ready ? http->ready : NULL; c; before = c, c = c->next_ready) {
        if (c == call) {
            *(before ? &before->next_ready : &http->ready) = c->next_ready;
            if (http->ready_last == c) {
                http->ready_last = before;
            }
            break;
        }
    }
    call->is_ready = false;
}

static void deliver_all(rlm_http *http)
{
    rlm_http_call *call;
    while ((call = http->ready)) {
        http->ready = call->next_ready;
        if (!http->ready) {
            http->ready_last = NULL;
        }
        call->is_ready = false;
        rlm_http_call_deliver(call);
    }
}

static void read_results(rlm_http *http)
{
    CURLMsg *message;
    int left;
    while ((message = http->curl.multi_info_read(http->multi, &left))) {
        if (message->msg != CURLMSG_DONE) {
            continue;
        }
        char *private = NULL;
        CURLcode result = message->data.result;
        http->curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        rlm_http_call_end((rlm_http_call *)(void *)private, result);
    }
}

static void destroy(rlm_http *http)
{
    assert(!http->calls);
    if (http->multi) {
        http->curl.multi_cleanup(http->multi);
    }
    http->curl.global_cleanup();
    rlm_timer_free(http->curl_timer);
    rlm_defer_free(http->curl_now);
    rlm_timer_free(http->limit_timer);
    free(http);
}

/* Ends a turn: what libcurl brought is handed on. The client may be gone after it. */
static void leave(rlm_http *http)
{
    deliver_all(http);
    http->acting = false;
    if (http->doomed) {
        destroy(http);
    }
}

static void act(rlm_http *http, curl_socket_t socket, int events)
{
    int running;
    http->acting = true;
    http->curl.multi_socket_action(http->multi, socket, events, &running);
    read_results(http);
    if (http->starved) {
        http->starved = false;
        for (rlm_http_call *call = http->calls; call; call = call->next) {
            rlm_http_call_starve(call);
        }
    }
    leave(http);
}

/* ---- what libcurl asks for ---- */

struct socket {
    rlm_http *http;
    rlm_watch *watch;
    curl_socket_t fd;
};

static void on_socket(void *arg, int events)
{
    struct socket *s = arg;
    int flags = (events & RLM_READABLE ? CURL_CSELECT_IN : 0) |
                (events & RLM_WRITABLE ? CURL_CSELECT_OUT : 0);
    act(s->http, s->fd, flags ? flags : CURL_CSELECT_ERR);
}

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *data)
{
    rlm_http *http = arg;
    struct socket *s = data;
    if (what == CURL_POLL_REMOVE) {
        if (s) {
            rlm_watch_free(s->watch);
            free(s);
            http->curl.multi_assign(http->multi, fd, NULL);
        }
        return 0;
    }
    if (!s) {
        if (!RLM_NEW(s) || !(s->watch = rlm_watch_new(http->loop, fd, on_socket, s))) {
            free(s);
            http->starved = true;
            return 0;
        }
        s->http = http;
        s->fd = fd;
        http->curl.multi_assign(http->multi, fd, s);
    }
    int events =
        (what & CURL_POLL_IN ? RLM_READABLE : 0) | (what & CURL_POLL_OUT ? RLM_WRITABLE : 0);
    if (rlm_watch_set(s->watch, events) < 0) {
        http->starved = true;
    }
    return 0;
}

static int set_curl_timer(CURLM *multi, long timeout_ms, void *arg)
{
    rlm_http *http = arg;
    rlm_timer_stop(http->curl_timer);
    rlm_defer_cancel(http->curl_now);
    if (timeout_ms > 0) {
        rlm_timer_set(http->curl_timer, (uint64_t)timeout_ms);
    } else if (timeout_ms == 0) {
        rlm_defer_schedule(http->curl_now);
    }
    return 0;
}

static void on_curl_timer(void *arg)
{
    act(arg, CURL_SOCKET_TIMEOUT, 0);
}

/* Bytes move a limit away, so the timer may be early, and is then set again; it is never late. */
void rlm_http_watch_limit(rlm_http *http, uint64_t at_ms)
{
    if (at_ms == UINT64_MAX ||
        (rlm_timer_is_set(http->limit_timer) && http->limit_timer_at_ms <= at_ms)) {
        return;
    }
    uint64_t now_ms = rlm_now_ms();
    http->limit_timer_at_ms = at_ms;
    rlm_timer_set(http->limit_timer, at_ms > now_ms ? at_ms - now_ms : 0);
}

static void on_limit_timer(void *arg)
{
    rlm_http *http = arg;
    http->acting = true;
    uint64_t now_ms = rlm_now_ms();
    uint64_t next_ms = UINT64_MAX;
    for (rlm_http_call *call = http->calls; call; call = call->next) {
        uint64_t at_ms = rlm_http_call_limit_at(call);
        if (at_ms <= now_ms) {
            rlm_http_call_pass_limit(call);
        } else {
            next_ms = at_ms < next_ms ? at_ms : next_ms;
        }
    }
    rlm_http_watch_limit(http, next_ms);
    leave(http);
}

/* ---- the interface ---- */

int rlm_http_new(rlm_loop *loop, rlm_http **ret_http, rlm_error **err)
{
    rlm_http *http;
    if (!RLM_NEW(http)) {
        return rlm_error_nomem(err);
    }
    http->loop = loop;
    int r = rlm_http_library_open(&http->curl, err);
    if (r < 0) {
        free(http);
        return r;
    }
    http->multi = http->curl.multi_init();
    http->curl_timer = rlm_timer_new(loop, on_curl_timer, http);
    http->curl_now = rlm_defer_new(loop, on_curl_timer, http);
    http->limit_timer = rlm_timer_new(loop, on_limit_timer, http);
    if (!http->multi || !http->curl_timer || !http->curl_now || !http->limit_timer) {
        rlm_http_free(http);
        return rlm_error_nomem(err);
    }
    http->curl.multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    http->curl.multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    http->curl.multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, set_curl_timer);
    http->curl.multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    http->curl.multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)MAX_CONNECTIONS_KEPT);
    *ret_http = http;
    return 0;
}

void rlm_http_free(rlm_http *http)
{
    if (!http) {
        return;
    }
    if (http->acting) {
        http->doomed = true;
    } else {
        destroy(http);
    }
}
