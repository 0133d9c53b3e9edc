/* The signals that end the program: SIGINT, SIGTERM and, unless it was started to ignore it, SIGHUP. While a run is driven they are blocked, and
 * read from a descriptor; what comes after the run has no loop to read them. */
#pragma once

/* Before any thread is started. */
void signals_block(void);
void signals_unblock(void);
/* A descriptor to read them from, as struct signalfd_siginfo, without waiting; -1 with errno. */
int signals_open(void);
/* From here on one ends the program at once, as interrupted. `left_behind` (borrowed): a file or directory
 * that is removed then, or NULL; it may be given anew. */
void signals_end_program(const char *left_behind);
/* Behind that: so does time, `limit_ms` from now. 0: no limit any more. */
void signals_set_limit(int limit_ms);
