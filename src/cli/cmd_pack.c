/* pack and unpack: a run as one file. */
#include "cli/commands.h"
#include "cli/kept.h"
#include "cli/signals.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *export_target(const struct options *o)
{
    const char *path = options_text(o, OPT_TARGET);
    bool out = path && (strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/fd/1") == 0);
    return out ? "-" : path;
}

static char *part; /* a signal that ends the program removes it: of no use but to its handler */

void export_begin(const char *target)
{
    part = strcmp(target, "-") == 0 ? NULL : text_or_end(rlm_part_path(target));
    signals_end_program(part);
}

void export_done(void)
{
    signals_end_program(NULL);
    free(part);
    part = NULL;
}

int export_end(const char *target, rlm_error *err)
{
    export_done();
    if (err && strcmp(target, "-") == 0 && rlm_error_errno(err) == EPIPE) {
        rlm_error_free(err);
        putchar('\n'); /* the reader has gone; output_end knows what that means */
        return EXIT_FAILED;
    }
    if (err) {
        return text_fail(err);
    }
    if (strcmp(target, "-") != 0) {
        text_say("wrote %s", target);
    }
    return 0;
}

static int pack(struct options *o)
{
    const char *target = export_target(o);
    rlm_error *err = NULL;
    if (!target) {
        text_complain("pack: say where to with -o FILE (\"-\": stdout)");
        return EXIT_USAGE;
    }
    if (strcmp(target, "-") == 0 && isatty(1)) {
        text_complain("pack: a pack is no text for a terminal; say -o FILE");
        return EXIT_USAGE;
    }
    char *path = kept_find(o->arguments[0]);
    export_begin(target);
    rlm_run_pack(path, target, &err);
    free(path);
    return export_end(target, err);
}

static int unpack(struct options *o)
{
    const char *target = options_text(o, OPT_TARGET);
    rlm_error *err = NULL;
    if (!target) {
        text_complain("unpack: say where to with -o DIR, a path that does not exist");
        return EXIT_USAGE;
    }
    export_begin(target);
    rlm_run_unpack(o->arguments[0], target, &err);
    return export_end(target, err);
}

const struct command cmd_pack = {
    .name = "pack",
    .bit = FOR_PACK,
    .summary = "Packs a run into one file, to be kept or sent.",
    .usage = "RUN -o FILE",
    .description =
        "RUN is the path or the name of a kept run. FILE is a plain tar archive; \"-\" is stdout. The run's\n"
        "inputs, the texts of its agents and the settings it was started with are in it; keys are not.\n",
    .example = "  rlmflow pack run.rlm -o - | xz > run.tar.xz\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = pack,
};

const struct command cmd_unpack = {
    .name = "unpack",
    .bit = FOR_UNPACK,
    .summary = "Makes a pack a run again.",
    .usage = "FILE -o DIR",
    .description =
        "FILE may be \"-\", stdin. DIR must not exist yet. A file that is not the whole pack of a run is\n"
        "refused and leaves nothing behind, also if it has links, names that lead elsewhere or contents\n"
        "that are not what they should be.\n",
    .example = "  xz -d < run.tar.xz | rlmflow unpack - -o run.rlm\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = unpack,
};
