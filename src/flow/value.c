#include "flow/value.h"

#include "base/base64.h"
#include "flow/record.h"
#include "flow/run.h"
#include "graph/record.h"

enum { VALUE_MAX = 64 * 1024 * 1024 };

char *rlm_value_of_failure(const char *reason, rlm_str message, const char *agent_id)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(VALUE_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    rlm_json_begin(&w, '{');
    rlm_json_key(&w, "$failure");
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "reason", reason);
    rlm_json_member_str(&w, "message", message);
    rlm_json_member_text(&w, "agent_id", agent_id);
    rlm_json_end(&w, '}');
    rlm_json_end(&w, '}');
    return rlm_buf_take(&buf);
}

char *rlm_value_of_text(rlm_run *run, rlm_str text, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(VALUE_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    if (text.len < RLM_BLOB_THRESHOLD) {
        rlm_json_put_str(&w, text);
    } else {
        const struct rlm_blob *blob;
        if (rlm_blobs_put(run->blobs, RLM_BLOB_TEXT, text, &blob, err) < 0) {
            return NULL;
        }
        if (rlm_record_blob(run, blob) < 0) {
            rlm_error_set(err, RLM_E_IO, "the run has failed");
            return NULL;
        }
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "$blob", blob->id);
        rlm_json_end(&w, '}');
    }
    char *json = rlm_buf_take(&buf);
    if (!json) {
        rlm_error_nomem(err);
    }
    return json;
}

static int read_blob(rlm_run *run, rlm_str id, struct rlm_buf *out, rlm_error **err)
{
    rlm_error *problem = NULL;
    int r = rlm_blobs_read(run->blobs, id, out, &problem);
    if (r == RLM_E_IO || r == RLM_E_NOT_FOUND || r == RLM_E_CORRUPT) {
        rlm_run_fail(run, problem); /* not for agents: it names a path of the host */
        return rlm_error_set(err, r, "the run has failed");
    }
    if (r < 0) {
        rlm_error_set(err, r, "%s", rlm_error_message(problem));
        rlm_error_free(problem);
    }
    return r;
}

int rlm_value_text(rlm_run *run, const rlm_json *value, struct rlm_buf *out, rlm_error **err)
{
    if (rlm_json_is(value, RLM_JSON_STRING)) {
        rlm_buf_add_str(out, value->text);
        return rlm_buf_check(out, err);
    }
    rlm_str id = rlm_json_text(rlm_json_get(value, "$blob"), RLM_STR_NONE);
    const struct rlm_blob *blob = id.len ? rlm_blobs_find(run->blobs, id) : NULL;
    if (!blob || blob->type != RLM_BLOB_TEXT) {
        return rlm_error_set(err, RLM_E_INVAL, "expected a str");
    }
    return read_blob(run, id, out, err);
}

int rlm_value_put_plain(rlm_run *run,
                        const rlm_json *value,
                        struct rlm_json_writer *w,
                        rlm_error **err)
{
    if (rlm_json_is(value, RLM_JSON_ARRAY)) {
        rlm_json_begin(w, '[');
        int r = 0;
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            r = rlm_value_put_plain(run, &value->items[i], w, err);
        }
        rlm_json_end(w, ']');
        return r;
    }
    if (!rlm_json_is(value, RLM_JSON_OBJECT)) {
        rlm_json_put(w, value);
        return 0;
    }
    const struct rlm_json_member *only = value->count == 1 ? value->members : NULL;
    if (only && (rlm_str_is(only->key, "$tuple") || rlm_str_is(only->key, "$set") ||
                 rlm_str_is(only->key, "$frozenset"))) {
        return rlm_value_put_plain(run, &only->value, w, err);
    }
    if (only && rlm_str_is(only->key, "$blob")) {
        rlm_auto_buf struct rlm_buf text = RLM_BUF(VALUE_MAX);
        int r = rlm_value_text(run, value, &text, err);
        rlm_json_put_str(w, rlm_buf_str(&text));
        return r;
    }
    if (only && only->key.len && only->key.ptr[0] == '$') {
        return rlm_error_set(err, RLM_E_SCHEMA, "it holds a value that JSON has no form for (%.*s)",
                             RLM_FMT(rlm_str_sub(only->key, 1, only->key.len)));
    }
    rlm_json_begin(w, '{');
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < value->count; i++) {
        rlm_json_key_str(w, value->members[i].key);
        r = rlm_value_put_plain(run, &value->members[i].value, w, err);
    }
    rlm_json_end(w, '}');
    return r;
}

