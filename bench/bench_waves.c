/* 64 children at once against a model of 50 ms: the engine beside a bare libcurl client.
 *
 * Both make the same two waves of requests to the same server: one request, then N at once. The engine
 * runs the code of the replies in real sessions (workers started ahead) and journals all of it (in
 * TMPDIR), the bare client reads the replies and throws them away. In turns, ROUNDS times; medians and
 * ratios are printed, until the answer and until the run has been freed, its workers told to end and
 * its journal synced and closed.
 *
 *     bench_waves BASE_URL [CHILDREN=64] [ROUNDS=7] [PYTHON=/usr/bin/python3]
 *                                                          (bench/waves.py starts the server)
 */
#include "rlmflow.h"

#include "measure.h"
#include "scratch.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the bare client ---- */

static size_t discard(char *data, size_t size, size_t n, void *arg)
{
    (void)data, (void)arg;
    return size * n;
}

static void wave(CURLM *multi, const char *base_url, const char *body, int n)
{
    char url[512];
    snprintf(url, sizeof url, "%s/chat/completions", base_url);
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    CURL **all = calloc((size_t)n, sizeof *all);
    for (int i = 0; i < n; i++) {
        all[i] = curl_easy_init();
        curl_easy_setopt(all[i], CURLOPT_URL, url);
        curl_easy_setopt(all[i], CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(all[i], CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(all[i], CURLOPT_WRITEFUNCTION, discard);
        curl_multi_add_handle(multi, all[i]);
    }
    int running = 1;
    while (running) {
        curl_multi_perform(multi, &running);
        if (running) {
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
        }
    }
    for (int i = 0; i < n; i++) {
        long status = 0;
        curl_easy_getinfo(all[i], CURLINFO_RESPONSE_CODE, &status);
        if (status != 200) {
            fprintf(stderr, "the bare client got HTTP %ld\n", status);
            exit(1);
        }
        curl_multi_remove_handle(multi, all[i]);
        curl_easy_cleanup(all[i]);
    }
    curl_slist_free_all(headers);
    free(all);
}

static double bare(CURLM *multi, const char *base_url, int n)
{
    /* As long as the engine's own prompt. */
    char body[8192], filler[3001];
    memset(filler, 'x', sizeof filler - 1);
    filler[sizeof filler - 1] = '\0';
    uint64_t start = rlm_now_us();
    for (int i = 0; i < 2; i++) {
        snprintf(
            body, sizeof body,
            "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"max_tokens\":8192,"
            "\"messages\":[{\"role\":\"system\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"Task: %s\"}]}",
            filler, i ? "child" : "root");
        wave(multi, base_url, body, i ? n : 1);
    }
    return (double)(rlm_now_us() - start) / 1e3;
}

/* ---- the engine ---- */

struct took {
    double answer_ms;
    double freed_ms;
};

static struct took engine(rlm_flow *flow, int n)
{
    rlm_error *err = NULL;
    rlm_run *run;
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    o.query = (struct rlm_str){"root", 4};
    o.journal = scratch_path();
    uint64_t start = rlm_now_us();
    if (rlm_run_start(flow, &o, NULL, NULL, &run, &err) || rlm_run_wait(run, &err)) {
        fail(err);
    }
    struct took took = {.answer_ms = (double)(rlm_now_us() - start) / 1e3};
    char expected[16];
    snprintf(expected, sizeof expected, "%d", n);
    struct rlm_str answer = rlm_run_answer(run);
    if (answer.len != strlen(expected) || memcmp(answer.ptr, expected, answer.len) != 0) {
        fprintf(stderr, "the run ended with \"%.*s\" (%s %s)\n", (int)answer.len, answer.ptr,
                rlm_run_reason(run), rlm_run_message(run));
        exit(1);
    }
    rlm_run_free(run);
    took.freed_ms = (double)(rlm_now_us() - start) / 1e3;
    scratch_remove();
    return took;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_waves BASE_URL [CHILDREN] [ROUNDS] [PYTHON]\n");
        return 2;
    }
    int n = argc > 2 ? atoi(argv[2]) : 64, rounds = argc > 3 ? atoi(argv[3]) : 7;
    rlm_loop *loop;
    rlm_model *model;
    rlm_runtime *runtime;
    rlm_flow *flow;
    rlm_error *err = NULL;
    struct rlm_model_options m = RLM_MODEL_OPTIONS_INIT;
    struct rlm_subprocess_options s = RLM_SUBPROCESS_OPTIONS_INIT;
    struct rlm_flow_options f = RLM_FLOW_OPTIONS_INIT;
    m.name = "m";
    m.base_url = argv[1];
    s.spare = n + 1;
    s.python = argc > 4 ? argv[4] : "/usr/bin/python3";
    f.limits.workers = f.limits.max_live = 64;
    if (rlm_loop_new(&loop, &err) || rlm_model_new(loop, &m, &model, &err) ||
        rlm_runtime_new_subprocess(loop, &s, &runtime, &err) ||
        (f.model = model, f.runtime = runtime, rlm_flow_new(loop, &f, &flow, &err))) {
        fail(err);
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURLM *multi = curl_multi_init();
    double *answer = calloc((size_t)rounds, sizeof *answer);
    double *freed = calloc((size_t)rounds, sizeof *freed);
    double *theirs = calloc((size_t)rounds, sizeof *theirs);
    settle(loop, 8000);
    engine(flow, n), bare(multi, argv[1], n); /* connections are open after it, for both */
    for (int i = 0; i < rounds; i++) {
        settle(loop, 8000);
        theirs[i] = bare(multi, argv[1], n);
        struct took took = engine(flow, n);
        answer[i] = took.answer_ms;
        freed[i] = took.freed_ms;
    }
    double a = median(answer, rounds), whole = median(freed, rounds), b = median(theirs, rounds);
    printf("1 + %d requests in two waves: engine %.1f ms, bare libcurl %.1f ms, ratio %.2f\n", n, a,
           b, a / b);
    printf("  until the run is freed: %.1f ms, ratio %.2f\n", whole, whole / b);
    curl_multi_cleanup(multi);
    rlm_flow_free(flow);
    rlm_runtime_free(runtime);
    rlm_model_free(model);
    rlm_loop_free(loop);
    free(answer), free(freed), free(theirs);
    return 0;
}
