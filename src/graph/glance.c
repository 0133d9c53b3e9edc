/* A run at a glance: what a list of thousands of runs needs, from the first and the last record of each
 * where the run ended in order, else from all records, but never from its blobs. */
#include "base/alloc.h"
#include "base/utf8.h"
#include "graph/journal_file.h"
#include "graph/journal_scan.h"
#include "graph/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STOPPED = 1,
    HEAD_BYTES = 128 * 1024,
    TAIL_BYTES = 128 * 1024,
    QUERY_MAX_BYTES = 400,
};

struct look {
    struct rlm_run_glance *g;
    rlm_arena *scratch;
    const char *blobs; /* the directory of large texts */
    char *agent;       /* of the root; NULL: no RUN record came yet */
    bool only_head;
    struct rlm_map children; /* ids of the agents below the root */
    int64_t n_nodes;         /* of the root */
    char *done;              /* why the root ended; NULL or empty: it has not */
    char *last; /* why the last drive ended; NULL or empty: it was killed, or goes on */
};

static int copy_text(char **to, rlm_str text, rlm_error **err)
{
    free(*to);
    *to = rlm_strndup(text.ptr ? text.ptr : "", text.len);
    return *to ? 0 : rlm_error_nomem(err);
}

/* ---- records --------------------------------------------------------------------------------- */

static void add_usage(struct look *l, const rlm_json *from)
{
    struct rlm_usage usage = {
        .calls = rlm_json_int(rlm_json_get(from, "calls"), 0),
        .input_tokens = rlm_json_int(rlm_json_get(from, "input_tokens"), 0),
        .cached_tokens = rlm_json_int(rlm_json_get(from, "cached_tokens"), 0),
        .output_tokens = rlm_json_int(rlm_json_get(from, "output_tokens"), 0),
        .cost_nano = rlm_json_int(rlm_json_get(from, "cost_nano"), 0),
        .estimated = rlm_json_int(rlm_json_get(from, "estimated"), 0),
    };
    rlm_usage_add(&l->g->usage, &usage);
}

/* The beginning of a query that may be a blob, which is not read to its end. */
static int take_query(struct look *l, const rlm_json *query, rlm_error **err)
{
    rlm_str text = RLM_STR("");
    rlm_auto_buf struct rlm_buf start = RLM_BUF(QUERY_MAX_BYTES);
    rlm_str id = rlm_json_text(rlm_json_get(query, "$blob"), RLM_STR(""));
    if (rlm_json_is(query, RLM_JSON_STRING)) {
        text = query->text;
    } else if (id.len == RLM_SHA256_HEX && !memchr(id.ptr, '/', id.len)) {
        rlm_autofree char *path = NULL;
        if (asprintf(&path, "%s/%.*s", l->blobs, RLM_FMT(id)) < 0) {
            path = NULL;
            return rlm_error_nomem(err);
        }
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        char *room = rlm_buf_reserve(&start, QUERY_MAX_BYTES);
        ssize_t n = fd >= 0 && room ? read(fd, room, QUERY_MAX_BYTES) : 0;
        rlm_buf_commit(&start, n > 0 ? (size_t)n : 0);
        if (fd >= 0) {
            close(fd);
        }
        text = rlm_buf_str(&start);
    } else if (query) {
        return rlm_record_get_text(query, NULL, l->scratch, &text, err);
    }
    if (text.len > QUERY_MAX_BYTES) {
        text.len = QUERY_MAX_BYTES;
    }
    /* Not in the middle of a character. */
    while (text.len && text.len == QUERY_MAX_BYTES &&
           ((unsigned char)text.ptr[text.len - 1] & 0xC0) == 0x80) {
        text.len--;
    }
    if (text.len == QUERY_MAX_BYTES && (unsigned char)text.ptr[text.len - 1] >= 0xC0) {
        text.len--;
    }
    return copy_text(&l->g->query, text, err);
}

