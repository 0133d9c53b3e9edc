#include "flow/messages.h"

#include "base/hash.h"
#include "flow/prompt.h"

enum { TASK_MAX = 64 * 1024 * 1024 };

struct builder {
    rlm_arena *arena;
    RLM_VEC(struct rlm_message) list;
    size_t turns; /* replies that are not left out */
    bool failed;
    char *
        grown; /* the text made last, with room behind it: what is joined to again grows in place */
    size_t grown_cap;
    /* the last cell: its code and what it ended with, as the model was shown it */
    const struct rlm_node *code, *end;
    int times; /* in a row that it was sent */
};

static rlm_str joined(struct builder *b, rlm_str first, const char *between, rlm_str second)
{
    size_t gap = strlen(between), len = first.len + gap + second.len;
    char *text = b->grown;
    if (first.ptr != b->grown || len > b->grown_cap) {
        b->grown_cap = first.ptr == b->grown ? 2 * len : len;
        b->grown = text = rlm_arena_bytes(b->arena, b->grown_cap);
        if (!text) {
            b->failed = true;
            return first;
        }
        memcpy(text, first.ptr, first.len);
    }
    memcpy(text + first.len, between, gap);
    memcpy(text + first.len + gap, second.ptr, second.len);
    return (rlm_str){text, first.len + gap + second.len};
}

static bool is_blank(rlm_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (!strchr(" \t\n\v\f\r", text.ptr[i]) || !text.ptr[i]) {
            return false;
        }
    }
    return true;
}

/* Adds a text; one of the same role as the last is merged into it. Providers refuse messages that are
 * empty, and some also those of blanks alone. */
static void add(struct builder *b, enum rlm_role role, rlm_str text)
{
    if (is_blank(text)) {
        text = role == RLM_ASSISTANT ? RLM_STR("(empty reply)") : RLM_STR("(nothing)");
    }
    struct rlm_message *last = b->list.len ? &b->list.items[b->list.len - 1] : NULL;
    if (last && last->role == role) {
        last->text = joined(b, last->text, "\n\n", text);
        return;
    }
    struct rlm_message *m = rlm_vec_push(&b->list);
    if (!m) {
        b->failed = true;
        return;
    }
    *m = (struct rlm_message){.role = role, .text = text};
}

/* Puts a line behind the last message. */
static void add_line(struct builder *b, rlm_str line)
{
    if (!b->failed) {
        struct rlm_message *last = &b->list.items[b->list.len - 1];
        last->text = joined(b, last->text, "\n", line);
    }
}

static const char left_out[] = "[Earlier turns are left out here.]";
static const char not_answered[] =
    "[If this shows the answer, call done(answer) with it now. If not, go on with code that finds "
    "it.]";
static const char failed[] =
    "[Your code stopped there; do not send it again. If what it printed shows the answer, call "
    "done(...) with just that. If not, print the data in question, then write other code.]";
static const char sent_again[] =
    "[You have sent this code before, and the same came out; it will not change. If the answer "
    "can be seen above, reply with one ```repl block that calls done(...) with that value and "
    "does nothing else. If not, write code that is different.]";
static const char once_more[] = "[The same code once more.]";

static size_t skip_digits(rlm_str text, size_t at)
{
    while (at < text.len && text.ptr[at] >= '0' && text.ptr[at] <= '9') {
        at++;
    }
    return at;
}

/* Whether two observations are the same but for the number of the cell, which stands in every line
 * of a traceback. */
static bool is_same_end(rlm_str a, rlm_str b)
{
    const char cell[] = "<cell ";
    const size_t len = sizeof cell - 1;
    size_t i = 0, j = 0;
    while (i < a.len && j < b.len && a.ptr[i] == b.ptr[j]) {
        i++, j++;
        if (i >= len && memcmp(a.ptr + i - len, cell, len) == 0) {
            i = skip_digits(a, i);
            j = skip_digits(b, j);
        }
    }
    return i == a.len && j == b.len;
}

/* An observation ends with what to do next. That is part of the projection, and stands behind every
 * one, not the newest alone: what has once been sent never changes, so prompt caches hit.
 *
 * Code that is sent again right away is shown once, with a line behind what came out for each time:
 * models repeat what they see repeated. */
static void
add_observation(struct builder *b, const struct rlm_node *code, const struct rlm_node *end)
{
    bool again = b->code && code && code->code.len && rlm_str_eq(code->code, b->code->code) &&
                 is_same_end(end->content, b->end->content) && !b->failed && b->list.len > 2 &&
                 b->list.items[b->list.len - 1].role == RLM_ASSISTANT;
    b->code = code;
    b->end = end;
    if (again) {
        b->times++;
        b->list.len--;
        add_line(b, rlm_str_of(b->times == 2 ? sent_again : once_more));
        return;
    }
    b->times = 1;
    add(b, RLM_USER, end->content);
    if (end->type == RLM_EXEC_OUTPUT) {
        add_line(b, rlm_str_of(not_answered));
    } else if (rlm_str_is(end->error, "exec")) {
        add_line(b, rlm_str_of(failed));
    }
}

