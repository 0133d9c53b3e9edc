/* The terminal's own device, on which a person is asked although stdin and stdout are something else. Nothing
 * here waits: what the terminal does not take at once is kept for the next flush. */
#pragma once

#include "rlmflow.h"

#include <termios.h>

enum { TTY_LINE_MAX_BYTES = 4096 };

struct tty {
    int fd;    /* -1: there is none, and nothing but tty_close may be called */
    char *out; /* what it has not taken yet, or NULL */
    size_t out_len, out_at;
    char line[TTY_LINE_MAX_BYTES]; /* the line that is being typed */
    size_t line_len;
    struct termios modes; /* as they were when it was opened */
};

void tty_open(struct tty *t);
void tty_close(struct tty *t);

/* Takes the text. */
void tty_say(struct tty *t, char *take_text);
void tty_flush(struct tty *t);

/* 1: `*ret_line` is a line without its end, and without the bytes behind the first TTY_LINE_MAX_BYTES; it is
 * good until the next call. 0: there is none yet. -1: nobody types any more. In the background it reads
 * nothing, for that would stop the program. */
int tty_read_line(struct tty *t, struct rlm_str *ret_line);
/* Drops what has been typed up to now. */
void tty_drop_typed(struct tty *t);

/* The program is in the foreground of it. */
bool tty_is_in_front(const struct tty *t);
/* Nobody will ever answer on it. */
bool tty_is_gone(const struct tty *t);
int tty_columns(const struct tty *t);
/* Sets the modes as they were, after another program has changed them. */
void tty_restore(struct tty *t);
