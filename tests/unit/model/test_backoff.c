#include "model/backoff.h"

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
            rlm_backoff_failed(&b, now_ms, now_ms, -1);
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
    rlm_backoff_failed(&b, 1000, 900, 30000);
    CHECK_INT(rlm_backoff_wait_ms(&b, 1000), 30000);
    CHECK_INT(rlm_backoff_wait_ms(&b, 21000), 10000);
    CHECK_INT(rlm_backoff_wait_ms(&b, 31000), 0);
    rlm_backoff_failed(&b, 40000, 39000, INT64_MAX);
    CHECK_INT(rlm_backoff_wait_ms(&b, 40000), RLM_RETRY_AFTER_MAX_MS);
}

TEST(a_burst_is_one_event)
{
    struct rlm_backoff b;
    rlm_backoff_init(&b, 3);
    rlm_backoff_failed(&b, 1000, 500, -1);
    uint64_t until_ms = b.not_before_ms;
    for (uint64_t i = 0; i < 63; i++) {
        rlm_backoff_failed(&b, 1001 + i, 600 + i, -1);
    }
    CHECK_INT(b.failures, 1);
    CHECK_INT(b.not_before_ms, until_ms);
    /* One that started after the pause began is a new event. */
    rlm_backoff_failed(&b, 2000, 1900, -1);
    CHECK_INT(b.failures, 2);
}

TEST(a_burst_can_ask_for_longer_by_name)
{
    struct rlm_backoff b;
    rlm_backoff_init(&b, 3);
    rlm_backoff_failed(&b, 1000, 500, -1);
    rlm_backoff_failed(&b, 1010, 500, 20000);
    CHECK_INT(rlm_backoff_wait_ms(&b, 1010), 20000);
    CHECK_INT(b.failures, 1);
}

TEST(a_success_ends_the_row_but_not_the_pause)
{
    struct rlm_backoff b;
    rlm_backoff_init(&b, 3);
    rlm_backoff_failed(&b, 1000, 900, 5000);
    rlm_backoff_succeeded(&b);
    CHECK_INT(rlm_backoff_wait_ms(&b, 2000), 4000);
    CHECK_INT(b.failures, 0);
    /* An old failure that arrives now is still of that event. */
    rlm_backoff_failed(&b, 3000, 950, -1);
    CHECK_INT(b.failures, 0);
}
