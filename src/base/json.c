#include "base/json.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/json_scan.h"
#include "base/utf8.h"

/* The parser keeps one stack of values that are not in the arena yet. An open container is a slot in
 * it, and its elements are the slots above; `count` of an open container holds the index of the one
 * around it. Closing it copies the elements into the arena and drops them. So nothing recurses, and
 * arrays of any length cost one allocation. */
enum { LOCAL_SLOTS = 48 };
#define NO_CONTAINER UINT32_MAX

struct parser {
    const char *p;
    const char *end;
    const char *start;
    rlm_arena *arena;
    struct rlm_json_member *slots;
    uint32_t top; /* slots in use */
    uint32_t cap;
    uint32_t open; /* the innermost open container, or NO_CONTAINER */
    uint32_t depth;
    struct rlm_json_member *grown; /* slots, once they are on the heap */
    rlm_error **err;
};

static int fail_at(struct parser *p, const char *where, const char *reason)
{
    return rlm_error_set(p->err, RLM_E_PARSE, "not JSON at byte %zu: %s",
                         (size_t)(where - p->start), reason);
}

static int fail(struct parser *p, const char *reason)
{
    return fail_at(p, p->p, p->p == p->end ? "the text ends too early" : reason);
}

static inline void skip_space(struct parser *p)
{
    while (p->p < p->end && (*p->p == ' ' || *p->p == '\n' || *p->p == '\t' || *p->p == '\r')) {
        p->p++;
    }
}

/* ---- strings --------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The code unit of "\uXXXX" at `p`, or -1. */
static int32_t code_unit(const char *p, const char *end)
{
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u') {
        return -1;
    }
    int32_t unit = 0;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0) {
            return -1;
        }
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Decodes the escape at *p and moves on; -1 when it is none. */
static int32_t unescape(const char **p, const char *end)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *letter = end - *p < 2 ? NULL : memchr(letters, (*p)[1], sizeof letters - 1);
    if (letter) {
        *p += 2;
        return values[letter - letters];
    }
    int32_t unit = code_unit(*p, end);
    if (unit < 0) {
        return -1;
    }
    *p += 6;
    if (unit >= 0xD800 && unit < 0xDC00) {
        int32_t low = code_unit(*p, end);
        if (low >= 0xDC00 && low < 0xE000) {
            *p += 6;
            return (int32_t)rlm_utf8_join((uint32_t)unit, (uint32_t)low);
        }
    }
    return unit;
}

/* Makes one character of each high surrogate with a low one behind it, in place; returns the new
 * length. Pairs of which a half stood raw in the text get here; ED A0 to ED BF are surrogates only. */
static size_t join_pairs(char *text, size_t len)
{
    const uint8_t *t = (const uint8_t *)text;
    size_t to = 0;
    for (size_t i = 0; i < len;) {
        if (len - i >= 6 && t[i] == 0xED && (t[i + 1] & 0xF0) == 0xA0 && t[i + 3] == 0xED &&
            (t[i + 4] & 0xF0) == 0xB0) {
            uint32_t high = 0xD000u | (t[i + 1] & 0x3Fu) << 6 | (t[i + 2] & 0x3Fu);
            uint32_t low = 0xD000u | (t[i + 4] & 0x3Fu) << 6 | (t[i + 5] & 0x3Fu);
            to += rlm_utf8_encode(rlm_utf8_join(high, low), text + to);
            i += 6;
        } else {
            text[to++] = text[i++];
        }
    }
    return to;
}

/* Copies the checked text between `from` and `to` into the arena without its escapes. `surrogates`:
 * some stand raw in it, so that pairs may be left which `unescape` did not see. */
static int copy_unescaped(
    struct parser *p, const char *from, const char *to, bool surrogates, rlm_str *ret_text)
{
    char *text = rlm_arena_bytes(p->arena, (size_t)(to - from));
    if (!text) {
        return rlm_error_nomem(p->err);
    }
    size_t len = 0;
    while (from < to) {
        const char *escape = memchr(from, '\\', (size_t)(to - from));
        size_t run = (size_t)((escape ? escape : to) - from);
        memcpy(text + len, from, run);
        len += run;
        from += run;
        if (escape) {
            int32_t c = unescape(&from, to);
            if (c < 0) {
                return fail_at(p, escape, "a bad escape in a string");
            }
            len += rlm_utf8_encode((uint32_t)c, text + len);
        }
    }
    *ret_text = (rlm_str){text, surrogates ? join_pairs(text, len) : len};
    return 0;
}

