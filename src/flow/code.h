/* Finds the code in a model's reply. Pure.
 *
 * Fences are parsed as CommonMark does (backticks and tildes, any case, CRLF, up to three spaces of
 * indent, an unclosed last fence), with these rules beyond it: inside a block a fence line with an
 * info string opens a nested one and a bare fence closes the innermost; a fence glued to the end of a
 * code line closes the block when no fence on a line of its own does; a blank block counts as no
 * code; reasoning (<think>...</think> and the like, also unclosed) is never executed. The first block
 * tagged repl, python, py or not at all runs.
 */
#pragma once

#include "base/buf.h"

enum rlm_code_outcome {
    RLM_CODE_FOUND = 0,
    RLM_CODE_NONE = 1, /* the note tells the model why nothing ran and what to write */
};

/* Appends the code to `ret_code` as it shall run and, for the model, a note to `ret_note`: why there is
 * no code, or that more blocks were ignored (empty when there is nothing to say). Negative only when a
 * buffer failed. */
int rlm_code_extract(rlm_str reply, struct rlm_buf *ret_code, struct rlm_buf *ret_note);
