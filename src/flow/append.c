/* What the embedding program puts into the graph of a run that is going on. */
#include "flow/gate.h"
#include "flow/run.h"

enum { METADATA_MAX = 64 * 1024 * 1024 };

static const char BY_PROGRAM[] = "\"by\":\"program\"";

bool rlm_node_is_by_program(const struct rlm_node *node)
{
    return node->metadata.len &&
           memmem(node->metadata.ptr, node->metadata.len, BY_PROGRAM, sizeof BY_PROGRAM - 1);
}

/* The node's metadata with the word of who put it there. */
static int mark(const struct rlm_node *node, struct rlm_buf *out, rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *had = NULL;
    if (!arena) {
        return rlm_error_nomem(err);
    }
    int r = node->metadata.len ? rlm_json_parse(arena, node->metadata, &had, err) : 0;
    if (r < 0) {
        return rlm_error_wrap(err, r, "the node's metadata");
    }
    struct rlm_json_writer w = {.buf = out};
    rlm_json_begin(&w, '{');
    for (size_t i = 0; had && had->type == RLM_JSON_OBJECT && i < had->count; i++) {
        const struct rlm_json_member *m = &had->members[i];
        if (!rlm_str_is(m->key, "by")) {
            rlm_json_key_str(&w, m->key), rlm_json_put(&w, &m->value);
        }
    }
    rlm_json_member_text(&w, "by", "program");
    rlm_json_end(&w, '}');
    return rlm_buf_check(out, err);
}

static int check(const struct rlm_agent *agent, rlm_error **err)
{
    const char *id = agent->graph->agent_id;
    if (rlm_agent_finished(agent)) {
        return rlm_error_set(err, RLM_E_INVAL, "agent %s has ended", id);
    }
    if (agent->cell_open || agent->ask) {
        return rlm_error_set(err, RLM_E_BUSY,
                             "agent %s %s; a node can be appended between its steps", id,
                             agent->cell_open ? "runs code" : "is asking its model");
    }
    if (!agent->gate && !agent->step_gate) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "agent %s waits for no gate: its next step may be under way", id);
    }
    return 0;
}

int rlm_run_append(rlm_run *run,
                   const char *agent_id,
                   const struct rlm_node *node,
                   const struct rlm_node **ret_node,
                   rlm_error **err)
{
    struct rlm_agent *agent = rlm_map_get(&run->agents, rlm_str_of(agent_id));
    if (!agent) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "no agent is named \"%s\"", agent_id);
    }
    rlm_auto_buf struct rlm_buf metadata = RLM_BUF(METADATA_MAX);
    int r = check(agent, err);
    if (r < 0 || (r = mark(node, &metadata, err)) < 0) {
        return r;
    }
    struct rlm_node copy = *node;
    copy.metadata = rlm_buf_str(&metadata);
    if (node->type == RLM_DONE_OUTPUT) {
        copy.reason = node->reason.len ? node->reason : RLM_STR("answered");
        rlm_agent_finish_with(agent, &copy);
    } else if (!rlm_agent_append(agent, &copy)) {
        return rlm_error_set(err, RLM_E_IO, "the run has failed: %s", rlm_run_message(run));
    }
    if (ret_node) {
        *ret_node = rlm_graph_current(agent->graph);
    }
    return 0;
}

bool rlm_run_is_held(const rlm_run *run)
{
    return rlm_gates_hold(run);
}