static void add_node(struct builder *b, const struct rlm_node *node, const struct rlm_node **code)
{
    switch (node->type) {
    case RLM_LLM_OUTPUT:
        add(b, RLM_ASSISTANT, node->content);
        break;
    case RLM_EXEC_OUTPUT:
    case RLM_ERROR_OUTPUT:
        add_observation(b, *code, node);
        break;
    case RLM_USER_QUERY:
        add(b, RLM_USER, node->content);
        break;
    case RLM_DONE_OUTPUT:
        /* Of an earlier turn: what was answered before the follow-up. */
        add(b, RLM_USER, node->result.len ? node->result : node->content);
        break;
    case RLM_EXEC_ACTION:
        *code = node;
        break;
    case RLM_SUPERVISING_OUTPUT:
    case RLM_RESUME_ACTION:
        break;
    }
}

/* How many of the oldest turns to leave out: those that the caller wants gone, and what a cap of
 * messages takes. A system message and the task come before the turns, and a turn is two messages at
 * most, a reply and what followed. */
static int turns_to_drop(const struct rlm_agent *agent, const struct rlm_messages_options *options)
{
    int drop = options->turns_dropped;
    int most = agent->run->flow->limits.max_messages;
    if (most && agent->graph->turns - (most - 2) / 2 > drop) {
        drop = agent->graph->turns - (most - 2) / 2;
    }
    return drop;
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
    const struct rlm_node *code = NULL;
    int replies = 0;
    bool marked = false;
    int drop = turns_to_drop(agent, options);
    for (size_t i = 1; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        replies += node->type == RLM_LLM_OUTPUT;
        if (replies <= drop && node->type != RLM_USER_QUERY) {
            if (!marked) {
                add(&b, RLM_USER, rlm_str_of(left_out));
                marked = true;
            }
            continue;
        }
        b.turns += node->type == RLM_LLM_OUTPUT;
        add_node(&b, node, &code);
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
        (struct rlm_messages){.items = items, .count = b.list.len, .turns_shown = b.turns};
    for (size_t i = 0; i < b.list.len; i++) {
        ret_messages->bytes += items[i].text.len;
    }
    free(b.list.items);
    return 0;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static const char *const role_names[] = {
    [RLM_SYSTEM] = "system",
    [RLM_USER] = "user",
    [RLM_ASSISTANT] = "assistant",
};

void rlm_messages_put(const struct rlm_messages *m, struct rlm_buf *out)
{
    struct rlm_json_writer w = {.buf = out};
    rlm_json_begin(&w, '[');
    for (size_t i = 0; i < m->count; i++) {
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "role", role_names[m->items[i].role]);
        rlm_json_member_str(&w, "content", m->items[i].text);
        rlm_json_end(&w, '}');
    }
    rlm_json_end(&w, ']');
}

static int parse_message(const rlm_json *object, size_t i, struct rlm_message *ret, rlm_error **err)
{
    rlm_str role = rlm_json_text(rlm_json_get(object, "role"), RLM_STR(""));
    const rlm_json *content = rlm_json_get(object, "content");
    for (int r = RLM_SYSTEM; r <= RLM_ASSISTANT; r++) {
        if (rlm_str_is(role, role_names[r]) && (r != RLM_SYSTEM || i == 0) && content &&
            content->type == RLM_JSON_STRING) {
            *ret = (struct rlm_message){.role = (enum rlm_role)r, .text = content->text};
            return 0;
        }
    }
    return rlm_error_set(
        err, RLM_E_INVAL,
        "message %zu is none: it needs a \"role\" (\"system\" in front, then \"user\" "
        "and \"assistant\") and a text as \"content\"",
        i);
}

int rlm_messages_parse(rlm_str json,
                       rlm_arena *arena,
                       struct rlm_messages *ret_messages,
                       rlm_error **err)
{
    const rlm_json *list;
    rlm_str kept = rlm_arena_copy(arena, json);
    if (!kept.ptr) {
        return rlm_error_nomem(err);
    }
    int r = rlm_json_parse(arena, kept, &list, err);
    if (r < 0) {
        return rlm_error_wrap(err, r, "the messages");
    }
    size_t n = list->type == RLM_JSON_ARRAY ? list->count : 0;
    struct rlm_message *items = rlm_arena_alloc(arena, (n ? n : 1) * sizeof *items);
    if (!items) {
        return rlm_error_nomem(err);
    }
    *ret_messages = (struct rlm_messages){.items = items, .count = n};
    bool asked = false;
    for (size_t i = 0; i < n; i++) {
        if ((r = parse_message(rlm_json_at(list, i), i, &items[i], err)) < 0) {
            return r;
        }
        asked |= items[i].role == RLM_USER;
        ret_messages->bytes += items[i].text.len;
        ret_messages->turns_shown += items[i].role == RLM_ASSISTANT;
    }
    return asked ? 0
                 : rlm_error_set(err, RLM_E_INVAL,
                                 "the messages must be a list with one of the user's in it");
}

uint64_t rlm_message_hash(uint64_t hash, const struct rlm_message *m)
{
    hash = (hash ^ (uint64_t)m->role) * 0x100000001b3u;
    hash = (hash ^ m->text.len) * 0x100000001b3u;
    return hash * 31 + rlm_crc32c((uint32_t)hash, m->text.ptr, m->text.len);
}

uint64_t rlm_messages_hash(const struct rlm_messages *m)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < m->count; i++) {
        hash = rlm_message_hash(hash, &m->items[i]);
    }
    return hash;
}
