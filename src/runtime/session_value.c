#include "runtime/session.h"

#include "base/error.h"

int session_blob_flags(const struct worker_session *s, rlm_str id)
{
    return (int)(uintptr_t)rlm_map_get(&s->blob_flags, id);
}

int session_allow_blob(struct worker_session *s, const char *id, int flags, rlm_error **err)
{
    int known = session_blob_flags(s, rlm_str_of(id));
    if ((known & flags) == flags) {
        return 0;
    }
    if (s->blob_flags.count >= SESSION_MAX_BLOBS) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "more than %d large values were sent",
                             SESSION_MAX_BLOBS);
    }
    uintptr_t bits = (uintptr_t)(known | flags);
    if (rlm_map_set(&s->blob_flags, rlm_str_of(id), (void *)bits) < 0) {
        return rlm_error_nomem(err);
    }
    return 0;
}

/* ---- from the worker -------------------------------------------------------------------------- */

static bool is_base64(rlm_str s)
{
    size_t padding = 0;
    while (padding < 2 && padding < s.len && s.ptr[s.len - 1 - padding] == '=') {
        padding++;
    }
    for (size_t i = 0; i < s.len - padding; i++) {
        char c = s.ptr[i];
        bool ok = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '+' || c == '/';
        if (!ok) {
            return false;
        }
    }
    return s.len % 4 == 0;
}

static bool is_pairs(const rlm_json *v)
{
    if (!rlm_json_is(v, RLM_JSON_ARRAY)) {
        return false;
    }
    for (uint32_t i = 0; i < v->count; i++) {
        if (!rlm_json_is(&v->items[i], RLM_JSON_ARRAY) || v->items[i].count != 2) {
            return false;
        }
    }
    return true;
}

static int refuse(const struct rlm_json_member *m, rlm_error **err)
{
    int shown = m->key.len > 32 ? 32 : (int)m->key.len;
    return rlm_error_set(err, RLM_E_PROTOCOL, "a call has a value \"%.*s\" that is none", shown,
                         m->key.ptr);
}

/* The tree is in the session's own arena; it is const for those it is handed to. */
static void become_blob(const struct rlm_json_member *m, const struct rlm_blob *blob)
{
    struct rlm_json_member *own = (struct rlm_json_member *)(uintptr_t)m;
    own->key = RLM_STR("$blob");
    own->value.type = RLM_JSON_STRING;
    own->value.count = 0;
    own->value.text = rlm_str_of(blob->id);
}

static int take_stream(struct worker_session *s, const struct rlm_json_member *m, rlm_error **err)
{
    int64_t number = rlm_json_int(&m->value, 0);
    const struct rlm_blob *blob =
        number > 0 && number <= UINT16_MAX ? session_stream_blob(s, (uint16_t)number) : NULL;
    if (!blob) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "a call names stream %lld, on which no value was sent",
                             (long long)number);
    }
    become_blob(m, blob);
    return 0;
}

static int
take_blob(const struct worker_session *s, const struct rlm_json_member *m, rlm_error **err)
{
    rlm_str id = rlm_json_text(&m->value, RLM_STR_NONE);
    if (!(session_blob_flags(s, id) & BLOB_ALLOWED)) {
        return rlm_error_set(err, RLM_E_PROTOCOL,
                             "a call names a blob that the session was not given");
    }
    return 0;
}

/* The one member of an object that stands for something else than a dict. What the worker may not
 * send ($failure, what nobody knows) is refused here, so that no other worker gets to see it. */