static int take_run(struct look *l, const rlm_json *record, rlm_error **err)
{
    int64_t format = rlm_json_int(rlm_json_get(record, "format"), RLM_JOURNAL_VERSION);
    if (format > RLM_JOURNAL_VERSION) {
        return rlm_error_set(err, RLM_E_VERSION,
                             "the run has format version %" PRId64 ": use a newer rlmflow", format);
    }
    l->g->started_us = rlm_json_int(rlm_json_get(record, "t"), 0);
    l->g->agents = 1;
    int r =
        copy_text(&l->agent, rlm_json_text(rlm_json_get(record, "agent"), RLM_STR("root")), err);
    return r < 0 ? r : take_query(l, rlm_json_get(record, "query"), err);
}

static bool is_root(const struct look *l, const rlm_json *record)
{
    return rlm_str_is(rlm_json_text(rlm_json_get(record, "agent"), RLM_STR("")), l->agent);
}

/* The members of a node, as they stand in NODE and in some of EDIT; `is_last`: it ends the root's
 * trajectory. */
static int take_node(struct look *l, const rlm_json *record, bool is_last, rlm_error **err)
{
    const rlm_json *usage = rlm_json_get(record, "usage");
    if (usage) {
        add_usage(l, usage);
    }
    if (!is_last) {
        return 0;
    }
    rlm_str type = rlm_json_text(rlm_json_get(record, "type"), RLM_STR(""));
    rlm_str reason = rlm_json_text(rlm_json_get(record, "reason"), RLM_STR(""));
    return copy_text(&l->done, rlm_str_is(type, "done_output") ? reason : RLM_STR(""), err);
}

static int take_child(struct look *l, const rlm_json *record, rlm_error **err)
{
    rlm_str parent = rlm_json_text(rlm_json_get(record, "parent"), RLM_STR(""));
    rlm_str name = rlm_json_text(rlm_json_get(record, "name"), RLM_STR(""));
    rlm_str id = rlm_arena_printf(l->scratch, "%.*s.%.*s", RLM_FMT(parent), RLM_FMT(name));
    return id.ptr && rlm_map_set(&l->children, id, l) == 0 ? 0 : rlm_error_nomem(err);
}

/* An agent goes with all below it. */
static void drop_child(struct look *l, rlm_str child)
{
    size_t pos = 0;
    rlm_str id;
    void *value;
    while (rlm_map_next(&l->children, &pos, &id, &value)) {
        if (rlm_agent_is_within(id, child)) {
            rlm_map_remove(&l->children, id);
        }
    }
}

/* Whether the root has ended can change only where its last node does. */
static int take_edit(struct look *l, const rlm_json *record, rlm_error **err)
{
    rlm_str edit = rlm_json_text(rlm_json_get(record, "edit"), RLM_STR(""));
    const rlm_json *gone = rlm_json_get(record, "children");
    bool insert = rlm_str_is(edit, "insert"), replace = rlm_str_is(edit, "replace");
    bool remove = rlm_str_is(edit, "remove"), rewind = rlm_str_is(edit, "rewind");
    int64_t end = l->n_nodes, index = rlm_json_int(rlm_json_get(record, "index"), end - 1);
    for (size_t i = 0; i < (rlm_json_is(gone, RLM_JSON_ARRAY) ? gone->count : 0); i++) {
        drop_child(l, rlm_json_text(rlm_json_at(gone, i), RLM_STR("")));
    }
    if (rlm_str_is(edit, "remove_child")) {
        drop_child(l, rlm_json_text(rlm_json_get(record, "child"), RLM_STR("")));
        return 0;
    }
    if (!is_root(l, record)) {
        return insert || replace ? take_node(l, record, false, err) : 0;
    }
    free(rlm_steal(&l->last));
    if (insert || replace) {
        l->n_nodes += insert;
        return take_node(l, record, index == l->n_nodes - 1, err);
    }
    bool reopen = rlm_str_is(edit, "reopen");
    if (reopen || (remove && index == end - 1) || (rewind && index < end)) {
        free(rlm_steal(&l->done));
    }
    l->n_nodes = rewind ? index : end - (reopen || remove);
    return 0;
}

