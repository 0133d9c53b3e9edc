/* What http.c (the client: libcurl's multi handle on the loop) and http_call.c (its calls) share. Not
 * for other files.
 */
#pragma once

#include "base/buf.h"
#include "model/http.h"
#include "model/http_library.h"

enum rlm_http_stage { CONNECTING, RECEIVING, OVER };

struct rlm_http {
    rlm_loop *loop;
    struct http_library curl;
    CURLM *multi;
    rlm_timer *curl_timer;  /* libcurl's own */
    rlm_defer *curl_now;    /* the same, for what is due at once */
    rlm_timer *limit_timer; /* the earliest time at which some call may pass a limit */
    uint64_t limit_timer_at_ms;
    rlm_http_call *calls;
    size_t n_active;      /* calls that are not over */
    rlm_http_call *ready; /* have something to deliver, in order */
    rlm_http_call *ready_last;
    bool starved; /* a socket could not be watched */
    bool acting;  /* callbacks may be on the stack */
    bool doomed;  /* freed by its owner meanwhile */
};

struct rlm_http_call {
    rlm_http *http;
    CURL *easy;
    struct curl_slist *headers;
    struct rlm_http_events events;
    void *arg;
    const char *address;
    const char *proxy, *ca_file; /* as requested */
    bool https;
    struct rlm_http_answer answer;
    struct rlm_buf inbox; /* received, not delivered */
    size_t head_bytes;
    uint64_t max_answer_bytes;
    int connect_timeout_ms, first_byte_timeout_ms, idle_timeout_ms;
    uint64_t last_ms;         /* start, or the last byte */
    uint64_t end_expected_ms; /* 0: not expected */
    enum rlm_http_stage stage;
    rlm_error *problem;
    bool final;
    bool sent; /* known when `easy` is gone */
    bool is_ready;
    bool delivering;
    bool freed;
    rlm_http_call *next, *previous;
    rlm_http_call *next_ready;
    char message[CURL_ERROR_SIZE];
};

/* ---- http.c ---- */
/* The call has something to deliver at the end of this turn; or no longer. */
void rlm_http_make_ready(rlm_http_call *call);
void rlm_http_unready(rlm_http_call *call);
/* Some call may pass a limit at that time (UINT64_MAX: none does). */
void rlm_http_watch_limit(rlm_http *http, uint64_t at_ms);

/* ---- http_call.c ---- */
/* libcurl is done with it: nothing more comes, its end is to be delivered. */
void rlm_http_call_end(rlm_http_call *call, CURLcode result);
/* The same where there was no memory to watch its socket. */
void rlm_http_call_starve(rlm_http_call *call);
/* Calls back with what is there. The call may be gone after it. */
void rlm_http_call_deliver(rlm_http_call *call);
/* When the call passes its next limit; UINT64_MAX: never. */
uint64_t rlm_http_call_limit_at(const rlm_http_call *call);
/* That time has come. */
void rlm_http_call_pass_limit(rlm_http_call *call);
