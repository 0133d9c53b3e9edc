/* Reads a run's journal into its past: what the whole run did here, what sessions did in past_session.c. */
#include "flow/past_load.h"

#include "flow/record.h"
#include "flow/run.h"
#include "graph/record.h"

#include <stdio.h>
#include <stdlib.h>

enum { SECOND_US = 1000000, TURNS_MAX = 1000 * 1000 }; /* turns of all agents */

int rlm_past_of_record(struct rlm_past_reading *r,
                       const rlm_json *record,
                       struct rlm_past **ret_past,
                       rlm_error **err)
{
    rlm_str id = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR(""));
    struct rlm_past *past = rlm_map_get(&r->past->agents, id);
    if (!past) {
        if (!RLM_NEW(past)) {
            return rlm_error_nomem(err);
        }
        past->arena = rlm_arena_new(0);
        if (!past->arena || rlm_map_set(&r->past->agents, id, past) < 0) {
            rlm_arena_free(past->arena);
            free(past);
            return rlm_error_nomem(err);
        }
    }
    *ret_past = past;
    return 0;
}

/* ---- the account ----------------------------------------------------------------------------- */

struct ask_key {
    char text[24];
};

static rlm_str ask_key(int64_t ask, struct ask_key *key)
{
    int len = snprintf(key->text, sizeof key->text, "%lld", (long long)ask);
    return (rlm_str){key->text, (size_t)len};
}

/* A turn's number is its place; another attempt at the same turn takes the place of the first. */
static int turn_asked(struct rlm_past_reading *r, const rlm_json *record, rlm_error **err)
{
    struct rlm_past *past;
    size_t turn = (size_t)rlm_past_number(record, "turn");
    int result = rlm_past_of_record(r, record, &past, err);
    while (result == 0 && past->turns.len < turn) {
        result = r->n_turns++ >= TURNS_MAX    ? rlm_error_set(err, RLM_E_LIMIT, "too many turns")
                 : rlm_vec_push(&past->turns) ? 0
                                              : rlm_error_nomem(err);
    }
    if (result == 0) {
        rlm_str hash = rlm_json_text(rlm_json_get(record, "messages"), RLM_STR(""));
        struct rlm_past_ask *ask = &past->turns.items[turn - 1];
        ask->messages = strtoull(hash.len ? hash.ptr : "0", NULL, 16);
        ask->final = rlm_json_bool(rlm_json_get(record, "final"), false);
        ask->turns_dropped = (int)rlm_past_number(record, "dropped");
        ask->drive = r->past->drives.len - 1;
    }
    return result;
}

static int reserved(struct rlm_past_reading *r, const rlm_json *record, rlm_error **err)
{
    struct ask_key key;
    int64_t ask = rlm_past_number(record, "ask");
    struct rlm_lost_ask *open = rlm_map_get(&r->asks, ask_key(ask, &key));
    r->past->last_ask = ask > r->past->last_ask ? ask : r->past->last_ask;
    if (!open && (!(open = rlm_arena_alloc(r->past->arena, sizeof *open)) ||
                  rlm_map_set(&r->asks, ask_key(ask, &key), open) < 0)) {
        return rlm_error_nomem(err);
    }
    rlm_str agent = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR(""));
    open->agent_id = rlm_arena_copy(r->past->arena, agent);
    open->ask = ask;
    if (!open->agent_id.ptr) {
        return rlm_error_nomem(err);
    }
    int result = rlm_record_get_amount(record, "input_tokens", &open->held.input_tokens, err);
    if (result < 0 ||
        (result = rlm_record_get_amount(record, "output_tokens", &open->held.output_tokens, err)) <
            0 ||
        (result = rlm_record_get_amount(record, "cost_nano", &open->held.cost_nano, err)) < 0) {
        return result;
    }
    bool turn = rlm_past_number(record, "turn") > 0 && rlm_past_number(record, "turn") < TURNS_MAX;
    return turn && !r->is_undone ? turn_asked(r, record, err) : 0;
}

