/* Queries and inputs as they stand on the command line. */
#pragma once

#include "cli/options.h"
#include "rlmflow.h"

/* QUERY, "-" (stdin) or "@FILE" ("@@x": the text "@x"). 0, or an exit code after a complaint; the text is
 * the caller's to free, also then. */
int inputs_query(const char *argument, struct rlm_str *ret_query);
/* The values of --input, which borrow from the options. To be freed also after a failure. */
int inputs_all(const struct options *o, struct rlm_input **ret_inputs, size_t *ret_n);
void inputs_free(struct rlm_input *inputs, size_t n);
