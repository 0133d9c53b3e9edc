/* The timeline as text: bars of one line an agent, or one line a step of one agent; and as JSON. */
#include "base/json.h"
#include "view/timeline.h"
#include "view/tree.h"

enum { WIDTH = 100, BAR_LEAST = 10, BAR_MOST = 400, NAME_MOST = 28, SUM = 9, LINES_MOST = 2000 };

static const struct {
    const char *mark, *sgr;
    bool always; /* else only where there is any */
} kinds[_RLM_SPAN_KINDS] = {
    [RLM_SPAN_MODEL] = {"▒", "36", true}, [RLM_SPAN_CODE] = {"█", "33", true},
    [RLM_SPAN_TOOL] = {"▓", "32", false}, [RLM_SPAN_WAITING] = {"·", "34", true},
    [RLM_SPAN_GATE] = {"?", "35", false}, [RLM_SPAN_UNDONE] = {"×", "31", false},
};

struct chart {
    struct rlm_plain *p;
    const struct rlm_timeline *timeline;
    int name, bar;               /* columns */
    int places[_RLM_SPAN_KINDS]; /* of the kinds that are shown, from 0; else -1 */
    int n_kinds;
    size_t lines;
};

/* One agent's time in each column of the bar, and in all. */
struct row {
    const struct chart *chart;
    int64_t columns[BAR_MOST][_RLM_SPAN_KINDS];
    int64_t sums[_RLM_SPAN_KINDS];
};

static void put_duration(struct rlm_plain *p, int64_t us)
{
    if (us < 1000000) {
        rlm_plain_putf(p, "%lld ms", (long long)(us + 500) / 1000);
    } else if (us < 60 * 1000000LL) {
        rlm_plain_putf(p, "%.1f s", (double)us / 1e6);
    } else {
        int64_t s = us / 1000000;
        s < 3600 ? rlm_plain_putf(p, "%lldm %02llds", (long long)s / 60, (long long)s % 60)
                 : rlm_plain_putf(p, "%lldh %02lldm", (long long)s / 3600, (long long)s / 60 % 60);
    }
}

static int64_t column_start(const struct chart *chart, int column)
{
    return chart->timeline->total_us * column / chart->bar;
}

static void add_span(struct row *row, enum rlm_span_kind kind, int64_t from_us, int64_t to_us)
{
    const struct chart *chart = row->chart;
    int64_t total = chart->timeline->total_us;
    int column = total ? (int)((double)from_us * chart->bar / (double)total) : 0;
    for (column = column ? column - 1 : 0; column < chart->bar; column++) {
        int64_t start = column_start(chart, column), end = column_start(chart, column + 1);
        int64_t first = from_us > start ? from_us : start, last = to_us < end ? to_us : end;
        if (start >= to_us) {
            break;
        }
        if (last > first) {
            row->columns[column][kind] += last - first;
        }
    }
    row->sums[kind] += to_us - from_us;
}

static void on_span(void *arg,
                    enum rlm_span_kind kind,
                    int turn,
                    const struct rlm_node *end,
                    int64_t from_us,
                    int64_t to_us)
{
    (void)turn, (void)end;
    add_span(arg, kind, from_us, to_us);
}

static void put_bar(struct rlm_plain *p, const struct row *row)
{
    int before = -1;
    for (int i = 0; i < row->chart->bar; i++) {
        int most = -1;
        for (int kind = 0; kind < _RLM_SPAN_KINDS; kind++) {
            if (row->columns[i][kind] &&
                (most < 0 || row->columns[i][kind] > row->columns[i][most])) {
                most = kind;
            }
        }
        if (most != before) {
            rlm_plain_color(p, most < 0 ? NULL : kinds[most].sgr);
        }
        rlm_plain_puts(p, most < 0 ? " " : kinds[most].mark);
        before = most;
    }
    rlm_plain_color(p, NULL);
}

static void put_head(const struct chart *chart, const char *title)
{
    struct rlm_plain *p = chart->p;
    for (int kind = 0; kind < _RLM_SPAN_KINDS; kind++) {
        if (chart->places[kind] >= 0) {
            rlm_plain_color(p, kinds[kind].sgr);
            rlm_plain_puts(p, kinds[kind].mark);
            rlm_plain_color(p, NULL);
            rlm_plain_putf(p, " %s   ", rlm_span_names[kind]);
        }
    }
    put_duration(p, chart->timeline->total_us);
    rlm_plain_puts(p, " in all");
    rlm_plain_end(p);
    for (size_t i = 0; i < chart->timeline->stops.len; i++) {
        const struct rlm_stop *stop = &chart->timeline->stops.items[i];
        rlm_plain_puts(p, "stopped: last step at ");
        put_duration(p, rlm_timeline_place(chart->timeline, stop->last_us));
        rlm_plain_puts(p, ", resumed ");
        put_duration(p, stop->resumed_us - stop->last_us);
        rlm_plain_puts(p, " later; the time between is left out");
        rlm_plain_end(p);
    }
    rlm_plain_color(p, "1");
    rlm_plain_puts(p, title);
    rlm_plain_color(p, NULL);
}

