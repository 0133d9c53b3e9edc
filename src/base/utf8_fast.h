/* The inner loops of utf8.c for processors with SSSE3; elsewhere they do nothing and utf8.c does all.
 *
 * Checking follows Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" (2021):
 * three table look-ups by nibbles of neighbouring bytes find every fault of two bytes, and a
 * comparison finds the third and fourth.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Takes a prefix of whole characters that is strict UTF-8 (no surrogates); 0 when there is none to
 * take, or a fault somewhere: then the caller must look itself. Adds to *chars; *max_lead becomes the
 * highest first byte seen if that is higher. */
size_t rlm_utf8_fast_scan(const uint8_t *p, size_t len, uint64_t *chars, uint8_t *max_lead);

/* Rewrites characters of up to three bytes of valid WTF-8 until one of four comes or fewer than 16
 * bytes are left. May write up to 16 characters past *out; moves both on. */
void rlm_utf8_fast_widen(const uint8_t **p, const uint8_t *end, int width, uint8_t **out);
