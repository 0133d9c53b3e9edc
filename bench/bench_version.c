/* Starting the program: `rlmflow version` beside /bin/true, from posix_spawn to the end of the process.
 *
 * In turns, RUNS times; medians of wall-clock time and of the CPU of the child, and their ratios.
 *
 *     bench_version [RUNS=500] [PROGRAM=the one of this build]
 */
#include "base/loop.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct sample {
    double wall_us, cpu_us;
};

static struct sample run(char *program, posix_spawn_file_actions_t *quiet)
{
    char word[] = "version", search[] = "PATH=/usr/bin:/bin";
    char *const argv[] = {program, word, NULL}, *const env[] = {search, NULL};
    struct rusage used;
    pid_t pid;
    int status;
    uint64_t start = rlm_now_us();
    int problem = posix_spawn(&pid, program, quiet, NULL, argv, env);
    if (problem) {
        fprintf(stderr, "%s: %s\n", program, strerror(problem));
        exit(1);
    }
    if (wait4(pid, &status, 0, &used) < 0 || status != 0) {
        fprintf(stderr, "%s ended with wait status %d\n", program, status);
        exit(1);
    }
    return (struct sample){
        (double)(rlm_now_us() - start),
        (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
            (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
    };
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct sample *samples, size_t n, bool cpu)
{
    double *values = calloc(n, sizeof *values);
    if (!values) {
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = cpu ? samples[i].cpu_us : samples[i].wall_us;
    }
    qsort(values, n, sizeof *values, ascending);
    double result = values[n / 2];
    free(values);
    return result;
}

/* PROGRAM of the build that this benchmark is in: two directories up. */
static char *own_program(void)
{
    static char path[PATH_MAX + 16];
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);
    if (len < 0) {
        perror("/proc/self/exe");
        exit(1);
    }
    path[len] = '\0';
    dirname(dirname(path));
    return strcat(path, "/rlmflow");
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? (size_t)atoi(argv[1]) : 500;
    char *program = argc > 2 ? argv[2] : own_program();
    struct sample *ours = calloc(n + 1, sizeof *ours), *theirs = calloc(n + 1, sizeof *theirs);
    char floor_program[] = "/bin/true";
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    if (!ours || !theirs || !n) {
        return 1;
    }
    for (size_t i = 0; i <= n; i++) { /* the first is not counted: it warms the page cache */
        size_t at = i ? i - 1 : 0;
        theirs[at] = run(floor_program, &quiet);
        ours[at] = run(program, &quiet);
    }
    double wall = median(ours, n, false), floor_wall = median(theirs, n, false);
    double cpu = median(ours, n, true), floor_cpu = median(theirs, n, true);
    printf("rlmflow version: wall %.0f us, /bin/true %.0f us, ratio %.2f\n", wall, floor_wall,
           wall / floor_wall);
    printf("                 CPU  %.0f us, /bin/true %.0f us, ratio %.2f\n", cpu, floor_cpu,
           cpu / floor_cpu);
    posix_spawn_file_actions_destroy(&quiet);
    free(ours), free(theirs);
    return 0;
}
