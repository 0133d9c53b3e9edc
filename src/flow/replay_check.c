/* What is compared with the recording; the first difference ends the replay. */
#include "flow/observe.h"
#include "flow/replay.h"

enum { TEXT_MAX = 64 * 1024 * 1024 };

void rlm_replay_diverge(struct rlm_agent *agent,
                        const char *what,
                        rlm_str recorded,
                        rlm_str replayed)
{
    struct rlm_replay *r = agent->run->replay;
    if (r->report.diverged) {
        return;
    }
    rlm_buf_adds(&r->what, what);
    rlm_buf_adds(&r->agent_id, agent->graph->agent_id);
    rlm_buf_add_str(&r->recorded, recorded);
    rlm_buf_add_str(&r->replayed, replayed);
    r->report.diverged = true;
    r->report.agent_id = r->agent_id.ptr;
    r->report.turn = agent->graph->turns;
    r->report.cell = agent->cell_open ? agent->cell : 0;
    r->report.what = r->what.ptr;
    r->report.recorded = rlm_buf_str(&r->recorded);
    r->report.replayed = rlm_buf_str(&r->replayed);
    rlm_run_halt(agent->run, "diverged");
}

/* The recording was stopped, or cut off: where it ends is no difference. */
static bool is_unfinished(const struct rlm_agent *agent)
{
    return !rlm_graph_finished(agent->run->replay->past->root);
}

/* ---- nodes and sub-agents -------------------------------------------------------------------- */

static bool same_agents(const struct rlm_node *a, const struct rlm_node *b)
{
    bool same = a->n_agents == b->n_agents;
    for (size_t i = 0; same && i < a->n_agents; i++) {
        same = strcmp(a->agents[i], b->agents[i]) == 0;
    }
    return same;
}

bool rlm_replay_check(struct rlm_agent *agent, const struct rlm_node *node)
{
    const rlm_graph *g = rlm_replay_graph(agent);
    const struct rlm_node *was = g && node->seq < g->nodes.len ? g->nodes.items[node->seq] : NULL;
    if (!was && is_unfinished(agent)) {
        rlm_replay_park(agent);
        return false;
    }
    agent->run->replay->report.nodes++;
    rlm_run_poke(agent->run); /* it may have been the last that is recorded */
    if (!was) {
        rlm_replay_diverge(agent, "a step that was not taken", RLM_STR(""),
                           rlm_str_of(rlm_node_type_tag(node->type)));
        return false;
    }
    if (was->type != node->type) {
        rlm_replay_diverge(agent, "another kind of step", rlm_str_of(rlm_node_type_tag(was->type)),
                           rlm_str_of(rlm_node_type_tag(node->type)));
        return false;
    }
    const struct {
        const char *what;
        rlm_str was, is;
    } texts[] = {
        {"the code that was found in a reply", was->code, node->code},
        {"the text of a step", was->content, node->content},
        {"the kind of an error", was->error, node->error},
        {"the answer", was->result, node->result},
        {"why the agent ended", was->reason, node->reason},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!rlm_str_eq(texts[i].was, texts[i].is)) {
            rlm_replay_diverge(agent, texts[i].what, texts[i].was, texts[i].is);
            return false;
        }
    }
    if (!same_agents(was, node)) {
        rlm_replay_diverge(agent, "which sub-agents were launched", RLM_STR(""), RLM_STR(""));
        return false;
    }
    return true;
}

bool rlm_replay_child(struct rlm_agent *child)
{
    const rlm_graph *g = child->graph, *was = rlm_replay_graph(child);
    if (!was && is_unfinished(child)) {
        rlm_replay_park(child->parent);
        child->parked = true;
        return false;
    }
    if (!was) {
        rlm_replay_diverge(child, "a sub-agent that was not launched", RLM_STR(""), g->query);
    } else if (!rlm_str_eq(was->query, g->query)) {
        rlm_replay_diverge(child, "a sub-agent's task", was->query, g->query);
    } else if (!rlm_str_eq(was->inputs, g->inputs)) {
        rlm_replay_diverge(child, "a sub-agent's inputs", was->inputs, g->inputs);
    } else if (!rlm_str_eq(was->model, g->model)) {
        rlm_replay_diverge(child, "a sub-agent's model", was->model, g->model);
    } else if (!rlm_str_eq(was->output_schema, g->output_schema)) {
        rlm_replay_diverge(child, "a sub-agent's output schema", was->output_schema,
                           g->output_schema);
    }
    return !child->run->replay->report.diverged;
}

