/* One file for a run: a plain tar archive (ustar) with
 *
 *     NAME/              NAME/journal          NAME/blobs/          NAME/blobs/HASH ...
 *
 * Reading takes nothing of the archive's word: no name of it becomes a path but the two that a run has
 * (the journal, and blobs named by 64 hexadecimal digits), only plain files and these directories are
 * allowed, and each blob must have the hash that is its name. */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/vec.h"
#include "graph/journal_file.h"
#include "graph/journal_scan.h"
#include "graph/target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512, PIECE = 256 * 1024, NAME_MAX_BYTES = 99, END_BLOCKS_MAX = 1 << 14 };

/* Where the fields of a header stand. */
enum {
    AT_NAME = 0,
    AT_MODE = 100,
    AT_UID = 108,
    AT_GID = 116,
    AT_SIZE = 124,
    AT_TIME = 136,
    AT_SUM = 148,
    AT_TYPE = 156,
    AT_MAGIC = 257,
    AT_PREFIX = 345,
    SIZE_LEN = 12,
};

/* ---- headers --------------------------------------------------------------------------------- */

static unsigned sum_of(const uint8_t *h)
{
    unsigned sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        sum += i >= AT_SUM && i < AT_SUM + 8 ? ' ' : h[i];
    }
    return sum;
}

/* In octal digits; what they cannot hold (8 GiB) in base 256, as GNU tar and others have it. */
static void put_size(uint8_t *field, uint64_t size)
{
    if (size < UINT64_C(1) << 33) {
        char digits[SIZE_LEN];
        snprintf(digits, sizeof digits, "%011" PRIo64, size);
        memcpy(field, digits, SIZE_LEN);
        return;
    }
    field[0] = 0x80;
    for (int i = SIZE_LEN - 1; i > 0; i--, size >>= 8) {
        field[i] = (uint8_t)size;
    }
}

static bool get_octal(const uint8_t *field, size_t len, uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < len && field[i] >= '0' && field[i] <= '7'; i++) {
        value = value << 3 | (uint64_t)(field[i] - '0');
    }
    bool digits = i > 0;
    for (; i < len; i++) {
        if (field[i] != ' ' && field[i] != '\0') {
            return false;
        }
    }
    *ret_value = value;
    return digits;
}

static bool get_size(const uint8_t *field, uint64_t *ret_size)
{
    if (field[0] != 0x80) {
        return get_octal(field, SIZE_LEN, ret_size);
    }
    uint64_t size = 0;
    for (int i = 1; i < SIZE_LEN; i++) {
        if (size >> 55) {
            return false;
        }
        size = size << 8 | field[i];
    }
    *ret_size = size;
    return true;
}

static void
make_header(uint8_t *h, const char *name, char type, unsigned mode, uint64_t size, int64_t time)
{
    char field[16];
    memset(h, 0, BLOCK);
    memcpy(h + AT_NAME, name, strlen(name));
    snprintf(field, sizeof field, "%07o", mode);
    memcpy(h + AT_MODE, field, 8);
    memcpy(h + AT_UID, "0000000", 8);
    memcpy(h + AT_GID, "0000000", 8);
    put_size(h + AT_SIZE, size);
    snprintf(field, sizeof field, "%011" PRIo64, (uint64_t)time & ((UINT64_C(1) << 33) - 1));
    memcpy(h + AT_TIME, field, 12);
    h[AT_TYPE] = (uint8_t)type;
    memcpy(h + AT_MAGIC, "ustar\00000", 8);
    snprintf(field, sizeof field, "%06o", sum_of(h));
    memcpy(h + AT_SUM, field, 7);
    h[AT_SUM + 7] = ' ';
}

/* ---- packing --------------------------------------------------------------------------------- */

struct packer {
    struct rlm_target target;
    char name[40]; /* of the directory in the archive */
    uint8_t *piece;
};

