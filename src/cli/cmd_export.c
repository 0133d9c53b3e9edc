/* export: a run in other forms. */
#include "cli/commands.h"
#include "cli/kept.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

static int run(struct options *o)
{
    static const struct {
        const char *name;
        enum rlm_export_format format;
    } formats[] = {{"json", RLM_EXPORT_JSON},
                   {"sqlite", RLM_EXPORT_SQLITE},
                   {"rlmflow-python", RLM_EXPORT_PYTHON}};
    const char *target = export_target(o);
    enum rlm_export_format format = RLM_EXPORT_JSON;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(options_text(o, OPT_FORMAT), formats[i].name) == 0) {
            format = formats[i].format;
        }
    }
    if (!target && format != RLM_EXPORT_JSON) {
        text_complain("export: say where to with -o PATH, which does not exist");
        return EXIT_USAGE;
    }
    if (!target) {
        target = "-";
    }
    rlm_error *err = NULL;
    char *path = kept_find(o->arguments[0]), *note = NULL;
    export_begin(target);
    rlm_run_export(path, format, target, &note, &err);
    if (note) {
        text_say("note: %s", note);
    }
    free(note);
    free(path);
    return export_end(target, err);
}

const struct command cmd_export = {
    .name = "export",
    .bit = FOR_EXPORT,
    .summary = "Writes a run as JSON, as an SQLite database, or as the Python project saves it.",
    .usage = "RUN [--format FORMAT] [-o PATH]",
    .description =
        "RUN is the path or the name of a kept run. JSON goes to stdout unless -o says otherwise. Of a\n"
        "damaged run what can be read is written, and stderr says what is missing. docs/runs.md has the\n"
        "formats. What is exported can be looked at and queried, not resumed; for that there is `pack`.\n",
    .example = "  rlmflow export run.rlm --format sqlite -o run.db\n"
               "  sqlite3 run.db \"SELECT agent_id, SUM(cost_nano) / 1e9 FROM usage\n"
               "      WHERE kind != 'open' GROUP BY 1\"\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
