/* Values that go between a session and the host: JSON, in the encoding of the session protocol. */
#pragma once

#include "base/json.h"
#include "graph/blob.h"
#include "rlmflow.h"

/* A JSON string of the text, or a blob when it is large; NULL with the error set. */
char *rlm_value_of_text(rlm_run *run, rlm_str text, rlm_error **err);
/* The Failure that stands for a child or a prompt without an answer; NULL: no memory. */
char *rlm_value_of_failure(const char *reason, rlm_str message, const char *agent_id);
/* Appends the text that a value is: a JSON string, or a blob of text. 0, or RLM_E_INVAL. */
int rlm_value_text(rlm_run *run, const rlm_json *value, struct rlm_buf *out, rlm_error **err);
/* Appends a value as plain JSON, for a schema: tuples and sets as arrays, blobs of text as strings.
 * RLM_E_SCHEMA: it holds what JSON has no form for. */
int rlm_value_put_plain(rlm_run *run,
                        const rlm_json *value,
                        struct rlm_json_writer *w,
                        rlm_error **err);
/* Appends a value as it is encoded, but with what blobs name in their place. RLM_E_SCHEMA for a directory
 * input; when a blob cannot be read the run has failed. */
int rlm_value_put_whole(rlm_run *run,
                        const rlm_json *value,
                        struct rlm_json_writer *w,
                        rlm_error **err);
/* Appends a value for a session, with its large texts as blobs. `encoded`: it is in the encoding already,
 * else it is plain JSON. */
int rlm_value_put_stored(
    rlm_run *run, const rlm_json *value, bool encoded, struct rlm_json_writer *w, rlm_error **err);
/* Calls back for every blob that a value names, until one call returns nonzero, which is returned. */
typedef int (*rlm_blob_callback)(void *arg, const struct rlm_blob *blob);
int rlm_value_blobs(rlm_run *run, const rlm_json *value, rlm_blob_callback found, void *arg);
