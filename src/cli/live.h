/* What a run shows on stderr while it runs: a live tree on a terminal, plain lines elsewhere. */
#pragma once

#include "rlmflow.h"

typedef struct live live;

/* `quiet`: nothing is shown. `log_path` (NULL: none) gets every event as a line with its time. NULL after
 * a complaint when the log cannot be opened. */
live *live_new(bool quiet, const char *log_path);
void live_event(live *l, rlm_run *run, const struct rlm_event *event);
/* Milliseconds until live_tick has something to do; -1: nothing. */
int live_timeout(const live *l);
void live_tick(live *l, rlm_run *run);
/* Something else has been written: what is drawn next begins below it. */
void live_move_on(live *l);
/* Leaves the terminal as it was found, below the last state of the tree. */
void live_end(live *l, rlm_run *run);
void live_free(live *l);
/* Milliseconds since live_new. */
int64_t live_elapsed_ms(const live *l);
