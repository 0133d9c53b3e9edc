/* A run as one HTML file that needs nothing but itself.
 *
 * The page (html/page.*) gets the run as JSON in an element that no browser executes: `<` never stands in
 * it, so no text of a model can end that element. A policy in the page forbids every request and every
 * script and style but the two whose hashes it names. */
#include "base/base64.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/utf8.h"
#include "graph/journal.h"
#include "view/timeline.h"
#include "view/tree.h"

#include <ctype.h>

extern const char rlm_page_html[], rlm_page_css[], rlm_page_js[];
extern const size_t rlm_page_html_size, rlm_page_css_size, rlm_page_js_size;

enum {
    TEXT_MAX = 256 * 1024,     /* of one text; longer ones are cut in the middle */
    TEXT_LEAST = 1024,         /* but never shorter than that */
    ALL_MAX = 96 * 1024 * 1024 /* of all texts: what browsers can still work with */
};

struct page {
    struct rlm_json_writer w;
    const struct rlm_timeline *timeline;
    struct rlm_map numbers; /* agent id -> its place in the list, and one */
    size_t text_max;
    int64_t n_cut;
};

/* ---- texts ---- */

static uint64_t bytes_with(const rlm_graph *root, size_t max)
{
    uint64_t sum = 0;
    for (const rlm_graph *g = root; g; g = rlm_graph_next(root, g)) {
        for (size_t i = 0; i < g->nodes.len; i++) {
            const struct rlm_node *n = g->nodes.items[i];
            size_t lengths[] = {n->content.len, n->code.len, n->output.len, n->result.len,
                                n->metadata.len};
            for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
                sum += lengths[k] < max ? lengths[k] : max;
            }
        }
    }
    return sum;
}

static size_t largest_text(const rlm_graph *root)
{
    size_t max = TEXT_MAX;
    while (max > TEXT_LEAST && bytes_with(root, max) > ALL_MAX) {
        max /= 2;
    }
    return max;
}

static bool is_inside_character(rlm_str text, size_t at)
{
    return at < text.len && ((unsigned char)text.ptr[at] & 0xc0) == 0x80;
}

static void put_text(struct page *page, const char *key, rlm_str text)
{
    if (!text.len) {
        return;
    }
    if (text.len <= page->text_max) {
        rlm_json_member_str(&page->w, key, text);
        return;
    }
    size_t head = page->text_max / 2, tail = text.len - page->text_max / 2;
    /* Bytes that are no text at all have no ends of characters: give up after the longest one. */
    for (int i = 0; i < 4 && is_inside_character(text, head); i++) {
        head--;
    }
    for (int i = 0; i < 4 && is_inside_character(text, tail); i++) {
        tail++;
    }
    rlm_auto_buf struct rlm_buf cut = RLM_BUF(TEXT_MAX + 1024);
    rlm_buf_add_str(&cut, rlm_str_sub(text, 0, head));
    rlm_buf_addf(&cut, "\n\n[... %zu bytes are left out here ...]\n\n", tail - head);
    rlm_buf_add_str(&cut, rlm_str_sub(text, tail, text.len));
    if (cut.status < 0) {
        page->w.buf->status = cut.status;
        return;
    }
    rlm_json_member_str(&page->w, key, rlm_buf_str(&cut));
    page->n_cut++;
}

static void put_usage(struct page *page, const struct rlm_usage *u)
{
    const int64_t numbers[] = {u->calls,         u->input_tokens, u->cached_tokens,
                               u->output_tokens, u->cost_nano,    u->estimated};
    rlm_json_key(&page->w, "usage");
    rlm_json_begin(&page->w, '[');
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        rlm_json_put_int(&page->w, numbers[i]);
    }
    rlm_json_end(&page->w, ']');
}

/* ---- nodes and agents ---- */

