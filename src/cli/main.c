/* The rlmflow program: finds the command, reads its settings, runs it. */
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static const struct command *const commands[] = {
    &cmd_run,  &cmd_resume, &cmd_replay, &cmd_rewind, &cmd_view,   &cmd_runs,    &cmd_export,
    &cmd_pack, &cmd_unpack, &cmd_demo,   &cmd_doctor, &cmd_config, &cmd_version,
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_overview(FILE *to)
{
    fprintf(to, "rlmflow COMMAND ...: agents that write Python, with sub-agents\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        options_print_summary(to, commands[i]->name, commands[i]->summary);
    }
    fprintf(to, "\nExample, without a model or a key:\n  rlmflow demo\n"
                "\n`rlmflow COMMAND --help` says how a command is used.\n");
}

static const struct command *find_command(const char *name)
{
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i]->name;
        if (strcmp(name, names[i]) == 0) {
            return commands[i];
        }
    }
    const char *near = options_nearest(name, names, N_COMMANDS);
    if (near) {
        text_complain("there is no command \"%s\"; did you mean \"%s\"?", name, near);
    } else {
        text_complain("there is no command \"%s\"; `rlmflow --help` lists them", name);
    }
    return NULL;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    struct options *options = text_allocate(sizeof *options);
    int code = options_parse(command, argc, argv, options);
    if (code < 0) {
        options_print_help(stdout, command);
        code = 0;
    } else if (code == 0) {
        code = command->run(options);
    }
    options_free(options);
    return code;
}

static int run_words(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    bool help = word && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
                         strcmp(word, "help") == 0);
    if (!word) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    if (help && argc == 2) {
        print_overview(stdout);
        return 0;
    }
    if (strcmp(word, "--version") == 0) {
        word = "version";
    }
    const struct command *command = find_command(help ? argv[2] : word);
    if (!command) {
        return EXIT_USAGE;
    }
    if (help) {
        options_print_help(stdout, command);
        return 0;
    }
    return run_command(command, argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
    output_begin();
    /* Other processes of the user must not read keys from our memory. */
    prctl(PR_SET_DUMPABLE, 0);
    return output_end(run_words(argc, argv));
}
