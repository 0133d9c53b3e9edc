#include "model/backoff.h"

#include "base/error.h"
#include "harness.h"

TEST(nothing_waits_at_first)
{
    struct rlm_backoff b;
    rlm_backoff_init(&b, 7);
    CHECK_INT(rlm_backoff_wait_ms(&b, 0), 0);
    rlm_backoff_succeeded(&b);
    CHECK_INT(rlm_backoff_wait_ms(&b, 5000), 0);
}

TEST(pauses_grow_up_to_the_maximum)
{
    uint64_t longest[24] = {0};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct rlm_backoff b;
        rlm_backoff_init(&b, seed * 977);
        uint64_t now_ms = 1000000;
        for (int i = 0; i < 24; i++) {
            rlm_backoff_failed(&b, now_ms, now_ms, -1, i + 1);
            uint64_t wait_ms = rlm_backoff_wait_ms(&b, now_ms);
            longest[i] = wait_ms > longest[i] ? wait_ms : longest[i];
            now_ms += wait_ms + 1;
        }
    }
    for (int i = 0; i < 24; i++) {
        uint64_t ceiling_ms = i < 7 ? (uint64_t)500 << i : 60000;
        CHECK(longest[i] <= ceiling_ms);
        CHECK(longest[i] > ceiling_ms * 8 / 10); /* full jitter reaches near to it */
    }
}

TEST(the_server_is_obeyed_within_bounds)
{
    struct rlm_backoff b;
    rlm_backoff_init(&b, 1);
    rlm_backoff_failed(&b, 1000, 900, 30000, 1);
    CHECK_INT(rlm_backoff_wait_ms(&b, 1000), 30000);
    CHECK_INT(rlm_backoff_wait_ms(&b, 21000), 10000);
    CHECK_INT(rlm_backoff_wait_ms(&b, 31000), 0);
    rlm_backoff_failed(&b, 40000, 39000, INT64_MAX, 1);
    CHECK_INT(rlm_backoff_wait_ms(&b, 40000), RLM_RETRY_AFTER_MAX_MS);
}

TEST(a_burst_is_one_event)
{
    struct rlm_backoff b;
    rlm_backoff_init(&b, 3);
    rlm_backoff_failed(&b, 1000, 500, -1, 1);
    uint64_t until_ms = b.not_before_ms;
    for (uint64_t i = 0; i < 63; i++) {
        rlm_backoff_failed(&b, 1001 + i, 600 + i, -1, 1);
    }
    CHECK_INT(b.failures, 1);
    CHECK_INT(b.not_before_ms, until_ms);
    /* One that started after the pause began is a new event. */
    rlm_backoff_failed(&b, 2000, 1900, -1, 1);
    CHECK_INT(b.failures, 2);
}

TEST(a_burst_can_ask_for_longer_by_name)
{
    struct rlm_backoff b;
    rlm_backoff_init(&b, 3);
    rlm_backoff_failed(&b, 1000, 500, -1, 1);
    rlm_backoff_failed(&b, 1010, 500, 20000, 1);
    CHECK_INT(rlm_backoff_wait_ms(&b, 1010), 20000);
    CHECK_INT(b.failures, 1);
}

TEST(a_success_ends_the_row_but_not_the_pause)
{
    struct rlm_backoff b;
    rlm_backoff_init(&b, 3);
    rlm_backoff_failed(&b, 1000, 900, 5000, 1);
    rlm_backoff_succeeded(&b);
    CHECK_INT(rlm_backoff_wait_ms(&b, 2000), 4000);
    CHECK_INT(b.failures, 0);
    /* An old failure that arrives now is still of that event. */
    rlm_backoff_failed(&b, 3000, 950, -1, 1);
    CHECK_INT(b.failures, 0);
}

TEST(a_first_failure_does_not_wait_as_long_as_the_last_of_others)
{
    uint64_t longest_ms = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct rlm_backoff b;
        rlm_backoff_init(&b, seed * 977);
        uint64_t now_ms = 1000000;
        for (int i = 1; i <= 8; i++) {
            rlm_backoff_failed(&b, now_ms, now_ms, -1, i);
            now_ms += rlm_backoff_wait_ms(&b, now_ms) + 1;
        }
        rlm_backoff_failed(&b, now_ms, now_ms, -1, 1);
        uint64_t wait_ms = rlm_backoff_wait_ms(&b, now_ms);
        longest_ms = wait_ms > longest_ms ? wait_ms : longest_ms;
    }
    CHECK(longest_ms > 3000 && longest_ms <= RLM_BACKOFF_FIRST_MS << RLM_BACKOFF_AHEAD);
}

TEST(only_what_the_server_does_to_all_is_shared)
{
    CHECK(rlm_backoff_is_shared(RLM_E_RATE_LIMIT, 429, -1));
    CHECK(rlm_backoff_is_shared(RLM_E_SERVER, 503, -1));
    CHECK(rlm_backoff_is_shared(RLM_E_UNREACHABLE, 0, -1));
    CHECK(rlm_backoff_is_shared(RLM_E_SERVER, 200, 500));
    CHECK(!rlm_backoff_is_shared(RLM_E_TIMEOUT, 200, -1));     /* a stream stalled */
    CHECK(!rlm_backoff_is_shared(RLM_E_TIMEOUT, 0, -1));       /* no answer began in time */
    CHECK(!rlm_backoff_is_shared(RLM_E_UNREACHABLE, 200, -1)); /* a stream was cut */
    CHECK(!rlm_backoff_is_shared(RLM_E_SERVER, 200, -1));      /* an answer made no sense */
}

TEST(a_pause_of_ones_own_grows_and_holds_nobody_else)
{
    uint64_t longest[3] = {0};
    struct rlm_backoff b;
    rlm_backoff_init(&b, 5);
    for (int i = 0; i < 300; i++) {
        static const int attempts[] = {1, 4, 30};
        for (int k = 0; k < 3; k++) {
            uint64_t ms = rlm_backoff_own_ms(&b, attempts[k]);
            longest[k] = ms > longest[k] ? ms : longest[k];
        }
    }
    CHECK(longest[0] > 400 && longest[0] <= 500);
    CHECK(longest[1] > 3200 && longest[1] <= 4000);
    CHECK(longest[2] > 48000 && longest[2] <= 60000);
    CHECK_INT(rlm_backoff_wait_ms(&b, 0), 0);
    CHECK_INT(b.failures, 0);
}
