/* What a run of the program is made of, out of its settings: loop, models, runtime, flow, the run itself. */
#pragma once

#include "cli/approve.h"
#include "cli/collect.h"
#include "cli/drive.h"
#include "cli/live.h"

/* Everything that lives as long as the run; made and freed in this order. */
struct machine {
    struct drive *d;
    rlm_loop *loop;
    collect *collect;
    rlm_model *model, *child_model;
    rlm_runtime *runtime;
    approve *approve;
    rlm_flow *flow;
    rlm_run *run;
    live *live;
    char *python;
    int signal_fd;
    bool interrupted;
    int64_t stopped_at_ms; /* by live_elapsed_ms */
    bool json;
    bool stdout_gone;
};

/* Makes it, up to the run, which sends `events` with the machine as argument. Returns an exit code; what is
 * made so far is freed by machine_free. */
int machine_make(struct machine *m, const struct rlm_run_events *events);
/* All but `collect`, which outlives the run. */
void machine_free(struct machine *m);
