#include "graph/journal_file.h"

#include "graph/journal_scan.h"
#include "graph/saved.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Who holds a lock of a descriptor cannot be asked. So the holder locks one byte more, behind all that a
 * file has, whose place tells its process id. The gap between the two keeps them apart. */
static const off_t LOCKED_BYTES = (off_t)1 << 60, PLACE_OF_PID = ((off_t)1 << 60) + 1;
enum { PID_MAX = 1 << 22 }; /* the kernel's */

static pid_t holder(int fd)
{
    struct flock places = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = PLACE_OF_PID, .l_len = PID_MAX + 1};
    bool held = fcntl(fd, F_OFD_GETLK, &places) == 0 && places.l_type != F_UNLCK;
    return held && places.l_start > PLACE_OF_PID ? (pid_t)(places.l_start - PLACE_OF_PID) : 0;
}

int rlm_journal_lock(int fd, const char *path, rlm_error **err)
{
    struct flock content = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = LOCKED_BYTES};
    struct flock own = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = PLACE_OF_PID + getpid(), .l_len = 1};
    /* First the name, so that whoever finds the run locked finds it too. Without it the holder has none,
     * no more. */
    fcntl(fd, F_OFD_SETLK, &own);
    if (fcntl(fd, F_OFD_SETLK, &content) == 0) {
        return 0;
    }
    if (errno == EAGAIN || errno == EACCES) {
        char who[40] = "a living process";
        pid_t pid = holder(fd);
        if (pid) {
            snprintf(who, sizeof who, "process %ld", (long)pid);
        }
        return rlm_error_set(err, RLM_E_BUSY,
                             "the run %s is in use: %s writes it; wait for its end or stop it "
                             "(looking at the run is possible meanwhile)",
                             path, who);
    }
    return rlm_error_set_errno(err, RLM_E_IO, errno, "locking the run %s", path);
}

void rlm_journal_unlock_file(int fd)
{
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(fd, F_OFD_SETLK, &whole);
}

static bool is_locked(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

int rlm_journal_open_directory(const char *path, int *ret_dir_fd, rlm_error **err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        *ret_dir_fd = fd;
        return 0;
    }
    if (errno == ENOENT) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "there is no run %s", path);
    }
    if (errno == ENOTDIR) {
        return rlm_error_set(err, RLM_E_PARSE,
                             "%s is not a run: a run is a directory that holds a journal", path);
    }
    return rlm_error_set_errno(err, RLM_E_IO, errno, "opening the run %s", path);
}

int rlm_journal_open_file(
    int dir_fd, const char *path, int flags, int *ret_fd, uint64_t *ret_size, rlm_error **err)
{
    /* Not blocking, and no link: the directory may come from a stranger. */
    int fd = openat(dir_fd, "journal", flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 && errno == ENOENT && rlm_saved_is_in(dir_fd)) {
        return rlm_error_set(
            err, RLM_E_UNSUPPORTED,
            "%s was saved by the Python project of this name: it has no records, so "
            "it can be looked at and exported, but not resumed or replayed",
            path);
    }
    if (fd < 0 && errno == ENOENT) {
        return rlm_error_set(err, RLM_E_PARSE, "%s is not a run: there is no journal in it", path);
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        int saved = errno;
        if (fd >= 0) {
            close(fd);
        }
        return rlm_error_set_errno(err, RLM_E_IO, saved, "opening %s/journal", path);
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return rlm_error_set(err, RLM_E_PARSE, "%s is not a run: its journal is not a file", path);
    }
    *ret_fd = fd;
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

int rlm_journal_read(const char *path,
                     rlm_journal_record record,
                     void *arg,
                     struct rlm_journal_damage *ret_damage,
                     rlm_error **err)
{
    struct rlm_journal_scan found = {.damage = {.offset = -1}};
    int dir_fd, fd;
    uint64_t size;
    int r = rlm_journal_open_directory(path, &dir_fd, err);
    if (r < 0) {
        return r;
    }
    r = rlm_journal_open_file(dir_fd, path, O_RDONLY, &fd, &size, err);
    close(dir_fd);
    if (r < 0) {
        return r;
    }
    bool written = is_locked(fd);
    r = rlm_journal_scan_fd(fd, size, record, arg, &found, err);
    /* A writer that lives has cut its tail when it opened: this one is a record under way. */
    if (written && found.damage.valid_after == 0) {
        found.damage = (struct rlm_journal_damage){.offset = -1};
    }
    close(fd);
    if (r < 0) {
        return rlm_error_wrap(err, r, "reading the run %s", path);
    }
    if (r == 0 && ret_damage) {
        *ret_damage = found.damage;
    }
    return r;
}

int rlm_journal_check_place(const rlm_journal *j, rlm_error **err)
{
    rlm_autofree char *path = NULL;
    struct stat named, written;
    if (asprintf(&path, "%s/journal", j->path) < 0) {
        path = NULL;
        return rlm_error_nomem(err);
    }
    bool there = stat(path, &named) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "looking at %s", path);
    }
    if (fstat(j->fd, &written) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "looking at the journal of %s", j->path);
    }
    if (!there || named.st_dev != written.st_dev || named.st_ino != written.st_ino) {
        return rlm_error_set(err, RLM_E_NOT_FOUND,
                             "the run is not kept: %s was %s while it was written", path,
                             there ? "replaced" : "removed");
    }
    return 0;
}

static void remove_blobs(int dir_fd)
{
    int fd = openat(dir_fd, "blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    closedir(dir);
}

void rlm_journal_remove(int dir_fd, const char *path)
{
    if (dir_fd >= 0) {
        remove_blobs(dir_fd);
        unlinkat(dir_fd, "journal", 0);
        unlinkat(dir_fd, "blobs", AT_REMOVEDIR);
    }
    rmdir(path);
}
