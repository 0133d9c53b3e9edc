/* One call of the client: what libcurl is told of it, what comes of it, and how it ends. */
#include "model/http_call.h"

#include "base/alloc.h"
#include "model/http_head.h"

#include <stdio.h>
#include <strings.h>

enum {
    MAX_HEAD_BYTES = 128 * 1024,
    MAX_INBOX_BYTES = 16 * 1024 * 1024, /* what one turn of libcurl may bring */
    EXPECT_END_MS = 250,
};

/* ---- how calls end ---- */

static const char *seconds(int ms, char text[32])
{
    snprintf(text, 32, "%g s", (double)ms / 1000);
    return text;
}

/* The proxy that libcurl takes for HTTPS, unless NO_PROXY leads past it; NULL: none. */
static const char *proxy_of(const rlm_http_call *call)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    const char *proxy = call->proxy;
    for (size_t i = 0; i < sizeof names / sizeof *names && !(proxy && *proxy); i++) {
        proxy = getenv(names[i]);
    }
    return proxy && *proxy ? proxy : NULL;
}

/* Without the name and password that may stand in it. */
static void show_proxy(const char *proxy, char *ret_text, size_t size)
{
    const char *scheme_end = strstr(proxy, "://");
    const char *host = scheme_end ? scheme_end + 3 : proxy;
    size_t len = strcspn(host, "/");
    const char *at = memrchr(host, '@', len);
    len -= at ? (size_t)(at + 1 - host) : 0;
    snprintf(ret_text, size, "%.*s%.*s", (int)(host - proxy), proxy, (int)len, at ? at + 1 : host);
}

static const char *ca_file(const rlm_http_call *call, const char **ret_from)
{
    static const char *const names[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    const char *file = call->ca_file;
    *ret_from = "the file given";
    for (size_t i = 0; i < 2 && !(file && *file); i++) {
        file = getenv(names[i]);
        *ret_from = names[i];
    }
    return file && *file ? file : NULL;
}

static void explain_certificate(rlm_http_call *call, CURLcode code, const char *why)
{
    const char *from, *file = ca_file(call, &from);
    call->final = true;
    if (code == CURLE_SSL_CACERT_BADFILE && file) {
        rlm_error_set(&call->problem, RLM_E_UNREACHABLE,
                      "%s: the certificates to trust could not be read from %s (%s): %s",
                      call->address, file, from, why);
    } else if (file) {
        rlm_error_set(&call->problem, RLM_E_UNREACHABLE,
                      "%s: the server's certificate could not be verified with %s (%s): %s",
                      call->address, file, from, why);
    } else {
        rlm_error_set(&call->problem, RLM_E_UNREACHABLE,
                      "%s: the server's certificate could not be verified: %s (a private "
                      "authority is named with SSL_CERT_FILE)",
                      call->address, why);
    }
}

static void explain_timeout(rlm_http_call *call)
{
    char limit[32];
    long local_port = 0; /* 0: nothing took the connection */
    call->http->curl.easy_getinfo(call->easy, CURLINFO_LOCAL_PORT, &local_port);
    seconds(call->connect_timeout_ms, limit);
    if (call->https && local_port > 0) {
        rlm_error_set(&call->problem, RLM_E_TIMEOUT,
                      "%s: connected, but no TLS session was made within %s (the connect timeout); "
                      "perhaps plain HTTP is spoken there",
                      call->address, limit);
    } else {
        rlm_error_set(&call->problem, RLM_E_TIMEOUT,
                      "%s: no connection within %s (the connect timeout)", call->address, limit);
    }
}

/* True if a proxy refused to lead to the server. */
static bool explain_proxy(rlm_http_call *call, const char *why)
{
    const char *proxy = proxy_of(call);
    long status = 0;
    char shown[300];
    call->http->curl.easy_getinfo(call->easy, CURLINFO_HTTP_CONNECTCODE, &status);
    if (status < 300 || !proxy) {
        return false;
    }
    show_proxy(proxy, shown, sizeof shown);
    rlm_error_set(&call->problem, RLM_E_UNREACHABLE, "%s: refused by the proxy %s: %s%s",
                  call->address, shown, why,
                  status == 407 ? " (it wants a name and a password in its URL)" : "");
    return true;
}

static void explain(rlm_http_call *call, CURLcode code)
{
    const char *why = *call->message ? call->message : call->http->curl.easy_strerror(code);
    if (code == CURLE_OPERATION_TIMEDOUT) {
        explain_timeout(call);
    } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
        explain_certificate(call, code, why);
    } else if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
        call->final = true;
        rlm_error_set(&call->problem, RLM_E_INVAL, "%s: %s", call->address, why);
    } else if (code == CURLE_OUT_OF_MEMORY && call->stage != RECEIVING) {
        /* libcurl says the same of a head's line of more than 100 KiB. */
        rlm_error_set(&call->problem, RLM_E_LIMIT,
                      "%s: a line of the answer's head is too long, or memory is used up",
                      call->address);
    } else if (code == CURLE_OUT_OF_MEMORY) {
        rlm_error_nomem(&call->problem);
    } else if (call->answer.body_bytes) {
        rlm_error_set(&call->problem, RLM_E_UNREACHABLE,
                      "%s: the stream was cut after %llu bytes: %s", call->address,
                      (unsigned long long)call->answer.body_bytes, why);
    } else if (!explain_proxy(call, why)) {
        rlm_error_set(&call->problem, RLM_E_UNREACHABLE, "%s: %s", call->address, why);
    }
}

