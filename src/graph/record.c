#include "graph/record.h"

#include "base/loop.h"
#include "base/utf8.h"
#include "graph/journal_scan.h"

static const char BLOB_KEY[] = "$blob", HEX_KEY[] = "$hex";

/* ---- texts ----------------------------------------------------------------------------------- */

/* Does a JSON string give the same bytes back? Not for what is no WTF-8, and not for a high surrogate
 * before a low one: their escapes read back as one character. */
static bool json_can_hold(rlm_str text, const struct rlm_utf8_scan *scan)
{
    if (scan->bad) {
        return false;
    }
    const unsigned char *p = (const unsigned char *)text.ptr;
    for (size_t i = 0; scan->surrogates && i + 5 < text.len; i++) {
        if (p[i] == 0xED && (p[i + 1] & 0xF0) == 0xA0 && p[i + 3] == 0xED && p[i + 4] >= 0xB0) {
            return false;
        }
    }
    return true;
}

static void put_hex(struct rlm_json_writer *w, rlm_str text)
{
    static const char digits[] = "0123456789abcdef";
    rlm_json_begin(w, '{');
    rlm_json_key(w, HEX_KEY);
    rlm_json_put_raw(w, RLM_STR("\""));
    char *room = rlm_buf_reserve(w->buf, text.len * 2);
    for (size_t i = 0; room && i < text.len; i++) {
        room[2 * i] = digits[(unsigned char)text.ptr[i] >> 4];
        room[2 * i + 1] = digits[text.ptr[i] & 15];
    }
    if (room) {
        rlm_buf_commit(w->buf, text.len * 2);
    }
    rlm_buf_addc(w->buf, '"');
    rlm_json_end(w, '}');
}

static int put_blob(struct rlm_json_writer *w,
                    rlm_blobs *blobs,
                    enum rlm_blob_type type,
                    rlm_str text,
                    rlm_error **err)
{
    const struct rlm_blob *blob;
    int r = rlm_blobs_put(blobs, type, text, &blob, err);
    if (r < 0) {
        return r;
    }
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, BLOB_KEY, blob->id);
    rlm_json_member_int(w, "size", (int64_t)blob->size_bytes);
    if (type == RLM_BLOB_TEXT) {
        rlm_json_member_int(w, "chars", (int64_t)blob->chars);
        rlm_json_member_int(w, "max_char", (int64_t)blob->max_char);
    } else {
        rlm_json_member_text(w, "type", "bytes");
    }
    rlm_json_end(w, '}');
    return 0;
}

int rlm_record_put_text(struct rlm_json_writer *w, rlm_blobs *blobs, rlm_str text, rlm_error **err)
{
    struct rlm_utf8_scan scan = {0};
    rlm_utf8_scan(&scan, text.ptr, text.len);
    rlm_utf8_scan_end(&scan);
    if (blobs && text.len >= RLM_BLOB_THRESHOLD) {
        return put_blob(w, blobs, scan.bad ? RLM_BLOB_BYTES : RLM_BLOB_TEXT, text, err);
    }
    if (json_can_hold(text, &scan)) {
        rlm_json_put_str(w, text);
    } else {
        put_hex(w, text);
    }
    return 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int get_hex(rlm_str hex, rlm_arena *a, rlm_str *ret_text, rlm_error **err)
{
    size_t len = hex.len / 2;
    char *bytes = rlm_arena_bytes(a, len + 1);
    if (!bytes) {
        return rlm_error_nomem(err);
    }
    bytes[len] = '\0';
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(hex.ptr[2 * i]), low = hex_digit(hex.ptr[2 * i + 1]);
        if (high < 0 || low < 0) {
            return rlm_error_set(err, RLM_E_PARSE, "a text in hexadecimal has other characters");
        }
        bytes[i] = (char)(high << 4 | low);
    }
    *ret_text = (rlm_str){bytes, len};
    return 0;
}

