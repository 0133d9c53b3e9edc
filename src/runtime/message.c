#include "runtime/message.h"

#include "base/error.h"

enum { MAX_NAME = 256 }; /* bytes of a call's name */

/* ---- calls ----------------------------------------------------------------------------------- */

int rlm_message_read_call(const rlm_json *v, struct rlm_host_call *call, rlm_error **err)
{
    call->id = rlm_json_int(rlm_json_get(v, "id"), 0);
    call->name = rlm_json_text(rlm_json_get(v, "name"), RLM_STR_NONE);
    call->args = rlm_json_get(v, "args");
    call->kwargs = rlm_json_get(v, "kwargs");
    if (call->name.len == 0 || call->name.len > MAX_NAME) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a call came without a name");
    }
    if (!rlm_json_is(call->args, RLM_JSON_ARRAY) || !rlm_json_is(call->kwargs, RLM_JSON_OBJECT)) {
        return rlm_error_set(err, RLM_E_PROTOCOL, "a call came without arguments");
    }
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

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

struct values {
    rlm_message_reference reference;
    void *arg;
};

static int check(const struct values *values, const rlm_json *value, rlm_error **err);

/* The one member of an object that stands for something else than a dict. */
static int
check_special(const struct values *values, const struct rlm_json_member *m, rlm_error **err)
{
    const rlm_json *v = &m->value;
    if (rlm_str_is(m->key, "$stream") || rlm_str_is(m->key, "$blob")) {
        return values->reference(values->arg, m, err);
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
    return ok ? check(values, v, err) : refuse(m, err);
}

/* Recursion is bounded by RLM_JSON_MAX_DEPTH. */
static int check(const struct values *values, const rlm_json *value, rlm_error **err)
{
    int r = 0;
    if (value->type == RLM_JSON_ARRAY) {
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            r = check(values, &value->items[i], err);
        }
    } else if (value->type == RLM_JSON_OBJECT) {
        for (uint32_t i = 0; r == 0 && i < value->count; i++) {
            const struct rlm_json_member *m = &value->members[i];
            if (!rlm_str_starts(m->key, "$")) {
                r = check(values, &m->value, err);
            } else if (value->count == 1) {
                r = check_special(values, m, err);
            } else {
                r = refuse(m, err);
            }
        }
    }
    return r;
}

int rlm_message_check_values(const struct rlm_host_call *call,
                             rlm_message_reference reference,
                             void *arg,
                             rlm_error **err)
{
    struct values values = {reference, arg};
    int r = check(&values, call->args, err);
    for (uint32_t i = 0; r == 0 && i < call->kwargs->count; i++) {
        r = check(&values, &call->kwargs->members[i].value, err);
    }
    return r;
}

static int each_blob(const struct values *values, const rlm_json *v, rlm_error **err)
{
    int r = 0;
    if (v->type == RLM_JSON_ARRAY) {
        for (uint32_t i = 0; r == 0 && i < v->count; i++) {
            r = each_blob(values, &v->items[i], err);
        }
    } else if (v->type == RLM_JSON_OBJECT) {
        for (uint32_t i = 0; r == 0 && i < v->count; i++) {
            const struct rlm_json_member *m = &v->members[i];
            r = v->count == 1 && rlm_str_is(m->key, "$blob")
                    ? values->reference(values->arg, m, err)
                    : each_blob(values, &m->value, err);
        }
    }
    return r;
}

int rlm_message_each_blob(rlm_str value_json,
                          rlm_message_reference reference,
                          void *arg,
                          rlm_error **err)
{
    /* The text inside a JSON string would have its quotes escaped, so what is not found here is not
     * there. */
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
    return each_blob(&(struct values){reference, arg}, value, err);
}

/* ---- ends of cells --------------------------------------------------------------------------- */

