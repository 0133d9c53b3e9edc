/* What a replay found, as `rlmflow replay` tells it. */
#pragma once

#include "rlmflow.h"

#include <stdbool.h>

/* Says whether the run was the same again. Returns the exit code; cells that printed something else are
 * a difference unless `ignore_output`. */
int replay_report(const rlm_run *run, bool ignore_output);