static int take_end(struct look *l, const rlm_json *record, rlm_error **err)
{
    return copy_text(&l->last, rlm_json_text(rlm_json_get(record, "reason"), RLM_STR("")), err);
}

static int
take_record(struct look *l, enum rlm_record_kind kind, const rlm_json *record, rlm_error **err)
{
    switch (kind) {
    case RLM_RECORD_RUN:
        return l->agent ? 0 : take_run(l, record, err);
    case RLM_RECORD_CHILD:
        return take_child(l, record, err);
    case RLM_RECORD_NODE:
        l->n_nodes += is_root(l, record);
        return take_node(l, record, is_root(l, record), err);
    case RLM_RECORD_EDIT:
        return take_edit(l, record, err);
    case RLM_RECORD_SETTLE:
        add_usage(l, record);
        return 0;
    case RLM_RECORD_RESUMED:
        free(rlm_steal(&l->last));
        return 0;
    case RLM_RECORD_RUN_ENDED:
        return take_end(l, record, err);
    default:
        return 0;
    }
}

static bool is_of_interest(enum rlm_record_kind kind)
{
    return kind == RLM_RECORD_RUN || kind == RLM_RECORD_CHILD || kind == RLM_RECORD_NODE ||
           kind == RLM_RECORD_EDIT || kind == RLM_RECORD_SETTLE || kind == RLM_RECORD_RESUMED ||
           kind == RLM_RECORD_RUN_ENDED;
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct look *l = arg;
    const rlm_json *record = NULL;
    if (is_of_interest(kind)) {
        rlm_arena_reset(l->scratch);
        int r = rlm_json_parse(l->scratch, payload, &record, err);
        if (r == 0 && (!l->agent && kind != RLM_RECORD_RUN)) {
            r = rlm_error_set(err, RLM_E_CORRUPT,
                              "it stands before the record that starts the run");
        }
        if (r == 0) {
            r = take_record(l, kind, record, err);
        }
        if (r < 0) {
            return rlm_error_wrap(err, r, "the record at byte %" PRId64, offset);
        }
    }
    return l->only_head ? STOPPED : 0;
}

/* ---- the last record ------------------------------------------------------------------------- */

/* A record that ends where the file ends says so itself: by its length, and a CRC that covers its
 * offset. 1: it was an end of the run that has all sums; 0: something else. */
static int take_tail(struct look *l, int fd, uint64_t size, rlm_error **err)
{
    size_t len = size < TAIL_BYTES ? (size_t)size : TAIL_BYTES;
    uint64_t start = size - len;
    rlm_autofree uint8_t *tail = rlm_malloc(len ? len : 1);
    if (!tail) {
        return rlm_error_nomem(err);
    }
    if (pread(fd, tail, len, (off_t)start) != (ssize_t)len) {
        return 0;
    }
    for (size_t at = len; at-- > 0;) {
        const uint8_t *h = tail + at;
        size_t left = len - at;
        if (left < RLM_RECORD_HEADER_BYTES || h[8] != RLM_RECORD_RUN_ENDED ||
            (h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16 | (size_t)h[3] << 24) !=
                left - RLM_RECORD_HEADER_BYTES) {
            continue;
        }
        uint8_t header[RLM_RECORD_HEADER_BYTES];
        rlm_str payload = {(const char *)h + RLM_RECORD_HEADER_BYTES,
                           left - RLM_RECORD_HEADER_BYTES};
        rlm_record_frame(RLM_RECORD_RUN_ENDED, payload, start + at, header);
        if (memcmp(header, h, sizeof header) != 0) {
            continue;
        }
        const rlm_json *record, *usage;
        rlm_arena_reset(l->scratch);
        int r = rlm_json_parse(l->scratch, payload, &record, err);
        if (r < 0) {
            return r;
        }
        usage = rlm_json_get(record, "usage");
        if (!rlm_json_is(usage, RLM_JSON_OBJECT)) {
            return 0;
        }
        add_usage(l, usage);
        l->g->agents = (size_t)rlm_json_int(rlm_json_get(record, "agents"), 1);
        r = take_end(l, record, err);
        return r < 0 ? r : 1;
    }
    return 0;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static uint64_t sum_of_files(int fd)
{
    uint64_t sum = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) {
            close(fd);
        }
        return 0;
    }
    struct stat st;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_type != DT_DIR &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode)) {
            sum += (uint64_t)st.st_size;
        }
    }
    closedir(dir);
    return sum;
}

