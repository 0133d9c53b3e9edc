#include "cli/collect.h"

#include "cli/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 64 };

struct known {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec mtime, ctime;
};

struct collect {
    char *target;
    char *directory;
    bool temporary;
    void *known;         /* files that were there before: a tree of struct known */
    struct stat skip[2]; /* directories that are no work of agents: the target and the run */
    size_t n_skip;
    size_t copied, passed_over;
    int problem;
};

/* By the identity of the file, so that a file that was moved or linked is the same. */
static int compare(const void *a, const void *b)
{
    const struct known *x = a, *y = b;
    if (x->inode != y->inode) {
        return x->inode < y->inode ? -1 : 1;
    }
    return x->device == y->device ? 0 : x->device < y->device ? -1 : 1;
}

static bool is_same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_skipped(const struct collect *c, const struct stat *st)
{
    for (size_t i = 0; i < c->n_skip; i++) {
        if (c->skip[i].st_ino == st->st_ino && c->skip[i].st_dev == st->st_dev) {
            return true;
        }
    }
    return false;
}

static void complain(struct collect *c, const char *what, const char *path)
{
    text_complain("--collect: %s %s: %s", what, path, strerror(errno));
    c->problem = EXIT_FAILED;
}

/* ---- walking ---- */

typedef void (*visitor)(
    struct collect *c, int dir_fd, const char *name, const char *path, const struct stat *st);

/* Calls `visit` for each regular file below `fd` (which it closes). Links are not followed. */
static void walk(struct collect *c, int fd, const char *prefix, int depth, visitor visit)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        complain(c, "reading", *prefix ? prefix : c->directory);
        close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            continue;
        }
        char *path = text_format("%s%s%s", prefix, *prefix ? "/" : "", entry->d_name);
        if (S_ISREG(st.st_mode)) {
            visit(c, dirfd(dir), entry->d_name, path, &st);
        } else if (S_ISDIR(st.st_mode) && !is_skipped(c, &st)) {
            int below = depth < DEPTH_MAX ? openat(dirfd(dir), entry->d_name,
                                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                                          : (errno = ELOOP, -1);
            if (below < 0) {
                complain(c, "opening", path);
            } else {
                walk(c, below, path, depth + 1, visit);
            }
        } else if (!S_ISDIR(st.st_mode)) {
            c->passed_over++;
        }
        free(path);
    }
    closedir(dir);
}

static void walk_all(struct collect *c, visitor visit)
{
    int fd = open(c->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        complain(c, "opening", c->directory);
    } else {
        walk(c, fd, "", 0, visit);
    }
}

static void
remember(struct collect *c, int dir_fd, const char *name, const char *path, const struct stat *st)
{
    struct known *k = text_allocate(sizeof *k);
    *k = (struct known){st->st_dev, st->st_ino, st->st_size, st->st_mtim, st->st_ctim};
    void *found = tsearch(k, &c->known, compare);
    if (!found || *(struct known **)found != k) {
        free(k);
    }
}

/* ---- copying ---- */

static bool copy_bytes(int from, int to)
{
    static char buffer[256 * 1024];
    ssize_t n;
    while ((n = read(from, buffer, sizeof buffer)) != 0) {
        if (n < 0 && errno == EINTR) {
            continue;
        }
        for (ssize_t done = 0, w; done < n; done += w) {
            w = write(to, buffer + done, (size_t)(n - done));
            if (w < 0) {
                return false;
            }
        }
        if (n < 0) {
            return false;
        }
    }
    return true;
}

