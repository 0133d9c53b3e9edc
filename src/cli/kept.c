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
    for (int i = 2; access(path, F_OK) == 0; i++) {
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

void kept_warn(void)
{
    struct kept_sum sum;
    kept_measure(&sum);
    if (sum.bytes > warn_bytes && sum.largest) {
        char all[32], largest[32];
        units_format_size(sum.bytes, all, sizeof all);
        units_format_size(sum.largest_bytes, largest, sizeof largest);
        text_say("warning: the %zu kept runs take %s; to free %s: rm -r '%s'", sum.runs, all,
                 largest, sum.largest);
    }
    free(sum.largest);
}
