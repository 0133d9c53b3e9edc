/* One agent's conversation, as its model saw it at its last turn.
 *
 * The projection is the engine's own (flow/messages.h), of the graph as it was then, with the limits of
 * the drive that asked. The journal has a hash of what was sent, so that the view can say whether this
 * is it: what cannot be known again are the texts of tools, of which the journal has only the names. */
#include "base/json.h"
#include "flow/messages.h"
#include "flow/past.h"
#include "flow/record.h"
#include "view/tree.h"

#include <stdio.h>

static const char *const roles[] = {
    [RLM_SYSTEM] = "system", [RLM_USER] = "user", [RLM_ASSISTANT] = "assistant"};

struct conversation {
    struct rlm_past_run *past;
    rlm_graph *graph;
    const struct rlm_past_ask *ask; /* NULL: it has asked nothing */
    int turn;
    const struct rlm_node *reply; /* NULL: none came */
    rlm_arena *arena;             /* of what was recorded, and of the messages */
    rlm_flow flow;                /* as far as a projection reads it */
    rlm_run run;
    struct rlm_messages messages;
    bool exact;
};

/* ---- what the drive was started with --------------------------------------------------------- */

struct options_reading {
    struct conversation *c;
    size_t wanted, drive;
    rlm_arena *scratch;
};

static int add_model(struct conversation *c, rlm_str name, rlm_error **err)
{
    struct rlm_flow_model *model = rlm_arena_alloc(c->arena, sizeof *model);
    struct rlm_flow_model **slot = model ? rlm_vec_push(&c->flow.models) : NULL;
    rlm_str kept = slot ? rlm_arena_copy(c->arena, name) : RLM_STR_NONE;
    if (!kept.ptr) {
        return rlm_error_nomem(err);
    }
    *slot = model;
    model->name = (char *)(uintptr_t)kept.ptr;
    return 0;
}

static int take_options(struct conversation *c, const rlm_json *options, rlm_error **err)
{
    const rlm_json *models = rlm_json_get(options, "models");
    const rlm_json *prompt = rlm_json_get(options, "system_prompt");
    int r = 0;
    rlm_record_get_limits(options, &c->flow.limits);
    for (uint32_t i = 0; r == 0 && rlm_json_is(models, RLM_JSON_OBJECT) && i < models->count; i++) {
        r = add_model(c, models->members[i].key, err);
    }
    if (r == 0 && rlm_json_is(prompt, RLM_JSON_STRING)) {
        rlm_str kept = rlm_arena_copy(c->arena, prompt->text);
        c->flow.system_prompt = (char *)(uintptr_t)kept.ptr;
        r = kept.ptr ? 0 : rlm_error_nomem(err);
    }
    return r;
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct options_reading *r = arg;
    const rlm_json *record;
    (void)offset;
    if ((kind != RLM_RECORD_RUN && kind != RLM_RECORD_RESUMED) || r->drive++ != r->wanted) {
        return 0;
    }
    rlm_arena_reset(r->scratch);
    int result = rlm_json_parse(r->scratch, payload, &record, err);
    return result < 0 ? result : take_options(r->c, rlm_json_get(record, "options"), err);
}

static int read_options(struct conversation *c, const char *journal, rlm_error **err)
{
    rlm_auto_arena rlm_arena *scratch = rlm_arena_new(0);
    struct options_reading r = {.c = c, .scratch = scratch};
    r.wanted = c->ask ? c->ask->drive : c->past->drives.len - 1;
    c->flow.limits = (struct rlm_limits)RLM_LIMITS_INIT;
    return scratch ? rlm_journal_read(journal, on_record, &r, NULL, err) : rlm_error_nomem(err);
}

/* ---- projecting ------------------------------------------------------------------------------ */

/* Puts the graph back to the moment before the reply to the last question. */
static void go_back(struct conversation *c)
{
    rlm_graph *g = c->graph;
    int replies = 0;
    size_t end = g->nodes.len;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const struct rlm_node *node = g->nodes.items[i];
        if (node->type == RLM_LLM_OUTPUT && ++replies == c->turn) {
            c->reply = node;
            end = i;
            break;
        }
    }
    if (!c->reply && end > 1 && g->nodes.items[end - 1]->type == RLM_DONE_OUTPUT) {
        end--; /* it was ended while the question was open */
    }
    g->nodes.len = end;
    g->turns = c->reply ? c->turn - 1 : replies;
}

static int project(struct conversation *c, rlm_error **err)
{
    struct rlm_agent agent = {.run = &c->run, .graph = c->graph};
    struct rlm_messages_options options = {0};
    c->run.flow = &c->flow;
    if (c->ask) {
        options = (struct rlm_messages_options){c->ask->turns_dropped, c->ask->final};
    }
    int r = rlm_messages_build(&agent, &options, c->arena, &c->messages, err);
    c->exact = r == 0 && c->ask && rlm_messages_hash(&c->messages) == c->ask->messages;
    return r;
}

