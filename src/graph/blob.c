#include "graph/blob_store.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char TEMPORARY_PREFIX[] = ".new-";

/* An id comes from journals and sessions and becomes a file name: only digits of a hash. */
static bool id_valid(rlm_str id)
{
    if (id.len != RLM_SHA256_HEX) {
        return false;
    }
    for (size_t i = 0; i < id.len; i++) {
        char c = id.ptr[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return false;
        }
    }
    return true;
}

static int check_id(rlm_str id, rlm_error **err)
{
    if (id_valid(id)) {
        return 0;
    }
    int shown = id.len > 80 ? 80 : (int)id.len;
    return rlm_error_set(err, RLM_E_INVAL, "\"%.*s\" is not the id of a blob", shown,
                         id.ptr ? id.ptr : "");
}

/* ---- opening --------------------------------------------------------------------------------- */

static int new_store(const char *directory, rlm_blobs **ret_blobs, rlm_error **err)
{
    rlm_blobs *b;
    if (!RLM_NEW(b)) {
        return rlm_error_nomem(err);
    }
    b->dir_fd = -1;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->widened, NULL);
    if (directory && !(b->directory = rlm_strdup(directory))) {
        rlm_blobs_free(b);
        return rlm_error_nomem(err);
    }
    *ret_blobs = b;
    return 0;
}

/* "HASH.w1", "HASH.w2" or "HASH.w4". */
static bool is_derived(const char *name)
{
    size_t len = strlen(name);
    return len == RLM_SHA256_HEX + 3 && strncmp(name + RLM_SHA256_HEX, ".w", 2) == 0 &&
           id_valid((rlm_str){name, RLM_SHA256_HEX});
}

/* With the lock held. The object of the next sync is made here, where a lack of memory can still be
 * reported: later the journal would be synced without its blobs. */
static bool remember_unsynced(rlm_blobs *b, const char *name)
{
    if (!b->next_sync && !RLM_NEW(b->next_sync)) {
        return false;
    }
    struct blob_name *n = rlm_vec_push(&b->unsynced);
    if (n) {
        snprintf(n->text, sizeof n->text, "%s", name);
    }
    return n != NULL;
}

/* What an earlier process left: its bytes count, its temporary files go, and since nobody knows
 * whether it came to sync its blobs, the next sync covers them. Derived files go too: they are never
 * synced, so after a power cut one may have its full size and not its content. */
static int take_stock(rlm_blobs *b, rlm_error **err)
{
    int fd = openat(b->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int saved = errno;
        if (fd >= 0) {
            close(fd);
        }
        return rlm_error_set_errno(err, RLM_E_IO, saved, "reading directory %s", b->directory);
    }
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(dir));) {
        struct stat st;
        if (strncmp(e->d_name, TEMPORARY_PREFIX, sizeof TEMPORARY_PREFIX - 1) == 0 ||
            is_derived(e->d_name)) {
            unlinkat(b->dir_fd, e->d_name, 0);
        } else if (fstatat(b->dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISREG(st.st_mode)) {
            b->disk_bytes += (uint64_t)st.st_size;
            if (id_valid(rlm_str_of(e->d_name)) && !remember_unsynced(b, e->d_name)) {
                r = rlm_error_nomem(err);
            }
        }
    }
    closedir(dir);
    return r;
}

int rlm_blobs_open(const char *directory, rlm_blobs **ret_blobs, rlm_error **err)
{
    rlm_blobs *b;
    int r = new_store(directory, &b, err);
    if (r < 0) {
        return r;
    }
    if (directory) {
        if (mkdir(directory, 0700) < 0 && errno != EEXIST) {
            r = rlm_error_set_errno(err, RLM_E_IO, errno, "making directory %s", directory);
        } else if ((b->dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
            r = rlm_error_set_errno(err, RLM_E_IO, errno, "opening directory %s", directory);
        } else {
            r = take_stock(b, err);
        }
        if (r < 0) {
            rlm_blobs_free(b);
            return r;
        }
    }
    *ret_blobs = b;
    return 0;
}

int rlm_blobs_open_to_view(const char *directory, rlm_blobs **ret_blobs, rlm_error **err)
{
    rlm_blobs *b;
    int r = new_store(directory, &b, err);
    if (r < 0) {
        return r;
    }
    b->read_only = true;
    b->dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->dir_fd < 0 && errno != ENOENT && errno != ENOTDIR) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "opening directory %s", directory);
        rlm_blobs_free(b);
        return r;
    }
    *ret_blobs = b;
    return 0;
}

