#include "flow/run.h"
#include "flow/value.h"

#include <stdio.h>

enum { OPEN_MAX = 16 * 1024 * 1024, KEPT_OUTPUT_BYTES = 1024 * 1024 };

void rlm_agent_seed(const struct rlm_agent *agent, char ret_seed[20])
{
    if (agent->seed[0]) {
        memcpy(ret_seed, agent->seed, sizeof agent->seed);
        return;
    }
    char text[512], hex[RLM_SHA256_HEX + 1] = "0";
    int len =
        snprintf(text, sizeof text, "%s %s", rlm_graph_id(agent->graph), agent->graph->agent_id);
    rlm_sha256_of((rlm_str){text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1}, hex);
    snprintf(ret_seed, 20, "%.16s", hex);
}

static void put_env(const struct rlm_agent *agent, struct rlm_json_writer *w)
{
    const rlm_graph *g = agent->graph;
    char number[16];
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "RLMFLOW_AGENT_ID", g->agent_id);
    snprintf(number, sizeof number, "%d", g->depth);
    rlm_json_member_text(w, "RLMFLOW_AGENT_DEPTH", number);
    rlm_json_member_text(w, "RLMFLOW_PARENT_AGENT_ID", g->parent ? g->parent->agent_id : "");
    snprintf(number, sizeof number, "%d", agent->run->flow->limits.max_depth);
    rlm_json_member_text(w, "RLMFLOW_MAX_DEPTH", number);
    rlm_json_member_text(w, "RLMFLOW_IS_ROOT", g->parent ? "0" : "1");
    rlm_json_end(w, '}');
}

static void put_tools(const rlm_flow *flow, struct rlm_json_writer *w)
{
    rlm_json_begin(w, '[');
    for (size_t i = 0; i < flow->tools.list.len; i++) {
        const struct rlm_tool *tool = flow->tools.list.items[i];
        rlm_json_begin(w, '{');
        rlm_json_member_text(w, "name", tool->name);
        rlm_json_member_text(w, "description", tool->description);
        if (tool->source) {
            rlm_json_member_text(w, "source", tool->source);
        } else {
            rlm_json_member_raw(w, "parameters", rlm_str_of(tool->parameters_json));
        }
        rlm_json_member_bool(w, "async", tool->is_async);
        rlm_json_end(w, '}');
    }
    rlm_json_end(w, ']');
}

static void put_open(const struct rlm_agent *agent, struct rlm_json_writer *w)
{
    const rlm_graph *g = agent->graph;
    char seed[20];
    rlm_agent_seed(agent, seed);
    rlm_json_begin(w, '{');
    rlm_json_member_int(w, "protocol", 1);
    rlm_json_member_text(w, "seed", seed);
    rlm_json_member_text(w, "agent_id", g->agent_id);
    rlm_json_member_int(w, "depth", g->depth);
    rlm_json_member_int(w, "max_depth", agent->run->flow->limits.max_depth);
    rlm_json_member_text(w, "parent_agent_id", g->parent ? g->parent->agent_id : "");
    rlm_json_key(w, "env"), put_env(agent, w);
    rlm_json_member_raw(w, "inputs", g->inputs);
    rlm_json_key(w, "tools"), put_tools(agent->run->flow, w);
    rlm_json_member_int(w, "last_call", agent->last_call);
    rlm_json_member_bool(w, "file_tools", true);
    rlm_json_member_bool(w, "output_schema", g->output_schema.len > 0);
    rlm_json_key(w, "limits");
    rlm_json_begin(w, '{');
    rlm_json_member_int(w, "output_bytes", KEPT_OUTPUT_BYTES);
    rlm_json_end(w, '}');
    rlm_json_end(w, '}');
}

struct names {
    RLM_VEC(const char *) ids;
};

static int collect(void *arg, const struct rlm_blob *blob)
{
    struct names *names = arg;
    const char **slot = rlm_vec_push(&names->ids);
    if (!slot) {
        return RLM_E_NOMEM;
    }
    *slot = blob->id;
    return 0;
}

int rlm_agent_open_session(struct rlm_agent *agent,
                           const struct rlm_session_events *events,
                           uint64_t open_timeout_ms,
                           rlm_error **err)
{
    rlm_run *run = agent->run;
    /* The tree of many small values is larger than their text, which a record bounds. */
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    rlm_auto_buf struct rlm_buf buf = RLM_BUF(OPEN_MAX);
    struct rlm_json_writer w = {.buf = &buf};
    const rlm_json *inputs;
    struct names names = {0};
    if (!arena) {
        return rlm_error_nomem(err);
    }
    put_open(agent, &w);
    int r = rlm_buf_check(&buf, err);
    if (r == 0) {
        r = rlm_json_parse(arena, agent->graph->inputs, &inputs, err);
    }
    /* The list ends with a NULL. */
    if (r == 0 &&
        (rlm_value_blobs(run, inputs, collect, &names) < 0 || !rlm_vec_push(&names.ids))) {
        r = rlm_error_nomem(err);
    }
    if (r == 0) {
        struct rlm_session_options options = {
            .blobs = run->blobs,
            .agent_id = agent->graph->agent_id,
            .depth = agent->graph->depth,
            .open_json = rlm_buf_str(&buf),
            .input_blobs = names.ids.items,
            .exec_timeout_ms = (uint64_t)run->flow->limits.exec_timeout_ms,
            .cpu_time_ms = (uint64_t)run->flow->limits.cpu_time_ms,
            .open_timeout_ms = open_timeout_ms,
            .last_call = agent->last_call,
        };
        r = rlm_session_open(run->flow->runtime, &options, events, agent, &agent->session, err);
    }
    free(names.ids.items);
    return r < 0 ? rlm_error_wrap(err, r, "opening a session for %s", agent->graph->agent_id) : 0;
}
