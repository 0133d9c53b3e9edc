#include "cli/outcome.h"

#include "cli/json_out.h"
#include "cli/output.h"
#include "cli/program.h"
#include "cli/text.h"
#include "cli/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void outcome_look_at_stdout(struct machine *m)
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
    outcome_look_at_stdout(m);
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

/* The message of a limit of turns is a sentence that says all; others explain the reason. */
static void say_why(const char *reason, const char *message)
{
    static const char all[] = "no answer";
    if (strncmp(message, all, strlen(all)) == 0) {
        text_complain("%s", message);
    } else {
        text_complain("%s: %s%s%s", all, reason, *message ? ": " : "", message);
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
    say_why(reason, message);
    if (root && !options_on(m->d->options, OPT_QUIET)) {
        say_what_raises(reason, m->d->path);
    }
    /* Without a graph it was refused before anybody was asked. */
    return error && !root ? text_exit_code(error) : EXIT_FAILED;
}

int outcome_report(struct machine *m)
{
    rlm_error *loss = find_loss(m);
    print_answer(m);
    print_summary(m, !loss);
    if (loss) {
        text_complain("%s", rlm_error_message(loss));
    }
    int code = exit_code(m);
    code = code == EXIT_ANSWERED && loss ? EXIT_FAILED : code;
    rlm_error_free(loss);
    return code;
}
