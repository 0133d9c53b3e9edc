/* --collect: copies what agents wrote under their working directory. */
#pragma once

#include <stdbool.h>

typedef struct collect collect;

/* `target` must not exist or be empty; NULL: nothing is copied. `cwd` NULL: a fresh temporary directory is
 * made. 0, or an exit code after a complaint. */
int collect_new(const char *target, const char *cwd, collect **ret_collect);
/* The working directory for the sessions. */
const char *collect_directory(const collect *c);
/* The temporary directory that collect_free will remove, or NULL. */
const char *collect_temporary(const collect *c);
/* Copies files that are new or changed, but nothing of `run_path` (may be NULL). 0, or an exit code. */
int collect_finish(collect *c, const char *run_path);
/* Removes the temporary directory. NULL allowed. */
void collect_free(collect *c);
