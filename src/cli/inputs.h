/* Queries and inputs as they stand on the command line. */
#pragma once

#include "cli/options.h"
#include "rlmflow.h"

/* QUERY, "-" (stdin) or "@FILE" ("@@x": the text "@x"). 0, or an exit code after a complaint. */
int inputs_query(const char *argument, struct rlm_str *ret_query);
/* The values of --input. They live as long as the process. */
int inputs_all(const struct options *o, struct rlm_input **ret_inputs, size_t *ret_n);
