#include "tool/value.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tool/number.h"

enum { FEW = 8, BYTES_PER_STEP = 64, MAX_NAME_CHARS = 100 };

static bool spend(uint64_t *steps, uint64_t cost)
{
    *steps = *steps > cost ? *steps - cost : 0;
    return *steps > 0;
}

/* ---- equality -------------------------------------------------------------------------------- */

static bool equal_objects(const rlm_json *a, const rlm_json *b, uint64_t *steps)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const struct rlm_json_member *m = &a->members[i];
        const rlm_json *other = NULL;
        if (rlm_str_eq(m->key, b->members[i].key)) {
            other = &b->members[i].value;
        } else if (spend(steps, b->count / FEW + 1)) {
            other = rlm_json_get_str(b, m->key);
        }
        if (!other || !rlm_value_equal(&m->value, other, steps)) {
            return false;
        }
    }
    return true;
}

bool rlm_value_equal(const rlm_json *a, const rlm_json *b, uint64_t *steps)
{
    if (a->type != b->type || !spend(steps, 1)) {
        return false;
    }
    switch ((enum rlm_json_type)a->type) {
    case RLM_JSON_NUMBER:
        spend(steps, (a->text.len + b->text.len) / BYTES_PER_STEP);
        return rlm_number_compare(a->text, b->text) == 0;
    case RLM_JSON_STRING:
        spend(steps, a->text.len / BYTES_PER_STEP);
        return rlm_str_eq(a->text, b->text);
    case RLM_JSON_ARRAY:
        for (uint32_t i = 0; a->count == b->count && i < a->count; i++) {
            if (!rlm_value_equal(&a->items[i], &b->items[i], steps)) {
                return false;
            }
        }
        return a->count == b->count;
    case RLM_JSON_OBJECT:
        return a->count == b->count && equal_objects(a, b, steps);
    case RLM_JSON_NULL:
    case RLM_JSON_FALSE:
    case RLM_JSON_TRUE:
        break;
    }
    return true;
}

/* ---- repeated items -------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t hash = (a ^ b) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_text(rlm_str s)
{
    uint64_t hash = s.len;
    for (size_t at = 0; at < s.len; at += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, s.ptr + at, s.len - at < sizeof word ? s.len - at : sizeof word);
        hash = mix(hash, word);
    }
    return hash;
}

/* Equal values have equal hashes. */
static uint64_t hash_value(const rlm_json *v, uint64_t *steps)
{
    uint64_t hash = v->type;
    if (!spend(steps, 1)) {
        return 0;
    }
    switch ((enum rlm_json_type)v->type) {
    case RLM_JSON_NUMBER:
        spend(steps, v->text.len / BYTES_PER_STEP);
        return mix(hash, rlm_number_hash(v->text));
    case RLM_JSON_STRING:
        spend(steps, v->text.len / BYTES_PER_STEP);
        return mix(hash, hash_text(v->text));
    case RLM_JSON_ARRAY:
        for (uint32_t i = 0; i < v->count; i++) {
            hash = mix(hash, hash_value(&v->items[i], steps));
        }
        return hash;
    case RLM_JSON_OBJECT:
        /* A sum, since members have no order. */
        for (uint32_t i = 0; i < v->count; i++) {
            hash += mix(hash_text(v->members[i].key), hash_value(&v->members[i].value, steps));
        }
        return mix(hash, v->count);
    case RLM_JSON_NULL:
    case RLM_JSON_FALSE:
    case RLM_JSON_TRUE:
        break;
    }
    return hash;
}

struct hashed {
    uint64_t hash;
    uint32_t index;
};

static int by_hash_and_index(const void *left, const void *right)
{
    const struct hashed *a = left, *b = right;
    if (a->hash != b->hash) {
        return a->hash < b->hash ? -1 : 1;
    }
    return a->index < b->index ? -1 : a->index > b->index;
}

