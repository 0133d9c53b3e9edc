#include "base/map.h"

#include "base/alloc.h"

enum { SMALLEST = 8 };

/* A removed key leaves a grave, so that searches that passed over it still find what is behind. A
 * free slot is all zero; a grave has no key but this hash. */
enum { GRAVE = 1 };

static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Keys come from agents too. The seed is where the program was loaded, which differs between
 * processes, so that keys that collide cannot be prepared beforehand. */
static uint64_t hash_of(rlm_str key)
{
    static const char anchor;
    uint64_t hash = (uint64_t)(uintptr_t)&anchor ^ 0x9e3779b97f4a7c15u ^ key.len;
    size_t at = 0;
    while (at < key.len) {
        uint64_t word = 0;
        size_t part = key.len - at < sizeof word ? key.len - at : sizeof word;
        memcpy(&word, key.ptr + at, part);
        hash = fold(hash ^ word ^ 0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu ^ hash << 1);
        at += part;
    }
    return fold(hash ^ 0x8ebc6af09c88c6e3u, 0x589965cc75374cc3u);
}

/* The slot of `key`, or NULL. The table always has a free slot, where the search ends. */
static struct rlm_map_slot *find(const struct rlm_map *m, rlm_str key, uint64_t hash)
{
    if (m->cap == 0) {
        return NULL;
    }
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct rlm_map_slot *slot = &m->slots[i];
        if (!slot->key && slot->hash != GRAVE) {
            return NULL;
        }
        if (slot->key && slot->hash == hash &&
            rlm_str_eq((rlm_str){slot->key, slot->key_len}, key)) {
            return slot;
        }
    }
}

static struct rlm_map_slot *free_slot(struct rlm_map_slot *slots, size_t cap, uint64_t hash)
{
    size_t i = hash & (cap - 1);
    while (slots[i].key || slots[i].hash == GRAVE) {
        i = (i + 1) & (cap - 1);
    }
    return &slots[i];
}

/* Makes room for one more: at most three quarters of the slots are taken, graves included. */
static bool grow(struct rlm_map *m)
{
    if (m->cap && m->used + 1 <= m->cap / 4 * 3) {
        return true;
    }
    size_t cap = m->cap ? m->cap : SMALLEST;
    while (m->count + 1 > cap / 2) { /* half full after a rebuild, so that it pays */
        cap *= 2;
    }
    struct rlm_map_slot *slots = rlm_calloc(cap, sizeof *slots);
    if (!slots) {
        return false;
    }
    for (size_t i = 0; i < m->cap; i++) {
        if (m->slots[i].key) {
            *free_slot(slots, cap, m->slots[i].hash) = m->slots[i];
        }
    }
    free(m->slots);
    m->slots = slots;
    m->cap = cap;
    m->used = m->count;
    return true;
}

void rlm_map_deinit(struct rlm_map *m)
{
    for (size_t i = 0; i < m->cap; i++) {
        free(m->slots[i].key);
    }
    free(m->slots);
    *m = (struct rlm_map){0};
}

int rlm_map_set(struct rlm_map *m, rlm_str key, void *value)
{
    uint64_t hash = hash_of(key);
    struct rlm_map_slot *slot = find(m, key, hash);
    if (slot) {
        slot->value = value;
        return 0;
    }
    char *copy = rlm_strndup(key.ptr, key.len);
    if (!copy || !grow(m)) {
        free(copy);
        return RLM_E_NOMEM;
    }
    *free_slot(m->slots, m->cap, hash) = (struct rlm_map_slot){copy, key.len, hash, value};
    m->count++;
    m->used++;
    return 0;
}

void *rlm_map_get(const struct rlm_map *m, rlm_str key)
{
    struct rlm_map_slot *slot = find(m, key, hash_of(key));
    return slot ? slot->value : NULL;
}

bool rlm_map_has(const struct rlm_map *m, rlm_str key)
{
    return find(m, key, hash_of(key)) != NULL;
}

void *rlm_map_remove(struct rlm_map *m, rlm_str key)
{
    struct rlm_map_slot *slot = find(m, key, hash_of(key));
    if (!slot) {
        return NULL;
    }
    void *value = slot->value;
    free(slot->key);
    *slot = (struct rlm_map_slot){.hash = GRAVE};
    m->count--;
    return value;
}

bool rlm_map_next(const struct rlm_map *m, size_t *pos, rlm_str *ret_key, void **ret_value)
{
    while (*pos < m->cap) {
        const struct rlm_map_slot *slot = &m->slots[(*pos)++];
        if (slot->key) {
            if (ret_key) {
                *ret_key = (rlm_str){slot->key, slot->key_len};
            }
            *ret_value = slot->value;
            return true;
        }
    }
    return false;
}
