/* The directory that the Python project of the same name saves a graph to:
 *
 *     graph.json
 *     agents/NAME/agent.json, session.jsonl, latest.json, and a directory of the same kind for each child
 */
#include "base/map.h"
#include "view/export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 200, DEPTH_MAX = 256 };

struct tree {
    struct rlm_export *x;
    rlm_error **err;
    int fds[DEPTH_MAX + 1];              /* of the agent's directory at each depth */
    struct rlm_map names[DEPTH_MAX + 1]; /* that are taken in it */
    struct rlm_buf buf;
};

/* ---- files ----------------------------------------------------------------------------------- */

static int begin_file(struct tree *t, int dir_fd, const char *name, struct rlm_target *file)
{
    rlm_buf_clear(&t->buf);
    *file = (struct rlm_target){.path = name};
    file->fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return file->fd < 0 ? rlm_error_set_errno(t->err, RLM_E_IO, errno, "making %s", name) : 0;
}

static int flush(struct tree *t, struct rlm_target *file)
{
    int r = rlm_buf_check(&t->buf, t->err);
    if (r == 0) {
        r = rlm_target_write(file, t->buf.ptr, t->buf.len, t->err);
    }
    rlm_buf_clear(&t->buf);
    return r;
}

static int end_file(struct tree *t, struct rlm_target *file, int r)
{
    if (r == 0) {
        rlm_buf_addc(&t->buf, '\n');
        r = flush(t, file);
    }
    if (r == 0 && fsync(file->fd) < 0) {
        r = rlm_error_set_errno(t->err, RLM_E_IO, errno, "writing %s", file->path);
    }
    return rlm_target_close(file, r, t->err);
}

/* As that project names directories; two that would be one get a number. */
static int
choose_name(struct tree *t, int depth, const char *wanted, char ret_name[NAME_MAX_BYTES + 24])
{
    char name[NAME_MAX_BYTES + 1];
    size_t len = 0, start = 0;
    for (const char *p = wanted; *p && len < NAME_MAX_BYTES; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '_' || *p == '.' || *p == '-';
        name[len++] = plain ? *p : '_';
    }
    while (len && name[len - 1] == '_') {
        len--;
    }
    while (start < len && name[start] == '_') {
        start++;
    }
    bool none = start == len || name[start] == '.';
    snprintf(ret_name, NAME_MAX_BYTES + 24, "%.*s", none ? 5 : (int)(len - start),
             none ? "agent" : name + start);
    size_t base = strlen(ret_name);
    for (int i = 2; rlm_map_has(&t->names[depth], rlm_str_of(ret_name)); i++) {
        snprintf(ret_name + base, 24, "_%d", i);
    }
    return rlm_map_set(&t->names[depth], rlm_str_of(ret_name), t) < 0 ? rlm_error_nomem(t->err) : 0;
}

/* ---- what stands in them --------------------------------------------------------------------- */

static void put_ids(struct rlm_json_writer *w, const char *key, const struct rlm_node *node)
{
    rlm_json_key(w, key);
    rlm_json_begin(w, '[');
    for (size_t i = 0; i < node->n_agents; i++) {
        rlm_json_put_text(w, node->agents[i]);
    }
    rlm_json_end(w, ']');
}

static void put_metadata(struct rlm_json_writer *w, const struct rlm_node *node)
{
    rlm_json_key(w, "metadata");
    rlm_json_begin(w, '{');
    if (node->type == RLM_LLM_OUTPUT) {
        rlm_json_member_str(w, "model", node->model);
        rlm_json_key(w, "usage");
        rlm_json_begin(w, '{');
        rlm_json_member_int(w, "input_tokens", node->usage.input_tokens);
        rlm_json_member_int(w, "output_tokens", node->usage.output_tokens);
        rlm_json_end(w, '}');
    }
    if (node->type == RLM_DONE_OUTPUT) {
        rlm_json_member_str(w, "reason", node->reason);
    }
    rlm_json_member_int(w, "time_us", node->time_us);
    if (node->metadata.len) {
        rlm_json_member_raw(w, "rlmflow", node->metadata);
    }
    rlm_json_end(w, '}');
}

