/* JSON numbers compared as what their text says: integers of any size and decimals lose no digit,
 * 1, 1.0 and 10e-1 are equal.
 *
 * Exponents beyond 10^15 count as 10^15. Nothing here allocates. The texts are valid JSON numbers.
 */
#pragma once

#include "base/str.h"

#include <stdint.h>

enum { RLM_NUMBER_MAX_DIVISOR_DIGITS = 18 };

/* Negative, 0 or positive, as memcmp. */
int rlm_number_compare(rlm_str a, rlm_str b);
/* -1, 0 or 1. */
int rlm_number_sign(rlm_str number);
/* No fraction: 3, 3.0, 3e2. */
bool rlm_number_is_integer(rlm_str number);
/* How many digits are left without leading and trailing zeros. */
size_t rlm_number_digits(rlm_str number);
/* `number` is an integer times `divisor`, which is positive and has at most
 * RLM_NUMBER_MAX_DIVISOR_DIGITS digits. Exact: 0.3 is a multiple of 0.1. */
bool rlm_number_is_multiple(rlm_str number, rlm_str divisor);
/* Equal numbers have equal hashes. */
uint64_t rlm_number_hash(rlm_str number);
