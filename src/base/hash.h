/* Hashes: SHA-256 for names of contents (OpenSSL), CRC-32C for records (hardware where there). */
#pragma once

#include "base/str.h"

#include <stdint.h>

enum { RLM_SHA256_SIZE = 32, RLM_SHA256_HEX = 64 };

typedef struct rlm_sha256 rlm_sha256;

rlm_sha256 *rlm_sha256_new(void); /* NULL when out of memory */
void rlm_sha256_add(rlm_sha256 *h, const void *ptr, size_t len);
/* Writes 64 hexadecimal digits and a NUL. The object must not be added to after it. */
void rlm_sha256_hex(rlm_sha256 *h, char ret_hex[RLM_SHA256_HEX + 1]);
void rlm_sha256_free(rlm_sha256 *h);

/* One call for a whole text. Returns 0 or RLM_E_NOMEM. */
int rlm_sha256_of(rlm_str s, char ret_hex[RLM_SHA256_HEX + 1]);

/* CRC-32C (Castagnoli, as in RFC 3720), going on from `crc` (0 at the start). */
uint32_t rlm_crc32c(uint32_t crc, const void *ptr, size_t len);
/* The same by tables: what runs where the processor has no instruction for it. Public for tests. */
uint32_t rlm_crc32c_portable(uint32_t crc, const void *ptr, size_t len);
