/* launch_subagents: specs become children, their ends become results in the order of the specs.
 *
 * What is wrong with the call itself (no list, a duplicate name) is an exception and no child is
 * started; what only one spec may not have (depth, length, model, number of agents) is a Failure in
 * its slot and its siblings run.
 */
#include "base/utf8.h"
#include "flow/call.h"
#include "flow/past.h"
#include "flow/replay.h"
#include "flow/run.h"
#include "flow/value.h"
#include "graph/record.h"

#include <ctype.h>
#include <stdio.h>

enum { SPECS_MAX = 10000, NAME_MAX_CHARS = 64, JSON_MAX = 64 * 1024 * 1024 };

struct spec {
    struct rlm_buf query;
    char name[NAME_MAX_CHARS + 1];
    const rlm_json *inputs;
    rlm_str model;
    struct rlm_buf schema; /* JSON text; empty: none */
};

static void specs_free(struct spec *specs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        rlm_buf_deinit(&specs[i].query);
        rlm_buf_deinit(&specs[i].schema);
    }
    free(specs);
}

/* ---- reading the specs; the errors here are the caller's mistakes ---- */

static int check_keys(const rlm_json *spec, size_t index, rlm_error **err)
{
    static const char *const known[] = {"query", "name", "inputs", "model", "output_schema"};
    for (uint32_t i = 0; i < spec->count; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            found |= rlm_str_is(spec->members[i].key, known[k]);
        }
        if (!found) {
            return rlm_error_set(
                err, RLM_E_INVAL,
                "specs[%zu] has an unknown key \"%.*s\"; the keys are query (required), "
                "name, inputs, model, output_schema",
                index, RLM_FMT(spec->members[i].key));
        }
    }
    return 0;
}

static bool is_absent(const rlm_json *value)
{
    return !value || value->type == RLM_JSON_NULL;
}

static int read_name(const rlm_json *value, size_t index, struct spec *ret, rlm_error **err)
{
    rlm_str name = rlm_json_text(value, RLM_STR_NONE);
    bool good = name.len > 0 && name.len <= NAME_MAX_CHARS;
    for (size_t i = 0; good && i < name.len; i++) {
        char c = name.ptr[i];
        good = isascii(c) && (isalnum(c) || c == '_' || c == '-');
    }
    if (!good) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "specs[%zu][\"name\"] must be 1 to %d letters, digits, _ or -", index,
                             NAME_MAX_CHARS);
    }
    memcpy(ret->name, name.ptr, name.len);
    ret->name[name.len] = '\0';
    return 0;
}

/* A schema may come as a dict or as JSON text. */
static int
read_schema(rlm_run *run, const rlm_json *value, size_t index, struct spec *ret, rlm_error **err)
{
    if (rlm_json_is(value, RLM_JSON_STRING) || rlm_json_get(value, "$blob")) {
        int r = rlm_value_text(run, value, &ret->schema, err);
        if (r < 0) {
            return r;
        }
    } else {
        struct rlm_json_writer w = {.buf = &ret->schema};
        rlm_json_put(&w, value);
    }
    rlm_schema *schema;
    int r = rlm_buf_check(&ret->schema, err);
    if (r == 0) {
        r = rlm_schema_new(rlm_buf_str(&ret->schema), &schema, err);
    }
    if (r < 0) {
        return rlm_error_wrap(err, r, "specs[%zu][\"output_schema\"]", index);
    }
    rlm_schema_free(schema);
    return 0;
}

static int
read_spec(rlm_run *run, const rlm_json *spec, size_t index, struct spec *ret, rlm_error **err)
{
    ret->query = RLM_BUF(JSON_MAX);
    ret->schema = RLM_BUF(JSON_MAX);
    if (!rlm_json_is(spec, RLM_JSON_OBJECT)) {
        return rlm_error_set(
            err, RLM_E_INVAL,
            "specs[%zu] must be a dict like {\"query\": \"...\", \"inputs\": {...}}", index);
    }
    int r = check_keys(spec, index, err);
    if (r < 0) {
        return r;
    }
    if (rlm_value_text(run, rlm_json_get(spec, "query"), &ret->query, NULL) < 0 ||
        !ret->query.len) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "specs[%zu][\"query\"] must be a str that says what to do", index);
    }
    const rlm_json *name = rlm_json_get(spec, "name");
    if (!is_absent(name) && (r = read_name(name, index, ret, err)) < 0) {
        return r;
    }
    ret->inputs = rlm_json_get(spec, "inputs");
    if (is_absent(ret->inputs)) {
        ret->inputs = NULL;
    } else if (!rlm_json_is(ret->inputs, RLM_JSON_OBJECT) ||
               (ret->inputs->count == 1 && ret->inputs->members[0].key.len &&
                ret->inputs->members[0].key.ptr[0] == '$')) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "specs[%zu][\"inputs\"] must be a dict of names to values", index);
    }
    const rlm_json *model = rlm_json_get(spec, "model");
    if (!is_absent(model) && !rlm_json_is(model, RLM_JSON_STRING)) {
        return rlm_error_set(err, RLM_E_INVAL, "specs[%zu][\"model\"] must be a str", index);
    }
    ret->model = rlm_json_text(model, RLM_STR_NONE);
    const rlm_json *schema = rlm_json_get(spec, "output_schema");
    return is_absent(schema) ? 0 : read_schema(run, schema, index, ret, err);
}

