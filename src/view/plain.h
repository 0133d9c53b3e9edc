/* Text for terminals: what models and agents wrote, made harmless, counted in columns and clipped.
 *
 * Escape sequences, control characters and the marks that turn the direction of writing are taken
 * out, so that no text of an agent can move the cursor, recolour the screen or fake a line of ours.
 *
 *     struct rlm_plain p = {.out = &buf, .width = 80};
 *     rlm_plain_put(&p, name);
 *     rlm_plain_putf(&p, "  %d turns", turns);
 *     rlm_plain_end(&p);
 */
#pragma once

#include "base/buf.h"

struct rlm_plain {
    struct rlm_buf *out;
    int width; /* columns of a line; 0: not clipped */
    bool color;
    int column;
    bool full; /* nothing more fits on this line */
};

/* Adds text to the line; ends of lines and tabs become blanks. What does not fit becomes "…". */
void rlm_plain_put(struct rlm_plain *p, rlm_str text);
void rlm_plain_puts(struct rlm_plain *p, const char *text);
void rlm_plain_putf(struct rlm_plain *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Blanks up to a column; at least one. */
void rlm_plain_pad(struct rlm_plain *p, int column);
/* Switches to a colour of SGR ("32", "1;31"; NULL: the normal one). Nothing without `color`. */
void rlm_plain_color(struct rlm_plain *p, const char *sgr);
void rlm_plain_end(struct rlm_plain *p);

/* Puts a text of many lines, each behind `indent`; at most `max_lines` (0: all), then a line that says
 * how many are left. */
void rlm_plain_block(struct rlm_plain *p, rlm_str text, const char *indent, size_t max_lines);

/* The character is one of those that are taken out. */
bool rlm_plain_hides(int32_t c);

/* 999, 12.3k, 4.56M */
void rlm_plain_count(struct rlm_plain *p, int64_t count);
/* $0.0123; nothing for 0. */
void rlm_plain_money(struct rlm_plain *p, int64_t nano);
