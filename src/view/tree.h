/* What the views share about one agent. */
#pragma once

#include "graph/graph.h"
#include "view/plain.h"

enum { RLM_VIEW_MAX_BYTES = 1 << 30 };

/* "asking", "answered", "max_iters", ...; of a graph at rest that has not ended: "unfinished". */
rlm_str rlm_view_state(const rlm_graph *g, const struct rlm_view_options *options);
/* What went wrong in words, by the `error` of a node ("exec"); an unknown kind stands for itself. */
rlm_str rlm_view_error(rlm_str kind);
/* The colour of a state (SGR). */
const char *rlm_view_state_color(rlm_str state);
/* Turns, tokens and cost, each behind two blanks. */
void rlm_view_put_usage(struct rlm_plain *p, int turns, const struct rlm_usage *usage);