static bool name_is_taken(const struct rlm_agent *parent, const char *name)
{
    char id[1024];
    snprintf(id, sizeof id, "%s.%s", parent->graph->agent_id, name);
    return rlm_map_has(&parent->run->agents, rlm_str_of(id));
}

/* The child that this part of the launch started before the run was interrupted, or NULL. */
static struct rlm_agent *
started_before(const struct rlm_agent *parent, const struct rlm_past_call *was, size_t part)
{
    for (size_t i = 0; was && i < parent->graph->children.len; i++) {
        const rlm_graph *g = parent->graph->children.items[i];
        if (g->launch == was->first_id && g->launch_part == (int64_t)part) {
            return rlm_map_get(&parent->run->agents, rlm_str_of(g->agent_id));
        }
    }
    return NULL;
}

/* Names that the specs give must be new; the others get child0, child1, ..., never used twice. */
static int settle_names(struct rlm_agent *parent,
                        const struct rlm_past_call *was,
                        struct spec *specs,
                        size_t n,
                        rlm_error **err)
{
    struct rlm_map seen = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct rlm_agent *child = started_before(parent, was, i);
        if (child) {
            snprintf(specs[i].name, sizeof specs[i].name, "%s", child->graph->name);
        }
        if (child || !*specs[i].name) {
            continue;
        }
        if (rlm_map_has(&seen, rlm_str_of(specs[i].name)) || name_is_taken(parent, specs[i].name)) {
            r = rlm_error_set(
                err, RLM_E_INVAL,
                "specs[%zu][\"name\"]: a sub-agent named \"%s\" exists already; no sub-agent of this "
                "call was started",
                i, specs[i].name);
        } else if (rlm_map_set(&seen, rlm_str_of(specs[i].name), parent) < 0) {
            r = rlm_error_nomem(err);
        }
    }
    for (size_t i = 0; r == 0 && i < n; i++) {
        while (!*specs[i].name) {
            char name[32];
            snprintf(name, sizeof name, "child%d", parent->default_names++);
            if (!name_is_taken(parent, name) && !rlm_map_has(&seen, rlm_str_of(name))) {
                strcpy(specs[i].name, name);
            }
        }
    }
    rlm_map_deinit(&seen);
    return r;
}

static int read_specs(struct rlm_agent *parent,
                      const struct rlm_host_call *call,
                      const struct rlm_past_call *was,
                      struct spec **ret_specs,
                      size_t *ret_n,
                      rlm_error **err)
{
    const rlm_json *list = rlm_json_at(call->args, 0);
    if (!list) {
        list = rlm_json_get(call->kwargs, "specs");
    }
    if (rlm_json_is(list, RLM_JSON_OBJECT) && rlm_json_get(list, "$tuple")) {
        list = rlm_json_get(list, "$tuple");
    }
    if (!rlm_json_is(list, RLM_JSON_ARRAY) || list->count > SPECS_MAX) {
        return rlm_error_set(
            err, RLM_E_INVAL,
            "launch_subagents takes a list of at most %d dicts, each with a \"query\"", SPECS_MAX);
    }
    struct spec *specs = rlm_calloc(list->count, sizeof *specs);
    if (!specs) {
        return rlm_error_nomem(err);
    }
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < list->count; i++) {
        r = read_spec(parent->run, rlm_json_at(list, i), i, &specs[i], err);
    }
    if (r == 0) {
        r = settle_names(parent, was, specs, list->count, err);
    }
    if (r < 0) {
        specs_free(specs, list->count);
        return r;
    }
    *ret_specs = specs;
    *ret_n = list->count;
    return 0;
}

/* ---- starting ---- */

static int refuse(struct rlm_part *part, const char *name, rlm_str why, rlm_error **err)
{
    char id[1024];
    snprintf(id, sizeof id, "%s.%s", part->call->agent->graph->agent_id, name);
    part->value_json = rlm_value_of_failure("refused", why, id);
    part->call->parts_left--;
    return part->value_json ? 0 : rlm_error_nomem(err);
}

