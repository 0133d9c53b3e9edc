/* What a replay holds back.
 *
 * A parent that goes on without a sub-agent ends it: with an accepted answer, by giving up the call that
 * launched it, with the end of its cell. In the recording the sub-agent had come to some node by then, and here
 * it may be slower. So such an event of a session waits until the agents that it ends have come to
 * where they were ended (they are parked there), and what the session says after it waits too. */
#include "flow/call.h"
#include "flow/replay.h"

enum held_kind { HELD_CALL, HELD_GIVEN_UP, HELD_END };

struct rlm_held {
    enum held_kind kind;
    rlm_arena *arena; /* of what follows */
    struct rlm_host_call call;
    int64_t *ids;
    size_t n_ids;
    struct rlm_cell_finished how;
};

static void held_free(struct rlm_held *held)
{
    rlm_arena_free(held->arena);
    free(held);
}

void rlm_replay_forget_held(struct rlm_agent *agent)
{
    for (size_t i = 0; i < agent->held.len; i++) {
        held_free(agent->held.items[i]);
    }
    agent->held.len = 0;
}

/* ---- when it may happen ---------------------------------------------------------------------- */

static bool are_parked(const struct rlm_call *launch)
{
    bool parked = true;
    for (size_t i = 0; parked && i < launch->n_parts; i++) {
        const struct rlm_agent *child = launch->parts[i].child;
        parked = !child || rlm_agent_finished(child) ||
                 (child->parked && rlm_replay_below_is_parked(child));
    }
    return parked;
}

static bool may_be_given_up(const struct rlm_agent *agent, const int64_t *ids, size_t n_ids)
{
    bool may = true;
    for (size_t i = 0; may && i < n_ids; i++) {
        const struct rlm_call *call = rlm_call_find(agent, ids[i]);
        may = !call || call->kind != RLM_CALL_LAUNCH || are_parked(call);
    }
    return may;
}

/* With an answer that was accepted all open calls are given up. */
static bool may_be_made(const struct rlm_agent *agent, const struct rlm_past_call *was)
{
    bool ends = was && rlm_str_is(was->name, "done") && !was->error_type.len;
    return !ends || rlm_replay_below_is_parked(agent);
}

static bool may_happen(const struct rlm_agent *agent, const struct rlm_held *held)
{
    switch (held->kind) {
    case HELD_CALL:
        return may_be_made(agent, agent->again ? rlm_past_match(agent->again, &held->call) : NULL);
    case HELD_GIVEN_UP:
        return may_be_given_up(agent, held->ids, held->n_ids);
    case HELD_END:
        break;
    }
    return rlm_replay_below_is_parked(agent);
}

/* ---- keeping and taking ---------------------------------------------------------------------- */

static bool copy_text(rlm_arena *arena, rlm_str *text)
{
    *text = rlm_arena_copy(arena, *text);
    return text->ptr != NULL;
}

/* All of it, since the session lets go of its own when the event returns. */
static int copy_finished(rlm_arena *arena, struct rlm_cell_finished *how, rlm_error **err)
{
    rlm_str type = rlm_str_of(how->error_type ? how->error_type : "");
    const rlm_json **lists[] = {&how->notes, &how->bound, &how->unbound};
    bool ok = copy_text(arena, &how->output) && copy_text(arena, &how->error_message) &&
              copy_text(arena, &how->traceback) && copy_text(arena, &type);
    int r = ok ? 0 : rlm_error_nomem(err);
    how->error_type = how->error_type ? type.ptr : NULL;
    for (size_t i = 0; r == 0 && i < sizeof lists / sizeof *lists; i++) {
        r = *lists[i] ? rlm_json_copy(arena, *lists[i], lists[i], err) : 0;
    }
    return r;
}

static int copy_event(struct rlm_held *held, rlm_error **err)
{
    switch (held->kind) {
    case HELD_CALL:
        return rlm_host_call_copy(held->arena, &held->call, &held->call, err);
    case HELD_GIVEN_UP: {
        const int64_t *ids = held->ids;
        held->ids = rlm_arena_alloc(held->arena, held->n_ids * sizeof *ids);
        if (!held->ids) {
            return rlm_error_nomem(err);
        }
        memcpy(held->ids, ids, held->n_ids * sizeof *ids);
        return 0;
    }
    case HELD_END:
        break;
    }
    return copy_finished(held->arena, &held->how, err);
}

