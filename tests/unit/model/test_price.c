#include "model/price.h"

#include "harness.h"

static double input_price(const char *name)
{
    struct rlm_price p = {-1, -1, -1, -1};
    return rlm_price_find(name, &p) ? p.input : -1;
}

TEST(names_are_found_with_dates_and_vendors)
{
    CHECK(input_price("gpt-4o") == 2.5);
    CHECK(input_price("gpt-4o-2024-08-06") == 2.5);
    CHECK(input_price("gpt-4o-mini") == 0.15);
    CHECK(input_price("openai/gpt-4o-mini-2024-07-18") == 0.15);
    CHECK(input_price("claude-3-5-haiku-latest") == 0.8);
    CHECK(input_price("claude-sonnet-4-20250514") == 3);
    CHECK(input_price("claude-sonnet-4@20250514") == 3);
    CHECK(input_price("gpt-4-0613") == 30);
}

TEST(other_models_are_not_guessed)
{
    CHECK(input_price("") < 0);
    CHECK(input_price("gpt-4o-audio-preview") < 0);
    CHECK(input_price("claude-opus-4-9") < 0);
    CHECK(input_price("gpt-5.9") < 0);
    CHECK(input_price("gpt") < 0);
    CHECK(input_price("my-gpt-4o") < 0);
    CHECK(input_price("gpt-4o-2024x") < 0);
    CHECK(input_price("qwen2.5-coder") < 0);
}

TEST(costs_are_exact_and_rounded_up)
{
    struct rlm_price p = {3, 0.3, 3.75, 15};
    struct rlm_usage u = {.input_tokens = 1000, .cached_tokens = 400, .output_tokens = 10};
    CHECK_INT(rlm_price_cost(&p, &u, 0, false), 600 * 3000 + 400 * 300 + 10 * 15000);
    CHECK_INT(rlm_price_cost(&p, &u, 100, false), 500 * 3000 + 100 * 3750 + 400 * 300 + 10 * 15000);
    CHECK_INT(rlm_price_cost(&p, &u, 0, true), 1000 * 3750 + 10 * 15000);
    struct rlm_price small = {0.15, 0.075, -1, 0.6};
    struct rlm_usage one = {.input_tokens = 1};
    CHECK_INT(rlm_price_cost(&small, &one, 0, false), 150);
    struct rlm_price odd = {0.0005, -1, -1, 0};
    CHECK_INT(rlm_price_cost(&odd, &one, 0, false), 1);
    CHECK_INT(rlm_price_cost(&odd, &one, 0, true), 1);
}

TEST(unknown_and_absurd_figures_are_harmless)
{
    struct rlm_price unknown = {-1, -1, -1, -1};
    struct rlm_price half = {1, -1, -1, -1};
    struct rlm_usage u = {.input_tokens = 1000, .output_tokens = 10};
    CHECK_INT(rlm_price_cost(&unknown, &u, 0, true), 0);
    CHECK(!rlm_price_known(&half));
    struct rlm_price p = {3, 0.3, 3.75, 15};
    struct rlm_usage negative = {.input_tokens = -5, .cached_tokens = -3, .output_tokens = -9};
    CHECK_INT(rlm_price_cost(&p, &negative, -7, false), 0);
    struct rlm_usage huge = {.input_tokens = INT64_MAX, .output_tokens = INT64_MAX};
    CHECK(rlm_price_cost(&p, &huge, 0, true) == INT64_MAX);
    struct rlm_usage more_cached = {.input_tokens = 10, .cached_tokens = 99};
    CHECK_INT(rlm_price_cost(&p, &more_cached, 99, false), 10 * 300);
}
