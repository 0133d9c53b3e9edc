/* The demonstration: everything is real but the model, whose replies are a file (demo.script). */
#include "cli/commands.h"
#include "cli/drive.h"
#include "cli/program.h"
#include "cli/signals.h"
#include "cli/text.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern const char demo_script[];
extern const size_t demo_script_size;

static int make_model(rlm_loop *loop, rlm_model **ret_model)
{
    rlm_error *err = NULL;
    struct rlm_str script = {demo_script, demo_script_size};
    int r = rlm_model_new_script(loop, "demo", script, ret_model, &err);
    return r < 0 ? text_fail(err) : 0;
}

/* Lines to be pasted. */
static void say_what_next(const char *run)
{
    char *program = program_word(), *path = text_shell_word(run);
    text_say(
        "\nOnly the model's replies were scripted: the code, the sub-agents, their sessions, the\n"
        "limits and the recorded run are real.\n"
        "  look at it          %s view %s\n"
        "  one agent           %s view %s --agent root\n"
        "  with a real model   export OPENAI_API_KEY=...\n"
        "                      %s run \"On which day were most packages installed?\" \\\n"
        "                          --input log=@/var/log/dpkg.log --model gpt-5-mini --max-cost 0.50\n"
        "  what is missing     %s doctor",
        program, path, program, path, program, program);
    free(path);
    free(program);
}

/* Whether a line of the file begins with License: */
static bool names_a_licence(FILE *file)
{
    static const char word[] = "License:";
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    while (!found && getline(&line, &size, file) >= 0) {
        found = strncmp(line, word, sizeof word - 1) == 0;
    }
    free(line);
    return found;
}

/* Whether there is something to count, so that nothing runs for nothing. */
static bool has_licences(const char *directory)
{
    DIR *dir = opendir(directory);
    size_t files = 0;
    bool found = false;
    for (const struct dirent *entry; dir && !found && (entry = readdir(dir)) != NULL;) {
        char *path = text_format("%s/%s/copyright", directory, entry->d_name);
        struct stat st;
        FILE *file = entry->d_name[0] != '.' && stat(path, &st) == 0 && S_ISREG(st.st_mode)
                         ? fopen(path, "re")
                         : NULL;
        if (file) {
            files++;
            found = names_a_licence(file);
            fclose(file);
        }
        free(path);
    }
    if (dir) {
        closedir(dir);
    }
    if (!found && files) {
        text_complain(
            "demo: there is nothing to count: no line of the files %s/*/copyright begins with "
            "License:",
            directory);
    } else if (!found) {
        text_complain(
            "demo: there is nothing to count: no file %s/*/copyright can be read; say rlmflow "
            "demo DIR with such files in it",
            directory);
    }
    return found;
}

static int run(struct options *o)
{
    static const char query[] =
        "Which licences do the copyright files of the packages in `directory` "
        "name, and how often?";
    const char *directory = o->n_arguments ? o->arguments[0] : "/usr/share/doc";
    char *path = realpath(directory, NULL);
    struct stat st;
    if (!path || stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
        text_complain("demo: %s is no directory: say rlmflow demo DIR with DIR/*/copyright in it",
                      directory);
        free(path);
        return EXIT_USAGE;
    }
    struct rlm_input input = {
        .name = "directory", .kind = RLM_INPUT_TEXT, .value = {path, strlen(path)}};
    struct drive d = {.options = o,
                      .query = {query, sizeof query - 1},
                      .inputs = &input,
                      .n_inputs = 1,
                      .model_name = "script:demo",
                      .make_model = make_model};
    struct provider_settings unused = {0};
    if (text_bad_offset(input.value) >= 0) {
        text_complain("demo: the name of the directory is not UTF-8");
        free(path);
        return EXIT_USAGE;
    }
    if (!has_licences(path)) {
        free(path);
        return EXIT_USAGE;
    }
    signals_block();
    models_take_environment(&unused); /* no session needs keys, so none may see them */
    models_forget(&unused);
    int code = drive_run(&d);
    if (code == 0 && !options_on(o, OPT_QUIET)) {
        say_what_next(d.path);
    }
    free(d.path);
    free(path);
    return code;
}

const struct command cmd_demo = {
    .name = "demo",
    .bit = FOR_DEMO,
    .summary = "Runs a recursive job over real files with a scripted model: no key needed.",
    .usage = "[DIR] [FLAG]...",
    .description =
        "Counts the licences that DIR/*/copyright name (DIR: /usr/share/doc): the root gives each of four\n"
        "sub-agents a share of the files, adds what they counted, checks the sum and answers.\n",
    .example = "  rlmflow demo\n",
    .max_arguments = 1,
    .run = run,
};
