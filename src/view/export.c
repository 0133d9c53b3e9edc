#include "view/export.h"

#include "base/base64.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* ---- values ---------------------------------------------------------------------------------- */

static int put_blob(struct rlm_export *x,
                    struct rlm_json_writer *w,
                    const rlm_json *reference,
                    const struct rlm_blob *blob,
                    rlm_error **err)
{
    rlm_auto_buf struct rlm_buf bytes = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    int r = blob ? rlm_blobs_read(x->blobs, rlm_str_of(blob->id), &bytes, NULL) : RLM_E_NOT_FOUND;
    if (r == RLM_E_NOMEM) {
        return rlm_error_nomem(err);
    }
    if (r < 0) {
        x->n_missing++;
        rlm_json_put(w, reference);
    } else if (blob->type == RLM_BLOB_TEXT) {
        rlm_json_put_str(w, rlm_buf_str(&bytes));
    } else {
        rlm_json_begin(w, '{');
        rlm_json_key(w, "$bytes");
        rlm_json_put_raw(w, RLM_STR("\""));
        rlm_base64_encode(w->buf, rlm_buf_str(&bytes));
        rlm_buf_addc(w->buf, '"');
        rlm_json_end(w, '}');
    }
    return 0;
}

/* The reference to a blob that a value is, or NULL. */
static const rlm_json *reference_of(const rlm_json *value)
{
    const rlm_json *id = rlm_json_get(value, "$blob");
    return rlm_json_is(id, RLM_JSON_STRING) && id->text.len == RLM_SHA256_HEX ? id : NULL;
}

int rlm_export_put_value(struct rlm_export *x,
                         struct rlm_json_writer *w,
                         const rlm_json *value,
                         rlm_error **err)
{
    const rlm_json *id = reference_of(value);
    int r = 0;
    if (id) {
        return put_blob(x, w, value, rlm_blobs_find(x->blobs, id->text), err);
    }
    /* As deep as the parser goes, which is bounded. */
    if (value->type == RLM_JSON_ARRAY) {
        rlm_json_begin(w, '[');
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            r = rlm_export_put_value(x, w, &value->items[i], err);
        }
        rlm_json_end(w, ']');
    } else if (value->type == RLM_JSON_OBJECT) {
        rlm_json_begin(w, '{');
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            rlm_json_key_str(w, value->members[i].key);
            r = rlm_export_put_value(x, w, &value->members[i].value, err);
        }
        rlm_json_end(w, '}');
    } else {
        rlm_json_put(w, value);
    }
    return r;
}

int rlm_export_put_json(struct rlm_export *x,
                        struct rlm_json_writer *w,
                        rlm_str json,
                        rlm_error **err)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    const rlm_json *value;
    int r = a ? rlm_json_parse(a, json, &value, NULL) : RLM_E_NOMEM;
    if (r == RLM_E_NOMEM) {
        return rlm_error_nomem(err);
    }
    if (r < 0) {
        rlm_json_put_str(w, json);
        return 0;
    }
    return rlm_export_put_value(x, w, value, err);
}

int rlm_export_get_text(
    struct rlm_export *x, const rlm_json *value, rlm_arena *a, rlm_str *ret_text, rlm_error **err)
{
    int r = rlm_record_get_text(value, x->blobs, a, ret_text, NULL);
    if (r == RLM_E_NOMEM) {
        return rlm_error_nomem(err);
    }
    if (r < 0) {
        x->n_missing++;
        *ret_text = RLM_STR("");
    }
    return 0;
}

void rlm_export_put_usage(struct rlm_json_writer *w, const struct rlm_usage *usage)
{
    rlm_json_begin(w, '{');
    rlm_record_put_usage(w, usage);
    rlm_json_end(w, '}');
}

/* ---- the run --------------------------------------------------------------------------------- */

static rlm_str keep(struct rlm_export *x, rlm_str text)
{
    return rlm_arena_copy(x->arena, text);
}

static void take_blob(struct rlm_export *x, const rlm_json *record)
{
    rlm_str id = rlm_json_text(rlm_json_get(record, "id"), RLM_STR(""));
    struct rlm_blob facts = {
        .type = rlm_str_is(rlm_json_text(rlm_json_get(record, "type"), RLM_STR("")), "bytes")
                    ? RLM_BLOB_BYTES
                    : RLM_BLOB_TEXT,
        .size_bytes = (uint64_t)rlm_json_int(rlm_json_get(record, "size"), 0),
        .chars = (uint64_t)rlm_json_int(rlm_json_get(record, "chars"), 0),
        .max_char = (uint32_t)rlm_json_int(rlm_json_get(record, "max_char"), 0),
    };
    if (id.len == RLM_SHA256_HEX && !memchr(id.ptr, '/', id.len)) {
        memcpy(facts.id, id.ptr, id.len);
        (void)rlm_blobs_register(x->blobs, &facts,
                                 NULL); /* a gone one is noted where it is named */
    }
}

