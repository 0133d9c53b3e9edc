/* One run from its start to its end: signals, progress, answer, what is kept. */
#pragma once

#include "cli/models.h"
#include "cli/options.h"
#include "rlmflow.h"

struct drive {
    const struct options *options;
    struct rlm_str query;
    const struct rlm_input *inputs;
    size_t n_inputs;
    const char *schema;     /* JSON, or NULL */
    const char *model_name; /* what people are told */
    int (*make_model)(rlm_loop *loop, void *arg, rlm_model **ret_model);
    int (*make_child_model)(rlm_loop *loop, void *arg, rlm_model **ret_model);
    void *arg;
    const char *child_model_name; /* NULL: sub-agents use the same model */
    char *path;                   /* set by drive_run: where the run is kept; the caller frees it */
};

/* From here on SIGINT, SIGTERM and SIGHUP are read by drive_run. Before any thread is started. */
void drive_block_signals(void);
/* Returns an exit code. */
int drive_run(struct drive *d);
