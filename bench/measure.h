/* What the benchmarks of runs share: an end on errors, medians, CPU time, scripts, waiting. */
#pragma once

#include "base/loop.h"
#include "rlmflow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

__attribute__((noreturn)) static inline void fail(const rlm_error *err)
{
    fprintf(stderr, "%s\n", rlm_error_message(err));
    exit(1);
}

static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

/* `who`: RUSAGE_SELF or RUSAGE_CHILDREN. */
static inline double cpu_s(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* A model that answers by this script. */
static inline rlm_model *scripted(rlm_loop *loop, const char *script)
{
    rlm_model *model;
    rlm_error *err = NULL;
    char path[64];
    int fd = memfd_create("script", 0);
    if (fd < 0 || write(fd, script, strlen(script)) != (ssize_t)strlen(script)) {
        perror("memfd");
        exit(1);
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (rlm_model_new_scripted(loop, path, &model, &err)) {
        fail(err);
    }
    close(fd);
    return model;
}

/* Turns the loop for a while, in which workers start ahead. */
static inline void settle(rlm_loop *loop, uint64_t ms)
{
    uint64_t end = rlm_now_ms() + ms;
    rlm_timer *t = rlm_timer_new(loop, (rlm_callback)rlm_loop_stop, loop);
    while (rlm_now_ms() < end) {
        rlm_timer_set(t, 20);
        rlm_loop_turn(loop);
    }
    rlm_timer_free(t);
}
