#include "cli/drive.h"

#include "cli/approve.h"
#include "cli/collect.h"
#include "cli/json_out.h"
#include "cli/kept.h"
#include "cli/live.h"
#include "cli/output.h"
#include "cli/program.h"
#include "cli/python.h"
#include "cli/replay_report.h"
#include "cli/text.h"
#include "cli/units.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A stop that takes longer than this is cut short: people were promised two seconds. */
enum { STOP_MS = 1500 };

/* Everything that lives as long as the run; made and freed in this order. */
struct machine {
    struct drive *d;
    rlm_loop *loop;
    collect *collect;
    rlm_model *model, *child_model;
    rlm_runtime *runtime;
    approve *approve;
    rlm_flow *flow;
    rlm_run *run;
    live *live;
    char *python;
    int signal_fd;
    bool interrupted;
    int64_t stopped_at_ms; /* by live_elapsed_ms */
    bool json;
    bool stdout_gone;
};

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

void drive_block_signals(void)
{
    sigset_t set;
    signal_set(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

/* At once: the kernel ends the sessions, since each is told to die with its parent. */
static void leave(struct machine *m)
{
    collect_free(m->collect);
    _exit(EXIT_INTERRUPTED);
}

/* For a signal handler, which gets no argument of ours: what is still to be removed. */
static const char *left_behind;

static void interrupted_while_ending(int signal)
{
    pid_t pid = left_behind ? fork() : -1;
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", "--", left_behind, (char *)NULL);
        _exit(1);
    }
    if (pid > 0) {
        waitpid(pid, NULL, 0);
    }
    _exit(EXIT_INTERRUPTED);
}

/* What comes after the run has no loop to read signals; one ends the program then, and so does time when
 * the run was interrupted: it may wait for a large file that is being read. */
static void end_on_signals(struct machine *m)
{
    struct itimerval limit = {.it_value = {STOP_MS / 1000, STOP_MS % 1000 * 1000}};
    sigset_t set;
    struct sigaction end = {.sa_handler = interrupted_while_ending};
    signal_set(&set);
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    sigaction(SIGALRM, &end, NULL);
    left_behind = m->collect ? collect_temporary(m->collect) : NULL;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    if (m->interrupted) {
        setitimer(ITIMER_REAL, &limit, NULL);
    }
}

static void read_signals(struct machine *m)
{
    struct signalfd_siginfo info;
    while (read(m->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (m->interrupted) {
            leave(m);
        }
        m->interrupted = true;
        m->stopped_at_ms = live_elapsed_ms(m->live);
        rlm_run_stop(m->run);
    }
}

/* A reader that has gone wants no more of the run, which ends as with Ctrl-C. A full disk takes nothing
 * of what is being paid for: the run goes on, and its journal has all of it. */
static void look_at_stdout(struct machine *m)
{
    if (m->stdout_gone || !output_failed()) {
        return;
    }
    const char *problem = output_problem();
    m->stdout_gone = true;
    if (problem) {
        text_complain("writing to stdout: %s%s", problem,
                      rlm_run_has_ended(m->run) ? "" : "; the run goes on");
    } else {
        rlm_run_stop(m->run);
    }
}

static void on_event(void *arg, rlm_run *run, const struct rlm_event *event)
{
    struct machine *m = arg;
    live_event(m->live, run, event);
    if (m->json && !m->stdout_gone) {
        /* A run that goes on has a past: the lines make its graph too. */
        if (event->type == RLM_EVENT_GRAPH_CREATED) {
            json_out_tree(event->graph);
        } else {
            json_out_event(event);
        }
    }
}

/* Asks on the terminal; where there is none the safe answer stands. */
static enum rlm_restore_mode ask_person(void)
{
    FILE *terminal = fopen("/dev/tty", "r+");
    char line[80] = "";
    if (!terminal) {
        text_say("--restore ask: there is no terminal to ask on; sessions start anew");
        return RLM_RESTORE_FRESH;
    }
    while (line[0] != 'r' && line[0] != 'f') {
        fprintf(terminal,
                "The run's code may have changed things outside its session. Run it again to "
                "get its variables back [r], or go on without them [f]? ");
        fflush(terminal);
        if (!fgets(line, sizeof line, terminal)) {
            break;
        }
    }
    fclose(terminal);
    return line[0] == 'r' ? RLM_RESTORE_REPLAY : RLM_RESTORE_FRESH;
}

enum rlm_restore_mode drive_restore_mode(const struct options *o)
{
    const char *word = options_text(o, OPT_RESTORE);
    return strcmp(word, "replay") == 0  ? RLM_RESTORE_REPLAY
           : strcmp(word, "fresh") == 0 ? RLM_RESTORE_FRESH
           : strcmp(word, "ask") == 0   ? ask_person()
                                        : RLM_RESTORE_AUTO;
}

/* ---- making ---- */

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
    sigset_t set;
    signal_set(&set);
    /* A script may be a pipe that nobody writes. Nothing is there yet that a signal could leave behind. */
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    int code = d->make_model
                   ? d->make_model(m->loop, &m->model)
                   : models_new(m->loop, d->options, d->provider, d->model_name, &m->model);
    if (code == 0 && d->child_model_name) {
        code = models_new(m->loop, d->options, d->provider, d->child_model_name, &m->child_model);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return code;
}

/* What a session would find out only after the first reply of the model. */
static int check_session(struct machine *m)
{
    const struct options *o = m->d->options;
    const char *name = options_text(o, OPT_PYTHON), *cwd = options_text(o, OPT_CWD);
    m->python = python_find(name);
    if (!m->python) {
        text_complain("--python %s: %s%s", name, strerror(errno),
                      strchr(name, '/') ? "" : " (in PATH)");
        return EXIT_USAGE;
    }
    bool runs_code = !m->d->replay || options_on(o, OPT_EXECUTE);
    char *here = cwd || !runs_code ? NULL : getcwd(NULL, 0);
    if (!cwd && runs_code && !here) {
        text_complain("the working directory: %s; go to another one or say --cwd DIR",
                      strerror(errno));
        return EXIT_USAGE;
    }
    free(here);
    if (cwd && runs_code && access(cwd, X_OK) < 0) {
        text_complain("--cwd %s: %s", cwd, strerror(errno));
        return EXIT_USAGE;
    }
    return 0;
}

static int make_runtime(struct machine *m)
{
    const struct options *o = m->d->options;
    struct rlm_subprocess_options s = RLM_SUBPROCESS_OPTIONS_INIT;
    rlm_error *err = NULL;
    const char *cwd = options_text(o, OPT_CWD), *target = options_text(o, OPT_COLLECT);
    if (target) {
        int code = collect_new(target, cwd, &m->collect);
        if (code != 0) {
            return code;
        }
        cwd = collect_directory(m->collect);
    }
    if (m->d->replay && !options_on(o, OPT_EXECUTE)) {
        cwd = NULL; /* no code runs: it need not be there any more */
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

static const struct rlm_run_events events = {.event = on_event};

static int resume(struct machine *m)
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
    int code = rlm_flow_resume(m->flow, &r, &events, m, &m->run, &err) < 0 ? text_fail(err) : 0;
    free(program);
    return code;
}

static int replay(struct machine *m)
{
    struct drive *d = m->d;
    struct rlm_replay_options r = RLM_REPLAY_OPTIONS_INIT;
    rlm_error *err = NULL;
    d->path = text_copy(d->replay);
    r.journal = d->path;
    r.execute = options_on(d->options, OPT_EXECUTE);
    return rlm_flow_replay(m->flow, &r, &events, m, &m->run, &err) < 0 ? text_fail(err) : 0;
}

static int start(struct machine *m)
{
    struct drive *d = m->d;
    const struct options *o = d->options;
    struct rlm_run_options r = RLM_RUN_OPTIONS_INIT;
    rlm_error *err = NULL;
    const char *path = options_text(o, OPT_OUTPUT);
    if (path) {
        d->path = text_copy(path);
    } else {
        int code = kept_new_path(d->query, &d->path);
        if (code != 0) {
            return code;
        }
    }
    r.query = d->query;
    r.inputs = d->inputs;
    r.n_inputs = d->n_inputs;
    r.output_schema = d->schema;
    r.journal = d->path;
    r.sync = options_on(o, OPT_SYNC);
    r.restore = d->restore;
    char *program = options_kept(o);
    r.program = program;
    int code = rlm_run_start(m->flow, &r, &events, m, &m->run, &err) < 0 ? text_fail(err) : 0;
    free(program);
    return code;
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

/* ---- running ---- */

static int least_timeout(int a, int b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

static int turn(struct machine *m)
{
    struct pollfd fds[3] = {{.fd = rlm_loop_fd(m->loop), .events = POLLIN},
                            {.fd = m->signal_fd, .events = POLLIN}};
    int timeout, n_fds = 2 + approve_poll(m->approve, &fds[2], &timeout);
    timeout = least_timeout(rlm_loop_timeout(m->loop), timeout);
    if (!approve_is_asking(m->approve)) {
        timeout = least_timeout(timeout, live_timeout(m->live));
    }
    if (m->interrupted) {
        timeout = least_timeout(timeout, STOP_MS);
        if (live_elapsed_ms(m->live) - m->stopped_at_ms >= STOP_MS) {
            leave(m);
        }
    }
    if (poll(fds, (nfds_t)n_fds, timeout) < 0 && errno != EINTR) {
        text_complain("waiting for events: %s", strerror(errno));
        return EXIT_FAILED;
    }
    if (fds[1].revents) {
        read_signals(m);
    }
    rlm_loop_dispatch(m->loop);
    bool asked = approve_is_asking(m->approve);
    if (approve_tick(m->approve) || asked) {
        live_move_on(m->live);
    }
    if (!approve_is_asking(m->approve)) {
        live_tick(m->live, m->run);
    }
    if (m->json) {
        look_at_stdout(m);
    }
    return 0;
}

static void print_answer(struct machine *m)
{
    struct rlm_str answer = rlm_run_answer(m->run);
    const char *reason = rlm_run_reason(m->run);
    bool answered = strcmp(reason, "answered") == 0;
    if (m->stdout_gone) {
        return;
    }
    if (m->json) {
        struct rlm_usage usage = rlm_run_usage(m->run);
        const rlm_graph *root = rlm_run_graph(m->run);
        json_out_result(answered ? &answer : NULL, reason, &usage,
                        root ? rlm_graph_agent_count(root) : 0, m->d->path);
    } else if (answered) {
        fwrite(answer.ptr, 1, answer.len, stdout);
        fputc('\n', stdout);
    }
    look_at_stdout(m);
}

/* Why the run is not where it was to be kept, or NULL: its own code, or somebody else, can remove what is
 * being written. */
static rlm_error *find_loss(const struct machine *m)
{
    rlm_error *err = NULL;
    return rlm_run_graph(m->run) && rlm_run_check_kept(m->run, &err) < 0 ? err : NULL;
}

static void print_summary(struct machine *m, bool kept)
{
    struct rlm_usage usage = rlm_run_usage(m->run);
    const rlm_graph *root = rlm_run_graph(m->run);
    size_t agents = root ? rlm_graph_agent_count(root) : 0;
    char elapsed[32], size[32], cost[40] = "";
    if (options_on(m->d->options, OPT_QUIET)) {
        return;
    }
    units_format_time(live_elapsed_ms(m->live), elapsed, sizeof elapsed);
    units_format_size(rlm_run_disk_bytes(m->run), size, sizeof size);
    if (usage.cost_nano > 0) {
        snprintf(cost, sizeof cost, ", $%.4f", (double)usage.cost_nano / 1e9);
    }
    text_say("%s: %zu agent%s, %" PRId64 " call%s, %" PRId64 " tokens in, %" PRId64 " out%s, %s",
             rlm_run_reason(m->run), agents, agents == 1 ? "" : "s", usage.calls,
             usage.calls == 1 ? "" : "s", usage.input_tokens, usage.output_tokens, cost, elapsed);
    if (root && kept) {
        text_say("kept in %s (%s on disk)", m->d->path, size);
    }
}

/* To be pasted. */
static char *run_command(const char *command, const char *path)
{
    char *program = program_word(), *word = text_shell_word(path);
    char *text = text_format("%s %s %s", program, command, word);
    free(program);
    free(word);
    return text;
}

/* A run that a limit ended goes on when there is more of it. */
static void say_what_raises(const char *reason, const char *path)
{
    static const struct {
        const char *reason;
        enum option_id limit;
    } limits[] = {{"max_iters", OPT_MAX_ITERS},
                  {"budget", OPT_MAX_BUDGET},
                  {"cost", OPT_MAX_COST},
                  {"time", OPT_MAX_TIME}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (strcmp(reason, limits[i].reason) == 0) {
            const struct option *option = &option_table[limits[i].limit];
            char *command = run_command("resume", path);
            text_say("to go on with a higher limit: %s --%s %s", command, option->name,
                     option->argument);
            free(command);
        }
    }
}

static int exit_code(struct machine *m)
{
    const char *reason = rlm_run_reason(m->run), *message = rlm_run_message(m->run);
    const rlm_error *error = rlm_run_error(m->run);
    const rlm_graph *root = rlm_run_graph(m->run);
    bool answered = strcmp(reason, "answered") == 0;
    /* Of a reader that has gone nothing is said: it may have wanted only the first lines. */
    const char *problem = m->stdout_gone ? output_problem() : NULL;
    if (problem && root) {
        char *command = run_command("view", m->d->path);
        text_complain("%s stands in the run: %s", answered ? "the answer" : "what was not printed",
                      command);
        free(command);
    }
    if (answered) {
        return m->stdout_gone ? EXIT_FAILED : EXIT_ANSWERED;
    }
    if (m->interrupted) {
        char *shown = root ? run_command("resume", m->d->path) : text_copy(m->d->path);
        text_complain(root ? "interrupted; go on with: %s"
                           : "interrupted while the inputs were taken in; %s is not kept",
                      shown);
        free(shown);
        return EXIT_INTERRUPTED;
    }
    if (strcmp(reason, "awaiting_approval") == 0) {
        char *command = run_command("resume", m->d->path);
        text_complain("%s; to be asked, go on with: %s", message, command);
        free(command);
        return EXIT_AWAITING;
    }
    if (m->stdout_gone && !problem) {
        return EXIT_FAILED; /* stopped for want of a reader */
    }
    text_complain("no answer: %s%s%s", reason, *message ? ": " : "", message);
    if (root && !options_on(m->d->options, OPT_QUIET)) {
        say_what_raises(reason, m->d->path);
    }
    /* Without a graph it was refused before anybody was asked. */
    return error && !root ? text_exit_code(error) : EXIT_FAILED;
}

static int run_to_the_end(struct machine *m)
{
    int code = 0;
    while (code == 0 && !rlm_run_has_ended(m->run)) {
        code = turn(m);
    }
    live_end(m->live, m->run);
    if (code == 0 && m->d->replay) {
        return m->interrupted ? EXIT_INTERRUPTED
                              : replay_report(m->run, options_on(m->d->options, OPT_IGNORE_OUTPUT));
    }
    if (code == 0) {
        rlm_error *loss = find_loss(m);
        print_answer(m);
        print_summary(m, !loss);
        if (loss) {
            text_complain("%s", rlm_error_message(loss));
        }
        code = exit_code(m);
        code = code == EXIT_ANSWERED && loss ? EXIT_FAILED : code;
        rlm_error_free(loss);
    }
    return code;
}

static int make_and_run(struct machine *m)
{
    const struct options *o = m->d->options;
    sigset_t set;
    rlm_error *err = NULL;
    signal_set(&set);
    m->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    m->live = live_new(options_on(o, OPT_QUIET), options_text(o, OPT_LOG_FILE));
    if (m->signal_fd < 0 || !m->live) {
        return m->live ? EXIT_FAILED : EXIT_USAGE;
    }
    if (rlm_loop_new(&m->loop, &err) < 0) {
        return text_fail(err);
    }
    int code = m->d->replay ? name_models(m) : make_models(m);
    code = code ? code : check_session(m);
    code = code ? code : make_runtime(m);
    code = code ? code : make_flow(m);
    if (code == 0 && !m->d->replay) {
        warn_of_spending(m);
    }
    if (code == 0) {
        code = m->d->replay ? replay(m) : m->d->resume ? resume(m) : start(m);
    }
    return code ? code : run_to_the_end(m);
}

int drive_run(struct drive *d)
{
    struct machine m = {.d = d, .signal_fd = -1, .json = options_on(d->options, OPT_JSON)};
    int code = make_and_run(&m);
    bool ran = m.run != NULL;
    end_on_signals(&m);
    rlm_run_free(m.run);
    rlm_flow_free(m.flow);
    approve_free(m.approve);
    rlm_runtime_free(m.runtime);
    rlm_model_free(m.child_model);
    rlm_model_free(m.model);
    rlm_loop_free(m.loop);
    live_free(m.live);
    free(m.python);
    if (m.signal_fd >= 0) {
        close(m.signal_fd);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    if (ran && m.collect) {
        int problem = collect_finish(m.collect, d->path);
        code = code ? code : problem;
    }
    left_behind = NULL;
    collect_free(m.collect);
    if (ran) {
        kept_warn();
    }
    return code;
}
