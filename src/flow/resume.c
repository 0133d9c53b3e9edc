/* A run goes on from its journal.
 *
 * past_load.c reads what there is; here the run is built from it: the ledger with what was lost still
 * charged, an agent for every graph, and for each that has not ended a plan for its session
 * (restore.c). Then the loop takes their steps as in any run: the step machine decides by the graph
 * alone.
 */
#include "flow/ask.h"
#include "flow/past.h"
#include "flow/record.h"
#include "flow/restore.h"
#include "flow/run.h"
#include "graph/journal_scan.h"
#include "graph/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct rlm_agent *agent_of(const rlm_run *run, const rlm_graph *g)
{
    return rlm_map_get(&run->agents, rlm_str_of(g->agent_id));
}

/* The calls whose replies are lost may have been billed: they are charged at their bound. */
static int charge_lost(rlm_run *run, const struct rlm_past_run *past)
{
    for (size_t i = 0; i < past->lost_asks.len; i++) {
        const struct rlm_lost_ask *lost = &past->lost_asks.items[i];
        struct rlm_agent *agent = rlm_map_get(&run->agents, lost->agent_id);
        struct rlm_usage usage = {
            .calls = 1,
            .input_tokens = lost->held.input_tokens,
            .output_tokens = lost->held.output_tokens,
            .cost_nano = lost->held.cost_nano,
            .estimated = 1,
        };
        agent = agent ? agent : agent_of(run, run->root); /* it was taken out since */
        struct rlm_ask_options of = {.agent = agent};
        rlm_graph_add_usage(agent->graph, &usage);
        int r = rlm_record_settle(&of, lost->ask, &usage, NULL, false);
        if (r < 0) {
            return r;
        }
    }
    run->ledger.settled = run->root->total;
    return 0;
}

