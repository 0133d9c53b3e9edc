/* Random edits of a graph, and a model of arrays beside it that says what the graph must be. */
#pragma once

#include "graph/edit.h"
#include "harness.h"

enum { AGENTS_MAX = 400, NODES_MAX = 64, CHILDREN_MAX = 32, NONE = -1 };

struct model_node {
    enum rlm_node_type type;
    char id[20];
    int text;     /* the content is this number */
    int names[2]; /* children that it names */
};

struct model_agent {
    bool there;
    int parent, launch;
    char id[400];
    int n_nodes, n_children;
    struct model_node nodes[NODES_MAX];
    int children[CHILDREN_MAX];
    int64_t own; /* calls */
};

struct model {
    rlm_graph *root;
    struct model_agent agents[AGENTS_MAX];
    int n_agents;
    uint64_t random;
    int counter;
};

static inline unsigned roll(struct model *m, unsigned n)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (unsigned)(m->random >> 11) % n;
}

static inline struct model *model_new(rlm_graph *root, uint64_t seed)
{
    struct model *m = calloc(1, sizeof *m);
    m->root = root;
    m->random = seed * 2654435761u + 88172645463325252u;
    m->n_agents = 1;
    m->agents[0].there = true;
    m->agents[0].parent = NONE;
    snprintf(m->agents[0].id, sizeof m->agents[0].id, "root");
    return m;
}

static inline rlm_graph *graph_of(const struct model *m, int agent)
{
    rlm_graph *g = rlm_graph_agent(m->root, m->agents[agent].id);
    CHECK(g);
    return g;
}

static inline int pick_agent(struct model *m)
{
    int agent;
    do {
        agent = (int)roll(m, (unsigned)m->n_agents);
    } while (!m->agents[agent].there);
    return agent;
}

/* ---- the rules, again ------------------------------------------------------------------------ */

static inline bool is_good(const struct model_agent *a)
{
    for (int i = 1; i < a->n_nodes; i++) {
        if (a->nodes[i - 1].type == RLM_DONE_OUTPUT && a->nodes[i].type != RLM_USER_QUERY) {
            return false;
        }
    }
    return true;
}

static inline int64_t model_total(const struct model *m, int agent)
{
    int64_t sum = m->agents[agent].own;
    for (int i = 0; i < m->agents[agent].n_children; i++) {
        sum += model_total(m, m->agents[agent].children[i]);
    }
    return sum;
}

static inline void model_forget(struct model *m, int agent)
{
    struct model_agent *a = &m->agents[agent];
    while (a->n_children) {
        model_forget(m, a->children[--a->n_children]);
    }
    a->there = false;
}

static inline void model_remove_child(struct model *m, int agent)
{
    struct model_agent *parent = &m->agents[m->agents[agent].parent];
    parent->own += model_total(m, agent);
    for (int i = 0; i < parent->n_children; i++) {
        if (parent->children[i] == agent) {
            memmove(&parent->children[i], &parent->children[i + 1],
                    (size_t)(parent->n_children - i - 1) * sizeof *parent->children);
            break;
        }
    }
    parent->n_children--;
    model_forget(m, agent);
}

static inline bool names(const struct model_agent *a, int n, int child)
{
    for (int i = 0; i < n; i++) {
        if (a->nodes[i].names[0] == child || a->nodes[i].names[1] == child) {
            return true;
        }
    }
    return false;
}

static inline bool model_truncate(struct model *m, int agent, int n)
{
    struct model_agent *a = &m->agents[agent];
    if (n >= a->n_nodes) {
        return false;
    }
    for (int i = a->n_children; i-- > 0;) {
        int child = a->children[i];
        if (!names(a, n, child) && (m->agents[child].launch || names(a, a->n_nodes, child))) {
            model_remove_child(m, child);
        }
    }
    a->n_nodes = n;
    return true;
}