/* Reads the facts of {"$blob": ...} without its content; false when they are not all there. */
static bool get_facts(const rlm_json *value, struct rlm_blob *ret_facts)
{
    const rlm_json *id = rlm_json_get(value, BLOB_KEY);
    int64_t size = rlm_json_int(rlm_json_get(value, "size"), -1);
    if (!rlm_json_is(id, RLM_JSON_STRING) || id->text.len != RLM_SHA256_HEX || size < 0) {
        return false;
    }
    struct rlm_blob facts = {.type = RLM_BLOB_TEXT, .size_bytes = (uint64_t)size};
    memcpy(facts.id, id->text.ptr, RLM_SHA256_HEX);
    int64_t chars = rlm_json_int(rlm_json_get(value, "chars"), -1);
    int64_t max_char = rlm_json_int(rlm_json_get(value, "max_char"), -1);
    if (rlm_str_is(rlm_json_text(rlm_json_get(value, "type"), RLM_STR("text")), "bytes")) {
        facts.type = RLM_BLOB_BYTES;
    } else if (chars < 0 || chars > size || max_char < 0 || max_char > 0x10FFFF) {
        return false;
    } else {
        facts.chars = (uint64_t)chars;
        facts.max_char = (uint32_t)max_char;
    }
    *ret_facts = facts;
    return true;
}

static int
get_blob(const rlm_json *value, rlm_blobs *blobs, rlm_arena *a, rlm_str *ret_text, rlm_error **err)
{
    struct rlm_blob facts;
    if (!get_facts(value, &facts)) {
        return rlm_error_set(err, RLM_E_PARSE, "a reference to a blob lacks its facts");
    }
    if (!blobs) {
        return rlm_error_set(err, RLM_E_INVAL, "blob %s cannot be read without a run", facts.id);
    }
    if (facts.size_bytes >= SIZE_MAX / 2) {
        return rlm_error_set(err, RLM_E_CORRUPT, "blob %s cannot be so large", facts.id);
    }
    /* What is damaged must not become known: the same text, when it comes again, is written anew. */
    rlm_auto_buf struct rlm_buf bytes = RLM_BUF(facts.size_bytes + 1);
    char id[RLM_SHA256_HEX + 1];
    rlm_str name = {facts.id, RLM_SHA256_HEX};
    int r = rlm_blobs_read_range(blobs, name, 0, (size_t)facts.size_bytes + 1, &bytes, err);
    if (r == 0 && rlm_sha256_of(rlm_buf_str(&bytes), id) < 0) {
        r = rlm_error_nomem(err);
    }
    if (r == 0 && bytes.len == facts.size_bytes && strcmp(id, facts.id) != 0) {
        r = rlm_error_set(err, RLM_E_CORRUPT,
                          "blob %s holds something else than what was written: the file is damaged",
                          facts.id);
    }
    if (r < 0 || (r = rlm_blobs_register(blobs, &facts, err)) < 0) {
        return r;
    }
    *ret_text = rlm_arena_copy(a, rlm_buf_str(&bytes));
    return ret_text->ptr ? 0 : rlm_error_nomem(err);
}

int rlm_record_get_text(
    const rlm_json *value, rlm_blobs *blobs, rlm_arena *a, rlm_str *ret_text, rlm_error **err)
{
    if (!value || value->type == RLM_JSON_NULL) {
        *ret_text = RLM_STR("");
        return 0;
    }
    if (value->type == RLM_JSON_STRING) {
        *ret_text = rlm_arena_copy(a, value->text);
        return ret_text->ptr ? 0 : rlm_error_nomem(err);
    }
    const rlm_json *hex = rlm_json_get(value, HEX_KEY);
    if (rlm_json_is(hex, RLM_JSON_STRING)) {
        return get_hex(hex->text, a, ret_text, err);
    }
    if (rlm_json_get(value, BLOB_KEY)) {
        return get_blob(value, blobs, a, ret_text, err);
    }
    return rlm_error_set(err, RLM_E_PARSE, "a text is neither a string nor a blob");
}

/* ---- texts that are JSON --------------------------------------------------------------------- */

/* A record must not pass the parser's depth: what nests deeper stands as a text. */
enum { MAX_DEPTH_OF_VALUE = RLM_JSON_MAX_DEPTH - 16 };

static bool is_too_deep(rlm_str json)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < json.len; i++) {
        char c = json.ptr[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > MAX_DEPTH_OF_VALUE) {
                return true;
            }
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return false;
}

/* An object whose first key starts with "$" could be taken for a text of the forms above. */
static bool may_stand_as_value(const rlm_json *value)
{
    return value->type != RLM_JSON_STRING && value->type != RLM_JSON_NULL &&
           !(value->type == RLM_JSON_OBJECT && value->count &&
             rlm_str_starts(value->members[0].key, "$"));
}