/* ---- cells and calls ------------------------------------------------------------------------- */

void rlm_replay_diverge_by_call(struct rlm_agent *agent, const struct rlm_past_call *call)
{
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    rlm_buf_add_str(&text, call->name);
    rlm_buf_add_str(&text, call->args_json);
    rlm_buf_add_str(&text, call->kwargs_json);
    rlm_replay_diverge(agent, "a host call that was made, and is not", rlm_buf_str(&text),
                       RLM_STR(""));
}

void rlm_replay_contradict(struct rlm_agent *agent)
{
    rlm_replay_diverge(agent,
                       "the recording: its records contradict each other, and nothing can follow",
                       RLM_STR(""), RLM_STR(""));
}

/* Whether two JSON texts are the same value. */
static bool is_same_value(rlm_str a, rlm_str b)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    rlm_auto_buf struct rlm_buf x = RLM_BUF(TEXT_MAX), y = RLM_BUF(TEXT_MAX);
    const rlm_json *v, *w;
    if (!arena || rlm_json_parse(arena, a, &v, NULL) < 0 ||
        rlm_json_parse(arena, b, &w, NULL) < 0) {
        return rlm_str_eq(a, b); /* messages of errors */
    }
    rlm_json_canonical(&x, v);
    rlm_json_canonical(&y, w);
    return x.status == 0 && y.status == 0 && rlm_str_eq(rlm_buf_str(&x), rlm_buf_str(&y));
}

void rlm_replay_answered(struct rlm_agent *agent, const struct rlm_call_result *result)
{
    struct rlm_past_cell *cell = agent->again;
    for (size_t i = 0; cell && i < cell->calls.len; i++) {
        const struct rlm_past_call *was = cell->calls.items[i];
        if (was->made_as != result->id || !was->finished) {
            continue;
        }
        const char *type = result->error_type ? result->error_type : "";
        rlm_str is = result->error_type ? result->error_message : result->value_json;
        rlm_str said = was->error_type.len ? was->error_message : was->value_json;
        if (!rlm_str_is(was->error_type, type) || !is_same_value(said, is)) {
            rlm_replay_diverge(agent, "the answer to a host call", said, is);
        }
    }
}

/* What kind of end it was, and what was shown. */
static void put_end(struct rlm_buf *buf, const struct rlm_node *end)
{
    rlm_buf_adds(buf, rlm_node_type_tag(end->type));
    rlm_buf_adds(buf, end->error.len ? ": " : "");
    rlm_buf_add_str(buf, end->error);
    rlm_buf_adds(buf, "\n");
    rlm_buf_add_str(buf, end->content);
}

static void
diverge_by_end(struct rlm_agent *agent, const struct rlm_node *was, const struct rlm_node *is)
{
    rlm_auto_buf struct rlm_buf recorded = RLM_BUF(TEXT_MAX), replayed = RLM_BUF(TEXT_MAX);
    struct rlm_replay_report *report = &agent->run->replay->report;
    bool first = !report->diverged;
    put_end(&recorded, was);
    put_end(&replayed, is);
    rlm_replay_diverge(agent, "how a cell ended", rlm_buf_str(&recorded), rlm_buf_str(&replayed));
    report->cell = first ? agent->cell : report->cell; /* it has just ended */
}

const struct rlm_node *rlm_replay_observed(struct rlm_agent *agent, const struct rlm_node *node)
{
    struct rlm_replay *r = agent->run->replay;
    const struct rlm_node *was = rlm_replay_next(agent);
    if (!was) {
        rlm_replay_park(agent);
        return NULL;
    }
    if (was->type != node->type || !rlm_str_eq(was->error, node->error)) {
        diverge_by_end(agent, was, node);
        return NULL;
    }
    if (!rlm_output_is_same(was->content, node->content)) {
        r->report.outputs_differ++;
        rlm_run_notice(agent->run, "%s: cell %lld printed something else than before",
                       agent->graph->agent_id, (long long)agent->cell);
        if (!r->report.first_output_agent_id) {
            r->report.first_output_agent_id = agent->graph->agent_id;
            r->report.first_output_cell = agent->cell;
        }
    }
    return was;
}