/* Why this spec may not run, in `text`; false if it may. */
static bool refused(const struct rlm_agent *parent,
                    const struct spec *spec,
                    struct rlm_flow_model **ret_model,
                    struct rlm_buf *text)
{
    rlm_run *run = parent->run;
    const struct rlm_limits *l = &run->flow->limits;
    size_t chars = rlm_utf8_count(rlm_buf_str(&spec->query));
    if (parent->graph->depth >= l->max_depth) {
        rlm_buf_addf(text, "max depth %d", l->max_depth);
        return true;
    }
    if (chars > (size_t)l->max_query_chars) {
        rlm_buf_addf(
            text,
            "query too long (%zu chars > %d); keep query a short instruction and move bulk "
            "payloads into inputs",
            chars, l->max_query_chars);
        return true;
    }
    *ret_model =
        spec->model.len ? rlm_flow_find_model(run->flow, spec->model) : run->flow->child_model;
    if (!*ret_model) {
        rlm_buf_addf(text, "no model is named \"%.*s\"; the models are ", RLM_FMT(spec->model));
        rlm_flow_put_model_names(run->flow, text);
        return true;
    }
    if (run->n_agents >= l->max_agents) {
        rlm_buf_addf(text, "max_agents (%d) reached", l->max_agents);
        return true;
    }
    return false;
}

/* A directory travels by the name of the parent's input; the child gets the list of its files. */
static const rlm_json *resolve_directory(const rlm_json *parent_inputs, const rlm_json *value)
{
    rlm_str name = rlm_json_text(rlm_json_get(rlm_json_get(value, "$dir"), "name"), RLM_STR_NONE);
    for (uint32_t i = 0; name.len && i < parent_inputs->count; i++) {
        const rlm_json *own = &parent_inputs->members[i].value;
        if (rlm_str_eq(rlm_json_text(rlm_json_get(rlm_json_get(own, "$dir"), "name"), RLM_STR("")),
                       name)) {
            return own;
        }
    }
    return value;
}

static int put_inputs(const struct rlm_agent *parent,
                      const rlm_json *inputs,
                      struct rlm_buf *out,
                      rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *own;
    struct rlm_json_writer w = {.buf = out};
    if (!arena || rlm_json_parse(arena, parent->graph->inputs, &own, NULL) < 0) {
        return rlm_error_nomem(err);
    }
    rlm_json_begin(&w, '{');
    for (uint32_t i = 0; inputs && i < inputs->count; i++) {
        rlm_json_key_str(&w, inputs->members[i].key);
        rlm_json_put(&w, resolve_directory(own, &inputs->members[i].value));
    }
    rlm_json_end(&w, '}');
    return rlm_buf_check(out, err);
}

static int start_child(struct rlm_agent *parent,
                       struct rlm_part *part,
                       const struct spec *spec,
                       const struct rlm_flow_model *model,
                       rlm_error **err)
{
    rlm_auto_buf struct rlm_buf inputs = RLM_BUF(JSON_MAX);
    int r = put_inputs(parent, spec->inputs, &inputs, err);
    if (r < 0) {
        return r;
    }
    struct rlm_graph_options options = {
        .query = rlm_buf_str(&spec->query),
        .inputs = rlm_buf_str(&inputs),
        .model = rlm_str_of(model->name),
        .output_schema = rlm_buf_str(&spec->schema),
        .launch = part->call->first_id,
        .launch_part = part - part->call->parts,
    };
    rlm_graph *graph;
    if ((r = rlm_graph_add_child(parent->graph, spec->name, &options, &graph, err)) < 0 ||
        (r = rlm_record_child(parent->run->journal, graph, err)) < 0 ||
        (r = rlm_agent_new(parent->run, graph, parent, &part->child, err)) < 0) {
        return r;
    }
    part->child->part = part;
    if (parent->run->replay && !rlm_replay_child(part->child)) {
        return 0; /* the run is over */
    }
    rlm_run_emit(parent->run, RLM_EVENT_ADD_CHILD, graph, NULL, RLM_STR_NONE);
    return 0;
}

static void adopt(struct rlm_part *part, struct rlm_agent *child)
{
    part->child = child;
    child->part = part;
    if (rlm_agent_finished(child)) {
        rlm_launch_child_ended(child);
    }
}

static bool
start_children(struct rlm_call *call, const struct rlm_past_call *was, struct spec *specs)
{
    struct rlm_agent *parent = call->agent;
    for (size_t i = 0; i < call->n_parts; i++) {
        rlm_auto_buf struct rlm_buf why = RLM_BUF(JSON_MAX);
        struct rlm_flow_model *model = NULL;
        rlm_error *err = NULL;
        struct rlm_agent *child = started_before(parent, was, i);
        int r = 0;
        if (child) {
            adopt(&call->parts[i], child);
        } else if (refused(parent, &specs[i], &model, &why)) {
            r = refuse(&call->parts[i], specs[i].name, rlm_buf_str(&why), &err);
        } else {
            r = start_child(parent, &call->parts[i], &specs[i], model, &err);
        }
        if (r < 0) {
            rlm_run_fail(parent->run, err);
            return false;
        }
    }
    return true;
}