static int put_header(
    struct packer *p, const char *rest, char type, uint64_t size, int64_t time, rlm_error **err)
{
    uint8_t h[BLOCK];
    char name[NAME_MAX_BYTES + 80];
    snprintf(name, sizeof name, "%s/%s", p->name, rest);
    make_header(h, name, type, type == '5' ? 0700 : 0600, size, time);
    return rlm_target_write(&p->target, h, sizeof h, err);
}

/* `size` bytes of a file, hashed on the way unless `hash` is NULL. */
static int put_content(
    struct packer *p, int fd, uint64_t size, const char *what, rlm_sha256 *hash, rlm_error **err)
{
    static const uint8_t zeros[BLOCK];
    for (uint64_t at = 0; at < size;) {
        size_t wanted = size - at < PIECE ? (size_t)(size - at) : PIECE;
        ssize_t n = pread(fd, p->piece, wanted, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return rlm_error_set_errno(err, RLM_E_IO, n < 0 ? errno : EIO, "reading %s", what);
        }
        if (hash) {
            rlm_sha256_add(hash, p->piece, (size_t)n);
        }
        int r = rlm_target_write(&p->target, p->piece, (size_t)n, err);
        if (r < 0) {
            return r;
        }
        at += (uint64_t)n;
    }
    return size % BLOCK ? rlm_target_write(&p->target, zeros, BLOCK - size % BLOCK, err) : 0;
}

static bool is_blob_name(const char *name)
{
    return strlen(name) == RLM_SHA256_HEX && strspn(name, "0123456789abcdef") == RLM_SHA256_HEX;
}

static int pack_blob(struct packer *p, int blobs_fd, const char *id, rlm_error **err)
{
    struct stat st;
    char rest[RLM_SHA256_HEX + 8], found[RLM_SHA256_HEX + 1] = "";
    int fd = openat(blobs_fd, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int r = rlm_error_set_errno(err, RLM_E_IO, errno, "opening blob %s", id);
        if (fd >= 0) {
            close(fd);
        }
        return r;
    }
    rlm_sha256 *hash = rlm_sha256_new();
    snprintf(rest, sizeof rest, "blobs/%.*s", RLM_SHA256_HEX, id);
    int r = !S_ISREG(st.st_mode) ? rlm_error_set(err, RLM_E_CORRUPT, "blob %s is no file", id)
            : hash               ? put_header(p, rest, '0', (uint64_t)st.st_size, st.st_mtime, err)
                                 : rlm_error_nomem(err);
    if (r == 0) {
        r = put_content(p, fd, (uint64_t)st.st_size, rest, hash, err);
    }
    if (r == 0) {
        rlm_sha256_hex(hash, found);
        if (strcmp(found, id) != 0) {
            r = rlm_error_set(
                err, RLM_E_CORRUPT,
                "blob %s is damaged: its content has another hash. A pack of this run "
                "could not be trusted",
                id);
        }
    }
    rlm_sha256_free(hash);
    close(fd);
    return r;
}

static int pack_blobs(struct packer *p, int dir_fd, rlm_error **err)
{
    int fd = openat(dir_fd, "blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : rlm_error_set_errno(err, RLM_E_IO, errno, "opening blobs");
    }
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return rlm_error_nomem(err);
    }
    int r = put_header(p, "blobs/", '5', 0, 0, err);
    for (struct dirent *entry; r == 0 && (entry = readdir(dir)) != NULL;) {
        if (is_blob_name(entry->d_name)) {
            r = pack_blob(p, fd, entry->d_name, err);
        }
    }
    closedir(dir);
    return r;
}

/* The journal is measured first and its blobs come after it: all that it names by then is there. Of one
 * that is being written only whole records are taken; damage is packed as it is, for those who
 * look into it. */