static bool writes_the_same(rlm_str json, rlm_error **err, int *ret_status)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    rlm_auto_buf struct rlm_buf again = RLM_BUF(json.len);
    struct rlm_json_writer w = {.buf = &again};
    rlm_autoerr rlm_error *ignored = NULL;
    const rlm_json *value;
    int r = a ? rlm_json_parse(a, json, &value, &ignored) : RLM_E_NOMEM;
    if (r == 0) {
        rlm_json_put(&w, value);
    }
    if (r == RLM_E_NOMEM || again.status == RLM_E_NOMEM) {
        *ret_status = rlm_error_nomem(err);
        return false;
    }
    *ret_status = 0;
    return r == 0 && again.status == 0 && may_stand_as_value(value) &&
           rlm_str_eq(json, rlm_buf_str(&again));
}

int rlm_record_put_json(struct rlm_json_writer *w, rlm_blobs *blobs, rlm_str json, rlm_error **err)
{
    int r = 0;
    if (json.len < RLM_BLOB_THRESHOLD && !is_too_deep(json) && writes_the_same(json, err, &r)) {
        rlm_json_put_raw(w, json);
        return 0;
    }
    return r < 0 ? r : rlm_record_put_text(w, blobs, json, err);
}

int rlm_record_get_json(
    const rlm_json *value, rlm_blobs *blobs, rlm_arena *a, rlm_str *ret_json, rlm_error **err)
{
    if (!value || !may_stand_as_value(value)) {
        return rlm_record_get_text(value, blobs, a, ret_json, err);
    }
    rlm_auto_buf struct rlm_buf text = RLM_BUF(RLM_RECORD_MAX_BYTES);
    struct rlm_json_writer w = {.buf = &text};
    rlm_json_put(&w, value);
    int r = rlm_buf_check(&text, err);
    if (r < 0) {
        return r;
    }
    *ret_json = rlm_arena_copy(a, rlm_buf_str(&text));
    return ret_json->ptr ? 0 : rlm_error_nomem(err);
}

int rlm_record_get_amount(const rlm_json *object,
                          const char *key,
                          int64_t *ret_amount,
                          rlm_error **err)
{
    const int64_t most = INT64_C(1) << 57;
    const rlm_json *value = rlm_json_get(object, key);
    int64_t amount = value ? rlm_json_int(value, -1) : 0;
    if (amount < 0 || amount > most) {
        return rlm_error_set(err, RLM_E_CORRUPT, "\"%s\" is no number from 0 to 2^57", key);
    }
    *ret_amount = amount;
    return 0;
}

/* ---- records --------------------------------------------------------------------------------- */

/* A payload under construction: the first failure stands until it is appended. */
struct payload {
    struct rlm_buf buf;
    struct rlm_json_writer writer;
    rlm_blobs *blobs;
    int status;
    rlm_error **err;
};

static void begin(struct payload *p, rlm_journal *journal, rlm_error **err)
{
    *p = (struct payload){
        .buf = RLM_BUF(RLM_RECORD_MAX_BYTES), .blobs = rlm_journal_blobs(journal), .err = err};
    p->writer.buf = &p->buf;
    rlm_json_begin(&p->writer, '{');
}

static void add_text(struct payload *p, const char *key, rlm_str text)
{
    if (text.len && p->status == 0) {
        rlm_json_key(&p->writer, key);
        p->status = rlm_record_put_text(&p->writer, p->blobs, text, p->err);
    }
}

static void add_json(struct payload *p, const char *key, rlm_str json)
{
    if (json.len && p->status == 0) {
        rlm_json_key(&p->writer, key);
        p->status = rlm_record_put_json(&p->writer, p->blobs, json, p->err);
    }
}

static int finish(struct payload *p, rlm_journal *journal, enum rlm_record_kind kind)
{
    rlm_json_end(&p->writer, '}');
    int r = p->status;
    if (r == 0) {
        r = rlm_buf_check(&p->buf, p->err);
    }
    if (r == 0) {
        r = rlm_journal_append(journal, kind, rlm_buf_str(&p->buf), p->err);
    }
    rlm_buf_deinit(&p->buf);
    return r;
}

static bool is_none(const struct rlm_usage *usage)
{
    static const struct rlm_usage none;
    return memcmp(usage, &none, sizeof none) == 0;
}

