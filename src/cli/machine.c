#include "cli/machine.h"

#include "cli/kept.h"
#include "cli/python.h"
#include "cli/signals.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fill_limits(const struct options *o, struct rlm_limits *l)
{
    l->max_depth = (int)options_number(o, OPT_MAX_DEPTH);
    l->max_iters = (int)options_number(o, OPT_MAX_ITERS);
    l->child_max_iters = (int)options_number(o, OPT_CHILD_MAX_ITERS);
    l->max_budget = options_number(o, OPT_MAX_BUDGET);
    l->max_cost_nano = options_number(o, OPT_MAX_COST);
    l->max_time_ms = options_number(o, OPT_MAX_TIME);
    l->max_output_length = (int)options_number(o, OPT_MAX_OUTPUT_LENGTH);
    l->max_query_chars = (int)options_number(o, OPT_MAX_QUERY_CHARS);
    l->max_messages = (int)options_number(o, OPT_MAX_MESSAGES);
    l->max_output_tokens = (int)options_number(o, OPT_MAX_OUTPUT_TOKENS);
    l->exec_timeout_ms = options_number(o, OPT_EXEC_TIMEOUT);
    l->cpu_time_ms = options_number(o, OPT_CPU_TIME);
    l->workers = (int)options_number(o, OPT_WORKERS);
    l->max_live = (int)options_number(o, OPT_MAX_LIVE);
    l->max_agents = (int)options_number(o, OPT_MAX_AGENTS);
    l->max_input_bytes = options_number(o, OPT_MAX_INPUT_SIZE);
}

/* For a replay: names without servers. */
static int name_models(struct machine *m)
{
    struct drive *d = m->d;
    const char *name = d->model_name ? d->model_name : "default";
    rlm_error *err = NULL;
    if (rlm_model_new_recorded(m->loop, name, &m->model, &err) < 0 ||
        (d->child_model_name &&
         rlm_model_new_recorded(m->loop, d->child_model_name, &m->child_model, &err) < 0)) {
        return text_fail(err);
    }
    return 0;
}

static int make_models(struct machine *m)
{
    struct drive *d = m->d;
    /* A script may be a pipe that nobody writes. Nothing is there yet that a signal could leave behind. */
    signals_unblock();
    int code = d->make_model
                   ? d->make_model(m->loop, &m->model)
                   : models_new(m->loop, d->options, d->provider, d->model_name, &m->model);
    if (code == 0 && d->child_model_name) {
        code = models_new(m->loop, d->options, d->provider, d->child_model_name, &m->child_model);
    }
    signals_block();
    return code;
}

/* What a session would find out only after the first reply of the model: this, and the directory. */
static int find_python(struct machine *m)
{
    const char *name = options_text(m->d->options, OPT_PYTHON);
    m->python = python_find(name);
    if (!m->python) {
        text_complain("--python %s: %s%s", name, strerror(errno),
                      strchr(name, '/') ? "" : " (in PATH)");
        return EXIT_USAGE;
    }
    return 0;
}

static int check_directory(const char *flag, const char *cwd)
{
    char *here = cwd ? NULL : getcwd(NULL, 0);
    if (!cwd && !here) {
        text_complain("the working directory: %s; go to another one or say --cwd DIR",
                      strerror(errno));
        return EXIT_USAGE;
    }
    free(here);
    if (cwd && access(cwd, X_OK) < 0) {
        text_complain("%s %s: %s", flag, cwd, strerror(errno));
        return EXIT_USAGE;
    }
    return 0;
}

/* Where the sessions work, NULL: where the program does. A run that had a fresh directory of its own has
 * another one in a replay, which leaves nothing, and goes on in what was collected. */
static int choose_directory(struct machine *m, const char **ret_cwd)
{
    const struct options *o = m->d->options;
    const char *cwd = options_text(o, OPT_CWD), *target = options_text(o, OPT_COLLECT);
    const char *flag = cwd ? "--cwd" : "--collect";
    bool is_new = o->settings[OPT_COLLECT].source == FROM_FLAG;
    *ret_cwd = NULL;
    if (m->d->replay && !options_on(o, OPT_EXECUTE)) {
        return 0; /* no code runs: it need not be there any more */
    }
    if (target && !cwd && !is_new && !m->d->replay) {
        cwd = target;
    }
    int code = check_directory(flag, cwd);
    if (code == 0 && (is_new || (target && !cwd))) {
        code = collect_new(is_new ? target : NULL, cwd, &m->collect);
        cwd = code ? NULL : collect_directory(m->collect);
    }
    *ret_cwd = cwd;
    return code;
}

static int make_runtime(struct machine *m)
{
    const struct options *o = m->d->options;
    struct rlm_subprocess_options s = RLM_SUBPROCESS_OPTIONS_INIT;
    rlm_error *err = NULL;
    const char *cwd;
    int code = choose_directory(m, &cwd);
    if (code) {
        return code;
    }
    s.python = m->python;
    s.working_directory = cwd;
    s.spare = (int)options_number(o, OPT_SPARE);
    return rlm_runtime_new_subprocess(m->loop, &s, &m->runtime, &err) < 0 ? text_fail(err) : 0;
}