static int pack_run(struct packer *p, const char *path, int dir_fd, rlm_error **err)
{
    static const uint8_t end[2 * BLOCK];
    struct rlm_journal_scan found;
    struct stat st;
    uint64_t size;
    int fd;
    int r = rlm_journal_open_file(dir_fd, path, O_RDONLY, &fd, &size, err);
    if (r < 0) {
        return r;
    }
    r = rlm_journal_scan_fd(fd, size, NULL, NULL, &found, err);
    if (r < 0) {
        rlm_error_wrap(err, r, "%s", path);
    } else {
        size = found.damage.valid_after > 0 ? size : found.end;
        r = put_header(p, "", '5', 0, 0, err);
    }
    if (r == 0) {
        int64_t time = fstat(fd, &st) == 0 ? st.st_mtime : 0;
        r = put_header(p, "journal", '0', size, time, err);
    }
    if (r == 0) {
        r = put_content(p, fd, size, path, NULL, err);
    }
    if (r == 0) {
        r = pack_blobs(p, dir_fd, err);
    }
    /* Its journal goes first; blobs may be missing then. */
    if (fstat(fd, &st) == 0 && st.st_nlink == 0) {
        rlm_error_free(err ? rlm_steal(err) : NULL);
        r = rlm_error_set(err, RLM_E_NOT_FOUND, "the run %s was removed while it was packed", path);
    }
    close(fd);
    return r == 0 ? rlm_target_write(&p->target, end, sizeof end, err) : r;
}

/* The run's own name where tar can hold it. */
static void choose_name(struct packer *p, const char *path)
{
    size_t end = strlen(path);
    while (end && path[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start && path[start - 1] != '/') {
        start--;
    }
    bool fits = end > start && end - start < sizeof p->name && path[start] != '.';
    snprintf(p->name, sizeof p->name, "%.*s", fits ? (int)(end - start) : 7,
             fits ? path + start : "run.rlm");
}

int rlm_run_pack(const char *journal, const char *path, rlm_error **err)
{
    struct packer p = {0};
    int dir_fd;
    int r = rlm_journal_open_directory(journal, &dir_fd, err);
    if (r < 0) {
        return r;
    }
    choose_name(&p, journal);
    if (!(p.piece = rlm_malloc(PIECE))) {
        r = rlm_error_nomem(err);
    } else if ((r = rlm_target_open(path, &p.target, err)) == 0) {
        r = pack_run(&p, journal, dir_fd, err);
        r = rlm_target_close(&p.target, r, err);
    }
    free(p.piece);
    close(dir_fd);
    return r;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

struct unpacker {
    const char *path;
    int fd;
    int dir_fd, blobs_fd;
    char name[NAME_MAX_BYTES +
              1]; /* of the archive's directory, with its slash; "": not yet known */
    bool has_journal;
    uint8_t *piece;
};

/* `len` bytes. RLM_E_PARSE when the file ends before. */
static int take(struct unpacker *u, uint8_t *to, size_t len, rlm_error **err)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = read(u->fd, to + got, len - got);
        if (n < 0 && errno != EINTR) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "reading %s", u->path);
        }
        if (n == 0) {
            return rlm_error_set(err, RLM_E_PARSE, "%s is cut off: it is not a whole pack",
                                 u->path);
        }
        got += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Copies an entry's content to a new file; `hash` (may be NULL) sees it. */
static int take_content(struct unpacker *u,
                        int dir_fd,
                        const char *name,
                        uint64_t size,
                        mode_t mode,
                        rlm_sha256 *hash,
                        rlm_error **err)
{
    struct rlm_target to = {.path = name};
    to.fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to.fd < 0) {
        return errno == EEXIST ? rlm_error_set(err, RLM_E_PARSE, "%s holds %s twice", u->path, name)
                               : rlm_error_set_errno(err, RLM_E_IO, errno, "making %s", name);
    }
    int r = 0;
    for (uint64_t left = size; r == 0 && left;) {
        size_t n = left < PIECE ? (size_t)left : PIECE;
        if ((r = take(u, u->piece, n, err)) == 0) {
            if (hash) {
                rlm_sha256_add(hash, u->piece, n);
            }
            r = rlm_target_write(&to, u->piece, n, err);
            left -= n;
        }
    }
    if (r == 0 && (fchmod(to.fd, mode) < 0 || fsync(to.fd) < 0)) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "writing %s", name);
    }
    r = rlm_target_close(&to, r, err);
    return r == 0 && size % BLOCK ? take(u, u->piece, BLOCK - size % BLOCK, err) : r;
}

