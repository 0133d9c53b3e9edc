#include "cli/program.h"

#include "cli/python.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

char *program_word(void)
{
    char *found = python_find(program_invocation_short_name);
    char *there = found ? realpath(found, NULL) : NULL, *own = realpath("/proc/self/exe", NULL);
    bool known = there && own && strcmp(there, own) == 0;
    free(found);
    free(there);
    free(own);
    return text_shell_word(known ? program_invocation_short_name : program_invocation_name);
}
