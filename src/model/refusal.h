/* Refusals: what an error of a server means, from its status and body. Pure.
 *
 * Servers of the same API word their errors differently; here they become one of the codes of the
 * library, with what the caller can do about it.
 */
#pragma once

#include "base/error.h"
#include "base/json.h"

struct rlm_refusal {
    int code;   /* AUTH, NOT_FOUND, RATE_LIMIT, SERVER, CONTEXT, BUDGET, INVAL */
    int status; /* of HTTP; of an error inside a stream, the one that it stands for, or 0 */
    bool retry;
    int64_t context_tokens; /* of CONTEXT, when it was said; else 0 */
    char *message;          /* the server's words: bounded, one line, strict UTF-8; "" when none */
    /* The words of the server name this field of the request as the one it does not take. */
    bool names_max_tokens, names_max_completion_tokens, names_stream_options, names_temperature;
};

enum { RLM_REFUSAL_MAX_MESSAGE = 8192 /* bytes */ };

/* Reads the body of an answer with a status of 400 and more (any text, JSON or not). */
int rlm_refusal_of_answer(int status, rlm_str body, struct rlm_refusal *ret_refusal);
/* Reads an `error` member (an object or a string) that came in a stream or in a body of 200. */
int rlm_refusal_of_error(const rlm_json *error, struct rlm_refusal *ret_refusal);
/* Both return 0 or RLM_E_NOMEM. */
void rlm_refusal_deinit(struct rlm_refusal *r);

/* Replaces every occurrence of each secret (texts of 4 bytes and more) by "***", in place; also of
 * its beginning from 8 bytes on, for a text that was cut inside of it. */
void rlm_refusal_mask(char *text, const char *const *secrets);