static int take_blob(struct unpacker *u, const char *id, uint64_t size, rlm_error **err)
{
    char found[RLM_SHA256_HEX + 1] = "";
    rlm_sha256 *hash = rlm_sha256_new();
    int r = hash ? take_content(u, u->blobs_fd, id, size, 0400, hash, err) : rlm_error_nomem(err);
    if (r == 0) {
        rlm_sha256_hex(hash, found);
        if (strcmp(found, id) != 0) {
            r = rlm_error_set(
                err, RLM_E_CORRUPT,
                "%s: the content of blob %s has another hash: it was changed or damaged", u->path,
                id);
        }
    }
    rlm_sha256_free(hash);
    return r;
}

static int refuse(struct unpacker *u, const char *name, const char *why, rlm_error **err)
{
    return rlm_error_set(err, RLM_E_PARSE, "%s holds \"%s\", %s: it is not the pack of a run",
                         u->path, name, why);
}

/* The part of a name behind the archive's directory; NULL when it lies elsewhere. */
static const char *below(struct unpacker *u, const char *name)
{
    const char *slash = strchr(name, '/');
    size_t len = slash ? (size_t)(slash - name) + 1 : 0;
    if (len < 2 || strncmp(name, "./", len) == 0 || strncmp(name, "../", len) == 0) {
        return NULL;
    }
    if (!*u->name) {
        memcpy(u->name, name, len);
        u->name[len] = '\0';
    }
    return strncmp(name, u->name, strlen(u->name)) == 0 ? name + strlen(u->name) : NULL;
}

static int take_entry(struct unpacker *u, const uint8_t *h, rlm_error **err)
{
    char name[NAME_MAX_BYTES + 2] = "";
    uint64_t size;
    memcpy(name, h + AT_NAME, NAME_MAX_BYTES + 1);
    char type = (char)h[AT_TYPE];
    if (!get_size(h + AT_SIZE, &size)) {
        return refuse(u, name, "whose size makes no sense", err);
    }
    if ((type != '0' && type != '\0' && type != '5') || h[AT_PREFIX] || name[NAME_MAX_BYTES]) {
        return refuse(u, name, "which is neither a plain file nor a directory", err);
    }
    const char *rest = below(u, name);
    if (!rest) {
        return refuse(u, name, "which lies elsewhere", err);
    }
    if (type == '5') {
        bool ours = (!*rest || strcmp(rest, "blobs/") == 0) && size == 0;
        return ours ? 0 : refuse(u, name, "a directory that no run has", err);
    }
    if (strcmp(rest, "journal") == 0) {
        u->has_journal = true;
        return take_content(u, u->dir_fd, "journal", size, 0600, NULL, err);
    }
    if (strncmp(rest, "blobs/", 6) == 0 && is_blob_name(rest + 6)) {
        return take_blob(u, rest + 6, size, err);
    }
    return refuse(u, name, "a file that no run has", err);
}

static bool is_zero(const uint8_t *block)
{
    return block[0] == 0 && memcmp(block, block + 1, BLOCK - 1) == 0;
}

