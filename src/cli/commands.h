/* The commands: each file cmd_NAME.c has one. */
#pragma once

#include "cli/options.h"
#include "rlmflow.h"

/* Goes on with a run (its path or name), with a follow-up if `query` is not empty. An exit code. */
int resume_run(struct options *o, const char *name, struct rlm_str query);

/* `rlmflow run --from`: `from` is RUN@NODE. An exit code. */
int run_from(struct options *o, const char *from);
/* Splits RUN@NODE at its last "@"; the caller frees both. 0, or an exit code after a complaint. */
int split_place(const char *text, char **ret_run, char **ret_node);

/* Where -o leads; stdout by whatever name is "-"; NULL: it was not given. */
const char *export_target(const struct options *o);
/* Before something is written there: if a signal ends the program meanwhile, nothing of it is left. */
void export_begin(const char *target);
void export_done(void);
/* That, and the exit code after it; takes the error, or NULL. */
int export_end(const char *target, rlm_error *err);

extern const struct command cmd_run, cmd_resume, cmd_replay, cmd_rewind, cmd_view, cmd_runs,
    cmd_export, cmd_pack, cmd_unpack, cmd_demo, cmd_doctor, cmd_config, cmd_version;
