/* The commands: each file cmd_NAME.c has one. */
#pragma once

#include "cli/options.h"
#include "rlmflow.h"

/* Goes on with a run (its path or name), with a follow-up if `query` is not empty. An exit code. */
int resume_run(struct options *o, const char *name, struct rlm_str query);

extern const struct command cmd_run, cmd_resume, cmd_replay, cmd_view, cmd_runs, cmd_demo,
    cmd_doctor, cmd_config, cmd_version;
