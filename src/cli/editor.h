/* A text in the editor of the person at the terminal ($VISUAL, $EDITOR, else vi), while the program goes on. */
#pragma once

#include "rlmflow.h"

#include <sys/types.h>

enum { EDITOR_POLL_MS = 50 };

struct editor {
    pid_t pid;  /* 0: it does not run */
    char *file; /* that it edits, or NULL */
};

/* Starts it on the text, in a file of Python. 0, or an errno value. */
int editor_start(struct editor *e, struct rlm_str text);
/* To be asked every EDITOR_POLL_MS. `*ret_failed`: it ended with a code other than 0. */
bool editor_has_ended(struct editor *e, bool *ret_failed);
/* What was saved, without the ends of line at its end; whoever calls frees it. 0, or an errno value. */
int editor_read(const struct editor *e, struct rlm_str *ret_text);
/* Removes the file, and ends the editor when it still runs: then true, and the terminal may be in its modes. */
bool editor_close(struct editor *e);
