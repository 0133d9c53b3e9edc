/* HTTP calls on the loop: the seam to libcurl (with http_library.c, which loads it).
 *
 * One client belongs to one loop and keeps connections open for reuse. Callbacks come from the loop,
 * never from inside libcurl and never inside rlm_http_start, so they may start and free calls,
 * their own too.
 *
 * A call has three time limits: to connect, to the first byte of the body, and between bytes. There
 * is no limit on the whole. Redirects are not followed: a key must not travel to another host.
 */
#pragma once

#include "base/error.h"
#include "base/loop.h"

typedef struct rlm_http rlm_http;
typedef struct rlm_http_call rlm_http_call;

struct rlm_http_request {
    const char *url;
    const char *const *headers; /* "Name: value"..., NULL-terminated, copied */
    bool post;
    rlm_str body;        /* of a POST; not copied: must live as long as the call */
    const char *proxy;   /* NULL: as the environment says; else NO_PROXY is not asked */
    const char *ca_file; /* NULL: CURL_CA_BUNDLE, SSL_CERT_FILE, or libcurl's own */
    const char *address; /* how messages name the server; must live as long as the call */
    int connect_timeout_ms, first_byte_timeout_ms, idle_timeout_ms; /* 0: no limit */
    uint64_t max_answer_bytes;
};

struct rlm_http_answer {
    int status;             /* 0: none came */
    char content_type[64];  /* in lower case, without parameters; "" when not said */
    int64_t retry_after_ms; /* Retry-After or retry-after-ms; -1: not said */
    bool exact_retry_after; /* it was said in milliseconds */
    uint64_t body_bytes;    /* so far */
};

struct rlm_http_events {
    /* A piece of the body; the answer's head is complete. */
    void (*data)(void *arg, const struct rlm_http_answer *answer, rlm_str chunk);
    /* The end, once. `problem` (borrowed): NULL when the body is complete; else TIMEOUT (which limit
     * and its value), UNREACHABLE, LIMIT, INVAL, NOMEM. `final` means that trying again is useless. */
    void (*end)(void *arg,
                const struct rlm_http_answer *answer,
                const rlm_error *problem,
                bool final);
};

/* Loads libcurl (RLM_E_UNSUPPORTED when there is none). */
int rlm_http_new(rlm_loop *loop, rlm_http **ret_http, rlm_error **err);
/* No call may be left. NULL allowed. */
void rlm_http_free(rlm_http *http);

int rlm_http_start(rlm_http *http,
                   const struct rlm_http_request *request,
                   const struct rlm_http_events *events,
                   void *arg,
                   rlm_http_call **ret_call,
                   rlm_error **err);
/* The server may have got something of the request: before that nobody can bill it. */
bool rlm_http_call_sent(const rlm_http_call *call);
/* Nothing more is wanted: when the answer does not end by itself within a moment (which lets the
 * connection be reused), `end` comes anyhow, without a problem. */
void rlm_http_expect_end(rlm_http_call *call);
/* Drops it if it is under way; no callback comes after it. NULL allowed. */
void rlm_http_call_free(rlm_http_call *call);
