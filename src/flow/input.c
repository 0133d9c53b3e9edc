/* Inputs are taken in before the first step. Small values stand in the graph as JSON, large ones as
 * blobs; files are read on the pool.
 */
#include "flow/input.h"

#include <fcntl.h>

static int
value_of(rlm_run *run, enum rlm_blob_type type, rlm_str value, char **ret_json, rlm_error **err)
{
    int64_t max = run->flow->limits.max_input_bytes;
    if (value.len > (uint64_t)max) {
        return rlm_error_set(err, RLM_E_LIMIT, "it has %zu bytes; max_input_size allows %lld",
                             value.len, (long long)max);
    }
    if (value.len < RLM_BLOB_THRESHOLD) {
        *ret_json = rlm_input_small_value(type, value);
    } else {
        const struct rlm_blob *blob;
        int r = rlm_blobs_put(run->blobs, type, value, &blob, err);
        if (r < 0) {
            return r;
        }
        *ret_json = rlm_input_blob_value(blob);
    }
    return *ret_json ? 0 : rlm_error_nomem(err);
}

static int take_directory(struct rlm_source *s, const char *path, rlm_error **err)
{
    int r = rlm_directory_new(s->name, path, &s->directory, err);
    if (r < 0) {
        return r;
    }
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RLM_INPUT_JSON_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_begin(&w, '{');
    rlm_json_key(&w, "$dir"), rlm_directory_put(s->directory, &w, false);
    rlm_json_end(&w, '}');
    s->value_json = rlm_buf_take(&buf);
    return s->value_json ? 0 : rlm_error_nomem(err);
}

/* The list of every directory goes into the journal. */
int rlm_inputs_record(rlm_run *run)
{
    for (size_t i = 0; run->journal && run->inputs && i < run->inputs->sources.len; i++) {
        const struct rlm_directory *d = run->inputs->sources.items[i].directory;
        if (!d) {
            continue;
        }
        rlm_auto_buf struct rlm_buf buf = RLM_BUF(RLM_RECORD_MAX_BYTES);
        struct rlm_json_writer w = {.buf = &buf};
        rlm_directory_put(d, &w, true);
        rlm_error *err = NULL;
        int r = rlm_buf_check(&buf, &err);
        if (r == 0) {
            r = rlm_journal_append(run->journal, RLM_RECORD_INPUT_LIST, rlm_buf_str(&buf), &err);
        }
        if (r < 0) {
            rlm_run_fail(run, err);
            return r;
        }
    }
    return 0;
}

void rlm_inputs_free(struct rlm_inputs *in)
{
    if (!in) {
        return;
    }
    while (in->working) {
        rlm_loop_turn(in->run->loop);
    }
    for (size_t i = 0; i < in->sources.len; i++) {
        struct rlm_source *s = &in->sources.items[i];
        rlm_input_file_close(&s->file);
        rlm_directory_free(s->directory);
        free(s->value_json);
        free(s->name);
        free(s->path);
    }
    free(in->sources.items);
    rlm_defer_free(in->defer);
    free(in);
}

static void work(void *arg)
{
    struct rlm_inputs *in = arg;
    for (size_t i = 0; i < in->sources.len; i++) {
        if (in->sources.items[i].file.fd >= 0) {
            rlm_input_file_read(&in->sources.items[i].file);
        }
    }
}

static int finish(struct rlm_inputs *in, struct rlm_json_writer *w, rlm_error **err)
{
    rlm_json_begin(w, '{');
    for (size_t i = 0; i < in->sources.len; i++) {
        struct rlm_source *s = &in->sources.items[i];
        if (s->file.fd >= 0) {
            int r = rlm_input_file_value(in->run, &s->file, err);
            if (r < 0) {
                return rlm_error_wrap(err, r, "input %s: %s", s->name, s->path);
            }
            if (s->file.bad_offset >= 0) {
                rlm_run_notice(in->run,
                               "input %s: %s is not UTF-8 (at byte %lld), so it is given as bytes; "
                               "for text say @%s,encoding=latin-1",
                               s->name, s->path, (long long)s->file.bad_offset, s->path);
            }
            s->value_json = rlm_steal(&s->file.value_json);
            rlm_input_file_close(&s->file);
        }
        rlm_json_member_raw(w, s->name, rlm_str_of(s->value_json));
    }
    rlm_json_end(w, '}');
    return rlm_buf_check(w->buf, err);
}

