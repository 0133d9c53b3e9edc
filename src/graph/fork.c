/* A new run that begins with a piece of another. Its journal is the other's up to a node, byte for byte, since
 * a record is good at its own offset only; blobs are shared by links where the file system can. What
 * makes it another run is an EDIT behind that. */
#include "graph/edit.h"
#include "graph/journal_file.h"
#include "graph/journal_scan.h"
#include "graph/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 30 };

/* ---- copying files --------------------------------------------------------------------------- */

/* The first `size` bytes: shared where the file system can. 0 or an errno value. */
static int copy_bytes(int from, int to, uint64_t size)
{
    struct stat st;
    if (fstat(from, &st) < 0) {
        return errno;
    }
    if ((uint64_t)st.st_size == size && ioctl(to, FICLONE, from) == 0) {
        return 0;
    }
    uint64_t left = size;
    while (left) {
        ssize_t n =
            copy_file_range(from, NULL, to, NULL, left < PIECE_BYTES ? left : PIECE_BYTES, 0);
        if (n > 0) {
            left -= (uint64_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
            return errno;
        }
        char bytes[65536];
        ssize_t got = read(from, bytes, left < sizeof bytes ? left : sizeof bytes);
        if (got <= 0) {
            return got < 0 ? errno : EIO; /* it has become shorter */
        }
        for (ssize_t done = 0; done < got;) {
            ssize_t put = write(to, bytes + done, (size_t)(got - done));
            if (put < 0 && errno != EINTR) {
                return errno;
            }
            done += put > 0 ? put : 0;
        }
        left -= (uint64_t)got;
    }
    return 0;
}

static int copy_file(int from_dir, int to_dir, const char *name, uint64_t size, mode_t mode)
{
    int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (from < 0) {
        return errno;
    }
    int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int problem = to < 0 ? errno : copy_bytes(from, to, size);
    if (to >= 0) {
        problem = problem == 0 && (fchmod(to, mode) < 0 || fsync(to) < 0) ? errno : problem;
        close(to);
    }
    close(from);
    return problem;
}

/* What is named by a hash: nothing that is being written, and no wide form, which is made again. */
static bool is_blob(const char *name)
{
    return strlen(name) == RLM_SHA256_HEX && strspn(name, "0123456789abcdef") == RLM_SHA256_HEX;
}

static int share_blobs(int from_dir, int to_dir)
{
    int problem = 0;
    DIR *dir = fdopendir(fcntl(from_dir, F_DUPFD_CLOEXEC, 0));
    if (!dir) {
        return errno;
    }
    for (struct dirent *entry; problem == 0 && (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        struct stat st;
        if (!is_blob(name) || fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode) || linkat(from_dir, name, to_dir, name, 0) == 0) {
            continue;
        }
        problem = copy_file(from_dir, to_dir, name, (uint64_t)st.st_size, st.st_mode & 0777);
    }
    closedir(dir);
    return problem;
}

/* Fills the new directory; the journal comes last, so that there is no run before it is whole. */
static int fill(int from, int to, uint64_t size)
{
    enum { DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
    if (mkdirat(to, "blobs", 0700) < 0) {
        return errno;
    }
    int from_blobs = openat(from, "blobs", DIRECTORY), to_blobs = openat(to, "blobs", DIRECTORY);
    int problem = to_blobs < 0 || (from_blobs < 0 && errno != ENOENT) ? errno : 0;
    if (problem == 0 && from_blobs >= 0) {
        problem = share_blobs(from_blobs, to_blobs);
    }
    if (problem == 0 && fsync(to_blobs) < 0) {
        problem = errno;
    }
    if (from_blobs >= 0) {
        close(from_blobs);
    }
    if (to_blobs >= 0) {
        close(to_blobs);
    }
    problem = problem ? problem : copy_file(from, to, "journal", size, 0600);
    return problem == 0 && fsync(to) < 0 ? errno : problem;
}

static void remove_run(const char *path)
{
    int fd;
    if (rlm_journal_open_directory(path, &fd, NULL) == 0) {
        rlm_journal_remove(fd, path);
        close(fd);
    }
}

static int copy_run(const char *journal, const char *path, uint64_t size, rlm_error **err)
{
    int from, to;
    int r = rlm_journal_open_directory(journal, &from, err);
    if (r < 0) {
        return r;
    }
    if (mkdir(path, 0700) < 0) {
        r = errno == EEXIST
                ? rlm_error_set(err, RLM_E_EXISTS, "%s exists already: choose another name", path)
                : rlm_error_set_errno(err, RLM_E_IO, errno, "making the run %s", path);
    } else if ((r = rlm_journal_open_directory(path, &to, err)) == 0) {
        int problem = fill(from, to, size);
        if (problem) {
            r = rlm_error_set_errno(err, RLM_E_IO, problem, "copying the run %s to %s", journal,
                                    path);
            rlm_journal_remove(to, path);
        }
        close(to);
    }
    close(from);
    return r;
}

/* ---- where to cut ---------------------------------------------------------------------------- */

struct cut {
    rlm_arena *scratch;
    const struct rlm_node *node;
    int64_t wanted; /* offset of the record that may have brought the node */
    int64_t end;    /* behind it; 0: another one brought it */
    int64_t all;    /* behind the last record */
    bool edited;    /* behind it the graph was edited */
};

static int
look(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct cut *cut = arg;
    const rlm_json *record;
    cut->all = offset + RLM_RECORD_HEADER_BYTES + (int64_t)payload.len;
    if (offset < cut->wanted ||
        !(kind == RLM_RECORD_EDIT || (kind == RLM_RECORD_NODE && offset == cut->wanted))) {
        return 0;
    }
    rlm_arena_reset(cut->scratch);
    int r = rlm_json_parse(cut->scratch, payload, &record, err);
    if (r < 0) {
        return r;
    }
    if (kind == RLM_RECORD_NODE) {
        rlm_str id = rlm_json_text(rlm_json_get(record, "id"), RLM_STR(""));
        cut->end = rlm_str_is(id, cut->node->id) ? cut->all : 0;
        return 0;
    }
    static const char *const lasting[] = {"insert", "replace", "remove", "remove_child"};
    rlm_str edit = rlm_json_text(rlm_json_get(record, "edit"), RLM_STR(""));
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++) {
        cut->edited = cut->edited || rlm_str_is(edit, lasting[i]);
    }
    return 0;
}

static int find_cut(const char *journal, struct cut *cut, rlm_error **err)
{
    cut->wanted = rlm_entry_of(cut->node)->offset;
    cut->scratch = rlm_arena_new(0);
    if (!cut->scratch) {
        return rlm_error_nomem(err);
    }
    int r = rlm_journal_read(journal, look, cut, NULL, err);
    rlm_arena_free(cut->scratch);
    return r;
}

/* ---- forking --------------------------------------------------------------------------------- */

static int
check_node(const rlm_graph *g, const struct rlm_node *node, rlm_str query, rlm_error **err)
{
    bool rest = rlm_edit_is_rest(node) || node->type == RLM_LLM_OUTPUT;
    if (query.len && !rest) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "code of %s is under way at the node %s (%s): a query can be given "
                             "behind what its code printed, or behind the reply that has the code",
                             g->agent_id, node->id, rlm_node_type_tag(node->type));
    }
    if (!query.len && !g->parent && node->type == RLM_DONE_OUTPUT &&
        rlm_str_is(node->reason, "answered")) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the run has ended with an answer at the node %s: give a query, or "
                             "choose a node before it",
                             node->id);
    }
    return 0;
}

