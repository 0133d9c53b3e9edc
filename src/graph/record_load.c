/* From records to a graph. One arena serves record after record; what a node keeps is copied into the
 * graph's own. */
#include "graph/record.h"

#include "base/alloc.h"
#include "graph/edit.h"
#include "graph/journal_scan.h"
#include "graph/saved.h"

#include <inttypes.h>
#include <stdio.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { STOPPED = 1 }; /* a record makes no sense and the caller can do with what stands before it */

struct loader {
    rlm_graph *root;
    rlm_blobs *blobs;
    rlm_arena *scratch; /* of one record */
    int64_t offset;     /* where that stands */
    rlm_journal_record other;
    void *arg;
    /* For looking at a run: what is wrong is noted, not an error. */
    bool lenient;
    uint64_t n_missing; /* texts without their blob */
    rlm_error *first_missing;
    rlm_error *fault;
    int64_t fault_offset;
};

/* ---- members --------------------------------------------------------------------------------- */

/* Short texts, the common case, are used where they stand: the graph copies them. */
static int
take_text(struct loader *l, const rlm_json *value, bool is_json, rlm_str *ret_text, rlm_error **err)
{
    if (value && value->type == RLM_JSON_STRING) {
        *ret_text = value->text;
        return 0;
    }
    rlm_error *error = NULL;
    int r = is_json ? rlm_record_get_json(value, l->blobs, l->scratch, ret_text, &error)
                    : rlm_record_get_text(value, l->blobs, l->scratch, ret_text, &error);
    if (r == 0) {
        return 0;
    }
    if (l->lenient && (r == RLM_E_NOT_FOUND || r == RLM_E_CORRUPT)) {
        *ret_text = rlm_arena_printf(l->scratch, "[%s]", rlm_error_message(error));
        if (l->n_missing++ == 0) {
            l->first_missing = rlm_steal(&error);
        }
        rlm_error_free(error);
        return ret_text->ptr ? 0 : rlm_error_nomem(err);
    }
    rlm_error_set(err, r, "%s", rlm_error_message(error));
    rlm_error_free(error);
    return r;
}

static int take_usage(const rlm_json *u, struct rlm_usage *ret_usage, rlm_error **err)
{
    struct rlm_usage usage = {0};
    const struct {
        const char *key;
        int64_t *amount;
    } amounts[] = {
        {"calls", &usage.calls},
        {"input_tokens", &usage.input_tokens},
        {"cached_tokens", &usage.cached_tokens},
        {"output_tokens", &usage.output_tokens},
        {"cost_nano", &usage.cost_nano},
        {"estimated", &usage.estimated},
    };
    int r = 0;
    for (size_t i = 0; r == 0 && i < COUNT_OF(amounts); i++) {
        r = rlm_record_get_amount(u, amounts[i].key, amounts[i].amount, err);
    }
    *ret_usage = usage;
    return r;
}

static int
take_agents(struct loader *l, const rlm_json *list, struct rlm_node *node, rlm_error **err)
{
    if (!rlm_json_is(list, RLM_JSON_ARRAY) || list->count == 0) {
        return 0;
    }
    const char **ids = rlm_arena_alloc(l->scratch, list->count * sizeof *ids);
    if (!ids) {
        return rlm_error_nomem(err);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        rlm_str id = rlm_json_text(&list->items[i], RLM_STR(""));
        if (!(ids[i] = rlm_arena_copy(l->scratch, id).ptr)) {
            return rlm_error_nomem(err);
        }
    }
    node->agents = ids;
    node->n_agents = list->count;
    return 0;
}

static const struct field {
    const char *key;
    size_t offset;
    enum { TEXT, JSON, TEXT_OR_TRUE } form; /* true: taken care of elsewhere */
} node_fields[] = {
    {"content", offsetof(struct rlm_node, content), TEXT},
    {"code", offsetof(struct rlm_node, code), TEXT},
    {"output", offsetof(struct rlm_node, output), TEXT_OR_TRUE},
    {"error", offsetof(struct rlm_node, error), TEXT},
    {"result", offsetof(struct rlm_node, result), TEXT},
    {"reason", offsetof(struct rlm_node, reason), TEXT},
    {"model", offsetof(struct rlm_node, model), TEXT},
    {"metadata", offsetof(struct rlm_node, metadata), JSON},
};