void rlm_record_put_usage(struct rlm_json_writer *w, const struct rlm_usage *usage)
{
    rlm_json_member_int(w, "calls", usage->calls);
    rlm_json_member_int(w, "input_tokens", usage->input_tokens);
    rlm_json_member_int(w, "cached_tokens", usage->cached_tokens);
    rlm_json_member_int(w, "output_tokens", usage->output_tokens);
    rlm_json_member_int(w, "cost_nano", usage->cost_nano);
    rlm_json_member_int(w, "estimated", usage->estimated);
}

void rlm_record_put_launch(struct rlm_json_writer *w, const struct rlm_node *node)
{
    if (node->n_agents) {
        rlm_json_key(w, "agents");
        rlm_json_begin(w, '[');
        for (size_t i = 0; i < node->n_agents; i++) {
            rlm_json_put_text(w, node->agents[i]);
        }
        rlm_json_end(w, ']');
    }
    if (node->call_id) {
        rlm_json_member_int(w, "call_id", node->call_id);
    }
}

static void add_node(struct payload *p, const struct rlm_node *node)
{
    struct rlm_json_writer *w = &p->writer;
    rlm_json_member_text(w, "id", node->id);
    rlm_json_member_text(w, "type", rlm_node_type_tag(node->type));
    rlm_json_member_int(w, "t", node->time_us);
    add_text(p, "content", node->content);
    add_text(p, "code", node->code);
    if (node->output.len && rlm_str_eq(node->output, node->content)) {
        rlm_json_member_bool(w, "output", true);
    } else {
        add_text(p, "output", node->output);
    }
    add_text(p, "error", node->error);
    add_text(p, "result", node->result);
    add_text(p, "reason", node->reason);
    add_text(p, "model", node->model);
    if (!is_none(&node->usage)) {
        rlm_json_key(w, "usage");
        rlm_json_begin(w, '{');
        rlm_record_put_usage(w, &node->usage);
        rlm_json_end(w, '}');
    }
    rlm_record_put_launch(w, node);
    add_json(p, "metadata", node->metadata);
}

/* A record about an agent. */
static void begin_of(struct payload *p, rlm_journal *journal, const rlm_graph *g, rlm_error **err)
{
    begin(p, journal, err);
    rlm_json_member_text(&p->writer, "agent", g->agent_id);
}

int rlm_record_node(rlm_journal *journal,
                    const rlm_graph *g,
                    const struct rlm_node *node,
                    rlm_error **err)
{
    struct payload p;
    if (!journal) {
        return 0;
    }
    begin_of(&p, journal, g, err);
    add_node(&p, node);
    return finish(&p, journal, RLM_RECORD_NODE);
}

static void add_start(struct payload *p, const rlm_graph *g)
{
    add_text(p, "query", g->query);
    add_json(p, "inputs", g->inputs);
    add_text(p, "model", g->model);
    add_json(p, "output_schema", g->output_schema);
}

int rlm_record_child(rlm_journal *journal, const rlm_graph *child, rlm_error **err)
{
    struct payload p;
    if (!journal) {
        return 0;
    }
    begin(&p, journal, err);
    rlm_json_member_text(&p.writer, "parent", child->parent->agent_id);
    rlm_json_member_text(&p.writer, "name", child->name);
    rlm_json_member_int(&p.writer, "call", child->launch);
    rlm_json_member_int(&p.writer, "part", child->launch_part);
    add_start(&p, child);
    return finish(&p, journal, RLM_RECORD_CHILD);
}

/* ---- edits ----------------------------------------------------------------------------------- */

static const int64_t NO_PLACE = -1;

/* EDIT, up to the members that this edit alone has. False: there is no journal to write it to. */
static bool begin_edit(struct payload *p,
                       rlm_journal *journal,
                       const rlm_graph *g,
                       const char *edit,
                       int64_t index,
                       rlm_error **err)
{
    if (!journal) {
        return false;
    }
    begin_of(p, journal, g, err);
    rlm_json_member_text(&p->writer, "edit", edit);
    if (index != NO_PLACE) {
        rlm_json_member_int(&p->writer, "index", index);
    }
    return true;
}

static int finish_edit(struct payload *p, rlm_journal *journal)
{
    return finish(p, journal, RLM_RECORD_EDIT);
}

