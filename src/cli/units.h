/* Values as people write them: 200k, 10m, 1.50; and sizes and times as people read them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All return false when the text is no such value or is too large. Negative values are not. */
bool units_number(const char *text, int64_t *ret_number); /* 1000, 200k, 1.5M */
bool units_time_ms(const char *text,
                   int64_t *ret_ms); /* 90, 90s, 1.5m, 2h, 500ms; no unit: seconds */
bool units_size_bytes(const char *text,
                      int64_t *ret_bytes);                  /* 512, 64k, 1.5g, as Docker has them */
bool units_money_nano(const char *text, int64_t *ret_nano); /* 1.50, $1.50 */
bool units_real(const char *text, double *ret_real); /* 0.7; the point is a point in any locale */

/* "512 bytes", "1.5 KiB", "12.3 MiB" */
void units_format_size(uint64_t bytes, char *out, size_t size);
/* "850 ms", "12 s", "3 min 20 s", "2 h 5 min" */
void units_format_time(int64_t ms, char *out, size_t size);
