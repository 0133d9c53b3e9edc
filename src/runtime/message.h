/* What calls, results and ends of cells look like in JSON (docs/protocol.md), whoever says them: a worker
 * or the embedding program.
 *
 * What is read is checked for its form, and what is not allowed to come from a session (a `$failure`,
 * what nobody knows) is refused, so that no other session gets to see it. What ids and blobs mean,
 * the caller knows.
 */
#pragma once

#include "runtime/runtime.h"

/* Reads a call but for the values in it. RLM_E_PROTOCOL. */
int rlm_message_read_call(const rlm_json *v, struct rlm_host_call *ret_call, rlm_error **err);

/* Looks at a reference to a value, the only member of its object, "$blob" or "$stream"; may change it. */
typedef int (*rlm_message_reference)(void *arg, const struct rlm_json_member *m, rlm_error **err);
/* Checks the values of a call. RLM_E_PROTOCOL. */
int rlm_message_check_values(const struct rlm_host_call *call,
                             rlm_message_reference reference,
                             void *arg,
                             rlm_error **err);
/* Calls `reference` for each `$blob` in a value. Most values have none, which is seen without parsing. */
int rlm_message_each_blob(rlm_str value_json,
                          rlm_message_reference reference,
                          void *arg,
                          rlm_error **err);

/* Reads how a cell ended; texts are in `arena` or the message. RLM_E_NOMEM. */
int rlm_message_read_finished(const rlm_json *message,
                              rlm_arena *arena,
                              struct rlm_cell_finished *ret_how,
                              rlm_error **err);
void rlm_message_put_finished(struct rlm_json_writer *w, const struct rlm_cell_finished *how);

void rlm_message_put_result(struct rlm_json_writer *w, const struct rlm_call_result *result);