static int settled(struct rlm_past_reading *r, const rlm_json *record, rlm_error **err)
{
    struct ask_key key;
    rlm_map_remove(&r->asks, ask_key(rlm_past_number(record, "ask"), &key));
    return rlm_json_get(record, "reply") && !r->is_undone ? rlm_past_read_reply(r, record, err) : 0;
}

/* ---- drives ---------------------------------------------------------------------------------- */

static int drive_began(struct rlm_past_reading *r, const rlm_json *record, rlm_error **err)
{
    struct rlm_limits *limits = rlm_vec_push(&r->past->drives);
    if (!limits) {
        return rlm_error_nomem(err);
    }
    *limits = (struct rlm_limits)RLM_LIMITS_INIT;
    rlm_record_get_limits(rlm_json_get(record, "options"), limits);
    r->began_us = r->last_us = rlm_past_number(record, "t");
    r->earlier_ms = rlm_past_number(record, "elapsed_ms");
    r->still_ms = 0;
    return 0;
}

static int input_list(struct rlm_past_reading *r, rlm_str payload, rlm_error **err)
{
    rlm_str *slot = rlm_vec_push(&r->past->input_lists);
    if (!slot) {
        return rlm_error_nomem(err);
    }
    *slot = rlm_arena_copy(r->past->arena, payload);
    return slot->ptr ? 0 : rlm_error_nomem(err);
}

static int blob(struct rlm_past_reading *r, const rlm_json *record, rlm_error **err)
{
    struct rlm_blob facts = {0};
    rlm_str id = rlm_json_text(rlm_json_get(record, "id"), RLM_STR(""));
    if (id.len != RLM_SHA256_HEX) {
        return rlm_error_set(err, RLM_E_CORRUPT, "a blob without an id");
    }
    memcpy(facts.id, id.ptr, id.len);
    facts.type = rlm_str_is(rlm_json_text(rlm_json_get(record, "type"), RLM_STR("")), "text")
                     ? RLM_BLOB_TEXT
                     : RLM_BLOB_BYTES;
    facts.size_bytes = (uint64_t)rlm_past_number(record, "size");
    facts.chars = (uint64_t)rlm_past_number(record, "chars");
    facts.max_char = (uint32_t)rlm_past_number(record, "max_char");
    bool known = rlm_blobs_find(r->blobs, rlm_str_of(facts.id)) != NULL;
    int result = rlm_blobs_register(r->blobs, &facts, err);
    return result == 0 && r->check_blobs && !known
               ? rlm_blobs_check(r->blobs, rlm_str_of(facts.id), err)
               : result;
}

static void edit(struct rlm_past_reading *r, const rlm_json *record)
{
    struct rlm_past *past =
        rlm_map_get(&r->past->agents, rlm_json_text(rlm_json_get(record, "agent"), RLM_STR("")));
    if (rlm_str_is(rlm_json_text(rlm_json_get(record, "edit"), RLM_STR("")), "fork")) {
        rlm_map_deinit(&r->asks); /* they are the other run's */
        r->asks = (struct rlm_map){0};
    } else if (past) {
        rlm_past_edit(past, record);
    }
}

/* ---- records --------------------------------------------------------------------------------- */

static int take(struct rlm_past_reading *r,
                enum rlm_record_kind kind,
                rlm_str payload,
                const rlm_json *record,
                rlm_error **err)
{
    switch (kind) {
    case RLM_RECORD_RUN:
    case RLM_RECORD_RESUMED:
        return drive_began(r, record, err);
    case RLM_RECORD_INPUT_LIST:
        return input_list(r, payload, err);
    case RLM_RECORD_BLOB:
        return blob(r, record, err);
    case RLM_RECORD_RESERVE:
        return reserved(r, record, err);
    case RLM_RECORD_SETTLE:
        return settled(r, record, err);
    case RLM_RECORD_EDIT:
        edit(r, record);
        return 0;
    case RLM_RECORD_RUN_ENDED:
        r->still_ms = rlm_json_int(rlm_json_get(record, "still_ms"), r->still_ms);
        return 0;
    default:
        return r->is_undone ? 0 : rlm_past_read_session(r, kind, record, err);
    }
}