/* The opening quote is at p->p. */
static int parse_string(struct parser *p, rlm_str *ret_text)
{
    const char *first = ++p->p;
    bool escapes = false, surrogates = false;
    for (;;) {
        p->p += json_plain_run(p->p, (size_t)(p->end - p->p));
        if (p->p == p->end) {
            return fail_at(p, first - 1, "a string without an end");
        }
        uint8_t c = (uint8_t)*p->p;
        if (c == '"') {
            break;
        }
        if (c == '\\') {
            escapes = true;
            /* The second byte is judged later, but must not be taken for the end. */
            p->p += p->end - p->p > 1 && (p->p[1] == '"' || p->p[1] == '\\') ? 2 : 1;
        } else if (c < 0x20) {
            return fail(p, "a control character in a string");
        } else {
            size_t pos = 0;
            int32_t decoded = rlm_utf8_next((rlm_str){p->p, (size_t)(p->end - p->p)}, &pos);
            if (decoded < 0) {
                return fail(p, "bytes that are not UTF-8");
            }
            surrogates |= decoded >= 0xD800 && decoded < 0xE000;
            p->p += pos;
        }
    }
    const char *last = p->p++;
    if (escapes || surrogates) {
        return copy_unescaped(p, first, last, surrogates, ret_text);
    }
    *ret_text = (rlm_str){first, (size_t)(last - first)};
    return 0;
}

/* ---- numbers and words ----------------------------------------------------------------------- */

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int skip_digits(struct parser *p)
{
    if (p->p == p->end || !is_digit(*p->p)) {
        return fail(p, "a digit is missing in a number");
    }
    while (p->p < p->end && is_digit(*p->p)) {
        p->p++;
    }
    return 0;
}

static int parse_number(struct parser *p, rlm_json *ret_value)
{
    int r;
    const char *first = p->p;
    if (*p->p == '-') {
        p->p++;
    }
    if (p->end - p->p > 1 && p->p[0] == '0' && is_digit(p->p[1])) {
        return fail(p, "a number with a leading zero");
    }
    if ((r = skip_digits(p)) < 0) {
        return r;
    }
    if (p->p < p->end && *p->p == '.') {
        p->p++;
        if ((r = skip_digits(p)) < 0) {
            return r;
        }
    }
    if (p->p < p->end && (*p->p == 'e' || *p->p == 'E')) {
        p->p++;
        if (p->p < p->end && (*p->p == '+' || *p->p == '-')) {
            p->p++;
        }
        if ((r = skip_digits(p)) < 0) {
            return r;
        }
    }
    ret_value->type = RLM_JSON_NUMBER;
    ret_value->text = (rlm_str){first, (size_t)(p->p - first)};
    return 0;
}

static int parse_word(struct parser *p, const char *word, enum rlm_json_type type, rlm_json *value)
{
    size_t len = strlen(word);
    if ((size_t)(p->end - p->p) < len || memcmp(p->p, word, len) != 0) {
        return fail_at(p, p->p, "a value was expected");
    }
    p->p += len;
    value->type = (uint8_t)type;
    return 0;
}

/* ---- containers ------------------------------------------------------------------------------ */

static int grow(struct parser *p)
{
    if (p->cap > UINT32_MAX / 2) {
        return fail(p, "more values than can be counted");
    }
    uint32_t cap = p->cap * 2;
    struct rlm_json_member *slots = rlm_realloc(p->grown, cap * sizeof *slots);
    if (!slots) {
        return rlm_error_nomem(p->err);
    }
    if (!p->grown) {
        memcpy(slots, p->slots, p->top * sizeof *slots);
    }
    p->slots = p->grown = slots;
    p->cap = cap;
    return 0;
}

static int open_container(struct parser *p, rlm_json *value, enum rlm_json_type type)
{
    if (p->depth == RLM_JSON_MAX_DEPTH) {
        return fail(p, "nested too deep");
    }
    p->depth++;
    p->p++;
    value->type = (uint8_t)type;
    value->count = p->open;
    p->open = p->top - 1;
    return 0;
}

static int close_container(struct parser *p)
{
    const struct rlm_json_member *elements = p->slots + p->open + 1;
    rlm_json *value = &p->slots[p->open].value;
    uint32_t count = p->top - p->open - 1;
    uint32_t around = value->count;
    value->count = count;
    value->items = NULL;
    if (count && value->type == RLM_JSON_OBJECT) {
        struct rlm_json_member *members = rlm_arena_alloc(p->arena, count * sizeof *members);
        if (!members) {
            return rlm_error_nomem(p->err);
        }
        memcpy(members, elements, count * sizeof *members);
        value->members = members;
    } else if (count) {
        rlm_json *items = rlm_arena_alloc(p->arena, count * sizeof *items);
        if (!items) {
            return rlm_error_nomem(p->err);
        }
        for (uint32_t i = 0; i < count; i++) {
            items[i] = elements[i].value;
        }
        value->items = items;
    }
    p->p++;
    p->depth--;
    p->top = p->open + 1;
    p->open = around;
    return 0;
}

static int parse_key(struct parser *p, rlm_str *ret_key)
{
    if (p->p == p->end || *p->p != '"') {
        return fail(p, "the name of a member was expected");
    }
    int r = parse_string(p, ret_key);
    if (r < 0) {
        return r;
    }
    skip_space(p);
    if (p->p == p->end || *p->p != ':') {
        return fail(p, "':' was expected");
    }
    p->p++;
    skip_space(p);
    return 0;
}

