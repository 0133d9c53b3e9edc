/* What the program prints on stdout, which is its result: whatever of it cannot be written makes the
 * program fail, also when stdout was closed from the beginning. After the first failure nothing more
 * is written, so that no output has a hole.
 *
 * A reader that has gone (`| head`) is no fault: the program then ends as SIGPIPE would end it, but not
 * before its work is done and kept. Whoever started the program with SIGPIPE ignored wants the error
 * instead. */
#pragma once

#include <stdbool.h>

/* First of all: opens what is missing of the standard descriptors and takes stdout and stderr over. */
void output_begin(void);
/* Writes what is buffered. True once something could not be written. */
bool output_failed(void);
/* After output_failed: why, for people. NULL when the reader has gone, of which nothing is said. */
const char *output_problem(void);
/* Last of all: the exit code of the program that would exit with `code`. Complains unless
 * output_problem was asked before; does not return when the reader has gone. */
int output_end(int code);
