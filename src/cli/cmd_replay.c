#include "cli/commands.h"
#include "cli/drive.h"
#include "cli/kept.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

static int run(struct options *o)
{
    struct provider_settings unused = {0};
    char *path = kept_find(o->arguments[0]);
    int code = options_take_kept(o, path);
    struct drive d = {.options = o, .replay = path, .model_name = options_text(o, OPT_MODEL)};
    d.child_model_name = options_text(o, OPT_CHILD_MODEL);
    if (d.child_model_name && d.model_name && strcmp(d.child_model_name, d.model_name) == 0) {
        d.child_model_name = NULL;
    }
    if (code == 0) {
        signals_block();
        models_take_environment(&unused); /* nothing needs keys, so no session may see them */
        code = drive_run(&d);
    }
    models_forget(&unused);
    free(d.path);
    free(path);
    return code;
}

const struct command cmd_replay = {
    .name = "replay",
    .bit = FOR_REPLAY,
    .summary = "Runs a recorded run again without a model and compares every step.",
    .usage = "RUN [FLAG]...",
    .description =
        "RUN is the path or the name of a kept run; it is only read. No model is asked, no tool is\n"
        "called and no file of an input is read: replies and answers are those of the record. Prompts,\n"
        "the code in replies, the launching of sub-agents and every step are computed again.\n"
        "\n"
        "Exit codes: 0 all is as recorded; 1 something differs (the first difference is shown), or the\n"
        "replay failed; 2 bad usage.\n",
    .example = "  rlmflow replay errors-in-the-log --execute\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
