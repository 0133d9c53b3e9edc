#include "cli/replay_report.h"

#include "cli/text.h"

#include <string.h>

enum { MOST_LINES = 20, MOST_COLUMNS = 200 };

/* The lines of a text, each with a mark. */
static void say_lines(struct rlm_str text, char mark)
{
    size_t at = 0;
    for (int shown = 0; at < text.len && shown < MOST_LINES; shown++) {
        const char *end = memchr(text.ptr + at, '\n', text.len - at);
        size_t len = end ? (size_t)(end - text.ptr) - at : text.len - at;
        text_say("  %c %.*s", mark, len > MOST_COLUMNS ? MOST_COLUMNS : (int)len, text.ptr + at);
        at += len + 1;
    }
    if (at < text.len) {
        text_say("  %c ...", mark);
    }
}

/* Where two texts part: the line before, then what each has. */
static void say_difference(struct rlm_str a, struct rlm_str b)
{
    size_t same = 0, line = 0, before = 0;
    while (same < a.len && same < b.len && a.ptr[same] == b.ptr[same]) {
        if (a.ptr[same++] == '\n') {
            before = line;
            line = same;
        }
    }
    say_lines((struct rlm_str){a.ptr + before, line - before}, ' ');
    say_lines((struct rlm_str){a.ptr + line, a.len - line}, '-');
    say_lines((struct rlm_str){b.ptr + line, b.len - line}, '+');
}

static void say_where_it_parts(const struct rlm_replay_report *r)
{
    char turn[40] = "before its first turn", cell[40] = "";
    if (r->turn) {
        snprintf(turn, sizeof turn, "turn %d", r->turn);
    }
    if (r->cell) {
        snprintf(cell, sizeof cell, ", cell %lld", (long long)r->cell);
    }
    text_say("differs: %s, %s%s: %s", r->agent_id, turn, cell, r->what);
    say_difference(r->recorded, r->replayed);
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

int replay_report(const rlm_run *run, bool ignore_output)
{
    const struct rlm_replay_report *r = rlm_run_replay_report(run);
    const char *reason = rlm_run_reason(run);
    char but[80] = "";
    if (r->diverged) {
        say_where_it_parts(r);
        return EXIT_FAILED;
    }
    if (rlm_run_error(run)) {
        text_complain("the replay failed: %s", rlm_run_message(run));
        return EXIT_FAILED;
    }
    if (r->outputs_differ) {
        snprintf(but, sizeof but, ", but %zu cell%s printed something else", r->outputs_differ,
                 plural(r->outputs_differ));
    }
    text_say("as recorded%s: %zu step%s and %zu host call%s up to the end (%s); %zu cell%s ran, "
             "%zu did not",
             but, r->nodes, plural(r->nodes), r->calls, plural(r->calls), reason, r->cells_run,
             plural(r->cells_run), r->cells_not_run);
    return r->outputs_differ && !ignore_output ? EXIT_FAILED : EXIT_ANSWERED;
}
