#include "base/alloc.h"
#include "base/map.h"
#include "harness.h"

#include <stdint.h>

static rlm_str key_of(char text[32], int number)
{
    int len = snprintf(text, 32, "key-%d", number);
    return (rlm_str){text, (size_t)len};
}

static void *value_of(int number)
{
    return (void *)(uintptr_t)(number + 1);
}

TEST(map_empty)
{
    struct rlm_map m = {0};
    size_t pos = 0;
    rlm_str key;
    void *value;
    CHECK(!rlm_map_has(&m, RLM_STR("x")));
    CHECK(rlm_map_get(&m, RLM_STR("x")) == NULL);
    CHECK(rlm_map_remove(&m, RLM_STR("x")) == NULL);
    CHECK(!rlm_map_next(&m, &pos, &key, &value));
    rlm_map_deinit(&m);
}

TEST(map_keys_are_copied_and_replaced)
{
    struct rlm_map m = {0};
    char name[] = "name";
    int a, b;
    CHECK_INT(rlm_map_set(&m, rlm_str_of(name), &a), 0);
    name[0] = 'g';
    CHECK(rlm_map_get(&m, RLM_STR("name")) == &a);
    CHECK(!rlm_map_has(&m, RLM_STR("game")));
    CHECK_INT(rlm_map_set(&m, RLM_STR("name"), &b), 0);
    CHECK_INT(m.count, 1);
    CHECK(rlm_map_get(&m, RLM_STR("name")) == &b);
    rlm_map_deinit(&m);
    CHECK_INT(m.count, 0);
}

TEST(map_keys_are_bytes)
{
    struct rlm_map m = {0};
    int values[5];
    rlm_str keys[5] = {RLM_STR_NONE, {"\0", 1}, {"\0\0", 2}, {"a\0b", 3}, {"a\0c", 3}};
    for (int i = 0; i < 5; i++) {
        CHECK_INT(rlm_map_set(&m, keys[i], &values[i]), 0);
    }
    CHECK_INT(m.count, 5);
    for (int i = 0; i < 5; i++) {
        CHECK(rlm_map_get(&m, keys[i]) == &values[i]);
    }
    CHECK(!rlm_map_has(&m, RLM_STR("a")));
    rlm_map_deinit(&m);
}

TEST(map_has_a_key_whose_value_is_null)
{
    struct rlm_map m = {0};
    CHECK_INT(rlm_map_set(&m, RLM_STR("x"), NULL), 0);
    CHECK(rlm_map_has(&m, RLM_STR("x")));
    rlm_map_deinit(&m);
}

TEST(map_many_keys_in_and_out)
{
    enum { COUNT = 20000 };
    struct rlm_map m = {0};
    char text[32];
    for (int i = 0; i < COUNT; i++) {
        CHECK_INT(rlm_map_set(&m, key_of(text, i), value_of(i)), 0);
    }
    CHECK_INT(m.count, COUNT);
    for (int i = 0; i < COUNT; i += 3) {
        CHECK(rlm_map_remove(&m, key_of(text, i)) == value_of(i));
        CHECK(rlm_map_remove(&m, key_of(text, i)) == NULL);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(rlm_map_get(&m, key_of(text, i)) == (i % 3 ? value_of(i) : NULL));
    }
    for (int i = 0; i < COUNT; i += 3) {
        CHECK_INT(rlm_map_set(&m, key_of(text, i), value_of(i)), 0);
    }
    CHECK_INT(m.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        CHECK(rlm_map_get(&m, key_of(text, i)) == value_of(i));
    }
    rlm_map_deinit(&m);
}

TEST(map_does_not_grow_by_removed_keys)
{
    struct rlm_map m = {0};
    char text[32];
    for (int i = 0; i < 100000; i++) {
        CHECK_INT(rlm_map_set(&m, key_of(text, i), value_of(i)), 0);
        CHECK(rlm_map_remove(&m, key_of(text, i)) == value_of(i));
    }
    CHECK_INT(m.count, 0);
    CHECK(m.cap <= 16);
    CHECK(m.used <= m.cap);
    rlm_map_deinit(&m);
}

TEST(map_next_gives_each_once_while_removing)
{
    enum { COUNT = 1000 };
    struct rlm_map m = {0};
    bool seen[COUNT] = {0};
    char text[32];
    for (int i = 0; i < COUNT; i++) {
        CHECK_INT(rlm_map_set(&m, key_of(text, i), value_of(i)), 0);
    }
    size_t pos = 0, found = 0;
    rlm_str key;
    void *value;
    while (rlm_map_next(&m, &pos, &key, &value)) {
        int number = (int)(uintptr_t)value - 1;
        CHECK(number >= 0 && number < COUNT && !seen[number]);
        CHECK(rlm_str_eq(key, key_of(text, number)));
        seen[number] = true;
        found++;
        rlm_map_remove(&m, key_of(text, number));
    }
    CHECK_INT(found, COUNT);
    CHECK_INT(m.count, 0);
    rlm_map_deinit(&m);
}
