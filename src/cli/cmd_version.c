#include "cli/commands.h"
#include "cli/text.h"

#include <string.h>

static int run(struct options *o)
{
    printf("rlmflow %s\n", RLM_VERSION);
    if (strcmp(RLM_VERSION, rlm_version()) != 0) {
        printf("library %s\n", rlm_version());
    }
    return 0;
}

const struct command cmd_version = {
    .name = "version",
    .bit = FOR_VERSION,
    .summary = "Prints the version.",
    .usage = "",
    .example = "  rlmflow version\n",
    .run = run,
};