/* Parses one value into a new slot; a container is only opened. */
static int parse_value(struct parser *p)
{
    int r;
    if (p->top == p->cap && (r = grow(p)) < 0) {
        return r;
    }
    struct rlm_json_member *slot = &p->slots[p->top];
    *slot = (struct rlm_json_member){0};
    if (p->open != NO_CONTAINER && p->slots[p->open].value.type == RLM_JSON_OBJECT &&
        (r = parse_key(p, &slot->key)) < 0) {
        return r;
    }
    if (p->p == p->end) {
        return fail(p, NULL);
    }
    p->top++;
    switch (*p->p) {
    case '"':
        slot->value.type = RLM_JSON_STRING;
        return parse_string(p, &slot->value.text);
    case '{':
        return open_container(p, &slot->value, RLM_JSON_OBJECT);
    case '[':
        return open_container(p, &slot->value, RLM_JSON_ARRAY);
    case 't':
        return parse_word(p, "true", RLM_JSON_TRUE, &slot->value);
    case 'f':
        return parse_word(p, "false", RLM_JSON_FALSE, &slot->value);
    case 'n':
        return parse_word(p, "null", RLM_JSON_NULL, &slot->value);
    default:
        if (*p->p == '-' || is_digit(*p->p)) {
            return parse_number(p, &slot->value);
        }
        return fail(p, "a value was expected");
    }
}

/* After a value: closes what ends here. Returns 1 when another value follows, 0 when the outermost
 * value is complete. */
static int parse_after(struct parser *p)
{
    while (p->open != NO_CONTAINER) {
        bool object = p->slots[p->open].value.type == RLM_JSON_OBJECT;
        skip_space(p);
        if (p->p < p->end && *p->p == ',') {
            p->p++;
            return 1;
        }
        if (p->p == p->end || *p->p != (object ? '}' : ']')) {
            return fail(p, object ? "',' or '}' was expected" : "',' or ']' was expected");
        }
        int r = close_container(p);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int parse_document(struct parser *p)
{
    int r = 1;
    while (r > 0) {
        skip_space(p);
        uint32_t open = p->open;
        if ((r = parse_value(p)) < 0) {
            return r;
        }
        r = 1;
        if (p->open != open) {
            skip_space(p);
            char closing = p->slots[p->open].value.type == RLM_JSON_OBJECT ? '}' : ']';
            if (p->p == p->end || *p->p != closing) {
                continue;
            }
        }
        r = parse_after(p);
    }
    skip_space(p);
    return r < 0 || p->p == p->end ? r : fail(p, "something follows after the value");
}

int rlm_json_parse(rlm_arena *a, rlm_str text, const rlm_json **ret_value, rlm_error **err)
{
    if (!text.ptr) {
        text = RLM_STR("");
    }
    /* Clearing the slots would take longer than parsing a small record. */
    struct rlm_json_member local[LOCAL_SLOTS] __attribute__((uninitialized));
    struct parser p = {
        .p = text.ptr,
        .start = text.ptr,
        .end = text.ptr + text.len,
        .arena = a,
        .slots = local,
        .cap = LOCAL_SLOTS,
        .open = NO_CONTAINER,
        .err = err,
    };
    int r = parse_document(&p);
    if (r == 0) {
        rlm_json *value = rlm_arena_alloc(a, sizeof *value);
        if (value) {
            *value = p.slots[0].value;
            *ret_value = value;
        } else {
            r = rlm_error_nomem(err);
        }
    }
    free(p.grown);
    return r;
}

/* ---- reading the tree ------------------------------------------------------------------------ */

const rlm_json *rlm_json_get_str(const rlm_json *object, rlm_str key)
{
    if (rlm_json_is(object, RLM_JSON_OBJECT)) {
        for (uint32_t i = object->count; i-- > 0;) {
            if (rlm_str_eq(object->members[i].key, key)) {
                return &object->members[i].value;
            }
        }
    }
    return NULL;
}

const rlm_json *rlm_json_get(const rlm_json *object, const char *key)
{
    return rlm_json_get_str(object, rlm_str_of(key));
}

const rlm_json *rlm_json_at(const rlm_json *array, size_t index)
{
    return rlm_json_is(array, RLM_JSON_ARRAY) && index < array->count ? &array->items[index] : NULL;
}

rlm_str rlm_json_text(const rlm_json *v, rlm_str fallback)
{
    return rlm_json_is(v, RLM_JSON_STRING) ? v->text : fallback;
}

bool rlm_json_bool(const rlm_json *v, bool fallback)
{
    return rlm_json_is(v, RLM_JSON_TRUE) || (!rlm_json_is(v, RLM_JSON_FALSE) && fallback);
}
