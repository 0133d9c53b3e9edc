/* Places, checkpoints, copies and branches of a graph. */
#include "base/hash.h"
#include "graph/edit.h"
#include "graph/record.h"

#include <errno.h>
#include <stdlib.h>

/* ---- places ---------------------------------------------------------------------------------- */

/* A number that fills the text. */
static bool read_number(const char *text, size_t *ret_number)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    bool good = *text >= '0' && *text <= '9' && !*end && errno == 0 && number <= UINT32_MAX;
    *ret_number = good ? (size_t)number : 0;
    return good;
}

static const struct rlm_node *last_of_turn(const rlm_graph *g, size_t turn)
{
    const struct rlm_node *found = NULL;
    size_t turns = 0;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        turns += node->type == RLM_LLM_OUTPUT;
        if (turns > turn || (turns == turn && turn && node->type == RLM_USER_QUERY)) {
            break; /* the next turn, or the next task */
        }
        found = turns == turn ? node : NULL;
    }
    return turn && turns >= turn ? found : NULL;
}

static const struct rlm_node *by_id(rlm_graph *root, const char *id, rlm_graph **ret_agent)
{
    for (rlm_graph *g = root; g; g = rlm_graph_next(root, g)) {
        size_t index;
        if (rlm_edit_find(g, id, &index, NULL) == 0) {
            *ret_agent = g;
            return g->nodes.items[index];
        }
    }
    return NULL;
}

int rlm_graph_find(rlm_graph *root,
                   const char *place,
                   rlm_graph **ret_agent,
                   const struct rlm_node **ret_node,
                   rlm_error **err)
{
    static const char TURN[] = "turn";
    root = root->root;
    rlm_graph *g = NULL;
    const struct rlm_node *node = by_id(root, place, &g);
    const char *colon = strrchr(place, ':'), *what = colon ? colon + 1 : place;
    size_t number;
    if (!node) {
        rlm_str id = {place, colon ? (size_t)(colon - place) : 0};
        g = colon ? rlm_map_get(&root->agents, id) : root;
        if (colon && !g) {
            return rlm_error_set(err, RLM_E_NOT_FOUND, "there is no agent \"%.*s\"",
                                 id.len > 200 ? 200 : (int)id.len, id.ptr);
        }
        bool turn = strncmp(what, TURN, sizeof TURN - 1) == 0;
        if (turn && read_number(what + sizeof TURN - 1, &number)) {
            node = last_of_turn(g, number);
        } else if (read_number(what, &number) && number < g->nodes.len) {
            node = g->nodes.items[number];
        }
    }
    if (!node) {
        return rlm_error_set(
            err, RLM_E_NOT_FOUND,
            "there is no node \"%.200s\": say a node's id, AGENT:SEQ or AGENT:turnN", place);
    }
    *ret_agent = g;
    *ret_node = node;
    return 0;
}

/* ---- digests --------------------------------------------------------------------------------- */

static void add_int(rlm_sha256 *h, int64_t number)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)((uint64_t)number >> (8 * i));
    }
    rlm_sha256_add(h, bytes, sizeof bytes);
}

static void add_str(rlm_sha256 *h, rlm_str text)
{
    add_int(h, (int64_t)text.len);
    rlm_sha256_add(h, text.ptr, text.len);
}

/* White space between the parts of JSON says nothing. */
static void add_json(rlm_sha256 *h, rlm_str json)
{
    rlm_auto_arena rlm_arena *arena = json.len ? rlm_arena_new(0) : NULL;
    rlm_auto_buf struct rlm_buf compact = RLM_BUF(json.len * 6 + 64);
    struct rlm_json_writer w = {.buf = &compact};
    const rlm_json *value;
    if (arena && rlm_json_parse(arena, json, &value, NULL) == 0) {
        rlm_json_put(&w, value);
    }
    add_str(h, compact.len && compact.status == 0 ? rlm_buf_str(&compact) : json);
}

static void add_node(rlm_sha256 *h, const struct rlm_node *n)
{
    add_int(h, n->type);
    add_str(h, rlm_str_of(n->id));
    add_int(h, n->time_us);
    const rlm_str texts[] = {n->content, n->code,   n->output, n->error,
                             n->result,  n->reason, n->model};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        add_str(h, texts[i]);
    }
    add_json(h, n->metadata);
    const struct rlm_usage *u = &n->usage;
    const int64_t numbers[] = {u->calls,         u->input_tokens,     u->cached_tokens,
                               u->output_tokens, u->cost_nano,        u->estimated,
                               n->call_id,       (int64_t)n->n_agents};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        add_int(h, numbers[i]);
    }
    for (size_t i = 0; i < n->n_agents; i++) {
        add_str(h, rlm_str_of(n->agents[i]));
    }
}

