/* `rlmflow run --from RUN@NODE`: a new run that begins with a piece of another. */
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/kept.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

int split_place(const char *text, char **ret_run, char **ret_node)
{
    const char *at = strrchr(text, '@');
    if (!at || at == text || !at[1]) {
        text_complain(
            "\"%s\" is no place: say RUN@NODE; NODE is a node's id, AGENT:SEQ or AGENT:turnN; "
            "`rlmflow view RUN --agent ID` lists them",
            text);
        return EXIT_USAGE;
    }
    char *name = text_format("%.*s", (int)(at - text), text);
    *ret_run = kept_find(name);
    *ret_node = text_copy(at + 1);
    free(name);
    return 0;
}

static int check_options(const struct options *o)
{
    static const enum option_id given[] = {OPT_CONTINUE, OPT_INPUT, OPT_SCHEMA};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (options_text(o, given[i])) {
            text_complain("--from goes on with what the run has: --%s cannot be given",
                          option_table[given[i]].name);
            return EXIT_USAGE;
        }
    }
    return 0;
}

/* Where the new run is kept: named by the new query, else by the old one. */
static int
choose_path(const struct options *o, const char *run, struct rlm_str query, char **ret_path)
{
    const char *path = options_text(o, OPT_OUTPUT);
    rlm_graph *root = NULL;
    rlm_error *err = NULL;
    if (path) {
        *ret_path = text_copy(path);
        return 0;
    }
    if (rlm_graph_load(run, &root, NULL, &err) < 0) {
        return text_fail(err);
    }
    int code = kept_new_path(query.len ? query : rlm_graph_query(root), ret_path);
    rlm_graph_free(root);
    return code;
}

int run_from(struct options *o, const char *from)
{
    struct rlm_str query = {NULL, 0};
    char *run = NULL, *node = NULL, *path = NULL;
    rlm_error *err = NULL;
    int code = check_options(o);
    if (code == 0 && o->n_arguments) {
        code = inputs_query(o->arguments[0], &query);
        if (code == 0 && !query.len) {
            text_complain("the query is empty; leave it away to go on without one");
            code = EXIT_USAGE;
        }
    }
    code = code ? code : split_place(from, &run, &node);
    code = code ? code : choose_path(o, run, query, &path);
    if (code == 0) {
        export_begin(path);
        rlm_run_fork(run, node, path, query, &err);
        export_done();
        code = err ? text_fail(err) : 0;
    }
    if (code == 0) {
        if (!options_on(o, OPT_QUIET)) {
            text_say("the new run is %s", path);
        }
        code = resume_run(o, path, (struct rlm_str){"", 0});
        if (code == EXIT_USAGE) {
            /* Nothing was done in it, and the next try may want its name. */
            rlm_run_remove(path, NULL);
        }
    }
    free((char *)(uintptr_t)query.ptr);
    free(path);
    free(node);
    free(run);
    return code;
}
