/* Code without a fence. For code.h alone, which has the rule. */
#pragma once

#include "base/str.h"

/* True when the text is Python and nothing else, as far as its tokens tell; *ret_code is the part
 * of it that shall run, without what models put around it. */
bool rlm_code_plain(rlm_str text, rlm_str *ret_code);
