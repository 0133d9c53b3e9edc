#include "graph/journal.h"

#include "base/alloc.h"
#include "graph/journal_file.h"
#include "graph/journal_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SYNC_AFTER_MS = 1000 };

/* One group of syncs on the pool. It outlives a journal that is closed meanwhile. */
struct rlm_journal_job {
    rlm_journal *journal; /* NULL once closed; used on the loop's thread only */
    rlm_blobs *blobs;
    int fd, dir_fd;
    bool directories; /* the run's own entries are not known to be on disk yet */
    uint64_t offset;
    int status;
    rlm_error *error;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool has_ended;
};

/* ---- syncing --------------------------------------------------------------------------------- */

static int sync_blobs(rlm_blobs *blobs, rlm_error **err)
{
    /* Until none is left: the loop may have put a blob and appended its record meanwhile, and the
     * sync of the journal below takes that record along. */
    for (rlm_blob_sync *s; (s = rlm_blobs_sync_begin(blobs));) {
        int r = rlm_blobs_sync_run(s, err);
        rlm_blobs_sync_end(s);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int sync_directories(int dir_fd, rlm_error **err)
{
    int parent = openat(dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fsync(dir_fd) < 0 || (parent >= 0 && fsync(parent) < 0) ? -errno : 0;
    /* A parent that may not be read cannot be synced; its entry for us is the user's business. */
    if (parent >= 0) {
        close(parent);
    }
    return r < 0 ? rlm_error_set_errno(err, RLM_E_IO, -r, "syncing the run's directory") : 0;
}

static int sync_all(rlm_blobs *blobs, int fd, int dir_fd, bool directories, rlm_error **err)
{
    int r = sync_blobs(blobs, err);
    if (r == 0 && directories) {
        r = sync_directories(dir_fd, err);
    }
    if (r == 0 && fdatasync(fd) < 0) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "syncing the journal");
    }
    return r;
}

static int fail(rlm_journal *j, int code, int sys_errno)
{
    j->failed = code;
    j->failed_errno = sys_errno;
    if (j->timer) {
        rlm_timer_stop(j->timer);
    }
    return code;
}

static int report_failure(const rlm_journal *j, rlm_error **err)
{
    return rlm_error_set_errno(err, j->failed, j->failed_errno, "%s", j->failure);
}

static bool is_dirty(const rlm_journal *j)
{
    return j->synced < j->end;
}

/* Calls back those whose records are on disk (all of them when `all`). The journal may be closed by
 * a callback, so nothing of it is touched after the first. */
static void complete_waiters(rlm_journal *j, bool all, int result)
{
    size_t n = 0;
    uint64_t safe = j->sync ? j->synced : UINT64_MAX;
    while (n < j->waiters.len && (all || j->waiters.items[n].offset <= safe)) {
        n++;
    }
    if (n == 0) {
        return;
    }
    struct rlm_journal_waiter *ready = j->waiters.items;
    if (n == j->waiters.len) {
        memset(&j->waiters, 0, sizeof j->waiters);
    } else {
        /* Those not ready get memory of their own; without it all of them wait for the next sync. */
        struct rlm_journal_waiter *rest = rlm_malloc((j->waiters.len - n) * sizeof *rest);
        if (!rest) {
            return;
        }
        j->waiters.len -= n;
        j->waiters.cap = j->waiters.len;
        memcpy(rest, ready + n, j->waiters.len * sizeof *rest);
        j->waiters.items = rest;
    }
    for (size_t i = 0; i < n; i++) {
        ready[i].done(ready[i].arg, result);
    }
    free(ready);
}

static void run_job(void *arg) /* pool */
{
    struct rlm_journal_job *job = arg;
    rlm_error *error = NULL;
    int r = sync_all(job->blobs, job->fd, job->dir_fd, job->directories, &error);
    pthread_mutex_lock(&job->lock);
    job->status = r;
    job->error = error;
    job->has_ended = true;
    pthread_cond_signal(&job->ended);
    pthread_mutex_unlock(&job->lock);
}

static void free_job(struct rlm_journal_job *job)
{
    rlm_error_free(job->error);
    pthread_mutex_destroy(&job->lock);
    pthread_cond_destroy(&job->ended);
    free(job);
}

/* After a failed fdatasync the kernel may have dropped the pages: what is on disk is unknown, and a
 * second try would only seem to succeed. */
static void take_result(rlm_journal *j, const struct rlm_journal_job *job)
{
    if (job->status == 0) {
        j->synced = job->offset;
        j->directories_synced = true;
    } else if (!j->failed) {
        snprintf(
            j->failure, sizeof j->failure,
            "the run %.200s cannot go on: %.200s; what is written can be viewed; check the disk",
            j->path, rlm_error_message(job->error));
        fail(j, job->status, 0);
    }
}

static int start_job(rlm_journal *j, rlm_error **err);

static void job_done(void *arg)
{
    struct rlm_journal_job *job = arg;
    rlm_journal *j = job->journal;
    if (j) {
        j->job = NULL;
        take_result(j, job);
        if (!j->failed && is_dirty(j)) {
            bool waited_for = false;
            for (size_t i = 0; i < j->waiters.len; i++) {
                waited_for |= j->waiters.items[i].offset > j->synced;
            }
            if (!(j->sync && waited_for) || start_job(j, NULL) < 0) {
                rlm_timer_set(j->timer, SYNC_AFTER_MS);
            }
        }
        complete_waiters(j, j->failed != 0, j->failed);
    }
    free_job(job);
}

static int start_job(rlm_journal *j, rlm_error **err)
{
    struct rlm_journal_job *job;
    if (!RLM_NEW(job)) {
        return rlm_error_nomem(err);
    }
    *job = (struct rlm_journal_job){.journal = j,
                                    .blobs = j->blobs,
                                    .fd = j->fd,
                                    .dir_fd = j->dir_fd,
                                    .directories = !j->directories_synced,
                                    .offset = j->end};
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->ended, NULL);
    int r = rlm_work_start(j->loop, run_job, job_done, job, err);
    if (r < 0) {
        free_job(job);
        return r;
    }
    j->job = job;
    rlm_timer_stop(j->timer);
    return 0;
}