static void put_node(struct rlm_json_writer *w, const rlm_graph *g, const struct rlm_node *node)
{
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "type", rlm_node_type_tag(node->type));
    rlm_json_member_text(w, "id", node->id);
    rlm_json_member_text(w, "agent_id", g->agent_id);
    rlm_json_member_int(w, "seq", node->seq);
    put_metadata(w, node);
    if (node->type != RLM_EXEC_ACTION && node->type != RLM_RESUME_ACTION) {
        rlm_json_member_str(w, "content", node->content);
    }
    if (node->type == RLM_LLM_OUTPUT || node->type == RLM_EXEC_ACTION) {
        rlm_json_member_str(w, "code", node->code);
    } else if (node->type == RLM_RESUME_ACTION) {
        put_ids(w, "resumed_from", node);
    } else if (node->type == RLM_ERROR_OUTPUT) {
        rlm_json_member_str(w, "error", node->error);
    } else if (node->type == RLM_DONE_OUTPUT) {
        rlm_json_member_str(w, "result", node->result);
    }
    if (node->type != RLM_USER_QUERY && node->type != RLM_LLM_OUTPUT &&
        node->type != RLM_EXEC_ACTION && node->type != RLM_RESUME_ACTION) {
        rlm_json_member_str(w, "output", node->output);
    }
    if (node->type == RLM_SUPERVISING_OUTPUT) {
        put_ids(w, "waiting_on", node);
    }
    rlm_json_end(w, '}');
}

static int write_session(struct tree *t, int dir_fd, const rlm_graph *g)
{
    struct rlm_target file;
    int r = begin_file(t, dir_fd, "session.jsonl", &file);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; r == 0 && i < g->nodes.len; i++) {
        struct rlm_json_writer w = {.buf = &t->buf};
        put_node(&w, g, g->nodes.items[i]);
        if (i + 1 < g->nodes.len) {
            rlm_buf_addc(&t->buf, '\n');
        }
        r = flush(t, &file);
    }
    return end_file(t, &file, r);
}

static int write_agent(struct tree *t, int dir_fd, const rlm_graph *g)
{
    struct rlm_target file;
    int r = begin_file(t, dir_fd, "agent.json", &file);
    if (r < 0) {
        return r;
    }
    struct rlm_json_writer w = {.buf = &t->buf};
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "agent_id", g->agent_id);
    rlm_json_member_text(&w, "graph_id", rlm_graph_id(g));
    rlm_json_member_int(&w, "depth", g->depth);
    rlm_json_member_str(&w, "query", g->query);
    rlm_json_key(&w, "inputs");
    r = rlm_export_put_json(t->x, &w, g->inputs, t->err);
    rlm_json_member_str(&w, "model", g->model);
    rlm_json_key(&w, "output_schema");
    if (r == 0 && g->output_schema.len) {
        r = rlm_export_put_json(t->x, &w, g->output_schema, t->err);
    } else {
        rlm_json_put_null(&w);
    }
    rlm_json_member_text(&w, "parent_agent_id", g->parent ? g->parent->agent_id : NULL);
    rlm_json_end(&w, '}');
    return end_file(t, &file, r);
}

