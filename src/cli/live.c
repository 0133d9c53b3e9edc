#include "cli/live.h"

#include "cli/text.h"
#include "cli/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { REDRAW_MS = 100, CLOCK_MS = 1000, PLAIN_COLUMNS = 120, NOTICE_COLUMNS = 4000 };

struct live {
    bool quiet;
    bool tree; /* redraws in place */
    bool color;
    FILE *log;
    bool log_failed;
    int64_t started_ms;
    int64_t drawn_ms;
    bool dirty;
    int lines; /* of the last drawing, above the cursor */
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

live *live_new(bool quiet, const char *log_path)
{
    const char *term = getenv("TERM");
    live *l = text_allocate(sizeof *l);
    l->quiet = quiet;
    l->tree = !quiet && isatty(2) && term && *term && strcmp(term, "dumb") != 0;
    l->color = l->tree && !getenv("NO_COLOR");
    l->started_ms = now_ms();
    if (log_path) {
        /* A pipe without a reader is refused, and one that is full loses lines: nothing waits for it. */
        int fd =
            open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
        l->log = fd < 0 ? NULL : fdopen(fd, "a");
        if (!l->log) {
            text_complain("--log-file %s: %s", log_path,
                          errno == ENXIO ? "nobody reads this pipe" : strerror(errno));
            free(l);
            return NULL;
        }
        setvbuf(l->log, NULL, _IOLBF, BUFSIZ);
    }
    return l;
}

int64_t live_elapsed_ms(const live *l)
{
    return now_ms() - l->started_ms;
}

static void log_line(live *l, const char *line)
{
    struct timespec t;
    struct tm utc;
    char stamp[40] = "";
    clock_gettime(CLOCK_REALTIME, &t);
    if (gmtime_r(&t.tv_sec, &utc)) {
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    }
    if (fprintf(l->log, "%s.%03ldZ  %s\n", stamp, t.tv_nsec / 1000000, line) < 0 &&
        !l->log_failed) {
        l->log_failed = true;
        text_complain("writing to the log file: %s", strerror(errno));
    }
}

/* What says nothing new has no line: the code of an action stands in the reply before it, the task of a
 * sub-agent in the line of its start. */
static bool is_worth_a_line(const struct rlm_event *event)
{
    bool repeated = event->node && (event->node->type == RLM_EXEC_ACTION ||
                                    (event->node->type == RLM_USER_QUERY && event->node->seq == 0 &&
                                     rlm_graph_parent(event->graph)));
    return !repeated && event->type != RLM_EVENT_STATE && event->type != RLM_EVENT_DELTA &&
           event->type != RLM_EVENT_GRAPH_CREATED;
}

static void erase(live *l)
{
    if (l->lines) {
        fprintf(stderr, "\r\033[%dA\033[J", l->lines);
        l->lines = 0;
    }
}

void live_event(live *l, rlm_run *run, const struct rlm_event *event)
{
    struct rlm_view_options options = RLM_VIEW_OPTIONS_INIT;
    bool logged = l->log && event->type != RLM_EVENT_DELTA;
    bool printed = !l->quiet && !l->tree && is_worth_a_line(event);
    bool noticed = event->type == RLM_EVENT_NOTICE && !printed;
    options.run = run;
    l->dirty = true;
    if (!logged && !printed && !noticed) {
        return;
    }
    char *line;
    if (logged) {
        options.width = NOTICE_COLUMNS;
        line = rlm_view_event(event, &options);
        log_line(l, line ? line : "");
        free(line);
    }
    if (printed || noticed) {
        options.width = event->type == RLM_EVENT_NOTICE ? NOTICE_COLUMNS : PLAIN_COLUMNS;
        line = rlm_view_event(event, &options);
        erase(l);
        fprintf(stderr, "%s%s\n", noticed ? "rlmflow: " : "", line ? line : "");
        free(line);
    }
}

int live_timeout(const live *l)
{
    if (!l->tree) {
        return -1;
    }
    int64_t left = l->drawn_ms + (l->dirty ? REDRAW_MS : CLOCK_MS) - now_ms();
    return left > 0 ? (int)left : 0;
}

struct counts {
    size_t agents, working;
};

static struct counts count(const rlm_graph *g)
{
    struct counts sum = {1, rlm_graph_finished(g) ? 0 : 1};
    for (size_t i = 0; i < rlm_graph_child_count(g); i++) {
        struct counts below = count(rlm_graph_child(g, i));
        sum.agents += below.agents;
        sum.working += below.working;
    }
    return sum;
}

static char *summary(const live *l, rlm_run *run, const rlm_graph *root)
{
    struct counts agents = count(root);
    struct rlm_usage usage = rlm_run_usage(run);
    char elapsed[32], cost[32] = "";
    units_format_time(live_elapsed_ms(l), elapsed, sizeof elapsed);
    if (usage.cost_nano > 0) {
        snprintf(cost, sizeof cost, ", $%.4f", (double)usage.cost_nano / 1e9);
    }
    return text_format("%zu agent%s, %zu at work, %lld calls, %lld tokens in, %lld out%s, %s",
                       agents.agents, agents.agents == 1 ? "" : "s", agents.working,
                       (long long)usage.calls, (long long)usage.input_tokens,
                       (long long)usage.output_tokens, cost, elapsed);
}

static void draw(live *l, rlm_run *run)
{
    struct winsize size = {0};
    struct rlm_view_options options = RLM_VIEW_OPTIONS_INIT;
    const rlm_graph *root = rlm_run_graph(run);
    if (ioctl(2, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 || size.ws_row == 0) {
        size.ws_col = 80;
        size.ws_row = 24;
    }
    /* One column stays free, since terminals wrap at the last one. */
    options.width = size.ws_col > 1 ? size.ws_col - 1 : 1;
    options.max_lines = size.ws_row > 4 ? size.ws_row - 2 : 2;
    options.color = l->color;
    options.run = run;
    char *tree = root ? rlm_view_tree(root, &options) : NULL;
    char *last = root ? summary(l, run, root) : text_copy("taking in the inputs");
    char *clipped = rlm_view_text((struct rlm_str){last, strlen(last)}, &options);
    char *up = l->lines ? text_format("\r\033[%dA\033[J", l->lines) : text_copy("");
    char *all = text_format("%s%s%s\n", up, tree ? tree : "", clipped ? clipped : "");
    fputs(all, stderr); /* unbuffered: one write, which does not flicker */
    l->lines = 1;
    for (const char *p = tree; p && (p = strchr(p, '\n')) != NULL; p++) {
        l->lines++;
    }
    l->drawn_ms = now_ms();
    l->dirty = false;
    free(all);
    free(up);
    free(clipped);
    free(last);
    free(tree);
}

void live_tick(live *l, rlm_run *run)
{
    if (l->tree && live_timeout(l) == 0) {
        draw(l, run);
    }
}

void live_move_on(live *l)
{
    l->lines = 0;
    l->dirty = true;
}

void live_end(live *l, rlm_run *run)
{
    if (l->tree) {
        draw(l, run);
        l->lines = 0;
        l->tree = false;
    }
}

void live_free(live *l)
{
    if (l && l->log) {
        fclose(l->log);
    }
    free(l);
}