/* ---- agents ---- */

/* Goes to where the sum of a kind stands; false: nowhere. */
static bool go_to_sum(const struct chart *chart, int kind)
{
    int place = chart->places[kind];
    if (place >= 0) {
        rlm_plain_pad(chart->p, chart->name + 2 + chart->bar + 1 + place * SUM);
    }
    return place >= 0;
}

static void put_agent(struct chart *chart, const rlm_graph *root, const rlm_graph *g)
{
    struct rlm_plain *p = chart->p;
    struct row row = {.chart = chart};
    int indent = 2 * (g->depth - root->depth);
    rlm_timeline_each(chart->timeline, g, on_span, &row);
    struct rlm_plain name = {.out = p->out, .width = chart->name, .color = p->color};
    rlm_plain_putf(&name, "%*s", indent < chart->name / 2 ? indent : chart->name / 2, "");
    rlm_plain_puts(&name, g->name);
    p->column = name.column;
    rlm_plain_pad(p, chart->name + 1);
    put_bar(p, &row);
    for (int kind = 0; kind < _RLM_SPAN_KINDS; kind++) {
        if (row.sums[kind] && go_to_sum(chart, kind)) {
            put_duration(p, row.sums[kind]);
        }
    }
    rlm_plain_end(p);
}

static void put_agents(struct chart *chart, const rlm_graph *root)
{
    struct rlm_plain *p = chart->p;
    put_head(chart, "agent");
    for (int kind = 0; kind < _RLM_SPAN_KINDS; kind++) {
        if (go_to_sum(chart, kind)) {
            rlm_plain_puts(p, rlm_span_names[kind]);
        }
    }
    rlm_plain_end(p);
    size_t left = 0;
    for (const rlm_graph *g = root; g; g = rlm_graph_next(root, g)) {
        chart->lines++ < LINES_MOST ? put_agent(chart, root, g) : (void)left++;
    }
    if (left) {
        rlm_plain_putf(p, "… %zu more agents", left);
        rlm_plain_end(p);
    }
}

/* ---- steps ---- */

static void put_step(void *arg,
                     enum rlm_span_kind kind,
                     int turn,
                     const struct rlm_node *end,
                     int64_t from_us,
                     int64_t to_us)
{
    struct chart *chart = arg;
    struct row row = {.chart = chart};
    if (chart->lines++ >= LINES_MOST) {
        return;
    }
    add_span(&row, kind, from_us, to_us);
    rlm_plain_putf(chart->p, "turn %-4d %s", turn, rlm_span_names[kind]);
    rlm_plain_pad(chart->p, chart->name + 1);
    put_bar(chart->p, &row);
    rlm_plain_puts(chart->p, "  ");
    put_duration(chart->p, to_us - from_us);
    rlm_plain_pad(chart->p, chart->name + 2 + chart->bar + 1 + SUM);
    rlm_plain_puts(chart->p, end ? end->id : "not ended");
    rlm_plain_end(chart->p);
}

static void put_steps(struct chart *chart, const rlm_graph *g)
{
    put_head(chart, rlm_graph_agent_id(g));
    rlm_plain_end(chart->p);
    rlm_timeline_each(chart->timeline, g, put_step, chart);
    if (chart->lines > LINES_MOST) {
        rlm_plain_putf(chart->p, "… %zu more steps", chart->lines - LINES_MOST);
        rlm_plain_end(chart->p);
    }
}

/* ---- both ---- */

static void mark_kind(void *arg,
                      enum rlm_span_kind kind,
                      int turn,
                      const struct rlm_node *end,
                      int64_t from_us,
                      int64_t to_us)
{
    (void)turn, (void)end, (void)from_us, (void)to_us;
    ((bool *)arg)[kind] = true;
}

static void choose_kinds(struct chart *chart, const rlm_graph *root, const rlm_graph *agent)
{
    bool there[_RLM_SPAN_KINDS] = {false};
    for (const rlm_graph *g = agent ? agent : root; g; g = agent ? NULL : rlm_graph_next(root, g)) {
        rlm_timeline_each(chart->timeline, g, mark_kind, there);
    }
    for (int kind = 0; kind < _RLM_SPAN_KINDS; kind++) {
        chart->places[kind] = kinds[kind].always || there[kind] ? chart->n_kinds++ : -1;
    }
}

