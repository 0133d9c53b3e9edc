/* libcurl, opened at the first request: loading it takes milliseconds that a program which asks no
 * model must not pay. For http.c and http_call.c alone. */
#pragma once

#include "base/error.h"

#include <curl/curl.h>

struct http_library {
    CURLcode (*global_init)(long flags);
    void (*global_cleanup)(void);
    time_t (*getdate)(const char *text, const time_t *unused);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
    CURL *(*easy_init)(void);
    void (*easy_cleanup)(CURL *easy);
    CURLcode (*easy_setopt)(CURL *easy, CURLoption option, ...);
    CURLcode (*easy_getinfo)(CURL *easy, CURLINFO info, ...);
    const char *(*easy_strerror)(CURLcode code);
    CURLM *(*multi_init)(void);
    CURLMcode (*multi_cleanup)(CURLM *multi);
    CURLMcode (*multi_setopt)(CURLM *multi, CURLMoption option, ...);
    CURLMcode (*multi_add_handle)(CURLM *multi, CURL *easy);
    CURLMcode (*multi_remove_handle)(CURLM *multi, CURL *easy);
    CURLMcode (*multi_assign)(CURLM *multi, curl_socket_t socket, void *data);
    CURLMcode (*multi_socket_action)(CURLM *multi, curl_socket_t socket, int events, int *running);
    CURLMsg *(*multi_info_read)(CURLM *multi, int *left);
    const char *(*multi_strerror)(CURLMcode code);
};

/* The library stays loaded until the process ends: it and OpenSSL register things that must not be
 * unloaded. RLM_E_UNSUPPORTED says what is missing. */
int rlm_http_library_open(struct http_library *ret_library, rlm_error **err);