static const struct field start_fields[] = {
    {"query", offsetof(struct rlm_graph_options, query), TEXT},
    {"inputs", offsetof(struct rlm_graph_options, inputs), JSON},
    {"model", offsetof(struct rlm_graph_options, model), TEXT},
    {"output_schema", offsetof(struct rlm_graph_options, output_schema), JSON},
};

/* Takes those members of `object` that are texts of `to`. */
static int take_fields(struct loader *l,
                       const rlm_json *object,
                       const struct field *fields,
                       size_t n_fields,
                       void *to,
                       rlm_error **err)
{
    for (uint32_t i = 0; i < object->count; i++) {
        const struct rlm_json_member *m = &object->members[i];
        for (size_t f = 0; f < n_fields; f++) {
            if (rlm_str_is(m->key, fields[f].key)) {
                rlm_str *text = (rlm_str *)((char *)to + fields[f].offset);
                bool skip = fields[f].form == TEXT_OR_TRUE && m->value.type == RLM_JSON_TRUE;
                int r = skip ? 0 : take_text(l, &m->value, fields[f].form == JSON, text, err);
                if (r < 0) {
                    return rlm_error_wrap(err, r, "\"%s\"", fields[f].key);
                }
                break;
            }
        }
    }
    return 0;
}

static rlm_graph *find_agent(struct loader *l, const rlm_json *record, const char *key)
{
    rlm_str id = rlm_json_text(rlm_json_get(record, key), RLM_STR(""));
    return rlm_map_get(&l->root->agents, id);
}

static int no_agent(const rlm_json *record, const char *key, rlm_error **err)
{
    rlm_str id = rlm_json_text(rlm_json_get(record, key), RLM_STR(""));
    int shown = id.len > 100 ? 100 : (int)id.len;
    return rlm_error_set(err, RLM_E_CORRUPT, "there is no agent \"%.*s\"", shown, id.ptr);
}

/* ---- records --------------------------------------------------------------------------------- */

/* The node that a record has; its texts are in the scratch arena. */
static int
take_node(struct loader *l, const rlm_json *record, struct rlm_node *ret_node, rlm_error **err)
{
    struct rlm_node node = {0};
    rlm_str tag = rlm_json_text(rlm_json_get(record, "type"), RLM_STR(""));
    rlm_str id = rlm_json_text(rlm_json_get(record, "id"), RLM_STR(""));
    int type = rlm_node_type_of(tag);
    if (type < 0) {
        int shown = tag.len > 40 ? 40 : (int)tag.len;
        return rlm_error_set(err, RLM_E_VERSION,
                             "a node of the unknown type \"%.*s\": a newer rlmflow wrote it", shown,
                             tag.ptr);
    }
    node.type = (enum rlm_node_type)type;
    snprintf(node.id, sizeof node.id, "%.*s", RLM_FMT(id));
    node.time_us = rlm_json_int(rlm_json_get(record, "t"), 0);
    node.call_id = rlm_json_int(rlm_json_get(record, "call_id"), 0);
    int r = take_usage(rlm_json_get(record, "usage"), &node.usage, err);
    if (r < 0 || (r = take_fields(l, record, node_fields, COUNT_OF(node_fields), &node, err)) < 0 ||
        (r = take_agents(l, rlm_json_get(record, "agents"), &node, err)) < 0) {
        return r;
    }
    if (rlm_json_is(rlm_json_get(record, "output"), RLM_JSON_TRUE)) {
        node.output = node.content;
    }
    *ret_node = node;
    return 0;
}

static int load_node(struct loader *l, const rlm_json *record, rlm_error **err)
{
    struct rlm_node node;
    const struct rlm_node *kept;
    rlm_graph *g = find_agent(l, record, "agent");
    if (!g) {
        return no_agent(record, "agent", err);
    }
    int r = take_node(l, record, &node, err);
    if (r == 0 && (r = rlm_graph_append(g, &node, &kept, err)) == 0) {
        rlm_entry_of(kept)->offset = l->offset;
    }
    return r;
}

static int load_child(struct loader *l, const rlm_json *record, rlm_error **err)
{
    struct rlm_graph_options options = {0};
    rlm_graph *child, *parent = find_agent(l, record, "parent");
    if (!parent) {
        return no_agent(record, "parent", err);
    }
    rlm_str name = rlm_json_text(rlm_json_get(record, "name"), RLM_STR(""));
    name = rlm_arena_copy(l->scratch, name);
    if (!name.ptr) {
        return rlm_error_nomem(err);
    }
    options.launch = rlm_json_int(rlm_json_get(record, "call"), 0);
    options.launch_part = rlm_json_int(rlm_json_get(record, "part"), 0);
    int r = take_fields(l, record, start_fields, COUNT_OF(start_fields), &options, err);
    return r < 0 ? r : rlm_graph_add_child(parent, name.ptr, &options, &child, err);
}

