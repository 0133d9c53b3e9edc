/* What the model is told where cells do not run again: which variables are gone, and of a cell that was
 * interrupted. */
#include "flow/call.h"
#include "flow/restore.h"

#include <stdlib.h>

enum { NAMES_SHOWN = 60, TEXT_MAX = 64 * 1024 * 1024 };

void rlm_restore_tell(struct rlm_agent *agent, rlm_str text)
{
    rlm_auto_buf struct rlm_buf both = RLM_BUF(TEXT_MAX);
    rlm_error *err = NULL;
    if (agent->lost) {
        rlm_buf_addf(&both, "%s ", agent->lost);
    }
    rlm_buf_add_str(&both, text);
    if (rlm_buf_check(&both, &err) < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    free(agent->lost);
    agent->lost = rlm_buf_take(&both);
}

/* ---- what is gone ---------------------------------------------------------------------------- */

/* Adds or removes the names that a list of a cell's metadata gives. */
static bool note_names(struct rlm_map *names, const rlm_json *list, bool bound)
{
    bool ok = true;
    for (uint32_t i = 0; ok && rlm_json_is(list, RLM_JSON_ARRAY) && i < list->count; i++) {
        rlm_str name = rlm_json_text(rlm_json_at(list, i), RLM_STR(""));
        if (bound) {
            ok = rlm_map_set(names, name, names) == 0;
        } else {
            rlm_map_remove(names, name);
        }
    }
    return ok;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names that these cells left bound, sorted, as "a, b, c". */
static int
add_names(struct rlm_past_cell *const *cells, size_t n_cells, struct rlm_buf *out, rlm_error **err)
{
    struct rlm_map names = {0};
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    bool ok = arena != NULL;
    for (size_t i = 0; ok && i < n_cells; i++) {
        const rlm_json *metadata;
        if (cells[i]->end && cells[i]->end->metadata.len &&
            rlm_json_parse(arena, cells[i]->end->metadata, &metadata, NULL) == 0) {
            ok = note_names(&names, rlm_json_get(metadata, "unbound"), false) &&
                 note_names(&names, rlm_json_get(metadata, "bound"), true);
        }
    }
    RLM_VEC(char *) list = {0};
    size_t pos = 0;
    rlm_str name;
    void *value;
    while (ok && rlm_map_next(&names, &pos, &name, &value)) {
        char **slot = rlm_vec_push(&list);
        ok = slot && (*slot = (char *)(uintptr_t)name.ptr);
    }
    if (list.len) {
        qsort(list.items, list.len, sizeof *list.items, by_text);
    }
    for (size_t i = 0; i < list.len && i < NAMES_SHOWN; i++) {
        rlm_buf_adds(out, i ? ", " : "");
        rlm_buf_adds(out, list.items[i]);
    }
    if (list.len > NAMES_SHOWN) {
        rlm_buf_addf(out, " and %zu more", list.len - NAMES_SHOWN);
    }
    free(list.items);
    rlm_map_deinit(&names);
    return ok ? rlm_buf_check(out, err) : rlm_error_nomem(err);
}

void rlm_restore_put_gone(struct rlm_past_cell *const *cells,
                          size_t n_cells,
                          struct rlm_buf *out,
                          rlm_error **err)
{
    rlm_auto_buf struct rlm_buf names = RLM_BUF(TEXT_MAX);
    if (add_names(cells, n_cells, &names, err) == 0 && names.len) {
        rlm_buf_adds(out, out->len ? " " : "");
        rlm_buf_adds(out, "These variables are gone: ");
        rlm_buf_add_str(out, rlm_buf_str(&names));
        rlm_buf_adds(out, ".");
    }
}

/* ---- a cell that was interrupted ------------------------------------------------------------- */

/* Whether the cell launched this child. */
static bool is_of_cell(const rlm_graph *child, const struct rlm_past_cell *cell)
{
    for (size_t i = 0; i < cell->calls.len; i++) {
        if (child->launch && child->launch == cell->calls.items[i]->first_id) {
            return true;
        }
    }
    return false;
}

/* The results of the cell's children as the JSON of RECOVERED, and a line on each. */
static int recover(struct rlm_agent *agent,
                   const struct rlm_past_cell *cell,
                   struct rlm_buf *lines,
                   rlm_error **err)
{
    rlm_auto_buf struct rlm_buf json = RLM_BUF(TEXT_MAX);
    struct rlm_json_writer w = {.buf = &json};
    size_t n = 0;
    rlm_json_begin(&w, '{');
    for (size_t i = 0; i < agent->graph->children.len; i++) {
        rlm_graph *g = agent->graph->children.items[i];
        struct rlm_agent *child = rlm_map_get(&agent->run->agents, rlm_str_of(g->agent_id));
        if (!child || !is_of_cell(g, cell)) {
            continue;
        }
        rlm_autofree char *value = rlm_child_value(child, err);
        if (!value) {
            return rlm_error_nomem(err);
        }
        rlm_json_member_raw(&w, g->name, rlm_str_of(value));
        rlm_buf_addf(lines, "%s%s (%s)", n++ ? ", " : "", g->name, rlm_graph_reason(g).ptr);
    }
    rlm_json_end(&w, '}');
    int r = rlm_buf_check(&json, err);
    if (r == 0 && n) {
        free(agent->recovered);
        agent->recovered = rlm_buf_take(&json);
    }
    return r;
}

bool rlm_interrupted_close(struct rlm_agent *agent)
{
    const rlm_graph *g = agent->graph;
    for (size_t i = agent->interrupted->action; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        bool open = node->type == RLM_SUPERVISING_OUTPUT;
        for (size_t k = i + 1; open && k < g->nodes.len; k++) {
            const struct rlm_node *later = g->nodes.items[k];
            open = !(later->type == RLM_RESUME_ACTION && later->call_id == node->call_id);
        }
        struct rlm_node resume = {
            .type = RLM_RESUME_ACTION,
            .agents = node->agents,
            .n_agents = node->n_agents,
            .call_id = node->call_id,
        };
        if (open && !rlm_agent_append(agent, &resume)) {
            return false;
        }
    }
    return true;
}

static void observe_interrupted(struct rlm_agent *agent)
{
    struct rlm_past_cell *cell = agent->interrupted;
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    rlm_auto_buf struct rlm_buf lines = RLM_BUF(TEXT_MAX);
    rlm_error *err = NULL;
    rlm_buf_adds(&text,
                 "The run was stopped while this code was running, and goes on now. The code "
                 "was not run again: it may have run in part, and what it wrote to files or "
                 "sent elsewhere may be there.");
    if (agent->lost) {
        rlm_buf_adds(&text, " ");
        rlm_buf_adds(&text, agent->lost);
        free(rlm_steal(&agent->lost));
    }
    int r = recover(agent, cell, &lines, &err);
    if (r == 0 && agent->recovered) {
        rlm_buf_adds(&text, " RECOVERED holds what its sub-agents answered, by name: ");
        rlm_buf_add_str(&text, rlm_buf_str(&lines));
        rlm_buf_adds(&text, ".");
    }
    if (r == 0) {
        r = rlm_buf_check(&text, &err);
    }
    if (r < 0) {
        rlm_run_fail(agent->run, err);
        return;
    }
    struct rlm_node node = {
        .type = RLM_ERROR_OUTPUT,
        .content = rlm_buf_str(&text),
        .error = RLM_STR("interrupted"),
    };
    if (rlm_interrupted_close(agent) && rlm_agent_append(agent, &node)) {
        agent->interrupted = NULL;
        cell->broken = true;
        rlm_agent_set_state(agent, RLM_AGENT_READY);
        rlm_run_schedule(agent);
    }
}

void rlm_interrupted_step(struct rlm_agent *agent)
{
    for (size_t i = 0; i < agent->graph->children.len; i++) {
        const rlm_graph *g = agent->graph->children.items[i];
        const struct rlm_agent *child = rlm_map_get(&agent->run->agents, rlm_str_of(g->agent_id));
        if (child && !rlm_agent_finished(child) && is_of_cell(g, agent->interrupted)) {
            rlm_agent_release_slot(agent); /* they may need it */
            rlm_agent_set_state(agent, RLM_AGENT_WAITING);
            return;
        }
    }
    observe_interrupted(agent);
}