/* The names get what the longest needs, the bar all that is left. */
static void set_columns(struct chart *chart, const rlm_graph *root, bool steps, int width)
{
    int longest = steps ? 17 : 5;
    for (const rlm_graph *g = root; g && !steps; g = rlm_graph_next(root, g)) {
        size_t len = strlen(g->name) + 2 * (size_t)(g->depth - root->depth);
        longest = len > (size_t)longest ? (len < NAME_MOST ? (int)len : NAME_MOST) : longest;
    }
    int sums = steps ? SUM + 21 : chart->n_kinds * SUM;
    int bar = (width ? width : WIDTH) - longest - 3 - sums;
    chart->name = longest;
    chart->bar = bar < BAR_LEAST ? BAR_LEAST : bar > BAR_MOST ? BAR_MOST : bar;
}

static void put_text(struct rlm_buf *out,
                     const struct rlm_timeline *timeline,
                     const rlm_graph *root,
                     const rlm_graph *agent,
                     const struct rlm_view_options *options)
{
    static const struct rlm_view_options standard = RLM_VIEW_OPTIONS_INIT;
    const struct rlm_view_options *o = options ? options : &standard;
    struct rlm_plain p = {.out = out, .width = o->width, .color = o->color};
    struct chart chart = {.p = &p, .timeline = timeline};
    choose_kinds(&chart, root, agent);
    set_columns(&chart, root, agent != NULL, o->width);
    agent ? put_steps(&chart, agent) : put_agents(&chart, root);
}

/* ---- JSON ---- */

static void put_span_json(void *arg,
                          enum rlm_span_kind kind,
                          int turn,
                          const struct rlm_node *end,
                          int64_t from_us,
                          int64_t to_us)
{
    struct rlm_json_writer *w = arg;
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "kind", rlm_span_names[kind]);
    rlm_json_member_int(w, "turn", turn);
    rlm_json_member_int(w, "from_us", from_us);
    rlm_json_member_int(w, "to_us", to_us);
    rlm_json_key(w, "node");
    end ? rlm_json_put_text(w, end->id) : rlm_json_put_null(w);
    rlm_json_end(w, '}');
}

static void put_json(struct rlm_buf *out,
                     const struct rlm_timeline *timeline,
                     const rlm_graph *root,
                     const rlm_graph *agent)
{
    struct rlm_json_writer w = {.buf = out};
    rlm_json_begin(&w, '{');
    rlm_json_member_int(&w, "started_us", timeline->start_us);
    rlm_json_member_int(&w, "total_us", timeline->total_us);
    rlm_json_key(&w, "stops");
    rlm_json_begin(&w, '[');
    for (size_t i = 0; i < timeline->stops.len; i++) {
        const struct rlm_stop *stop = &timeline->stops.items[i];
        rlm_json_begin(&w, '{');
        rlm_json_member_int(&w, "at_us", rlm_timeline_place(timeline, stop->last_us));
        rlm_json_member_int(&w, "left_out_us", stop->resumed_us - stop->last_us);
        rlm_json_end(&w, '}');
    }
    rlm_json_end(&w, ']');
    rlm_json_key(&w, "agents");
    rlm_json_begin(&w, '[');
    for (const rlm_graph *g = agent ? agent : root; g; g = agent ? NULL : rlm_graph_next(root, g)) {
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "agent_id", g->agent_id);
        rlm_json_key(&w, "spans");
        rlm_json_begin(&w, '[');
        rlm_timeline_each(timeline, g, put_span_json, &w);
        rlm_json_end(&w, ']');
        rlm_json_end(&w, '}');
    }
    rlm_json_end(&w, ']');
    rlm_json_end(&w, '}');
    rlm_buf_addc(out, '\n');
}

int rlm_view_timeline(const rlm_graph *root,
                      const rlm_graph *agent,
                      const char *journal,
                      bool json,
                      const struct rlm_view_options *options,
                      char **ret_text,
                      rlm_error **err)
{
    struct rlm_timeline timeline;
    int r = rlm_timeline_load(root, journal, &timeline, err);
    if (r < 0) {
        return r;
    }
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    json ? put_json(&out, &timeline, root, agent) : put_text(&out, &timeline, root, agent, options);
    rlm_timeline_deinit(&timeline);
    r = rlm_buf_check(&out, err);
    if (r == 0) {
        *ret_text = rlm_buf_take(&out);
    }
    return r;
}
