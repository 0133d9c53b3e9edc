/* Where the interpreter of the sessions stands. */
#pragma once

/* The path of a name that is looked for in PATH, or of a path, as an absolute one: sessions run in a
 * directory of their own. The caller frees it. NULL: there is no such program; errno says why. */
char *python_find(const char *name);
