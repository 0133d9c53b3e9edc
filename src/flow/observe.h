/* What the model is shown of a cell: its output, clipped in the middle, and always the error. Pure. */
#pragma once

#include "base/buf.h"
#include "base/json.h"

struct rlm_observation {
    rlm_str output;         /* what was printed, as far as it was kept */
    uint64_t omitted_chars; /* already missing in its middle */
    rlm_str error;          /* traceback or reason; empty: none */
    const rlm_json *notes;  /* an array of texts, or NULL */
    rlm_str note;           /* one more, or empty */
    int max_chars;          /* of output; 0: all */
};

/* Appends the text; "(no output)" when there is nothing to show. */
int rlm_observe(const struct rlm_observation *o, struct rlm_buf *out);
/* Whether two outputs are the same but for addresses of objects. */
bool rlm_output_is_same(rlm_str a, rlm_str b);
