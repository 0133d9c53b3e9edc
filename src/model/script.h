/* Scripts: the file of replies of the scripted model, parsed (docs/scripted-model.md).
 *
 * Pure: text in, entries out; `rlm_script_find` picks the first entry that fits a request.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/regex.h"

#include <stdint.h>

enum rlm_script_fault {
    RLM_FAULT_NONE,
    RLM_FAULT_RATE_LIMIT, /* error=429 */
    RLM_FAULT_SERVER,     /* error=500 */
    RLM_FAULT_AUTH,       /* error=401 */
    RLM_FAULT_CUT,        /* half the body, then the connection is gone */
    RLM_FAULT_STALL,      /* half the body, then silence until the time limit */
    RLM_FAULT_CONTEXT,    /* the prompt is too long */
};

struct rlm_script_entry {
    size_t line;       /* of its @reply */
    const char *agent; /* a glob; NULL: any */
    int first_turn, last_turn;
    rlm_regex *match;                    /* NULL: any */
    int64_t times_left;                  /* -1: unlimited; the user of the entry counts down */
    int64_t delay_ms;                    /* -1: not given */
    int64_t input_tokens, output_tokens; /* -1: counted from the bytes */
    int64_t retry_after_ms;              /* -1: not given */
    int64_t context_tokens;              /* 0: not given */
    const char *finish;                  /* NULL: "stop" */
    enum rlm_script_fault fault;
    rlm_str body;
};

typedef struct rlm_script rlm_script;

enum { RLM_SCRIPT_MAX_BYTES = 64 * 1024 * 1024, RLM_SCRIPT_MAX_ENTRIES = 100000 };

/* Copies what it needs. RLM_E_PARSE names the line; RLM_E_LIMIT, RLM_E_NOMEM. */
int rlm_script_parse(rlm_str text, rlm_script **ret_script, rlm_error **err);
void rlm_script_free(rlm_script *s); /* NULL allowed */
size_t rlm_script_count(const rlm_script *s);
const struct rlm_script_entry *rlm_script_entry(const rlm_script *s, size_t index);

/* The first entry, in the order of the file, that fits and may still be used; counts the use. 0 with
 * the entry, or 1: none fits. RLM_E_LIMIT when a match= needs more steps than allowed. */
int rlm_script_find(rlm_script *s,
                    const char *agent,
                    int turn,
                    rlm_str last_user_message,
                    const struct rlm_script_entry **ret_entry,
                    rlm_error **err);