int rlm_value_repeated_item(
    const rlm_json *array, uint64_t *steps, size_t *ret_first, size_t *ret_second, rlm_error **err)
{
    uint32_t count = array->count;
    if (count < 2) {
        return 0;
    }
    rlm_autofree struct hashed *items = rlm_malloc(count * sizeof *items);
    if (!items) {
        return rlm_error_nomem(err);
    }
    for (uint32_t i = 0; i < count; i++) {
        items[i] = (struct hashed){hash_value(&array->items[i], steps), i};
    }
    if (*steps == 0) {
        return 0;
    }
    qsort(items, count, sizeof *items, by_hash_and_index);
    uint32_t first = 0, second = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = i + 1; j < count && items[j].hash == items[i].hash; j++) {
            if (items[j].index >= second) {
                break;
            }
            if (rlm_value_equal(&array->items[items[i].index], &array->items[items[j].index],
                                steps)) {
                first = items[i].index;
                second = items[j].index;
                break;
            }
            if (*steps == 0) {
                return 0;
            }
        }
    }
    *ret_first = first;
    *ret_second = second;
    return second != UINT32_MAX;
}

/* ---- repeated members ------------------------------------------------------------------------ */

static int by_key(const void *left, const void *right)
{
    const struct rlm_json_member *a = *(const struct rlm_json_member *const *)left;
    const struct rlm_json_member *b = *(const struct rlm_json_member *const *)right;
    if (a->key.len != b->key.len) {
        return a->key.len < b->key.len ? -1 : 1;
    }
    return a->key.len ? memcmp(a->key.ptr, b->key.ptr, a->key.len) : 0;
}

static int find_repeated_key(const rlm_json *object, rlm_str *ret_name, rlm_error **err)
{
    uint32_t count = object->count;
    if (count < 2) {
        return 0;
    }
    const struct rlm_json_member *few[FEW];
    rlm_autofree const struct rlm_json_member **many = NULL;
    if (count > FEW && !(many = rlm_malloc(count * sizeof(void *)))) {
        return rlm_error_nomem(err);
    }
    const struct rlm_json_member **sorted = many ? many : few;
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = &object->members[i];
    }
    qsort(sorted, count, sizeof(void *), by_key);
    for (uint32_t i = 1; i < count; i++) {
        if (by_key(&sorted[i - 1], &sorted[i]) == 0) {
            *ret_name = sorted[i]->key;
            return 1;
        }
    }
    return 0;
}

int rlm_value_repeated_member(const rlm_json *tree,
                              uint64_t *count,
                              const rlm_json **ret_object,
                              rlm_str *ret_name,
                              rlm_error **err)
{
    int r = 0;
    ++*count;
    if (tree->type == RLM_JSON_ARRAY) {
        for (uint32_t i = 0; r == 0 && i < tree->count; i++) {
            r = rlm_value_repeated_member(&tree->items[i], count, ret_object, ret_name, err);
        }
    } else if (tree->type == RLM_JSON_OBJECT) {
        if ((r = find_repeated_key(tree, ret_name, err)) > 0) {
            *ret_object = tree;
        }
        for (uint32_t i = 0; r == 0 && i < tree->count; i++) {
            const rlm_json *member = &tree->members[i].value;
            r = rlm_value_repeated_member(member, count, ret_object, ret_name, err);
        }
    }
    return r;
}

/* ---- for messages ---------------------------------------------------------------------------- */

static void add_pointer_name(struct rlm_buf *out, rlm_str name)
{
    rlm_auto_buf struct rlm_buf clean = RLM_BUF(16 * MAX_NAME_CHARS);
    size_t cut = rlm_utf8_offset(name, MAX_NAME_CHARS);
    rlm_utf8_clean(&clean, rlm_str_sub(name, 0, cut));
    rlm_buf_addc(out, '/');
    for (size_t i = 0; i < clean.len; i++) {
        char c = clean.ptr[i];
        if (c == '~') {
            rlm_buf_adds(out, "~0");
        } else if (c == '/') {
            rlm_buf_adds(out, "~1");
        } else if ((unsigned char)c < 0x20 || c == 0x7f) {
            rlm_buf_addf(out, "\\u%04x", (unsigned)c);
        } else {
            rlm_buf_addc(out, c);
        }
    }
    if (cut < name.len) {
        rlm_buf_adds(out, "...");
    }
}

