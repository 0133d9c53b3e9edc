#include "cli/kept.h"

#include "cli/text.h"
#include "cli/units.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WORD_MAX = 20, DEPTH_MAX = 8 };

static const uint64_t warn_bytes = (uint64_t)10 << 30;

char *kept_directory(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/') {
        return text_format("%s/rlmflow/runs", state);
    }
    if (home && *home == '/') {
        return text_format("%s/.local/state/rlmflow/runs", home);
    }
    return NULL;
}

/* Makes a directory and those above it, 0700. 0 or an errno value. */
static int make_all(char *path)
{
    for (char *slash = path + 1;; slash++) {
        slash = strchr(slash, '/');
        if (slash) {
            *slash = '\0';
        }
        int problem = mkdir(path, 0700) < 0 && errno != EEXIST ? errno : 0;
        if (slash) {
            *slash = '/';
        }
        if (!slash || (problem && access(path, F_OK) < 0 && errno != ENOENT)) {
            return problem;
        }
    }
}

/* The longest of the query's first words, in ASCII: what tells runs apart in a list. */
static void choose_word(struct rlm_str query, char ret_word[WORD_MAX + 1])
{
    size_t best = 0, end = query.len < 200 ? query.len : 200;
    strcpy(ret_word, "run");
    for (size_t i = 0; i < end;) {
        size_t start = i;
        while (i < end && isalnum((unsigned char)query.ptr[i])) {
            i++;
        }
        size_t len = i - start;
        if (len > best && len <= WORD_MAX) {
            best = len;
            for (size_t k = 0; k < len; k++) {
                ret_word[k] = (char)tolower((unsigned char)query.ptr[start + k]);
            }
            ret_word[len] = '\0';
        }
        i += i == start;
    }
}

int kept_new_path(struct rlm_str query, char **ret_path)
{
    char *directory = kept_directory();
    if (!directory) {
        text_complain("neither XDG_STATE_HOME nor HOME says where runs are kept; say -o PATH");
        return EXIT_USAGE;
    }
    int problem = make_all(directory);
    if (problem) {
        text_complain("making %s: %s; say -o PATH to keep the run elsewhere", directory,
                      strerror(problem));
        free(directory);
        return text_exit_code_of_errno(problem);
    }
    char word[WORD_MAX + 1], stamp[32] = "";
    time_t now = time(NULL);
    struct tm local;
    choose_word(query, word);
    if (localtime_r(&now, &local)) {
        strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
    }
    char *path = text_format("%s/%s-%s.rlm", directory, stamp, word);
    for (int i = 2; faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0; i++) {
        free(path);
        path = text_format("%s/%s-%s-%d.rlm", directory, stamp, word, i);
    }
    free(directory);
    *ret_path = path;
    return 0;
}

char *kept_find(const char *name)
{
    char *directory = strchr(name, '/') || access(name, F_OK) == 0 ? NULL : kept_directory();
    if (!directory) {
        return text_copy(name);
    }
    char *path = text_format("%s/%s", directory, name);
    if (access(path, F_OK) < 0) {
        char *longer = text_format("%s.rlm", path);
        free(path);
        path = longer;
    }
    free(directory);
    if (access(path, F_OK) < 0) {
        free(path);
        return text_copy(name);
    }
    return path;
}

static uint64_t measure_all(int fd, int depth)
{
    uint64_t sum = 0;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            continue;
        }
        if (S_ISREG(st.st_mode)) {
            sum += (uint64_t)st.st_size;
        } else if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
            int below =
                openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            sum += below < 0 ? 0 : measure_all(below, depth + 1);
        }
    }
    closedir(dir);
    return sum;
}

