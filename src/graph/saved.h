/* Graphs that the Python project of the same name has saved: a directory with graph.json and, in
 * agents/, a directory for each agent with agent.json and session.jsonl (docs/runs.md). They hold no
 * records, so they can be looked at and exported, and no more.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>

/* Whether a directory is one of these and no run: it has a graph.json and no journal. */
bool rlm_saved_is_in(int dir_fd);
bool rlm_saved_is(const char *path);
/* What cannot be understood is left out, and `*ret_note` says so (NULL: nothing was). RLM_E_PARSE,
 * RLM_E_LIMIT, RLM_E_IO. */
int rlm_saved_load(const char *path, rlm_graph **ret_graph, char **ret_note, rlm_error **err);
