/* From a path to an open journal: a new run, or one that goes on. */
#include "graph/journal.h"

#include "base/alloc.h"
#include "graph/journal_file.h"
#include "graph/journal_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_blobs(rlm_journal *j, rlm_error **err)
{
    rlm_autofree char *directory = NULL;
    if (asprintf(&directory, "%s/blobs", j->path) < 0) {
        directory = NULL;
        return rlm_error_nomem(err);
    }
    return rlm_blobs_open(directory, &j->blobs, err);
}

static int fill_new_run(rlm_journal *j, rlm_error **err)
{
    int r = rlm_journal_open_directory(j->path, &j->dir_fd, err);
    if (r < 0) {
        return r;
    }
    j->fd = openat(j->dir_fd, "journal", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (j->fd < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "making %s/journal", j->path);
    }
    if ((r = rlm_journal_lock(j->fd, j->path, err)) < 0) {
        return r;
    }
    ssize_t n = pwrite(j->fd, rlm_journal_magic, sizeof rlm_journal_magic, 0);
    if (n != (ssize_t)sizeof rlm_journal_magic) {
        return rlm_error_set_errno(err, RLM_E_IO, n < 0 ? errno : ENOSPC, "writing %s/journal",
                                   j->path);
    }
    j->end = sizeof rlm_journal_magic;
    return open_blobs(j, err);
}

int rlm_journal_create(rlm_loop *loop,
                       const char *path,
                       const struct rlm_journal_options *options,
                       rlm_journal **ret_journal,
                       rlm_error **err)
{
    rlm_journal *j = rlm_journal_alloc(loop, path, options);
    if (!j) {
        return rlm_error_nomem(err);
    }
    int r;
    if (mkdir(path, 0700) < 0) {
        r = errno == EEXIST
                ? rlm_error_set(err, RLM_E_EXISTS, "%s exists already: choose another name", path)
                : rlm_error_set_errno(err, RLM_E_IO, errno, "making the run %s", path);
        rlm_journal_close(j);
        return r;
    }
    if ((r = fill_new_run(j, err)) < 0) {
        rlm_journal_discard(j);
        return r;
    }
    *ret_journal = j;
    return 0;
}

/* Cuts what cannot be kept. */
static int mend(rlm_journal *j, const struct rlm_journal_scan *found, bool cut, rlm_error **err)
{
    const struct rlm_journal_damage *damage = &found->damage;
    if (damage->offset < 0) {
        return 0;
    }
    if (damage->valid_after > 0 && !cut) {
        return rlm_error_set(
            err, RLM_E_CORRUPT,
            "the journal of %s is damaged at byte %lld: going on would lose the %lld "
            "bytes from there, with %lld good records among them; look at the run or "
            "export it, or cut it there (--cut)",
            j->path, (long long)damage->offset, (long long)damage->lost_bytes,
            (long long)damage->valid_after);
    }
    if (ftruncate(j->fd, (off_t)found->end) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "cutting %s/journal at byte %llu", j->path,
                                   (unsigned long long)found->end);
    }
    return 0;
}

static int open_run(rlm_journal *j, bool cut, struct rlm_journal_scan *found, rlm_error **err)
{
    uint64_t size;
    int r = rlm_journal_open_directory(j->path, &j->dir_fd, err);
    if (r == 0) {
        r = rlm_journal_open_file(j->dir_fd, j->path, O_RDWR, &j->fd, &size, err);
    }
    if (r == 0) {
        r = rlm_journal_lock(j->fd, j->path, err);
    }
    if (r < 0) {
        return r;
    }
    /* The size may have grown until the lock was ours. */
    struct stat st;
    if (fstat(j->fd, &st) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "looking at %s/journal", j->path);
    }
    if ((r = rlm_journal_scan_fd(j->fd, (uint64_t)st.st_size, NULL, NULL, found, err)) < 0) {
        return rlm_error_wrap(err, r, "%s", j->path);
    }
    if ((r = mend(j, found, cut, err)) < 0) {
        return r;
    }
    j->end = found->end;
    j->records = found->records;
    return open_blobs(j, err);
}

int rlm_journal_open(rlm_loop *loop,
                     const char *path,
                     const struct rlm_journal_options *options,
                     bool cut,
                     rlm_journal **ret_journal,
                     struct rlm_journal_damage *ret_damage,
                     rlm_error **err)
{
    struct rlm_journal_scan found = {.damage = {.offset = -1}};
    rlm_journal *j = rlm_journal_alloc(loop, path, options);
    if (!j) {
        return rlm_error_nomem(err);
    }
    int r = open_run(j, cut, &found, err);
    if (ret_damage) {
        *ret_damage = found.damage;
    }
    if (r < 0) {
        j->end = j->synced = 0;
        rlm_journal_close(j);
        return r;
    }
    *ret_journal = j;
    return 0;
}

void rlm_journal_discard(rlm_journal *j)
{
    if (j->owner == getpid()) {
        rlm_journal_remove(j->dir_fd, j->path);
    }
    j->end = j->synced = 0; /* nothing is left to sync */
    rlm_journal_close(j);
}
