#include "model/backoff.h"

#include "base/error.h"

void rlm_backoff_init(struct rlm_backoff *b, uint64_t seed)
{
    *b = (struct rlm_backoff){.random_state = seed ? seed : 1};
}

/* xorshift64*: the jitter must differ between processes, not resist anybody. */
static uint64_t next_random(struct rlm_backoff *b)
{
    uint64_t x = b->random_state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    b->random_state = x;
    return x * UINT64_C(2685821657736338717);
}

static uint64_t exponential_ms(struct rlm_backoff *b, int failures)
{
    uint64_t ceiling_ms = RLM_BACKOFF_MAX_MS;
    if (failures < 16) {
        uint64_t grown_ms = (uint64_t)RLM_BACKOFF_FIRST_MS << (failures - 1);
        ceiling_ms = grown_ms < ceiling_ms ? grown_ms : ceiling_ms;
    }
    return next_random(b) % (ceiling_ms + 1);
}

bool rlm_backoff_is_shared(int code, int http_status, int64_t retry_after_ms)
{
    return code == RLM_E_RATE_LIMIT || http_status >= 500 || retry_after_ms > 0 ||
           (code == RLM_E_UNREACHABLE && http_status == 0);
}

void rlm_backoff_failed(struct rlm_backoff *b,
                        uint64_t now_ms,
                        uint64_t started_ms,
                        int64_t retry_after_ms,
                        int attempt)
{
    bool same_event = b->not_before_ms && started_ms <= b->pause_began_ms;
    uint64_t until_ms = 0;
    if (retry_after_ms > 0) {
        uint64_t asked_ms = (uint64_t)retry_after_ms;
        until_ms = now_ms + (asked_ms < RLM_RETRY_AFTER_MAX_MS ? asked_ms : RLM_RETRY_AFTER_MAX_MS);
    }
    if (same_event) {
        b->not_before_ms = until_ms > b->not_before_ms ? until_ms : b->not_before_ms;
        return;
    }
    b->failures++;
    if (!until_ms) {
        int most = attempt + RLM_BACKOFF_AHEAD;
        until_ms = now_ms + exponential_ms(b, b->failures < most ? b->failures : most);
    }
    b->pause_began_ms = now_ms;
    b->not_before_ms = until_ms > b->not_before_ms ? until_ms : b->not_before_ms;
}

uint64_t rlm_backoff_own_ms(struct rlm_backoff *b, int attempt)
{
    return exponential_ms(b, attempt);
}

void rlm_backoff_succeeded(struct rlm_backoff *b)
{
    b->failures = 0;
}

uint64_t rlm_backoff_wait_ms(const struct rlm_backoff *b, uint64_t now_ms)
{
    return b->not_before_ms > now_ms ? b->not_before_ms - now_ms : 0;
}