static int take_run(struct rlm_export *x, const rlm_json *record, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf options = RLM_BUF(RLM_RECORD_MAX_BYTES);
    struct rlm_json_writer w = {.buf = &options};
    const rlm_json *given = rlm_json_get(record, "options");
    if (x->version.len || !rlm_json_is(given, RLM_JSON_OBJECT)) {
        return 0;
    }
    rlm_json_put(&w, given);
    int r = rlm_buf_check(&options, err);
    if (r < 0) {
        return r;
    }
    x->version = keep(x, rlm_json_text(rlm_json_get(record, "version"), RLM_STR("unknown")));
    x->options = keep(x, rlm_buf_str(&options));
    x->started_us = rlm_json_int(rlm_json_get(record, "t"), 0);
    return x->version.ptr && x->options.ptr ? 0 : rlm_error_nomem(err);
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct rlm_export *x = arg;
    if (kind != RLM_RECORD_RUN && kind != RLM_RECORD_RESUMED && kind != RLM_RECORD_BLOB) {
        return 0;
    }
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    const rlm_json *record;
    int r = a ? rlm_json_parse(a, payload, &record, NULL) : RLM_E_NOMEM;
    if (r == RLM_E_NOMEM) {
        return rlm_error_nomem(err);
    }
    if (r < 0) {
        return 0; /* the graph's loader has noted it */
    }
    if (kind == RLM_RECORD_BLOB) {
        take_blob(x, record);
        return 0;
    }
    if (kind == RLM_RECORD_RUN) {
        return take_run(x, record, err);
    }
    rlm_str *one = rlm_vec_push(&x->resumed);
    if (!one || !(*one = keep(x, payload)).ptr) {
        return rlm_error_nomem(err);
    }
    return 0;
}

static bool has_journal(const char *path)
{
    rlm_autofree char *journal = NULL;
    if (asprintf(&journal, "%s/journal", path) < 0) {
        journal = NULL;
        return true;
    }
    return access(journal, F_OK) == 0;
}

static int open_run(struct rlm_export *x, rlm_error **err)
{
    rlm_autofree char *directory = NULL;
    int r = rlm_graph_load(x->journal, &x->root, &x->note, err);
    if (r < 0) {
        return r;
    }
    if (asprintf(&directory, "%s/blobs", x->journal) < 0 || !(x->arena = rlm_arena_new(0))) {
        return rlm_error_nomem(err);
    }
    x->options = RLM_STR("{}");
    if ((r = rlm_blobs_open_to_view(directory, &x->blobs, err)) < 0 || !has_journal(x->journal)) {
        return r;
    }
    return rlm_journal_read(x->journal, on_record, x, NULL, err);
}

static void deinit(struct rlm_export *x)
{
    rlm_graph_free(x->root);
    rlm_blobs_free(x->blobs);
    rlm_arena_free(x->arena);
    free(x->resumed.items);
    free(x->note);
}

static int
write_form(struct rlm_export *x, enum rlm_export_format format, const char *path, rlm_error **err)
{
    struct rlm_target t;
    int r = format == RLM_EXPORT_JSON     ? rlm_target_open(path, &t, err)
            : format == RLM_EXPORT_SQLITE ? rlm_target_name(path, &t, err)
                                          : rlm_target_make_directory(path, &t, err);
    if (r < 0) {
        return r;
    }
    r = format == RLM_EXPORT_JSON     ? rlm_export_json(x, &t, err)
        : format == RLM_EXPORT_SQLITE ? rlm_export_sqlite(x, t.part, err)
                                      : rlm_export_python(x, t.part, err);
    if (r < 0 && format != RLM_EXPORT_JSON) {
        rlm_error_wrap(err, r, "%s", path); /* what is written has another name until it is whole */
    }
    return rlm_target_close(&t, r, err);
}

static int make_note(const struct rlm_export *x, char **ret_note, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf note = RLM_BUF(128 * 1024);
    if (!x->note && !x->n_missing) {
        *ret_note = NULL;
        return 0;
    }
    rlm_buf_adds(&note, x->note ? x->note : "");
    if (x->n_missing) {
        rlm_buf_addf(&note, "%s%" PRIu64 " large value%s missing: their blobs are gone or damaged.",
                     note.len ? "\n" : "", x->n_missing, x->n_missing == 1 ? " is" : "s are");
    }
    int r = rlm_buf_check(&note, err);
    if (r == 0) {
        *ret_note = rlm_buf_take(&note);
    }
    return r;
}

int rlm_graph_save(const rlm_graph *root, const char *path, rlm_error **err)
{
    struct rlm_export x = {.root = root->root};
    int r = rlm_blobs_open(NULL, &x.blobs, err); /* none: what names one is written as it is */
    if (r == 0) {
        r = write_form(&x, RLM_EXPORT_PYTHON, path, err);
    }
    rlm_blobs_free(x.blobs);
    return r;
}

int rlm_run_export(const char *journal,
                   enum rlm_export_format format,
                   const char *path,
                   char **ret_note,
                   rlm_error **err)
{
    struct rlm_export x = {.journal = journal};
    char *note = NULL;
    int r = open_run(&x, err);
    if (r == 0) {
        r = write_form(&x, format, path, err);
    }
    if (r == 0) {
        r = make_note(&x, &note, err);
    }
    deinit(&x);
    if (ret_note) {
        *ret_note = r == 0 ? note : NULL;
    } else {
        free(note);
    }
    return r;
}
