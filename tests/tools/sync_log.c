/* To be preloaded: writes to RLM_SYNC_LOG what each fsync and fdatasync made durable, as it stood when the
 * call began: a line "file INODE SIZE" or "dir INODE NAME=INODE...". From it a test rebuilds a directory as
 * a power cut leaves it. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fsync(int fd);
int fdatasync(int fd);

static size_t describe(int fd, char *line, size_t size)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return 0;
    }
    if (!S_ISDIR(st.st_mode)) {
        return (size_t)snprintf(line, size, "file %llu %llu", (unsigned long long)st.st_ino,
                                (unsigned long long)st.st_size);
    }
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    size_t len = (size_t)snprintf(line, size, "dir %llu", (unsigned long long)st.st_ino);
    for (struct dirent *e; dir && (e = readdir(dir)) && len < size;) {
        if (e->d_name[0] != '.') {
            len += (size_t)snprintf(line + len, size - len, " %s=%llu", e->d_name,
                                    (unsigned long long)e->d_ino);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return len;
}

static int sync_and_tell(int fd, const char *name)
{
    static _Thread_local char line[1 << 16];
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *path = getenv("RLM_SYNC_LOG");
    size_t len = describe(fd, line, sizeof line - 2);
    int result = real(fd);
    int log = path && result == 0 && len && len < sizeof line - 2
                  ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                  : -1;
    if (log >= 0) {
        line[len++] = '\n';
        if (write(log, line, len) != (ssize_t)len) {
            abort();
        }
        close(log);
    }
    return result;
}

int fsync(int fd)
{
    return sync_and_tell(fd, "fsync");
}

int fdatasync(int fd)
{
    return sync_and_tell(fd, "fdatasync");
}
