/* A new run: its journal is made, its inputs are taken in, then the graph begins with the query. */
#include "flow/record.h"
#include "flow/run.h"
#include "graph/record.h"

static int check(const struct rlm_run_options *options, rlm_error **err)
{
    if (!options->query.len) {
        return rlm_error_set(err, RLM_E_INVAL, "the query is empty; say what the agent shall do");
    }
    if (options->output_schema) {
        rlm_schema *schema;
        int r = rlm_schema_new(rlm_str_of(options->output_schema), &schema, err);
        if (r < 0) {
            return rlm_error_wrap(err, r, "the output schema");
        }
        rlm_schema_free(schema);
    }
    return 0;
}

static int open_journal(rlm_run *run, const struct rlm_run_options *options, rlm_error **err)
{
    if (!options->journal) {
        return rlm_blobs_open(NULL, &run->blobs, err);
    }
    struct rlm_journal_options journal = {.sync = options->sync};
    int r = rlm_journal_create(run->loop, options->journal, &journal, &run->journal, err);
    run->blobs = r == 0 ? rlm_journal_blobs(run->journal) : NULL;
    return r;
}

/* The inputs are there: the graph begins. */
static int begin_graph(rlm_run *run, const struct rlm_graph_options *graph_options, rlm_error **err)
{
    int r = rlm_graph_new(graph_options, &run->root, err);
    if (r < 0) {
        return r;
    }
    rlm_autofree char *options = rlm_record_options(run);
    if (!options) {
        return rlm_error_nomem(err);
    }
    if ((r = rlm_record_run(run->journal, run->root, rlm_str_of(options), err)) < 0) {
        return r;
    }
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *inputs;
    if (!arena || rlm_json_parse(arena, run->root->inputs, &inputs, NULL) < 0) {
        return rlm_error_nomem(err);
    }
    if (rlm_record_blobs_of(run, inputs) < 0 || rlm_inputs_record(run) < 0) {
        return 0; /* the run has failed and said so */
    }
    struct rlm_agent *root;
    if ((r = rlm_agent_new(run, run->root, NULL, &root, err)) < 0) {
        return r;
    }
    rlm_run_emit(run, RLM_EVENT_GRAPH_CREATED, run->root, NULL, RLM_STR_NONE);
    struct rlm_node query = {.type = RLM_USER_QUERY, .content = run->root->query};
    if (rlm_agent_append(root, &query)) {
        rlm_run_schedule(root);
    }
    return 0;
}

static void inputs_taken(rlm_run *run, const char *inputs_json, rlm_error *error)
{
    rlm_error *err = error;
    int r = error ? rlm_error_code(error) : 0;
    if (r == 0) {
        struct rlm_graph_options options = {
            .agent_id = "root",
            .query = {run->query, run->query_len},
            .inputs = rlm_str_of(inputs_json),
            .model = RLM_STR("default"),
            .output_schema = rlm_str_of(run->output_schema ? run->output_schema : ""),
        };
        r = begin_graph(run, &options, &err);
    }
    if (r < 0) {
        rlm_run_fail(run, err);
    }
}

int rlm_run_start(rlm_flow *flow,
                  const struct rlm_run_options *options,
                  const struct rlm_run_events *events,
                  void *arg,
                  rlm_run **ret_run,
                  rlm_error **err)
{
    int r = check(options, err);
    rlm_run *run;
    if (r < 0 || (r = rlm_run_new(flow, events, arg, &run, err)) < 0) {
        return r;
    }
    run->sync = options->sync;
    run->restore = options->restore;
    run->keep_sessions = options->keep_sessions;
    run->query = rlm_strndup(options->query.ptr, options->query.len);
    run->query_len = options->query.len;
    run->output_schema = options->output_schema ? rlm_strdup(options->output_schema) : NULL;
    if (!run->query || (options->output_schema && !run->output_schema)) {
        r = rlm_error_nomem(err);
    }
    if (r == 0) {
        r = rlm_run_set_program(run, options->program, err);
    }
    rlm_run_start_clock(run);
    if (r < 0 || (r = open_journal(run, options, err)) < 0 ||
        (r = rlm_inputs_begin(run, options, inputs_taken, err)) < 0) {
        rlm_run_free(run);
        return r;
    }
    *ret_run = run;
    return 0;
}