static void take_graph_id(rlm_graph *root, const rlm_json *record)
{
    rlm_str id = rlm_json_text(rlm_json_get(record, "graph_id"), RLM_STR(""));
    if (id.len && id.len < sizeof root->graph_id) {
        memcpy(root->graph_id, id.ptr, id.len);
        root->graph_id[id.len] = '\0';
    }
}

static int load_run(struct loader *l, const rlm_json *record, rlm_error **err)
{
    struct rlm_graph_options options = {0};
    int64_t format = rlm_json_int(rlm_json_get(record, "format"), RLM_JOURNAL_VERSION);
    if (format > RLM_JOURNAL_VERSION) {
        return rlm_error_set(err, RLM_E_VERSION,
                             "the run has format version %" PRId64
                             ", this program reads up to %d: use a "
                             "newer rlmflow",
                             format, RLM_JOURNAL_VERSION);
    }
    rlm_str agent = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR("root"));
    options.agent_id = rlm_arena_copy(l->scratch, agent).ptr;
    if (!options.agent_id) {
        return rlm_error_nomem(err);
    }
    int r = take_fields(l, record, start_fields, COUNT_OF(start_fields), &options, err);
    if (r < 0 || (r = rlm_graph_new(&options, &l->root, err)) < 0) {
        return r;
    }
    take_graph_id(l->root, record);
    return 0;
}

static int bad_edit(rlm_error **err)
{
    return rlm_error_set(err, RLM_E_CORRUPT, "an edit of what is not there");
}

static int
load_rewind(struct loader *l, rlm_graph *g, const rlm_json *record, int64_t index, rlm_error **err)
{
    const rlm_json *ids = rlm_json_get(record, "children");
    size_t n = rlm_json_is(ids, RLM_JSON_ARRAY) ? ids->count : 0;
    rlm_graph **children = rlm_arena_alloc(l->scratch, (n + 1) * sizeof(rlm_graph *));
    if (!children) {
        return rlm_error_nomem(err);
    }
    for (size_t i = 0; i < n; i++) {
        rlm_str id = rlm_json_text(rlm_json_at(ids, i), RLM_STR(""));
        children[i] = rlm_map_get(&l->root->agents, id);
        for (size_t k = 0; children[i] && k < i; k++) {
            children[i] = children[k] == children[i] ? NULL : children[i]; /* named twice */
        }
        if (!children[i] || children[i]->parent != g) {
            return bad_edit(err);
        }
    }
    return rlm_edit_truncate(g, (size_t)index, children, n, err);
}

static int
load_remove_child(struct loader *l, rlm_graph *g, const rlm_json *record, rlm_error **err)
{
    rlm_graph *child = find_agent(l, record, "child");
    return child && child->parent == g ? rlm_graph_remove_child(child, err) : bad_edit(err);
}

static int
load_put(struct loader *l, rlm_graph *g, const rlm_json *record, int64_t index, rlm_error **err)
{
    struct rlm_node node;
    bool replace = rlm_str_is(rlm_json_text(rlm_json_get(record, "edit"), RLM_STR("")), "replace");
    int r = take_node(l, record, &node, err);
    if (r < 0) {
        return r;
    }
    if (replace && (size_t)index == g->nodes.len) {
        return bad_edit(err);
    }
    return replace ? rlm_edit_replace(g, (size_t)index, &node, NULL, err)
                   : rlm_edit_insert(g, (size_t)index, &node, NULL, err);
}

