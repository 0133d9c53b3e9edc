/* A hash table from text to pointer. Keys are copied; values are the caller's.
 *
 * `struct rlm_map m = {0}` is an empty map. The caller bounds how much it puts in. Keys of maps that
 * agents fill cannot be chosen so that they collide.
 */
#pragma once

#include "base/str.h"

#include <stdint.h>

struct rlm_map_slot {
    char *key;
    size_t key_len;
    uint64_t hash;
    void *value;
};

struct rlm_map {
    struct rlm_map_slot *slots;
    size_t cap; /* 0 or a power of two */
    size_t count;
    size_t used; /* count plus graves of removed keys */
};

void rlm_map_deinit(struct rlm_map *m);
/* Replaces the value of an existing key. 0 or RLM_E_NOMEM (the map is unchanged). */
int rlm_map_set(struct rlm_map *m, rlm_str key, void *value);
void *rlm_map_get(const struct rlm_map *m, rlm_str key);
bool rlm_map_has(const struct rlm_map *m, rlm_str key);
/* Returns the value that was there, or NULL. */
void *rlm_map_remove(struct rlm_map *m, rlm_str key);
/* Iterates in no order: start with *pos = 0; false at the end. Keys may be removed meanwhile, and
 * values replaced, but no key added. */
bool rlm_map_next(const struct rlm_map *m, size_t *pos, rlm_str *ret_key, void **ret_value);
