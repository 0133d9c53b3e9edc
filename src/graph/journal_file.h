/* Finding, opening and locking the files of a run; what reading and appending share. Not for other
 * modules.
 */
#pragma once

#include "graph/journal.h"

/* RLM_E_NOT_FOUND, RLM_E_PARSE (no directory), RLM_E_IO. */
int rlm_journal_open_directory(const char *path, int *ret_dir_fd, rlm_error **err);
/* `flags`: O_RDONLY or O_RDWR. RLM_E_PARSE when there is no journal, or it is no file. */
int rlm_journal_open_file(
    int dir_fd, const char *path, int flags, int *ret_fd, uint64_t *ret_size, rlm_error **err);
/* Removes the directory of a run with all that the engine writes there; other files stay. */
void rlm_journal_remove(int dir_fd, const char *path);
/* Held by the open file, not by the process: until the last copy of `fd` is closed. RLM_E_BUSY. */
int rlm_journal_lock(int fd, const char *path, rlm_error **err);
