#include "graph/target.h"

#include "base/alloc.h"
#include "rlmflow.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *rlm_part_path(const char *path)
{
    size_t len = strlen(path);
    char *part;
    /* "x/" names the same directory as "x", but nothing can be put beside it. */
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    return asprintf(&part, "%.*s.part-%d", (int)len, path, (int)getpid()) < 0 ? NULL : part;
}

static int name_part(const char *path, struct rlm_target *t, rlm_error **err)
{
    *t = (struct rlm_target){.path = path, .part = rlm_part_path(path), .fd = -1};
    return t->part ? 0 : rlm_error_nomem(err);
}

static int exists(const char *path, rlm_error **err)
{
    return rlm_error_set(err, RLM_E_EXISTS, "%s exists already: choose another name", path);
}

static bool is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static int forget(struct rlm_target *t, int r)
{
    free(t->part);
    t->part = NULL;
    return r;
}

/* Pipes and devices are written to as they are. */
static bool is_stream(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int rlm_target_open(const char *path, struct rlm_target *ret_target, rlm_error **err)
{
    struct rlm_target t = {.path = path, .fd = -1};
    if (strcmp(path, "-") == 0 || is_stream(path)) {
        t.fd = path[1] == '\0' && path[0] == '-' ? fcntl(1, F_DUPFD_CLOEXEC, 3)
                                                 : open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        if (t.fd < 0) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "opening %s", path);
        }
        *ret_target = t;
        return 0;
    }
    if (is_there(path)) {
        return exists(path, err);
    }
    int r = name_part(path, &t, err);
    if (r < 0) {
        return r;
    }
    t.fd = open(t.part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (t.fd < 0) {
        return forget(&t, rlm_error_set_errno(err, RLM_E_IO, errno, "making %s", path));
    }
    *ret_target = t;
    return 0;
}

int rlm_target_name(const char *path, struct rlm_target *ret_target, rlm_error **err)
{
    struct rlm_target t;
    if (strcmp(path, "-") == 0 || is_stream(path)) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "%s: this is written to a file of its own; give a path that does not "
                             "exist",
                             path);
    }
    if (is_there(path)) {
        return exists(path, err);
    }
    int r = name_part(path, &t, err);
    if (r == 0 && is_there(t.part)) {
        r = forget(&t, exists(t.part, err));
    }
    if (r == 0) {
        *ret_target = t;
    }
    return r;
}

int rlm_target_make_directory(const char *path, struct rlm_target *ret_target, rlm_error **err)
{
    int r = rlm_target_name(path, ret_target, err);
    if (r < 0) {
        return r;
    }
    if (mkdir(ret_target->part, 0700) < 0) {
        return forget(ret_target, rlm_error_set_errno(err, RLM_E_IO, errno, "making %s", path));
    }
    ret_target->is_directory = true;
    return 0;
}

int rlm_target_write(struct rlm_target *t, const void *ptr, size_t len, rlm_error **err)
{
    const char *bytes = ptr;
    while (len) {
        ssize_t n = write(t->fd, bytes, len);
        if (n >= 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd ready = {.fd = t->fd, .events = POLLOUT};
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "writing %s", t->path);
        }
    }
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *place)
{
    remove(path);
    return 0;
}

/* The name must still be free when it is given: somebody may have been faster. */
static int give_name(struct rlm_target *t, rlm_error **err)
{
    int r = renameat2(AT_FDCWD, t->part, AT_FDCWD, t->path, RENAME_NOREPLACE);
    if (r < 0 && (errno == EINVAL || errno == ENOSYS)) { /* a file system that cannot do that */
        r = is_there(t->path) ? (errno = EEXIST, -1) : rename(t->part, t->path);
    }
    if (r < 0) {
        return errno == EEXIST ? exists(t->path, err)
                               : rlm_error_set_errno(err, RLM_E_IO, errno, "naming %s", t->path);
    }
    return 0;
}

int rlm_target_close(struct rlm_target *t, int result, rlm_error **err)
{
    /* What the disk has not taken is not there. */
    if (t->fd >= 0 && t->part && result == 0 && fsync(t->fd) < 0 && errno != EINVAL) {
        result = rlm_error_set_errno(err, RLM_E_IO, errno, "writing %s", t->path);
    }
    if (t->fd >= 0 && close(t->fd) < 0 && result == 0) {
        result = rlm_error_set_errno(err, RLM_E_IO, errno, "writing %s", t->path);
    }
    if (t->part && result == 0) {
        result = give_name(t, err);
    }
    if (t->part && result != 0) {
        if (t->is_directory) {
            nftw(t->part, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        } else {
            unlink(t->part);
        }
    }
    free(t->part);
    *t = (struct rlm_target){.fd = -1};
    return result;
}