static void put_gates(struct page *page, const struct rlm_node *node)
{
    const struct rlm_gate_said *gate = rlm_timeline_gate(page->timeline, node->id);
    if (!gate) {
        return;
    }
    rlm_json_key(&page->w, "gates");
    rlm_json_begin(&page->w, '[');
    for (; gate; gate = rlm_timeline_next_gate(page->timeline, gate)) {
        rlm_auto_buf struct rlm_buf text = RLM_BUF(RLM_RECORD_MAX_BYTES);
        rlm_timeline_put_gate(&text, gate);
        rlm_json_put_str(&page->w, rlm_buf_str(&text));
    }
    rlm_json_end(&page->w, ']');
}

static void
put_node(struct page *page, const struct rlm_node *node, const struct rlm_node *before, int turn)
{
    struct rlm_json_writer *w = &page->w;
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "id", node->id);
    rlm_json_member_text(w, "type", rlm_node_type_tag(node->type));
    rlm_json_member_int(w, "t", node->time_us);
    rlm_json_member_int(w, "at", rlm_timeline_place(page->timeline, node->time_us) / 1000);
    const struct rlm_stop *stop = rlm_timeline_stop_before(page->timeline, before, node);
    if (stop) {
        rlm_json_member_int(w, "resumed", (stop->resumed_us - stop->last_us) / 1000);
    }
    put_text(page, "content", node->content);
    if (node->code.len && before && rlm_str_eq(node->code, before->code)) {
        rlm_json_member_bool(w, "same", true);
    } else {
        put_text(page, "code", node->code);
    }
    if (node->output.len && rlm_str_eq(node->output, node->content)) {
        rlm_json_member_bool(w, "echo", true);
    } else {
        put_text(page, "output", node->output);
    }
    put_text(page, "error", rlm_view_error(node->error));
    put_text(page, "result", node->result);
    put_text(page, "reason", node->reason);
    if (node->type == RLM_LLM_OUTPUT) {
        rlm_json_member_int(w, "turn", turn);
        put_text(page, "model", node->model);
        put_usage(page, &node->usage);
    }
    if (node->n_agents) {
        rlm_json_key(w, "agents");
        rlm_json_begin(w, '[');
        for (size_t i = 0; i < node->n_agents; i++) {
            rlm_json_put_text(w, node->agents[i]);
        }
        rlm_json_end(w, ']');
    }
    put_text(page, "meta", node->metadata);
    put_gates(page, node);
    rlm_json_end(w, '}');
}

static void put_span(void *arg,
                     enum rlm_span_kind kind,
                     int turn,
                     const struct rlm_node *end,
                     int64_t from_us,
                     int64_t to_us)
{
    struct rlm_json_writer *w = &((struct page *)arg)->w;
    (void)turn, (void)end;
    rlm_json_begin(w, '[');
    rlm_json_put_int(w, (int)kind);
    rlm_json_put_double(w, (double)from_us / 1000);
    rlm_json_put_double(w, (double)to_us / 1000);
    rlm_json_end(w, ']');
}

static void put_agent(struct page *page, const rlm_graph *root, const rlm_graph *g)
{
    static const struct rlm_view_options at_rest = RLM_VIEW_OPTIONS_INIT;
    struct rlm_json_writer *w = &page->w;
    uintptr_t parent = 0;
    if (g != root) {
        parent = (uintptr_t)rlm_map_get(&page->numbers, rlm_str_of(g->parent->agent_id));
    }
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "id", g->agent_id);
    rlm_json_member_text(w, "name", g->name);
    rlm_json_member_int(w, "parent", (int64_t)parent - 1);
    rlm_json_member_int(w, "depth", g->depth - root->depth);
    rlm_json_member_str(w, "state", rlm_view_state(g, &at_rest));
    rlm_json_member_int(w, "turns", g->turns);
    rlm_json_key(w, "query");
    rlm_json_put_str(w, rlm_str_sub(g->query, 0, rlm_utf8_offset(g->query, 2000)));
    rlm_json_member_str(w, "model", g->model);
    put_usage(page, &g->own);
    rlm_json_key(w, "spans");
    rlm_json_begin(w, '[');
    rlm_timeline_each(page->timeline, g, put_span, page);
    rlm_json_end(w, ']');
    rlm_json_key(w, "nodes");
    rlm_json_begin(w, '[');
    int turn = 0;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        turn += node->type == RLM_LLM_OUTPUT;
        put_node(page, node, i ? g->nodes.items[i - 1] : NULL, turn);
    }
    rlm_json_end(w, ']');
    rlm_json_end(w, '}');
}

