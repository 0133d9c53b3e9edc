/* Buffers, arenas and errors: what everything else is built from. */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "harness.h"

#include <errno.h>
#include <stdalign.h>
#include <stdint.h>

TEST(buf_appends_and_stays_terminated)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(1000);
    CHECK_INT(rlm_buf_adds(&b, "one"), 0);
    CHECK_TEXT(b.ptr, "one");
    rlm_buf_addc(&b, ' ');
    rlm_buf_add_str(&b, RLM_STR("two"));
    rlm_buf_addf(&b, " %d%s", 3, "!");
    rlm_buf_add(&b, NULL, 0);
    CHECK_TEXT(b.ptr, "one two 3!");
    CHECK_INT(b.len, 10);
    CHECK_STR(rlm_buf_str(&b), "one two 3!");
}

TEST(buf_grows_to_its_maximum_and_not_further)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(1000);
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(rlm_buf_addc(&b, (char)('a' + i % 26)), 0);
    }
    CHECK(b.cap <= 1001);
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(b.ptr[i], 'a' + i % 26);
    }
    CHECK_INT(rlm_buf_addc(&b, 'x'), RLM_E_LIMIT);
    CHECK_INT(b.len, 1000);
    CHECK_INT(b.ptr[1000], 0);
}

TEST(buf_failure_sticks_and_nothing_is_added)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(5);
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(rlm_buf_check(&b, &err), 0);
    CHECK(!err);
    rlm_buf_adds(&b, "abc");
    CHECK_INT(rlm_buf_adds(&b, "def"), RLM_E_LIMIT);
    CHECK_INT(rlm_buf_adds(&b, "d"), RLM_E_LIMIT);
    CHECK_INT(rlm_buf_addf(&b, "%d", 1), RLM_E_LIMIT);
    CHECK(!rlm_buf_reserve(&b, 0));
    CHECK(!rlm_buf_take(&b));
    CHECK_TEXT(b.ptr, "abc");
    CHECK_INT(rlm_buf_check(&b, &err), RLM_E_LIMIT);
    CHECK_CONTAINS(rlm_error_message(err), "more than 5 bytes");
    rlm_buf_clear(&b);
    CHECK_INT(rlm_buf_adds(&b, "fghij"), 0);
    CHECK_TEXT(b.ptr, "fghij");
}

TEST(buf_refuses_sizes_that_overflow)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(SIZE_MAX - 1);
    rlm_buf_adds(&b, "abc");
    CHECK(!rlm_buf_reserve(&b, SIZE_MAX - 3));
    CHECK_INT(b.status, RLM_E_LIMIT);
}

TEST(buf_without_a_maximum)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(SIZE_MAX);
    for (int i = 0; i < 5000; i++) {
        CHECK_INT(rlm_buf_adds(&b, "abc"), 0);
    }
    CHECK(b.cap > 15000);
    CHECK(!rlm_buf_reserve(&b, SIZE_MAX - b.len));
    CHECK_INT(b.status, RLM_E_LIMIT);
}

TEST(buf_reserve_commit_drop)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(100);
    char *room = rlm_buf_reserve(&b, 10);
    memcpy(room, "0123456", 7);
    rlm_buf_commit(&b, 7);
    CHECK_TEXT(b.ptr, "0123456");
    rlm_buf_drop(&b, 0);
    rlm_buf_drop(&b, 3);
    CHECK_TEXT(b.ptr, "3456");
    CHECK_INT(b.len, 4);
    rlm_buf_drop(&b, 4);
    CHECK_TEXT(b.ptr, "");
}

TEST(buf_take_moves_out)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(100);
    rlm_autofree char *empty = rlm_buf_take(&b);
    CHECK_TEXT(empty, "");
    rlm_buf_add(&b, "a\0b", 3);
    rlm_autofree char *taken = rlm_buf_take(&b);
    CHECK(memcmp(taken, "a\0b", 4) == 0);
    CHECK(!b.ptr);
    CHECK_INT(b.len, 0);
    CHECK_INT(rlm_buf_adds(&b, "again"), 0);
    CHECK_TEXT(b.ptr, "again");
}

TEST(arena_memory_is_apart_aligned_and_zeroed)
{
    enum { COUNT = 3000 };
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    static uint8_t *parts[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        size_t size = i * 7 % 900;
        if (i % 3 == 0) {
            CHECK(rlm_arena_bytes(a, i % 5)); /* puts the next one off its alignment */
        }
        parts[i] = rlm_arena_alloc(a, size);
        CHECK(parts[i]);
        CHECK_INT((uintptr_t)parts[i] % alignof(max_align_t), 0);
        for (size_t k = 0; k < size; k++) {
            CHECK_INT(parts[i][k], 0);
        }
        memset(parts[i], (int)(i % 255 + 1), size);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < i * 7 % 900; k++) {
            CHECK_INT(parts[i][k], i % 255 + 1);
        }
    }
}

