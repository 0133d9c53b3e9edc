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

/* Links stay as they are: what a virtual environment is follows from the path of its interpreter. */
static char *absolute(const char *path)
{
    char *here = *path == '/' ? NULL : getcwd(NULL, 0);
    char *result = here ? text_format("%s/%s", here, path) : text_copy(path);
    free(here);
    return result;
}

char *python_find(const char *name)
{
    if (strchr(name, '/')) {
        return is_program(name) ? absolute(name) : NULL;
    }
    const char *variable = getenv("PATH");
    char *path = text_copy(variable ? variable : "/usr/local/bin:/usr/bin:/bin"), *rest = path;
    char *found = NULL;
    int problem = ENOENT;
    for (char *one; !found && (one = strsep(&rest, ":")) != NULL;) {
        char *candidate = text_format("%s/%s", *one ? one : ".", name);
        if (is_program(candidate)) {
            found = absolute(candidate);
        } else if (errno == EACCES) {
            problem = EACCES;
        }
        free(candidate);
    }
    free(path);
    errno = problem;
    return found;
}