static void put_stops(struct page *page)
{
    struct rlm_json_writer *w = &page->w;
    rlm_json_key(w, "stops");
    rlm_json_begin(w, '[');
    for (size_t i = 0; i < page->timeline->stops.len; i++) {
        const struct rlm_stop *stop = &page->timeline->stops.items[i];
        rlm_json_begin(w, '[');
        rlm_json_put_int(w, rlm_timeline_place(page->timeline, stop->last_us) / 1000);
        rlm_json_put_int(w, (stop->resumed_us - stop->last_us) / 1000);
        rlm_json_end(w, ']');
    }
    rlm_json_end(w, ']');
}

/* The words that all views share. */
static void put_words(struct page *page)
{
    struct rlm_json_writer *w = &page->w;
    rlm_json_key(w, "kinds");
    rlm_json_begin(w, '[');
    for (int kind = 0; kind < _RLM_SPAN_KINDS; kind++) {
        rlm_json_put_text(w, rlm_span_names[kind]);
    }
    rlm_json_end(w, ']');
}

static int put_run(struct page *page, const rlm_graph *root, const char *note)
{
    struct rlm_json_writer *w = &page->w;
    struct rlm_usage total = rlm_graph_usage(root, true);
    uintptr_t number = 0;
    int r = 0;
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "note", note);
    put_usage(page, &total);
    rlm_json_member_double(w, "total_ms", (double)page->timeline->total_us / 1000);
    put_stops(page);
    put_words(page);
    rlm_json_key(w, "agents");
    rlm_json_begin(w, '[');
    for (const rlm_graph *g = root; g && r == 0; g = rlm_graph_next(root, g)) {
        r = rlm_map_set(&page->numbers, rlm_str_of(g->agent_id), (void *)++number);
        put_agent(page, root, g);
    }
    rlm_json_end(w, ']');
    rlm_json_member_int(w, "cut", page->n_cut);
    rlm_json_end(w, '}');
    return r;
}

/* ---- the page ---- */

/* `<` stands in strings alone, where an escape means the same. So do the two ends of lines that old
 * scripts choke on, and are escaped too. */
static void add_data(struct rlm_buf *out, rlm_str json)
{
    size_t from = 0;
    for (size_t i = 0; i < json.len; i++) {
        const char *at = json.ptr + i;
        bool line_end = json.len - i >= 3 && memcmp(at, "\xe2\x80", 2) == 0 &&
                        (at[2] == '\xa8' || at[2] == '\xa9');
        if (*at != '<' && !line_end) {
            continue;
        }
        rlm_buf_add_str(out, rlm_str_sub(json, from, i));
        rlm_buf_adds(out, *at == '<' ? "\\u003c" : at[2] == '\xa8' ? "\\u2028" : "\\u2029");
        i += line_end ? 2 : 0;
        from = i + 1;
    }
    rlm_buf_add_str(out, rlm_str_sub(json, from, json.len));
}

static void add_escaped(struct rlm_buf *out, rlm_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        switch (text.ptr[i]) {
        case '&':
            rlm_buf_adds(out, "&amp;");
            break;
        case '<':
            rlm_buf_adds(out, "&lt;");
            break;
        case '>':
            rlm_buf_adds(out, "&gt;");
            break;
        default:
            rlm_buf_addc(out, text.ptr[i]);
        }
    }
}

static void add_title(struct rlm_buf *out, const rlm_graph *root)
{
    rlm_auto_buf struct rlm_buf title = RLM_BUF(4096);
    struct rlm_plain p = {.out = &title, .width = 80};
    rlm_plain_put(&p, rlm_str_sub(root->query, 0, rlm_utf8_offset(root->query, 200)));
    rlm_buf_adds(out, "rlmflow: ");
    add_escaped(out, rlm_buf_str(&title));
}

