#include "base/regex.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/utf8.h"

#include <stdio.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* The matcher does not tell how many steps it took. A search starts with a small limit and is
 * repeated with a larger one when it hits it, so the cost is known within a factor of ten. */
enum { FIRST_STEPS = 100, MOST_STEPS = 1000000, STEP_FACTOR = 10 };
enum { MOST_HEAP_KIB = 32 * 1024, BYTES_PER_STEP = 64 };

struct rlm_regex {
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    struct rlm_buf clean; /* the last text, when it had to be cleaned */
    uint64_t cost;
};

static void *take_memory(size_t size, void *arg)
{
    return rlm_malloc(size);
}

static void free_memory(void *ptr, void *arg)
{
    free(ptr);
}

static int compile(rlm_regex *re, rlm_str pattern, rlm_error **err)
{
    int r;
    rlm_auto_buf struct rlm_buf clean = RLM_BUF(3 * RLM_REGEX_MAX_PATTERN);
    rlm_utf8_clean(&clean, pattern);
    if ((r = rlm_buf_check(&clean, err)) < 0) {
        return r;
    }
    pcre2_compile_context *context = pcre2_compile_context_create(re->memory);
    if (!context) {
        return rlm_error_nomem(err);
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_compile_extra_options(context, PCRE2_EXTRA_ALT_BSUX);
    uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY |
                       PCRE2_ALLOW_EMPTY_CLASS | PCRE2_MATCH_UNSET_BACKREF | PCRE2_NO_UTF_CHECK;
    int code = 0;
    size_t offset = 0;
    const char *text = clean.ptr ? clean.ptr : "";
    re->code = pcre2_compile((PCRE2_SPTR)text, clean.len, options, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (re->code) {
        return 0;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED) {
        return rlm_error_nomem(err);
    }
    char reason[256];
    if (pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason) < 0) {
        snprintf(reason, sizeof reason, "error %d", code);
    }
    return rlm_error_set(err, RLM_E_PARSE, "not a regular expression at byte %zu: %s", offset,
                         reason);
}

int rlm_regex_new(rlm_str pattern, rlm_regex **ret_regex, rlm_error **err)
{
    if (pattern.len > RLM_REGEX_MAX_PATTERN) {
        return rlm_error_set(err, RLM_E_LIMIT,
                             "a regular expression of %zu bytes: at most %d are allowed",
                             pattern.len, RLM_REGEX_MAX_PATTERN);
    }
    rlm_regex *re;
    if (!RLM_NEW(re)) {
        return rlm_error_nomem(err);
    }
    int r;
    re->memory = pcre2_general_context_create(take_memory, free_memory, NULL);
    if (!re->memory) {
        r = rlm_error_nomem(err);
    } else if ((r = compile(re, pattern, err)) == 0) {
        re->match = pcre2_match_data_create_from_pattern(re->code, re->memory);
        re->limits = pcre2_match_context_create(re->memory);
        if (!re->match || !re->limits) {
            r = rlm_error_nomem(err);
        }
    }
    if (r < 0) {
        rlm_regex_free(re);
        return r;
    }
    pcre2_set_heap_limit(re->limits, MOST_HEAP_KIB);
    *ret_regex = re;
    return 0;
}

void rlm_regex_free(rlm_regex *re)
{
    if (!re) {
        return;
    }
    pcre2_match_context_free(re->limits);
    pcre2_match_data_free(re->match);
    pcre2_code_free(re->code);
    pcre2_general_context_free(re->memory);
    rlm_buf_deinit(&re->clean);
    free(re);
}

static int match(rlm_regex *re, rlm_str text)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)(text.ptr ? text.ptr : "");
    for (uint32_t steps = FIRST_STEPS;; steps *= STEP_FACTOR) {
        pcre2_set_match_limit(re->limits, steps);
        int found =
            pcre2_match(re->code, subject, text.len, 0, PCRE2_NO_UTF_CHECK, re->match, re->limits);
        re->cost += steps;
        if (found != PCRE2_ERROR_MATCHLIMIT || steps >= MOST_STEPS) {
            return found;
        }
    }
}

static int match_failed(int code, rlm_error **err)
{
    if (code == PCRE2_ERROR_NOMEMORY) {
        return rlm_error_nomem(err);
    }
    char reason[256];
    if (pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason) < 0) {
        snprintf(reason, sizeof reason, "error %d", code);
    }
    return rlm_error_set(err, RLM_E_LIMIT,
                         "a search was given up (%s): the regular expression needs too much "
                         "backtracking",
                         reason);
}

int rlm_regex_search(
    rlm_regex *re, rlm_str text, rlm_str *ret_groups, size_t n_groups, rlm_error **err)
{
    re->cost = text.len / BYTES_PER_STEP;
    if (!rlm_utf8_valid(text)) {
        rlm_buf_deinit(&re->clean);
        re->clean = RLM_BUF(3 * text.len);
        rlm_utf8_clean(&re->clean, text);
        int r = rlm_buf_check(&re->clean, err);
        if (r < 0) {
            return r;
        }
        text = rlm_buf_str(&re->clean);
    }
    int found = match(re, text);
    if (found == PCRE2_ERROR_NOMATCH) {
        return 0;
    }
    if (found < 0) {
        return match_failed(found, err);
    }
    const PCRE2_SIZE *spans = pcre2_get_ovector_pointer(re->match);
    for (size_t i = 0; i < n_groups; i++) {
        bool set = i < (size_t)found && spans[2 * i] != PCRE2_UNSET;
        /* \K in an assertion can put the start behind the end. */
        ret_groups[i] = set && spans[2 * i] <= spans[2 * i + 1]
                            ? rlm_str_sub(text, spans[2 * i], spans[2 * i + 1])
                            : RLM_STR_NONE;
    }
    return 1;
}

uint64_t rlm_regex_cost(const rlm_regex *re)
{
    return re->cost;
}