/* supervising_output or resume_action with the children of the launch, unless the graph has it from
 * before an interruption. */
static bool append_launch_node(struct rlm_call *call, enum rlm_node_type type)
{
    const rlm_graph *g = call->agent->graph;
    for (size_t i = g->nodes.len; call->first_id != call->id && i-- > 0;) {
        if (g->nodes.items[i]->type == type && g->nodes.items[i]->call_id == call->first_id) {
            return true;
        }
    }
    const char **ids = rlm_calloc(call->n_parts, sizeof *ids);
    if (!ids) {
        rlm_run_fail_no_memory(call->agent->run);
        return false;
    }
    struct rlm_node node = {.type = type, .agents = ids, .call_id = call->first_id};
    for (size_t i = 0; i < call->n_parts; i++) {
        if (call->parts[i].child) {
            ids[node.n_agents++] = call->parts[i].child->graph->agent_id;
        }
    }
    bool ok = rlm_agent_append(call->agent, &node);
    free(ids);
    return ok;
}

void rlm_launch_begin(struct rlm_agent *agent,
                      const struct rlm_host_call *host_call,
                      const struct rlm_past_call *was)
{
    struct spec *specs = NULL;
    size_t n = 0;
    rlm_error *err = NULL;
    if (read_specs(agent, host_call, was, &specs, &n, &err) < 0) {
        if (rlm_error_code(err) == RLM_E_NOMEM) {
            rlm_run_fail(agent->run, err);
            return;
        }
        rlm_host_call_raise(agent, host_call, "ValueError", "specs",
                            rlm_str_of(rlm_error_message(err)));
        rlm_error_free(err);
        return;
    }
    struct rlm_call *call = rlm_call_new(agent, host_call, RLM_CALL_LAUNCH, n);
    if (call && was) {
        call->first_id = was->first_id;
    }
    if (call && start_children(call, was, specs) &&
        append_launch_node(call, RLM_SUPERVISING_OUTPUT)) {
        for (size_t i = 0; i < n; i++) {
            struct rlm_agent *child = call->parts[i].child;
            struct rlm_node query = {.type = RLM_USER_QUERY,
                                     .content = rlm_buf_str(&specs[i].query)};
            if (child && !child->graph->nodes.len && rlm_agent_append(child, &query)) {
                rlm_run_schedule(child);
            }
        }
        rlm_run_schedule(agent); /* all may be refused */
    }
    specs_free(specs, n);
}

/* ---- ending ---- */

char *rlm_child_value(struct rlm_agent *child, rlm_error **err)
{
    const struct rlm_node *done = rlm_graph_current(child->graph);
    if (rlm_str_is(done->reason, "answered")) {
        if (child->output_schema) {
            return rlm_strndup(done->result.ptr, done->result.len);
        }
        return rlm_value_of_text(child->run, done->result, err);
    }
    static const char *const reasons[] = {"max_iters", "budget", "cost", "time", "terminated"};
    const char *reason = "failed";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (rlm_str_is(done->reason, reasons[i])) {
            reason = reasons[i];
        }
    }
    return rlm_value_of_failure(reason, done->content, child->graph->agent_id);
}

void rlm_launch_child_ended(struct rlm_agent *child)
{
    struct rlm_part *part = child->part;
    rlm_error *err = NULL;
    part->value_json = rlm_child_value(child, &err);
    part->call->parts_left--;
    if (!part->value_json) {
        if (!err) {
            rlm_error_nomem(&err);
        }
        rlm_run_fail(child->run, err);
        return;
    }
    if (part->call->parts_left == 0) {
        rlm_run_schedule(part->call->agent);
    }
}

void rlm_launch_answer(struct rlm_call *call)
{
    if (append_launch_node(call, RLM_RESUME_ACTION)) {
        rlm_call_answer_parts(call);
    }
}

void rlm_launch_cancel(struct rlm_call *call, const char *reason)
{
    for (size_t i = 0; i < call->n_parts; i++) {
        struct rlm_agent *child = call->parts[i].child;
        if (child) {
            child->part = NULL;
            rlm_agent_finish(child, reason, RLM_STR(""), RLM_STR(""),
                             rlm_agent_ended_because(reason));
        }
    }
    append_launch_node(call, RLM_RESUME_ACTION);
}
