/* Prices: what a million tokens cost, by the name of the model.
 *
 * The table is a snapshot and providers change theirs; a price given in the options wins over it.
 * Nothing is guessed: a name that is not in the table has no price, and a run with `max_cost`
 * refuses such a model.
 */
#pragma once

#include "base/str.h"

/* Looks the name up: equal to an entry, or an entry followed by a date ("-2024-08-06", "@20250514",
 * "-0613") or "-latest". A "vendor/" in front, as routers write it, is skipped. False when there is
 * none. */
bool rlm_price_find(const char *name, struct rlm_price *ret_price);
/* True when input and output are known. */
bool rlm_price_known(const struct rlm_price *price);
/* Cost in nano-dollars, rounded up; 0 when unknown. An unknown cached or cache-write rate counts as
 * the input rate. With `worst` every input token costs the dearest input rate, otherwise cached ones
 * cost the cached rate and `cache_write_tokens` of the input the write rate. Saturates, never
 * negative. */
int64_t rlm_price_cost(const struct rlm_price *price,
                       const struct rlm_usage *usage,
                       int64_t cache_write_tokens,
                       bool worst);
