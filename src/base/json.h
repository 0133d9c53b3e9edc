/* JSON: a parser into an arena, and a writer over a buffer.
 *
 * Ours and not a library's because values must survive: strings may hold NUL and lone surrogates
 * (read from "\udc80" into WTF-8 and written back as the escape), numbers keep their text (any
 * size), the order of members is kept, and depth and size are bounded. Input must be UTF-8 (WTF-8
 * is accepted; the two halves of a surrogate pair, raw or escaped, become one character). A duplicate
 * member: the last one wins on lookup.
 *
 * The tree lives as long as its arena; strings point into the arena, or into the parsed text where
 * it has no escapes (so the text must outlive the tree).
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"

#include <stdint.h>

enum rlm_json_type {
    RLM_JSON_NULL,
    RLM_JSON_FALSE,
    RLM_JSON_TRUE,
    RLM_JSON_NUMBER, /* text = the digits as they stood */
    RLM_JSON_STRING, /* text = WTF-8 */
    RLM_JSON_ARRAY,
    RLM_JSON_OBJECT,
};

typedef struct rlm_json rlm_json;
struct rlm_json {
    uint8_t type;
    uint32_t count; /* elements of an array, members of an object */
    union {
        rlm_str text;
        const rlm_json *items;                 /* array */
        const struct rlm_json_member *members; /* object, in the order of the text */
    };
};

struct rlm_json_member {
    rlm_str key;
    rlm_json value;
};

enum { RLM_JSON_MAX_DEPTH = 256 };

/* Parses one JSON text; only white space may follow. RLM_E_PARSE with the offset and the reason, or
 * RLM_E_NOMEM (also when the arena is full). Does not recurse. Beside the arena it takes memory in
 * proportion to the text while it runs. */
int rlm_json_parse(rlm_arena *a, rlm_str text, const rlm_json **ret_value, rlm_error **err);
/* The same value in another arena, its strings too. RLM_E_NOMEM (also when the arena is full). */
int rlm_json_copy(rlm_arena *a, const rlm_json *value, const rlm_json **ret_value, rlm_error **err);

/* NULL when `object` is NULL, no object, or has no such member. */
const rlm_json *rlm_json_get(const rlm_json *object, const char *key);
const rlm_json *rlm_json_get_str(const rlm_json *object, rlm_str key);
/* NULL when out of range or no array. */
const rlm_json *rlm_json_at(const rlm_json *array, size_t index);

static inline bool rlm_json_is(const rlm_json *v, enum rlm_json_type type)
{
    return v && v->type == type;
}

/* Typed reads with a fallback for "absent or of another type". */
rlm_str rlm_json_text(const rlm_json *v, rlm_str fallback); /* strings only */
bool rlm_json_bool(const rlm_json *v, bool fallback);
/* Integers that fit, also written as 3.0 or 3e2. */
int64_t rlm_json_int(const rlm_json *v, int64_t fallback);

/* The writer. Commas are its business; errors stick in the buffer.
 *
 *     struct rlm_json_writer w = {.buf = &b};
 *     rlm_json_begin(&w, '{');
 *     rlm_json_key(&w, "cell"), rlm_json_put_int(&w, 3);
 *     rlm_json_end(&w, '}');
 */
struct rlm_json_writer {
    struct rlm_buf *buf;
    bool comma; /* something stands before in this container */
};

void rlm_json_begin(struct rlm_json_writer *w, char bracket); /* '{' or '[' */
void rlm_json_end(struct rlm_json_writer *w, char bracket);   /* '}' or ']' */
void rlm_json_key(struct rlm_json_writer *w, const char *key);
void rlm_json_key_str(struct rlm_json_writer *w, rlm_str key);
/* Escapes control characters, quote, backslash; a lone surrogate as \udXXX. The halves of a pair are
 * written as one character, a byte that is no WTF-8 as U+FFFD. The output is always valid UTF-8. */
void rlm_json_put_str(struct rlm_json_writer *w, rlm_str s);
void rlm_json_put_text(struct rlm_json_writer *w, const char *text); /* NULL: null */
void rlm_json_put_int(struct rlm_json_writer *w, int64_t number);
/* Shortest text that reads back as the same double, in any locale, with a point or an exponent as
 * Python writes it (3.0, 1e-07); not finite: null. */
void rlm_json_put_double(struct rlm_json_writer *w, double number);
void rlm_json_put_bool(struct rlm_json_writer *w, bool value);
void rlm_json_put_null(struct rlm_json_writer *w);
/* A JSON text that is known to be valid, as it stands. */
void rlm_json_put_raw(struct rlm_json_writer *w, rlm_str json);
/* A tree, compact. */
void rlm_json_put(struct rlm_json_writer *w, const rlm_json *value);

/* Appends the canonical form of a tree: no white space, members sorted by the bytes of their keys
 * (of duplicates the last), strings escaped as rlm_json_put_str does, numbers as they stood. What
 * calls are matched by (semantics of restore). */
void rlm_json_canonical(struct rlm_buf *out, const rlm_json *value);

/* Shorthands for members of an object: key, then value. */
#define rlm_json_member_str(w, key, s)    (rlm_json_key(w, key), rlm_json_put_str(w, s))
#define rlm_json_member_text(w, key, t)   (rlm_json_key(w, key), rlm_json_put_text(w, t))
#define rlm_json_member_int(w, key, n)    (rlm_json_key(w, key), rlm_json_put_int(w, n))
#define rlm_json_member_double(w, key, n) (rlm_json_key(w, key), rlm_json_put_double(w, n))
#define rlm_json_member_bool(w, key, b)   (rlm_json_key(w, key), rlm_json_put_bool(w, b))
#define rlm_json_member_raw(w, key, s)    (rlm_json_key(w, key), rlm_json_put_raw(w, s))
