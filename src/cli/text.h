/* Text of the program: allocation that ends the program when there is none, messages, encodings. */
#pragma once

#include "rlmflow.h"

#include <stdarg.h>
#include <stdio.h>

enum exit_code {
    EXIT_ANSWERED = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_AWAITING = 3, /* an approval that nobody here could give */
    EXIT_INTERRUPTED = 130,
};

/* Unlike the library the program has nothing better to do without memory than to say so and end. */
void *text_or_end(void *allocated);     /* not NULL: what was given */
void *text_allocate(size_t size_bytes); /* zeroed */
char *text_copy(const char *text);
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Links stay as they are: what a virtual environment is follows from the path of its interpreter. */
char *text_absolute(const char *path);
/* A stream into memory, as open_memstream. */
FILE *text_stream(char **ret_text, size_t *ret_len);
/* A word as a shell takes it, quoted if it has to be. */
char *text_shell_word(const char *word);
/* Appends to a NULL-terminated list; takes the text. */
void text_list_add(char ***list, char *take_text);
/* Frees a list with its texts, which are wiped: some are secrets. */
void text_list_free(char **list);
/* Wipes and frees. NULL allowed. */
void text_wipe(char *text);

/* "rlmflow: ..." on stderr; control characters in it are taken out. */
void text_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line on stderr as it stands, control characters taken out. */
void text_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The rule of exit codes: what is refused before the first model call because of what the user gave (a
 * flag, a setting, a path, a file's content) is EXIT_USAGE; where machine or server is at fault
 * (memory, a full disk, no descriptors, no answer), and for all that comes later, it is EXIT_FAILED. */
int text_exit_code(const rlm_error *err);
int text_exit_code_of_errno(int number);
/* Complains of an error of the library, frees it, and returns the exit code for it. */
int text_fail(rlm_error *err);

/* Text of many lines to a stream, each line made harmless. */
void text_print_lines(FILE *to, struct rlm_str text);

/* The offset of the first byte that is not WTF-8, or -1. */
long long text_bad_offset(struct rlm_str text);
/* A JSON string with its quotes; lone surrogates become escapes, bad bytes U+FFFD. */
void text_write_json(FILE *to, struct rlm_str text);

/* Reads a whole file or descriptor ("-": stdin), at most `max` bytes. 0, or an errno value (EFBIG). */
int text_read_file(const char *path, size_t max, struct rlm_str *ret_text);