static void add_graph(rlm_sha256 *h, const rlm_graph *g, size_t n_nodes)
{
    add_str(h, rlm_str_of(g->agent_id));
    add_str(h, g->query);
    add_json(h, g->inputs);
    add_str(h, g->model);
    add_json(h, g->output_schema);
    add_int(h, g->launch);
    add_int(h, g->launch_part);
    add_int(h, (int64_t)n_nodes);
    for (size_t i = 0; i < n_nodes; i++) {
        add_node(h, g->nodes.items[i]);
    }
}

static int
digest_of(const rlm_graph *g, size_t n_nodes, bool tree, char *ret_digest, rlm_error **err)
{
    rlm_sha256 *h = rlm_sha256_new();
    if (!h) {
        return rlm_error_nomem(err);
    }
    add_graph(h, g, n_nodes);
    for (const rlm_graph *at = tree ? rlm_graph_next(g, g) : NULL; at; at = rlm_graph_next(g, at)) {
        add_graph(h, at, at->nodes.len);
    }
    rlm_sha256_hex(h, ret_digest);
    rlm_sha256_free(h);
    return 0;
}

int rlm_graph_digest(const rlm_graph *g, char ret_digest[65], rlm_error **err)
{
    return digest_of(g, g->nodes.len, true, ret_digest, err);
}

int rlm_graph_checkpoint(const rlm_graph *g,
                         struct rlm_graph_checkpoint *ret_checkpoint,
                         rlm_error **err)
{
    ret_checkpoint->position = g->nodes.len;
    return digest_of(g, g->nodes.len, false, ret_checkpoint->digest, err);
}

int rlm_graph_revert(rlm_graph *g, const struct rlm_graph_checkpoint *checkpoint, rlm_error **err)
{
    char digest[RLM_SHA256_HEX + 1];
    size_t position = checkpoint->position;
    if (g->nodes.len < position || position == 0) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the checkpoint stands behind %zu nodes, and agent %s has %zu",
                             position, g->agent_id, g->nodes.len);
    }
    int r = digest_of(g, position, false, digest, err);
    if (r == 0 && strncmp(digest, checkpoint->digest, sizeof digest) != 0) {
        r = rlm_error_set(err, RLM_E_INVAL,
                          "the nodes of agent %s before the checkpoint are not what they were",
                          g->agent_id);
    }
    if (r < 0 || g->nodes.len == position) {
        return r < 0 ? r : 1;
    }
    return rlm_graph_rewind(g, g->nodes.items[position - 1]->id, err);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int copy_nodes(rlm_graph *to, const rlm_graph *from, rlm_error **err)
{
    for (size_t i = 0; i < from->nodes.len; i++) {
        const struct rlm_node *node = from->nodes.items[i], *kept;
        int r = rlm_graph_append(to, node, &kept, err);
        if (r < 0) {
            return r;
        }
        rlm_entry_of(kept)->offset = rlm_entry_of(node)->offset;
    }
    to->own = from->own;
    to->total = from->total;
    return 0;
}

static struct rlm_graph_options start_of(const rlm_graph *g)
{
    return (struct rlm_graph_options){
        .agent_id = g->agent_id,
        .query = g->query,
        .inputs = g->inputs,
        .model = g->model,
        .output_schema = g->output_schema,
        .launch = g->launch,
        .launch_part = g->launch_part,
    };
}

/* Copies the agents below `top`; parents stand before their children. */
static int copy_below(rlm_graph *to, const rlm_graph *top, rlm_error **err)
{
    for (const rlm_graph *g = rlm_graph_next(top, top); g; g = rlm_graph_next(top, g)) {
        struct rlm_graph_options start = start_of(g);
        rlm_graph *child, *parent = rlm_map_get(&to->root->agents, rlm_str_of(g->parent->agent_id));
        int r = rlm_graph_add_child(parent, g->name, &start, &child, err);
        /* The sums come last, since nodes of those below would be added to them. */
        r = r < 0 ? r : copy_nodes(child, g, err);
        if (r < 0) {
            return r;
        }
    }
    for (const rlm_graph *g = top; g; g = rlm_graph_next(top, g)) {
        rlm_graph *copy = rlm_map_get(&to->root->agents, rlm_str_of(g->agent_id));
        copy->own = g->own;
        copy->total = g->total;
    }
    return 0;
}

int rlm_edit_copy_tree(const rlm_graph *root, rlm_graph **ret_root, rlm_error **err)
{
    struct rlm_graph_options start = start_of(root);
    rlm_graph *copy;
    int r = rlm_graph_new(&start, &copy, err);
    if (r < 0) {
        return r;
    }
    r = copy_nodes(copy, root, err);
    r = r < 0 ? r : copy_below(copy, root, err);
    if (r < 0) {
        rlm_graph_free(copy);
        return r;
    }
    memcpy(copy->graph_id, root->root->graph_id, sizeof copy->graph_id);
    *ret_root = copy;
    return 0;
}

