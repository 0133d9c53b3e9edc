/* The ledger: one account of tokens, cost and calls for the whole tree. Pure.
 *
 * Before a model call its worst case is reserved, after it the true usage is settled. What is settled
 * and reserved together never passes a cap, so no number of concurrent calls can.
 *
 * A call that does not fit what is settled gets a smaller output bound (not below
 * RLM_LEDGER_LEAST_OUTPUT) or is refused; a call that fits what is settled but not what others hold
 * waits until they settle.
 */
#pragma once

#include "base/str.h"

#include <stdint.h>

enum { RLM_LEDGER_LEAST_OUTPUT = 256 };

struct rlm_ledger {
    int64_t max_tokens;    /* 0: no cap */
    int64_t max_cost_nano; /* 0: no cap */
    struct rlm_usage settled;
    int64_t reserved_tokens;
    int64_t reserved_cost_nano;
    int64_t open; /* reservations that are not settled */
};

/* What one model costs and how far its usage was from the bound. */
struct rlm_ledger_rates {
    double input_nano;  /* of one input token at the dearest rate */
    double output_nano; /* of one output token */
    double input_ratio; /* the worst true input per bound so far, at least 1 */
};

struct rlm_reservation {
    int64_t input_tokens;
    int64_t output_tokens; /* what the call may produce: its max_output_tokens */
    int64_t cost_nano;
    bool shrunk; /* less output than asked for */
};

enum rlm_reserve_outcome {
    RLM_RESERVED = 0,
    RLM_RESERVE_WAIT = 1,   /* ask again when something has settled */
    RLM_RESERVE_BUDGET = 2, /* refused for good: tokens */
    RLM_RESERVE_COST = 3,   /* refused for good: cost */
};

/* The input bound of messages: UTF-8 bytes + 16 a message + 64; for a prefix that stands unchanged
 * since the last call its reported tokens (`known_tokens`) instead of its bytes. */
int64_t rlm_ledger_input_bound(uint64_t new_bytes, size_t new_messages, int64_t known_tokens);

/* Tries to hold the worst case of a call. */
enum rlm_reserve_outcome rlm_ledger_reserve(struct rlm_ledger *l,
                                            const struct rlm_ledger_rates *rates,
                                            int64_t input_bound,
                                            int64_t output_wanted,
                                            struct rlm_reservation *ret_reservation);
/* Gives back what was held and charges `usage` in full. */
void rlm_ledger_settle(struct rlm_ledger *l,
                       const struct rlm_reservation *held,
                       const struct rlm_usage *usage);

/* What was seen of a call on the wire. */
struct rlm_traffic {
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t pieces;     /* of a stream: a server sends at least one token a piece */
    uint64_t text_bytes; /* of a stream: a token has at least one byte */
};

/* True when a stream must hold more tokens than the call was allowed: too many pieces, or, from a
 * server that puts many tokens into one, more text than tokens can carry (16 bytes each on average,
 * where common text has 4, and 4 KiB on top for runs of blanks and the like). */
bool rlm_ledger_overrun(const struct rlm_reservation *held, const struct rlm_traffic *traffic);

/* The usage to charge for a call: the provider's where it is plausible, else an estimate: the bound
 * of the input, and the bytes received, but not more than the server was allowed unless it has
 * overrun that. Implausible: missing, negative, or more than four times the bytes sent or
 * received. */
struct rlm_usage rlm_ledger_judge(const struct rlm_usage *reported,
                                  bool known,
                                  const struct rlm_reservation *held,
                                  const struct rlm_traffic *traffic);
/* A reservation that came to nothing: given back, nothing is charged. */
void rlm_ledger_release(struct rlm_ledger *l, const struct rlm_reservation *held);
/* Learns from a settled call: true the first time usage passed the bound by more than before. */
bool rlm_ledger_learn(struct rlm_ledger_rates *rates,
                      const struct rlm_reservation *held,
                      const struct rlm_usage *usage);

/* What is left under a cap, counting what is settled only; -1: no cap. Never below 0. */
int64_t rlm_ledger_tokens_left(const struct rlm_ledger *l);
int64_t rlm_ledger_cost_left(const struct rlm_ledger *l);
