#include "flow/code.h"

#include "base/error.h"

#include <ctype.h>
#include <stdint.h>
#include <strings.h>

enum { MAX_NESTED = 16, MAX_MARKERS = 3, MAX_WRAPPERS = 3, FREE_INDENT = 3, NOTE_TAG_BYTES = 24 };

static const size_t NOWHERE = SIZE_MAX;

static bool is_blank_char(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

static bool is_word_char(char c)
{
    return c == '_' || isalnum((unsigned char)c);
}

static rlm_str trim(rlm_str s)
{
    while (s.len && is_blank_char(s.ptr[0])) {
        s = rlm_str_sub(s, 1, s.len);
    }
    while (s.len && is_blank_char(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

static bool is_one_of(rlm_str word, const char *const *list)
{
    for (; *list; list++) {
        if (word.len == strlen(*list) && strncasecmp(word.ptr, *list, word.len) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- lines ---- */

/* The end of the line at `pos`, before its line ending: \n, \r\n or \r. */
static size_t line_end(rlm_str s, size_t pos)
{
    while (pos < s.len && s.ptr[pos] != '\n' && s.ptr[pos] != '\r') {
        pos++;
    }
    return pos;
}

/* The start of the next line, given the end of this one. */
static size_t line_next(rlm_str s, size_t end)
{
    if (end < s.len && s.ptr[end] == '\r') {
        end++;
        return end < s.len && s.ptr[end] == '\n' ? end + 1 : end;
    }
    return end < s.len ? end + 1 : end;
}

/* ---- fences ---- */

struct fence {
    char mark; /* '`' or '~' */
    size_t len;
    size_t indent; /* columns before it, a list marker included */
    size_t start;  /* offset of the first mark */
    rlm_str info;  /* what follows it on its line, trimmed */
    bool spaced;   /* a blank stands between the fence and the info */
};

static const char *const runnable_tags[] = {"repl", "python",  "py", "python3",
                                            "py3",  "ipython", NULL};

/* The first word of an info string: "repl" in "repl:", "{.python}" and "repl and". */
static rlm_str tag_of(rlm_str info)
{
    size_t start = 0, end;
    while (start < info.len && (info.ptr[start] == '{' || info.ptr[start] == '.')) {
        start++;
    }
    for (end = start;
         end < info.len && (is_word_char(info.ptr[end]) || strchr("-+#", info.ptr[end])); end++) {
        if (!info.ptr[end]) {
            break;
        }
    }
    return rlm_str_sub(info, start, end);
}

static bool has_runnable_tag(rlm_str info)
{
    return is_one_of(tag_of(info), runnable_tags);
}

/* Words, blanks and light punctuation, and nothing that code would have. */
static bool is_words(rlm_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!isalpha((unsigned char)c) && c != ' ' && c != ',' && c != '.' && c != ':') {
            return false;
        }
    }
    return true;
}

/* An info string of backticks is code between backticks (CommonMark), except for what small models
 * make of the instruction: ```repl and ends with ``` on the first line. */
static bool is_info(rlm_str info)
{
    if (!memchr(info.ptr ? info.ptr : "", '`', info.len)) {
        return true;
    }
    size_t end = info.len;
    while (end && info.ptr[end - 1] == '`') {
        end--;
    }
    rlm_str words = trim(rlm_str_sub(info, 0, end));
    return info.len - end >= 3 && is_words(words) && memchr(words.ptr, ' ', words.len) &&
           has_runnable_tag(words);
}

static size_t columns(rlm_str s, size_t start, size_t end)
{
    size_t column = 0;
    for (size_t i = start; i < end; i++) {
        column = s.ptr[i] == '\t' ? column / 4 * 4 + 4 : column + 1;
    }
    return column;
}

/* Reads a fence whose first mark stands at `at` on the line from `start` to `end`. */
static bool read_fence(rlm_str s, size_t start, size_t at, size_t end, struct fence *f)
{
    size_t after = at;
    if (at >= end || (s.ptr[at] != '`' && s.ptr[at] != '~')) {
        return false;
    }
    while (after < end && s.ptr[after] == s.ptr[at]) {
        after++;
    }
    if (after - at < 3) {
        return false;
    }
    *f = (struct fence){
        .mark = s.ptr[at],
        .len = after - at,
        .indent = columns(s, start, at),
        .start = at,
        .info = trim(rlm_str_sub(s, after, end)),
        .spaced = after < end && is_blank_char(s.ptr[after]),
    };
    return f->mark == '~' || is_info(f->info);
}

static size_t skip_blanks(rlm_str s, size_t pos, size_t end)
{
    while (pos < end && (s.ptr[pos] == ' ' || s.ptr[pos] == '\t')) {
        pos++;
    }
    return pos;
}

/* Past a list marker ("- ", "2. ") and the blanks behind it; `pos` when there is none. */
static size_t skip_marker(rlm_str s, size_t pos, size_t end)
{
    size_t p = pos;
    if (p < end && strchr("-*+", s.ptr[p]) && s.ptr[p]) {
        p++;
    } else {
        while (p < end && p - pos < 9 && isdigit((unsigned char)s.ptr[p])) {
            p++;
        }
        if (p == pos || p >= end || (s.ptr[p] != '.' && s.ptr[p] != ')')) {
            return pos;
        }
        p++;
    }
    size_t after = skip_blanks(s, p, end);
    return after > p ? after : pos;
}

/* "Here is the code: ```repl": a tagged fence behind a colon that ends the line. */
static bool read_fence_behind_colon(rlm_str s, size_t start, size_t end, struct fence *f)
{
    size_t tag, at;
    while (end > start && is_blank_char(s.ptr[end - 1])) {
        end--;
    }
    for (tag = end; tag > start && isalnum((unsigned char)s.ptr[tag - 1]); tag--) {
    }
    for (at = tag; at > start && s.ptr[at - 1] == '`'; at--) {
    }
    rlm_str before = trim(rlm_str_sub(s, start, at));
    if (tag == end || !before.len || before.ptr[before.len - 1] != ':' ||
        !read_fence(s, start, at, end, f) || !has_runnable_tag(f->info)) {
        return false;
    }
    f->indent = 0;
    return true;
}

/* A line of prose that opens a block. */
static bool read_opener(rlm_str s, size_t start, size_t end, struct fence *f)
{
    size_t at = skip_blanks(s, start, end);
    for (int i = 0; i < MAX_MARKERS; i++) {
        at = skip_marker(s, at, end);
    }
    return read_fence(s, start, at, end, f) || read_fence_behind_colon(s, start, end, f);
}

enum inner { INNER_NONE, INNER_CLOSES, INNER_OPENS };

/* What a line inside a block is to that block. */
static enum inner
read_inner(rlm_str s, size_t start, size_t end, const struct fence *open, struct fence *f)
{
    size_t at = skip_blanks(s, start, end);
    if (!read_fence(s, start, at, end, f) || f->mark != open->mark || f->len < open->len) {
        return INNER_NONE;
    }
    /* "``` That is all." is an end with a remark, not the start of a block in the language "That". */
    bool remark = f->spaced && memchr(f->info.ptr, ' ', f->info.len) && !has_runnable_tag(f->info);
    return !f->info.len || remark ? INNER_CLOSES : INNER_OPENS;
}

/* Where a fence is glued to the end of the line, or NOWHERE. */
static size_t glued_fence(rlm_str s, size_t start, size_t end, const struct fence *open)
{
    size_t at;
    while (end > start && is_blank_char(s.ptr[end - 1])) {
        end--;
    }
    for (at = end; at > start && s.ptr[at - 1] == open->mark; at--) {
    }
    return end - at >= open->len && at > start ? at : NOWHERE;
}

/* ---- reasoning ---- */

static const char *const reasoning_tags[] = {
    "think",      "thinking", "thought",    "thoughts", "reasoning",
    "reflection", "analysis", "scratchpad", NULL,
};

struct tag {
    rlm_str name;
    bool closing;
    size_t end; /* behind it */
};

/* <name>, </name>, [NAME] or [/NAME] at `pos`; blanks and attributes behind the name are skipped. */
static bool read_tag(rlm_str s, size_t pos, struct tag *tag)
{
    enum { MAX_TAG_BYTES = 128 };
    char end = s.ptr[pos] == '<' ? '>' : ']';
    size_t limit = s.len - pos > MAX_TAG_BYTES ? pos + MAX_TAG_BYTES : s.len;
    size_t p = pos + 1;
    bool closing = p < limit && s.ptr[p] == '/';
    p += closing;
    size_t name = p;
    while (p < limit && is_word_char(s.ptr[p])) {
        p++;
    }
    *tag = (struct tag){rlm_str_sub(s, name, p), closing, 0};
    if (p == name || p >= limit || (s.ptr[p] != end && s.ptr[p] != ' ')) {
        return false;
    }
    while (p < limit && s.ptr[p] != end && s.ptr[p] != '\n' && s.ptr[p] != '<') {
        p++;
    }
    tag->end = p + 1;
    return p < limit && s.ptr[p] == end;
}

/* Finds the next tag of reasoning in [pos, end). Behind a quote or a backtick one is only named. */
static size_t find_reasoning_tag(rlm_str s, size_t pos, size_t end, struct tag *tag)
{
    for (; pos < end; pos++) {
        char before = pos ? s.ptr[pos - 1] : '\n';
        if ((s.ptr[pos] == '<' || s.ptr[pos] == '[') && before != '`' && before != '"' &&
            before != '\'' && read_tag(s, pos, tag) && is_one_of(tag->name, reasoning_tags) &&
            (s.ptr[pos] == '<' || rlm_str_is(tag->name, "THINK"))) {
            return pos;
        }
    }
    return NOWHERE;
}

/* Past the end of the reasoning that `open` has begun, or NOWHERE when it never ends. */
static size_t reasoning_end(rlm_str s, const struct tag *open)
{
    struct tag tag;
    size_t depth = 1, pos = open->end;
    while ((pos = find_reasoning_tag(s, pos, s.len, &tag)) != NOWHERE) {
        pos = tag.end;
        if (tag.name.len == open->name.len &&
            strncasecmp(tag.name.ptr, open->name.ptr, tag.name.len) == 0) {
            depth = tag.closing ? depth - 1 : depth + 1;
            if (!depth) {
                return pos;
            }
        }
    }
    return NOWHERE;
}

/* The line is nothing but the end of reasoning. */
static bool is_reasoning_close(rlm_str s, size_t start, size_t end)
{
    struct tag tag;
    rlm_str line = trim(rlm_str_sub(s, start, end));
    return line.len > 3 && line.ptr[1] == '/' && find_reasoning_tag(line, 0, 1, &tag) == 0 &&
           tag.end == line.len;
}

/* ---- blocks ---- */

struct block {
    struct fence fence;
    size_t start, end;  /* the body, its last line ending included */
    size_t next;        /* where prose goes on */
    bool opened;        /* reasoning begins in it: its end is no news */
    bool was_reasoning; /* the end of reasoning that began before the block stands in it */
};

/* A reply, and how many bytes may still be read more than once. What looks ahead takes from it, so that
 * no reply, however made, takes more than linear time; a real one never comes near. */
struct text {
    rlm_str s;
    size_t budget;
};

static bool spend(struct text *t, size_t bytes)
{
    bool enough = bytes <= t->budget;
    t->budget = enough ? t->budget - bytes : 0;
    return enough;
}

/* A first line that only repeats the tag, as in "repl", "repl code block" or "repl and ends with ```". */
static size_t skip_echo(rlm_str s, size_t start)
{
    size_t pos = start, end = line_end(s, pos);
    while (end < s.len && !trim(rlm_str_sub(s, pos, end)).len) {
        pos = line_next(s, end);
        end = line_end(s, pos);
    }
    rlm_str line = trim(rlm_str_sub(s, pos, end));
    size_t ticks = 0;
    while (ticks < line.len && line.ptr[line.len - 1 - ticks] == '`') {
        ticks++;
    }
    rlm_str words = rlm_str_sub(line, 0, line.len - ticks);
    rlm_str tag = tag_of(words);
    bool echo = (!ticks || ticks >= 3) && tag.len && tag.ptr == words.ptr &&
                is_one_of(tag, runnable_tags) && is_words(rlm_str_sub(words, tag.len, words.len));
    return echo ? line_next(s, end) : start;
}

static void close_block(struct block *b, size_t end, size_t next)
{
    b->end = end;
    b->next = next;
}

/* Closes at the fence glued to the end of a line, if there was one. */
static bool close_glued(struct text *t, struct block *b, size_t glued, size_t pos)
{
    if (glued == NOWHERE || !spend(t, pos - glued)) {
        return false;
    }
    close_block(b, glued, line_next(t->s, line_end(t->s, glued)));
    return true;
}

/* Notes reasoning on a line of a block; true when that line ends the block as one of reasoning. */
static bool sees_reasoning(rlm_str s, struct block *b, size_t pos, size_t end)
{
    struct tag tag;
    if (is_reasoning_close(s, pos, end) && !b->opened) {
        b->was_reasoning = true;
        close_block(b, pos, line_next(s, end));
        return true;
    }
    b->opened = b->opened || (find_reasoning_tag(s, pos, end, &tag) != NOWHERE && !tag.closing);
    return false;
}

/* The rest of a block as text: tagged fences nest. */
static void scan_text(struct text *t, struct block *b, size_t pos)
{
    size_t lens[MAX_NESTED] = {b->fence.len};
    size_t depth = 0, deeper = 0, glued = NOWHERE;
    rlm_str s = t->s;

    while (pos < s.len) {
        size_t end = line_end(s, pos);
        struct fence f, open = b->fence;
        open.len = lens[depth];
        enum inner inner = read_inner(s, pos, end, &open, &f);
        if (inner != INNER_NONE && f.indent > b->fence.indent + FREE_INDENT) {
            inner = INNER_NONE;
        }
        if (sees_reasoning(s, b, pos, end) ||
            (inner == INNER_OPENS && close_glued(t, b, glued, pos))) {
            return;
        }
        if (inner == INNER_OPENS && !deeper && depth + 1 < MAX_NESTED) {
            lens[++depth] = f.len;
        } else if (inner == INNER_OPENS) {
            deeper++;
        } else if (inner == INNER_CLOSES && deeper) {
            deeper--;
        } else if (inner == INNER_CLOSES && depth) {
            depth--;
        } else if (inner == INNER_CLOSES) {
            close_block(b, pos, line_next(s, end));
            return;
        } else if (glued == NOWHERE && !depth) {
            glued = glued_fence(s, pos, end, &b->fence);
        }
        pos = line_next(s, end);
    }
    if (!close_glued(t, b, glued, s.len)) {
        close_block(b, s.len, s.len);
    }
}

/* A line from `pos` on would close the block. */
static bool has_closer(struct text *t, const struct fence *open, size_t pos)
{
    while (pos < t->s.len) {
        struct fence f;
        size_t end = line_end(t->s, pos);
        if (!spend(t, end - pos + 1)) {
            return false;
        }
        if (read_inner(t->s, pos, end, open, &f) == INNER_CLOSES) {
            return true;
        }
        pos = line_next(t->s, end);
    }
    return false;
}

/* Where the triple-quoted string whose text begins at `start` ends (behind the quotes), or NOWHERE when
 * it does not, or when the fences in it are not in pairs, which says that a quote is missing. */
static size_t triple_end(struct text *t, const struct fence *open, size_t start, char quote)
{
    rlm_str s = t->s;
    bool inside = false, line_start = false;
    size_t pos;
    for (pos = start; pos < s.len; pos++) {
        char c = s.ptr[pos];
        if (line_start) {
            struct fence f;
            enum inner inner = read_inner(s, pos, line_end(s, pos), open, &f);
            if (inner == INNER_OPENS && inside) {
                break;
            }
            inside = inner == INNER_NONE ? inside : !inside;
        }
        line_start = c == '\n' || (c == '\r' && (pos + 1 == s.len || s.ptr[pos + 1] != '\n'));
        if (c == '\\' && pos + 1 < s.len && s.ptr[pos + 1] != '\n' && s.ptr[pos + 1] != '\r') {
            pos++;
        } else if (c == quote && s.len - pos >= 3 && s.ptr[pos + 1] == quote &&
                   s.ptr[pos + 2] == quote) {
            if (inside && !has_closer(t, open, pos + 3)) {
                break;
            }
            return pos + 3;
        }
    }
    spend(t, pos - start);
    return NOWHERE;
}

/* The end of a string in single quotes of either kind, or of its line when it does not end there. */
static size_t quoted_end(rlm_str s, size_t pos, bool *ret_ended)
{
    char quote = s.ptr[pos++];
    *ret_ended = false;
    for (; pos < s.len && s.ptr[pos] != '\n' && s.ptr[pos] != '\r'; pos++) {
        if (s.ptr[pos] == '\\' && pos + 1 < s.len) {
            pos += 1 + (s.ptr[pos + 1] == '\r' && pos + 2 < s.len && s.ptr[pos + 2] == '\n');
        } else if (s.ptr[pos] == quote) {
            *ret_ended = true;
            return pos + 1;
        }
    }
    return pos < s.len ? pos : s.len;
}

static bool is_triple(rlm_str s, size_t pos)
{
    return s.len - pos >= 3 && s.ptr[pos + 1] == s.ptr[pos] && s.ptr[pos + 2] == s.ptr[pos];
}

enum scanned { SCANNED_LINE, SCANNED_BLOCK };

/* Reads Python from `pos` to the end of a line that is not inside a string. */
static enum scanned
scan_line(struct text *t, struct block *b, size_t pos, size_t *ret_end, size_t *glued)
{
    rlm_str s = t->s;
    size_t start = pos, after;
    while (pos < s.len && s.ptr[pos] != '\n' && s.ptr[pos] != '\r') {
        char c = s.ptr[pos];
        bool ended = true;
        if (c == '#') {
            pos = line_end(s, pos);
            ended = false;
        } else if ((c == '"' || c == '\'') && is_triple(s, pos)) {
            after = t->budget ? triple_end(t, &b->fence, pos + 3, c) : NOWHERE;
            if (after == NOWHERE) {
                scan_text(t, b, pos);
                return SCANNED_BLOCK;
            }
            start = pos = after;
        } else if (c == '"' || c == '\'') {
            pos = quoted_end(s, pos, &ended);
        } else if (c == '`' && b->fence.mark == '`') {
            for (after = pos; after < s.len && s.ptr[after] == '`'; after++) {
            }
            if (after - pos >= b->fence.len) {
                close_block(b, pos, after);
                return SCANNED_BLOCK;
            }
            pos = after;
        } else {
            pos++;
        }
        if (!ended && *glued == NOWHERE) {
            *glued = glued_fence(s, start, pos, &b->fence);
        }
    }
    *ret_end = pos;
    return SCANNED_LINE;
}

/* The rest of a block as Python. */
static void scan_python(struct text *t, struct block *b, size_t pos)
{
    rlm_str s = t->s;
    size_t glued = NOWHERE;
    while (pos < s.len) {
        struct fence f;
        size_t end = line_end(s, pos);
        enum inner inner = read_inner(s, pos, end, &b->fence, &f);
        if (sees_reasoning(s, b, pos, end)) {
            return;
        }
        if (inner == INNER_CLOSES) {
            close_block(b, pos, line_next(s, end));
            return;
        }
        if (inner == INNER_OPENS) {
            if (!close_glued(t, b, glued, pos)) {
                close_block(b, pos, pos);
            }
            return;
        }
        if (scan_line(t, b, pos, &end, &glued) == SCANNED_BLOCK) {
            return;
        }
        pos = line_next(s, end);
    }
    if (!close_glued(t, b, glued, s.len)) {
        close_block(b, s.len, s.len);
    }
}

/* ---- the code of a block, as it runs ---- */

static const char *const wrappers[] = {"code",   "tool_call", "tool_code", "repl",
                                       "python", "py",        "execute",   NULL};

/* The text is one tag of those that models put around code. */
static bool is_wrapper(rlm_str line, bool closing)
{
    struct tag tag;
    line = trim(line);
    return line.len > 2 && line.ptr[0] == '<' && read_tag(line, 0, &tag) && tag.end == line.len &&
           tag.closing == closing && is_one_of(tag.name, wrappers);
}

static rlm_str drop_line_ending(rlm_str s)
{
    s.len -= s.len && s.ptr[s.len - 1] == '\n';
    s.len -= s.len && s.ptr[s.len - 1] == '\r';
    return s;
}

static size_t last_line(rlm_str s)
{
    size_t start = s.len;
    while (start && s.ptr[start - 1] != '\n' && s.ptr[start - 1] != '\r') {
        start--;
    }
    return start;
}

/* Without a tag alone on the first line and one alone on the last. */
static rlm_str unwrap_lines(rlm_str body)
{
    size_t end = line_end(body, 0);
    if (is_wrapper(rlm_str_sub(body, 0, end), false)) {
        body = rlm_str_sub(body, line_next(body, end), body.len);
        size_t start = last_line(body);
        if (is_wrapper(rlm_str_sub(body, start, body.len), true)) {
            body = drop_line_ending(rlm_str_sub(body, 0, start));
        }
    }
    return body;
}

static rlm_str body_of(const struct text *t, const struct block *b)
{
    rlm_str body = {t->s.ptr + b->start, b->end > b->start ? b->end - b->start : 0};
    return unwrap_lines(drop_line_ending(body));
}

/* Appends the body without `indent` columns, or as many as all its lines have. */
static void add_body(struct rlm_buf *out, rlm_str body, size_t indent)
{
    size_t least = SIZE_MAX, pos, end;
    for (pos = 0; pos < body.len; pos = line_next(body, end)) {
        end = line_end(body, pos);
        size_t text = skip_blanks(body, pos, end);
        size_t has = columns(body, pos, text);
        least = text < end && has < least ? has : least;
    }
    indent = least != SIZE_MAX && least > indent ? least : indent;
    for (pos = 0; indent && pos < body.len;) {
        end = line_end(body, pos);
        size_t text = skip_blanks(body, pos, end), from = pos, column = 0;
        while (from < text) {
            column = body.ptr[from] == '\t' ? column / 4 * 4 + 4 : column + 1;
            if (column > indent) {
                break;
            }
            from++;
        }
        pos = line_next(body, end);
        rlm_buf_add(out, body.ptr + from, pos - from);
    }
    if (!indent) {
        rlm_buf_add_str(out, body);
    }
}

/* ---- a reply that is code without a fence ---- */

static const char *const operator_words[] = {"and",  "or",    "not",   "in",     "is",     "if",
                                             "else", "for",   "as",    "import", "lambda", "await",
                                             "from", "async", "yield", NULL};
static const char *const simple_statements[] = {"return",   "raise", "assert",   "del",
                                                "pass",     "break", "continue", "global",
                                                "nonlocal", "yield", "await",    NULL};
static const char *const block_statements[] = {"if",    "elif",   "else",    "for",  "while",
                                               "try",   "except", "finally", "with", "def",
                                               "class", "async",  NULL};

enum token {
    TOKEN_START,
    TOKEN_NAME,
    TOKEN_WORD,
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_OPEN,
    TOKEN_CLOSE,
    TOKEN_ASSIGN,
    TOKEN_COLON,
    TOKEN_DOT,
    TOKEN_OPERATOR
};

/* One logical line as far as it has been read. */
struct statement {
    enum { KIND_NONE, KIND_NAME, KIND_SIMPLE, KIND_BLOCK, KIND_IMPORT } kind;
    enum token last;
    bool path; /* a NAME statement of which only NAME.NAME has been read */
    bool calls, calls_first, assigns, imports, has_in, colon, needs_in, needs_import, lambda;
};

struct plain {
    rlm_str s;
    size_t pos, depth;
    struct statement st;
    bool strong; /* a statement that calls, assigns or imports has been seen */
};

/* Ends a logical line; false when it was no statement. */
static bool end_statement(struct plain *p)
{
    struct statement *st = &p->st;
    bool ok = false;
    bool whole = st->last == TOKEN_NAME || st->last == TOKEN_WORD || st->last == TOKEN_NUMBER ||
                 st->last == TOKEN_STRING || st->last == TOKEN_CLOSE;
    switch (st->kind) {
    case KIND_NONE:
        ok = st->last == TOKEN_START || st->last == TOKEN_STRING; /* nothing, or a docstring */
        break;
    case KIND_NAME:
        ok = whole && !(st->colon && !st->lambda) && (st->calls_first || st->assigns);
        break;
    case KIND_SIMPLE:
        ok = whole;
        break;
    case KIND_BLOCK:
        ok = st->colon && (whole || st->last == TOKEN_COLON) && st->needs_in <= st->has_in;
        break;
    case KIND_IMPORT:
        ok = whole && st->imports;
        break;
    }
    p->strong = p->strong || st->calls || st->assigns || st->imports;
    p->st = (struct statement){.last = TOKEN_START};
    return ok;
}

static bool is_keyword(rlm_str word, const char *const *list)
{
    while (*list && !rlm_str_is(word, *list)) {
        list++;
    }
    return *list != NULL;
}

static bool is_value(enum token token)
{
    return token == TOKEN_NAME || token == TOKEN_NUMBER || token == TOKEN_CLOSE;
}

static bool read_string(struct plain *p)
{
    rlm_str s = p->s;
    bool ended = true;
    if (is_triple(s, p->pos)) {
        struct fence none = {.mark = '`', .len = SIZE_MAX};
        struct text t = {s, 0};
        size_t end = triple_end(&t, &none, p->pos + 3, s.ptr[p->pos]);
        ended = end != NOWHERE;
        p->pos = ended ? end : s.len;
    } else {
        p->pos = quoted_end(s, p->pos, &ended);
    }
    bool ok = ended && !is_value(p->st.last);
    p->st.last = TOKEN_STRING;
    p->st.path = p->st.path && p->depth;
    return ok;
}

static void begin_statement(struct statement *st, rlm_str word)
{
    st->needs_in = rlm_str_is(word, "for");
    if (rlm_str_is(word, "import") || rlm_str_is(word, "from")) {
        st->kind = KIND_IMPORT;
    } else if (is_keyword(word, block_statements)) {
        st->kind = KIND_BLOCK;
    } else if (is_keyword(word, simple_statements)) {
        st->kind = KIND_SIMPLE;
    } else {
        st->kind = KIND_NAME;
        st->path = true;
    }
}

static bool read_word(struct plain *p)
{
    struct statement *st = &p->st;
    size_t start = p->pos;
    bool number = isdigit((unsigned char)p->s.ptr[start]);
    while (p->pos < p->s.len &&
           (is_word_char(p->s.ptr[p->pos]) || (number && p->s.ptr[p->pos] == '.'))) {
        p->pos++;
    }
    rlm_str word = rlm_str_sub(p->s, start, p->pos);
    bool quote = p->pos < p->s.len && (p->s.ptr[p->pos] == '"' || p->s.ptr[p->pos] == '\'');
    if (quote && word.len <= 2 && strspn(word.ptr, "rRbBfFuU") >= word.len) {
        return read_string(p);
    }
    bool first = st->last == TOKEN_START;
    bool keyword =
        !number && (is_keyword(word, operator_words) || is_keyword(word, simple_statements) ||
                    is_keyword(word, block_statements));
    if (first && number) {
        return false;
    }
    if (first) {
        begin_statement(st, word);
    } else if (!p->depth) {
        st->path = st->path && st->last == TOKEN_DOT && !number && !keyword;
    }
    st->imports = st->imports || (st->kind == KIND_IMPORT && rlm_str_is(word, "import"));
    st->has_in = st->has_in || rlm_str_is(word, "in");
    st->lambda = st->lambda || rlm_str_is(word, "lambda");
    bool ok = keyword || !(is_value(st->last) || st->last == TOKEN_STRING);
    st->last = keyword ? TOKEN_WORD : number ? TOKEN_NUMBER : TOKEN_NAME;
    return ok;
}

/* A bracket; a call is one that stands right behind what it calls. */
static bool read_bracket(struct plain *p, char c)
{
    struct statement *st = &p->st;
    if (c == ')' || c == ']' || c == '}') {
        st->last = TOKEN_CLOSE;
        return p->depth-- > 0;
    }
    bool behind = p->pos > 1 &&
                  (is_word_char(p->s.ptr[p->pos - 2]) || p->s.ptr[p->pos - 2] == ')' ||
                   p->s.ptr[p->pos - 2] == ']') &&
                  is_value(st->last);
    st->calls = st->calls || (c == '(' && behind);
    if (!p->depth) {
        st->calls_first = st->calls_first || (c == '(' && behind && st->path);
        st->path = st->path && behind;
    }
    st->last = TOKEN_OPEN;
    p->depth++;
    return st->kind != KIND_NONE;
}

/* Any other character outside strings, with the '=' that may belong to it. */
static bool read_operator(struct plain *p, char c)
{
    struct statement *st = &p->st;
    bool equals = p->pos < p->s.len && p->s.ptr[p->pos] == '=';
    p->pos += equals;
    if (c == '@' && st->last == TOKEN_START) {
        st->kind = KIND_SIMPLE;
    }
    if (!p->depth && c != '.') {
        st->path = false;
    }
    if (!strchr("=!<>:.,+-*/%&|^~@", c) || (c == '!' && !equals) ||
        (c == '=' && !equals && p->pos < p->s.len && p->s.ptr[p->pos] == '>')) {
        return false;
    }
    bool assigns = equals ? strchr("+-*/%&|^@", c) != NULL : c == '=';
    if (assigns && !p->depth) {
        bool target = is_value(st->last);
        st->assigns = true;
        st->last = TOKEN_ASSIGN;
        return target;
    }
    st->colon = st->colon || (c == ':' && !equals && !p->depth);
    st->last = c == '.' ? TOKEN_DOT : c == ':' && !p->depth ? TOKEN_COLON : TOKEN_OPERATOR;
    return true;
}

static bool read_token(struct plain *p)
{
    char c = p->s.ptr[p->pos];
    if (c == '"' || c == '\'') {
        return read_string(p);
    }
    if (is_word_char(c)) {
        return read_word(p);
    }
    p->pos++;
    switch (c) {
    case ' ':
    case '\t':
    case '\f':
        return true;
    case '\r':
    case '\n':
        return p->depth || end_statement(p);
    case ';':
        return !p->depth && end_statement(p);
    case '#':
        p->pos = line_end(p->s, p->pos);
        return true;
    case '\\':
        if (p->pos == p->s.len || line_next(p->s, p->pos) == p->pos + 1) {
            bool newline =
                p->pos < p->s.len && (p->s.ptr[p->pos] == '\n' || p->s.ptr[p->pos] == '\r');
            p->pos += newline;
            return newline;
        }
        p->pos = line_next(p->s, p->pos);
        return true;
    case '(':
    case '[':
    case '{':
    case ')':
    case ']':
    case '}':
        return read_bracket(p, c);
    case '\0':
        return false;
    default:
        return read_operator(p, c);
    }
}

/* The text is Python and nothing else, as far as its tokens tell (the rule is in the header). */
static bool is_plain_code(rlm_str s)
{
    struct plain p = {.s = s, .st = {.last = TOKEN_START}};
    while (p.pos < s.len) {
        if (!read_token(&p)) {
            return false;
        }
    }
    return !p.depth && end_statement(&p) && p.strong;
}

/* What is left of a reply without the tags, backticks and the word "repl" around its code. */
static rlm_str unwrap(rlm_str s)
{
    struct tag tag;
    size_t ticks = 0;
    s = trim(s);
    for (int i = 0; i < MAX_WRAPPERS && s.len && s.ptr[0] == '<' && read_tag(s, 0, &tag) &&
                    !tag.closing && is_one_of(tag.name, wrappers);
         i++) {
        s = trim(rlm_str_sub(s, tag.end, s.len));
        const char *last = s.len ? memrchr(s.ptr, '<', s.len) : NULL;
        if (last && is_wrapper(rlm_str_sub(s, (size_t)(last - s.ptr), s.len), true)) {
            s = trim(rlm_str_sub(s, 0, (size_t)(last - s.ptr)));
        }
    }
    while (2 * ticks + 2 <= s.len && s.ptr[ticks] == '`' && s.ptr[s.len - 1 - ticks] == '`') {
        ticks++;
    }
    s = rlm_str_sub(s, ticks, s.len - ticks);
    rlm_str word = tag_of(s);
    if (ticks >= 3 && word.ptr == s.ptr && is_one_of(word, runnable_tags) && word.len < s.len &&
        is_blank_char(s.ptr[word.len])) {
        s = rlm_str_sub(s, word.len, s.len);
    }
    s = rlm_str_sub(s, skip_echo(s, 0), s.len);
    while (s.len && is_blank_char(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

/* ---- the reply ---- */

struct finder {
    struct text text;
    struct block block; /* the one that runs */
    size_t found;       /* blocks that could run */
    size_t openers;     /* blocks at all */
    bool blank;         /* one was blank */
    rlm_str other;      /* the tag of the first that is no Python */
    bool closing_only;  /* the last line of the reply is a bare fence that opens nothing */
    bool reasoning, open_reasoning, code_in_reasoning;
    rlm_str prose;  /* the text outside blocks and reasoning up to the first block */
    bool scattered; /* it stands on both sides of reasoning */
};

/* Everything so far was reasoning. */
static void forget(struct finder *f)
{
    f->code_in_reasoning = f->code_in_reasoning || f->found || f->block.was_reasoning;
    f->reasoning = true;
    f->found = f->openers = 0;
    f->blank = f->closing_only = f->scattered = false;
    f->other = f->prose = RLM_STR_NONE;
}

static void add_prose(struct finder *f, size_t start, size_t end)
{
    rlm_str s = f->text.s;
    if (end > start && trim(rlm_str_sub(s, start, end)).len) {
        f->scattered = f->scattered || f->prose.len;
        f->prose = rlm_str_sub(s, start, end);
    }
}

static bool is_bare(rlm_str info)
{
    for (size_t i = 0; i < info.len; i++) {
        if (!memchr(":.{}", info.ptr[i], 4)) {
            return false;
        }
    }
    return true;
}

static size_t take_block(struct finder *f, const struct fence *fence, size_t line_end_)
{
    rlm_str s = f->text.s;
    struct block b = {.fence = *fence, .start = line_next(s, line_end_)};
    bool runnable = has_runnable_tag(fence->info) || is_bare(fence->info);
    if (runnable) {
        b.start = skip_echo(s, b.start);
    }
    if (runnable && !f->found) {
        scan_python(&f->text, &b, b.start);
    } else {
        scan_text(&f->text, &b, b.start);
    }
    bool blank = !trim(body_of(&f->text, &b)).len;
    if (b.was_reasoning) {
        f->block.was_reasoning = runnable && !blank;
        forget(f);
        return b.next;
    }
    f->openers++;
    f->closing_only = f->openers == 1 && blank && !fence->info.len && b.next == s.len;
    if (!runnable) {
        f->other = f->other.len ? f->other : tag_of(fence->info);
    } else if (blank) {
        f->blank = true;
    } else if (f->found++ == 0) {
        f->block = b;
    }
    return b.next;
}

static void find(struct finder *f)
{
    rlm_str s = f->text.s;
    size_t pos = rlm_str_starts(s, "\xEF\xBB\xBF") ? 3 : 0, prose = pos;
    while (pos < s.len) {
        struct fence fence;
        struct tag tag;
        size_t end = line_end(s, pos), at = find_reasoning_tag(s, pos, end, &tag);
        if (read_opener(s, pos, end, &fence) && (at == NOWHERE || fence.start < at)) {
            add_prose(f, prose, pos);
            prose = pos = take_block(f, &fence, end);
        } else if (at == NOWHERE) {
            pos = line_next(s, end);
        } else if (tag.closing) {
            forget(f);
            prose = pos = tag.end;
        } else {
            size_t after = reasoning_end(s, &tag);
            add_prose(f, prose, at);
            f->reasoning = true;
            f->open_reasoning = after == NOWHERE;
            prose = pos = after == NOWHERE ? s.len : after;
        }
    }
    add_prose(f, prose, s.len);
}

static const char how[] =
    " Write one block, a line ```repl, then Python, then a line ```; done(answer) in it ends the task.";

static void add_reason(const struct finder *f, struct rlm_buf *note)
{
    rlm_buf_adds(note, "Nothing ran: ");
    if (f->blank) {
        rlm_buf_adds(note, "your code block is empty.");
    } else if (f->openers) {
        size_t len = f->other.len < NOTE_TAG_BYTES ? f->other.len : NOTE_TAG_BYTES;
        rlm_buf_addf(note, "your block is tagged \"%.*s\", and only ```repl blocks run.", (int)len,
                     f->other.len ? f->other.ptr : "");
    } else if (f->open_reasoning) {
        rlm_buf_adds(note,
                     "your reasoning never ended, and code in it is not run. Close it first.");
    } else if (f->reasoning && !f->prose.len) {
        rlm_buf_adds(note, "your reply is all reasoning, and code in it is not run.");
    } else if (!trim(f->text.s).len) {
        rlm_buf_adds(note, "your reply is empty.");
    } else {
        rlm_buf_adds(note, "your reply has no code block.");
    }
    rlm_buf_adds(note, how);
}

int rlm_code_extract(rlm_str reply, struct rlm_buf *ret_code, struct rlm_buf *ret_note)
{
    struct finder f = {.text = {reply, reply.len}};
    int outcome = RLM_CODE_FOUND;
    find(&f);
    if (f.found) {
        add_body(ret_code, body_of(&f.text, &f.block), f.block.fence.indent);
        if (f.found > 1) {
            rlm_buf_addf(ret_note,
                         "Only the first code block of a reply runs: %zu more %s ignored.",
                         f.found - 1, f.found == 2 ? "was" : "were");
        }
    } else {
        rlm_str plain = unwrap(f.prose);
        if ((!f.openers || f.closing_only) && !f.scattered && is_plain_code(plain)) {
            add_body(ret_code, plain, 0);
        } else {
            add_reason(&f, ret_note);
            outcome = RLM_CODE_NONE;
        }
    }
    int r = ret_code->status ? ret_code->status : ret_note->status;
    return r ? r : outcome;
}
