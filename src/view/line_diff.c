#include "view/line_diff.h"

#include "base/vec.h"

enum {
    CONTEXT = 2, /* same lines around a change */
    TABLE_MAX =
        600, /* lines of a side that are compared each with each; else one block for another */
    COLUMNS = 200, /* of a line that is shown */
    LEAD = 60,     /* of these, before the place of the difference in a line */
};

struct lines {
    RLM_VEC(rlm_str) list;
};

struct diff {
    struct rlm_plain *p;
    const char *indent;
    size_t left;  /* lines that may still be shown */
    size_t count; /* that were not */
    size_t skip;  /* bytes at the start of changed lines that are not shown */
    const rlm_str *a, *b;
};

static bool split(rlm_str text, struct lines *lines)
{
    for (size_t start = 0; start < text.len;) {
        const char *newline = memchr(text.ptr + start, '\n', text.len - start);
        size_t end = newline ? (size_t)(newline - text.ptr) : text.len;
        rlm_str *line = rlm_vec_push(&lines->list);
        if (!line) {
            return false;
        }
        *line = rlm_str_sub(text, start, end);
        start = end + 1;
    }
    return true;
}

static void put(struct diff *d, char sign, rlm_str line)
{
    if (!d->left) {
        d->count++;
        return;
    }
    d->left--;
    size_t skip = sign != ' ' && line.len >= d->skip ? d->skip : 0;
    size_t end = line.len - skip > COLUMNS ? skip + COLUMNS : line.len;
    while (end < line.len && end > skip && ((unsigned char)line.ptr[end] & 0xc0) == 0x80) {
        end--;
    }
    rlm_plain_puts(d->p, d->indent);
    rlm_plain_color(d->p, sign == '-' ? "31" : sign == '+' ? "32" : "2");
    rlm_plain_putf(d->p, "%c ", sign);
    rlm_plain_puts(d->p, skip ? "…" : "");
    rlm_plain_put(d->p, rlm_str_sub(line, skip, end));
    rlm_plain_puts(d->p, end < line.len ? "…" : "");
    rlm_plain_color(d->p, NULL);
    rlm_plain_end(d->p);
}

/* How much of two long lines that differ late need not be shown. */
static size_t common_lead(rlm_str a, rlm_str b)
{
    size_t same = 0;
    while (same < a.len && same < b.len && a.ptr[same] == b.ptr[same]) {
        same++;
    }
    size_t skip = same > 2 * LEAD ? same - LEAD : 0;
    while (skip && ((unsigned char)a.ptr[skip] & 0xc0) == 0x80) {
        skip--;
    }
    return skip;
}

/* What changed between the lines that are the same at both ends: n and m lines. The table holds how many
 * lines the ends from each place on have in common. */
static bool put_middle(struct diff *d, size_t n, size_t m)
{
    size_t i = 0, k = 0, row = m + 1;
    uint16_t *common = NULL;
    if (n <= TABLE_MAX && m <= TABLE_MAX && !(common = rlm_calloc((n + 1) * row, sizeof *common))) {
        return false;
    }
    for (size_t x = common ? n : 0; x-- > 0;) {
        for (size_t y = m; y-- > 0;) {
            uint16_t down = common[(x + 1) * row + y], right = common[x * row + y + 1];
            common[x * row + y] = rlm_str_eq(d->a[x], d->b[y])
                                      ? (uint16_t)(common[(x + 1) * row + y + 1] + 1)
                                  : down > right ? down
                                                 : right;
        }
    }
    while (i < n || k < m) {
        if (i < n && k < m && rlm_str_eq(d->a[i], d->b[k]) && common) {
            put(d, ' ', d->a[i]);
            i++, k++;
        } else if (i < n &&
                   (k >= m || !common || common[(i + 1) * row + k] >= common[i * row + k + 1])) {
            put(d, '-', d->a[i++]);
        } else {
            put(d, '+', d->b[k++]);
        }
    }
    free(common);
    return true;
}

bool rlm_line_diff(
    struct rlm_plain *p, rlm_str before, rlm_str after, const char *indent, size_t max_lines)
{
    struct lines a = {0}, b = {0};
    bool fine = split(before, &a) && split(after, &b);
    size_t head = 0, tail = 0, n = a.list.len, m = b.list.len;
    while (fine && head < n && head < m && rlm_str_eq(a.list.items[head], b.list.items[head])) {
        head++;
    }
    while (fine && tail < n - head && tail < m - head &&
           rlm_str_eq(a.list.items[n - 1 - tail], b.list.items[m - 1 - tail])) {
        tail++;
    }
    if (fine) {
        struct diff d = {.p = p, .indent = indent, .left = max_lines};
        for (size_t i = head > CONTEXT ? head - CONTEXT : 0; i < head; i++) {
            put(&d, ' ', a.list.items[i]);
        }
        d.a = a.list.items + head;
        d.b = b.list.items + head;
        if (n - head - tail == 1 && m - head - tail == 1) {
            d.skip = common_lead(d.a[0], d.b[0]);
        }
        fine = put_middle(&d, n - head - tail, m - head - tail);
        for (size_t i = 0; i < tail && i < CONTEXT; i++) {
            put(&d, ' ', a.list.items[n - tail + i]);
        }
        if (d.count) {
            rlm_plain_putf(p, "%s… %zu more lines", indent, d.count);
            rlm_plain_end(p);
        }
    }
    free(a.list.items);
    free(b.list.items);
    return fine;
}
