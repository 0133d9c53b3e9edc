#include "model/price.h"

#include <math.h>

/* List prices of the providers in US dollars for a million tokens as they were known in November
 * 2025, standard tier. They can be overridden with the `price` of the model's options, which is what
 * to do when one here is out of date. Models whose price depends on the length of the prompt are left
 * out on purpose: one figure would be wrong for half of their calls. */
static const struct entry {
    const char *name;
    struct rlm_price price; /* input, cached input, cache write, output */
} table[] = {
    {"gpt-5.1", {1.25, 0.125, 1.25, 10}},
    {"gpt-5.1-codex", {1.25, 0.125, 1.25, 10}},
    {"gpt-5.1-codex-mini", {0.25, 0.025, 0.25, 2}},
    {"gpt-5.1-chat", {1.25, 0.125, 1.25, 10}},
    {"gpt-5", {1.25, 0.125, 1.25, 10}},
    {"gpt-5-chat", {1.25, 0.125, 1.25, 10}},
    {"gpt-5-codex", {1.25, 0.125, 1.25, 10}},
    {"gpt-5-mini", {0.25, 0.025, 0.25, 2}},
    {"gpt-5-nano", {0.05, 0.005, 0.05, 0.4}},
    {"gpt-5-pro", {15, 15, 15, 120}},
    {"gpt-4.1", {2, 0.5, 2, 8}},
    {"gpt-4.1-mini", {0.4, 0.1, 0.4, 1.6}},
    {"gpt-4.1-nano", {0.1, 0.025, 0.1, 0.4}},
    {"gpt-4o", {2.5, 1.25, 2.5, 10}},
    {"chatgpt-4o", {5, 5, 5, 15}},
    {"gpt-4o-mini", {0.15, 0.075, 0.15, 0.6}},
    {"gpt-4-turbo", {10, 10, 10, 30}},
    {"gpt-4", {30, 30, 30, 60}},
    {"gpt-3.5-turbo", {0.5, 0.5, 0.5, 1.5}},
    {"o1", {15, 7.5, 15, 60}},
    {"o1-mini", {1.1, 0.55, 1.1, 4.4}},
    {"o1-pro", {150, 150, 150, 600}},
    {"o3", {2, 0.5, 2, 8}},
    {"o3-mini", {1.1, 0.55, 1.1, 4.4}},
    {"o3-pro", {20, 20, 20, 80}},
    {"o4-mini", {1.1, 0.275, 1.1, 4.4}},
    {"claude-opus-4-5", {5, 0.5, 6.25, 25}},
    {"claude-opus-4.5", {5, 0.5, 6.25, 25}},
    {"claude-opus-4-1", {15, 1.5, 18.75, 75}},
    {"claude-opus-4.1", {15, 1.5, 18.75, 75}},
    {"claude-opus-4", {15, 1.5, 18.75, 75}},
    {"claude-opus-4-0", {15, 1.5, 18.75, 75}},
    {"claude-sonnet-4-5", {3, 0.3, 3.75, 15}},
    {"claude-sonnet-4.5", {3, 0.3, 3.75, 15}},
    {"claude-sonnet-4", {3, 0.3, 3.75, 15}},
    {"claude-sonnet-4-0", {3, 0.3, 3.75, 15}},
    {"claude-haiku-4-5", {1, 0.1, 1.25, 5}},
    {"claude-haiku-4.5", {1, 0.1, 1.25, 5}},
    {"claude-3-7-sonnet", {3, 0.3, 3.75, 15}},
    {"claude-3.7-sonnet", {3, 0.3, 3.75, 15}},
    {"claude-3-5-sonnet", {3, 0.3, 3.75, 15}},
    {"claude-3.5-sonnet", {3, 0.3, 3.75, 15}},
    {"claude-3-5-haiku", {0.8, 0.08, 1, 4}},
    {"claude-3.5-haiku", {0.8, 0.08, 1, 4}},
    {"claude-3-opus", {15, 1.5, 18.75, 75}},
    {"claude-3-haiku", {0.25, 0.03, 0.3, 1.25}},
    {"gemini-2.5-flash", {0.3, 0.075, 0.3, 2.5}},
    {"gemini-2.5-flash-lite", {0.1, 0.025, 0.1, 0.4}},
    {"gemini-2.0-flash", {0.1, 0.025, 0.1, 0.4}},
    {"gemini-2.0-flash-lite", {0.075, 0.075, 0.075, 0.3}},
    {"deepseek-chat", {0.28, 0.028, 0.28, 0.42}},
    {"deepseek-reasoner", {0.28, 0.028, 0.28, 0.42}},
    {"mistral-large", {2, 2, 2, 6}},
    {"mistral-medium", {0.4, 0.4, 0.4, 2}},
    {"mistral-small", {0.1, 0.1, 0.1, 0.3}},
    {"codestral", {0.3, 0.3, 0.3, 0.9}},
    {"grok-3", {3, 0.75, 3, 15}},
    {"grok-3-mini", {0.3, 0.075, 0.3, 0.5}},
};

static bool is_version_suffix(const char *rest)
{
    if (*rest == '\0' || strcmp(rest, "-latest") == 0) {
        return true;
    }
    if (*rest != '-' && *rest != '@') {
        return false;
    }
    /* At least four digits: "-5" would make another model of it. */
    if (strspn(rest + 1, "0123456789") < 4) {
        return false;
    }
    return rest[1 + strspn(rest + 1, "0123456789-")] == '\0';
}

bool rlm_price_find(const char *name, struct rlm_price *ret_price)
{
    const char *slash = strrchr(name, '/');
    const char *bare = slash ? slash + 1 : name;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        size_t len = strlen(table[i].name);
        if (strncmp(bare, table[i].name, len) == 0 && is_version_suffix(bare + len)) {
            *ret_price = table[i].price;
            return true;
        }
    }
    return false;
}

bool rlm_price_known(const struct rlm_price *price)
{
    return price->input >= 0 && price->output >= 0;
}

static double tokens(int64_t count)
{
    return count > 0 ? (double)count : 0;
}

int64_t rlm_price_cost(const struct rlm_price *price,
                       const struct rlm_usage *usage,
                       int64_t cache_write_tokens,
                       bool worst)
{
    if (!rlm_price_known(price)) {
        return 0;
    }
    double cached_rate = price->cached_input >= 0 ? price->cached_input : price->input;
    double write_rate = price->cache_write >= 0 ? price->cache_write : price->input;
    double input = tokens(usage->input_tokens);
    double cost;
    if (worst) {
        cost = input * fmax(fmax(price->input, cached_rate), write_rate);
    } else {
        double cached = fmin(tokens(usage->cached_tokens), input);
        double written = fmin(tokens(cache_write_tokens), input - cached);
        cost =
            (input - cached - written) * price->input + cached * cached_rate + written * write_rate;
    }
    cost += tokens(usage->output_tokens) * price->output;
    /* Dollars for a million tokens are thousands of nano-dollars for one; a rate such as 0.15 is not
     * exact in binary, and its error must not round a whole amount up. */
    double nano = ceil(cost * 1000 - 1e-3);
    if (nano >= 9.2e18) {
        return INT64_MAX;
    }
    return nano > 0 ? (int64_t)nano : 0;
}
