#include "view/plain.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

struct range {
    int32_t first, last;
};

static const struct range hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200b, 0x200f}, {0x2028, 0x202e},
    {0x2060, 0x206f}, {0xd800, 0xdfff}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
};

static const struct range narrow[] = {
    {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},   {0x64b, 0x65f},
    {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
};

static const struct range wide[] = {
    {0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xac00, 0xd7a3},
    {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
    {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
};

static bool is_in(const struct range *ranges, size_t n, int32_t c)
{
    for (size_t i = 0; i < n; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

#define IS_IN(ranges, c) is_in(ranges, sizeof ranges / sizeof *ranges, c)

bool rlm_plain_hides(int32_t c)
{
    return IS_IN(hidden, c);
}

static int width_of(int32_t c)
{
    if (c < 0x300) {
        return 1;
    }
    return IS_IN(narrow, c) ? 0 : IS_IN(wide, c) ? 2 : 1;
}

/* Moves behind what follows an ESC: a CSI sequence, a string such as OSC, or one character. */
static void skip_escape(rlm_str text, size_t *pos)
{
    char kind = *pos < text.len ? text.ptr[(*pos)++] : 0; /* a NUL is hidden anyway */
    if (kind == '[') {
        while (*pos < text.len && (unsigned char)text.ptr[*pos] >= 0x20 &&
               (unsigned char)text.ptr[*pos] < 0x40) {
            (*pos)++;
        }
        if (*pos < text.len && (unsigned char)text.ptr[*pos] >= 0x40 &&
            (unsigned char)text.ptr[*pos] < 0x7f) {
            (*pos)++;
        }
    } else if (kind && strchr("]PX^_", kind)) {
        while (*pos < text.len && text.ptr[*pos] != '\a' && text.ptr[*pos] != '\n' &&
               text.ptr[*pos] != 0x1b) {
            (*pos)++;
        }
        if (*pos < text.len && text.ptr[*pos] == 0x1b) {
            *pos += 2;
        } else if (*pos < text.len && text.ptr[*pos] == '\a') {
            (*pos)++;
        }
        *pos = *pos > text.len ? text.len : *pos;
    } else if (kind && ((unsigned char)kind >= 0x80 || (unsigned char)kind < 0x20)) {
        (*pos)--; /* no part of a sequence */
    }
}

/* The next visible character, or -2 at the end. Line ends and tabs are blanks, bad bytes U+FFFD. */
static int32_t next_visible(rlm_str text, size_t *pos)
{
    while (*pos < text.len) {
        int32_t c = rlm_utf8_next(text, pos);
        if (c == 0x1b) {
            skip_escape(text, pos);
        } else if (c == '\n' || c == '\t') {
            return ' ';
        } else if (c < 0) {
            return 0xfffd;
        } else if (!rlm_plain_hides(c)) {
            return c;
        }
    }
    return -2;
}

static void add(struct rlm_plain *p, int32_t c)
{
    char bytes[4];
    rlm_buf_add(p->out, bytes, rlm_utf8_encode((uint32_t)c, bytes));
    p->column += width_of(c);
}

/* True when a character that takes a column comes at `pos` or later. */
static bool takes_more(rlm_str text, size_t pos)
{
    int32_t c;
    do {
        c = next_visible(text, &pos);
    } while (c != -2 && width_of(c) == 0);
    return c != -2;
}

void rlm_plain_put(struct rlm_plain *p, rlm_str text)
{
    size_t pos = 0;
    int32_t c;
    while (!p->full && p->out->status == 0 && (c = next_visible(text, &pos)) != -2) {
        int room = p->width - p->column - width_of(c);
        if (p->width && (room < 0 || (room == 0 && width_of(c) && takes_more(text, pos)))) {
            if (p->column < p->width) {
                add(p, 0x2026);
            }
            p->full = true;
            return;
        }
        add(p, c);
    }
}

void rlm_plain_puts(struct rlm_plain *p, const char *text)
{
    rlm_plain_put(p, rlm_str_of(text));
}

void rlm_plain_putf(struct rlm_plain *p, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rlm_plain_puts(p, text);
}

void rlm_plain_pad(struct rlm_plain *p, int column)
{
    do {
        rlm_plain_puts(p, " ");
    } while (p->column < column && !p->full && p->out->status == 0);
}

void rlm_plain_color(struct rlm_plain *p, const char *sgr)
{
    if (p->color) {
        rlm_buf_addf(p->out, "\033[%sm", sgr ? sgr : "0");
    }
}

void rlm_plain_end(struct rlm_plain *p)
{
    rlm_buf_addc(p->out, '\n');
    p->column = 0;
    p->full = false;
}

void rlm_plain_block(struct rlm_plain *p, rlm_str text, const char *indent, size_t max_lines)
{
    size_t lines = 0, shown = 0;
    for (size_t start = 0; start < text.len && p->out->status == 0;) {
        const char *newline = memchr(text.ptr + start, '\n', text.len - start);
        size_t end = newline ? (size_t)(newline - text.ptr) : text.len;
        lines++;
        if (!max_lines || lines <= max_lines) {
            rlm_plain_puts(p, indent);
            rlm_plain_put(p, rlm_str_sub(text, start, end));
            rlm_plain_end(p);
            shown++;
        }
        start = end + 1;
    }
    if (lines > shown) {
        rlm_plain_putf(p, "%s… %zu more lines", indent, lines - shown);
        rlm_plain_end(p);
    }
}

void rlm_plain_count(struct rlm_plain *p, int64_t count)
{
    if (count < 1000) {
        rlm_plain_putf(p, "%lld", (long long)count);
    } else if (count < 999950) {
        rlm_plain_putf(p, "%.1fk", (double)count / 1e3);
    } else {
        rlm_plain_putf(p, "%.2fM", (double)count / 1e6);
    }
}

void rlm_plain_money(struct rlm_plain *p, int64_t nano)
{
    if (nano > 0) {
        rlm_plain_putf(p, nano < 10000000000 ? "$%.4f" : "$%.2f", (double)nano / 1e9);
    }
}
