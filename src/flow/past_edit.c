#include "flow/past_edit.h"

#include "graph/journal.h"

#include <stdlib.h>

static int add(struct rlm_undone_list *undone,
               rlm_str agent_id,
               bool tree,
               int64_t from,
               int64_t end,
               rlm_error **err)
{
    struct rlm_undone *u = rlm_vec_push(&undone->list);
    rlm_str id = rlm_arena_copy(undone->arena, agent_id);
    if (!u || !id.ptr) {
        return rlm_error_nomem(err);
    }
    *u = (struct rlm_undone){.agent_id = id, .tree = tree, .from = from, .end = end};
    return 0;
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct rlm_undone_list *undone = arg;
    const rlm_json *record;
    if (kind != RLM_RECORD_EDIT) {
        return 0;
    }
    rlm_auto_arena rlm_arena *scratch = rlm_arena_new(0);
    int r = scratch ? rlm_json_parse(scratch, payload, &record, err) : rlm_error_nomem(err);
    if (r < 0) {
        return r;
    }
    rlm_str edit = rlm_json_text(rlm_json_get(record, "edit"), RLM_STR(""));
    rlm_str agent_id = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR(""));
    if (rlm_str_is(edit, "remove_child")) {
        rlm_str child = rlm_json_text(rlm_json_get(record, "child"), RLM_STR(""));
        return add(undone, child, true, 0, offset, err);
    }
    if (!rlm_str_is(edit, "rewind")) {
        return 0;
    }
    const rlm_json *children = rlm_json_get(record, "children");
    int64_t cut = rlm_json_int(rlm_json_get(record, "cut"), 0);
    r = add(undone, agent_id, false, cut, offset, err);
    for (uint32_t i = 0; r == 0 && rlm_json_is(children, RLM_JSON_ARRAY) && i < children->count;
         i++) {
        rlm_str child = rlm_json_text(rlm_json_at(children, i), RLM_STR(""));
        r = add(undone, child, true, 0, offset, err);
    }
    return r;
}

int rlm_undone_read(const char *path, struct rlm_undone_list *undone, rlm_error **err)
{
    undone->arena = rlm_arena_new(0);
    return undone->arena ? rlm_journal_read(path, on_record, undone, NULL, err)
                         : rlm_error_nomem(err);
}

bool rlm_undone_covers(const struct rlm_undone *u, rlm_str agent_id, int64_t offset)
{
    bool same =
        u->tree ? rlm_agent_is_within(agent_id, u->agent_id) : rlm_str_eq(agent_id, u->agent_id);
    return same && offset > u->from && offset < u->end;
}

bool rlm_undone_has(const struct rlm_undone_list *undone, rlm_str agent_id, int64_t offset)
{
    for (size_t i = 0; i < undone->list.len; i++) {
        if (rlm_undone_covers(&undone->list.items[i], agent_id, offset)) {
            return true;
        }
    }
    return false;
}

void rlm_undone_deinit(struct rlm_undone_list *undone)
{
    free(undone->list.items);
    rlm_arena_free(undone->arena);
}

void rlm_past_edit(struct rlm_past *past, const rlm_json *record)
{
    rlm_str edit = rlm_json_text(rlm_json_get(record, "edit"), RLM_STR(""));
    int64_t index = rlm_json_int(rlm_json_get(record, "index"), 0);
    bool insert = rlm_str_is(edit, "insert"), remove = rlm_str_is(edit, "remove");
    for (size_t i = 0; (insert || remove) && i < past->cells.len;) {
        struct rlm_past_cell *cell = past->cells.items[i];
        if (remove && cell->action == index) {
            rlm_past_cell_deinit(cell);
            rlm_vec_remove(&past->cells, i);
            continue;
        }
        if (insert && cell->action >= index) {
            cell->action++;
        } else if (remove && cell->action > index) {
            cell->action--;
        }
        i++;
    }
}
