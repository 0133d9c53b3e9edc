#include "flow/ledger.h"

#include "harness.h"

static const struct rlm_ledger_rates free_of_cost = {.input_ratio = 1};
static const struct rlm_ledger_rates priced = {
    .input_nano = 1000, .output_nano = 4000, .input_ratio = 1};

TEST(input_bound_is_bytes_and_framing)
{
    CHECK_INT(rlm_ledger_input_bound(1000, 3, 0), 1000 + 48 + 64);
    /* What the provider reported for an unchanged prefix replaces its bytes. */
    CHECK_INT(rlm_ledger_input_bound(100, 1, 250), 100 + 16 + 64 + 250);
}

TEST(without_caps_everything_fits)
{
    struct rlm_ledger l = {0};
    struct rlm_reservation held;
    CHECK_INT(rlm_ledger_reserve(&l, &free_of_cost, 1000000000, 8192, &held), RLM_RESERVED);
    CHECK_INT(held.output_tokens, 8192);
    CHECK(!held.shrunk);
    CHECK_INT(rlm_ledger_tokens_left(&l), -1);
    CHECK_INT(rlm_ledger_cost_left(&l), -1);
}

TEST(output_is_shrunk_to_what_is_left)
{
    struct rlm_ledger l = {.max_tokens = 2000};
    struct rlm_reservation held;
    CHECK_INT(rlm_ledger_reserve(&l, &free_of_cost, 1500, 8192, &held), RLM_RESERVED);
    CHECK_INT(held.output_tokens, 500);
    CHECK(held.shrunk);
}

TEST(less_than_the_least_output_is_refused)
{
    struct rlm_ledger l = {.max_tokens = 2000};
    struct rlm_reservation held;
    CHECK_INT(rlm_ledger_reserve(&l, &free_of_cost, 2000 - 256, 8192, &held), RLM_RESERVED);
    l = (struct rlm_ledger){.max_tokens = 2000};
    CHECK_INT(rlm_ledger_reserve(&l, &free_of_cost, 2000 - 255, 8192, &held), RLM_RESERVE_BUDGET);
    CHECK_INT(l.reserved_tokens, 0);
    CHECK_INT(l.open, 0);
}

TEST(a_small_call_may_ask_for_less_than_the_least)
{
    struct rlm_ledger l = {.max_tokens = 200};
    struct rlm_reservation held;
    CHECK_INT(rlm_ledger_reserve(&l, &free_of_cost, 100, 50, &held), RLM_RESERVED);
    CHECK_INT(held.output_tokens, 50);
}

TEST(what_fits_the_settled_but_not_the_held_waits)
{
    struct rlm_ledger l = {.max_tokens = 1000};
    struct rlm_reservation first, second;
    CHECK_INT(rlm_ledger_reserve(&l, &free_of_cost, 300, 300, &first), RLM_RESERVED);
    CHECK_INT(rlm_ledger_reserve(&l, &free_of_cost, 300, 300, &second), RLM_RESERVE_WAIT);
    struct rlm_usage used = {.calls = 1, .input_tokens = 100, .output_tokens = 10};
    rlm_ledger_settle(&l, &first, &used);
    CHECK_INT(rlm_ledger_tokens_left(&l), 890);
    CHECK_INT(rlm_ledger_reserve(&l, &free_of_cost, 300, 300, &second), RLM_RESERVED);
}

TEST(cost_caps_by_the_dearest_input_rate)
{
    struct rlm_ledger l = {.max_cost_nano = 2000000};
    struct rlm_reservation held;
    CHECK_INT(rlm_ledger_reserve(&l, &priced, 800, 8192, &held), RLM_RESERVED);
    CHECK_INT(held.output_tokens, (2000000 - 800 * 1000) / 4000);
    CHECK(held.cost_nano <= 2000000);
    l = (struct rlm_ledger){.max_cost_nano = 2000000};
    CHECK_INT(rlm_ledger_reserve(&l, &priced, 1999, 8192, &held), RLM_RESERVE_COST);
}

TEST(the_tighter_cap_names_the_refusal)
{
    struct rlm_ledger l = {.max_tokens = 300, .max_cost_nano = 100000000};
    struct rlm_reservation held;
    CHECK_INT(rlm_ledger_reserve(&l, &priced, 200, 8192, &held), RLM_RESERVE_BUDGET);
    l = (struct rlm_ledger){.max_tokens = 100000, .max_cost_nano = 200000};
    CHECK_INT(rlm_ledger_reserve(&l, &priced, 190, 8192, &held), RLM_RESERVE_COST);
}

/* Whatever calls come and go in whatever order, settled and held together stay below the caps as long
 * as the server honours its limits. */
