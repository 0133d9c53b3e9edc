/* Records: what the journal's payloads say, and how a graph comes back from them.
 *
 * Payloads are JSON objects. Every text comes back byte for byte. It stands as a string, but
 *
 *     {"$blob": ID, "size": BYTES, "chars": N, "max_char": N}    64 KiB and more, in the run's blobs
 *     {"$blob": ID, "size": BYTES, "type": "bytes"}              the same, not WTF-8
 *     {"$hex": DIGITS}                                           what JSON cannot hold: not WTF-8, or a
 *                                                                pair of surrogates kept as two
 *
 * A text that is JSON itself (inputs, output_schema, metadata) stands as that value where writing the
 * value gives the same bytes again, else as a text. Unknown members are ignored on reading; an
 * unknown kind of record of the same format version is skipped.
 *
 * NODE   {"agent", "id", "type", "t", ...the fields of struct rlm_node that are not empty}; an output
 *        that equals the content is `true`; usage has the members of SETTLE
 * CHILD  {"parent", "name", "call", "part", "query", "inputs", "model", "output_schema"}
 * EDIT   {"agent", "edit": "reopen"}    the done_output at the end is gone
 *        {..., "edit": "insert" or "replace", "index", ...the members of NODE}
 *        {..., "edit": "remove", "index"}
 *        {..., "edit": "rewind", "index": nodes that stay, "cut": the offset of the record that brought the
 *        last of these, "children": [ids that go]}    what the agent did behind `cut` is undone
 *        {..., "edit": "remove_child", "child": id}
 *        {..., "edit": "fork", "graph_id", "of"}    from here on it is another run than that of which
 *        it was copied; model calls that were under way are not this one's
 * RUN    {"format", "version", "t", "graph_id", "agent", "query", "inputs", "model",
 *         "output_schema", "options": {...}}
 *
 * The other kinds are written by flow (flow/record.c gives their members).
 */
#pragma once

#include "base/json.h"
#include "graph/graph.h"
#include "graph/journal.h"

/* Puts a text: inline, or as a blob when it is large and `blobs` is not NULL. */
int rlm_record_put_text(struct rlm_json_writer *w, rlm_blobs *blobs, rlm_str text, rlm_error **err);
/* Reads what rlm_record_put_text wrote, into the arena; makes the blob known. An absent value (NULL)
 * is an empty text; one of another type is RLM_E_PARSE; a blob that is gone is RLM_E_NOT_FOUND. With `blobs` NULL a
 * blob is RLM_E_INVAL. */
int rlm_record_get_text(
    const rlm_json *value, rlm_blobs *blobs, rlm_arena *a, rlm_str *ret_text, rlm_error **err);
/* The same for a text that is JSON (see above). */
int rlm_record_get_json(
    const rlm_json *value, rlm_blobs *blobs, rlm_arena *a, rlm_str *ret_json, rlm_error **err);

/* A number of tokens, calls or nano-dollars; absent: 0. RLM_E_CORRUPT for one that is none: sums are made
 * of them, and caps are held against these. */
int rlm_record_get_amount(const rlm_json *object,
                          const char *key,
                          int64_t *ret_amount,
                          rlm_error **err);

/* Puts a text that is JSON: as that value where it comes back byte for byte, else as a text. */
int rlm_record_put_json(struct rlm_json_writer *w, rlm_blobs *blobs, rlm_str json, rlm_error **err);

/* The members of SETTLE that make up a usage. */
void rlm_record_put_usage(struct rlm_json_writer *w, const struct rlm_usage *usage);

/* The members of NODE that say which launch it belongs to, if it belongs to one. */
void rlm_record_put_launch(struct rlm_json_writer *w, const struct rlm_node *node);

/* The payloads of NODE and CHILD. `journal` may be NULL (a run in memory): then nothing happens. */
int rlm_record_node(rlm_journal *journal,
                    const rlm_graph *g,
                    const struct rlm_node *node,
                    rlm_error **err);
int rlm_record_reopen(rlm_journal *journal, const rlm_graph *g, rlm_error **err);
/* EDIT; see edit.h. `node->seq` is the index. */
int rlm_record_edit_node(rlm_journal *journal,
                         const rlm_graph *g,
                         const char *edit,
                         const struct rlm_node *node,
                         rlm_error **err);
int rlm_record_edit_remove(rlm_journal *journal,
                           const rlm_graph *g,
                           const struct rlm_node *node,
                           rlm_error **err);
int rlm_record_edit_rewind(rlm_journal *journal,
                           const rlm_graph *g,
                           size_t index,
                           int64_t cut,
                           rlm_graph *const *children,
                           size_t n_children,
                           rlm_error **err);
int rlm_record_edit_remove_child(rlm_journal *journal, const rlm_graph *child, rlm_error **err);
/* Here `journal` is not NULL; `root` has the id of the run that was copied. */
int rlm_record_edit_fork(rlm_journal *journal,
                         const rlm_graph *root,
                         const char *graph_id,
                         rlm_error **err);
/* SETTLE of the call of a reply whose node goes: it was not lost. */
int rlm_record_forgotten(rlm_journal *journal,
                         const rlm_graph *g,
                         const struct rlm_node *node,
                         rlm_error **err);
int rlm_record_child(rlm_journal *journal, const rlm_graph *child, rlm_error **err);
/* RUN: `options_json` is an object that flow makes (limits, models without keys, runtime). */
int rlm_record_run(rlm_journal *journal,
                   const rlm_graph *root,
                   rlm_str options_json,
                   rlm_error **err);

/* Builds the graph of a run from its records: what `rlm_graph_load` (public) does, but strict: a text
 * whose blob is gone, or a record that makes no sense, is an error. `other` (may be NULL) gets every
 * record but NODE and CHILD, in order; RUN after the root was made. SETTLE records add to the usage
 * sums (members "agent", "calls", "input_tokens", "cached_tokens", "output_tokens", "cost_nano",
 * "estimated"): a call whose reply is an llm_output has none, the node carries its usage. `ret_damage` (may be
 * NULL) is filled on failure too: its offset is that of the record that is wrong, which is where
 * rlm_journal_cut can end the run. RLM_E_PARSE when the run has no RUN record, RLM_E_CORRUPT, RLM_E_VERSION, and those of
 * rlm_journal_read. */
int rlm_record_load(const char *path,
                    rlm_journal_record other,
                    void *arg,
                    rlm_graph **ret_root,
                    struct rlm_journal_damage *ret_damage,
                    rlm_error **err);
