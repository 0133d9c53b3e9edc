/* What the models of one loop share: the HTTP client (connections are reused whatever model opened
 * them) and one back-off for each server. Made with the first model of a loop, gone with the last.
 */
#pragma once

#include "base/error.h"
#include "base/loop.h"
#include "model/backoff.h"
#include "model/http.h"

typedef struct rlm_hub rlm_hub;

/* The hub of the loop, one reference more. NULL when out of memory. */
rlm_hub *rlm_hub_ref(rlm_loop *loop);
void rlm_hub_unref(rlm_hub *hub); /* NULL allowed */
/* Owned by the hub; the same object for the same text. NULL when out of memory. */
struct rlm_backoff *rlm_hub_backoff(rlm_hub *hub, const char *server);
/* The client, made at the first call: this is what loads libcurl. */
int rlm_hub_http(rlm_hub *hub, rlm_http **ret_http, rlm_error **err);
