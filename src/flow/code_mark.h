/* The marks in a model's reply: lines, fences, tags and Python's quotes. For code.h alone.
 *
 * Positions are offsets into the reply; `end` of a line is before its line ending.
 */
#pragma once

#include "base/str.h"

#include <stdint.h>

static const size_t RLM_CODE_NOWHERE = SIZE_MAX;

static inline bool rlm_code_is_blank_char(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

static inline bool rlm_code_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ASCII alone, whatever the locale. */
static inline bool rlm_code_is_word_char(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

rlm_str rlm_code_trim(rlm_str s);
/* In any case; the list ends with NULL. */
bool rlm_code_is_one_of(rlm_str word, const char *const *list);
/* The end of the line at `pos`: at \n, \r\n, \r or the end of the text. */
size_t rlm_code_line_end(rlm_str s, size_t pos);
/* The start of the next line, given the end of this one. */
size_t rlm_code_line_next(rlm_str s, size_t end);
size_t rlm_code_skip_blanks(rlm_str s, size_t pos, size_t end);
/* How many columns the text from `start` to `end` takes, with a tab stop every four. */
size_t rlm_code_columns(rlm_str s, size_t start, size_t end);

struct rlm_code_fence {
    char mark; /* '`' or '~' */
    size_t len;
    size_t indent; /* columns before it, a list marker included */
    size_t start;  /* offset of the first mark */
    rlm_str info;  /* what follows it on its line, trimmed */
    bool spaced;   /* a blank stands between the fence and the info */
};

/* repl, python, py and so on. */
extern const char *const rlm_code_runnable_tags[];
/* The first word of an info string: "repl" in "repl:", "{.python}" and "repl and". */
rlm_str rlm_code_tag_of(rlm_str info);
bool rlm_code_has_runnable_tag(rlm_str info);
/* A line of prose that opens a block. */
bool rlm_code_read_opener(rlm_str s, size_t start, size_t end, struct rlm_code_fence *f);

enum rlm_code_inner { RLM_CODE_INNER_NONE, RLM_CODE_INNER_CLOSES, RLM_CODE_INNER_OPENS };

/* What a line inside a block that `open` has opened is to that block. */
enum rlm_code_inner rlm_code_read_inner(rlm_str s,
                                        size_t start,
                                        size_t end,
                                        const struct rlm_code_fence *open,
                                        struct rlm_code_fence *f);
/* Where a fence is glued to the end of the line, or RLM_CODE_NOWHERE. */
size_t rlm_code_glued_fence(rlm_str s, size_t start, size_t end, const struct rlm_code_fence *open);
/* Past a first line that only repeats the tag, as in "repl", "repl code block" or "repl and ends
 * with ```", and blank lines before it; `start` when there is none. */
size_t rlm_code_skip_echo(rlm_str s, size_t start);

struct rlm_code_tag {
    rlm_str name;
    bool closing;
    size_t end; /* behind it */
};

/* <name>, </name>, [NAME] or [/NAME] at `pos`; blanks and attributes behind the name are
 * skipped. */
bool rlm_code_read_tag(rlm_str s, size_t pos, struct rlm_code_tag *tag);
/* The text is one tag of those that models put around code, like <tool_call>. */
bool rlm_code_is_wrapper(rlm_str line, bool closing);
/* Finds the next tag of reasoning in [pos, end), or RLM_CODE_NOWHERE. Behind a quote or a backtick
 * one is only talked about. */
size_t rlm_code_find_reasoning_tag(rlm_str s, size_t pos, size_t end, struct rlm_code_tag *tag);
/* Past the end of the reasoning that `open` has begun, or RLM_CODE_NOWHERE when it never ends. */
size_t rlm_code_reasoning_end(rlm_str s, const struct rlm_code_tag *open);
/* The line is nothing but the end of reasoning. */
bool rlm_code_is_reasoning_close(rlm_str s, size_t start, size_t end);

/* The quotes at `pos` are three. */
bool rlm_code_is_triple(rlm_str s, size_t pos);
/* The end of a string in single quotes of either kind, or of its line when it does not end
 * there. */
size_t rlm_code_quoted_end(rlm_str s, size_t pos, bool *ret_ended);