TEST(arena_keeps_its_maximum)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(10000);
    int count = 0;
    while (count < 1000 && rlm_arena_alloc(a, 100)) {
        count++;
    }
    CHECK(count >= 60 && count <= 100);
    CHECK(rlm_arena_size(a) <= 10000);
    CHECK(!rlm_arena_alloc(a, 20000));
    CHECK(!rlm_arena_alloc(a, SIZE_MAX - 64));
    CHECK(!rlm_arena_copy(a, (rlm_str){"", 100000}).ptr);
    CHECK(!rlm_arena_printf(a, "%20000d", 1).ptr);
}

TEST(arena_refuses_sizes_that_overflow)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    CHECK(!rlm_arena_bytes(a, SIZE_MAX - 1));
    CHECK(!rlm_arena_alloc(a, SIZE_MAX));
    CHECK_INT(rlm_arena_size(a), 0);
}

TEST(arena_large_object_leaves_the_block_in_use)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    CHECK(rlm_arena_alloc(a, 16));
    char *large = rlm_arena_bytes(a, 1000000);
    memset(large, 'x', 1000000);
    size_t before = rlm_arena_size(a);
    memset(rlm_arena_bytes(a, 200), 'y', 200);
    CHECK_INT(rlm_arena_size(a), before);
    CHECK_INT(large[0], 'x');
    CHECK_INT(large[999999], 'x');
}

TEST(arena_text)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    char source[] = "a\0b";
    rlm_str copy = rlm_arena_copy(a, (rlm_str){source, 3});
    source[0] = 'z';
    CHECK_INT(copy.len, 3);
    CHECK(memcmp(copy.ptr, "a\0b", 4) == 0);
    CHECK_STR(rlm_arena_copy(a, RLM_STR_NONE), "");
    CHECK_STR(rlm_arena_printf(a, "%s-%d", "x", 42), "x-42");
    CHECK_INT(rlm_arena_printf(a, "%5000d", 1).len, 5000);
    rlm_arena_free(NULL);
}

TEST(error_says_what_and_where)
{
    rlm_autoerr rlm_error *err = NULL;
    CHECK_INT(rlm_error_set(&err, RLM_E_PARSE, "bad %s", "thing"), RLM_E_PARSE);
    CHECK_INT(rlm_error_code(err), RLM_E_PARSE);
    CHECK_TEXT(rlm_error_message(err), "bad thing");
    CHECK_INT(rlm_error_wrap(&err, RLM_E_PARSE, "opening \"%s\"", "run"), RLM_E_PARSE);
    CHECK_TEXT(rlm_error_message(err), "opening \"run\": bad thing");
    /* Setting replaces, and does not leak. */
    CHECK_INT(rlm_error_set_errno(&err, RLM_E_IO, ENOENT, "reading %s", "f"), RLM_E_IO);
    CHECK_TEXT(rlm_error_message(err), "reading f: No such file or directory");
    CHECK_INT(rlm_error_errno(err), ENOENT);
    CHECK_INT(rlm_error_code(err), RLM_E_IO);
}

TEST(error_may_be_unwanted)
{
    CHECK_INT(rlm_error_set(NULL, RLM_E_IO, "x"), RLM_E_IO);
    CHECK_INT(rlm_error_set_errno(NULL, RLM_E_IO, EIO, "x"), RLM_E_IO);
    CHECK_INT(rlm_error_wrap(NULL, RLM_E_IO, "x"), RLM_E_IO);
    CHECK_INT(rlm_error_nomem(NULL), RLM_E_NOMEM);
    CHECK_INT(rlm_error_code(NULL), 0);
    CHECK_INT(rlm_error_errno(NULL), 0);
    CHECK_TEXT(rlm_error_message(NULL), "");
    rlm_error_free(NULL);
}

TEST(error_out_of_memory_needs_no_memory)
{
    rlm_error *err = NULL;
    rlm_error_set(&err, RLM_E_IO, "x");
    CHECK_INT(rlm_error_nomem(&err), RLM_E_NOMEM);
    CHECK_INT(rlm_error_code(err), RLM_E_NOMEM);
    CHECK_INT(rlm_error_wrap(&err, RLM_E_NOMEM, "opening"), RLM_E_NOMEM);
    CHECK_TEXT(rlm_error_message(err), "out of memory");
    rlm_error_free(err);
    rlm_error_free(err);
}
