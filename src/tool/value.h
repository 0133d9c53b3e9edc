/* JSON values: equality as JSON Schema means it, repeated items and members, and where a value
 * stands in a tree.
 *
 * Work is charged to `steps`; at 0 the functions stop, and what they return means nothing.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

/* Numbers by value, members in any order. No object in either tree may name a member twice. */
bool rlm_value_equal(const rlm_json *a, const rlm_json *b, uint64_t *steps);

/* 1 and the first two indices when two items of the array are equal, 0 when none are, RLM_E_NOMEM. */
int rlm_value_repeated_item(
    const rlm_json *array, uint64_t *steps, size_t *ret_first, size_t *ret_second, rlm_error **err);

/* 1 with the object and the name when an object of the tree names a member twice, 0 when none does,
 * RLM_E_NOMEM. Counts the values of the tree into `*count`. */
int rlm_value_repeated_member(const rlm_json *tree,
                              uint64_t *count,
                              const rlm_json **ret_object,
                              rlm_str *ret_name,
                              rlm_error **err);

/* Appends the JSON Pointer (RFC 6901) of the value at the address `target` of the tree; false when it
 * is not there. For messages: surrogates and control characters are replaced, long names clipped. */
bool rlm_value_pointer(const rlm_json *tree, const rlm_json *target, struct rlm_buf *out);

/* Appends the value as compact JSON, clipped to `max_chars` code points ("..." at the end). */
void rlm_value_preview(const rlm_json *value, size_t max_chars, struct rlm_buf *out);
/* As above for a list of values: `"a", 2, null`. */
void rlm_value_preview_list(const rlm_json *array, size_t max_chars, struct rlm_buf *out);
/* Cuts what stands in `out` from `start` on to `max_chars` code points, "..." included. */
void rlm_value_clip(struct rlm_buf *out, size_t start, size_t max_chars);

/* What a value in the encoding of the session protocol would be in plain JSON, in the arena (it shares
 * texts with the value): tuples and sets are arrays, a dict is an object whose other keys stand as
 * JSON text and those that begin with "$" have one more, a float that is not finite is a huge number or, as nan, 0. Bytes are
 * objects with the one member "$base64". RLM_E_NOMEM. */
int rlm_value_as_plain(rlm_arena *arena, const rlm_json *value, rlm_json *ret_plain);
