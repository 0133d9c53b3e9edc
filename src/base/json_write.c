#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/utf8.h"

enum { COPY_MAX_BYTES = 1 << 30 };

static inline bool is_high(int32_t c)
{
    return c >= 0xD800 && c < 0xDC00;
}

static inline bool is_low(int32_t c)
{
    return c >= 0xDC00 && c < 0xE000;
}

static inline void put_separator(struct rlm_json_writer *w)
{
    if (w->comma) {
        rlm_buf_addc(w->buf, ',');
    }
}

void rlm_json_begin(struct rlm_json_writer *w, char bracket)
{
    put_separator(w);
    rlm_buf_addc(w->buf, bracket);
    w->comma = false;
}

void rlm_json_end(struct rlm_json_writer *w, char bracket)
{
    rlm_buf_addc(w->buf, bracket);
    w->comma = true;
}

/* ---- strings --------------------------------------------------------------------------------- */

static void add_unit(struct rlm_buf *out, uint32_t unit)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {
        '\\', 'u', hex[unit >> 12 & 15], hex[unit >> 8 & 15], hex[unit >> 4 & 15], hex[unit & 15]};
    rlm_buf_add(out, text, sizeof text);
}

static void add_escape(struct rlm_buf *out, char c)
{
    static const char values[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *value = memchr(values, c, sizeof values - 1);
    if (value) {
        char text[2] = {'\\', letters[value - values]};
        rlm_buf_add(out, text, sizeof text);
    } else {
        add_unit(out, (uint8_t)c);
    }
}

/* Adds the surrogate or bad byte that was decoded as `c`, and with it the low half of a pair. Pairs
 * and bad bytes are written as what they are read back as, so that writing again changes nothing. */
static void add_odd(struct rlm_buf *out, rlm_str s, int32_t c, size_t *pos)
{
    if (c < 0) {
        rlm_buf_adds(out, "\xEF\xBF\xBD");
        return;
    }
    size_t after = *pos;
    int32_t low = is_high(c) && after < s.len ? rlm_utf8_next(s, &after) : -1;
    if (is_low(low)) {
        char text[4];
        *pos = after;
        rlm_buf_add(out, text, rlm_utf8_encode(rlm_utf8_join((uint32_t)c, (uint32_t)low), text));
    } else {
        add_unit(out, (uint32_t)c);
    }
}

/* Adds what is between the quotes, in runs of bytes that stand as they are. */
static void add_escaped(struct rlm_buf *out, rlm_str s)
{
    size_t from = 0, pos = 0;
    while (pos < s.len) {
        pos += json_plain_run(s.ptr + pos, s.len - pos);
        if (pos == s.len) {
            break;
        }
        size_t odd = pos;
        if ((uint8_t)s.ptr[pos] >= 0x80) {
            int32_t c = rlm_utf8_next(s, &pos);
            if (c >= 0 && !is_high(c) && !is_low(c)) {
                continue;
            }
            rlm_buf_add(out, s.ptr + from, odd - from);
            add_odd(out, s, c, &pos);
        } else {
            rlm_buf_add(out, s.ptr + from, odd - from);
            add_escape(out, s.ptr[pos++]);
        }
        from = pos;
    }
    rlm_buf_add(out, s.ptr + from, s.len - from);
}

/* Adds a comma if one is due, the string in quotes, and `after` unless it is 0. */
static void put_quoted(struct rlm_json_writer *w, rlm_str s, char after)
{
    if (s.len == 0) {
        s.ptr = "";
    }
    if (json_plain_run(s.ptr, s.len) < s.len) {
        put_separator(w);
        rlm_buf_addc(w->buf, '"');
        add_escaped(w->buf, s);
        rlm_buf_add(w->buf, (char[2]){'"', after}, after ? 2 : 1);
        return;
    }
    size_t size = s.len + 2 + w->comma + (after != 0);
    char *to = rlm_buf_reserve(w->buf, size);
    if (to) {
        if (w->comma) {
            *to++ = ',';
        }
        *to++ = '"';
        memcpy(to, s.ptr, s.len);
        to[s.len] = '"';
        if (after) {
            to[s.len + 1] = after;
        }
        rlm_buf_commit(w->buf, size);
    }
}

void rlm_json_key_str(struct rlm_json_writer *w, rlm_str key)
{
    put_quoted(w, key, ':');
    w->comma = false;
}

void rlm_json_key(struct rlm_json_writer *w, const char *key)
{
    rlm_json_key_str(w, rlm_str_of(key));
}

void rlm_json_put_str(struct rlm_json_writer *w, rlm_str s)
{
    put_quoted(w, s, 0);
    w->comma = true;
}

/* ---- other values ---------------------------------------------------------------------------- */

void rlm_json_put_raw(struct rlm_json_writer *w, rlm_str json)
{
    put_separator(w);
    rlm_buf_add_str(w->buf, json);
    w->comma = true;
}

void rlm_json_put_text(struct rlm_json_writer *w, const char *text)
{
    if (text) {
        rlm_json_put_str(w, rlm_str_of(text));
    } else {
        rlm_json_put_null(w);
    }
}

void rlm_json_put_bool(struct rlm_json_writer *w, bool value)
{
    rlm_json_put_raw(w, value ? RLM_STR("true") : RLM_STR("false"));
}

void rlm_json_put_null(struct rlm_json_writer *w)
{
    rlm_json_put_raw(w, RLM_STR("null"));
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* By key; equal keys in the order of the text, which qsort alone does not keep. */
static int compare_members(const void *a, const void *b)
{
    const struct rlm_json_member *x = *(const struct rlm_json_member *const *)a;
    const struct rlm_json_member *y = *(const struct rlm_json_member *const *)b;
    size_t shorter = x->key.len < y->key.len ? x->key.len : y->key.len;
    int order = shorter ? memcmp(x->key.ptr, y->key.ptr, shorter) : 0;
    if (order == 0) {
        order = (x->key.len > y->key.len) - (x->key.len < y->key.len);
    }
    return order ? order : (x > y) - (x < y);
}

static void put_tree(struct rlm_json_writer *w, const rlm_json *v, bool canonical);

static void put_sorted_members(struct rlm_json_writer *w, const rlm_json *object)
{
    enum { FEW = 16 };
    const struct rlm_json_member *few[FEW] __attribute__((uninitialized)), **sorted = few;
    rlm_autofree const struct rlm_json_member **many = NULL;
    if (object->count > FEW) {
        many = sorted = rlm_malloc(object->count * sizeof *many);
        if (!many) {
            w->buf->status = w->buf->status < 0 ? w->buf->status : RLM_E_NOMEM;
            return;
        }
    }
    for (uint32_t i = 0; i < object->count; i++) {
        sorted[i] = &object->members[i];
    }
    qsort(sorted, object->count, sizeof *sorted, compare_members);
    for (uint32_t i = 0; i < object->count; i++) {
        bool last = i + 1 == object->count || !rlm_str_eq(sorted[i]->key, sorted[i + 1]->key);
        if (last) {
            rlm_json_key_str(w, sorted[i]->key);
            put_tree(w, &sorted[i]->value, true);
        }
    }
}

static void put_members(struct rlm_json_writer *w, const rlm_json *object)
{
    for (uint32_t i = 0; i < object->count; i++) {
        rlm_json_key_str(w, object->members[i].key);
        put_tree(w, &object->members[i].value, false);
    }
}

/* Recurses at most RLM_JSON_MAX_DEPTH times, as the parser makes no deeper tree. */
static void put_tree(struct rlm_json_writer *w, const rlm_json *v, bool canonical)
{
    switch ((enum rlm_json_type)v->type) {
    case RLM_JSON_NULL:
        rlm_json_put_null(w);
        break;
    case RLM_JSON_FALSE:
    case RLM_JSON_TRUE:
        rlm_json_put_bool(w, v->type == RLM_JSON_TRUE);
        break;
    case RLM_JSON_NUMBER:
        rlm_json_put_raw(w, v->text);
        break;
    case RLM_JSON_STRING:
        rlm_json_put_str(w, v->text);
        break;
    case RLM_JSON_ARRAY:
        rlm_json_begin(w, '[');
        for (uint32_t i = 0; i < v->count; i++) {
            put_tree(w, &v->items[i], canonical);
        }
        rlm_json_end(w, ']');
        break;
    case RLM_JSON_OBJECT:
        rlm_json_begin(w, '{');
        if (canonical) {
            put_sorted_members(w, v);
        } else {
            put_members(w, v);
        }
        rlm_json_end(w, '}');
        break;
    }
}

void rlm_json_put(struct rlm_json_writer *w, const rlm_json *value)
{
    put_tree(w, value, false);
}

void rlm_json_canonical(struct rlm_buf *out, const rlm_json *value)
{
    struct rlm_json_writer w = {.buf = out};
    put_tree(&w, value, true);
}

int rlm_json_copy(rlm_arena *a, const rlm_json *value, const rlm_json **ret_value, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf text = RLM_BUF(COPY_MAX_BYTES);
    struct rlm_json_writer w = {.buf = &text};
    rlm_json_put(&w, value);
    rlm_str copy = text.status < 0 ? RLM_STR_NONE : rlm_arena_copy(a, rlm_buf_str(&text));
    return copy.ptr ? rlm_json_parse(a, copy, ret_value, err) : rlm_error_nomem(err);
}