int rlm_record_reopen(rlm_journal *journal, const rlm_graph *g, rlm_error **err)
{
    struct payload p;
    return begin_edit(&p, journal, g, "reopen", NO_PLACE, err) ? finish_edit(&p, journal) : 0;
}

int rlm_record_edit_node(rlm_journal *journal,
                         const rlm_graph *g,
                         const char *edit,
                         const struct rlm_node *node,
                         rlm_error **err)
{
    struct payload p;
    if (!begin_edit(&p, journal, g, edit, node->seq, err)) {
        return 0;
    }
    add_node(&p, node);
    return finish_edit(&p, journal);
}

int rlm_record_edit_remove(rlm_journal *journal,
                           const rlm_graph *g,
                           const struct rlm_node *node,
                           rlm_error **err)
{
    struct payload p;
    return begin_edit(&p, journal, g, "remove", node->seq, err) ? finish_edit(&p, journal) : 0;
}

int rlm_record_edit_rewind(rlm_journal *journal,
                           const rlm_graph *g,
                           size_t index,
                           int64_t cut,
                           rlm_graph *const *children,
                           size_t n_children,
                           rlm_error **err)
{
    struct payload p;
    if (!begin_edit(&p, journal, g, "rewind", (int64_t)index, err)) {
        return 0;
    }
    rlm_json_member_int(&p.writer, "cut", cut);
    rlm_json_key(&p.writer, "children");
    rlm_json_begin(&p.writer, '[');
    for (size_t i = 0; i < n_children; i++) {
        rlm_json_put_text(&p.writer, children[i]->agent_id);
    }
    rlm_json_end(&p.writer, ']');
    return finish_edit(&p, journal);
}

int rlm_record_edit_remove_child(rlm_journal *journal, const rlm_graph *child, rlm_error **err)
{
    struct payload p;
    if (!begin_edit(&p, journal, child->parent, "remove_child", NO_PLACE, err)) {
        return 0;
    }
    rlm_json_member_text(&p.writer, "child", child->agent_id);
    return finish_edit(&p, journal);
}

int rlm_record_edit_fork(rlm_journal *journal,
                         const rlm_graph *root,
                         const char *graph_id,
                         rlm_error **err)
{
    struct payload p;
    if (!begin_edit(&p, journal, root, "fork", NO_PLACE, err)) {
        return 0;
    }
    rlm_json_member_text(&p.writer, "graph_id", graph_id);
    rlm_json_member_text(&p.writer, "of", root->graph_id);
    return finish_edit(&p, journal);
}

/* ---- the rest -------------------------------------------------------------------------------- */

int rlm_record_forgotten(rlm_journal *journal,
                         const rlm_graph *g,
                         const struct rlm_node *node,
                         rlm_error **err)
{
    struct payload p;
    if (!journal || node->type != RLM_LLM_OUTPUT || !node->call_id) {
        return 0;
    }
    begin_of(&p, journal, g, err);
    rlm_json_member_int(&p.writer, "ask", node->call_id);
    return finish(&p, journal, RLM_RECORD_SETTLE);
}

int rlm_record_run(rlm_journal *journal,
                   const rlm_graph *root,
                   rlm_str options_json,
                   rlm_error **err)
{
    struct payload p;
    if (!journal) {
        return 0;
    }
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    const rlm_json *options;
    if (!a) {
        return rlm_error_nomem(err);
    }
    int r = options_json.len ? rlm_json_parse(a, options_json, &options, err) : 0;
    if (r == 0 && is_too_deep(options_json)) {
        r = rlm_error_set(err, RLM_E_LIMIT, "nested deeper than %d", MAX_DEPTH_OF_VALUE);
    }
    if (r < 0) {
        return rlm_error_wrap(err, r, "the options of a run");
    }
    begin(&p, journal, err);
    rlm_json_member_int(&p.writer, "format", RLM_JOURNAL_VERSION);
    rlm_json_member_text(&p.writer, "version", RLM_VERSION);
    rlm_json_member_int(&p.writer, "t", rlm_wall_us());
    rlm_json_member_text(&p.writer, "graph_id", root->graph_id);
    rlm_json_member_text(&p.writer, "agent", root->agent_id);
    add_start(&p, root);
    rlm_json_member_raw(&p.writer, "options", options_json.len ? options_json : RLM_STR("{}"));
    return finish(&p, journal, RLM_RECORD_RUN);
}