/* N of "childN", -1 for another name. The code may have taken such a name, with any number. */
static int default_name_number(const char *name)
{
    enum { DIGITS_MAX = 9 };
    size_t digits = strncmp(name, "child", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    return digits && digits <= DIGITS_MAX && !name[5 + digits] ? atoi(name + 5) : -1;
}

static int make_agents(rlm_run *run, rlm_error **err)
{
    for (rlm_graph *g = run->root; g; g = rlm_graph_next(run->root, g)) {
        struct rlm_agent *agent, *parent = g->parent ? agent_of(run, g->parent) : NULL;
        int r = rlm_agent_new(run, g, parent, &agent, err);
        if (r < 0) {
            return r;
        }
        if (!agent->model) {
            return rlm_error_set(err, RLM_E_INVAL,
                                 "agent %s was asked with the model \"%.*s\", which is not "
                                 "configured; give it as it was, or under this name another one",
                                 g->agent_id, RLM_FMT(g->model));
        }
        agent->state = rlm_graph_finished(g) ? RLM_AGENT_FINISHED : RLM_AGENT_READY;
        for (size_t i = 0; i < g->children.len; i++) {
            const char *name = g->children.items[i]->name;
            int number = default_name_number(name);
            if (number >= agent->default_names) {
                agent->default_names = number + 1;
            }
        }
    }
    return 0;
}

/* Takes up what the agent's sessions did. */
static bool take_past(struct rlm_agent *agent, struct rlm_past_run *past_run)
{
    struct rlm_past *past = rlm_past_take(past_run, agent->graph);
    if (!past) {
        return true;
    }
    const struct rlm_past_session *session = rlm_past_session(past);
    struct rlm_past_cell *last = past->cells.len ? past->cells.items[past->cells.len - 1] : NULL;
    agent->sessions = session ? (int)session->number : 0;
    agent->last_call = past->last_call;
    memcpy(agent->seed, past->seed, sizeof agent->seed);
    agent->cell = last ? last->number : 0;
    if (last && !last->end && last->answered) {
        /* The answer was accepted, and stands. */
        agent->answer = rlm_strndup(last->answer.ptr, last->answer.len);
        agent->answer_len = last->answer.len;
        rlm_past_agent_free(past);
        return agent->answer != NULL;
    }
    return rlm_restore_plan(agent, past);
}

static bool revive(struct rlm_agent *agent, struct rlm_past_run *past)
{
    if (rlm_agent_finished(agent)) {
        return true;
    }
    if (!agent->graph->nodes.len) {
        struct rlm_node query = {.type = RLM_USER_QUERY, .content = agent->graph->query};
        if (!rlm_agent_append(agent, &query)) {
            return false;
        }
    }
    if (!take_past(agent, past)) {
        return false;
    }
    rlm_run_schedule(agent);
    return true;
}

/* A run that a limit or a failure ended goes on as if it had not, unless more is asked. */
static int reopen(rlm_run *run, const struct rlm_resume_options *options, rlm_error **err)
{
    bool finished = rlm_graph_finished(run->root);
    if (options->query.len) {
        return finished ? 0
                        : rlm_error_set(err, RLM_E_INVAL,
                                        "the run %s has not ended: resume it first, then ask more",
                                        options->journal);
    }
    if (!finished) {
        return 0;
    }
    if (rlm_str_is(rlm_graph_reason(run->root), "answered")) {
        return rlm_error_set(
            err, RLM_E_INVAL,
            "the run %s has ended with an answer: there is nothing to resume; to ask "
            "more, continue it with a query",
            options->journal);
    }
    int r = rlm_graph_reopen(run->root, err);
    return r < 0 ? r : rlm_record_reopen(run->journal, run->root, err);
}

/* A tool's limit of calls is one of the run. A call that will be made again is counted then. */
static void count_tool_calls(rlm_run *run, const struct rlm_past_run *past)
{
    size_t pos = 0;
    void *value;
    while (rlm_map_next(&past->agents, &pos, NULL, &value)) {
        const struct rlm_past *agent = value;
        for (size_t i = 0; i < agent->cells.len; i++) {
            const struct rlm_past_cell *cell = agent->cells.items[i];
            for (size_t k = 0; k < cell->calls.len; k++) {
                const struct rlm_past_call *call = cell->calls.items[k];
                const struct rlm_tool *tool = rlm_tools_find(&run->flow->tools, call->name);
                bool refused = rlm_str_is(call->error_reason, "arguments") ||
                               rlm_str_is(call->error_reason, "limit");
                if (tool && !refused && (call->finished || !tool->idempotent)) {
                    run->tool_calls[tool->index]++;
                }
            }
        }
    }
}

static int build(rlm_run *run,
                 const struct rlm_resume_options *options,
                 struct rlm_past_run *past,
                 rlm_error **err)
{
    run->root = rlm_steal(&past->root);
    run->last_ask = past->last_ask;
    run->earlier_ms = past->elapsed_ms;
    count_tool_calls(run, past);
    int r = reopen(run, options, err);
    if (r < 0 || (r = make_agents(run, err)) < 0 ||
        (r = rlm_inputs_reopen(run, past->input_lists.items, past->input_lists.len, err)) < 0) {
        return r;
    }
    if (rlm_record_resumed(run) < 0 || charge_lost(run, past) < 0) {
        return 0; /* the run has failed and says so */
    }
    run->earlier_ms =
        options->query.len ? 0 : run->earlier_ms; /* a new question has its own time */
    rlm_run_start_clock(run);
    rlm_run_emit(run, RLM_EVENT_GRAPH_CREATED, run->root, NULL, RLM_STR_NONE);
    struct rlm_agent *root = agent_of(run, run->root);
    struct rlm_node query = {.type = RLM_USER_QUERY, .content = options->query};
    if (query.content.len) {
        if (!rlm_agent_append(root, &query)) {
            return 0;
        }
        rlm_agent_set_state(root, RLM_AGENT_READY);
    }
    for (rlm_graph *g = run->root; g; g = rlm_graph_next(run->root, g)) {
        if (!revive(agent_of(run, g), past)) {
            return 0;
        }
    }
    return 0;
}

/* What is wrong inside a good record, or with a blob that it names, is found only here. */
static int load_past(rlm_run *run,
                     const struct rlm_resume_options *options,
                     struct rlm_past_run **ret_past,
                     struct rlm_journal_damage *damage,
                     rlm_error **err)
{
    struct rlm_journal_damage wrong = {.offset = -1};
    int r = rlm_past_load(options->journal, run->blobs, true, ret_past, &wrong, err);
    /* Before the second record there is no run that could go on. */
    if (r >= 0 || r == RLM_E_VERSION || wrong.offset <= RLM_JOURNAL_MAGIC_BYTES) {
        return r;
    }
    struct stat st;
    rlm_autofree char *file = NULL;
    if (asprintf(&file, "%s/journal", options->journal) < 0) {
        file = NULL;
        rlm_error_free(rlm_steal(err));
        return rlm_error_nomem(err);
    }
    wrong.lost_bytes = stat(file, &st) == 0 ? (int64_t)st.st_size - wrong.offset : 0;
    /* Opening has cut a torn tail off already. */
    wrong.lost_bytes += damage->offset >= 0 ? damage->lost_bytes : 0;
    if (!options->cut) {
        rlm_autofree char *why = rlm_strdup(rlm_error_message(*err));
        rlm_error_free(rlm_steal(err));
        return rlm_error_set(err, r,
                             "%s; going on would lose the %lld bytes from there: look at the run "
                             "or export it, or cut it there (--cut)",
                             why ? why : "", (long long)wrong.lost_bytes);
    }
    rlm_run_notice(run, "%s", rlm_error_message(*err));
    rlm_error_free(rlm_steal(err));
    *damage = wrong;
    r = rlm_journal_cut(run->journal, wrong.offset, err);
    if (r == 0) {
        /* Opened anew, so that no blob is known that only the lost records name. */
        struct rlm_journal_options journal = {.sync = options->sync};
        rlm_journal_close(rlm_steal(&run->journal));
        run->blobs = NULL;
        r = rlm_journal_open(run->loop, options->journal, &journal, false, &run->journal, NULL,
                             err);
    }
    if (r == 0) {
        run->blobs = rlm_journal_blobs(run->journal);
        r = rlm_past_load(options->journal, run->blobs, true, ret_past, NULL, err);
    }
    return r;
}

int rlm_flow_resume(rlm_flow *flow,
                    const struct rlm_resume_options *options,
                    const struct rlm_run_events *events,
                    void *arg,
                    rlm_run **ret_run,
                    rlm_error **err)
{
    struct rlm_journal_options journal = {.sync = options->sync};
    struct rlm_journal_damage damage = {.offset = -1};
    struct rlm_past_run *past = NULL;
    rlm_run *run;
    int r = rlm_run_new(flow, events, arg, &run, err);
    if (r < 0) {
        return r;
    }
    run->sync = options->sync;
    run->restore = options->restore;
    run->keep_sessions = options->keep_sessions;
    r = rlm_journal_open(run->loop, options->journal, &journal, options->cut, &run->journal,
                         &damage, err);
    if (r == 0) {
        run->blobs = rlm_journal_blobs(run->journal);
        rlm_error *why = NULL;
        r = load_past(run, options, &past, &damage, &why);
        if (r < 0) {
            rlm_error_set(err, r, "%s", rlm_error_message(why));
            rlm_error_free(why);
        }
    }
    if (r == 0) {
        r = rlm_run_set_program(run, options->program, err);
    }
    if (r == 0) {
        if (damage.offset >= 0) {
            rlm_run_notice(
                run,
                "the journal's end was damaged: the %lld bytes from byte %lld on are cut "
                "off",
                (long long)damage.lost_bytes, (long long)damage.offset);
        }
        r = build(run, options, past, err);
    }
    rlm_past_free(past);
    if (r < 0) {
        rlm_run_free(run);
        return r;
    }
    rlm_run_poke(run);
    *ret_run = run;
    return 0;
}
