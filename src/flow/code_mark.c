#include "flow/code_mark.h"

enum { MAX_MARKERS = 3 };

rlm_str rlm_code_trim(rlm_str s)
{
    while (s.len && rlm_code_is_blank_char(s.ptr[0])) {
        s = rlm_str_sub(s, 1, s.len);
    }
    while (s.len && rlm_code_is_blank_char(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

/* ASCII alone, whatever the locale. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool equals_in_any_case(rlm_str a, rlm_str b)
{
    for (size_t i = 0; i < a.len && i < b.len; i++) {
        if (a.ptr[i] != b.ptr[i] && !(is_letter(a.ptr[i]) && (a.ptr[i] ^ b.ptr[i]) == 0x20)) {
            return false;
        }
    }
    return a.len == b.len;
}

bool rlm_code_is_one_of(rlm_str word, const char *const *list)
{
    for (; *list; list++) {
        if (equals_in_any_case(word, rlm_str_of(*list))) {
            return true;
        }
    }
    return false;
}

/* ---- lines ---- */

size_t rlm_code_line_end(rlm_str s, size_t pos)
{
    while (pos < s.len && s.ptr[pos] != '\n' && s.ptr[pos] != '\r') {
        pos++;
    }
    return pos;
}

size_t rlm_code_line_next(rlm_str s, size_t end)
{
    if (end < s.len && s.ptr[end] == '\r') {
        end++;
        return end < s.len && s.ptr[end] == '\n' ? end + 1 : end;
    }
    return end < s.len ? end + 1 : end;
}

/* ---- fences ---- */

const char *const rlm_code_runnable_tags[] = {"repl", "python",  "py", "python3",
                                              "py3",  "ipython", NULL};

rlm_str rlm_code_tag_of(rlm_str info)
{
    size_t start = 0, end;
    while (start < info.len && (info.ptr[start] == '{' || info.ptr[start] == '.')) {
        start++;
    }
    for (end = start;
         end < info.len && (rlm_code_is_word_char(info.ptr[end]) || strchr("-+#", info.ptr[end]));
         end++) {
        if (!info.ptr[end]) {
            break;
        }
    }
    return rlm_str_sub(info, start, end);
}

bool rlm_code_has_runnable_tag(rlm_str info)
{
    return rlm_code_is_one_of(rlm_code_tag_of(info), rlm_code_runnable_tags);
}

/* Words, blanks and light punctuation, and nothing that code would have. */
static bool is_words(rlm_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!is_letter(c) && c != ' ' && c != ',' && c != '.' && c != ':') {
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
    rlm_str words = rlm_code_trim(rlm_str_sub(info, 0, end));
    return info.len - end >= 3 && is_words(words) && memchr(words.ptr, ' ', words.len) &&
           rlm_code_has_runnable_tag(words);
}

size_t rlm_code_columns(rlm_str s, size_t start, size_t end)
{
    size_t column = 0;
    for (size_t i = start; i < end; i++) {
        column = s.ptr[i] == '\t' ? column / 4 * 4 + 4 : column + 1;
    }
    return column;
}

/* Reads a fence whose first mark stands at `at` on the line from `start` to `end`. */
static bool read_fence(rlm_str s, size_t start, size_t at, size_t end, struct rlm_code_fence *f)
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
    *f = (struct rlm_code_fence){
        .mark = s.ptr[at],
        .len = after - at,
        .indent = rlm_code_columns(s, start, at),
        .start = at,
        .info = rlm_code_trim(rlm_str_sub(s, after, end)),
        .spaced = after < end && rlm_code_is_blank_char(s.ptr[after]),
    };
    return f->mark == '~' || is_info(f->info);
}

size_t rlm_code_skip_blanks(rlm_str s, size_t pos, size_t end)
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
        while (p < end && p - pos < 9 && rlm_code_is_digit(s.ptr[p])) {
            p++;
        }
        if (p == pos || p >= end || (s.ptr[p] != '.' && s.ptr[p] != ')')) {
            return pos;
        }
        p++;
    }
    size_t after = rlm_code_skip_blanks(s, p, end);
    return after > p ? after : pos;
}

/* "Here is the code: ```repl": a tagged fence behind a colon that ends the line. */
static bool read_fence_behind_colon(rlm_str s, size_t start, size_t end, struct rlm_code_fence *f)
{
    size_t tag, at;
    while (end > start && rlm_code_is_blank_char(s.ptr[end - 1])) {
        end--;
    }
    for (tag = end; tag > start && rlm_code_is_word_char(s.ptr[tag - 1]); tag--) {
    }
    for (at = tag; at > start && s.ptr[at - 1] == '`'; at--) {
    }
    rlm_str before = rlm_code_trim(rlm_str_sub(s, start, at));
    if (tag == end || !before.len || before.ptr[before.len - 1] != ':' ||
        !read_fence(s, start, at, end, f) || !rlm_code_has_runnable_tag(f->info)) {
        return false;
    }
    f->indent = 0;
    return true;
}

bool rlm_code_read_opener(rlm_str s, size_t start, size_t end, struct rlm_code_fence *f)
{
    size_t at = rlm_code_skip_blanks(s, start, end);
    for (int i = 0; i < MAX_MARKERS; i++) {
        at = skip_marker(s, at, end);
    }
    return read_fence(s, start, at, end, f) || read_fence_behind_colon(s, start, end, f);
}

