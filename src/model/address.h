/* Addresses: a base URL as users write it, made into the URLs that are asked. Pure. */
#pragma once

#include "base/error.h"
#include "model/dialect.h"

struct rlm_address {
    char *chat_url; /* with credentials, if the base URL has some */
    char *models_url;
    char *shown;    /* the base URL without credentials and query: for people, logs and journals */
    char *server;   /* scheme://host:port: what shares a back-off */
    char *password; /* of the base URL, or NULL: never shown */
    bool loopback;  /* this machine */
    bool openai;    /* api.openai.com */
};

/* `base_url` NULL: the dialect's own. Trailing slashes and the dialect's own path at the end are
 * tolerated, a query is kept behind the path. RLM_E_INVAL says what is wrong, RLM_E_NOMEM. */
int rlm_address_parse(const char *base_url,
                      const struct rlm_dialect *dialect,
                      struct rlm_address *ret_address,
                      rlm_error **err);
void rlm_address_deinit(struct rlm_address *a);
