#include "flow/ledger.h"

#include "graph/graph.h"

#include <math.h>

int64_t rlm_ledger_input_bound(uint64_t new_bytes, size_t new_messages, int64_t known_tokens)
{
    return (int64_t)new_bytes + 16 * (int64_t)new_messages + 64 + known_tokens;
}

static int64_t cost_of(const struct rlm_ledger_rates *rates, int64_t input, int64_t output)
{
    return (int64_t)ceil(rates->input_nano * (double)input) +
           (int64_t)ceil(rates->output_nano * (double)output);
}

/* The most output that fits `room_tokens` and `room_cost` beside the input; -1: no cap. */
static int64_t output_that_fits(const struct rlm_ledger_rates *rates,
                                int64_t input,
                                int64_t wanted,
                                int64_t room_tokens,
                                int64_t room_cost,
                                bool *ret_by_cost)
{
    int64_t most = wanted;
    *ret_by_cost = false;
    if (room_tokens >= 0 && most > room_tokens - input) {
        most = room_tokens - input;
    }
    if (room_cost >= 0) {
        int64_t left = room_cost - cost_of(rates, input, 0);
        int64_t by_cost = most;
        if (left < 0) {
            by_cost = -1;
        } else if (rates->output_nano > 0 && (double)most > (double)left / rates->output_nano) {
            by_cost = (int64_t)floor((double)left / rates->output_nano);
        }
        if (by_cost < most) {
            most = by_cost;
            *ret_by_cost = true;
        }
    }
    return most;
}

enum rlm_reserve_outcome rlm_ledger_reserve(struct rlm_ledger *l,
                                            const struct rlm_ledger_rates *rates,
                                            int64_t input_bound,
                                            int64_t output_wanted,
                                            struct rlm_reservation *ret_reservation)
{
    double scaled = ceil((double)input_bound * (rates->input_ratio > 1 ? rates->input_ratio : 1));
    int64_t input = scaled > 4e18 ? (int64_t)4e18 : (int64_t)scaled;
    bool by_cost;
    int64_t output = output_that_fits(rates, input, output_wanted, rlm_ledger_tokens_left(l),
                                      rlm_ledger_cost_left(l), &by_cost);
    if (output < output_wanted && output < RLM_LEDGER_LEAST_OUTPUT) {
        return by_cost ? RLM_RESERVE_COST : RLM_RESERVE_BUDGET;
    }
    int64_t cost = cost_of(rates, input, output);
    if ((l->max_tokens && input + output > rlm_ledger_tokens_left(l) - l->reserved_tokens) ||
        (l->max_cost_nano && cost > rlm_ledger_cost_left(l) - l->reserved_cost_nano)) {
        return RLM_RESERVE_WAIT;
    }
    *ret_reservation = (struct rlm_reservation){input, output, cost, output < output_wanted};
    l->reserved_tokens += input + output;
    l->reserved_cost_nano += cost;
    l->open++;
    return RLM_RESERVED;
}

void rlm_ledger_release(struct rlm_ledger *l, const struct rlm_reservation *held)
{
    l->reserved_tokens -= held->input_tokens + held->output_tokens;
    l->reserved_cost_nano -= held->cost_nano;
    l->open--;
}

void rlm_ledger_settle(struct rlm_ledger *l,
                       const struct rlm_reservation *held,
                       const struct rlm_usage *usage)
{
    rlm_ledger_release(l, held);
    rlm_usage_add(&l->settled, usage);
}

static bool plausible(int64_t tokens, uint64_t bytes)
{
    /* A few tokens of framing are billed even for an empty text. */
    return tokens >= 0 && (uint64_t)tokens <= 4 * bytes + 64;
}

bool rlm_ledger_overrun(const struct rlm_reservation *held, const struct rlm_traffic *traffic)
{
    uint64_t allowed = (uint64_t)held->output_tokens;
    return traffic->pieces > allowed || traffic->text_bytes > 16 * allowed + 4096;
}

struct rlm_usage rlm_ledger_judge(const struct rlm_usage *reported,
                                  bool known,
                                  const struct rlm_reservation *held,
                                  const struct rlm_traffic *traffic)
{
    if (known && plausible(reported->input_tokens, traffic->sent_bytes) &&
        reported->cached_tokens >= 0 &&
        plausible(reported->output_tokens, traffic->received_bytes)) {
        struct rlm_usage usage = *reported;
        usage.calls = 1;
        return usage;
    }
    int64_t output = (int64_t)traffic->received_bytes;
    int64_t most = held->output_tokens;
    if (rlm_ledger_overrun(held, traffic)) {
        uint64_t sent =
            traffic->pieces > traffic->text_bytes ? traffic->pieces : traffic->text_bytes;
        most = most < (int64_t)sent ? (int64_t)sent : most;
    }
    return (struct rlm_usage){
        .calls = 1,
        .input_tokens = held->input_tokens,
        .output_tokens = output < most ? output : most,
        .estimated = 1,
    };
}

bool rlm_ledger_learn(struct rlm_ledger_rates *rates,
                      const struct rlm_reservation *held,
                      const struct rlm_usage *usage)
{
    if (usage->estimated || usage->input_tokens <= held->input_tokens) {
        return false;
    }
    double before = rates->input_ratio > 1 ? rates->input_ratio : 1;
    rates->input_ratio = before * (double)usage->input_tokens / (double)held->input_tokens;
    return true;
}

static int64_t left(int64_t cap, int64_t spent)
{
    if (!cap) {
        return -1;
    }
    return spent < cap ? cap - spent : 0;
}

int64_t rlm_ledger_tokens_left(const struct rlm_ledger *l)
{
    return left(l->max_tokens, l->settled.input_tokens + l->settled.output_tokens);
}

int64_t rlm_ledger_cost_left(const struct rlm_ledger *l)
{
    return left(l->max_cost_nano, l->settled.cost_nano);
}