rlm_blobs *rlm_blobs_ref(rlm_blobs *b)
{
    b->more_holders++;
    return b;
}

void rlm_blobs_free(rlm_blobs *b)
{
    if (!b) {
        return;
    }
    if (b->more_holders > 0) {
        b->more_holders--;
        return;
    }
    size_t pos = 0;
    rlm_str id;
    void *value;
    while (rlm_map_next(&b->entries, &pos, &id, &value)) {
        struct blob_entry *e = value;
        if (e->fd >= 0) {
            close(e->fd);
        }
        if (e->wide_fd >= 0) {
            close(e->wide_fd);
        }
        free(e);
    }
    rlm_map_deinit(&b->entries);
    free(b->unsynced.items);
    free(b->next_sync);
    if (b->dir_fd >= 0) {
        close(b->dir_fd);
    }
    free(b->directory);
    pthread_cond_destroy(&b->widened);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

/* ---- what is known --------------------------------------------------------------------------- */

const struct rlm_blob *rlm_blobs_find(const rlm_blobs *b, rlm_str id)
{
    pthread_mutex_t *lock = &((rlm_blobs *)(uintptr_t)b)->lock;
    const struct rlm_blob *found = NULL;
    pthread_mutex_lock(lock);
    const struct blob_entry *e = rlm_map_get(&b->entries, id);
    for (int type = RLM_BLOB_TEXT; e && !found && type <= RLM_BLOB_BYTES; type++) {
        found = e->known[type] ? &e->facts[type] : NULL;
    }
    pthread_mutex_unlock(lock);
    return found;
}

/* With the lock held. Takes `fd` (a memfd or -1), unless it fails. `stored`: the facts are those of a
 * content that was just stored; where it had been before, that one was kept and is only believed. */
static struct blob_entry *
enter(rlm_blobs *b, const struct rlm_blob *facts, bool known, bool stored, int fd)
{
    rlm_str id = rlm_str_of(facts->id);
    struct blob_entry *e = rlm_map_get(&b->entries, id);
    if (!e) {
        if (!RLM_NEW(e)) {
            return NULL;
        }
        e->fd = e->wide_fd = -1;
        e->ours = stored;
        if (rlm_map_set(&b->entries, id, e) < 0) {
            free(e);
            return NULL;
        }
    }
    if (fd >= 0 && e->fd < 0) {
        e->fd = fd;
    } else if (fd >= 0) {
        close(fd);
    }
    if (!e->known[facts->type]) {
        struct rlm_blob *before = &e->facts[facts->type];
        bool same = before->chars == facts->chars && before->max_char == facts->max_char;
        e->found[facts->type] = e->ours && (stored || (e->found[facts->type] && same));
        *before = *facts;
        e->known[facts->type] = known;
    }
    return e;
}

int rlm_blobs_register(rlm_blobs *b, const struct rlm_blob *facts, rlm_error **err)
{
    rlm_str id = {facts->id, strnlen(facts->id, sizeof facts->id)};
    int r = check_id(id, err);
    if (r < 0) {
        return r;
    }
    if (facts->type != RLM_BLOB_TEXT && facts->type != RLM_BLOB_BYTES) {
        return rlm_error_set(err, RLM_E_INVAL, "blob %s has no type", facts->id);
    }
    int fd = -1;
    if ((r = rlm_blobs_open_content(b, id, &fd, err)) < 0) {
        return r;
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "looking at blob %s", facts->id);
    } else if ((uint64_t)st.st_size != facts->size_bytes) {
        r = rlm_error_set(
            err, RLM_E_CORRUPT,
            "blob %s in %s has %lld bytes where the run says %llu: the file is damaged", facts->id,
            b->directory ? b->directory : "memory", (long long)st.st_size,
            (unsigned long long)facts->size_bytes);
    }
    close(fd);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&b->lock);
    bool entered = enter(b, facts, true, false, -1) != NULL;
    pthread_mutex_unlock(&b->lock);
    return entered ? 0 : rlm_error_nomem(err);
}

/* ---- sinks ----------------------------------------------------------------------------------- */

static int open_memory_sink(struct blob_sink *s, rlm_error **err)
{
    s->fd = memfd_create("rlmflow-blob", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->fd < 0) {
        return rlm_error_set_errno(
            err, RLM_E_IO, errno,
            "no memory file for a large value (raise the limit of open files, "
            "or keep the run in a directory)");
    }
    return 0;
}

