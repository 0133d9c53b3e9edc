/* The models that the settings name. */
#pragma once

#include "cli/options.h"
#include "rlmflow.h"

/* Keys and addresses of the environment; taken out of it before any session opens. */
struct provider_settings {
    char *openai_key, *openai_url;
    char *anthropic_key, *anthropic_url;
};

/* Copies them and wipes what is secret from the environment block of the process. */
void models_take_environment(struct provider_settings *p);

/* Wipes and frees what it holds. */
void models_forget(struct provider_settings *p);

/* "script:FILE" */
bool models_is_scripted(const char *name);

/* Where a model of that name is asked: the address as text for people ("the provider's own" when none
 * is set), the API, and whether there is a key. */
struct model_place {
    enum rlm_api api;
    const char *base_url; /* NULL: the provider's own */
    const char *key;      /* NULL: none */
};

struct model_place
models_place(const struct options *o, const struct provider_settings *p, const char *name);

/* True when the provider's own server would be asked without anything that proves who asks. */
bool models_lacks_key(const struct options *o, const struct model_place *place);

/* Makes a model. 0, or an exit code after a complaint. */
int models_new(rlm_loop *loop,
               const struct options *o,
               const struct provider_settings *p,
               const char *name,
               rlm_model **ret_model);
