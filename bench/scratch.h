/* The directory of a benchmark's journaled run: a new one under TMPDIR, removed when the run is over. */
#pragma once

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char scratch_directory[4000], scratch_run[4096];

/* The path of a run that does not exist yet. */
static inline const char *scratch_path(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch_directory, sizeof scratch_directory, "%s/rlmflow-bench-XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch_directory)) {
        perror(scratch_directory);
        exit(1);
    }
    snprintf(scratch_run, sizeof scratch_run, "%s/run.rlm", scratch_directory);
    return scratch_run;
}

static inline int
scratch_remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static inline void scratch_remove(void)
{
    if (nftw(scratch_directory, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0) {
        perror(scratch_directory);
        exit(1);
    }
}