/* Takes the handle out of libcurl; from now on nothing of it moves. */
bool rlm_http_call_sent(const rlm_http_call *call)
{
    long bytes = 0;
    if (!call->easy) {
        return call->sent;
    }
    call->http->curl.easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &bytes);
    return bytes > 0;
}

static void detach(rlm_http_call *call)
{
    if (call->easy) {
        call->http->curl.multi_remove_handle(call->http->multi, call->easy);
        call->sent = rlm_http_call_sent(call);
        call->http->curl.easy_cleanup(call->easy);
        call->easy = NULL;
    }
}

/* A timer that is set keeps the loop going: without calls there must be none. */
static void end_stage(rlm_http_call *call)
{
    if (call->stage != OVER && --call->http->n_active == 0) {
        rlm_timer_stop(call->http->limit_timer);
    }
    call->stage = OVER;
    detach(call);
}

static void finish(rlm_http_call *call)
{
    if (call->stage != OVER) {
        end_stage(call);
        rlm_http_make_ready(call);
    }
}

void rlm_http_call_end(rlm_http_call *call, CURLcode result)
{
    if (result != CURLE_OK && !call->problem && !call->end_expected_ms) {
        explain(call, result);
    }
    finish(call);
}

void rlm_http_call_starve(rlm_http_call *call)
{
    if (call->stage != OVER) {
        rlm_error_nomem(&call->problem);
        finish(call);
    }
}

static void release(rlm_http_call *call)
{
    rlm_http *http = call->http;
    rlm_http_unready(call);
    end_stage(call);
    *(call->previous ? &call->previous->next : &http->calls) = call->next;
    if (call->next) {
        call->next->previous = call->previous;
    }
    http->curl.slist_free_all(call->headers);
    rlm_buf_deinit(&call->inbox);
    rlm_error_free(call->problem);
    free(call);
}

void rlm_http_call_deliver(rlm_http_call *call)
{
    call->delivering = true;
    if (call->inbox.len) {
        struct rlm_buf inbox = call->inbox;
        call->inbox = RLM_BUF(MAX_INBOX_BYTES);
        call->events.data(call->arg, &call->answer, rlm_buf_str(&inbox));
        if (call->freed || call->inbox.ptr) {
            rlm_buf_deinit(&inbox);
        } else {
            rlm_buf_clear(&inbox); /* the memory serves again */
            call->inbox = inbox;
        }
    }
    if (!call->freed && call->stage == OVER) {
        call->events.end(call->arg, &call->answer, call->problem, call->final);
    }
    call->delivering = false;
    if (call->freed) {
        release(call);
    }
}

