/* Is the server there, does it take the key, does it know the model? Asks for its list of models. */
#include "base/alloc.h"
#include "model/hub.h"
#include "model/remote.h"

struct check_work {
    rlm_http_call *call;
    struct rlm_buf body;
};

enum { CHECK_TIMEOUT_MS = 30 * 1000, MAX_LIST_BYTES = 16 * 1024 * 1024, NAMES_SHOWN = 5 };

/* Servers list versions ("NAME:latest", "NAME-20250514") and take the short name. */
static bool is_the_model(rlm_str id, const char *name)
{
    size_t len = strlen(name);
    static const char *const endings[] = {"-latest", "-0"};
    for (size_t i = 0; i < 2; i++) {
        size_t ending = strlen(endings[i]);
        if (len > ending && strcmp(name + len - ending, endings[i]) == 0) {
            len -= ending;
            break;
        }
    }
    return rlm_str_is(id, name) ||
           (id.len > len && memcmp(id.ptr, name, len) == 0 && strchr(":-@", id.ptr[len]));
}

static void unknown_model(const struct remote_model *m, const rlm_json *list, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf names = RLM_BUF(1024);
    for (uint32_t i = 0; i < list->count && i < NAMES_SHOWN; i++) {
        rlm_str id = rlm_json_text(rlm_json_get(rlm_json_at(list, i), "id"), RLM_STR_NONE);
        rlm_buf_addf(&names, "%s%.*s", i ? ", " : "", (int)(id.len < 100 ? id.len : 100),
                     id.ptr ? id.ptr : "");
    }
    rlm_error_set(err, RLM_E_NOT_FOUND,
                  "%s is there but does not list the model \"%s\"; it has %s%s", m->base.address,
                  m->base.name, names.ptr ? names.ptr : "none",
                  list->count > NAMES_SHOWN ? ", ..." : "");
}

static void look_for_model(const struct remote_model *m, rlm_str body, rlm_error **err)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    if (!a) {
        rlm_error_nomem(err);
        return;
    }
    const rlm_json *object = NULL;
    if (rlm_json_parse(a, body, &object, NULL) < 0) {
        rlm_error_set(err, RLM_E_SERVER,
                      "%s: the list of models is no JSON; the base URL may lack /v1",
                      m->base.address);
        return;
    }
    const rlm_json *list = rlm_json_get(object, "data");
    if (!rlm_json_is(list, RLM_JSON_ARRAY) || list->count == 0 ||
        rlm_json_bool(rlm_json_get(object, "has_more"), false)) {
        return; /* it is there; what it serves it does not say */
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const rlm_json *entry = rlm_json_at(list, i);
        rlm_str owner = rlm_json_text(rlm_json_get(entry, "owned_by"), RLM_STR_NONE);
        /* llama.cpp's server serves its one model under any name. */
        if (rlm_str_is(owner, "llamacpp") ||
            is_the_model(rlm_json_text(rlm_json_get(entry, "id"), RLM_STR_NONE), m->base.name)) {
            return;
        }
    }
    unknown_model(m, list, err);
}

static void on_data(void *arg, const struct rlm_http_answer *answer, rlm_str chunk)
{
    struct rlm_check *check = arg;
    struct check_work *work = check->work;
    rlm_buf_add_str(&work->body, chunk);
}

static void
on_end(void *arg, const struct rlm_http_answer *answer, const rlm_error *problem, bool final)
{
    struct rlm_check *check = arg;
    struct check_work *work = check->work;
    const struct remote_model *m = (const struct remote_model *)check->model;
    rlm_error *found = NULL;
    if (problem) {
        rlm_error_set(&found, rlm_error_code(problem), "%s", rlm_error_message(problem));
    } else if (answer->status < 200 || answer->status > 299) {
        struct rlm_refusal refusal = {0};
        if (rlm_refusal_of_answer(answer->status, rlm_buf_str(&work->body), &refusal) < 0) {
            rlm_error_nomem(&found);
        } else {
            rlm_remote_explain(m, &refusal, &found);
            rlm_refusal_deinit(&refusal);
        }
    } else {
        look_for_model(m, rlm_buf_str(&work->body), &found);
    }
    rlm_error *masked = NULL;
    if (found) {
        rlm_remote_mask(m, found, &masked);
    }
    rlm_check_finish(check, masked);
}

int rlm_remote_check(rlm_model *base, struct rlm_check *check, rlm_error **err)
{
    static const struct rlm_http_events events = {on_data, on_end};
    const struct remote_model *m = (const struct remote_model *)base;
    struct check_work *work;
    if (!RLM_NEW(work)) {
        return rlm_error_nomem(err);
    }
    work->body = RLM_BUF(MAX_LIST_BYTES);
    rlm_http *http;
    int r = rlm_hub_http(base->hub, &http, err);
    if (r == 0) {
        struct rlm_http_request request;
        rlm_remote_request(m, m->address.models_url, &request);
        if (request.first_byte_timeout_ms <= 0 ||
            request.first_byte_timeout_ms > CHECK_TIMEOUT_MS) {
            request.first_byte_timeout_ms = CHECK_TIMEOUT_MS;
        }
        request.max_answer_bytes = MAX_LIST_BYTES;
        r = rlm_http_start(http, &request, &events, check, &work->call, err);
    }
    if (r < 0) {
        free(work);
        return r;
    }
    check->work = work;
    return 0;
}

void rlm_remote_check_stop(struct rlm_check *check)
{
    struct check_work *work = check->work;
    if (work) {
        rlm_http_call_free(work->call);
        rlm_buf_deinit(&work->body);
        free(work);
        check->work = NULL;
    }
}