int rlm_graph_fork(const rlm_graph *g, const char *node_id, rlm_graph **ret_root, rlm_error **err)
{
    size_t index;
    rlm_graph *copy;
    int r = node_id ? rlm_edit_find(g, node_id, &index, err) : 0;
    r = r < 0 ? r : rlm_edit_copy_tree(g->root, &copy, err);
    if (r < 0) {
        return r;
    }
    rlm_graph_renew_id(copy);
    if (node_id) {
        r = rlm_graph_rewind(rlm_graph_agent(copy, g->agent_id), node_id, err);
    }
    if (r < 0) {
        rlm_graph_free(copy);
        return r;
    }
    *ret_root = copy;
    return 0;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Nothing is under way behind such a node. */
bool rlm_edit_is_rest(const struct rlm_node *node)
{
    return !node || node->type == RLM_USER_QUERY || node->type == RLM_EXEC_OUTPUT ||
           node->type == RLM_ERROR_OUTPUT || node->type == RLM_DONE_OUTPUT;
}

static int
check_branch(const rlm_graph *g, const rlm_graph *branch, size_t *ret_same, rlm_error **err)
{
    size_t same = 0;
    while (same < g->nodes.len && same < branch->nodes.len &&
           strcmp(g->nodes.items[same]->id, branch->nodes.items[same]->id) == 0) {
        same++;
    }
    if (!same) {
        return rlm_error_set(err, RLM_E_INVAL, "%s of %s and %s of %s have no node in common",
                             g->agent_id, g->root->graph_id, branch->agent_id,
                             branch->root->graph_id);
    }
    if (same == branch->nodes.len) {
        return rlm_error_set(err, RLM_E_INVAL, "the branch has no node of its own");
    }
    if (!rlm_edit_is_rest(rlm_graph_current(g))) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "code of %s is under way: a branch is merged behind what it printed",
                             g->agent_id);
    }
    *ret_same = same;
    return 0;
}

/* {"merged": {"graph_id", "after": node id, "nodes", "code": [...]}}, and how many pieces of code. */
static size_t put_origin(struct rlm_json_writer *w, const rlm_graph *branch, size_t same)
{
    size_t n = 0;
    rlm_json_begin(w, '{');
    rlm_json_key(w, "merged");
    rlm_json_begin(w, '{');
    rlm_json_member_text(w, "graph_id", branch->root->graph_id);
    rlm_json_member_text(w, "after", branch->nodes.items[same - 1]->id);
    rlm_json_member_int(w, "nodes", (int64_t)(branch->nodes.len - same));
    rlm_json_key(w, "code");
    rlm_json_begin(w, '[');
    for (size_t i = same; i < branch->nodes.len; i++) {
        if (branch->nodes.items[i]->type == RLM_EXEC_ACTION) {
            rlm_json_put_str(w, branch->nodes.items[i]->code);
            n++;
        }
    }
    rlm_json_end(w, ']');
    rlm_json_end(w, '}');
    rlm_json_end(w, '}');
    return n;
}

int rlm_graph_merge(rlm_graph *g,
                    const rlm_graph *branch,
                    struct rlm_str summary,
                    const struct rlm_node **ret_node,
                    rlm_error **err)
{
    size_t same = 0;
    int r = check_branch(g, branch, &same, err);
    if (r < 0) {
        return r;
    }
    rlm_auto_buf struct rlm_buf metadata = RLM_BUF(RLM_RECORD_MAX_BYTES / 2);
    rlm_auto_buf struct rlm_buf text = RLM_BUF((size_t)1 << 30);
    struct rlm_json_writer w = {.buf = &metadata};
    size_t cells = put_origin(&w, branch, same);
    if (summary.len) {
        rlm_buf_add_str(&text, summary);
    } else {
        rlm_str result = rlm_graph_result(branch);
        rlm_buf_addf(&text, "[merged branch %s] ", branch->root->graph_id);
        rlm_buf_add_str(&text, result.len ? result : RLM_STR("(no result)"));
        rlm_buf_addf(&text, " (folded %zu exec step%s)", cells, cells == 1 ? "" : "s");
    }
    if ((r = rlm_buf_check(&metadata, err)) < 0 || (r = rlm_buf_check(&text, err)) < 0) {
        return r;
    }
    struct rlm_node node = {
        .type = rlm_graph_finished(g) ? RLM_USER_QUERY : RLM_EXEC_OUTPUT,
        .content = rlm_buf_str(&text),
        .metadata = rlm_buf_str(&metadata),
    };
    node.output = node.type == RLM_EXEC_OUTPUT ? node.content : RLM_STR("");
    return rlm_graph_append_node(g, &node, ret_node, err);
}
