#include "cli/python.h"

#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0 || access(path, X_OK) < 0) {
        return false;
    }
    errno = EISDIR;
    return !S_ISDIR(st.st_mode);
}

char *python_find(const char *name)
{
    if (strchr(name, '/')) {
        return is_program(name) ? text_absolute(name) : NULL;
    }
    const char *variable = getenv("PATH");
    char *path = text_copy(variable ? variable : "/usr/local/bin:/usr/bin:/bin"), *rest = path;
    char *found = NULL;
    int problem = ENOENT;
    for (char *one; !found && (one = strsep(&rest, ":")) != NULL;) {
        char *candidate = text_format("%s/%s", *one ? one : ".", name);
        if (is_program(candidate)) {
            found = text_absolute(candidate);
        } else if (errno == EACCES) {
            problem = EACCES;
        }
        free(candidate);
    }
    free(path);
    errno = problem;
    return found;
}
