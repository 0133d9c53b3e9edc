/* A store of blobs in the directory of the test, and files beside it. */
#pragma once

#include "graph/blob.h"

#include "base/buf.h"
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define EURO "\xE2\x82\xAC"
#define PACK "\xF0\x9F\x93\xA6"

static inline const char *file_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", harness_directory(), name);
    return path;
}

static inline rlm_blobs *open_store(const char *name)
{
    rlm_blobs *b = NULL;
    CHECK_INT(rlm_blobs_open(name ? file_of(name) : NULL, &b, NULL), 0);
    return b;
}

static inline const struct rlm_blob *put(rlm_blobs *b, enum rlm_blob_type type, const char *text)
{
    const struct rlm_blob *blob = NULL;
    CHECK_INT(rlm_blobs_put(b, type, rlm_str_of(text), &blob, NULL), 0);
    return blob;
}

static inline int count_files(const char *name)
{
    DIR *dir = opendir(file_of(name));
    int count = 0;
    CHECK(dir != NULL);
    for (struct dirent *e; (e = readdir(dir));) {
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    closedir(dir);
    return count;
}

static inline int write_file(const char *name, const void *bytes, size_t len)
{
    int fd = open(file_of(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    return fd;
}

/* Both kinds of store behave alike. */