/* Fills `path` with the indices that lead to `target`; returns how many, or -1. */
static int find_path(const rlm_json *tree, const rlm_json *target, uint32_t *path, int depth)
{
    if (tree == target) {
        return depth;
    }
    bool array = tree->type == RLM_JSON_ARRAY;
    if ((!array && tree->type != RLM_JSON_OBJECT) || depth == RLM_JSON_MAX_DEPTH) {
        return -1;
    }
    for (uint32_t i = 0; i < tree->count; i++) {
        path[depth] = i;
        int found =
            find_path(array ? &tree->items[i] : &tree->members[i].value, target, path, depth + 1);
        if (found >= 0) {
            return found;
        }
    }
    return -1;
}

bool rlm_value_pointer(const rlm_json *tree, const rlm_json *target, struct rlm_buf *out)
{
    uint32_t path[RLM_JSON_MAX_DEPTH];
    int len = find_path(tree, target, path, 0);
    for (int i = 0; i < len; i++) {
        if (tree->type == RLM_JSON_ARRAY) {
            rlm_buf_addf(out, "/%u", path[i]);
            tree = &tree->items[path[i]];
        } else {
            add_pointer_name(out, tree->members[path[i]].key);
            tree = &tree->members[path[i]].value;
        }
    }
    return len >= 0;
}

void rlm_value_clip(struct rlm_buf *out, size_t start, size_t max_chars)
{
    if (out->len == start) {
        return;
    }
    rlm_str added = rlm_str_sub(rlm_buf_str(out), start, out->len);
    if (rlm_utf8_count(added) > max_chars) {
        out->len = start + rlm_utf8_offset(added, max_chars - 3);
        rlm_buf_adds(out, "...");
    }
}

/* Writes at least `enough` bytes of the value if it has them, and not much more. */
static void write_start(struct rlm_json_writer *w, const rlm_json *v, size_t enough)
{
    if (w->buf->len > enough) {
        return;
    }
    if (v->type == RLM_JSON_STRING) {
        rlm_str head = rlm_str_sub(v->text, 0, v->text.len < enough ? v->text.len : enough);
        rlm_json_put_str(w,
                         rlm_str_sub(v->text, 0, rlm_utf8_offset(v->text, rlm_utf8_count(head))));
    } else if (v->type == RLM_JSON_NUMBER) {
        rlm_json_put_raw(w, rlm_str_sub(v->text, 0, v->text.len < enough ? v->text.len : enough));
    } else if (v->type == RLM_JSON_ARRAY) {
        rlm_json_begin(w, '[');
        for (uint32_t i = 0; i < v->count && w->buf->len <= enough; i++) {
            write_start(w, &v->items[i], enough);
        }
        rlm_json_end(w, ']');
    } else if (v->type == RLM_JSON_OBJECT) {
        rlm_json_begin(w, '{');
        for (uint32_t i = 0; i < v->count && w->buf->len <= enough; i++) {
            rlm_str key = v->members[i].key;
            rlm_json_key_str(w, rlm_str_sub(key, 0, rlm_utf8_offset(key, MAX_NAME_CHARS)));
            write_start(w, &v->members[i].value, enough);
        }
        rlm_json_end(w, '}');
    } else {
        rlm_json_put(w, v);
    }
}

void rlm_value_preview(const rlm_json *value, size_t max_chars, struct rlm_buf *out)
{
    size_t start = out->len;
    struct rlm_json_writer w = {.buf = out};
    write_start(&w, value, start + 4 * max_chars);
    rlm_value_clip(out, start, max_chars);
}

void rlm_value_preview_list(const rlm_json *array, size_t max_chars, struct rlm_buf *out)
{
    size_t start = out->len;
    for (uint32_t i = 0; i < array->count && out->len - start <= 4 * max_chars; i++) {
        rlm_buf_adds(out, i ? ", " : "");
        rlm_value_preview(&array->items[i], max_chars, out);
    }
    rlm_value_clip(out, start, max_chars);
}

/* ---- plain JSON ------------------------------------------------------------------------------ */