static inline bool model_rewind(struct model *m, int agent, int n)
{
    bool any = false;
    for (int child = agent; m->agents[child].parent != NONE; child = m->agents[child].parent) {
        struct model_agent *parent = &m->agents[m->agents[child].parent];
        for (int i = 0; i < parent->n_nodes; i++) {
            struct model_node *node = &parent->nodes[i];
            if (node->type == RLM_SUPERVISING_OUTPUT &&
                (node->names[0] == child || node->names[1] == child)) {
                any |= model_truncate(m, m->agents[child].parent, i + 1);
                break;
            }
        }
    }
    return model_truncate(m, agent, n) || any;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static inline int64_t check_agent(const struct model *m, int agent, int *count)
{
    const struct model_agent *a = &m->agents[agent];
    rlm_graph *g = graph_of(m, agent);
    int turns = 0, task_turns = 0;
    bool ended = false;
    CHECK_INT(g->nodes.len, a->n_nodes);
    for (int i = 0; i < a->n_nodes; i++) {
        const struct rlm_node *node = rlm_graph_node(g, (size_t)i);
        char text[16];
        snprintf(text, sizeof text, "%d", a->nodes[i].text);
        CHECK_INT(node->seq, i);
        CHECK_INT(node->type, a->nodes[i].type);
        CHECK_TEXT(node->id, a->nodes[i].id);
        CHECK_STR(node->content, text);
        bool asked_more = node->type == RLM_USER_QUERY && ended;
        turns += node->type == RLM_LLM_OUTPUT;
        task_turns = asked_more ? 0 : task_turns + (node->type == RLM_LLM_OUTPUT);
        ended = node->type == RLM_DONE_OUTPUT;
    }
    CHECK_INT(g->turns, turns);
    CHECK_INT(g->task_turns, task_turns);
    CHECK_INT(g->children.len, a->n_children);
    int64_t total = a->own;
    ++*count;
    for (int i = 0; i < a->n_children; i++) {
        CHECK(g->children.items[i] == graph_of(m, a->children[i]));
        CHECK_INT(g->children.items[i]->index, i);
        CHECK(g->children.items[i]->parent == g);
        total += check_agent(m, a->children[i], count);
    }
    CHECK_INT(g->own.calls, a->own);
    CHECK_INT(g->total.calls, total);
    return total;
}

static inline void model_check(const struct model *m)
{
    int count = 0;
    check_agent(m, 0, &count);
    CHECK_INT(rlm_graph_agent_count(m->root), count);
}

/* ---- edits ----------------------------------------------------------------------------------- */

static inline void
make_node(struct model *m, struct model_node *ret_model, struct rlm_node *ret, char *text)
{
    static const enum rlm_node_type types[] = {RLM_USER_QUERY,  RLM_LLM_OUTPUT,   RLM_EXEC_ACTION,
                                               RLM_EXEC_OUTPUT, RLM_ERROR_OUTPUT, RLM_DONE_OUTPUT};
    *ret_model = (struct model_node){.type = types[roll(m, 6)], .names = {NONE, NONE}};
    ret_model->text = ++m->counter;
    snprintf(ret_model->id, sizeof ret_model->id, "n_%016d", m->counter);
    snprintf(text, 16, "%d", ret_model->text);
    *ret = (struct rlm_node){.type = ret_model->type, .content = rlm_str_of(text)};
    memcpy(ret->id, ret_model->id, sizeof ret->id);
    ret->time_us = m->counter;
    if (ret->type == RLM_LLM_OUTPUT) {
        ret->usage =
            (struct rlm_usage){.calls = 1 + m->counter % 3, .cost_nano = m->counter * 7 + 1};
        ret->call_id = m->counter;
        ret->code = RLM_STR("x\n\xED\xA0\x80");
        ret->model = RLM_STR("m");
    }
    if (ret->type == RLM_DONE_OUTPUT) {
        ret->reason = RLM_STR("answered");
        ret->metadata = RLM_STR("{\"k\": [1.50]}");
    }
}

static inline void edit_put(struct model *m, int agent)
{
    struct model_agent *a = &m->agents[agent], before = *a;
    struct model_node made;
    struct rlm_node node;
    char text[16];
    make_node(m, &made, &node, text);
    enum rlm_inject where = (enum rlm_inject)roll(m, 3);
    bool anchored = a->n_nodes && roll(m, 2);
    int at = anchored                     ? (int)roll(m, (unsigned)a->n_nodes)
             : where == RLM_INJECT_BEFORE ? 0
                                          : a->n_nodes;
    const char *anchor = anchored ? a->nodes[at].id : NULL;
    if (where == RLM_INJECT_REPLACE && !anchor) {
        where = RLM_INJECT_AFTER;
    }
    int index = anchored && where == RLM_INJECT_AFTER ? at + 1 : at;
    if (where == RLM_INJECT_REPLACE) {
        a->nodes[index] = made;
    } else if (a->n_nodes == NODES_MAX) {
        return;
    } else {
        memmove(&a->nodes[index + 1], &a->nodes[index],
                (size_t)(a->n_nodes - index) * sizeof *a->nodes);
        a->nodes[index] = made;
        a->n_nodes++;
    }
    char old_id[20] = "";
    if (anchor) {
        memcpy(old_id, before.nodes[at].id, sizeof old_id);
    }
    int r = rlm_graph_inject(graph_of(m, agent), where, anchor ? old_id : NULL, &node, NULL, NULL);
    CHECK_INT(r, is_good(a) ? 0 : RLM_E_INVAL);
    if (r < 0) {
        *a = before;
    } else {
        a->own += node.usage.calls;
    }
}

static inline void edit_launch(struct model *m, int agent)
{
    struct model_agent *a = &m->agents[agent];
    rlm_graph *g = graph_of(m, agent);
    if (m->n_agents + 2 > AGENTS_MAX || a->n_children + 2 > CHILDREN_MAX || g->depth > 6 ||
        a->n_nodes == NODES_MAX ||
        (a->n_nodes && a->nodes[a->n_nodes - 1].type == RLM_DONE_OUTPUT)) {
        return;
    }
    struct model_node made;
    struct rlm_node node;
    char text[16];
    const char *ids[2];
    make_node(m, &made, &node, text);
    node = (struct rlm_node){.type = RLM_SUPERVISING_OUTPUT,
                             .content = node.content,
                             .time_us = node.time_us,
                             .call_id = m->counter,
                             .agents = ids,
                             .n_agents = 2};
    memcpy(node.id, made.id, sizeof node.id);
    made.type = node.type;
    for (int i = 0; i < 2; i++) {
        int child = m->n_agents++;
        struct model_agent *c = &m->agents[child];
        char name[16];
        struct rlm_graph_options start = {
            .query = RLM_STR("part"), .launch = m->counter, .launch_part = i};
        rlm_graph *made_child;
        snprintf(name, sizeof name, "c%d", child);
        *c = (struct model_agent){.there = true, .parent = agent, .launch = m->counter};
        CHECK_INT(rlm_edit_add_child(g, name, &start, &made_child, NULL), 0);
        CHECK(strlen(rlm_graph_agent_id(made_child)) < sizeof c->id);
        strcpy(c->id, rlm_graph_agent_id(made_child));
        a->children[a->n_children++] = child;
        made.names[i] = child;
        ids[i] = c->id;
    }
    if (roll(m, 4)) { /* else the run was stopped before it said so */
        CHECK_INT(rlm_graph_append_node(g, &node, NULL, NULL), 0);
        a->nodes[a->n_nodes++] = made;
    }
}

static inline void edit_remove(struct model *m, int agent)
{
    struct model_agent *a = &m->agents[agent], before = *a;
    if (!a->n_nodes) {
        CHECK_INT(rlm_graph_remove_node(graph_of(m, agent), "n_x", NULL), RLM_E_NOT_FOUND);
        return;
    }
    int at = (int)roll(m, (unsigned)a->n_nodes);
    memmove(&a->nodes[at], &a->nodes[at + 1], (size_t)(a->n_nodes - at - 1) * sizeof *a->nodes);
    a->n_nodes--;
    int r = rlm_graph_remove_node(graph_of(m, agent), before.nodes[at].id, NULL);
    CHECK_INT(r, is_good(a) ? 0 : RLM_E_INVAL);
    *a = r < 0 ? before : *a;
}

static inline void edit_rewind(struct model *m, int agent)
{
    struct model_agent *a = &m->agents[agent];
    if (a->n_nodes) {
        int at = (int)roll(m, (unsigned)a->n_nodes);
        char id[20];
        memcpy(id, a->nodes[at].id, sizeof id);
        int r = rlm_graph_rewind(graph_of(m, agent), id, NULL);
        CHECK_INT(r, model_rewind(m, agent, at + 1) ? 0 : 1);
    }
}

static inline void edit_at_random(struct model *m)
{
    int agent = pick_agent(m);
    unsigned what = roll(m, 40);
    if (what < 24) {
        edit_put(m, agent);
    } else if (what < 31) {
        edit_launch(m, agent);
    } else if (what < 36) {
        edit_remove(m, agent);
    } else if (what < 37 && agent) {
        CHECK_INT(rlm_graph_remove_child(graph_of(m, agent), NULL), 0);
        model_remove_child(m, agent);
    } else if (what < 39) {
        edit_rewind(m, agent);
    }
}
