#include "flow/code_block.h"

enum { MAX_NESTED = 16, FREE_INDENT = 3 };

bool rlm_code_spend(struct rlm_code_reply *t, size_t bytes)
{
    bool enough = bytes <= t->budget;
    t->budget = enough ? t->budget - bytes : 0;
    return enough;
}

static void close_block(struct rlm_code_block *b, size_t end, size_t next)
{
    b->end = end;
    b->next = next;
}

/* Closes at the fence glued to the end of a line, if there was one. */
static bool
close_glued(struct rlm_code_reply *t, struct rlm_code_block *b, size_t glued, size_t pos)
{
    if (glued == RLM_CODE_NOWHERE || !rlm_code_spend(t, pos - glued)) {
        return false;
    }
    close_block(b, glued, rlm_code_line_next(t->s, rlm_code_line_end(t->s, glued)));
    return true;
}

/* Notes reasoning on a line of a block; true when that line ends the block as one of reasoning. */
static bool sees_reasoning(rlm_str s, struct rlm_code_block *b, size_t pos, size_t end)
{
    struct rlm_code_tag tag;
    if (rlm_code_is_reasoning_close(s, pos, end) && !b->opened) {
        b->was_reasoning = true;
        close_block(b, pos, rlm_code_line_next(s, end));
        return true;
    }
    b->opened = b->opened || (rlm_code_find_reasoning_tag(s, pos, end, &tag) != RLM_CODE_NOWHERE &&
                              !tag.closing);
    return false;
}

/* The rest of a block as text: tagged fences nest. */
void rlm_code_scan_text(struct rlm_code_reply *t, struct rlm_code_block *b, size_t pos)
{
    size_t lens[MAX_NESTED] = {b->fence.len};
    size_t depth = 0, deeper = 0, glued = RLM_CODE_NOWHERE;
    rlm_str s = t->s;

    while (pos < s.len) {
        size_t end = rlm_code_line_end(s, pos);
        struct rlm_code_fence f, open = b->fence;
        open.len = lens[depth];
        enum rlm_code_inner inner = rlm_code_read_inner(s, pos, end, &open, &f);
        if (inner != RLM_CODE_INNER_NONE && f.indent > b->fence.indent + FREE_INDENT) {
            inner = RLM_CODE_INNER_NONE;
        }
        if (sees_reasoning(s, b, pos, end) ||
            (inner == RLM_CODE_INNER_OPENS && close_glued(t, b, glued, pos))) {
            return;
        }
        if (inner == RLM_CODE_INNER_OPENS && !deeper && depth + 1 < MAX_NESTED) {
            lens[++depth] = f.len;
        } else if (inner == RLM_CODE_INNER_OPENS) {
            deeper++;
        } else if (inner == RLM_CODE_INNER_CLOSES && deeper) {
            deeper--;
        } else if (inner == RLM_CODE_INNER_CLOSES && depth) {
            depth--;
        } else if (inner == RLM_CODE_INNER_CLOSES) {
            close_block(b, pos, rlm_code_line_next(s, end));
            return;
        } else if (glued == RLM_CODE_NOWHERE && !depth) {
            glued = rlm_code_glued_fence(s, pos, end, &b->fence);
        }
        pos = rlm_code_line_next(s, end);
    }
    if (!close_glued(t, b, glued, s.len)) {
        close_block(b, s.len, s.len);
        b->open_end = true;
    }
}

/* A line from `pos` on would close the block. */
static bool has_closer(struct rlm_code_reply *t, const struct rlm_code_fence *open, size_t pos)
{
    while (pos < t->s.len) {
        struct rlm_code_fence f;
        size_t end = rlm_code_line_end(t->s, pos);
        if (!rlm_code_spend(t, end - pos + 1)) {
            return false;
        }
        if (rlm_code_read_inner(t->s, pos, end, open, &f) == RLM_CODE_INNER_CLOSES) {
            return true;
        }
        pos = rlm_code_line_next(t->s, end);
    }
    return false;
}

