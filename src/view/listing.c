/* rlm_view_code: a listing in which nothing hides. */
#include "base/utf8.h"
#include "view/plain.h"

#include "rlmflow.h"

#include <inttypes.h>
#include <stdio.h>

/* A character becomes at most 8 bytes, an empty line 30 with its number. */
enum { NUMBER_COLUMNS_LEAST = 4, CODE_COLUMNS_LEAST = 16, TAB_COLUMNS = 8, GROWTH_MAX = 40 };

struct listing {
    struct rlm_buf *out;
    int number_width; /* columns of the line numbers */
    int width;        /* columns for code; 0: not wrapped */
    int column;
    bool marked; /* the line has hidden characters */
    size_t hidden;
};

/* Characters that a terminal shows, but as nothing, as a plain blank, or as it likes (private use). */
static bool is_deceptive(int32_t c)
{
    static const struct {
        int32_t first, last;
    } ranges[] = {
        {0xa0, 0xa0},       {0xad, 0xad},       {0x34f, 0x34f},       {0x115f, 0x1160},
        {0x1680, 0x1680},   {0x17b4, 0x17b5},   {0x180b, 0x180f},     {0x2000, 0x200a},
        {0x202f, 0x202f},   {0x205f, 0x205f},   {0x2800, 0x2800},     {0x3000, 0x3000},
        {0x3164, 0x3164},   {0xe000, 0xf8ff},   {0xfe00, 0xfe0f},     {0xffa0, 0xffa0},
        {0xfff0, 0xfff8},   {0xfffe, 0xffff},   {0x1bca0, 0x1bca3},   {0x1d173, 0x1d17a},
        {0xf0000, 0xfffff}, {0x1fffe, 0x1ffff}, {0x100000, 0x10ffff},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

static bool is_hidden(int32_t c)
{
    return c < 0 || rlm_plain_hides(c) || is_deceptive(c);
}

/* Terminals differ; a line that is too long for one would go on without a number before it. */
static int columns_at_most(int32_t c)
{
    return c < 0x1100 ? 1 : 2;
}

static void put_piece(struct listing *l, const char *text, size_t len, int columns)
{
    if (l->width && l->column + columns > l->width) {
        rlm_buf_addf(l->out, "\n%*s %c ", l->number_width, "", l->marked ? '!' : ':');
        l->column = 0;
    }
    rlm_buf_add(l->out, text, len);
    l->column += columns;
}

static void put_tab(struct listing *l)
{
    do {
        put_piece(l, " ", 1, 1);
    } while (l->column % TAB_COLUMNS);
}

static void put_line(struct listing *l, rlm_str line, size_t number)
{
    l->column = 0;
    l->marked = false;
    for (size_t at = 0; at < line.len && !l->marked;) {
        int32_t c = rlm_utf8_next(line, &at);
        l->marked = c != '\t' && is_hidden(c);
    }
    rlm_buf_addf(l->out, "%*zu %c%s", l->number_width, number, l->marked ? '!' : '|',
                 line.len ? " " : "");
    for (size_t at = 0, start = 0; at < line.len && l->out->status == 0; start = at) {
        int32_t c = rlm_utf8_next(line, &at);
        if (c == '\t') {
            put_tab(l);
        } else if (is_hidden(c)) {
            char shown[16];
            int len = c < 0 ? snprintf(shown, sizeof shown, "<0x%02X>",
                                       (unsigned)(unsigned char)line.ptr[start])
                            : snprintf(shown, sizeof shown, "<U+%04" PRIX32 ">", (uint32_t)c);
            put_piece(l, shown, (size_t)len, len);
            l->hidden++;
        } else {
            put_piece(l, line.ptr + start, at - start, columns_at_most(c));
        }
    }
    rlm_buf_addc(l->out, '\n');
}

static int number_width(rlm_str code)
{
    size_t lines = 1;
    for (size_t i = 0; i < code.len; i++) {
        lines += code.ptr[i] == '\n';
    }
    int digits = snprintf(NULL, 0, "%zu", lines);
    return digits < NUMBER_COLUMNS_LEAST ? NUMBER_COLUMNS_LEAST : digits;
}

char *rlm_view_code(struct rlm_str code, const struct rlm_view_options *options, size_t *ret_hidden)
{
    rlm_auto_buf struct rlm_buf out = RLM_BUF(code.len * GROWTH_MAX + GROWTH_MAX);
    struct listing l = {.out = &out, .width = options ? options->width : 0};
    l.number_width = number_width(code);
    if (l.width) {
        l.width -= l.number_width + 3;
        l.width = l.width < CODE_COLUMNS_LEAST ? CODE_COLUMNS_LEAST : l.width;
    }
    size_t number = 0, start = 0;
    do {
        const char *newline =
            start < code.len ? memchr(code.ptr + start, '\n', code.len - start) : NULL;
        size_t end = newline ? (size_t)(newline - code.ptr) : code.len;
        put_line(&l, rlm_str_sub(code, start, end), ++number);
        start = end + 1;
    } while (start < code.len);
    if (ret_hidden) {
        *ret_hidden = l.hidden;
    }
    return rlm_buf_take(&out);
}