static rlm_str plain_key(rlm_arena *arena, const rlm_json *key)
{
    rlm_auto_buf struct rlm_buf text = RLM_BUF(64 * 1024 * 1024);
    struct rlm_json_writer w = {.buf = &text};
    if (key->type == RLM_JSON_STRING && !rlm_str_starts(key->text, "$")) {
        return key->text;
    }
    if (key->type == RLM_JSON_STRING) {
        rlm_buf_addc(&text, '$');
        rlm_buf_add_str(&text, key->text);
    } else {
        rlm_json_put(&w, key);
    }
    return text.status < 0 ? RLM_STR_NONE : rlm_arena_copy(arena, rlm_buf_str(&text));
}

/* {"$dict": [[key, value]...]} */
static int plain_dict(rlm_arena *arena, const rlm_json *pairs, rlm_json *ret)
{
    struct rlm_json_member *members = rlm_arena_alloc(arena, (pairs->count + 1) * sizeof *members);
    if (!members) {
        return RLM_E_NOMEM;
    }
    for (uint32_t i = 0; i < pairs->count; i++) {
        members[i].key = plain_key(arena, &pairs->items[i].items[0]);
        if (!members[i].key.ptr ||
            rlm_value_as_plain(arena, &pairs->items[i].items[1], &members[i].value) < 0) {
            return RLM_E_NOMEM;
        }
    }
    *ret = (rlm_json){.type = RLM_JSON_OBJECT, .count = pairs->count, .members = members};
    return 0;
}

static int plain_bytes(rlm_arena *arena, const rlm_json *base64, rlm_json *ret)
{
    struct rlm_json_member *member = rlm_arena_alloc(arena, sizeof *member);
    if (!member) {
        return RLM_E_NOMEM;
    }
    *member = (struct rlm_json_member){RLM_STR("$base64"), *base64};
    *ret = (rlm_json){.type = RLM_JSON_OBJECT, .count = 1, .members = member};
    return 0;
}

static int plain_array(rlm_arena *arena, const rlm_json *array, rlm_json *ret)
{
    rlm_json *items = rlm_arena_alloc(arena, (array->count + 1) * sizeof *items);
    int r = items ? 0 : RLM_E_NOMEM;
    for (uint32_t i = 0; r == 0 && i < array->count; i++) {
        r = rlm_value_as_plain(arena, &array->items[i], &items[i]);
    }
    *ret = (rlm_json){.type = RLM_JSON_ARRAY, .count = array->count, .items = items};
    return r;
}

static int plain_object(rlm_arena *arena, const rlm_json *object, rlm_json *ret)
{
    struct rlm_json_member *members = rlm_arena_alloc(arena, (object->count + 1) * sizeof *members);
    int r = members ? 0 : RLM_E_NOMEM;
    for (uint32_t i = 0; r == 0 && i < object->count; i++) {
        members[i].key = object->members[i].key;
        r = rlm_value_as_plain(arena, &object->members[i].value, &members[i].value);
    }
    *ret = (rlm_json){.type = RLM_JSON_OBJECT, .count = object->count, .members = members};
    return r;
}

int rlm_value_as_plain(rlm_arena *arena, const rlm_json *value, rlm_json *ret_plain)
{
    static const char *const lists[] = {"$tuple", "$set", "$frozenset"};
    const rlm_json *inside;
    if (value->type == RLM_JSON_ARRAY) {
        return plain_array(arena, value, ret_plain);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if ((inside = rlm_json_get(value, lists[i]))) {
            return plain_array(arena, inside, ret_plain);
        }
    }
    if ((inside = rlm_json_get(value, "$dict"))) {
        return plain_dict(arena, inside, ret_plain);
    }
    if ((inside = rlm_json_get(value, "$float"))) {
        bool nan = rlm_str_is(inside->text, "nan"), less = rlm_str_is(inside->text, "-inf");
        *ret_plain = (rlm_json){.type = RLM_JSON_NUMBER,
                                .text = nan    ? RLM_STR("0")
                                        : less ? RLM_STR("-1e999")
                                               : RLM_STR("1e999")};
        return 0;
    }
    if ((inside = rlm_json_get(value, "$bytes"))) {
        return plain_bytes(arena, inside, ret_plain);
    }
    if (value->type == RLM_JSON_OBJECT) {
        return plain_object(arena, value, ret_plain);
    }
    *ret_plain = *value;
    return 0;
}