enum rlm_code_inner rlm_code_read_inner(rlm_str s,
                                        size_t start,
                                        size_t end,
                                        const struct rlm_code_fence *open,
                                        struct rlm_code_fence *f)
{
    size_t at = rlm_code_skip_blanks(s, start, end);
    if (!read_fence(s, start, at, end, f) || f->mark != open->mark || f->len < open->len) {
        return RLM_CODE_INNER_NONE;
    }
    /* "``` That is all." is an end with a remark, not the start of a block in the language
     * "That". */
    bool remark =
        f->spaced && memchr(f->info.ptr, ' ', f->info.len) && !rlm_code_has_runnable_tag(f->info);
    return !f->info.len || remark ? RLM_CODE_INNER_CLOSES : RLM_CODE_INNER_OPENS;
}

size_t rlm_code_glued_fence(rlm_str s, size_t start, size_t end, const struct rlm_code_fence *open)
{
    size_t at;
    while (end > start && rlm_code_is_blank_char(s.ptr[end - 1])) {
        end--;
    }
    for (at = end; at > start && s.ptr[at - 1] == open->mark; at--) {
    }
    return end - at >= open->len && at > start ? at : RLM_CODE_NOWHERE;
}

/* ---- reasoning ---- */

static const char *const reasoning_tags[] = {
    "think",      "thinking", "thought",    "thoughts", "reasoning",
    "reflection", "analysis", "scratchpad", NULL,
};

bool rlm_code_read_tag(rlm_str s, size_t pos, struct rlm_code_tag *tag)
{
    enum { MAX_TAG_BYTES = 128 };
    char end = s.ptr[pos] == '<' ? '>' : ']';
    size_t limit = s.len - pos > MAX_TAG_BYTES ? pos + MAX_TAG_BYTES : s.len;
    size_t p = pos + 1;
    bool closing = p < limit && s.ptr[p] == '/';
    p += closing;
    size_t name = p;
    while (p < limit && rlm_code_is_word_char(s.ptr[p])) {
        p++;
    }
    *tag = (struct rlm_code_tag){rlm_str_sub(s, name, p), closing, 0};
    if (p == name || p >= limit || (s.ptr[p] != end && s.ptr[p] != ' ')) {
        return false;
    }
    while (p < limit && s.ptr[p] != end && s.ptr[p] != '\n' && s.ptr[p] != '<') {
        p++;
    }
    tag->end = p + 1;
    return p < limit && s.ptr[p] == end;
}

size_t rlm_code_find_reasoning_tag(rlm_str s, size_t pos, size_t end, struct rlm_code_tag *tag)
{
    for (; pos < end; pos++) {
        char before = pos ? s.ptr[pos - 1] : '\n';
        if ((s.ptr[pos] == '<' || s.ptr[pos] == '[') && before != '`' && before != '"' &&
            before != '\'' && rlm_code_read_tag(s, pos, tag) &&
            rlm_code_is_one_of(tag->name, reasoning_tags) &&
            (s.ptr[pos] == '<' || rlm_str_is(tag->name, "THINK"))) {
            return pos;
        }
    }
    return RLM_CODE_NOWHERE;
}

size_t rlm_code_reasoning_end(rlm_str s, const struct rlm_code_tag *open)
{
    struct rlm_code_tag tag;
    size_t depth = 1, pos = open->end;
    while ((pos = rlm_code_find_reasoning_tag(s, pos, s.len, &tag)) != RLM_CODE_NOWHERE) {
        pos = tag.end;
        if (equals_in_any_case(tag.name, open->name)) {
            depth = tag.closing ? depth - 1 : depth + 1;
            if (!depth) {
                return pos;
            }
        }
    }
    return RLM_CODE_NOWHERE;
}

bool rlm_code_is_reasoning_close(rlm_str s, size_t start, size_t end)
{
    struct rlm_code_tag tag;
    rlm_str line = rlm_code_trim(rlm_str_sub(s, start, end));
    return line.len > 3 && line.ptr[1] == '/' &&
           rlm_code_find_reasoning_tag(line, 0, 1, &tag) == 0 && tag.end == line.len;
}

size_t rlm_code_skip_echo(rlm_str s, size_t start)
{
    size_t pos = start, end = rlm_code_line_end(s, pos);
    while (end < s.len && !rlm_code_trim(rlm_str_sub(s, pos, end)).len) {
        pos = rlm_code_line_next(s, end);
        end = rlm_code_line_end(s, pos);
    }
    rlm_str line = rlm_code_trim(rlm_str_sub(s, pos, end));
    size_t ticks = 0;
    while (ticks < line.len && line.ptr[line.len - 1 - ticks] == '`') {
        ticks++;
    }
    rlm_str words = rlm_str_sub(line, 0, line.len - ticks);
    rlm_str tag = rlm_code_tag_of(words);
    bool glued = ticks && !(ticks >= 3 && memchr(words.ptr, ' ', words.len)); /* an end, perhaps */
    bool echo = !glued && tag.len && tag.ptr == words.ptr &&
                rlm_code_is_one_of(tag, rlm_code_runnable_tags) &&
                is_words(rlm_str_sub(words, tag.len, words.len));
    return echo ? rlm_code_line_next(s, end) : start;
}

static const char *const wrappers[] = {"code",   "tool_call", "tool_code", "repl",
                                       "python", "py",        "execute",   NULL};

bool rlm_code_is_wrapper(rlm_str line, bool closing)
{
    struct rlm_code_tag tag;
    line = rlm_code_trim(line);
    return line.len > 2 && line.ptr[0] == '<' && rlm_code_read_tag(line, 0, &tag) &&
           tag.end == line.len && tag.closing == closing && rlm_code_is_one_of(tag.name, wrappers);
}

/* ---- Python ---- */

size_t rlm_code_quoted_end(rlm_str s, size_t pos, bool *ret_ended)
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

bool rlm_code_is_triple(rlm_str s, size_t pos)
{
    return s.len - pos >= 3 && s.ptr[pos + 1] == s.ptr[pos] && s.ptr[pos + 2] == s.ptr[pos];
}