static void timer_fired(void *arg)
{
    rlm_journal *j = arg;
    if (!j->job && !j->failed && is_dirty(j) && start_job(j, NULL) < 0) {
        rlm_timer_set(j->timer, SYNC_AFTER_MS);
    }
}

static void flush_deferred(void *arg)
{
    rlm_journal *j = arg;
    complete_waiters(j, j->failed != 0, j->failed);
}

/* ---- appending ------------------------------------------------------------------------------- */

/* Writes both parts at the end. One system call, unless it is interrupted or the disk gets full: then
 * a second says why. Returns 0 or an errno value. */
static int write_record(const rlm_journal *j, const void *header, rlm_str payload)
{
    struct iovec parts[2] = {
        {(void *)(uintptr_t)header, RLM_RECORD_HEADER_BYTES},
        {(void *)(uintptr_t)payload.ptr, payload.len},
    };
    uint64_t offset = j->end;
    for (size_t left = RLM_RECORD_HEADER_BYTES + payload.len; left;) {
        ssize_t n = pwritev(j->fd, parts, 2, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? errno : ENOSPC;
        }
        left -= (size_t)n;
        offset += (uint64_t)n;
        for (int i = 0; i < 2; i++) {
            size_t taken = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + taken;
            parts[i].iov_len -= taken;
            n -= (ssize_t)taken;
        }
    }
    return 0;
}

static int fail_write(rlm_journal *j, int sys_errno, rlm_error **err)
{
    bool cut = ftruncate(j->fd, (off_t)j->end) == 0;
    snprintf(
        j->failure, sizeof j->failure,
        "the run %.200s cannot go on: its journal could not be written after byte %llu%s; free "
        "space or mend the disk; what is written can be viewed",
        j->path, (unsigned long long)j->end,
        cut ? " (all that was written before is kept)"
            : " (nor cut there: the next opening will do it)");
    fail(j, RLM_E_IO, sys_errno);
    return report_failure(j, err);
}

int rlm_journal_append(rlm_journal *j, enum rlm_record_kind kind, rlm_str payload, rlm_error **err)
{
    uint8_t header[RLM_RECORD_HEADER_BYTES];
    if (j->failed) {
        return report_failure(j, err);
    }
    if (payload.len > RLM_RECORD_MAX_BYTES) {
        return rlm_error_set(err, RLM_E_LIMIT,
                             "a record of %zu bytes is larger than a journal takes "
                             "(%d): store its values as blobs",
                             payload.len, RLM_RECORD_MAX_BYTES);
    }
    if ((int)kind <= 0 || (int)kind >= RLM_RECORD_KIND_LIMIT) {
        return rlm_error_set(err, RLM_E_INVAL, "there is no kind %d of records", (int)kind);
    }
    rlm_record_frame(kind, payload, j->end, header);
    int sys_errno = write_record(j, header, payload);
    if (sys_errno) {
        return fail_write(j, sys_errno, err);
    }
    j->end += sizeof header + payload.len;
    j->records++;
    if (j->timer && !j->job && !rlm_timer_is_set(j->timer)) {
        rlm_timer_set(j->timer, SYNC_AFTER_MS);
    }
    return 0;
}

