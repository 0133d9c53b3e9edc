#include "flow/messages.h"

#include "flow/prompt.h"

enum { TASK_MAX = 64 * 1024 * 1024 };

struct builder {
    rlm_arena *arena;
    RLM_VEC(struct rlm_message) list;
    bool failed;
};

static rlm_str joined(struct builder *b, rlm_str first, rlm_str second)
{
    char *text = rlm_arena_bytes(b->arena, first.len + 2 + second.len);
    if (!text) {
        b->failed = true;
        return first;
    }
    memcpy(text, first.ptr, first.len);
    memcpy(text + first.len, "\n\n", 2);
    memcpy(text + first.len + 2, second.ptr, second.len);
    return (rlm_str){text, first.len + 2 + second.len};
}

/* Adds a text; one of the same role as the last is merged into it. */
static void add(struct builder *b, enum rlm_role role, rlm_str text)
{
    if (!text.len) {
        text = role == RLM_ASSISTANT ? RLM_STR("(empty reply)") : RLM_STR("(nothing)");
    }
    struct rlm_message *last = b->list.len ? &b->list.items[b->list.len - 1] : NULL;
    if (last && last->role == role) {
        last->text = joined(b, last->text, text);
        return;
    }
    struct rlm_message *m = rlm_vec_push(&b->list);
    if (!m) {
        b->failed = true;
        return;
    }
    *m = (struct rlm_message){.role = role, .text = text};
}

static void add_node(struct builder *b, const struct rlm_node *node)
{
    switch (node->type) {
    case RLM_LLM_OUTPUT:
        add(b, RLM_ASSISTANT, node->content);
        break;
    case RLM_EXEC_OUTPUT:
    case RLM_ERROR_OUTPUT:
        add(b, RLM_USER, node->content);
        break;
    case RLM_USER_QUERY:
        add(b, RLM_USER, node->content);
        break;
    case RLM_DONE_OUTPUT:
        /* Of an earlier turn: what was answered before the follow-up. */
        add(b, RLM_USER, node->result.len ? node->result : node->content);
        break;
    case RLM_EXEC_ACTION:
    case RLM_SUPERVISING_OUTPUT:
    case RLM_RESUME_ACTION:
        break;
    }
}

/* Leaves the first `head` messages, a marker, and the newest, so that at most `most` stand after the
 * system message. */
static void cap_messages(struct builder *b, size_t most)
{
    size_t after = b->list.len - 1;
    if (after <= most) {
        return;
    }
    /* The task (1), the marker is merged into it, then an assistant message begins the tail. */
    size_t first = b->list.len - (most - 1);
    if (b->list.items[first].role != RLM_ASSISTANT) {
        first++;
    }
    if (first >= b->list.len) {
        first = b->list.len - 1;
    }
    b->list.items[1].text =
        joined(b, b->list.items[1].text, RLM_STR("[Earlier turns are left out here.]"));
    memmove(b->list.items + 2, b->list.items + first,
            (b->list.len - first) * sizeof *b->list.items);
    b->list.len -= first - 2;
}

/* Where a provider's prompt cache may end: behind the system prompt, and behind the newest message
 * and the one before it, so that each turn finds what the last one left. */
static void mark_cache(struct builder *b)
{
    b->list.items[0].cache = true;
    size_t marked = 0;
    for (size_t i = b->list.len; i-- > 1 && marked < 2;) {
        if (b->list.items[i].role == RLM_USER) {
            b->list.items[i].cache = true;
            marked++;
        }
    }
}

int rlm_messages_build(const struct rlm_agent *agent,
                       const struct rlm_messages_options *options,
                       rlm_arena *arena,
                       struct rlm_messages *ret_messages,
                       rlm_error **err)
{
    const rlm_graph *g = agent->graph;
    struct builder b = {.arena = arena};
    rlm_autofree char *system = rlm_prompt_system(agent->run->flow, g->depth);
    rlm_auto_buf struct rlm_buf task = RLM_BUF(TASK_MAX);
    if (!system || rlm_prompt_task(agent, g->query, &task) < 0) {
        return rlm_error_nomem(err);
    }
    add(&b, RLM_SYSTEM, rlm_arena_copy(arena, rlm_str_of(system)));
    add(&b, RLM_USER, rlm_arena_copy(arena, rlm_buf_str(&task)));
    int replies = 0;
    size_t shown = 0;
    bool marked = false;
    for (size_t i = 1; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        replies += node->type == RLM_LLM_OUTPUT;
        if (replies <= options->turns_dropped && node->type != RLM_USER_QUERY) {
            if (!marked) {
                add(&b, RLM_USER, RLM_STR("[Earlier turns are left out here.]"));
                marked = true;
            }
            continue;
        }
        shown += node->type == RLM_LLM_OUTPUT;
        add_node(&b, node);
    }
    if (!b.failed && agent->run->flow->limits.max_messages) {
        cap_messages(&b, (size_t)agent->run->flow->limits.max_messages - 1);
    }
    if (!b.failed && b.list.items[b.list.len - 1].role != RLM_USER) {
        add(&b, RLM_USER, RLM_STR("Go on: write the next code, or call done(answer)."));
    }
    if (options->final) {
        add(&b, RLM_USER, rlm_str_of(rlm_prompt_final));
    }
    struct rlm_message *items =
        b.failed ? NULL : rlm_arena_alloc(arena, b.list.len * sizeof *items);
    if (!items) {
        free(b.list.items);
        return rlm_error_nomem(err);
    }
    mark_cache(&b);
    memcpy(items, b.list.items, b.list.len * sizeof *items);
    *ret_messages =
        (struct rlm_messages){.items = items, .count = b.list.len, .turns_shown = shown};
    for (size_t i = 0; i < b.list.len; i++) {
        ret_messages->bytes += items[i].text.len;
    }
    free(b.list.items);
    return 0;
}
