/* Outputs that appear whole or not at all: written under a name of their own beside the path that was
 * asked for, which must not exist, and renamed at the end.
 *
 *     struct rlm_target t;
 *     if ((r = rlm_target_open(path, &t, err)) == 0) {
 *         r = rlm_target_write(&t, bytes, len, err);
 *         r = rlm_target_close(&t, r, err);
 *     }
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>

struct rlm_target {
    const char *path; /* borrowed */
    char *part;       /* where it is written until it is whole; NULL: a stream */
    int fd;           /* of a file; -1: a directory, or something made by name at `part` */
    bool is_directory;
};

/* For writing in order: a new file, an existing pipe or device, or "-", the standard output. RLM_E_EXISTS,
 * RLM_E_IO. */
int rlm_target_open(const char *path, struct rlm_target *ret_target, rlm_error **err);
/* For a file that somebody else makes at `part`: no pipe and no device. */
int rlm_target_name(const char *path, struct rlm_target *ret_target, rlm_error **err);
/* A new directory (0700), which is at `part` until it is closed. */
int rlm_target_make_directory(const char *path, struct rlm_target *ret_target, rlm_error **err);
/* All of it; waits where a pipe is full. */
int rlm_target_write(struct rlm_target *t, const void *ptr, size_t len, rlm_error **err);
/* With `result` 0 it gets its name, else what was written is removed. Returns `result` or what went
 * wrong here. */
int rlm_target_close(struct rlm_target *t, int result, rlm_error **err);