static int load_edit(struct loader *l, const rlm_json *record, rlm_error **err)
{
    rlm_graph *g = find_agent(l, record, "agent");
    rlm_str edit = rlm_json_text(rlm_json_get(record, "edit"), RLM_STR(""));
    int64_t index = rlm_json_int(rlm_json_get(record, "index"), 0);
    if (!g) {
        return no_agent(record, "agent", err);
    }
    if (index < 0 || (size_t)index > g->nodes.len) {
        return bad_edit(err);
    }
    if (rlm_str_is(edit, "reopen")) {
        return rlm_graph_reopen(g, err);
    }
    if (rlm_str_is(edit, "insert") || rlm_str_is(edit, "replace")) {
        return load_put(l, g, record, index, err);
    }
    if (rlm_str_is(edit, "remove")) {
        return (size_t)index < g->nodes.len ? rlm_edit_remove(g, (size_t)index, err)
                                            : bad_edit(err);
    }
    if (rlm_str_is(edit, "rewind")) {
        return load_rewind(l, g, record, index, err);
    }
    if (rlm_str_is(edit, "remove_child")) {
        return load_remove_child(l, g, record, err);
    }
    if (rlm_str_is(edit, "fork")) {
        take_graph_id(l->root, record);
        return 0;
    }
    int shown = edit.len > 40 ? 40 : (int)edit.len;
    return rlm_error_set(err, RLM_E_VERSION,
                         "an edit of the unknown kind \"%.*s\": a newer rlmflow wrote it", shown,
                         edit.ptr);
}

static int load_settle(struct loader *l, const rlm_json *record, rlm_error **err)
{
    struct rlm_usage usage;
    rlm_graph *g = find_agent(l, record, "agent");
    int r = take_usage(record, &usage, err);
    if (r == 0 && g) {
        rlm_graph_add_usage(g, &usage);
    }
    return r;
}

static int
load_record(struct loader *l, enum rlm_record_kind kind, rlm_str payload, rlm_error **err)
{
    const rlm_json *record;
    rlm_arena_reset(l->scratch);
    int r = rlm_json_parse(l->scratch, payload, &record, err);
    if (r < 0) {
        return r;
    }
    if (record->type != RLM_JSON_OBJECT) {
        return rlm_error_set(err, RLM_E_CORRUPT, "it is not a JSON object");
    }
    if (kind == RLM_RECORD_RUN) {
        return l->root ? 0 : load_run(l, record, err); /* another drive of the same graph */
    }
    if (!l->root) {
        return rlm_error_set(err, RLM_E_CORRUPT, "it stands before the record that starts the run");
    }
    if (kind == RLM_RECORD_NODE) {
        return load_node(l, record, err);
    }
    if (kind == RLM_RECORD_CHILD) {
        return load_child(l, record, err);
    }
    if (kind == RLM_RECORD_EDIT) {
        return load_edit(l, record, err);
    }
    return load_settle(l, record, err);
}

