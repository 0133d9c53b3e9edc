/* runs: the kept runs as a list, and their removal. */
#include "cli/commands.h"
#include "cli/kept.h"
#include "cli/text.h"
#include "cli/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool is_limit(const char *reason)
{
    static const char *const limits[] = {"max_iters", "budget", "cost", "time"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (strcmp(reason, limits[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* One word, for people and for --json. */
static const char *state_word(const struct rlm_run_glance *g)
{
    switch (g->state) {
    case RLM_RUN_RUNNING:
        return "running";
    case RLM_RUN_UNFINISHED:
        return strcmp(g->reason, "awaiting_approval") == 0 ? "waiting" : "unfinished";
    case RLM_RUN_DAMAGED:
        return "damaged";
    case RLM_RUN_ENDED:
        break;
    }
    return is_limit(g->reason) ? "limit" : g->reason;
}

static void format_state(const struct rlm_run_glance *g, char *out, size_t size)
{
    bool limit = g->state == RLM_RUN_ENDED && is_limit(g->reason);
    snprintf(out, size, limit ? "%.20s: %.20s" : "%.40s", state_word(g), g->reason);
}

static void format_age(int64_t us, char *out, size_t size)
{
    static const struct {
        int64_t seconds;
        const char *unit;
    } steps[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    int64_t seconds = us / 1000000;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (seconds >= 2 * steps[i].seconds || steps[i].seconds == 1) {
            snprintf(out, size, "%" PRId64 " %s", seconds > 0 ? seconds / steps[i].seconds : 0,
                     steps[i].unit);
            return;
        }
    }
}

static void format_cost(int64_t nano, char *out, size_t size)
{
    *out = '\0';
    if (nano > 0) {
        snprintf(out, size, nano < 10000000 ? "$%.4f" : "$%.2f", (double)nano / 1e9);
    }
}

/* ---- the list -------------------------------------------------------------------------------- */

static int screen_width(void)
{
    struct winsize size = {0};
    return isatty(1) && ioctl(1, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* The rest of a line, made harmless and clipped. */
static void put_rest(const char *text, int width)
{
    struct rlm_view_options view = RLM_VIEW_OPTIONS_INIT;
    view.width = width;
    char *line = rlm_view_text((struct rlm_str){text, strlen(text)}, &view);
    puts(line ? line : "");
    free(line);
}

static void put_line(const struct kept_run *run, int name_width, int64_t now, int width)
{
    char state[64], age[32], cost[32], size[32];
    const struct rlm_run_glance *g = &run->glance;
    format_state(g, state, sizeof state);
    format_age(now - g->changed_us, age, sizeof age);
    format_cost(g->usage.cost_nano, cost, sizeof cost);
    units_format_size(g->disk_bytes, size, sizeof size);
    char *line =
        text_format("%-*s  %-18s %8s %9s %11s  %s", name_width, run->name, state,
                    g->changed_us ? age : "", cost, size, g->problem ? g->problem : g->query);
    put_rest(line, width);
    free(line);
}

static int put_list(const struct kept_runs *runs)
{
    int name_width = 4, width = screen_width();
    int64_t now = now_us();
    for (size_t i = 0; i < runs->n; i++) {
        int len = (int)strlen(runs->items[i].name);
        name_width = len > name_width && len <= 60 ? len : name_width;
    }
    if (runs->n) {
        char *head = text_format("%-*s  %-18s %8s %9s %11s  %s", name_width, "NAME", "STATE", "AGE",
                                 "COST", "SIZE", "QUERY");
        put_rest(head, width);
        free(head);
    }
    for (size_t i = 0; i < runs->n; i++) {
        put_line(&runs->items[i], name_width, now, width);
    }
    char all[32];
    units_format_size(runs->bytes, all, sizeof all);
    fflush(stdout); /* the sum comes behind the list, also where both go to one file */
    text_say("%zu run%s in %s, %s", runs->n, runs->n == 1 ? "" : "s", runs->directory, all);
    return 0;
}

static void put_member(const char *key, const char *text)
{
    printf(",\"%s\":", key);
    if (text && *text) {
        text_write_json(stdout, (struct rlm_str){text, strlen(text)});
    } else {
        fputs("null", stdout);
    }
}

static int put_json(const struct kept_runs *runs)
{
    for (size_t i = 0; i < runs->n; i++) {
        const struct kept_run *run = &runs->items[i];
        const struct rlm_run_glance *g = &run->glance;
        int64_t cost = g->usage.cost_nano > 0 ? g->usage.cost_nano : 0;
        fputs("{\"type\":\"run\",\"name\":", stdout);
        text_write_json(stdout, (struct rlm_str){run->name, strlen(run->name)});
        put_member("run", run->path);
        put_member("state", state_word(g));
        put_member("reason", g->reason);
        put_member("query", g->query);
        put_member("problem", g->problem);
        printf(",\"started_us\":%" PRId64 ",\"changed_us\":%" PRId64 ",\"agents\":%zu"
               ",\"size_bytes\":%" PRIu64 ",\"usage\":{\"calls\":%" PRId64
               ",\"input_tokens\":%" PRId64 ",\"output_tokens\":%" PRId64 ",\"cost\":%" PRId64
               ".%09" PRId64 "}}\n",
               g->started_us, g->changed_us, g->agents, g->disk_bytes, g->usage.calls,
               g->usage.input_tokens, g->usage.output_tokens, cost / 1000000000, cost % 1000000000);
    }
    return 0;
}

/* ---- removal --------------------------------------------------------------------------------- */

/* The worse of two exit codes, so that what went wrong is not forgotten. */
static int worse(int a, int b)
{
    return a > b ? a : b;
}

static int remove_named(struct options *o)
{
    int code = 0;
    if (o->n_arguments < 2) {
        text_complain("runs remove: which? `rlmflow runs` lists the names");
        return EXIT_USAGE;
    }
    for (int i = 1; i < o->n_arguments; i++) {
        rlm_error *err = NULL;
        char *path = kept_find(o->arguments[i]);
        if (rlm_run_remove(path, &err) < 0) {
            code = worse(code, text_fail(err));
        } else {
            text_say("removed %s", path);
        }
        free(path);
    }
    return code;
}

/* As the times of all settings, and days and weeks, which no limit of a run is given in. */
static bool parse_age_us(const char *text, int64_t *ret_us)
{
    size_t len = strlen(text);
    char last = len ? text[len - 1] : '\0';
    int64_t factor = last == 'd' ? 24 : last == 'w' ? 24 * 7 : 0, ms;
    char *hours = factor ? text_format("%.*sh", (int)(len - 1), text) : text_copy(text);
    bool ok = units_time_ms(hours, &ms) && ms <= INT64_MAX / 1000 / (factor ? factor : 1);
    free(hours);
    if (ok) {
        *ret_us = ms * 1000 * (factor ? factor : 1);
    }
    return ok;
}

struct prune {
    int64_t older_than_us; /* -1: no matter */
    int64_t keep_bytes;    /* -1: no matter */
    bool dry;
    size_t n_removed;
    uint64_t bytes_removed;
};

static int prune_one(struct prune *p, const struct kept_run *run, int64_t now)
{
    char state[64], age[32], size[32];
    rlm_error *err = NULL;
    format_state(&run->glance, state, sizeof state);
    format_age(now - run->glance.changed_us, age, sizeof age);
    units_format_size(run->glance.disk_bytes, size, sizeof size);
    if (!p->dry && rlm_run_remove(run->path, &err) < 0) {
        return text_fail(err);
    }
    char *line = text_format("%s %s (%s, %s, %s)", p->dry ? "would remove" : "removed", run->name,
                             state, age, size);
    put_rest(line, 0);
    free(line);
    p->n_removed++;
    p->bytes_removed += run->glance.disk_bytes;
    return 0;
}

/* From the oldest to the newest. What a process writes stays and counts. */
static int prune_all(struct prune *p, const struct kept_runs *runs)
{
    int code = 0;
    int64_t now = now_us();
    for (size_t i = runs->n; i-- > 0;) {
        const struct kept_run *run = &runs->items[i];
        bool old = p->older_than_us >= 0 && now - run->glance.changed_us > p->older_than_us;
        bool much = p->keep_bytes >= 0 && runs->bytes - p->bytes_removed > (uint64_t)p->keep_bytes;
        if ((old || much) && run->glance.state != RLM_RUN_RUNNING) {
            code = worse(code, prune_one(p, run, now));
        }
    }
    return code;
}

static int prune(struct options *o, const struct kept_runs *runs)
{
    struct prune p = {.older_than_us = -1, .keep_bytes = -1, .dry = options_on(o, OPT_DRY_RUN)};
    const char *age = options_text(o, OPT_OLDER_THAN);
    char freed[32], left[32];
    if (age && !parse_age_us(age, &p.older_than_us)) {
        text_complain("runs prune: --older-than takes a time such as 30d, 2w or 12h, not \"%s\"",
                      age);
        return EXIT_USAGE;
    }
    if (options_text(o, OPT_KEEP_SIZE)) {
        p.keep_bytes = options_number(o, OPT_KEEP_SIZE);
    }
    if (p.older_than_us < 0 && p.keep_bytes < 0) {
        text_complain(
            "runs prune: say which runs may go: --older-than 30d, --keep-size 5g, or both");
        return EXIT_USAGE;
    }
    int code = prune_all(&p, runs);
    units_format_size(p.bytes_removed, freed, sizeof freed);
    units_format_size(runs->bytes - p.bytes_removed, left, sizeof left);
    fflush(stdout); /* the sum comes behind the list */
    text_say("%s %zu run%s of %zu, %s; %s left", p.dry ? "would remove" : "removed", p.n_removed,
             p.n_removed == 1 ? "" : "s", runs->n, freed, left);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int check_flags(const struct options *o, bool pruning, bool listing)
{
    static const enum option_id of_prune[] = {OPT_OLDER_THAN, OPT_KEEP_SIZE, OPT_DRY_RUN};
    for (size_t i = 0; !pruning && i < sizeof of_prune / sizeof *of_prune; i++) {
        if (o->settings[of_prune[i]].value) {
            text_complain("runs: --%s goes with `rlmflow runs prune`",
                          option_table[of_prune[i]].name);
            return EXIT_USAGE;
        }
    }
    if (!listing && options_on(o, OPT_JSON)) {
        text_complain("runs: --json goes with the list");
        return EXIT_USAGE;
    }
    return 0;
}

static int run(struct options *o)
{
    const char *verb = o->n_arguments ? o->arguments[0] : "list";
    bool listing = strcmp(verb, "list") == 0, pruning = strcmp(verb, "prune") == 0;
    bool removing = strcmp(verb, "remove") == 0;
    struct kept_runs runs;
    if ((!listing && !pruning && !removing) || (!removing && o->n_arguments > 1)) {
        text_complain(
            "runs: usage: rlmflow runs, rlmflow runs remove NAME..., rlmflow runs prune FLAG...");
        return EXIT_USAGE;
    }
    int code = check_flags(o, pruning, listing);
    if (code || removing) {
        return code ? code : remove_named(o);
    }
    if ((code = kept_list(&runs)) == 0) {
        code = pruning                   ? prune(o, &runs)
               : options_on(o, OPT_JSON) ? put_json(&runs)
                                         : put_list(&runs);
        kept_list_free(&runs);
    }
    return code;
}

const struct command cmd_runs = {
    .name = "runs",
    .bit = FOR_RUNS,
    .summary = "Lists the kept runs; removes some of them.",
    .usage = "[remove NAME... | prune FLAG...]",
    .description =
        "Without a word: the list, the run that was written to last first; with --json one object a line.\n"
        "A run is answered, limit, failed, unfinished or waiting for an approval (`rlmflow resume`\n"
        "goes on with both), running (a living process writes it) or damaged. AGE is the time since\n"
        "something was last written.\n"
        "\n"
        "`runs remove` removes runs by their names or paths, `runs prune` removes old ones and names them;\n"
        "neither removes a run that is being written.\n",
    .example = "  rlmflow runs remove 20250131-093012-errors\n"
               "  rlmflow runs prune --older-than 30d --keep-size 5g --dry-run\n",
    .min_arguments = 0,
    .max_arguments = 100000,
    .run = run,
};