/* Makes the directories above a file. */
static void make_above(char *path, size_t start)
{
    for (char *slash = path + start; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
}

static void
copy(struct collect *c, int dir_fd, const char *name, const char *path, const struct stat *st)
{
    struct known key = {.device = st->st_dev, .inode = st->st_ino};
    void *found = tfind(&key, &c->known, compare);
    const struct known *k = found ? *(struct known **)found : NULL;
    if (k && k->size == st->st_size && is_same_time(k->mtime, st->st_mtim) &&
        is_same_time(k->ctime, st->st_ctim)) {
        return;
    }
    char *target = text_format("%s/%s", c->target, path);
    make_above(target, strlen(c->target));
    int from = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int to =
        from < 0 ? -1 : open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st->st_mode & 0777);
    if (from < 0 || to < 0 || !copy_bytes(from, to)) {
        complain(c, "copying", path);
    } else {
        c->copied++;
    }
    if (from >= 0) {
        close(from);
    }
    if (to >= 0 && close(to) < 0) {
        complain(c, "writing", target);
    }
    free(target);
}

/* ---- the object ---- */

/* Removes what is below `fd` (which it closes). */
static void remove_below(int fd, int depth)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return;
    }
    fchmod(dirfd(dir), 0700);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            unlinkat(dirfd(dir), name, 0) == 0) {
            continue;
        }
        fchmodat(dirfd(dir), name, 0700, 0);
        int below = openat(dirfd(dir), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0 && depth < 10 * DEPTH_MAX) {
            remove_below(below, depth + 1);
        } else if (below >= 0) {
            close(below);
        }
        unlinkat(dirfd(dir), name, AT_REMOVEDIR);
    }
    closedir(dir);
}

static bool is_free(const char *path)
{
    DIR *dir = opendir(path);
    bool found = false;
    if (!dir) {
        return errno == ENOENT;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        found |= strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    return !found;
}

static char *make_temporary(int *ret_code)
{
    const char *base = getenv("TMPDIR");
    char *path = text_format("%s/rlmflow-XXXXXX", base && *base == '/' ? base : "/tmp");
    if (!mkdtemp(path)) {
        *ret_code = text_exit_code_of_errno(errno);
        text_complain("--collect: making %s: %s", path, strerror(errno));
        free(path);
        return NULL;
    }
    return path;
}

int collect_new(const char *target, const char *cwd, collect **ret_collect)
{
    if (target && !is_free(target)) {
        text_complain("--collect %s: it is there already and not an empty directory", target);
        return EXIT_USAGE;
    }
    if (target && mkdir(target, 0777) < 0 && errno != EEXIST) {
        int code = text_exit_code_of_errno(errno);
        text_complain("--collect %s: %s", target, strerror(errno));
        return code;
    }
    struct collect *c = text_allocate(sizeof *c);
    c->target = target ? text_copy(target) : NULL;
    c->temporary = !cwd;
    int code = 0;
    c->directory = cwd ? text_copy(cwd) : make_temporary(&code);
    if (!c->directory) {
        collect_free(c);
        return code;
    }
    if (target && stat(target, &c->skip[c->n_skip]) == 0) {
        c->n_skip++;
    }
    if (cwd) {
        walk_all(c, remember);
        c->passed_over = 0;
    }
    if (c->problem) {
        collect_free(c);
        return EXIT_USAGE;
    }
    *ret_collect = c;
    return 0;
}

const char *collect_directory(const collect *c)
{
    return c->directory;
}

const char *collect_temporary(const collect *c)
{
    return c->temporary ? c->directory : NULL;
}

int collect_finish(collect *c, const char *run_path)
{
    if (!c->target) {
        return 0;
    }
    if (run_path && stat(run_path, &c->skip[c->n_skip]) == 0) {
        c->n_skip++;
    }
    walk_all(c, copy);
    text_say("%zu file%s in %s", c->copied, c->copied == 1 ? "" : "s", c->target);
    if (c->temporary && c->passed_over) {
        text_say("%zu links and special files were not copied", c->passed_over);
    }
    return c->problem;
}

void collect_free(collect *c)
{
    if (!c) {
        return;
    }
    if (c->temporary && c->directory) {
        int fd = open(c->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
            remove_below(fd, 0);
            rmdir(c->directory);
        }
    }
    tdestroy(c->known, free);
    free(c->directory);
    free(c->target);
    free(c);
}
