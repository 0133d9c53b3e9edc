/* Records: what the journal's payloads say, and how a graph comes back from them.
 *
 * Payloads are JSON objects. A text of 64 KiB or more stands as {"$blob": ID, "size": BYTES,
 * "chars": N, "max_char": N} and its bytes in the run's blobs. Unknown members are ignored on
 * reading; an unknown kind of record of the same format version is skipped.
 *
 * NODE   {"agent", "id", "type", "t", ...the fields of struct rlm_node that are not empty}
 * CHILD  {"parent", "name", "query", "inputs", "model", "output_schema"}
 * RUN    {"format", "version", "t", "graph_id", "query", "inputs", "model", "output_schema",
 *         "options": {...}}
 *
 * The other kinds are written by flow (flow/record.h gives their members).
 */
#pragma once

#include "base/json.h"
#include "graph/graph.h"
#include "graph/journal.h"

/* Puts a text: inline, or as a blob when it is large and `blobs` is not NULL. */
int rlm_record_put_text(struct rlm_json_writer *w, rlm_blobs *blobs, rlm_str text, rlm_error **err);
/* Reads what rlm_record_put_text wrote, into the arena; makes the blob known. With `blobs` NULL a
 * blob is RLM_E_INVAL. */
int rlm_record_get_text(const rlm_json *value, rlm_blobs *blobs, rlm_arena *a, rlm_str *ret_text,
                        rlm_error **err);

/* The payloads of NODE and CHILD. `journal` may be NULL (a run in memory): then nothing happens. */
int rlm_record_node(rlm_journal *journal, const rlm_graph *g, const struct rlm_node *node,
                    rlm_error **err);
int rlm_record_child(rlm_journal *journal, const rlm_graph *child, rlm_error **err);
/* RUN: `options_json` is an object that flow makes (limits, models without keys, runtime). */
int rlm_record_run(rlm_journal *journal, const rlm_graph *root, rlm_str options_json,
                   rlm_error **err);

/* Builds the graph of a run from its records: what `rlm_graph_load` (public) does. `other` (may be
 * NULL) gets the records that are neither RUN, NODE nor CHILD, in order. SETTLE records add to the
 * usage sums (members "agent", "calls", "input_tokens", "cached_tokens", "output_tokens",
 * "cost_nano", "estimated", and "node": true when an llm_output carries the same usage). */
int rlm_record_load(const char *path, rlm_journal_record other, void *arg, rlm_graph **ret_root,
                    struct rlm_journal_damage *ret_damage, rlm_error **err);
