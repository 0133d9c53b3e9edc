/* What a program keeps with its run: JSON in the options of the RUN and RESUMED records. */
#include "flow/run.h"

int rlm_run_set_program(rlm_run *run, const char *program, rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *object;
    if (!program) {
        return 0;
    }
    int r = arena ? rlm_json_parse(arena, rlm_str_of(program), &object, err) : rlm_error_nomem(err);
    if (r == 0 && object->type != RLM_JSON_OBJECT) {
        r = rlm_error_set(err, RLM_E_INVAL, "it is no JSON object");
    }
    if (r < 0) {
        return rlm_error_wrap(err, r, "what the program keeps with the run");
    }
    run->program = rlm_strdup(program);
    return run->program ? 0 : rlm_error_nomem(err);
}

struct program_reading {
    rlm_arena *arena;
    const rlm_json *program; /* in the arena */
};

static int
find_program(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct program_reading *reading = arg;
    const rlm_json *record;
    (void)offset;
    if (kind != RLM_RECORD_RUN && kind != RLM_RECORD_RESUMED) {
        return 0;
    }
    rlm_str copy = rlm_arena_copy(reading->arena, payload);
    int r = copy.ptr ? rlm_json_parse(reading->arena, copy, &record, err) : rlm_error_nomem(err);
    if (r == 0) {
        const rlm_json *program = rlm_json_get(rlm_json_get(record, "options"), "program");
        reading->program = program ? program : reading->program;
    }
    return r;
}

int rlm_run_read_program(const char *journal,
                         void (*member)(void *arg, rlm_str key, rlm_str value),
                         void *arg,
                         rlm_error **err)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    struct program_reading reading = {.arena = arena};
    if (!arena) {
        return rlm_error_nomem(err);
    }
    int r = rlm_journal_read(journal, find_program, &reading, NULL, err);
    for (uint32_t i = 0; r == 0 && reading.program && i < reading.program->count; i++) {
        const struct rlm_json_member *m = &reading.program->members[i];
        bool list = m->value.type == RLM_JSON_ARRAY;
        for (uint32_t k = 0; k < (list ? m->value.count : 1); k++) {
            const rlm_json *value = list ? rlm_json_at(&m->value, k) : &m->value;
            if (value->type == RLM_JSON_STRING) {
                member(arg, m->key, value->text);
            }
        }
    }
    return r;
}