static void happen(struct rlm_agent *agent, const struct rlm_held *held)
{
    switch (held->kind) {
    case HELD_CALL:
        rlm_calls_begin(agent, &held->call, 1);
        break;
    case HELD_GIVEN_UP:
        rlm_calls_give_up(agent, held->ids, held->n_ids);
        break;
    case HELD_END:
        if (rlm_replay_cell_ended(agent)) {
            rlm_agent_end_cell(agent, &held->how);
        }
        break;
    }
}

/* Takes in an event, now or in its turn. */
static void take(struct rlm_agent *agent, const struct rlm_held *event)
{
    if (!agent->held.len && may_happen(agent, event)) {
        happen(agent, event);
        return;
    }
    rlm_error *err = NULL;
    struct rlm_held *held, **slot = NULL;
    int r = RLM_NEW(held) ? 0 : rlm_error_nomem(&err);
    if (r == 0) {
        *held = *event;
        held->arena = rlm_arena_new(0);
        slot = held->arena ? rlm_vec_push(&agent->held) : NULL;
        r = slot ? copy_event(held, &err) : rlm_error_nomem(&err);
    }
    if (slot) {
        *slot = held;
    } else if (held) {
        held_free(held);
    }
    if (r < 0) {
        rlm_run_fail(agent->run, err);
    }
}

bool rlm_replay_take_held(struct rlm_agent *agent)
{
    if (!agent->held.len || rlm_agent_ended_launch(agent)) {
        return false;
    }
    while (agent->held.len && !agent->run->stopping && may_happen(agent, agent->held.items[0])) {
        struct rlm_held *held = agent->held.items[0];
        rlm_vec_remove(&agent->held, 0);
        happen(agent, held);
        held_free(held);
    }
    if (!agent->held.len) {
        rlm_run_schedule(agent);
    }
    return true;
}

/* ---- events ---------------------------------------------------------------------------------- */

void rlm_replay_session_suspended(struct rlm_agent *agent,
                                  const struct rlm_host_call *calls,
                                  size_t n_calls)
{
    for (size_t i = 0; i < n_calls && agent->session && !agent->run->stopping; i++) {
        struct rlm_held event = {.kind = HELD_CALL, .call = calls[i]};
        take(agent, &event);
    }
    if (!n_calls) {
        rlm_calls_begin(agent, NULL, 0);
    }
}

void rlm_replay_session_given_up(struct rlm_agent *agent, const int64_t *ids, size_t n_ids)
{
    struct rlm_held event = {
        .kind = HELD_GIVEN_UP, .ids = (int64_t *)(uintptr_t)ids, .n_ids = n_ids};
    take(agent, &event);
}

void rlm_replay_session_finished(struct rlm_agent *agent, const struct rlm_cell_finished *how)
{
    struct rlm_held event = {.kind = HELD_END, .how = *how};
    take(agent, &event);
}

/* ---- a cell from the record ------------------------------------------------------------------ */

/* The open launch that the recording closes next without having answered it: the code gave it up. */
static struct rlm_call *given_up_next(const struct rlm_agent *agent)
{
    const struct rlm_node *next = rlm_replay_next(agent);
    const struct rlm_past_cell *cell = agent->again;
    for (size_t i = 0; next && next->type == RLM_RESUME_ACTION && i < cell->calls.len; i++) {
        const struct rlm_past_call *was = cell->calls.items[i];
        if (was->first_id == next->call_id) {
            return was->made_as && !was->finished ? rlm_call_find(agent, was->made_as) : NULL;
        }
    }
    return NULL;
}

bool rlm_replay_may_call(struct rlm_agent *agent, const struct rlm_past_call *next)
{
    for (struct rlm_call *call; (call = given_up_next(agent)) && !agent->run->stopping;) {
        if (!are_parked(call)) {
            return false;
        }
        int64_t id = call->id;
        rlm_calls_give_up(agent, &id, 1);
    }
    return !agent->run->stopping && may_be_made(agent, next);
}
