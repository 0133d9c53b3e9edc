/* Texts parsed and written again, on an arena of the test. */
#pragma once

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "harness.h"

/* Each test is a process of its own; what it parses lives to its end. */
static rlm_arena *arena;

__attribute__((destructor)) static void free_arena(void)
{
    rlm_arena_free(arena);
}

static inline const rlm_json *parse_str(rlm_str text)
{
    rlm_autoerr rlm_error *err = NULL;
    const rlm_json *value = NULL;
    arena = arena ? arena : rlm_arena_new(0);
    int r = rlm_json_parse(arena, text, &value, &err);
    if (r < 0) {
        harness_fail(__FILE__, __LINE__, "%.*s: %s", RLM_FMT(text), rlm_error_message(err));
    }
    return value;
}

static inline const rlm_json *parse(const char *text)
{
    return parse_str(rlm_str_of(text));
}

static inline void check_refused(rlm_str text, size_t offset, const char *reason)
{
    rlm_autoerr rlm_error *err = NULL;
    const rlm_json *value = NULL;
    char where[40];
    arena = arena ? arena : rlm_arena_new(0);
    /* An exact copy, so that a sanitizer sees a read past the end. */
    rlm_autofree char *copy = malloc(text.len ? text.len : 1);
    if (text.len) {
        memcpy(copy, text.ptr, text.len);
    }
    CHECK_INT(rlm_json_parse(arena, (rlm_str){copy, text.len}, &value, &err), RLM_E_PARSE);
    snprintf(where, sizeof where, "at byte %zu: ", offset);
    CHECK_CONTAINS(rlm_error_message(err), where);
    CHECK_CONTAINS(rlm_error_message(err), reason);
    CHECK(!value);
    CHECK_INT(rlm_json_parse(arena, text, &value, NULL), RLM_E_PARSE);
}

#define REFUSED(literal, offset, reason) check_refused(RLM_STR(literal), offset, reason)

static inline void check_written(const rlm_json *value, const char *expected)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(100000);
    struct rlm_json_writer w = {.buf = &b};
    rlm_json_put(&w, value);
    CHECK_STR(rlm_buf_str(&b), expected);
}

static inline void check_canonical(const char *text, const char *expected)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(100000);
    rlm_json_canonical(&b, parse(text));
    CHECK_INT(b.status, 0);
    CHECK_STR(rlm_buf_str(&b), expected);
}