static const rlm_json *texts(const rlm_json *v)
{
    bool ok = rlm_json_is(v, RLM_JSON_ARRAY);
    for (uint32_t i = 0; ok && i < v->count; i++) {
        ok = v->items[i].type == RLM_JSON_STRING;
    }
    return ok ? v : NULL;
}

static const char *clock_named(rlm_str name)
{
    return rlm_str_is(name, "exec_timeout") ? "exec_timeout"
           : rlm_str_is(name, "cpu_time")   ? "cpu_time"
                                            : NULL;
}

int rlm_message_read_finished(const rlm_json *message,
                              rlm_arena *arena,
                              struct rlm_cell_finished *ret_how,
                              rlm_error **err)
{
    const rlm_json *error = rlm_json_get(message, "error");
    int64_t omitted = rlm_json_int(rlm_json_get(message, "omitted"), 0);
    struct rlm_cell_finished how = {
        .output = rlm_json_text(rlm_json_get(message, "output"), RLM_STR("")),
        .omitted_chars = omitted > 0 ? (uint64_t)omitted : 0,
        .notes = texts(rlm_json_get(message, "notes")),
        .bound = texts(rlm_json_get(message, "bound")),
        .unbound = texts(rlm_json_get(message, "unbound")),
        .clock = clock_named(rlm_json_text(rlm_json_get(message, "clock"), RLM_STR(""))),
    };
    if (rlm_json_is(error, RLM_JSON_OBJECT)) {
        rlm_str type = rlm_json_text(rlm_json_get(error, "type"), RLM_STR_NONE);
        type = rlm_arena_copy(arena, type.len ? type : RLM_STR("Error"));
        if (!type.ptr) {
            return rlm_error_nomem(err);
        }
        how.error_type = type.ptr;
        how.error_message = rlm_json_text(rlm_json_get(error, "message"), RLM_STR(""));
        how.traceback = rlm_json_text(rlm_json_get(error, "traceback"), RLM_STR(""));
    }
    *ret_how = how;
    return 0;
}

static void put_texts(struct rlm_json_writer *w, const char *key, const rlm_json *list)
{
    if (list) {
        rlm_json_key(w, key);
        rlm_json_put(w, list);
    }
}

void rlm_message_put_finished(struct rlm_json_writer *w, const struct rlm_cell_finished *how)
{
    rlm_json_begin(w, '{');
    rlm_json_member_str(w, "output", how->output);
    rlm_json_member_int(w, "omitted", (int64_t)how->omitted_chars);
    rlm_json_key(w, "error");
    if (how->error_type) {
        rlm_json_begin(w, '{');
        rlm_json_member_text(w, "type", how->error_type);
        rlm_json_member_str(w, "message", how->error_message);
        rlm_json_member_str(w, "traceback", how->traceback);
        rlm_json_end(w, '}');
    } else {
        rlm_json_put_null(w);
    }
    if (how->clock) {
        rlm_json_member_text(w, "clock", how->clock);
    }
    put_texts(w, "notes", how->notes);
    put_texts(w, "bound", how->bound);
    put_texts(w, "unbound", how->unbound);
    rlm_json_end(w, '}');
}

/* ---- results --------------------------------------------------------------------------------- */

void rlm_message_put_result(struct rlm_json_writer *w, const struct rlm_call_result *result)
{
    rlm_json_begin(w, '{');
    rlm_json_member_int(w, "id", result->id);
    if (!result->error_type) {
        rlm_json_member_raw(w, "value", result->value_json);
    } else {
        rlm_json_key(w, "error");
        rlm_json_begin(w, '{');
        rlm_json_member_text(w, "type", result->error_type);
        rlm_json_member_str(w, "message", result->error_message);
        rlm_json_member_text(w, "reason", result->error_reason ? result->error_reason : "");
        rlm_json_member_text(w, "agent_id", result->error_agent_id ? result->error_agent_id : "");
        rlm_json_end(w, '}');
    }
    rlm_json_end(w, '}');
}