static void taken(void *arg)
{
    struct rlm_inputs *in = arg;
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(RLM_INPUT_JSON_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_error *err = NULL;
    in->working = false;
    if (in->run->stopping) {
        rlm_run_poke(in->run);
        return;
    }
    int r = finish(in, &w, &err);
    in->done(in->run, r < 0 ? NULL : buf.ptr, err);
}

static int take(rlm_run *run,
                const struct rlm_input *input,
                struct rlm_source *s,
                bool *ret_file,
                rlm_error **err)
{
    s->name = rlm_strdup(input->name);
    s->path = rlm_strdup(input->path ? input->path : "");
    if (!s->name || !s->path) {
        return rlm_error_nomem(err);
    }
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *json;
    switch (input->kind) {
    case RLM_INPUT_TEXT:
        return value_of(run, RLM_BLOB_TEXT, input->value, &s->value_json, err);
    case RLM_INPUT_BYTES:
        return value_of(run, RLM_BLOB_BYTES, input->value, &s->value_json, err);
    case RLM_INPUT_JSON: {
        if (!arena) {
            return rlm_error_nomem(err);
        }
        int r = rlm_json_parse(arena, input->value, &json, err);
        s->value_json = r == 0 ? rlm_strndup(input->value.ptr, input->value.len) : NULL;
        return r < 0 ? r : s->value_json ? 0 : rlm_error_nomem(err);
    }
    case RLM_INPUT_FILE:
        *ret_file = true;
        s->file.may_stream = true;
        s->file.latin1 = input->encoding && strcmp(input->encoding, "latin-1") == 0;
        if (input->encoding && !s->file.latin1 && strcmp(input->encoding, "utf-8") != 0) {
            return rlm_error_set(err, RLM_E_INVAL,
                                 "encoding \"%s\" is not known; use utf-8 or latin-1",
                                 input->encoding);
        }
        {
            int r = rlm_input_file_open(&s->file, AT_FDCWD, input->path, err);
            if (r == 0 && input->encoding) {
                s->file.type = RLM_BLOB_TEXT;
            }
            return r;
        }
    case RLM_INPUT_DIRECTORY:
        return take_directory(s, input->path, err);
    }
    return rlm_error_set(err, RLM_E_INVAL, "an input of kind %d", (int)input->kind);
}

int rlm_inputs_begin(rlm_run *run,
                     const struct rlm_run_options *options,
                     void (*done)(rlm_run *run, const char *inputs_json, rlm_error *error),
                     rlm_error **err)
{
    struct rlm_inputs *in;
    if (!RLM_NEW(in)) {
        return rlm_error_nomem(err);
    }
    run->inputs = in;
    in->run = run;
    in->done = done;
    bool files = false;
    for (size_t i = 0; i < options->n_inputs; i++) {
        const struct rlm_input *input = &options->inputs[i];
        struct rlm_source *s = rlm_vec_push(&in->sources);
        if (!s) {
            return rlm_error_nomem(err);
        }
        rlm_input_file_init(&s->file, run);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(options->inputs[k].name, input->name) == 0) {
                return rlm_error_set(err, RLM_E_INVAL, "two inputs are named \"%s\"", input->name);
            }
        }
        int r = *input->name ? take(run, input, s, &files, err)
                             : rlm_error_set(err, RLM_E_INVAL, "an input has no name");
        if (r < 0) {
            return rlm_error_wrap(err, r, "input %s", input->name);
        }
    }
    in->working = true;
    if (files) {
        int r = rlm_work_start(run->loop, work, taken, in, err);
        in->working = r == 0;
        return r;
    }
    in->defer = rlm_defer_new(run->loop, taken, in);
    if (!in->defer) {
        in->working = false;
        return rlm_error_nomem(err);
    }
    rlm_defer_schedule(in->defer);
    return 0;
}

int rlm_inputs_reopen(rlm_run *run, const rlm_str *lists, size_t n_lists, rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    struct rlm_inputs *in;
    if (!arena || !RLM_NEW(in)) {
        return rlm_error_nomem(err);
    }
    run->inputs = in;
    in->run = run;
    for (size_t i = 0; i < n_lists; i++) {
        const rlm_json *list;
        struct rlm_source *s = rlm_vec_push(&in->sources);
        if (!s) {
            return rlm_error_nomem(err);
        }
        s->file.fd = -1;
        int r = rlm_json_parse(arena, lists[i], &list, err);
        if (r < 0 || (r = rlm_directory_reopen(list, &s->directory, err)) < 0) {
            return r;
        }
        if (s->directory->fd < 0) {
            rlm_run_notice(run, "input %s: the directory %s is not there any more",
                           s->directory->input, s->directory->path);
        }
    }
    return 0;
}