/* What a blob is, in the place of its name. */
static int put_blob_whole(rlm_run *run, rlm_str id, struct rlm_json_writer *w, rlm_error **err)
{
    const struct rlm_blob *blob = rlm_blobs_find(run->blobs, id);
    rlm_auto_buf struct rlm_buf content = RLM_BUF(VALUE_MAX);
    int r = rlm_buf_check(w->buf, err);
    if (r == 0) {
        r = blob ? read_blob(run, id, &content, err)
                 : rlm_error_set(err, RLM_E_INVAL, "there is no such blob");
    }
    if (r == 0 && blob->type == RLM_BLOB_TEXT) {
        rlm_json_put_str(w, rlm_buf_str(&content));
    } else if (r == 0) {
        rlm_auto_buf struct rlm_buf base64 = RLM_BUF(VALUE_MAX);
        rlm_base64_encode(&base64, rlm_buf_str(&content));
        rlm_json_begin(w, '{');
        rlm_json_member_str(w, "$bytes", rlm_buf_str(&base64));
        rlm_json_end(w, '}');
        r = rlm_buf_check(&base64, err);
    }
    return r;
}

int rlm_value_put_whole(rlm_run *run,
                        const rlm_json *value,
                        struct rlm_json_writer *w,
                        rlm_error **err)
{
    const rlm_json *blob = rlm_json_get(value, "$blob");
    bool array = value->type == RLM_JSON_ARRAY;
    if (blob) {
        return put_blob_whole(run, rlm_json_text(blob, RLM_STR_NONE), w, err);
    }
    if (rlm_json_get(value, "$dir")) {
        return rlm_error_set(err, RLM_E_SCHEMA,
                             "an input that is a directory cannot be passed on; pass the contents "
                             "of its files");
    }
    if (!array && value->type != RLM_JSON_OBJECT) {
        rlm_json_put(w, value);
        return 0;
    }
    int r = 0;
    rlm_json_begin(w, array ? '[' : '{');
    for (uint32_t i = 0; r == 0 && i < value->count; i++) {
        if (!array) {
            rlm_json_key_str(w, value->members[i].key);
        }
        r = rlm_value_put_whole(run, array ? &value->items[i] : &value->members[i].value, w, err);
    }
    rlm_json_end(w, array ? ']' : '}');
    return r;
}

static int put_text_stored(rlm_run *run, rlm_str text, struct rlm_json_writer *w, rlm_error **err)
{
    if (text.len < RLM_BLOB_THRESHOLD) {
        rlm_json_put_str(w, text);
        return 0;
    }
    rlm_autofree char *json = rlm_value_of_text(run, text, err);
    if (json) {
        rlm_json_put_raw(w, rlm_str_of(json));
    }
    return json ? 0 : rlm_error_code(*err);
}

/* In plain JSON a name that begins with "$" is one as any other. */
static bool has_special_name(const rlm_json *object)
{
    for (uint32_t i = 0; i < object->count; i++) {
        if (rlm_str_starts(object->members[i].key, "$")) {
            return true;
        }
    }
    return false;
}

int rlm_value_put_stored(
    rlm_run *run, const rlm_json *value, bool encoded, struct rlm_json_writer *w, rlm_error **err)
{
    bool array = value->type == RLM_JSON_ARRAY;
    if (value->type == RLM_JSON_STRING) {
        return put_text_stored(run, value->text, w, err);
    }
    if (!array && value->type != RLM_JSON_OBJECT) {
        rlm_json_put(w, value);
        return 0;
    }
    if (encoded && rlm_json_get(value, "$bytes")) {
        rlm_json_put(w, value);
        return 0;
    }
    bool pairs = !array && !encoded && has_special_name(value);
    int r = 0;
    if (pairs) {
        rlm_json_begin(w, '{');
        rlm_json_key(w, "$dict");
    }
    rlm_json_begin(w, array || pairs ? '[' : '{');
    for (uint32_t i = 0; r == 0 && i < value->count; i++) {
        if (pairs) {
            rlm_json_begin(w, '[');
            rlm_json_put_str(w, value->members[i].key);
        } else if (!array) {
            rlm_json_key_str(w, value->members[i].key);
        }
        r = rlm_value_put_stored(run, array ? &value->items[i] : &value->members[i].value, encoded,
                                 w, err);
        if (pairs) {
            rlm_json_end(w, ']');
        }
    }
    rlm_json_end(w, array || pairs ? ']' : '}');
    if (pairs) {
        rlm_json_end(w, '}');
    }
    return r;
}

int rlm_value_blobs(rlm_run *run, const rlm_json *value, rlm_blob_callback found, void *arg)
{
    int r = 0;
    if (rlm_json_is(value, RLM_JSON_ARRAY)) {
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            r = rlm_value_blobs(run, &value->items[i], found, arg);
        }
    } else if (rlm_json_is(value, RLM_JSON_OBJECT)) {
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            const struct rlm_json_member *m = &value->members[i];
            const struct rlm_blob *blob = NULL;
            if (rlm_str_is(m->key, "$blob")) {
                blob = rlm_blobs_find(run->blobs, rlm_json_text(&m->value, RLM_STR("")));
            }
            r = blob ? found(arg, blob) : rlm_value_blobs(run, &m->value, found, arg);
        }
    }
    return r;
}
