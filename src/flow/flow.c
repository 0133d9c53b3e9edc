#include "flow/call.h"
#include "flow/code.h"
#include "flow/gate.h"
#include "flow/prompt.h"
#include "flow/run.h"

static int bad(rlm_error **err, const char *name, int64_t value, const char *expected)
{
    return rlm_error_set(err, RLM_E_INVAL, "%s is %lld; it must be %s", name, (long long)value,
                         expected);
}

static int check_limits(const struct rlm_limits *l, rlm_error **err)
{
    if (l->max_depth < 0 || l->max_depth > 64) {
        return bad(err, "max_depth", l->max_depth, "0 to 64");
    }
    if (l->max_messages != 0 && l->max_messages < 4) {
        return bad(err, "max_messages", l->max_messages, "0 (no cap) or at least 4");
    }
    if (l->max_output_tokens < RLM_LEDGER_LEAST_OUTPUT) {
        return bad(err, "max_output_tokens", l->max_output_tokens, "at least 256");
    }
    const struct {
        const char *name;
        int64_t value;
        int64_t least;
    } at_least[] = {
        {"max_iters", l->max_iters, 1},
        {"child_max_iters", l->child_max_iters, 0},
        {"max_budget", l->max_budget, 0},
        {"max_cost", l->max_cost_nano, 0},
        {"max_time", l->max_time_ms, 0},
        {"max_output_length", l->max_output_length, 0},
        {"max_query_chars", l->max_query_chars, 1},
        {"request_timeout", l->request_timeout_ms, 0},
        {"exec_timeout", l->exec_timeout_ms, 1},
        {"cpu_time", l->cpu_time_ms, 1},
        {"workers", l->workers, 1},
        {"max_live", l->max_live, 1},
        {"max_agents", l->max_agents, 1},
        {"max_input_size", l->max_input_bytes, 1},
    };
    for (size_t i = 0; i < sizeof at_least / sizeof *at_least; i++) {
        if (at_least[i].value < at_least[i].least) {
            return bad(err, at_least[i].name, at_least[i].value,
                       at_least[i].least ? "at least 1" : "0 or more");
        }
    }
    return 0;
}

static int copy_text(const char *text, char **ret_copy, rlm_error **err)
{
    if (text && !(*ret_copy = rlm_strdup(text))) {
        return rlm_error_nomem(err);
    }
    return 0;
}

int rlm_flow_new(rlm_loop *loop,
                 const struct rlm_flow_options *options,
                 rlm_flow **ret_flow,
                 rlm_error **err)
{
    if (!options->model || !options->runtime) {
        return rlm_error_set(err, RLM_E_INVAL, "a flow needs a model and a runtime");
    }
    int r = check_limits(&options->limits, err);
    if (r < 0) {
        return r;
    }
    rlm_flow *flow;
    if (!RLM_NEW(flow)) {
        return rlm_error_nomem(err);
    }
    flow->loop = loop;
    flow->limits = options->limits;
    flow->runtime = options->runtime;
    if ((r = rlm_flow_add_model(flow, "default", options->model, err)) < 0 ||
        (r = copy_text(options->system_prompt, &flow->system_prompt, err)) < 0) {
        rlm_flow_free(flow);
        return r;
    }
    flow->child_model = flow->models.items[0];
    *ret_flow = flow;
    return 0;
}

/* Nano-dollars of one token, from the price table. */
static struct rlm_ledger_rates rates_of(const rlm_model *model)
{
    const int64_t million = 1000000;
    struct rlm_usage in = {.input_tokens = million}, out = {.output_tokens = million};
    return (struct rlm_ledger_rates){
        .input_nano = (double)rlm_model_cost(model, &in, true) / (double)million,
        .output_nano = (double)rlm_model_cost(model, &out, true) / (double)million,
        .input_ratio = 1,
    };
}

int rlm_flow_add_model(rlm_flow *flow, const char *name, rlm_model *model, rlm_error **err)
{
    if (rlm_flow_find_model(flow, rlm_str_of(name))) {
        return rlm_error_set(err, RLM_E_EXISTS, "a model named \"%s\" is there already", name);
    }
    if (flow->limits.max_cost_nano && !rlm_model_has_price(model)) {
        return rlm_error_set(
            err, RLM_E_INVAL,
            "max_cost is set, but no price is known for model \"%s\" at %s; give its "
            "price, or cap tokens with max_budget",
            rlm_model_name(model), rlm_model_address(model));
    }
    struct rlm_flow_model *made;
    struct rlm_flow_model **slot;
    if (!RLM_NEW(made) || !(made->name = rlm_strdup(name)) ||
        !(slot = rlm_vec_push(&flow->models))) {
        if (made) {
            free(made->name);
            free(made);
        }
        return rlm_error_nomem(err);
    }
    made->model = model;
    made->rates = rates_of(model);
    *slot = made;
    return 0;
}

int rlm_flow_set_child_model(rlm_flow *flow, const char *name, rlm_error **err)
{
    struct rlm_flow_model *found = rlm_flow_find_model(flow, rlm_str_of(name));
    if (!found) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "no model is named \"%s\"; add it first", name);
    }
    flow->child_model = found;
    return 0;
}

struct rlm_flow_model *rlm_flow_find_model(const rlm_flow *flow, rlm_str name)
{
    for (size_t i = 0; i < flow->models.len; i++) {
        if (rlm_str_is(name, flow->models.items[i]->name)) {
            return flow->models.items[i];
        }
    }
    return NULL;
}

void rlm_flow_put_model_names(const rlm_flow *flow, struct rlm_buf *out)
{
    for (size_t i = 0; i < flow->models.len; i++) {
        rlm_buf_addf(out, "%s%s", i ? ", " : "", flow->models.items[i]->name);
    }
}

int rlm_flow_add_tool(rlm_flow *flow, const struct rlm_tool_options *tool, rlm_error **err)
{
    if (flow->runs) {
        return rlm_error_set(err, RLM_E_INVAL, "tools are added before the first run");
    }
    return rlm_tools_add(&flow->tools, tool, err);
}

char *rlm_flow_system_prompt(const rlm_flow *flow, int depth)
{
    return rlm_prompt_system(flow, depth);
}

char *rlm_flow_prompt_section(const rlm_flow *flow, int depth, enum rlm_prompt_section section)
{
    return rlm_prompt_section(flow, depth, section);
}

int rlm_reply_code(struct rlm_str reply, char **ret_code, size_t *ret_len, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf code = RLM_BUF(reply.len + 64), note = RLM_BUF(64 * 1024);
    int outcome = rlm_code_extract(reply, &code, &note);
    int r;
    if ((r = rlm_buf_check(&code, err)) < 0 || (r = rlm_buf_check(&note, err)) < 0) {
        return r;
    }
    if (outcome == RLM_CODE_NONE) {
        *ret_code = NULL;
        *ret_len = 0;
        return 1;
    }
    *ret_len = code.len;
    *ret_code = rlm_buf_take(&code);
    return *ret_code ? 0 : rlm_error_nomem(err);
}

void rlm_flow_free(rlm_flow *flow)
{
    if (!flow) {
        return;
    }
    for (size_t i = 0; i < flow->models.len; i++) {
        free(flow->models.items[i]->name);
        free(flow->models.items[i]);
    }
    free(flow->models.items);
    rlm_gates_free(flow);
    rlm_host_tools_free(flow);
    rlm_tools_deinit(&flow->tools);
    free(flow->system_prompt);
    free(flow);
}
