#include "model/backoff.h"

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

static uint64_t exponential_ms(struct rlm_backoff *b)
{
    uint64_t ceiling_ms = RLM_BACKOFF_MAX_MS;
    if (b->failures < 16) {
        uint64_t grown_ms = (uint64_t)RLM_BACKOFF_FIRST_MS << (b->failures - 1);
        ceiling_ms = grown_ms < ceiling_ms ? grown_ms : ceiling_ms;
    }
    return next_random(b) % (ceiling_ms + 1);
}

void rlm_backoff_failed(struct rlm_backoff *b,
                        uint64_t now_ms,
                        uint64_t started_ms,
                        int64_t retry_after_ms)
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
        until_ms = now_ms + exponential_ms(b);
    }
    b->pause_began_ms = now_ms;
    b->not_before_ms = until_ms > b->not_before_ms ? until_ms : b->not_before_ms;
}

void rlm_backoff_succeeded(struct rlm_backoff *b)
{
    b->failures = 0;
}

uint64_t rlm_backoff_wait_ms(const struct rlm_backoff *b, uint64_t now_ms)
{
    return b->not_before_ms > now_ms ? b->not_before_ms - now_ms : 0;
}
