#include "cli/editor.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX_BYTES = 64 << 20, POLLS_UNTIL_KILLED = 10 };

static int write_file(struct editor *e, struct rlm_str text)
{
    const char *directory = getenv("TMPDIR");
    e->file = text_format("%s/rlmflow-XXXXXX.py", directory && *directory ? directory : "/tmp");
    int fd = mkostemps(e->file, 3, O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        return errno;
    }
    fwrite(text.ptr, 1, text.len, f);
    fputc('\n', f);
    return fclose(f) == 0 ? 0 : errno;
}

/* On the terminal, with descriptors of its own: those of the program do not wait. */
static int spawn(struct editor *e)
{
    static char shell[] = "sh", flag[] = "-c", line[] = "exec ${VISUAL:-${EDITOR:-vi}} \"$1\"";
    char *argv[] = {shell, flag, line, shell, e->file, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/tty", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&files, 0, 1);
    posix_spawn_file_actions_adddup2(&files, 0, 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int problem = posix_spawn(&e->pid, "/bin/sh", &files, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    e->pid = problem ? 0 : e->pid;
    return problem;
}

static void remove_file(struct editor *e)
{
    if (e->file) {
        unlink(e->file);
        free(e->file);
        e->file = NULL;
    }
}

int editor_start(struct editor *e, struct rlm_str text)
{
    int problem = write_file(e, text);
    problem = problem ? problem : spawn(e);
    if (problem) {
        remove_file(e);
    }
    return problem;
}

bool editor_has_ended(struct editor *e, bool *ret_failed)
{
    int status;
    if (waitpid(e->pid, &status, WNOHANG) != e->pid) {
        return false;
    }
    e->pid = 0;
    *ret_failed = status != 0;
    return true;
}

int editor_read(const struct editor *e, struct rlm_str *ret_text)
{
    int problem = text_read_file(e->file, TEXT_MAX_BYTES, ret_text);
    while (!problem && ret_text->len && ret_text->ptr[ret_text->len - 1] == '\n') {
        ret_text->len--;
    }
    return problem;
}

static void end(struct editor *e)
{
    static const struct timespec moment = {.tv_nsec = EDITOR_POLL_MS * 1000000L};
    kill(e->pid, SIGTERM);
    for (int i = 0; waitpid(e->pid, NULL, WNOHANG) == 0; i++) {
        if (i == POLLS_UNTIL_KILLED) {
            kill(e->pid, SIGKILL);
        }
        nanosleep(&moment, NULL);
    }
    e->pid = 0;
}

bool editor_close(struct editor *e)
{
    bool runs = e->pid != 0;
    if (runs) {
        end(e);
    }
    remove_file(e);
    return runs;
}
