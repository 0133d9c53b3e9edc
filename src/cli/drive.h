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
    const char *schema;                       /* JSON, or NULL */
    const char *model_name;                   /* what people are told */
    const struct provider_settings *provider; /* for the models that the settings name */
    int (*make_model)(rlm_loop *loop, rlm_model **ret_model); /* NULL: the settings name it */
    const char *child_model_name; /* NULL: sub-agents use the same model */
    const char *resume; /* a run that goes on, with `query` if it has one; NULL: a new one */
    const char *replay; /* a run that is replayed, or NULL */
    enum rlm_restore_mode restore; /* of that */
    char *path; /* set by drive_run: where the run is kept; the caller frees it */
};

/* What --restore says; `ask` asks. */
enum rlm_restore_mode drive_restore_mode(const struct options *o);
/* Signals must be blocked (signals.h): here they are read. Returns an exit code. */
int drive_run(struct drive *d);