static int
on_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct rlm_past_reading *r = arg;
    const rlm_json *record;
    rlm_arena_reset(r->scratch);
    int result = rlm_json_parse(r->scratch, payload, &record, err);
    if (result == 0) {
        rlm_str id = rlm_json_text(rlm_json_get(record, "agent"), RLM_STR(""));
        r->is_undone = rlm_undone_has(&r->undone, id, offset);
        rlm_past_saw(r, rlm_past_number(record, "t"));
        result = take(r, kind, payload, record, err);
    }
    return result < 0 ? rlm_error_wrap(err, result, "the record at byte %lld", (long long)offset)
                      : 0;
}

/* ---- beside the graph ------------------------------------------------------------------------ */

/* A reply that became a node is settled by it. */
static int find_lost_asks(struct rlm_past_reading *r, rlm_error **err)
{
    for (rlm_graph *g = r->past->root; g; g = rlm_graph_next(r->past->root, g)) {
        for (size_t i = 0; i < g->nodes.len; i++) {
            const struct rlm_node *node = g->nodes.items[i];
            struct ask_key key;
            if (node->type != RLM_USER_QUERY) { /* a task may be put behind a run that has ended */
                rlm_past_saw(r, node->time_us);
            }
            if (node->type == RLM_LLM_OUTPUT) {
                rlm_map_remove(&r->asks, ask_key(node->call_id, &key));
            }
        }
    }
    int64_t ran_ms = (r->last_us - r->began_us) / (SECOND_US / 1000) - r->still_ms;
    r->past->elapsed_ms = r->earlier_ms + (ran_ms > 0 ? ran_ms : 0);
    size_t pos = 0;
    void *value;
    while (rlm_map_next(&r->asks, &pos, NULL, &value)) {
        struct rlm_lost_ask *slot = rlm_vec_push(&r->past->lost_asks);
        if (!slot) {
            return rlm_error_nomem(err);
        }
        *slot = *(struct rlm_lost_ask *)value;
    }
    return 0;
}

static int join_with_graph(struct rlm_past_reading *r, rlm_error **err)
{
    size_t pos = 0;
    rlm_str id;
    void *value;
    while (rlm_map_next(&r->past->agents, &pos, &id, &value)) {
        struct rlm_past *past = value;
        past->graph = rlm_map_get(&r->past->root->agents, id);
        if (!past->graph) {
            return rlm_error_set(err, RLM_E_CORRUPT,
                                 "records of an agent that was never made: %.*s", RLM_FMT(id));
        }
        rlm_past_find_ends(past);
    }
    return find_lost_asks(r, err);
}

/* ---- loading --------------------------------------------------------------------------------- */

int rlm_past_load(const char *path,
                  rlm_blobs *blobs,
                  bool check_blobs,
                  struct rlm_past_run **ret_past,
                  struct rlm_journal_damage *ret_damage,
                  rlm_error **err)
{
    struct rlm_past_run *past;
    if (!RLM_NEW(past)) {
        return rlm_error_nomem(err);
    }
    struct rlm_past_reading r = {
        .past = past, .blobs = blobs, .check_blobs = check_blobs, .scratch = rlm_arena_new(0)};
    past->arena = rlm_arena_new(0);
    int result = r.scratch && past->arena ? 0 : rlm_error_nomem(err);
    if (result == 0) {
        result = rlm_undone_read(path, &r.undone, err);
    }
    if (result == 0) {
        result = rlm_record_load(path, on_record, &r, &past->root, ret_damage, err);
    }
    if (result == 0) {
        result = join_with_graph(&r, err);
    }
    rlm_map_deinit(&r.asks);
    rlm_undone_deinit(&r.undone);
    rlm_arena_free(r.scratch);
    if (result < 0) {
        rlm_past_free(past);
        return result;
    }
    *ret_past = past;
    return 0;
}