static int write_latest(struct tree *t, int dir_fd, const rlm_graph *g)
{
    struct rlm_target file;
    const struct rlm_node *last = rlm_graph_current(g);
    int r = last ? begin_file(t, dir_fd, "latest.json", &file) : 0;
    if (r < 0 || !last) {
        return r;
    }
    struct rlm_json_writer w = {.buf = &t->buf};
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "agent_id", g->agent_id);
    rlm_json_member_text(&w, "latest_node_id", last->id);
    rlm_json_member_int(&w, "seq", last->seq);
    rlm_json_member_text(&w, "type", rlm_node_type_tag(last->type));
    rlm_json_member_bool(&w, "terminal", last->type == RLM_DONE_OUTPUT);
    if (last->result.len) {
        rlm_json_member_str(&w, "result", last->result);
    }
    if (last->error.len) {
        rlm_json_member_str(&w, "error", last->error);
    }
    if (last->n_agents) {
        put_ids(&w, last->type == RLM_RESUME_ACTION ? "resumed_from" : "waiting_on", last);
    }
    rlm_json_end(&w, '}');
    return end_file(t, &file, 0);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static int make_directory(struct tree *t, int in_fd, const char *name, int *ret_fd)
{
    if (mkdirat(in_fd, name, 0700) < 0 ||
        (*ret_fd = openat(in_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        return rlm_error_set_errno(t->err, RLM_E_IO, errno, "making the directory %s", name);
    }
    return 0;
}

/* fds[depth] is where the agents of that depth lie, fds[depth + 1] the agent's own. */
static int write_graph(struct tree *t, const rlm_graph *g)
{
    char name[NAME_MAX_BYTES + 24];
    int depth = g->depth;
    if (depth >= DEPTH_MAX) {
        return rlm_error_set(t->err, RLM_E_LIMIT,
                             "the agents are nested deeper than %d: no such directory can be made",
                             DEPTH_MAX);
    }
    int r = choose_name(t, depth, g->name, name);
    if (r < 0) {
        return r;
    }
    if (t->fds[depth + 1] >= 0) {
        close(t->fds[depth + 1]);
        t->fds[depth + 1] = -1;
    }
    rlm_map_deinit(&t->names[depth + 1]);
    t->names[depth + 1] = (struct rlm_map){0};
    r = make_directory(t, t->fds[depth], name, &t->fds[depth + 1]);
    if (r == 0 && (r = write_agent(t, t->fds[depth + 1], g)) == 0 &&
        (r = write_session(t, t->fds[depth + 1], g)) == 0) {
        r = write_latest(t, t->fds[depth + 1], g);
    }
    return r;
}

static int write_manifest(struct tree *t, int dir_fd)
{
    struct rlm_target file;
    const rlm_graph *root = t->x->root;
    char now[32] = "";
    time_t seconds = time(NULL);
    struct tm utc;
    if (gmtime_r(&seconds, &utc)) {
        strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%S+00:00", &utc);
    }
    int r = begin_file(t, dir_fd, "graph.json", &file);
    if (r < 0) {
        return r;
    }
    struct rlm_json_writer w = {.buf = &t->buf};
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "graph_id", rlm_graph_id(root));
    rlm_json_member_text(&w, "root_agent_id", root->agent_id);
    rlm_json_key(&w, "agents");
    rlm_json_begin(&w, '[');
    for (const rlm_graph *g = root; g; g = rlm_graph_next(root, g)) {
        rlm_json_put_text(&w, g->agent_id);
    }
    rlm_json_end(&w, ']');
    rlm_json_key(&w, "metadata");
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "saved_at", now);
    rlm_json_member_text(&w, "saved_by", "rlmflow " RLM_VERSION);
    if (rlm_graph_result(root).len) {
        rlm_json_member_str(&w, "result", rlm_graph_result(root));
    }
    rlm_json_end(&w, '}');
    rlm_json_end(&w, '}');
    return end_file(t, &file, 0);
}

int rlm_export_python(struct rlm_export *x, const char *part, rlm_error **err)
{
    struct tree *t = rlm_calloc(1, sizeof *t);
    if (!t) {
        return rlm_error_nomem(err);
    }
    t->x = x;
    t->err = err;
    t->buf = RLM_BUF(RLM_EXPORT_TEXT_MAX);
    for (int i = 0; i <= DEPTH_MAX; i++) {
        t->fds[i] = -1;
    }
    int dir_fd = open(part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = dir_fd < 0 ? rlm_error_set_errno(err, RLM_E_IO, errno, "opening %s", part)
                       : make_directory(t, dir_fd, "agents", &t->fds[0]);
    for (rlm_graph *g = x->root; r == 0 && g; g = rlm_graph_next(x->root, g)) {
        r = write_graph(t, g);
    }
    if (r == 0) {
        r = write_manifest(t, dir_fd);
    }
    for (int i = 0; i <= DEPTH_MAX; i++) {
        if (t->fds[i] >= 0) {
            close(t->fds[i]);
        }
        rlm_map_deinit(&t->names[i]);
    }
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    rlm_buf_deinit(&t->buf);
    free(t);
    return r;
}