int rlm_blob_sink_open(rlm_blobs *b, bool in_memory, struct blob_sink *ret_sink, rlm_error **err)
{
    *ret_sink = (struct blob_sink){.blobs = b, .fd = -1};
    if (in_memory || !b->directory || b->read_only) {
        return open_memory_sink(ret_sink, err);
    }
    pthread_mutex_lock(&b->lock);
    uint64_t number = b->next_temporary++;
    pthread_mutex_unlock(&b->lock);
    snprintf(ret_sink->temporary, sizeof ret_sink->temporary, "%s%ld-%llu", TEMPORARY_PREFIX,
             (long)getpid(), (unsigned long long)number);
    /* The mode is the final one: the descriptor stays writable, the name never is. */
    ret_sink->fd = openat(b->dir_fd, ret_sink->temporary,
                          O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
    if (ret_sink->fd < 0) {
        ret_sink->temporary[0] = '\0';
        atomic_store(&b->write_failed, true);
        return errno == ENOENT
                   ? rlm_error_set(err, RLM_E_IO, "%s was removed while it was in use",
                                   b->directory)
                   : rlm_error_set_errno(err, RLM_E_IO, errno, "making a file in %s", b->directory);
    }
    return 0;
}

int rlm_blob_sink_write(struct blob_sink *s, const void *ptr, size_t len, rlm_error **err)
{
    const char *p = ptr;
    while (len) {
        ssize_t n = write(s->fd, p, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            atomic_store(&s->blobs->write_failed, true);
            return rlm_error_set_errno(err, RLM_E_IO, errno,
                                       "writing a blob of more than %llu bytes "
                                       "to %s",
                                       (unsigned long long)s->size_bytes,
                                       s->temporary[0] ? s->blobs->directory : "memory");
        }
        p += n;
        len -= (size_t)n;
        s->size_bytes += (uint64_t)n;
    }
    return 0;
}

bool rlm_blobs_write_failed(const rlm_blobs *b)
{
    return atomic_load(&b->write_failed);
}

void rlm_blob_sink_abort(struct blob_sink *s)
{
    if (s->temporary[0]) {
        unlinkat(s->blobs->dir_fd, s->temporary, 0);
        s->temporary[0] = '\0';
    }
    if (s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
}

int rlm_blob_sink_seal(struct blob_sink *s, int *ret_fd, rlm_error **err)
{
    if (fcntl(s->fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "sealing a memory file");
    }
    *ret_fd = s->fd;
    s->fd = -1;
    return 0;
}

int rlm_blob_sink_rename(struct blob_sink *s, const char *name, bool sync, rlm_error **err)
{
    rlm_blobs *b = s->blobs;
    struct stat st;
    int r = 0;
    pthread_mutex_lock(&b->lock);
    /* A file of an earlier process that no record names is replaced: it may never have been synced. */
    bool trusted = !sync || rlm_map_has(&b->entries, rlm_str_of(name));
    bool there = fstatat(b->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
    if (trusted && there && (uint64_t)st.st_size == s->size_bytes) {
        goto out; /* stored before: the abort below removes ours */
    }
    if (sync && !remember_unsynced(b, name)) {
        r = rlm_error_nomem(err);
    } else if (renameat(b->dir_fd, s->temporary, b->dir_fd, name) < 0) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "renaming %s/%s to %s", b->directory,
                                s->temporary, name);
        atomic_store(&b->write_failed, true);
        b->unsynced.len -= sync;
    } else {
        s->temporary[0] = '\0';
        b->disk_bytes += s->size_bytes - (there ? (uint64_t)st.st_size : 0);
    }
out:
    pthread_mutex_unlock(&b->lock);
    rlm_blob_sink_abort(s);
    return r;
}

int rlm_blob_sink_keep(struct blob_sink *s,
                       const struct rlm_blob *facts,
                       bool known,
                       const struct rlm_blob **ret_blob,
                       rlm_error **err)
{
    rlm_blobs *b = s->blobs;
    int fd = -1;
    int r = s->temporary[0] ? rlm_blob_sink_rename(s, facts->id, true, err)
                            : rlm_blob_sink_seal(s, &fd, err);
    if (r < 0) {
        rlm_blob_sink_abort(s);
        return r;
    }
    pthread_mutex_lock(&b->lock);
    struct blob_entry *e = enter(b, facts, known, true, fd);
    pthread_mutex_unlock(&b->lock);
    if (!e) {
        if (fd >= 0) {
            close(fd);
        }
        return rlm_error_nomem(err);
    }
    *ret_blob = &e->facts[facts->type];
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

int rlm_fd_reopen(int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int copy = open(path, O_RDONLY | O_CLOEXEC);
    /* Without /proc the copy is writable in name only: seals and mode forbid it. */
    return copy >= 0 ? copy : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

int rlm_blobs_open_content(rlm_blobs *b, rlm_str id, int *ret_fd, rlm_error **err)
{
    int r = check_id(id, err), fd = -1, saved = ENOENT;
    if (r < 0) {
        return r;
    }
    if (b->directory) {
        char name[RLM_SHA256_HEX + 1];
        memcpy(name, id.ptr, id.len);
        name[id.len] = '\0';
        if (b->dir_fd >= 0) {
            fd = openat(b->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
            saved = errno;
        }
    } else {
        pthread_mutex_lock(&b->lock);
        const struct blob_entry *e = rlm_map_get(&b->entries, id);
        fd = e ? rlm_fd_reopen(e->fd) : -1;
        saved = e ? errno : ENOENT;
        pthread_mutex_unlock(&b->lock);
    }
    if (fd < 0 && saved == ENOENT) {
        return rlm_error_set(err, RLM_E_NOT_FOUND, "blob %.*s is missing from %s", RLM_FMT(id),
                             b->directory ? b->directory : "this run");
    }
    if (fd < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, saved, "opening blob %.*s", RLM_FMT(id));
    }
    *ret_fd = fd;
    return 0;
}

int rlm_blobs_read_range(
    rlm_blobs *b, rlm_str id, uint64_t start, size_t count, struct rlm_buf *out, rlm_error **err)
{
    int fd;
    int r = rlm_blobs_open_content(b, id, &fd, err);
    if (r < 0) {
        return r;
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "looking at blob %.*s", RLM_FMT(id));
        close(fd);
        return r;
    }
    uint64_t size = (uint64_t)st.st_size, left = start < size ? size - start : 0;
    if (left < count) {
        count = (size_t)left;
    }
    char *room = rlm_buf_reserve(out, count);
    size_t taken = 0;
    while (room && taken < count) {
        ssize_t n = pread(fd, room + taken, count - taken, (off_t)(start + taken));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            r = rlm_error_set_errno(err, RLM_E_IO, errno, "reading blob %.*s", RLM_FMT(id));
        }
        if (n <= 0) {
            break;
        }
        taken += (size_t)n;
    }
    close(fd);
    if (room && r == 0) {
        rlm_buf_commit(out, taken);
    }
    return r < 0 ? r : rlm_buf_check(out, err);
}

int rlm_blobs_read(rlm_blobs *b, rlm_str id, struct rlm_buf *out, rlm_error **err)
{
    return rlm_blobs_read_range(b, id, 0, SIZE_MAX / 2, out, err);
}

uint64_t rlm_blobs_disk_bytes(const rlm_blobs *b)
{
    pthread_mutex_t *lock = &((rlm_blobs *)(uintptr_t)b)->lock;
    pthread_mutex_lock(lock);
    uint64_t bytes = b->disk_bytes;
    pthread_mutex_unlock(lock);
    return bytes;
}

/* ---- durability ------------------------------------------------------------------------------ */

rlm_blob_sync *rlm_blobs_sync_begin(rlm_blobs *b)
{
    rlm_blob_sync *s = NULL;
    pthread_mutex_lock(&b->lock);
    if (b->unsynced.len) {
        s = rlm_steal(&b->next_sync);
        s->blobs = b;
        s->names = b->unsynced.items;
        s->n_names = b->unsynced.len;
        memset(&b->unsynced, 0, sizeof b->unsynced);
    }
    pthread_mutex_unlock(&b->lock);
    return s;
}

int rlm_blobs_sync_run(rlm_blob_sync *s, rlm_error **err)
{
    rlm_blobs *b = s->blobs;
    for (size_t i = 0; i < s->n_names; i++) {
        int fd = openat(b->dir_fd, s->names[i].text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || fdatasync(fd) < 0) {
            int saved = errno;
            if (fd >= 0) {
                close(fd);
            }
            return rlm_error_set_errno(err, RLM_E_IO, saved, "syncing blob %s/%s", b->directory,
                                       s->names[i].text);
        }
        close(fd);
    }
    if (fsync(b->dir_fd) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "syncing directory %s", b->directory);
    }
    s->synced = true;
    return 0;
}

void rlm_blobs_sync_end(rlm_blob_sync *s)
{
    if (!s) {
        return;
    }
    if (!s->synced) {
        pthread_mutex_lock(&s->blobs->lock);
        for (size_t i = 0; i < s->n_names && remember_unsynced(s->blobs, s->names[i].text); i++) {
        }
        pthread_mutex_unlock(&s->blobs->lock);
    }
    free(s->names);
    free(s);
}