void kept_measure(struct kept_sum *ret_sum)
{
    *ret_sum = (struct kept_sum){0};
    char *directory = kept_directory();
    DIR *dir = directory ? opendir(directory) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        uint64_t bytes = fd < 0 ? 0 : measure_all(fd, 0);
        ret_sum->runs += fd >= 0;
        ret_sum->bytes += bytes;
        if (bytes > ret_sum->largest_bytes) {
            free(ret_sum->largest);
            ret_sum->largest = text_format("%s/%s", directory, entry->d_name);
            ret_sum->largest_bytes = bytes;
        }
    }
    if (dir) {
        closedir(dir);
    }
    free(directory);
}

static int compare_runs(const void *a, const void *b)
{
    const struct kept_run *x = a, *y = b;
    int64_t left = x->glance.changed_us, right = y->glance.changed_us;
    return left != right ? (left < right) - (left > right) : strcmp(x->name, y->name);
}

/* Whatever is wrong with a run is shown in its place. */
static void look(struct kept_run *run)
{
    rlm_error *err = NULL;
    run->glance = (struct rlm_run_glance)RLM_RUN_GLANCE_INIT;
    if (rlm_run_glance(run->path, &run->glance, &err) < 0) {
        struct stat st;
        run->glance.state = RLM_RUN_DAMAGED;
        run->glance.query = text_copy("");
        run->glance.reason = text_copy("");
        run->glance.problem = text_copy(rlm_error_message(err));
        if (lstat(run->path, &st) == 0) {
            run->glance.changed_us = st.st_mtim.tv_sec * INT64_C(1000000);
        }
        rlm_error_free(err);
    }
}

static bool is_run_name(const char *name)
{
    size_t len = strlen(name);
    return name[0] != '.' && len > 4 && strcmp(name + len - 4, ".rlm") == 0;
}

int kept_list(struct kept_runs *ret_runs)
{
    struct kept_runs runs = {.directory = kept_directory()};
    size_t cap = 0;
    if (!runs.directory) {
        text_complain("neither XDG_STATE_HOME nor HOME says where runs are kept");
        return EXIT_USAGE;
    }
    DIR *dir = opendir(runs.directory);
    if (!dir && errno != ENOENT) {
        int problem = errno;
        text_complain("looking into %s: %s", runs.directory, strerror(problem));
        free(runs.directory);
        return text_exit_code_of_errno(problem);
    }
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        if (!is_run_name(entry->d_name)) {
            continue;
        }
        if (runs.n == cap) {
            struct kept_run *grown = text_allocate((cap * 2 + 64) * sizeof *grown);
            if (cap) {
                memcpy(grown, runs.items, cap * sizeof *grown);
            }
            free(runs.items);
            runs.items = grown;
            cap = cap * 2 + 64;
        }
        struct kept_run *run = &runs.items[runs.n++];
        run->name = text_copy(entry->d_name);
        run->path = text_format("%s/%s", runs.directory, entry->d_name);
        look(run);
        runs.bytes += run->glance.disk_bytes;
    }
    if (dir) {
        closedir(dir);
    }
    if (runs.n) {
        qsort(runs.items, runs.n, sizeof *runs.items, compare_runs);
    }
    *ret_runs = runs;
    return 0;
}

void kept_list_free(struct kept_runs *runs)
{
    for (size_t i = 0; i < runs->n; i++) {
        rlm_run_glance_deinit(&runs->items[i].glance);
        free(runs->items[i].name);
        free(runs->items[i].path);
    }
    free(runs->items);
    free(runs->directory);
}

void kept_warn(void)
{
    struct kept_sum sum;
    kept_measure(&sum);
    if (sum.bytes > warn_bytes && sum.largest) {
        char all[32], largest[32];
        units_format_size(sum.bytes, all, sizeof all);
        units_format_size(sum.largest_bytes, largest, sizeof largest);
        text_say(
            "warning: the %zu kept runs take %s; the largest, %s, takes %s: `rlmflow runs` lists "
            "them, `rlmflow runs prune --keep-size 5g` removes the oldest",
            sum.runs, all, sum.largest, largest);
    }
    free(sum.largest);
}
