/* Directories as inputs: a list of names, sizes and times; contents come at their first access. */
#include "flow/input.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 100000, DEPTH_MAX = 64, SECOND_NS = 1000000000 };

void rlm_directory_free(struct rlm_directory *d)
{
    if (!d) {
        return;
    }
    for (size_t i = 0; i < d->files.len; i++) {
        free(d->files.items[i].name);
        free(d->files.items[i].value_json);
    }
    free(d->files.items);
    rlm_map_deinit(&d->by_name);
    if (d->fd >= 0) {
        close(d->fd);
    }
    free(d->input);
    free(d->path);
    free(d);
}

bool rlm_directory_holds(const struct rlm_directory *d, int fd)
{
    char root[PATH_MAX], target[PATH_MAX], link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t target_len = readlink(link, target, sizeof target);
    snprintf(link, sizeof link, "/proc/self/fd/%d", d->fd);
    ssize_t root_len = readlink(link, root, sizeof root);
    if (root_len == 1) {
        root_len = 0; /* all lies below "/" */
    }
    return root_len >= 0 && target_len > root_len && memcmp(root, target, (size_t)root_len) == 0 &&
           target[root_len] == '/';
}

/* True when what `name` points to lies below the directory. */
static bool stays_inside(const struct rlm_directory *d, const char *name)
{
    int fd = openat(d->fd, name, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool inside = rlm_directory_holds(d, fd);
    close(fd);
    return inside;
}

static int add_file(
    struct rlm_directory *d, rlm_str name, uint64_t size, struct timespec mtime, rlm_error **err)
{
    struct rlm_input_entry *f = rlm_vec_push(&d->files);
    if (!f || !(f->name = rlm_strndup(name.ptr, name.len)) ||
        rlm_map_set(&d->by_name, name, (void *)(uintptr_t)d->files.len) < 0) {
        return rlm_error_nomem(err);
    }
    f->size = size;
    f->mtime = mtime;
    return 0;
}

static int list_entry(struct rlm_directory *d, const char *name, int depth, rlm_error **err);

static int list_directory(struct rlm_directory *d, const char *prefix, int depth, rlm_error **err)
{
    if (depth > DEPTH_MAX) {
        return rlm_error_set(err, RLM_E_LIMIT, "%s lies more than %d directories deep", prefix,
                             DEPTH_MAX);
    }
    int fd = openat(d->fd, *prefix ? prefix : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent **entries;
    int n = fd < 0 ? -1 : scandirat(fd, ".", &entries, NULL, alphasort);
    if (n < 0) {
        int r = rlm_error_set_errno(err, RLM_E_IO, errno, "listing %s", *prefix ? prefix : ".");
        if (fd >= 0) {
            close(fd);
        }
        return r;
    }
    int r = 0;
    for (int i = 0; i < n; i++) {
        const char *entry = entries[i]->d_name;
        if (r == 0 && strcmp(entry, ".") != 0 && strcmp(entry, "..") != 0) {
            rlm_autofree char *name = NULL;
            if (asprintf(&name, "%s%s%s", prefix, *prefix ? "/" : "", entry) < 0) {
                name = NULL;
                r = rlm_error_nomem(err);
            } else {
                r = list_entry(d, name, depth, err);
            }
        }
        free(entries[i]);
    }
    free(entries);
    close(fd);
    return r;
}

static int list_entry(struct rlm_directory *d, const char *name, int depth, rlm_error **err)
{
    struct stat st, target;
    if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : rlm_error_set_errno(err, RLM_E_IO, errno, "%s", name);
    }
    if (S_ISLNK(st.st_mode)) {
        if (fstatat(d->fd, name, &target, 0) < 0) {
            return 0; /* points to nothing */
        }
        if (!stays_inside(d, name)) {
            return rlm_error_set(
                err, RLM_E_INVAL,
                "%s is a symbolic link that leaves the directory; remove it or give its "
                "target as an input of its own",
                name);
        }
        if (S_ISDIR(target.st_mode)) {
            return 0; /* its files are there under their own names */
        }
        st = target;
    }
    if (S_ISDIR(st.st_mode)) {
        return list_directory(d, name, depth + 1, err);
    }
    if (!S_ISREG(st.st_mode)) {
        return 0;
    }
    if (d->files.len >= FILES_MAX) {
        return rlm_error_set(err, RLM_E_LIMIT, "more than %d files", FILES_MAX);
    }
    return add_file(d, rlm_str_of(name), (uint64_t)st.st_size, st.st_mtim, err);
}

void rlm_directory_put(const struct rlm_directory *d, struct rlm_json_writer *w, bool journaled)
{
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "name", d->input);
    if (journaled) {
        rlm_json_member_text(w, "path", d->path);
    }
    rlm_json_key(w, "files");
    rlm_json_begin(w, '[');
    for (size_t i = 0; i < d->files.len; i++) {
        rlm_json_begin(w, '[');
        rlm_json_put_text(w, d->files.items[i].name);
        rlm_json_put_int(w, (int64_t)d->files.items[i].size);
        if (journaled) {
            const struct timespec *t = &d->files.items[i].mtime;
            rlm_json_put_int(w, t->tv_sec * SECOND_NS + t->tv_nsec);
        }
        rlm_json_end(w, ']');
    }
    rlm_json_end(w, ']');
    rlm_json_end(w, '}');
}

