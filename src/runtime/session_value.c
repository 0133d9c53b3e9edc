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

static int take_reference(void *arg, const struct rlm_json_member *m, rlm_error **err)
{
    return rlm_str_is(m->key, "$stream") ? take_stream(arg, m, err) : take_blob(arg, m, err);
}

int session_take_values(struct worker_session *s, const struct rlm_host_call *call, rlm_error **err)
{
    return rlm_message_check_values(call, take_reference, s, err);
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

static int announce_reference(void *arg, const struct rlm_json_member *m, rlm_error **err)
{
    return announce(arg, rlm_json_text(&m->value, RLM_STR_NONE), err);
}

int session_announce_blobs(struct worker_session *s, rlm_str value_json, rlm_error **err)
{
    return rlm_message_each_blob(value_json, announce_reference, s, err);
}