/* 'sha256-...' of a piece of the page. */
static int add_hash(struct rlm_buf *out, rlm_str text)
{
    char hex[RLM_SHA256_HEX + 1], bytes[RLM_SHA256_HEX / 2];
    int r = rlm_sha256_of(text, hex);
    for (size_t i = 0; r == 0 && i < sizeof bytes; i++) {
        int high = isdigit((unsigned char)hex[2 * i]) ? hex[2 * i] - '0' : hex[2 * i] - 'a' + 10;
        int low = isdigit((unsigned char)hex[2 * i + 1]) ? hex[2 * i + 1] - '0'
                                                         : hex[2 * i + 1] - 'a' + 10;
        bytes[i] = (char)(high << 4 | low);
    }
    rlm_buf_adds(out, "'sha256-");
    rlm_base64_encode(out, (rlm_str){bytes, sizeof bytes});
    rlm_buf_adds(out, "'");
    return r;
}

static int add_policy(struct rlm_buf *out)
{
    rlm_buf_adds(out, "default-src 'none'; script-src ");
    int r = add_hash(out, (rlm_str){rlm_page_js, rlm_page_js_size});
    rlm_buf_adds(out, "; style-src ");
    if (r == 0) {
        r = add_hash(out, (rlm_str){rlm_page_css, rlm_page_css_size});
    }
    rlm_buf_adds(out, "; base-uri 'none'; form-action 'none'");
    return r;
}

/* Fills the places of the page, {{name}}. */
static int fill(struct rlm_buf *out, const rlm_graph *root, rlm_str data)
{
    rlm_str page = {rlm_page_html, rlm_page_html_size};
    int r = 0;
    const char *open;
    while (r == 0 && (open = memmem(page.ptr, page.len, "{{", 2))) {
        rlm_buf_add(out, page.ptr, (size_t)(open - page.ptr));
        page = rlm_str_sub(page, (size_t)(open - page.ptr) + 2, page.len);
        const char *close = memmem(page.ptr, page.len, "}}", 2);
        rlm_str name = {page.ptr, close ? (size_t)(close - page.ptr) : page.len};
        if (rlm_str_is(name, "data")) {
            add_data(out, data);
        } else if (rlm_str_is(name, "title")) {
            add_title(out, root);
        } else if (rlm_str_is(name, "policy")) {
            r = add_policy(out);
        } else if (rlm_str_is(name, "version")) {
            rlm_buf_adds(out, RLM_VERSION);
        } else if (rlm_str_is(name, "style")) {
            rlm_buf_add(out, rlm_page_css, rlm_page_css_size);
        } else if (rlm_str_is(name, "script")) {
            rlm_buf_add(out, rlm_page_js, rlm_page_js_size);
        }
        page = rlm_str_sub(page, close ? name.len + 2 : page.len, page.len);
    }
    rlm_buf_add_str(out, page);
    return r;
}

int rlm_view_html(const rlm_graph *root,
                  const char *journal,
                  const char *note,
                  char **ret_html,
                  size_t *ret_len,
                  rlm_error **err)
{
    struct rlm_timeline timeline;
    int r = rlm_timeline_load(root, journal, &timeline, err);
    if (r < 0) {
        return r;
    }
    rlm_auto_buf struct rlm_buf data = RLM_BUF(RLM_VIEW_MAX_BYTES);
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    struct page page = {.w = {.buf = &data}, .timeline = &timeline};
    page.text_max = largest_text(root);
    r = put_run(&page, root, note);
    r = r < 0 ? r : rlm_buf_check(&data, err);
    if (r == 0) {
        r = fill(&out, root, rlm_buf_str(&data));
        r = r < 0 ? r : rlm_buf_check(&out, err);
    }
    rlm_map_deinit(&page.numbers);
    rlm_timeline_deinit(&timeline);
    if (r < 0) {
        /* rlm_buf_check has said it, or there was no memory. */
        return err && !*err ? rlm_error_nomem(err) : r;
    }
    *ret_len = out.len;
    *ret_html = rlm_buf_take(&out);
    return 0;
}
