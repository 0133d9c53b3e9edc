/* Finds the code in a model's reply. Pure; linear in the reply's length, however hostile; allocates
 * only its outputs.
 *
 * The first block that is tagged repl, python or py (any case; python3, py3 and ipython too), or
 * not at all, and that is not blank, runs. What counts as a block:
 *
 * - Fences are CommonMark's: backticks and tildes, closed by at least as many, CRLF, an unclosed
 *   last one; here also at any indent and right behind a list marker. Only the first word after an
 *   opening fence is its tag ("```repl and", "```repl:", "```{python}"). The opener's indent, and
 *   then an indent common to all lines, is taken off the code.
 * - In a block that may run the text is read as Python: a fence inside a triple-quoted string is
 *   part of the string, as long as the string ends and its fences look like pairs. Outside strings
 *   three backticks can be nothing but a fence, so one glued to code closes the block too, as does
 *   a fence with a tag of its own (the model forgot to close; that fence opens the next block).
 * - In any other block, and behind a string that does not end, a fence with a tag opens a nested
 *   block, a bare one closes the innermost, and one glued to the end of a line closes the block
 *   when no bare one does.
 * - A fence followed by a space and several words closes; the words are prose.
 * - A first line that only repeats the tag (or is <code>, <tool_call> and the like) is dropped.
 * - A tagged fence behind a colon that ends a line of prose opens a block.
 *
 * A bare fence that no bare fence closes may as well be an end whose start is missing: what follows
 * it must be code by the rule for replies without a fence, below.
 *
 * Reasoning, [THINK] or in any case <think>, <thinking>, <thought>, <reasoning>, <reflection>,
 * <analysis> or <scratchpad>, never runs: up to the matching end, to the end of the reply when
 * there is none, and from the start of the reply when there is only an end (the start stood in the
 * prompt). Such a tag inside a block is code; one right behind a quote or a backtick is only talked
 * about.
 *
 * A reply without any fence runs when it is code alone: every logical line outside strings and
 * brackets begins as a Python statement does (NAME(..., NAME = ..., or a keyword with what belongs
 * to it), nowhere stand two words or numbers side by side as they do in prose, brackets and strings
 * end, and at least one line calls, assigns or imports. One pair of `...` or <code>...</code>
 * around it, and a closing fence that was never opened, do not count.
 *
 * The code is the block's body without its last line ending. All bytes are kept as they are.
 */
#pragma once

#include "base/buf.h"

enum rlm_code_outcome {
    RLM_CODE_FOUND = 0,
    RLM_CODE_NONE = 1, /* the note tells the model why nothing ran and what to write */
};

/* Appends the code to `ret_code` as it shall run and, for the model, a note to `ret_note`: why
 * there is no code, or that more blocks were ignored (empty when there is nothing to say). Negative
 * only when a buffer failed. */
int rlm_code_extract(rlm_str reply, struct rlm_buf *ret_code, struct rlm_buf *ret_note);
