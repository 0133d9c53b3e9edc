/* Runs that are kept under the user's state directory. */
#pragma once

#include "rlmflow.h"

/* $XDG_STATE_HOME/rlmflow/runs, default ~/.local/state/rlmflow/runs; NULL when neither is known. */
char *kept_directory(void);
/* Makes that directory (0700) and a path in it that does not exist yet, named by the time and a word of
 * the query. 0, or an exit code after a complaint. */
int kept_new_path(struct rlm_str query, char **ret_path);
/* The path of a run that is named: a path that exists, or the name of a kept run. */
char *kept_find(const char *name);

struct kept_run {
    char *name, *path;
    struct rlm_run_glance glance;
};
struct kept_runs {
    struct kept_run *items; /* what was written to last is first */
    size_t n;
    uint64_t bytes;
    char *directory;
};
/* Looks at all kept runs. One that cannot be looked at is listed as damaged. 0, or an exit code after a
 * complaint; then nothing is to be freed. */
int kept_list(struct kept_runs *ret_runs);
void kept_list_free(struct kept_runs *runs);

struct kept_sum {
    size_t runs;
    uint64_t bytes; /* of the files' sizes */
    char *largest;  /* path of the largest run, or NULL */
    uint64_t largest_bytes;
};
void kept_measure(struct kept_sum *ret_sum);
/* A warning on stderr when all kept runs pass 10 GiB. */
void kept_warn(void);
