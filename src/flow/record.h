/* The records that flow writes into the journal; their members stand in record.c. Of a run in memory
 * nothing is written. Each function returns 0 or has failed the run.
 */
#pragma once

#include "flow/gate.h"
#include "flow/run.h"

/* `restored`: the numbers of the cells that are about to run again in it. */
int rlm_record_session(struct rlm_agent *agent,
                       const char *seed,
                       rlm_str ready_json,
                       const int64_t *restored,
                       size_t n_restored);
int rlm_record_session_ended(struct rlm_agent *agent, const char *reason, rlm_str message);
/* `recovered`: the value of RECOVERED that the cell gets (JSON), or empty. */
int rlm_record_cell(struct rlm_agent *agent, const struct rlm_node *action, rlm_str recovered);
/* What restore and replay match a call by: SHA-256 of the canonical JSON of [name, args, kwargs],
 * blobs by their hash; of one that is too large for a record, that of its name. */
int rlm_host_call_key(const struct rlm_host_call *call, char ret_key[RLM_SHA256_HEX + 1]);
/* `again`: the id it had before, or 0. RLM_E_LIMIT: the arguments are too large; the call was recorded
 * without them, the run goes on. */
int rlm_record_call(struct rlm_agent *agent, const struct rlm_host_call *call, int64_t again);
/* With `agent->answer` set, that of `done`: the answer stands from here on. */
int rlm_record_answer(struct rlm_agent *agent, int64_t cell, const struct rlm_call_result *result);
int rlm_record_delivery(struct rlm_agent *agent);
int rlm_record_reserve(const struct rlm_ask_options *of,
                       int64_t ask,
                       uint64_t messages_hash,
                       const struct rlm_reservation *held);
/* `reply` is that of an llm_query, else NULL; `shrunk`: the budget allowed it less than usual. */
int rlm_record_settle(const struct rlm_ask_options *of,
                      int64_t ask,
                      const struct rlm_usage *usage,
                      const struct rlm_chat_reply *reply,
                      bool shrunk);
int rlm_record_blob(rlm_run *run, const struct rlm_blob *blob);
/* The facts of all blobs that the value names. */
int rlm_record_blobs_of(rlm_run *run, const rlm_json *value);
/* The run goes on with these limits and models. */
int rlm_record_resumed(rlm_run *run);
int rlm_record_end(rlm_run *run);
/* Takes the limits out of such options; those that they do not name stay. */
void rlm_record_get_limits(const rlm_json *options, struct rlm_limits *limits);
/* The options of the RUN record: limits, models by name and address, runtime. NULL: no memory. */
char *rlm_record_options(const rlm_run *run);
/* The question (`answer` NULL) or the answer, with what was `shown` if no record has it. 0, or
 * the run has failed. */
int rlm_record_gate(const struct rlm_gate_subject *subject,
                    int64_t asked_us,
                    bool shown,
                    const struct rlm_gate_answer *answer);