/* The end is two blocks of zeros; tar programs fill their own larger block with more of them. */
static int check_end(struct unpacker *u, rlm_error **err)
{
    uint8_t block[BLOCK];
    int blocks = 0, r = take(u, block, BLOCK, err);
    if (r == 0 && !is_zero(block)) {
        r = rlm_error_set(err, RLM_E_PARSE, "%s goes on behind its end", u->path);
    }
    for (;;) {
        ssize_t n = r == 0 ? read(u->fd, block, 1) : 0;
        if (n == 0) {
            return r;
        }
        if (++blocks > END_BLOCKS_MAX) {
            return rlm_error_set(err, RLM_E_PARSE, "%s has no end: only zeros come", u->path);
        }
        if (n < 0 && errno != EINTR) {
            return rlm_error_set_errno(err, RLM_E_IO, errno, "reading %s", u->path);
        }
        if (n > 0 && ((r = take(u, block + 1, BLOCK - 1, err)) < 0 || !is_zero(block))) {
            return r < 0 ? r
                         : rlm_error_set(err, RLM_E_PARSE, "%s goes on behind its end", u->path);
        }
    }
}

static int take_entries(struct unpacker *u, rlm_error **err)
{
    uint8_t h[BLOCK];
    uint64_t sum;
    for (;;) {
        int r = take(u, h, BLOCK, err);
        if (r < 0) {
            return r;
        }
        if (is_zero(h)) {
            return check_end(u, err);
        }
        if (memcmp(h + AT_MAGIC, "ustar", 5) != 0 || !get_octal(h + AT_SUM, 8, &sum) ||
            sum != sum_of(h)) {
            return rlm_error_set(err, RLM_E_PARSE,
                                 "%s is not the pack of a run, or it is damaged: a header of a tar "
                                 "archive should stand where there is none",
                                 u->path);
        }
        if ((r = take_entry(u, h, err)) < 0) {
            return r;
        }
    }
}

static int check_journal(struct unpacker *u, rlm_error **err)
{
    struct rlm_journal_scan found;
    uint64_t size;
    int fd;
    if (!u->has_journal) {
        return rlm_error_set(err, RLM_E_PARSE, "%s is not the pack of a run: it holds no journal",
                             u->path);
    }
    int r = rlm_journal_open_file(u->dir_fd, u->path, O_RDONLY, &fd, &size, err);
    if (r == 0) {
        r = rlm_journal_scan_fd(fd, size, NULL, NULL, &found, err);
        close(fd);
        if (r < 0) {
            rlm_error_wrap(err, r, "%s", u->path);
        }
    }
    return r;
}

static int unpack_to(struct unpacker *u, const char *directory, rlm_error **err)
{
    u->dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (u->dir_fd < 0 || mkdirat(u->dir_fd, "blobs", 0700) < 0 ||
        (u->blobs_fd = openat(u->dir_fd, "blobs", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        return rlm_error_set_errno(err, RLM_E_IO, errno, "making %s", directory);
    }
    int r = take_entries(u, err);
    if (r == 0) {
        r = check_journal(u, err);
    }
    if (r == 0 && (fsync(u->blobs_fd) < 0 || fsync(u->dir_fd) < 0)) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "writing %s", directory);
    }
    return r;
}

int rlm_run_unpack(const char *path, const char *journal, rlm_error **err)
{
    struct unpacker u = {.path = path, .fd = -1, .dir_fd = -1, .blobs_fd = -1};
    struct rlm_target target;
    u.fd = strcmp(path, "-") == 0 ? fcntl(0, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
    if (u.fd < 0) {
        return errno == ENOENT ? rlm_error_set(err, RLM_E_NOT_FOUND, "there is no pack %s", path)
                               : rlm_error_set_errno(err, RLM_E_IO, errno, "opening %s", path);
    }
    int r = rlm_target_make_directory(journal, &target, err);
    if (r == 0) {
        u.piece = rlm_malloc(PIECE);
        r = u.piece ? unpack_to(&u, target.part, err) : rlm_error_nomem(err);
        r = rlm_target_close(&target, r, err);
    }
    free(u.piece);
    int fds[] = {u.blobs_fd, u.dir_fd, u.fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    return r;
}