/* ---- the answer ---- */

static size_t on_header(char *ptr, size_t size, size_t count, void *arg)
{
    rlm_http_call *call = arg;
    size_t len = size * count;
    call->head_bytes += len;
    if (call->head_bytes > MAX_HEAD_BYTES) {
        rlm_error_set(&call->problem, RLM_E_LIMIT,
                      "%s: the head of the answer is larger than %d KiB", call->address,
                      MAX_HEAD_BYTES / 1024);
        return 0;
    }
    rlm_http_head_line(&call->answer, (rlm_str){ptr, len}, call->http->curl.getdate);
    return len;
}

static size_t on_body(char *ptr, size_t size, size_t count, void *arg)
{
    rlm_http_call *call = arg;
    size_t len = size * count;
    if (call->answer.body_bytes + len > call->max_answer_bytes) {
        rlm_error_set(&call->problem, RLM_E_LIMIT, "%s: the answer is larger than %llu MiB",
                      call->address, (unsigned long long)(call->max_answer_bytes >> 20));
        return 0;
    }
    if (rlm_buf_add(&call->inbox, ptr, len) < 0) {
        rlm_buf_check(&call->inbox, &call->problem);
        return 0;
    }
    call->answer.body_bytes += len;
    call->last_ms = rlm_now_ms();
    if (call->stage != RECEIVING) {
        call->stage = RECEIVING;
        rlm_http_watch_limit(
            call->http, rlm_http_call_limit_at(call)); /* another limit, perhaps an earlier one */
    }
    rlm_http_make_ready(call);
    return len;
}

/* ---- limits ---- */

/* When the call passes its next limit; UINT64_MAX: never. */
uint64_t rlm_http_call_limit_at(const rlm_http_call *call)
{
    if (call->stage == OVER) {
        return UINT64_MAX;
    }
    int timeout_ms = call->stage == RECEIVING ? call->idle_timeout_ms : call->first_byte_timeout_ms;
    uint64_t at_ms = timeout_ms > 0 ? call->last_ms + (uint64_t)timeout_ms : UINT64_MAX;
    return call->end_expected_ms && call->end_expected_ms < at_ms ? call->end_expected_ms : at_ms;
}

void rlm_http_call_pass_limit(rlm_http_call *call)
{
    char limit[32];
    if (call->end_expected_ms) {
        finish(call);
    } else if (call->stage == RECEIVING) {
        rlm_error_set(&call->problem, RLM_E_TIMEOUT,
                      "%s: the stream stalled: nothing came for %s (the idle timeout)",
                      call->address, seconds(call->idle_timeout_ms, limit));
        finish(call);
    } else {
        rlm_error_set(&call->problem, RLM_E_TIMEOUT,
                      "%s: no answer began within %s (the first-byte timeout)", call->address,
                      seconds(call->first_byte_timeout_ms, limit));
        finish(call);
    }
}

/* ---- the interface ---- */

static bool add_header(rlm_http_call *call, const char *header)
{
    struct curl_slist *longer = call->http->curl.slist_append(call->headers, header);
    if (longer) {
        call->headers = longer;
    }
    return longer != NULL;
}