static int make_flow(struct machine *m)
{
    struct rlm_flow_options f = RLM_FLOW_OPTIONS_INIT;
    const char *child = m->d->child_model_name;
    rlm_error *err = NULL;
    fill_limits(m->d->options, &f.limits);
    f.model = m->model;
    f.runtime = m->runtime;
    if (rlm_flow_new(m->loop, &f, &m->flow, &err) < 0 ||
        (child && (rlm_flow_add_model(m->flow, child, m->child_model, &err) < 0 ||
                   rlm_flow_set_child_model(m->flow, child, &err) < 0))) {
        return text_fail(err);
    }
    if (m->d->replay) {
        return 0; /* what was decided stands */
    }
    int code = approve_new(options_text(m->d->options, OPT_APPROVE), &m->approve);
    return code ? code : approve_begin(m->approve, m->flow);
}

static int resume(struct machine *m, const struct rlm_run_events *events)
{
    struct drive *d = m->d;
    struct rlm_resume_options r = RLM_RESUME_OPTIONS_INIT;
    rlm_error *err = NULL;
    char *program = options_kept(d->options);
    d->path = text_copy(d->resume);
    r.journal = d->path;
    r.query = d->query;
    r.cut = options_on(d->options, OPT_CUT);
    r.sync = options_on(d->options, OPT_SYNC);
    r.restore = d->restore;
    r.program = program;
    int code = rlm_flow_resume(m->flow, &r, events, m, &m->run, &err) < 0 ? text_fail(err) : 0;
    free(program);
    return code;
}

static int replay(struct machine *m, const struct rlm_run_events *events)
{
    struct drive *d = m->d;
    struct rlm_replay_options r = RLM_REPLAY_OPTIONS_INIT;
    rlm_error *err = NULL;
    d->path = text_copy(d->replay);
    r.journal = d->path;
    r.execute = options_on(d->options, OPT_EXECUTE);
    return rlm_flow_replay(m->flow, &r, events, m, &m->run, &err) < 0 ? text_fail(err) : 0;
}

enum { MOST_NAMES = 100 }; /* that are tried */

static int start(struct machine *m, const struct rlm_run_events *events)
{
    struct drive *d = m->d;
    const struct options *o = d->options;
    struct rlm_run_options r = RLM_RUN_OPTIONS_INIT;
    rlm_error *err = NULL;
    const char *path = options_text(o, OPT_OUTPUT);
    int code = path ? 0 : kept_new_path(d->query, &d->path);
    if (code != 0) {
        return code;
    }
    d->path = path ? text_copy(path) : d->path;
    r.query = d->query;
    r.inputs = d->inputs;
    r.n_inputs = d->n_inputs;
    r.output_schema = d->schema;
    r.journal = d->path;
    r.sync = options_on(o, OPT_SYNC);
    r.restore = d->restore;
    char *program = options_kept(o);
    r.program = program;
    int result = rlm_run_start(m->flow, &r, events, m, &m->run, &err);
    /* Another program that was started in the same second may have taken the name meanwhile. */
    for (int i = 0; result == RLM_E_EXISTS && !path && i < MOST_NAMES && code == 0; i++) {
        rlm_error_free(err);
        err = NULL;
        free(d->path);
        code = kept_new_path(d->query, &d->path);
        r.journal = d->path;
        result = code ? 0 : rlm_run_start(m->flow, &r, events, m, &m->run, &err);
    }
    free(program);
    return result < 0 ? text_fail(err) : code;
}

static void warn_of_spending(const struct machine *m)
{
    const struct options *o = m->d->options;
    const char *child = m->d->child_model_name;
    bool costs = !models_is_scripted(m->d->model_name) || (child && !models_is_scripted(child));
    if (costs && !options_number(o, OPT_MAX_BUDGET) && !options_number(o, OPT_MAX_COST) &&
        !options_number(o, OPT_MAX_TIME)) {
        text_say("warning: nothing caps the spending of this run; set --max-budget, --max-cost or "
                 "--max-time");
    }
    if (!options_on(o, OPT_QUIET)) {
        text_say(
            "runtime subprocess: agent code runs without isolation and can do what you can do");
        if (m->d->resume && m->d->restore == RLM_RESTORE_AUTO) {
            text_say(
                "sessions that were lost start anew, without their variables; --restore replay "
                "runs their code again");
        }
        if (o->file) {
            text_say("settings: %s", o->file);
        }
    }
}

int machine_make(struct machine *m, const struct rlm_run_events *events)
{
    const struct options *o = m->d->options;
    rlm_error *err = NULL;
    m->signal_fd = signals_open();
    m->live = live_new(options_on(o, OPT_QUIET), options_text(o, OPT_LOG_FILE));
    if (m->signal_fd < 0 || !m->live) {
        return m->live ? EXIT_FAILED : EXIT_USAGE;
    }
    if (rlm_loop_new(&m->loop, &err) < 0) {
        return text_fail(err);
    }
    int code = m->d->replay ? name_models(m) : make_models(m);
    code = code ? code : find_python(m);
    code = code ? code : make_runtime(m);
    code = code ? code : make_flow(m);
    if (code) {
        return code;
    }
    if (m->d->replay) {
        return replay(m, events);
    }
    warn_of_spending(m);
    return m->d->resume ? resume(m, events) : start(m, events);
}

void machine_free(struct machine *m)
{
    rlm_run_free(m->run);
    rlm_flow_free(m->flow);
    approve_free(m->approve);
    rlm_runtime_free(m->runtime);
    rlm_model_free(m->child_model);
    rlm_model_free(m->model);
    rlm_loop_free(m->loop);
    live_free(m->live);
    free(m->python);
    if (m->signal_fd >= 0) {
        close(m->signal_fd);
    }
}