int rlm_directory_new(const char *input,
                      const char *path,
                      struct rlm_directory **ret_directory,
                      rlm_error **err)
{
    struct rlm_directory *d;
    if (!RLM_NEW(d)) {
        return rlm_error_nomem(err);
    }
    d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d->input = rlm_strdup(input);
    int r = 0;
    if (d->fd < 0) {
        r = rlm_error_set_errno(err, errno == ENOENT ? RLM_E_NOT_FOUND : RLM_E_IO, errno, "%s",
                                path);
    } else if (!d->input || !(d->path = realpath(path, NULL))) {
        r = rlm_error_nomem(err);
    } else if ((r = list_directory(d, "", 0, err)) < 0) {
        rlm_error_wrap(err, r, "%s", path);
    }
    if (r < 0) {
        rlm_directory_free(d);
        return r;
    }
    *ret_directory = d;
    return 0;
}

static int read_list(struct rlm_directory *d, const rlm_json *list, rlm_error **err)
{
    const rlm_json *files = rlm_json_get(list, "files");
    for (uint32_t i = 0; rlm_json_is(files, RLM_JSON_ARRAY) && i < files->count; i++) {
        const rlm_json *file = rlm_json_at(files, i);
        int64_t time_ns = rlm_json_int(rlm_json_at(file, 2), 0);
        struct timespec mtime = {time_ns / SECOND_NS, time_ns % SECOND_NS};
        int r = add_file(d, rlm_json_text(rlm_json_at(file, 0), RLM_STR("")),
                         (uint64_t)rlm_json_int(rlm_json_at(file, 1), 0), mtime, err);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int rlm_directory_reopen(const rlm_json *list,
                         struct rlm_directory **ret_directory,
                         rlm_error **err)
{
    struct rlm_directory *d;
    if (!RLM_NEW(d)) {
        return rlm_error_nomem(err);
    }
    rlm_str input = rlm_json_text(rlm_json_get(list, "name"), RLM_STR(""));
    rlm_str path = rlm_json_text(rlm_json_get(list, "path"), RLM_STR(""));
    d->fd = -1;
    d->input = rlm_strndup(input.ptr, input.len);
    d->path = rlm_strndup(path.ptr, path.len);
    int r = d->input && d->path ? read_list(d, list, err) : rlm_error_nomem(err);
    if (r < 0) {
        rlm_directory_free(d);
        return r;
    }
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *ret_directory = d;
    return 0;
}
