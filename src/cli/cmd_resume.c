#include "cli/commands.h"
#include "cli/drive.h"
#include "cli/kept.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static enum rlm_restore_mode restore_mode(const struct options *o)
{
    const char *word = options_text(o, OPT_RESTORE);
    return strcmp(word, "replay") == 0  ? RLM_RESTORE_REPLAY
           : strcmp(word, "fresh") == 0 ? RLM_RESTORE_FRESH
           : strcmp(word, "ask") == 0   ? ask_person()
                                        : RLM_RESTORE_AUTO;
}

static int run(struct options *o)
{
    struct provider_settings provider = {0};
    char *path = kept_find(o->arguments[0]);
    int code = options_take_kept(o, path);
    struct drive d = {.options = o,
                      .resume = path,
                      .provider = &provider,
                      .model_name = options_text(o, OPT_MODEL),
                      .child_model_name = options_text(o, OPT_CHILD_MODEL)};
    if (code == 0 && !d.model_name) {
        text_complain("the run does not say with which model it was made: say --model NAME");
        code = EXIT_USAGE;
    }
    if (d.child_model_name && d.model_name && strcmp(d.child_model_name, d.model_name) == 0) {
        d.child_model_name = NULL;
    }
    if (code == 0) {
        d.restore = restore_mode(o);
        drive_block_signals();
        models_take_environment(&provider);
        code = drive_run(&d);
    }
    free(d.path);
    free(path);
    return code;
}

const struct command cmd_resume = {
    .name = "resume",
    .bit = FOR_RESUME,
    .summary = "Goes on with a run that was stopped, killed or ended by a limit.",
    .usage = "RUN [FLAG]...",
    .description =
        "RUN is the path or the name of a kept run. Nothing that was paid for is bought again: replies,\n"
        "sub-agents and answered calls are used as they were recorded. Settings are those of the run\n"
        "unless they are given anew; keys and headers are not recorded.\n"
        "\n"
        "Exit codes are those of `rlmflow run`.\n",
    .example = "  rlmflow resume errors-in-the-log --max-budget 500k\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