static CURLcode set_options(rlm_http_call *call, const struct rlm_http_request *request)
{
    CURL *easy = call->easy;
    CURLcode (*set)(CURL *, CURLoption, ...) = call->http->curl.easy_setopt;
    CURLcode code = set(easy, CURLOPT_URL, request->url);
    const char *from, *ca = ca_file(call, &from);
    if (code == CURLE_OK && request->proxy) {
        code = set(easy, CURLOPT_PROXY, request->proxy);
        set(easy, CURLOPT_NOPROXY, ""); /* what was asked for wins over the environment */
    }
    if (code == CURLE_OK && ca) {
        code = set(easy, CURLOPT_CAINFO, ca);
    }
    set(easy, CURLOPT_PRIVATE, call);
    set(easy, CURLOPT_ERRORBUFFER, call->message);
    set(easy, CURLOPT_NOSIGNAL, 1L);
    set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    set(easy, CURLOPT_FOLLOWLOCATION, 0L);
    set(easy, CURLOPT_HTTPHEADER, call->headers);
    set(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(easy, CURLOPT_HEADERFUNCTION, on_header);
    set(easy, CURLOPT_HEADERDATA, call);
    set(easy, CURLOPT_WRITEFUNCTION, on_body);
    set(easy, CURLOPT_WRITEDATA, call);
    set(easy, CURLOPT_NOPROGRESS, 1L);
    set(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    /* 0 would mean libcurl's own default. */
    long connect_ms = request->connect_timeout_ms > 0 ? request->connect_timeout_ms : 86400000L;
    set(easy, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
    set(easy, CURLOPT_HTTP_VERSION,
        call->https ? (long)CURL_HTTP_VERSION_2TLS : (long)CURL_HTTP_VERSION_1_1);
    if (request->post) {
        set(easy, CURLOPT_POST, 1L);
        set(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
        set(easy, CURLOPT_POSTFIELDS, request->body.ptr ? request->body.ptr : "");
    }
    return code;
}

int rlm_http_start(rlm_http *http,
                   const struct rlm_http_request *request,
                   const struct rlm_http_events *events,
                   void *arg,
                   rlm_http_call **ret_call,
                   rlm_error **err)
{
    rlm_http_call *call;
    if (!RLM_NEW(call)) {
        return rlm_error_nomem(err);
    }
    call->http = http;
    call->events = *events;
    call->arg = arg;
    call->address = request->address;
    call->proxy = request->proxy;
    call->ca_file = request->ca_file;
    call->https = strncasecmp(request->url, "https:", 6) == 0;
    call->answer.retry_after_ms = -1;
    call->inbox = RLM_BUF(MAX_INBOX_BYTES);
    call->max_answer_bytes = request->max_answer_bytes;
    call->connect_timeout_ms = request->connect_timeout_ms;
    call->first_byte_timeout_ms = request->first_byte_timeout_ms;
    call->idle_timeout_ms = request->idle_timeout_ms;
    call->last_ms = rlm_now_ms();
    call->next = http->calls;
    if (call->next) {
        call->next->previous = call;
    }
    http->calls = call;
    http->n_active++;
    /* No pause of a second for a "100 Continue" that most servers never send. */
    bool complete = add_header(call, "Expect:");
    for (const char *const *header = request->headers; complete && *header; header++) {
        complete = add_header(call, *header);
    }
    call->easy = complete ? http->curl.easy_init() : NULL;
    if (!call->easy) {
        release(call);
        return rlm_error_nomem(err);
    }
    CURLcode code = set_options(call, request);
    CURLMcode added = code == CURLE_OK ? http->curl.multi_add_handle(http->multi, call->easy) : 0;
    if (code != CURLE_OK || added != CURLM_OK) {
        int r = rlm_error_set(err, code == CURLE_OUT_OF_MEMORY ? RLM_E_NOMEM : RLM_E_INVAL,
                              "%s: %s", request->address,
                              code != CURLE_OK ? http->curl.easy_strerror(code)
                                               : http->curl.multi_strerror(added));
        release(call);
        return r;
    }
    rlm_http_watch_limit(http, rlm_http_call_limit_at(call));
    *ret_call = call;
    return 0;
}

void rlm_http_expect_end(rlm_http_call *call)
{
    if (!call->end_expected_ms) {
        call->end_expected_ms = rlm_now_ms() + EXPECT_END_MS;
        if (call->stage != OVER) {
            rlm_http_watch_limit(call->http, call->end_expected_ms);
        }
    }
}

void rlm_http_call_free(rlm_http_call *call)
{
    if (!call || call->freed) {
        return;
    }
    if (call->delivering) {
        call->freed = true; /* its callback is on the stack */
        end_stage(call);
    } else {
        release(call);
    }
}