static int take_special(struct worker_session *s, const struct rlm_json_member *m, rlm_error **err)
{
    const rlm_json *v = &m->value;
    if (rlm_str_is(m->key, "$stream")) {
        return take_stream(s, m, err);
    }
    if (rlm_str_is(m->key, "$blob")) {
        return take_blob(s, m, err);
    }
    bool ok = false;
    if (rlm_str_is(m->key, "$bytes")) {
        ok = v->type == RLM_JSON_STRING && is_base64(v->text);
    } else if (rlm_str_is(m->key, "$float")) {
        rlm_str text = rlm_json_text(v, RLM_STR_NONE);
        ok = rlm_str_is(text, "inf") || rlm_str_is(text, "-inf") || rlm_str_is(text, "nan");
    } else if (rlm_str_is(m->key, "$tuple") || rlm_str_is(m->key, "$set") ||
               rlm_str_is(m->key, "$frozenset")) {
        ok = v->type == RLM_JSON_ARRAY;
    } else if (rlm_str_is(m->key, "$dir")) {
        /* A directory input, by its name; whether there is one of that name the engine knows. */
        ok = v->type == RLM_JSON_OBJECT && v->count == 1 &&
             rlm_json_is(rlm_json_get(v, "name"), RLM_JSON_STRING);
    } else if (rlm_str_is(m->key, "$dict")) {
        ok = is_pairs(v);
    }
    return ok ? session_take_value(s, v, err) : refuse(m, err);
}

/* Recursion is bounded by RLM_JSON_MAX_DEPTH. */
int session_take_value(struct worker_session *s, const rlm_json *value, rlm_error **err)
{
    int r = 0;
    if (value->type == RLM_JSON_ARRAY) {
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            r = session_take_value(s, &value->items[i], err);
        }
    } else if (value->type == RLM_JSON_OBJECT) {
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            const struct rlm_json_member *m = &value->members[i];
            if (!rlm_str_starts(m->key, "$")) {
                r = session_take_value(s, &m->value, err);
            } else if (value->count == 1) {
                r = take_special(s, m, err);
            } else {
                r = refuse(m, err);
            }
        }
    }
    return r;
}

/* ---- for the worker --------------------------------------------------------------------------- */

static int announce(struct worker_session *s, rlm_str id, rlm_error **err)
{
    if (session_blob_flags(s, id) & BLOB_ANNOUNCED) {
        return 0;
    }
    const struct rlm_blob *blob = rlm_blobs_find(s->blobs, id);
    if (!blob) {
        int shown = id.len > RLM_SHA256_HEX ? RLM_SHA256_HEX : (int)id.len;
        return rlm_error_set(err, RLM_E_INVAL,
                             "a result names a blob that the run has not: \"%.*s\"", shown,
                             id.ptr ? id.ptr : "");
    }
    int r = session_allow_blob(s, blob->id, BLOB_ALLOWED | BLOB_ANNOUNCED, err);
    return r < 0 ? r : session_send_blob(s, blob, err);
}

static int announce_in(struct worker_session *s, const rlm_json *v, rlm_error **err)
{
    int r = 0;
    if (v->type == RLM_JSON_ARRAY) {
        for (uint32_t i = 0; r == 0 && i < v->count; i++) {
            r = announce_in(s, &v->items[i], err);
        }
    } else if (v->type == RLM_JSON_OBJECT) {
        for (uint32_t i = 0; r == 0 && i < v->count; i++) {
            const struct rlm_json_member *m = &v->members[i];
            r = v->count == 1 && rlm_str_is(m->key, "$blob")
                    ? announce(s, rlm_json_text(&m->value, RLM_STR_NONE), err)
                    : announce_in(s, &m->value, err);
        }
    }
    return r;
}

int session_announce_blobs(struct worker_session *s, rlm_str value_json, rlm_error **err)
{
    /* Most results name none: the text inside a JSON string would have its quotes escaped, so what is
     * not found here is not there. */
    if (!value_json.len || !memmem(value_json.ptr, value_json.len, "\"$blob\"", 7)) {
        return 0;
    }
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    const rlm_json *value;
    if (!a) {
        return rlm_error_nomem(err);
    }
    rlm_autoerr rlm_error *why = NULL;
    int r = rlm_json_parse(a, value_json, &value, &why);
    if (r < 0) {
        return rlm_error_set(err, r == RLM_E_PARSE ? RLM_E_INVAL : r, "a result: %s",
                             rlm_error_message(why));
    }
    return announce_in(s, value, err);
}
