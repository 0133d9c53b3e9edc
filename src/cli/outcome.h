/* What is said when a run has ended, on stdout and stderr, and the exit code that goes with it. Of a replay:
 * replay_report.h. */
#pragma once

#include "cli/machine.h"

/* Returns an exit code. */
int outcome_report(struct machine *m);
/* A reader that has gone wants no more of the run, which ends as with Ctrl-C. A full disk takes nothing of
 * what is being paid for: the run goes on, and its journal has all of it. */
void outcome_look_at_stdout(struct machine *m);
