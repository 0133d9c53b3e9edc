#include "harness.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIME_LIMIT_S = 30 };

static struct harness_test *tests, **last = &tests;
static char directory[64];

void harness_register(struct harness_test *test)
{
    *last = test;
    last = &test->next;
}

void harness_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stdout, "# %s:%d: ", file, line);
    vfprintf(stdout, format, args);
    va_end(args);
    fputc('\n', stdout);
    fflush(stdout);
    _exit(1);
}

const char *harness_directory(void)
{
    return directory;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    (void)st, (void)flag, (void)where;
    return remove(path);
}

static bool run(const struct harness_test *test)
{
    strcpy(directory, "/tmp/rlm-test-XXXXXX");
    if (!mkdtemp(directory)) {
        printf("# no directory: %s\n", strerror(errno));
        return false;
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(TIME_LIMIT_S);
        test->run();
        fflush(stdout);
        exit(0);
    }
    int status = -1;
    if (pid > 0) {
        waitpid(pid, &status, 0);
    }
    nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (WIFSIGNALED(status)) {
        printf("# ended by signal %d%s\n", WTERMSIG(status),
               WTERMSIG(status) == SIGALRM ? " (time limit)" : "");
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    int count = 0, number = 0, failed = 0;
    const char *only = argc > 1 ? argv[1] : "";
    for (struct harness_test *t = tests; t; t = t->next) {
        count += strstr(t->name, only) != NULL;
    }
    printf("1..%d\n", count);
    for (struct harness_test *t = tests; t; t = t->next) {
        if (strstr(t->name, only)) {
            bool ok = run(t);
            failed += !ok;
            printf("%s %d - %s\n", ok ? "ok" : "not ok", ++number, t->name);
        }
    }
    return failed != 0;
}