static bool is_ours(enum rlm_record_kind kind)
{
    return kind == RLM_RECORD_RUN || kind == RLM_RECORD_NODE || kind == RLM_RECORD_CHILD ||
           kind == RLM_RECORD_SETTLE || kind == RLM_RECORD_EDIT;
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct loader *l = arg;
    rlm_error *error = NULL;
    l->offset = offset;
    int r = is_ours(kind) ? load_record(l, kind, payload, &error) : 0;
    if (r < 0 && l->lenient && l->root && r != RLM_E_NOMEM && r != RLM_E_IO) {
        l->fault = error;
        l->fault_offset = offset;
        return STOPPED;
    }
    if (r < 0) {
        l->fault_offset = r == RLM_E_NOMEM ? -1 : offset;
        /* Damage inside a record whose CRC is good is damage all the same. */
        bool own_code =
            r == RLM_E_NOMEM || r == RLM_E_IO || r == RLM_E_VERSION || r == RLM_E_NOT_FOUND;
        r = rlm_error_set(err, own_code ? r : RLM_E_CORRUPT, "the record at byte %" PRId64 ": %s",
                          offset, rlm_error_message(error));
        rlm_error_free(error);
        return r;
    }
    if (l->other && kind != RLM_RECORD_NODE && kind != RLM_RECORD_CHILD && kind < _RLM_RECORD_MAX) {
        r = l->other(l->arg, kind, offset, payload, err);
        l->fault_offset = r < 0 && r != RLM_E_NOMEM && r != RLM_E_IO ? offset : -1;
        return r;
    }
    return 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int
load(struct loader *l, const char *path, struct rlm_journal_damage *ret_damage, rlm_error **err)
{
    rlm_autofree char *directory = NULL;
    if (asprintf(&directory, "%s/blobs", path) < 0) {
        directory = NULL;
        return rlm_error_nomem(err);
    }
    l->scratch = rlm_arena_new(0);
    if (!l->scratch) {
        return rlm_error_nomem(err);
    }
    l->fault_offset = -1;
    int r = rlm_blobs_open_to_view(directory, &l->blobs, err);
    if (r == 0) {
        r = rlm_journal_read(path, on_record, l, ret_damage, err);
    }
    if (r < 0 && l->fault_offset >= 0 && ret_damage) {
        *ret_damage = (struct rlm_journal_damage){.offset = l->fault_offset};
    }
    if (r == 0 && !l->root) {
        r = rlm_error_set(err, RLM_E_PARSE,
                          "the run %s holds nothing: it ended before its first record was written",
                          path);
    }
    return r;
}

static void deinit(struct loader *l)
{
    rlm_graph_free(l->root);
    rlm_blobs_free(l->blobs);
    rlm_arena_free(l->scratch);
    rlm_error_free(l->first_missing);
    rlm_error_free(l->fault);
}

int rlm_record_load(const char *path,
                    rlm_journal_record other,
                    void *arg,
                    rlm_graph **ret_root,
                    struct rlm_journal_damage *ret_damage,
                    rlm_error **err)
{
    struct loader l = {.other = other, .arg = arg};
    int r = load(&l, path, ret_damage, err);
    if (r == 0) {
        *ret_root = rlm_steal(&l.root);
    }
    deinit(&l);
    return r;
}

static void add_damage(struct rlm_buf *note, const struct rlm_journal_damage *damage)
{
    if (damage->offset < 0) {
        return;
    }
    if (damage->valid_after == 0) {
        rlm_buf_addf(note,
                     "The journal's end is torn: from byte %" PRId64 " on there are %" PRId64
                     " bytes of a record that was not written whole. They are left out.\n",
                     damage->offset, damage->lost_bytes);
        return;
    }
    rlm_buf_addf(note,
                 "The journal is damaged at byte %" PRId64
                 ": what is shown ends there. The %" PRId64 " bytes from there on hold %" PRId64
                 " good record%s more.\n",
                 damage->offset, damage->lost_bytes, damage->valid_after,
                 damage->valid_after == 1 ? "" : "s");
}

static int make_note(const struct loader *l,
                     const struct rlm_journal_damage *damage,
                     char **ret_note,
                     rlm_error **err)
{
    rlm_auto_buf struct rlm_buf note = RLM_BUF(64 * 1024);
    add_damage(&note, damage);
    if (l->fault) {
        rlm_buf_addf(&note,
                     "The record at byte %" PRId64 " cannot be understood (%s): what is shown ends "
                     "there.\n",
                     l->fault_offset, rlm_error_message(l->fault));
    }
    if (l->n_missing) {
        rlm_buf_addf(&note, "%" PRIu64 " large text%s cannot be shown: %s.\n", l->n_missing,
                     l->n_missing == 1 ? "" : "s", rlm_error_message(l->first_missing));
    }
    int r = rlm_buf_check(&note, err);
    if (r < 0) {
        return r;
    }
    char *text = NULL;
    if (note.len) {
        note.ptr[--note.len] = '\0'; /* the last line's end */
        text = rlm_buf_take(&note);
    }
    *ret_note = text;
    return 0;
}

int rlm_graph_open(const char *path, rlm_graph **ret_graph, rlm_error **err)
{
    rlm_journal *journal;
    rlm_graph *root = NULL;
    int r =
        rlm_journal_open(NULL, path, &(struct rlm_journal_options){0}, false, &journal, NULL, err);
    if (r < 0) {
        return r;
    }
    r = rlm_record_load(path, NULL, NULL, &root, NULL, err);
    if (r < 0) {
        rlm_journal_close(journal);
        return r;
    }
    root->journal = journal;
    *ret_graph = root;
    return 0;
}

int rlm_graph_load(const char *path, rlm_graph **ret_graph, char **ret_note, rlm_error **err)
{
    if (rlm_saved_is(path)) {
        return rlm_saved_load(path, ret_graph, ret_note, err);
    }
    struct loader l = {.lenient = true};
    struct rlm_journal_damage damage = {.offset = -1};
    char *note = NULL;
    int r = load(&l, path, &damage, err);
    if (r == STOPPED) {
        r = 0;
    }
    if (r == 0) {
        r = make_note(&l, &damage, &note, err);
    }
    if (r == 0) {
        *ret_graph = rlm_steal(&l.root);
        if (ret_note) {
            *ret_note = rlm_steal(&note);
        }
    }
    free(note);
    deinit(&l);
    return r;
}