size_t rlm_code_triple_end(struct rlm_code_reply *t,
                           const struct rlm_code_fence *open,
                           size_t start,
                           char quote)
{
    rlm_str s = t->s;
    bool inside = false, line_start = false;
    size_t pos;
    for (pos = start; pos < s.len; pos++) {
        char c = s.ptr[pos];
        if (line_start) {
            struct rlm_code_fence f;
            enum rlm_code_inner inner =
                rlm_code_read_inner(s, pos, rlm_code_line_end(s, pos), open, &f);
            if (inner == RLM_CODE_INNER_OPENS && inside) {
                break;
            }
            inside = inner == RLM_CODE_INNER_NONE ? inside : !inside;
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
    rlm_code_spend(t, pos - start);
    return RLM_CODE_NOWHERE;
}

enum scanned { SCANNED_LINE, SCANNED_BLOCK };

/* Reads Python from `pos` to the end of a line that is not inside a string. */
static enum scanned scan_line(
    struct rlm_code_reply *t, struct rlm_code_block *b, size_t pos, size_t *ret_end, size_t *glued)
{
    rlm_str s = t->s;
    size_t start = pos, after;
    while (pos < s.len && s.ptr[pos] != '\n' && s.ptr[pos] != '\r') {
        char c = s.ptr[pos];
        bool ended = true;
        if (c == '#') {
            pos = rlm_code_line_end(s, pos);
            ended = false;
        } else if ((c == '"' || c == '\'') && rlm_code_is_triple(s, pos)) {
            after = t->budget ? rlm_code_triple_end(t, &b->fence, pos + 3, c) : RLM_CODE_NOWHERE;
            if (after == RLM_CODE_NOWHERE) {
                rlm_code_scan_text(t, b, pos);
                return SCANNED_BLOCK;
            }
            start = pos = after;
        } else if (c == '"' || c == '\'') {
            pos = rlm_code_quoted_end(s, pos, &ended);
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
        if (!ended && *glued == RLM_CODE_NOWHERE) {
            *glued = rlm_code_glued_fence(s, start, pos, &b->fence);
        }
    }
    *ret_end = pos;
    return SCANNED_LINE;
}

/* The rest of a block as Python. */
void rlm_code_scan_python(struct rlm_code_reply *t, struct rlm_code_block *b, size_t pos)
{
    rlm_str s = t->s;
    size_t glued = RLM_CODE_NOWHERE;
    while (pos < s.len) {
        struct rlm_code_fence f;
        size_t end = rlm_code_line_end(s, pos);
        enum rlm_code_inner inner = rlm_code_read_inner(s, pos, end, &b->fence, &f);
        if (sees_reasoning(s, b, pos, end)) {
            return;
        }
        if (inner == RLM_CODE_INNER_CLOSES) {
            close_block(b, pos, rlm_code_line_next(s, end));
            return;
        }
        if (inner == RLM_CODE_INNER_OPENS) {
            if (!close_glued(t, b, glued, pos)) {
                close_block(b, pos, pos);
                b->open_end = true;
            }
            return;
        }
        if (scan_line(t, b, pos, &end, &glued) == SCANNED_BLOCK) {
            return;
        }
        pos = rlm_code_line_next(s, end);
    }
    if (!close_glued(t, b, glued, s.len)) {
        close_block(b, s.len, s.len);
        b->open_end = true;
    }
}

/* ---- the code of a block, as it runs ---- */

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
    size_t end = rlm_code_line_end(body, 0);
    if (rlm_code_is_wrapper(rlm_str_sub(body, 0, end), false)) {
        body = rlm_str_sub(body, rlm_code_line_next(body, end), body.len);
        size_t start = last_line(body);
        if (rlm_code_is_wrapper(rlm_str_sub(body, start, body.len), true)) {
            body = drop_line_ending(rlm_str_sub(body, 0, start));
        }
    }
    return body;
}

rlm_str rlm_code_body_of(const struct rlm_code_reply *t, const struct rlm_code_block *b)
{
    rlm_str body = {t->s.ptr + b->start, b->end > b->start ? b->end - b->start : 0};
    return unwrap_lines(drop_line_ending(body));
}

/* Appends the body without `indent` columns, or as many as all its lines have. */
void rlm_code_add_body(struct rlm_buf *out, rlm_str body, size_t indent)
{
    size_t least = SIZE_MAX, pos, end;
    for (pos = 0; pos < body.len; pos = rlm_code_line_next(body, end)) {
        end = rlm_code_line_end(body, pos);
        size_t text = rlm_code_skip_blanks(body, pos, end);
        size_t has = rlm_code_columns(body, pos, text);
        least = text < end && has < least ? has : least;
    }
    indent = least != SIZE_MAX && least > indent ? least : indent;
    for (pos = 0; indent && pos < body.len;) {
        end = rlm_code_line_end(body, pos);
        size_t text = rlm_code_skip_blanks(body, pos, end), from = pos, column = 0;
        while (from < text) {
            column = body.ptr[from] == '\t' ? column / 4 * 4 + 4 : column + 1;
            if (column > indent) {
                break;
            }
            from++;
        }
        pos = rlm_code_line_next(body, end);
        rlm_buf_add(out, body.ptr + from, pos - from);
    }
    if (!indent) {
        rlm_buf_add_str(out, body);
    }
}
