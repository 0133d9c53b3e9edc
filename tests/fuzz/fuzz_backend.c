/* A session against any embedding program: the input is a list of lines, each an answer of the program (`o`:
 * opened, `f JSON`: finished, `s JSON`: suspended, `x TEXT`: failed; capitals: of the question before) or
 * what the engine does (`!`: a cell starts, `+`: a call is answered, `u`: the answer was accepted).
 * Whatever comes, the session must keep to its own rules. */
#include "fuzz.h"

#include "base/error.h"
#include "base/loop.h"
#include "runtime/runtime.h"

#include <ctype.h>

enum { MAX_CALLS = 64 };

static struct {
    rlm_backend *backend;
    rlm_session *session;
    uint64_t step;
    bool is_asked, is_closed, died;
    int64_t calls[MAX_CALLS], last_call;
    size_t n_calls;
} w;

/* ---- the program's end ------------------------------------------------------------------------ */

static void ask(uint64_t step)
{
    REQUIRE(!w.is_asked && !w.is_closed && step > w.step);
    w.step = step;
    w.is_asked = true;
}

static void
on_open(void *arg, rlm_backend *b, uint64_t step, const struct rlm_backend_session *session)
{
    w.backend = b;
    ask(step);
}

static void on_text(void *arg, rlm_backend *b, uint64_t step, rlm_str text)
{
    ask(step);
}

static void on_close(void *arg, rlm_backend *b)
{
    REQUIRE(!w.is_closed);
    w.is_closed = true;
}

/* ---- events ----------------------------------------------------------------------------------- */

static void on_ready(void *arg, rlm_str json)
{
    REQUIRE(!w.died && !w.is_asked);
}

static void on_suspended(void *arg, const struct rlm_host_call *calls, size_t n)
{
    REQUIRE(!w.died && !w.is_asked);
    for (size_t i = 0; i < n; i++) {
        rlm_auto_buf struct rlm_buf text = RLM_BUF(64 << 20);
        rlm_json_canonical(&text, calls[i].args);
        rlm_json_canonical(&text, calls[i].kwargs);
        REQUIRE(!strstr(text.ptr, "{\"$stream\"") && !strstr(text.ptr, "{\"$failure\""));
        REQUIRE(calls[i].id == w.last_call + 1);
        w.last_call = calls[i].id;
        if (w.n_calls < MAX_CALLS) {
            w.calls[w.n_calls++] = calls[i].id;
        }
    }
}

static void on_given_up(void *arg, const int64_t *ids, size_t n)
{
    REQUIRE(!w.died && n > 0);
    for (size_t i = 0; i < n; i++) {
        REQUIRE(ids[i] > (i ? ids[i - 1] : 0) && ids[i] <= w.last_call);
        for (size_t k = 0; k < w.n_calls; k++) {
            if (w.calls[k] == ids[i]) {
                w.calls[k] = w.calls[--w.n_calls];
            }
        }
    }
}

static void on_finished(void *arg, const struct rlm_cell_finished *how)
{
    REQUIRE(!w.died && !w.is_asked && !rlm_session_is_busy(w.session));
    w.n_calls = 0;
}

static void on_died(void *arg, const struct rlm_session_death *how)
{
    REQUIRE(!w.died && how->message.len > 0);
    w.died = true;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static void answer_call(void)
{
    struct rlm_call_result result = {.id = w.n_calls ? w.calls[--w.n_calls] : 1,
                                     .value_json = RLM_STR("[1,{\"$tuple\":[]}]")};
    rlm_session_resume(w.session, &result, 1, NULL);
}

static void do_line(const char *line, size_t len)
{
    rlm_str text = len > 2 ? (rlm_str){line + 2, len - 2} : RLM_STR("");
    bool late = isupper((unsigned char)line[0]);
    uint64_t step = late ? w.step - 1 : w.step;
    bool answers = true;
    switch (tolower((unsigned char)line[0])) {
    case 'o':
        rlm_backend_opened(w.backend, step);
        break;
    case 'f':
        rlm_backend_finished(w.backend, step, text);
        break;
    case 's':
        rlm_backend_suspended(w.backend, step, text);
        break;
    case 'x':
        rlm_backend_fail(w.backend, step, text);
        break;
    case '!':
        answers = false;
        rlm_session_start(w.session, 1, RLM_STR("x"), NULL);
        break;
    case '+':
        answers = false;
        answer_call();
        break;
    case 'u':
        answers = false;
        rlm_session_unwind(w.session);
        break;
    default:
        return;
    }
    w.is_asked = w.is_asked && (!answers || late);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct rlm_session_events events = {on_ready, on_suspended, on_finished, on_died,
                                                     on_given_up};
    struct rlm_backend_options options = RLM_BACKEND_OPTIONS_INIT;
    rlm_loop *loop = NULL;
    rlm_blobs *blobs = NULL;
    rlm_runtime *runtime = NULL;
    memset(&w, 0, sizeof w);
    options.open = on_open;
    options.start = on_text;
    options.resume = on_text;
    options.close = on_close;
    REQUIRE(rlm_loop_new(&loop, NULL) == 0 && rlm_blobs_open(NULL, &blobs, NULL) == 0);
    REQUIRE(rlm_runtime_new_custom(loop, &options, &runtime, NULL) == 0);
    struct rlm_session_options o = {.blobs = blobs, .open_json = RLM_STR("{}")};
    REQUIRE(rlm_session_open(runtime, &o, &events, NULL, &w.session, NULL) == 0);
    for (size_t at = 0; at < size && !w.died;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t)(end - data) - at : size - at;
        if (len) {
            do_line((const char *)data + at, len);
            rlm_loop_dispatch(loop);
        }
        at += len + 1;
    }
    rlm_session_close(w.session);
    REQUIRE(w.is_closed);
    rlm_backend_closed(w.backend);
    rlm_runtime_free(runtime);
    rlm_blobs_free(blobs);
    rlm_loop_free(loop);
    return 0;
}
