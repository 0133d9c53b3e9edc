/* The inside of journals, for the files of this module alone: finding, opening and locking the files
 * of a run (journal_file.c), which becomes an open journal (journal_open.c), which appends and syncs
 * (journal.c).
 */
#pragma once

#include "base/vec.h"
#include "graph/journal.h"

#include <sys/types.h>

/* RLM_E_NOT_FOUND, RLM_E_PARSE (no directory), RLM_E_IO. */
int rlm_journal_open_directory(const char *path, int *ret_dir_fd, rlm_error **err);
/* `flags`: O_RDONLY or O_RDWR. RLM_E_PARSE when there is no journal, or it is no file. */
int rlm_journal_open_file(
    int dir_fd, const char *path, int flags, int *ret_fd, uint64_t *ret_size, rlm_error **err);
/* Removes the directory of a run with all that the engine writes there; other files stay. */
void rlm_journal_remove(int dir_fd, const char *path);
/* Held by the open file, not by the process: until the last copy of `fd` is closed. RLM_E_BUSY. */
int rlm_journal_lock(int fd, const char *path, rlm_error **err);
void rlm_journal_unlock_file(int fd);

struct rlm_journal_waiter {
    rlm_journal_flushed done;
    void *arg;
    uint64_t offset; /* all before it must be on disk */
};

struct rlm_journal {
    rlm_loop *loop;
    char *path;
    int dir_fd, fd;
    pid_t owner;
    bool sync;
    uint64_t end;    /* where the next record goes */
    uint64_t synced; /* all before it is on disk */
    bool directories_synced;
    uint64_t records;
    rlm_blobs *blobs;
    struct rlm_journal_job *job; /* in flight */
    rlm_timer *timer;
    rlm_defer *defer;
    RLM_VEC(struct rlm_journal_waiter) waiters;
    /* Once nonzero it stays. The text is kept here because a full disk is no time to allocate. */
    int failed;
    int failed_errno;
    char failure[512];
};

/* A journal without files yet; NULL when out of memory. */
rlm_journal *
rlm_journal_alloc(rlm_loop *loop, const char *path, const struct rlm_journal_options *options);
