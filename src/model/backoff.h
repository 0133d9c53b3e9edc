/* Back-off: after a 429 or a failing server, everybody who uses that server waits.
 *
 * Pure: time comes in as an argument. One object belongs to one server (scheme, host, port) and is
 * shared by all models on it, so one 429 pauses the provider for the whole tree.
 *
 * What says nothing about the server (a stream that stalled, broke or made no sense) pauses the call
 * that had it, and no other.
 */
#pragma once

#include "base/str.h"

#include <stdint.h>

struct rlm_backoff {
    uint64_t not_before_ms;  /* no attempt starts earlier; 0: there never was a pause */
    uint64_t pause_began_ms; /* when the present (or last) pause was set */
    int failures;            /* in a row, over all callers */
    uint64_t random_state;
};

enum {
    RLM_BACKOFF_FIRST_MS = 500,
    RLM_BACKOFF_MAX_MS = 60 * 1000,
    RLM_RETRY_AFTER_MAX_MS = 600 * 1000,
    /* By so many steps the row of all callers may be ahead of a call's own: what others met long ago
     * is a hint, not the measure, for a call that fails for the first time. */
    RLM_BACKOFF_AHEAD = 3,
};

void rlm_backoff_init(struct rlm_backoff *b, uint64_t seed);
/* Whether a failure is one of the server, for everybody to wait: it refuses for its load (429, 5xx, or
 * it asked for a pause), or cannot be reached. `code` is of the error, `http_status` 0: no answer came.
 * A time limit that passed is no such failure: only that call may be slow. */
bool rlm_backoff_is_shared(int code, int http_status, int64_t retry_after_ms);
/* Notes a failed attempt of that kind, the call's `attempt`th in a row (from 1): exponential with full
 * jitter, or what the server asked for (bounded). A failure of an attempt that was started before the
 * present pause began is the same event (a burst of 64 answers of 429 is one): it does not lengthen the
 * pause, unless the server itself asks for longer. `retry_after_ms` <= 0: it asked for nothing. */
void rlm_backoff_failed(struct rlm_backoff *b,
                        uint64_t now_ms,
                        uint64_t started_ms,
                        int64_t retry_after_ms,
                        int attempt);
/* How long a call waits after its `attempt`th failure of the other kind. */
uint64_t rlm_backoff_own_ms(struct rlm_backoff *b, int attempt);
/* Ends the row of failures; a pause that is under way stays. */
void rlm_backoff_succeeded(struct rlm_backoff *b);
/* Milliseconds to wait before an attempt may start; 0: now. */
uint64_t rlm_backoff_wait_ms(const struct rlm_backoff *b, uint64_t now_ms);
