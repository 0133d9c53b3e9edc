/* The unit-test harness: tests register themselves, each runs in a process of its own with a time
 * limit, results are printed as TAP.
 *
 *     TEST(buf_keeps_its_maximum)
 *     {
 *         CHECK(rlm_buf_add(&b, "xy", 2) == RLM_E_LIMIT);
 *         CHECK_TEXT(b.ptr, "x");
 *     }
 *
 * A CHECK that fails prints where and what, and ends that test. A program with an argument runs only
 * the tests whose name contains it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct harness_test {
    const char *name;
    void (*run)(void);
    struct harness_test *next;
};

void harness_register(struct harness_test *test);
void harness_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));

#define TEST(name)                                                    \
    static void test_##name(void);                                    \
    __attribute__((constructor)) static void register_##name(void)    \
    {                                                                 \
        static struct harness_test test = {#name, test_##name, NULL}; \
        harness_register(&test);                                      \
    }                                                                 \
    static void test_##name(void)

#define CHECK(condition)                                        \
    do {                                                        \
        if (!(condition)) {                                     \
            harness_fail(__FILE__, __LINE__, "%s", #condition); \
        }                                                       \
    } while (0)

#define CHECK_INT(actual, expected)                                                         \
    do {                                                                                    \
        long long a_ = (long long)(actual), e_ = (long long)(expected);                     \
        if (a_ != e_) {                                                                     \
            harness_fail(__FILE__, __LINE__, "%s is %lld, expected %lld", #actual, a_, e_); \
        }                                                                                   \
    } while (0)

/* Both are NUL-terminated text. */
#define CHECK_TEXT(actual, expected)                                                   \
    do {                                                                               \
        const char *a_ = (actual), *e_ = (expected);                                   \
        if (!a_ || strcmp(a_, e_) != 0) {                                              \
            harness_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", #actual, \
                         a_ ? a_ : "(null)", e_);                                      \
        }                                                                              \
    } while (0)

/* `actual` is a struct rlm_str, `expected` a literal or NUL-terminated text. */
#define CHECK_STR(actual, expected)                                                      \
    do {                                                                                 \
        struct rlm_str a_ = (actual);                                                    \
        const char *e_ = (expected);                                                     \
        if (a_.len != strlen(e_) || (a_.len && memcmp(a_.ptr, e_, a_.len) != 0)) {       \
            harness_fail(__FILE__, __LINE__, "%s is \"%.*s\", expected \"%s\"", #actual, \
                         (int)a_.len, a_.ptr ? a_.ptr : "", e_);                         \
        }                                                                                \
    } while (0)

#define CHECK_CONTAINS(text, part)                                                      \
    do {                                                                                \
        const char *t_ = (text), *p_ = (part);                                          \
        if (!t_ || !strstr(t_, p_)) {                                                   \
            harness_fail(__FILE__, __LINE__, "%s is \"%s\", which lacks \"%s\"", #text, \
                         t_ ? t_ : "(null)", p_);                                       \
        }                                                                               \
    } while (0)

/* A directory of this test's own, removed after it. */
const char *harness_directory(void);
