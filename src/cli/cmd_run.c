#include "cli/commands.h"
#include "cli/drive.h"
#include "cli/inputs.h"
#include "cli/signals.h"
#include "cli/text.h"
#include "cli/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_MAX_BYTES = 16 << 20 };

/* The text is the caller's to free, also after a failure. */
static int read_schema(const struct options *o, const char **ret_schema)
{
    const char *path = options_text(o, OPT_SCHEMA);
    struct rlm_str text;
    if (!path) {
        return 0;
    }
    int problem = text_read_file(path, SCHEMA_MAX_BYTES, &text);
    if (problem == EFBIG) {
        char size[32];
        units_format_size(SCHEMA_MAX_BYTES, size, sizeof size);
        text_complain("--schema %s: it has more than %s", path, size);
    } else if (problem) {
        text_complain("--schema %s: %s", path, strerror(problem));
    }
    if (problem) {
        return problem == EFBIG ? EXIT_USAGE : text_exit_code_of_errno(problem);
    }
    *ret_schema = text.ptr;
    if (strlen(text.ptr) != text.len) {
        text_complain("--schema %s: the file is not JSON", path);
        return EXIT_USAGE;
    }
    return 0;
}

/* A follow-up to a run: what the task has, it has. */
static int run_on(struct options *o, const char *name)
{
    static const enum option_id given[] = {OPT_INPUT, OPT_SCHEMA, OPT_OUTPUT};
    struct rlm_str query = {0};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (options_text(o, given[i])) {
            text_complain("--continue goes on with a run as it is: --%s cannot be given",
                          option_table[given[i]].name);
            return EXIT_USAGE;
        }
    }
    int code = inputs_query(o->arguments[0], &query);
    if (code == 0 && !query.len) {
        text_complain("the follow-up is empty; say what shall be done next");
        code = EXIT_USAGE;
    }
    code = code ? code : resume_run(o, name, query);
    free((char *)(uintptr_t)query.ptr);
    return code;
}

static int run(struct options *o)
{
    if (options_text(o, OPT_FROM)) {
        return run_from(o, options_text(o, OPT_FROM));
    }
    if (o->n_arguments == 0) {
        text_complain("run: usage: rlmflow run QUERY [FLAG]... (see `rlmflow run --help`)");
        return EXIT_USAGE;
    }
    if (options_text(o, OPT_CONTINUE)) {
        return run_on(o, options_text(o, OPT_CONTINUE));
    }
    struct provider_settings provider = {0};
    struct drive d = {.options = o,
                      .model_name = options_text(o, OPT_MODEL),
                      .child_model_name = options_text(o, OPT_CHILD_MODEL),
                      .provider = &provider};
    struct rlm_input *inputs = NULL;
    if (!d.model_name) {
        text_complain(
            "no model is chosen: say --model NAME (or RLMFLOW_MODEL, or model = \"NAME\" in "
            "rlmflow.toml); to try without one: rlmflow demo");
        return EXIT_USAGE;
    }
    if (d.child_model_name && strcmp(d.child_model_name, d.model_name) == 0) {
        d.child_model_name = NULL;
    }
    int code = inputs_query(o->arguments[0], &d.query);
    code = code ? code : inputs_all(o, &inputs, &d.n_inputs);
    code = code ? code : read_schema(o, &d.schema);
    if (code == 0) {
        d.inputs = inputs;
        d.restore = drive_restore_mode(o);
        signals_block();
        models_take_environment(&provider);
        code = drive_run(&d);
    }
    models_forget(&provider);
    inputs_free(inputs, d.n_inputs);
    free((char *)(uintptr_t)d.query.ptr);
    free((char *)(uintptr_t)d.schema);
    free(d.path);
    return code;
}

const struct command cmd_run = {
    .name = "run",
    .bit = FOR_RUN,
    .summary = "Runs an agent on a task and prints its answer.",
    .usage = "QUERY [FLAG]...",
    .description =
        "QUERY is the task, @FILE that holds it, or - for stdin.\n"
        "\n"
        "The answer goes to stdout alone, everything else to stderr. Exit codes: 0 answered; 1 the run\n"
        "failed or hit a limit, or its answer could not be printed; 2 bad usage: what was given was refused\n"
        "before the first model call; 3 code waits for an approval (--approve); 130 interrupted.\n"
        "\n"
        "Keys come from OPENAI_API_KEY and ANTHROPIC_API_KEY; a local server needs none. Every flag but\n"
        "those of a single run can stand in the environment (RLMFLOW_MAX_DEPTH=3) or in rlmflow.toml\n"
        "(max_depth = 3). Numbers take k and M, times ms, s, m and h, sizes k, m and g.\n",
    .example = "  rlmflow run \"On which day were most packages installed?\" \\\n"
               "      --input log=@/var/log/dpkg.log \\\n"
               "      --model gpt-5-mini --max-cost 0.50 --max-time 10m\n",
    .min_arguments = 0, /* with --from */
    .max_arguments = 1,
    .run = run,
};
