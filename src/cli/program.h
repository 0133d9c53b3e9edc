/* This program in commands that people paste. */
#pragma once

/* Its name if PATH leads to it, else the path that it was started with, quoted for a shell. The caller
 * frees it. */
char *program_word(void);
