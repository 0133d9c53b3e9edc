#include "graph/saved.h"

#include "base/json.h"
#include "graph/graph.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_MAX_BYTES = 1024 * 1024 * 1024,
    AGENTS_MAX = 100000,
    DEPTH_MAX = 128, /* directories within each other */
};

struct saved {
    rlm_graph *root;
    struct rlm_map order; /* agent id -> its place in graph.json + 1: children go by it */
    size_t agents;
    uint64_t left_out; /* lines, files and directories */
    rlm_error *first;  /* why the first of these was */
};

bool rlm_saved_is_in(int dir_fd)
{
    return faccessat(dir_fd, "graph.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
           faccessat(dir_fd, "journal", F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

bool rlm_saved_is(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is = fd >= 0 && rlm_saved_is_in(fd);
    if (fd >= 0) {
        close(fd);
    }
    return is;
}

/* Notes what is left out, and goes on; only the lack of memory ends the loading. */
static int leave_out(struct saved *s, const char *what, rlm_error *take_problem, rlm_error **err)
{
    if (rlm_error_code(take_problem) == RLM_E_NOMEM) {
        rlm_error_free(take_problem);
        return rlm_error_nomem(err);
    }
    if (s->left_out++ == 0) {
        rlm_error_wrap(&take_problem, 0, "%s", what);
        s->first = take_problem;
    } else {
        rlm_error_free(take_problem);
    }
    return 0;
}

/* A whole file, never a link, a pipe or a device. */
static int read_file(int dir_fd, const char *name, struct rlm_buf *out, rlm_error **err)
{
    struct stat st;
    int r = 0, fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0) {
        r = rlm_error_set_errno(err, errno == ENOENT ? RLM_E_NOT_FOUND : RLM_E_IO, errno,
                                "opening %s", name);
    } else if (!S_ISREG(st.st_mode)) {
        r = rlm_error_set(err, RLM_E_PARSE, "%s is no file", name);
    }
    while (r == 0) {
        char *room = rlm_buf_reserve(out, 64 * 1024);
        ssize_t n = room ? read(fd, room, 64 * 1024) : -1;
        if (!room) {
            r = rlm_buf_check(out, err);
        } else if (n == 0) {
            break;
        } else if (n > 0) {
            rlm_buf_commit(out, (size_t)n);
        } else if (errno != EINTR) {
            r = rlm_error_set_errno(err, RLM_E_IO, errno, "reading %s", name);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return r < 0 ? rlm_error_wrap(err, r, "%s", name) : 0;
}

/* An object; its strings may point into `text`. */
static int read_object(int dir_fd,
                       const char *name,
                       rlm_arena *a,
                       struct rlm_buf *text,
                       const rlm_json **ret,
                       rlm_error **err)
{
    int r = read_file(dir_fd, name, text, err);
    if (r == 0 && (r = rlm_json_parse(a, rlm_buf_str(text), ret, err)) == 0 &&
        (*ret)->type != RLM_JSON_OBJECT) {
        r = rlm_error_set(err, RLM_E_PARSE, "it is not a JSON object");
    }
    return r < 0 ? rlm_error_wrap(err, r, "%s", name) : 0;
}

static rlm_str text(const rlm_json *object, const char *key)
{
    return rlm_json_text(rlm_json_get(object, key), RLM_STR(""));
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* That project ends an agent that met a limit with one of these in place of an answer. */
static rlm_str reason_of(const rlm_json *metadata, rlm_str result)
{
    static const struct {
        const char *result, *reason;
    } ends[] = {{"[max_iters exceeded]", "max_iters"},
                {"[budget exceeded]", "budget"},
                {"[terminated]", "terminated"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (rlm_str_is(result, ends[i].result)) {
            return rlm_str_of(ends[i].reason);
        }
    }
    rlm_str said = text(metadata, "reason");
    return said.len ? said : RLM_STR("answered");
}

static int take_ids(rlm_arena *a, const rlm_json *list, struct rlm_node *node, rlm_error **err)
{
    if (!rlm_json_is(list, RLM_JSON_ARRAY) || !list->count) {
        return 0;
    }
    const char **ids = rlm_arena_alloc(a, list->count * sizeof *ids);
    for (uint32_t i = 0; ids && i < list->count; i++) {
        ids[i] = rlm_arena_copy(a, rlm_json_text(&list->items[i], RLM_STR(""))).ptr;
        if (!ids[i]) {
            return rlm_error_nomem(err);
        }
    }
    if (!ids) {
        return rlm_error_nomem(err);
    }
    node->agents = ids;
    node->n_agents = list->count;
    return 0;
}

static int
take_metadata(rlm_arena *a, const rlm_json *metadata, struct rlm_node *node, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf json = RLM_BUF(FILE_MAX_BYTES);
    struct rlm_json_writer w = {.buf = &json};
    const rlm_json *usage = rlm_json_get(metadata, "usage");
    if (!rlm_json_is(metadata, RLM_JSON_OBJECT) || !metadata->count) {
        return 0;
    }
    node->time_us = rlm_json_int(rlm_json_get(metadata, "time_us"), 0);
    node->model = text(metadata, "model");
    if (usage) {
        int64_t in = rlm_json_int(rlm_json_get(usage, "input_tokens"), 0);
        int64_t out = rlm_json_int(rlm_json_get(usage, "output_tokens"), 0);
        node->usage = (struct rlm_usage){
            .calls = 1, .input_tokens = in > 0 ? in : 0, .output_tokens = out > 0 ? out : 0};
    }
    /* In what export_python.c wrote, the node's own are a member of this. */
    const rlm_json *own =
        rlm_json_get(metadata, "time_us") ? rlm_json_get(metadata, "rlmflow") : metadata;
    if (!own) {
        return 0;
    }
    rlm_json_put(&w, own);
    int r = rlm_buf_check(&json, err);
    if (r == 0 && !(node->metadata = rlm_arena_copy(a, rlm_buf_str(&json))).ptr) {
        r = rlm_error_nomem(err);
    }
    return r;
}

static int take_node(struct saved *s, rlm_graph *g, rlm_str line, rlm_error **err)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    const rlm_json *from;
    struct rlm_node node = {0};
    int r = a ? rlm_json_parse(a, line, &from, err) : rlm_error_nomem(err);
    if (r < 0) {
        return r;
    }
    int type = rlm_node_type_of(text(from, "type"));
    if (type < 0) {
        return rlm_error_set(err, RLM_E_PARSE, "a node of an unknown type");
    }
    rlm_str id = text(from, "id");
    const rlm_json *ids = rlm_json_get(from, "waiting_on");
    node.type = (enum rlm_node_type)type;
    snprintf(node.id, sizeof node.id, "%.*s", RLM_FMT(id));
    node.content = text(from, "content");
    node.code = text(from, "code");
    node.output = text(from, "output");
    node.error = text(from, "error");
    node.result = text(from, "result");
    if ((r = take_metadata(a, rlm_json_get(from, "metadata"), &node, err)) < 0 ||
        (r = take_ids(a, ids ? ids : rlm_json_get(from, "resumed_from"), &node, err)) < 0) {
        return r;
    }
    if (node.type == RLM_DONE_OUTPUT) {
        node.reason = reason_of(rlm_json_get(from, "metadata"), node.result);
    }
    return rlm_graph_append(g, &node, NULL, err);
}

static int take_session(struct saved *s, int dir_fd, rlm_graph *g, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf lines = RLM_BUF(FILE_MAX_BYTES);
    rlm_error *problem = NULL;
    if (read_file(dir_fd, "session.jsonl", &lines, &problem) < 0) {
        return leave_out(s, g->agent_id, problem, err);
    }
    int r = 0;
    for (size_t at = 0; r == 0 && at < lines.len;) {
        const char *newline = memchr(lines.ptr + at, '\n', lines.len - at);
        size_t end = newline ? (size_t)(newline - lines.ptr) : lines.len;
        if (end > at && take_node(s, g, rlm_str_sub(rlm_buf_str(&lines), at, end), &problem) < 0) {
            r = leave_out(s, g->agent_id, problem, err);
            problem = NULL;
        }
        at = end + 1;
    }
    return r;
}

/* ---- agents ---------------------------------------------------------------------------------- */

/* A value as JSON text in the arena; null and absent: empty. */
static int json_text(rlm_arena *a, const rlm_json *value, rlm_str *ret_json, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf json = RLM_BUF(FILE_MAX_BYTES);
    struct rlm_json_writer w = {.buf = &json};
    if (!value || value->type == RLM_JSON_NULL) {
        return 0;
    }
    rlm_json_put(&w, value);
    int r = rlm_buf_check(&json, err);
    if (r == 0 && !(*ret_json = rlm_arena_copy(a, rlm_buf_str(&json))).ptr) {
        r = rlm_error_nomem(err);
    }
    return r;
}

/* The last part of a child's id, which its parent's makes whole again. */
static rlm_str name_in(const rlm_graph *parent, rlm_str id, const char *directory)
{
    size_t len = strlen(parent->agent_id);
    bool below =
        id.len > len + 1 && memcmp(id.ptr, parent->agent_id, len) == 0 && id.ptr[len] == '.';
    return below ? rlm_str_sub(id, len + 1, id.len) : id.len ? id : rlm_str_of(directory);
}

/* Makes the graph of the agent whose directory it is. */
static int take_agent(struct saved *s,
                      int dir_fd,
                      const char *directory,
                      rlm_graph *parent,
                      rlm_graph **ret_graph,
                      rlm_error **err)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    rlm_auto_buf struct rlm_buf file = RLM_BUF(FILE_MAX_BYTES);
    const rlm_json *from;
    struct rlm_graph_options options = {0};
    int r = a ? read_object(dir_fd, "agent.json", a, &file, &from, err) : rlm_error_nomem(err);
    if (r < 0) {
        return r;
    }
    const rlm_json *inputs = rlm_json_get(from, "inputs");
    rlm_str id = text(from, "agent_id");
    options.query = text(from, "query");
    options.model = text(from, "model");
    if ((rlm_json_is(inputs, RLM_JSON_OBJECT) &&
         (r = json_text(a, inputs, &options.inputs, err)) < 0) ||
        (r = json_text(a, rlm_json_get(from, "output_schema"), &options.output_schema, err)) < 0) {
        return r;
    }
    rlm_str name = rlm_arena_copy(a, parent   ? name_in(parent, id, directory)
                                     : id.len ? id
                                              : rlm_str_of(directory));
    if (!name.ptr) {
        return rlm_error_nomem(err);
    }
    if (parent) {
        return rlm_graph_add_child(parent, name.ptr, &options, ret_graph, err);
    }
    options.agent_id = name.ptr;
    if ((r = rlm_graph_new(&options, ret_graph, err)) == 0) {
        rlm_str graph_id = text(from, "graph_id");
        s->root = *ret_graph;
        if (graph_id.len && graph_id.len < sizeof s->root->graph_id) {
            memset(s->root->graph_id, 0, sizeof s->root->graph_id);
            memcpy(s->root->graph_id, graph_id.ptr, graph_id.len);
        }
    }
    return r;
}

struct entry {
    char *name;
    size_t place; /* in graph.json */
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->place != y->place ? (x->place > y->place) - (x->place < y->place)
                                : strcmp(x->name, y->name);
}

typedef RLM_VEC(struct entry) entry_list;

static void free_entries(entry_list *list)
{
    for (size_t i = 0; i < list->len; i++) {
        free(list->items[i].name);
    }
    free(list->items);
}

/* The place of the agent in a directory; those that graph.json does not name come last, by name. */
static size_t place_of(struct saved *s, int dir_fd, const char *directory)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    rlm_auto_buf struct rlm_buf file = RLM_BUF(FILE_MAX_BYTES);
    const rlm_json *from;
    size_t place = 0;
    int fd = openat(dir_fd, directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && a && read_object(fd, "agent.json", a, &file, &from, NULL) == 0) {
        place = (size_t)(uintptr_t)rlm_map_get(&s->order, text(from, "agent_id"));
    }
    if (fd >= 0) {
        close(fd);
    }
    return place ? place : SIZE_MAX;
}

static int list_agents(struct saved *s, int dir_fd, entry_list *list, rlm_error **err)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int r = 0;
    if (!dir) {
        if (fd >= 0) {
            close(fd);
        }
        return rlm_error_set_errno(err, RLM_E_IO, errno, "listing the agents");
    }
    for (struct dirent *found; r == 0 && (found = readdir(dir)) != NULL;) {
        struct stat st;
        if (found->d_name[0] == '.' ||
            fstatat(dir_fd, found->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)) {
            continue;
        }
        struct entry *one = list->len < AGENTS_MAX ? rlm_vec_push(list) : NULL;
        if (!one || !(one->name = rlm_strdup(found->d_name))) {
            r = rlm_error_nomem(err);
        } else {
            one->place = place_of(s, dir_fd, one->name);
        }
    }
    closedir(dir);
    if (r == 0 && list->len) {
        qsort(list->items, list->len, sizeof *list->items, compare_entries);
    }
    return r;
}

static int take_agents(struct saved *s, int dir_fd, rlm_graph *parent, int depth, rlm_error **err);

static int take_directory(
    struct saved *s, int in_fd, const char *name, rlm_graph *parent, int depth, rlm_error **err)
{
    rlm_graph *g = NULL;
    rlm_error *problem = NULL;
    int fd = openat(in_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = 0;
    if (fd < 0) {
        rlm_error_set_errno(&problem, RLM_E_IO, errno, "opening it");
    } else if (depth > DEPTH_MAX || s->agents++ >= AGENTS_MAX) {
        rlm_error_set(&problem, RLM_E_LIMIT, "there are too many agents");
    } else if (take_agent(s, fd, name, parent, &g, &problem) == 0) {
        r = take_session(s, fd, g, err);
        if (r == 0) {
            r = take_agents(s, fd, g, depth + 1, err);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    if (problem && !parent) { /* without its root there is nothing to show */
        rlm_error_wrap(&problem, 0, "agents/%s", name);
        r = rlm_error_set(err, rlm_error_code(problem), "%s", rlm_error_message(problem));
        rlm_error_free(problem);
        return r;
    }
    return problem ? leave_out(s, name, problem, err) : r;
}

static int take_agents(struct saved *s, int dir_fd, rlm_graph *parent, int depth, rlm_error **err)
{
    entry_list list = {0};
    int r = list_agents(s, dir_fd, &list, err);
    /* One root: that of graph.json, which is its first agent, else the first by name. */
    size_t n = parent || list.len < 1 ? list.len : 1;
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = take_directory(s, dir_fd, list.items[i].name, parent, depth, err);
    }
    free_entries(&list);
    return r;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static int take_order(struct saved *s, int dir_fd, rlm_error **err)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    rlm_auto_buf struct rlm_buf file = RLM_BUF(FILE_MAX_BYTES);
    const rlm_json *from, *id;
    int r = a ? read_object(dir_fd, "graph.json", a, &file, &from, err) : rlm_error_nomem(err);
    if (r < 0) {
        return r;
    }
    const rlm_json *agents = rlm_json_get(from, "agents");
    uintptr_t place = 1;
    rlm_str root = text(from, "root_agent_id");
    r = root.len ? rlm_map_set(&s->order, root, (void *)place++) : 0;
    for (size_t i = 0; r == 0 && i < AGENTS_MAX && (id = rlm_json_at(agents, i)) != NULL; i++) {
        rlm_str name = rlm_json_text(id, RLM_STR(""));
        if (name.len && !rlm_map_has(&s->order, name)) {
            r = rlm_map_set(&s->order, name, (void *)place++);
        }
    }
    return r < 0 ? rlm_error_nomem(err) : 0;
}

static int load(struct saved *s, int dir_fd, rlm_error **err)
{
    int r = take_order(s, dir_fd, err);
    if (r < 0) {
        return r;
    }
    int fd = openat(dir_fd, "agents", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return rlm_error_set_errno(err, RLM_E_PARSE, errno, "opening its directory agents");
    }
    r = take_agents(s, fd, NULL, 0, err);
    close(fd);
    return r == 0 && !s->root ? rlm_error_set(err, RLM_E_PARSE, "it holds no agent") : r;
}

int rlm_saved_load(const char *path, rlm_graph **ret_graph, char **ret_note, rlm_error **err)
{
    struct saved s = {0};
    char *note = NULL;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r =
        fd < 0 ? rlm_error_set_errno(err, RLM_E_IO, errno, "opening %s", path) : load(&s, fd, err);
    if (fd >= 0) {
        close(fd);
    }
    if (r == 0 && s.left_out &&
        asprintf(&note, "%llu part%s could not be understood and %s left out: %s",
                 (unsigned long long)s.left_out, s.left_out == 1 ? "" : "s",
                 s.left_out == 1 ? "is" : "are", rlm_error_message(s.first)) < 0) {
        note = NULL;
        r = rlm_error_nomem(err);
    }
    if (r == 0) {
        *ret_graph = rlm_steal(&s.root);
        if (ret_note) {
            *ret_note = rlm_steal(&note);
        }
    } else if (r != RLM_E_NOMEM) {
        rlm_error_wrap(err, r, "%s, saved by the Python project of this name", path);
    }
    free(note);
    rlm_graph_free(s.root);
    rlm_map_deinit(&s.order);
    rlm_error_free(s.first);
    return r;
}