int rlm_journal_flush(rlm_journal *j, rlm_journal_flushed done, void *arg, rlm_error **err)
{
    if (j->failed) {
        return report_failure(j, err);
    }
    if (!j->loop) {
        return rlm_error_set(err, RLM_E_INVAL, "a journal without a loop cannot be flushed");
    }
    struct rlm_journal_waiter *w = rlm_vec_push(&j->waiters);
    if (!w) {
        return rlm_error_nomem(err);
    }
    *w = (struct rlm_journal_waiter){done, arg, j->end};
    if (!j->sync || !is_dirty(j)) {
        rlm_defer_schedule(j->defer);
    } else if (!j->job) {
        int r = start_job(j, err);
        if (r < 0) {
            j->waiters.len--;
            return r;
        }
    }
    return 0;
}

/* ---- what is known of a run ------------------------------------------------------------------ */

rlm_blobs *rlm_journal_blobs(rlm_journal *j)
{
    return j->blobs;
}

const char *rlm_journal_path(const rlm_journal *j)
{
    return j->path;
}

int64_t rlm_journal_end(const rlm_journal *j)
{
    return (int64_t)j->end;
}

uint64_t rlm_journal_disk_bytes(const rlm_journal *j)
{
    return j->end + rlm_blobs_disk_bytes(j->blobs);
}

uint64_t rlm_journal_records(const rlm_journal *j)
{
    return j->records;
}

/* ---- beginning, cutting, ending -------------------------------------------------------------- */

rlm_journal *
rlm_journal_alloc(rlm_loop *loop, const char *path, const struct rlm_journal_options *options)
{
    rlm_journal *j;
    if (!RLM_NEW(j)) {
        return NULL;
    }
    j->loop = loop;
    j->dir_fd = j->fd = -1;
    j->owner = getpid();
    j->sync = options && options->sync;
    j->path = rlm_strdup(path);
    if (loop) {
        j->timer = rlm_timer_new(loop, timer_fired, j);
        j->defer = rlm_defer_new(loop, flush_deferred, j);
    }
    if (!j->path || (loop && (!j->timer || !j->defer))) {
        rlm_journal_close(j);
        return NULL;
    }
    return j;
}

static void await_job(rlm_journal *j)
{
    struct rlm_journal_job *job = j->job;
    pthread_mutex_lock(&job->lock);
    while (!job->has_ended) {
        pthread_cond_wait(&job->ended, &job->lock);
    }
    pthread_mutex_unlock(&job->lock);
    take_result(j, job);
    job->journal = NULL; /* job_done, on a later turn of the loop, frees it */
    j->job = NULL;
}

/* What is left to sync. */
static void sync_rest(rlm_journal *j)
{
    rlm_autoerr rlm_error *error = NULL;
    if (!is_dirty(j) || j->failed) {
        return;
    }
    int r = sync_all(j->blobs, j->fd, j->dir_fd, !j->directories_synced, &error);
    if (r < 0) {
        fail(j, r, 0);
    }
}

int rlm_journal_cut(rlm_journal *j, int64_t offset, rlm_error **err)
{
    struct rlm_journal_scan found;
    if (j->failed) {
        return report_failure(j, err);
    }
    if (offset < RLM_JOURNAL_MAGIC_BYTES || (uint64_t)offset > j->end) {
        return rlm_error_set(err, RLM_E_INVAL, "byte %lld is not in %s/journal", (long long)offset,
                             j->path);
    }
    /* Read up to there, it must be whole records. */
    int r = rlm_journal_scan_fd(j->fd, (uint64_t)offset, NULL, NULL, &found, err);
    if (r < 0) {
        return rlm_error_wrap(err, r, "%s", j->path);
    }
    if (found.end != (uint64_t)offset) {
        return rlm_error_set(err, RLM_E_INVAL, "no record starts at byte %lld of %s/journal",
                             (long long)offset, j->path);
    }
    if (j->job) {
        await_job(j);
    }
    if (ftruncate(j->fd, (off_t)offset) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "cutting %s/journal at byte %lld", j->path,
                                   (long long)offset);
    }
    j->end = found.end;
    j->records = found.records;
    j->synced = 0;
    return 0;
}

void rlm_journal_unlock(rlm_journal *j)
{
    rlm_journal_unlock_file(j->fd);
}

void rlm_journal_close(rlm_journal *j)
{
    if (!j) {
        return;
    }
    /* In a process forked from the owner's there is no pool to wait for, and nothing to sync. */
    if (j->owner == getpid()) {
        if (j->job) {
            await_job(j);
        }
        sync_rest(j);
        complete_waiters(j, true, j->failed);
    }
    rlm_timer_free(j->timer);
    rlm_defer_free(j->defer);
    rlm_blobs_free(j->blobs);
    if (j->fd >= 0) {
        close(j->fd);
    }
    if (j->dir_fd >= 0) {
        close(j->dir_fd);
    }
    free(j->waiters.items);
    free(j->path);
    free(j);
}