static int load(struct conversation *c, const char *journal, const char *agent_id, rlm_error **err)
{
    rlm_autofree char *directory = NULL;
    if (asprintf(&directory, "%s/blobs", journal) < 0) {
        directory = NULL;
        return rlm_error_nomem(err);
    }
    if (!(c->arena = rlm_arena_new(0))) {
        return rlm_error_nomem(err);
    }
    int r = rlm_blobs_open_to_view(directory, &c->run.blobs, err);
    if (r == 0) {
        r = rlm_past_load(journal, c->run.blobs, false, &c->past, NULL, err);
    }
    if (r == 0 && !(c->graph = rlm_graph_agent(c->past->root, agent_id))) {
        r = rlm_error_set(err, RLM_E_NOT_FOUND, "%s has no agent \"%s\"", journal, agent_id);
    }
    if (r < 0) {
        return r;
    }
    const struct rlm_past *past = rlm_past_of(c->past, c->graph);
    if (past && past->turns.len) {
        c->turn = (int)past->turns.len;
        c->ask = &past->turns.items[past->turns.len - 1];
        go_back(c);
    }
    r = read_options(c, journal, err);
    return r < 0 ? r : project(c, err);
}

static void deinit(struct conversation *c)
{
    free(c->flow.models.items);
    rlm_past_free(c->past);
    rlm_blobs_free(c->run.blobs);
    rlm_arena_free(c->arena);
}

/* ---- showing --------------------------------------------------------------------------------- */

static void put_message(struct rlm_plain *p, const char *role, rlm_str text)
{
    rlm_plain_end(p);
    rlm_plain_color(p, "1");
    rlm_plain_putf(p, "[%s]", role);
    rlm_plain_color(p, NULL);
    rlm_plain_end(p);
    rlm_plain_block(p, text, "", 0);
}

static void put_text(struct rlm_plain *p, const struct conversation *c)
{
    rlm_plain_color(p, "1");
    rlm_plain_puts(p, rlm_graph_agent_id(c->graph));
    rlm_plain_color(p, NULL);
    if (c->ask) {
        rlm_plain_putf(p, "  turn %d, %zu messages, ", c->turn, c->messages.count);
        rlm_plain_count(p, (int64_t)c->messages.bytes);
        rlm_plain_puts(p, c->exact ? " bytes, as they were sent" : " bytes");
    } else {
        rlm_plain_puts(p, "  has not asked its model yet: what it would send");
    }
    rlm_plain_end(p);
    if (c->ask && !c->exact) {
        rlm_plain_puts(p, "What was sent differs from this: it was made by another version, with "
                          "tools, or before an edit.");
        rlm_plain_end(p);
    }
    if (c->ask && c->ask->turns_dropped) {
        rlm_plain_putf(p, "%d of the oldest turns did not fit the model's context.",
                       c->ask->turns_dropped);
        rlm_plain_end(p);
    }
    for (size_t i = 0; i < c->messages.count; i++) {
        put_message(p, roles[c->messages.items[i].role], c->messages.items[i].text);
    }
    if (c->reply) {
        put_message(p, "reply", c->reply->content);
    }
}

static void put_json(struct rlm_buf *out, const struct conversation *c)
{
    struct rlm_json_writer w = {.buf = out};
    rlm_json_begin(&w, '{');
    rlm_json_member_text(&w, "agent_id", rlm_graph_agent_id(c->graph));
    rlm_json_member_int(&w, "turn", c->turn);
    rlm_json_member_bool(&w, "as_sent", c->exact);
    rlm_json_key(&w, "messages");
    rlm_json_begin(&w, '[');
    for (size_t i = 0; i < c->messages.count; i++) {
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "role", roles[c->messages.items[i].role]);
        rlm_json_member_str(&w, "content", c->messages.items[i].text);
        rlm_json_end(&w, '}');
    }
    rlm_json_end(&w, ']');
    rlm_json_key(&w, "reply");
    c->reply ? rlm_json_put_str(&w, c->reply->content) : rlm_json_put_null(&w);
    rlm_json_end(&w, '}');
    rlm_buf_addc(out, '\n');
}

int rlm_view_conversation(const char *journal,
                          const char *agent_id,
                          bool json,
                          const struct rlm_view_options *options,
                          char **ret_text,
                          rlm_error **err)
{
    struct conversation c = {0};
    rlm_auto_buf struct rlm_buf out = RLM_BUF(RLM_VIEW_MAX_BYTES);
    struct rlm_plain p = {.out = &out, .color = options && options->color};
    int r = load(&c, journal, agent_id, err);
    if (r == 0) {
        json ? put_json(&out, &c) : put_text(&p, &c);
        r = rlm_buf_check(&out, err);
    }
    if (r == 0) {
        *ret_text = rlm_buf_take(&out);
    }
    deinit(&c);
    return r;
}
