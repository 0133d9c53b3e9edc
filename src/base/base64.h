/* Base64 (RFC 4648, section 4, with padding). */
#pragma once

#include "base/buf.h"

void rlm_base64_encode(struct rlm_buf *out, rlm_str bytes);