static uint64_t disk_bytes(int dir_fd)
{
    enum { FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
    return sum_of_files(openat(dir_fd, ".", FLAGS)) + sum_of_files(openat(dir_fd, "blobs", FLAGS));
}

static bool is_written(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

static int read_head(struct look *l, int fd, uint64_t size, rlm_error **err)
{
    struct rlm_journal_scan found;
    l->only_head = true;
    int r =
        rlm_journal_scan_fd(fd, size < HEAD_BYTES ? size : HEAD_BYTES, on_record, l, &found, err);
    if (r == 0 && size > HEAD_BYTES) {
        r = rlm_journal_scan_fd(fd, size, on_record, l, &found, err);
    }
    l->only_head = false;
    if (r == 0) {
        return rlm_error_set(err, RLM_E_CORRUPT, "it holds nothing that can be read");
    }
    return r < 0 ? r : 0;
}

static int read_all(struct look *l, int fd, uint64_t size, rlm_error **err)
{
    struct rlm_journal_scan found = {.damage = {.offset = -1}};
    int r = rlm_journal_scan_fd(fd, size, on_record, l, &found, err);
    l->g->agents = 1 + l->children.count;
    if (r == 0 && found.damage.valid_after > 0) {
        r = rlm_error_set(err, RLM_E_CORRUPT, "the journal is damaged at byte %" PRId64,
                          found.damage.offset);
    }
    return r;
}

/* A drive that was stopped leaves a run that goes on, unless its root had ended. */
static void choose_state(struct look *l)
{
    const char *last = l->last ? l->last : "", *done = l->done ? l->done : "";
    bool stopped = strcmp(last, "interrupted") == 0 || strcmp(last, "awaiting_approval") == 0;
    bool ended = *done || (*last && !stopped);
    l->g->state = ended ? RLM_RUN_ENDED : RLM_RUN_UNFINISHED;
    l->g->reason = *last && !(stopped && *done) ? rlm_steal(&l->last) : rlm_steal(&l->done);
}

static int look_at(struct look *l, const char *path, int dir_fd, rlm_error **err)
{
    int fd;
    uint64_t size;
    struct stat st;
    int r = rlm_journal_open_file(dir_fd, path, O_RDONLY, &fd, &size, err);
    if (r < 0) {
        return r;
    }
    if (fstat(fd, &st) == 0) {
        l->g->changed_us = st.st_mtim.tv_sec * INT64_C(1000000) + st.st_mtim.tv_nsec / 1000;
    }
    /* Whether it is written is asked first: one that ends meanwhile is read to its end. */
    bool running = is_written(fd);
    r = read_head(l, fd, size, err);
    if (r == 0) {
        r = take_tail(l, fd, size, err);
        if (r == 0) {
            r = read_all(l, fd, size, err);
        }
    }
    close(fd);
    if (running) {
        /* Also one that has not written its first record yet. */
        l->g->state = RLM_RUN_RUNNING;
        return r == RLM_E_NOMEM ? r : 0;
    }
    if (r >= 0) {
        choose_state(l);
    }
    return r < 0 ? r : 0;
}

int rlm_run_glance(const char *path, struct rlm_run_glance *ret_glance, rlm_error **err)
{
    struct rlm_run_glance g = {.size = ret_glance->size, .state = RLM_RUN_DAMAGED};
    struct look l = {.g = &g, .scratch = rlm_arena_new(0)};
    rlm_autofree char *blobs = NULL;
    rlm_autoerr rlm_error *problem = NULL;
    int dir_fd;
    int r = rlm_journal_open_directory(path, &dir_fd, err);
    if (r < 0) {
        rlm_arena_free(l.scratch);
        return r;
    }
    r = !l.scratch || asprintf(&blobs, "%s/blobs", path) < 0 ? rlm_error_nomem(err) : 0;
    if (r == 0) {
        struct stat st;
        l.blobs = blobs;
        if (fstat(dir_fd, &st) == 0) {
            g.changed_us = st.st_mtim.tv_sec * INT64_C(1000000) + st.st_mtim.tv_nsec / 1000;
        }
        r = look_at(&l, path, dir_fd, &problem);
        g.disk_bytes = disk_bytes(dir_fd);
        if (r < 0 && r != RLM_E_NOMEM) {
            g.state = RLM_RUN_DAMAGED;
            r = copy_text(&g.problem, rlm_str_of(rlm_error_message(problem)), err);
        } else if (r < 0) {
            rlm_error_nomem(err);
        }
    }
    if (r == 0 && !g.query) {
        r = copy_text(&g.query, RLM_STR(""), err);
    }
    if (r == 0 && !g.reason) {
        r = copy_text(&g.reason, RLM_STR(""), err);
    }
    close(dir_fd);
    rlm_arena_free(l.scratch);
    rlm_map_deinit(&l.children);
    free(l.agent);
    free(l.done);
    free(l.last);
    if (r < 0) {
        rlm_run_glance_deinit(&g);
        return r;
    }
    *ret_glance = g;
    return 0;
}

void rlm_run_glance_deinit(struct rlm_run_glance *glance)
{
    free(glance->query);
    free(glance->reason);
    free(glance->problem);
    *glance = (struct rlm_run_glance){.size = glance->size};
}

/* ---- removal --------------------------------------------------------------------------------- */

/* That the directory is a run's: nothing else may be taken for one. A run that was killed while it was
 * made, or while it was removed, has no journal. */
static int check_and_lock(int dir_fd, const char *path, int *ret_fd, rlm_error **err)
{
    uint64_t size;
    uint8_t magic[RLM_JOURNAL_MAGIC_BYTES] = {0};
    if (faccessat(dir_fd, "journal", F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
        struct stat st;
        bool empty = unlinkat(AT_FDCWD, path, AT_REMOVEDIR) == 0;
        if (!empty && errno == ENOENT) { /* somebody else removes it */
            return rlm_error_set(err, RLM_E_NOT_FOUND, "there is no run %s any more", path);
        }
        bool rest = fstatat(dir_fd, "blobs", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
        return empty || rest ? 0
                             : rlm_error_set(err, RLM_E_PARSE,
                                             "%s is not a run: there is no journal in it", path);
    }
    int r = rlm_journal_open_file(dir_fd, path, O_RDWR, ret_fd, &size, err);
    if (r == 0 && (r = rlm_journal_lock(*ret_fd, path, err)) == 0 && size &&
        (pread(*ret_fd, magic, sizeof magic, 0) < 1 ||
         memcmp(magic, rlm_journal_magic, size < 7 ? (size_t)size : 7) != 0)) {
        r = rlm_error_set(
            err, RLM_E_PARSE,
            "the journal of %s is not the journal of a run; if it was one, remove the "
            "directory yourself",
            path);
    }
    return r;
}

int rlm_run_remove(const char *path, rlm_error **err)
{
    struct stat st;
    int dir_fd, fd = -1;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "%s is a symbolic link: name the run that it points to", path);
    }
    int r = rlm_journal_open_directory(path, &dir_fd, err);
    if (r < 0) {
        return r;
    }
    if ((r = check_and_lock(dir_fd, path, &fd, err)) == 0) {
        rlm_journal_remove(dir_fd, path);
        if (rmdir(path) < 0 && errno != ENOENT) {
            r = errno == ENOTEMPTY || errno == EEXIST
                    ? rlm_error_set(err, RLM_E_EXISTS,
                                    "%s holds files that are none of the run, so the directory is "
                                    "still there",
                                    path)
                    : rlm_error_set_errno(err, RLM_E_IO, errno, "removing %s", path);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    close(dir_fd);
    return r;
}
