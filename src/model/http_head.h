/* The lines of an answer's head, for http_call.c. Pure. */
#pragma once

#include "model/http.h"

#include <time.h>

/* Takes one line (its end may be there). A status line starts anew: interim answers and those of
 * proxies have heads of their own, and only the last one counts. `getdate` reads the dates of HTTP
 * ((time_t)-1: none). */
void rlm_http_head_line(struct rlm_http_answer *answer,
                        struct rlm_str line,
                        time_t (*getdate)(const char *text, const time_t *unused));