TEST(caps_hold_for_any_interleaving)
{
    unsigned state = 1;
    for (int round = 0; round < 300; round++) {
        struct rlm_ledger l = {.max_tokens = 5000 + round * 37,
                               .max_cost_nano = 9000000 + round * 1000};
        struct rlm_reservation open[64];
        size_t n = 0;
        for (int i = 0; i < 500; i++) {
            state = state * 1103515245u + 12345u;
            unsigned r = state >> 8;
            if (n < 64 && r % 2) {
                n += rlm_ledger_reserve(&l, &priced, 50 + r % 700, 1 + r % 3000, &open[n]) ==
                     RLM_RESERVED;
            } else if (n) {
                size_t k = r % n;
                struct rlm_usage used = {.calls = 1,
                                         .input_tokens = r % (open[k].input_tokens + 1),
                                         .output_tokens = r % (open[k].output_tokens + 1)};
                used.cost_nano = used.input_tokens * 1000 + used.output_tokens * 4000;
                rlm_ledger_settle(&l, &open[k], &used);
                open[k] = open[--n];
            }
            CHECK(l.settled.input_tokens + l.settled.output_tokens + l.reserved_tokens <=
                  l.max_tokens);
            CHECK(l.settled.cost_nano + l.reserved_cost_nano <= l.max_cost_nano);
            CHECK_INT(l.open, n);
        }
    }
}

TEST(plausible_usage_is_believed)
{
    struct rlm_reservation held = {.input_tokens = 1000, .output_tokens = 500};
    struct rlm_traffic traffic = {.sent_bytes = 900, .received_bytes = 400};
    struct rlm_usage said = {.input_tokens = 210, .cached_tokens = 100, .output_tokens = 90};
    struct rlm_usage u = rlm_ledger_judge(&said, true, &held, &traffic);
    CHECK_INT(u.input_tokens, 210);
    CHECK_INT(u.output_tokens, 90);
    CHECK_INT(u.calls, 1);
    CHECK_INT(u.estimated, 0);
}

TEST(missing_negative_or_absurd_usage_is_estimated)
{
    struct rlm_reservation held = {.input_tokens = 1000, .output_tokens = 500};
    struct rlm_traffic traffic = {.sent_bytes = 900, .received_bytes = 400};
    const struct rlm_usage wrong[] = {
        {.input_tokens = -1, .output_tokens = 90},
        {.input_tokens = 210, .output_tokens = -90},
        {.input_tokens = 4 * 900 + 65, .output_tokens = 90},
        {.input_tokens = 210, .output_tokens = 4 * 400 + 65},
        {.input_tokens = 210, .output_tokens = 90, .cached_tokens = -3},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct rlm_usage u = rlm_ledger_judge(&wrong[i], true, &held, &traffic);
        CHECK_INT(u.input_tokens, 1000);
        CHECK_INT(u.output_tokens, 400);
        CHECK_INT(u.estimated, 1);
    }
    struct rlm_usage u = rlm_ledger_judge(NULL, false, &held, &traffic);
    CHECK_INT(u.input_tokens, 1000);
    CHECK_INT(u.estimated, 1);
}

TEST(an_estimate_stays_within_what_was_allowed_unless_more_came)
{
    struct rlm_reservation held = {.input_tokens = 1000, .output_tokens = 500};
    struct rlm_traffic traffic = {.sent_bytes = 900, .received_bytes = 4000};
    CHECK_INT(rlm_ledger_judge(NULL, false, &held, &traffic).output_tokens, 500);
    traffic.pieces = 700;
    CHECK_INT(rlm_ledger_judge(NULL, false, &held, &traffic).output_tokens, 700);
}

TEST(a_stream_overruns_by_pieces_or_by_more_text_than_tokens_carry)
{
    struct rlm_reservation held = {.input_tokens = 1000, .output_tokens = 500};
    struct rlm_traffic traffic = {.pieces = 500, .received_bytes = 50000};
    CHECK(!rlm_ledger_overrun(&held, &traffic));
    traffic.pieces = 501;
    CHECK(rlm_ledger_overrun(&held, &traffic));
    traffic.pieces = 3;
    traffic.text_bytes = 16 * 500 + 4096;
    CHECK(!rlm_ledger_overrun(&held, &traffic));
    CHECK_INT(rlm_ledger_judge(NULL, false, &held, &traffic).output_tokens, 500);
    traffic.text_bytes++;
    CHECK(rlm_ledger_overrun(&held, &traffic));
    /* A token has a byte at least, so this is what may be billed. */
    CHECK_INT(rlm_ledger_judge(NULL, false, &held, &traffic).output_tokens, 16 * 500 + 4097);
}

TEST(usage_above_the_bound_raises_the_ratio_once)
{
    struct rlm_ledger_rates rates = {.input_ratio = 1};
    struct rlm_reservation held = {.input_tokens = 100};
    struct rlm_usage used = {.input_tokens = 150};
    CHECK(rlm_ledger_learn(&rates, &held, &used));
    CHECK(rates.input_ratio == 1.5);
    held.input_tokens = 150; /* the same call, now reserved by the ratio */
    CHECK(!rlm_ledger_learn(&rates, &held, &used));
    struct rlm_ledger l = {.max_tokens = 100000};
    CHECK_INT(rlm_ledger_reserve(&l, &rates, 1000, 10, &held), RLM_RESERVED);
    CHECK_INT(held.input_tokens, 1500);
}
