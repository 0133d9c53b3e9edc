#include "model/dialect.h"

#include "base/utf8.h"

void rlm_dialect_put_text(struct rlm_json_writer *w, rlm_str text)
{
    if (rlm_utf8_valid(text)) {
        rlm_json_put_str(w, text);
        return;
    }
    rlm_auto_buf struct rlm_buf clean = RLM_BUF(w->buf->max_bytes);
    rlm_utf8_clean(&clean, text);
    if (clean.status < 0) {
        w->buf->status = clean.status; /* the builder checks once, at its end */
        return;
    }
    rlm_json_put_str(w, rlm_buf_str(&clean));
}

void rlm_dialect_text(struct rlm_json_writer *w,
                      const char *key,
                      rlm_str text,
                      const rlm_json *extra)
{
    if (!rlm_json_get(extra, key)) {
        rlm_json_key(w, key);
        rlm_dialect_put_text(w, text);
    }
}

void rlm_dialect_extra(struct rlm_json_writer *w, const rlm_json *extra)
{
    for (uint32_t i = 0; extra && i < extra->count; i++) {
        rlm_json_key_str(w, extra->members[i].key);
        rlm_json_put(w, &extra->members[i].value);
    }
}

/* Parses a text of the server into the arena; what is no JSON object is RLM_E_SERVER. An `error`
 * member, or the object of an event named "error", is kept as the refusal of the stream: then the
 * result is 1. */
static int parse(struct rlm_stream *s,
                 rlm_arena *a,
                 rlm_str event,
                 rlm_str data,
                 const rlm_json **ret_object,
                 rlm_error **err)
{
    const rlm_json *object = NULL;
    int r = rlm_json_parse(a, data, &object, NULL);
    if (r == RLM_E_NOMEM) {
        return rlm_error_nomem(err);
    }
    if (r < 0 || !rlm_json_is(object, RLM_JSON_OBJECT)) {
        return rlm_error_set(err, RLM_E_SERVER, "the server sent what is no JSON object: \"%.*s\"",
                             (int)(data.len < 80 ? data.len : 80), data.ptr ? data.ptr : "");
    }
    const rlm_json *error = rlm_json_get(object, "error");
    if (!error && rlm_str_is(event, "error")) {
        error = object;
    }
    if (error && error->type != RLM_JSON_NULL && error->type != RLM_JSON_FALSE) {
        rlm_refusal_deinit(&s->refusal);
        if (rlm_refusal_of_error(error, &s->refusal) < 0) {
            return rlm_error_nomem(err);
        }
        s->refused = true;
        return 1;
    }
    *ret_object = object;
    return 0;
}

int rlm_dialect_event(
    const struct rlm_dialect *d, struct rlm_stream *s, rlm_str name, rlm_str data, rlm_error **err)
{
    if (d->last_event && rlm_str_is(data, d->last_event)) {
        s->over = true;
        return 0;
    }
    if (data.len == 0) {
        return 0; /* a keep-alive of some servers */
    }
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    if (!a) {
        return rlm_error_nomem(err);
    }
    const rlm_json *object;
    int r = parse(s, a, name, data, &object, err);
    if (r == 0) {
        r = d->take_event(s, object, err);
    }
    return r < 0 ? r : 0;
}

int rlm_dialect_whole(const struct rlm_dialect *d,
                      struct rlm_stream *s,
                      rlm_str body,
                      rlm_error **err)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    if (!a) {
        return rlm_error_nomem(err);
    }
    const rlm_json *object;
    int r = parse(s, a, RLM_STR_NONE, body, &object, err);
    if (r != 0) {
        return r < 0 ? r : 0;
    }
    if ((r = d->take_whole(s, object, err)) == 0) {
        s->finished = s->over = true;
    }
    return r;
}
