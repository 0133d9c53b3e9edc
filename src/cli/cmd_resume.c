#include "cli/commands.h"
#include "cli/drive.h"
#include "cli/kept.h"
#include "cli/signals.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

int resume_run(struct options *o, const char *name, struct rlm_str query)
{
    struct provider_settings provider = {0};
    char *path = kept_find(name);
    int code = options_take_kept(o, path);
    struct drive d = {.options = o,
                      .resume = path,
                      .query = query,
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
        d.restore = drive_restore_mode(o);
        signals_block();
        models_take_environment(&provider);
        code = drive_run(&d);
    }
    models_forget(&provider);
    free(d.path);
    free(path);
    return code;
}

static int run(struct options *o)
{
    return resume_run(o, o->arguments[0], (struct rlm_str){"", 0});
}

const struct command cmd_resume = {
    .name = "resume",
    .bit = FOR_RESUME,
    .summary = "Goes on with a run that was stopped, killed or ended by a limit.",
    .usage = "RUN [FLAG]...",
    .description =
        "RUN is the path or the name of a kept run. Nothing that was paid for is bought again: replies,\n"
        "sub-agents and answered calls are used as they were recorded. Settings are those of the run\n"
        "unless they are given anew; keys and headers are not recorded. Whether a session gets its\n"
        "variables back is what --restore says.\n"
        "\n"
        "Exit codes are those of `rlmflow run`.\n",
    .example = "  rlmflow resume errors-in-the-log --max-budget 500k\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