/* Marks the copy as a run of its own. */
static int mark(const char *path, rlm_graph *of, rlm_error **err)
{
    rlm_journal *j;
    char id[sizeof of->graph_id];
    int r = rlm_journal_open(NULL, path, &(struct rlm_journal_options){0}, false, &j, NULL, err);
    if (r < 0) {
        return r;
    }
    memcpy(id, of->graph_id, sizeof id);
    rlm_graph_renew_id(of);
    char renewed[sizeof id];
    memcpy(renewed, of->graph_id, sizeof renewed);
    memcpy(of->graph_id, id, sizeof id);
    r = rlm_record_edit_fork(j, of, renewed, err);
    rlm_journal_close(j);
    return r;
}

static int finish(const char *path,
                  const char *agent_id,
                  const struct rlm_node *node,
                  bool rewind,
                  rlm_str query,
                  rlm_error **err)
{
    rlm_graph *root;
    if (!rewind && !query.len) {
        return 0;
    }
    int r = rlm_graph_open(path, &root, err);
    if (r < 0) {
        return r;
    }
    rlm_graph *g = rlm_graph_agent(root, agent_id);
    struct rlm_node ask = {.type = RLM_USER_QUERY, .content = query};
    r = rewind ? rlm_graph_rewind(g, node->id, err) : 0;
    if (r >= 0 && query.len) {
        r = rlm_graph_append_node(g, &ask, NULL, err);
    }
    rlm_graph_free(root);
    return r < 0 ? r : 0;
}

int rlm_run_fork(
    const char *journal, const char *node, const char *path, struct rlm_str query, rlm_error **err)
{
    rlm_graph *root, *g;
    struct cut cut = {0};
    int r = rlm_graph_load(journal, &root, NULL, err);
    if (r < 0) {
        return r;
    }
    if ((r = rlm_graph_find(root, node, &g, &cut.node, err)) == 0 &&
        (r = check_node(g, cut.node, query, err)) == 0) {
        r = find_cut(journal, &cut, err);
    }
    if (r == 0) {
        /* Edits that were made later shall be in it too: then it is the whole run, rewound. */
        bool whole = !cut.end || cut.edited;
        r = copy_run(journal, path, (uint64_t)(whole ? cut.all : cut.end), err);
        if (r == 0) {
            r = mark(path, root, err);
            r = r < 0 ? r : finish(path, g->agent_id, cut.node, whole, query, err);
            if (r < 0) {
                remove_run(path);
            }
        }
    }
    rlm_graph_free(root);
    return r;
}
