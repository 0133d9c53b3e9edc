#include "cli/models.h"

#include "cli/text.h"
#include "cli/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *take_url(const char *name)
{
    const char *value = getenv(name);
    if (value && strchr(value, '@')) {
        return options_take_variable(name);
    }
    return value && *value ? text_copy(value) : NULL;
}

void models_take_environment(struct provider_settings *p)
{
    p->openai_key = options_take_variable("OPENAI_API_KEY");
    p->anthropic_key = options_take_variable("ANTHROPIC_API_KEY");
    p->openai_url = take_url("OPENAI_BASE_URL");
    p->anthropic_url = take_url("ANTHROPIC_BASE_URL");
}

void models_forget(struct provider_settings *p)
{
    text_wipe(p->openai_key);
    text_wipe(p->openai_url);
    text_wipe(p->anthropic_key);
    text_wipe(p->anthropic_url);
    *p = (struct provider_settings){0};
}

bool models_is_scripted(const char *name)
{
    return strncmp(name, "script:", 7) == 0;
}

static enum rlm_api
api_of(const struct options *o, const struct provider_settings *p, const char *name)
{
    const char *api = options_text(o, OPT_API);
    if (api) {
        return strcmp(api, "anthropic") == 0 ? RLM_API_ANTHROPIC : RLM_API_OPENAI;
    }
    bool claude = strncmp(name, "claude", 6) == 0 && !options_text(o, OPT_BASE_URL);
    bool only_anthropic =
        (p->anthropic_key || p->anthropic_url) && !p->openai_key && !p->openai_url;
    return claude || only_anthropic ? RLM_API_ANTHROPIC : RLM_API_OPENAI;
}

struct model_place
models_place(const struct options *o, const struct provider_settings *p, const char *name)
{
    struct model_place place = {.api = api_of(o, p, name),
                                .base_url = options_text(o, OPT_BASE_URL)};
    bool anthropic = place.api == RLM_API_ANTHROPIC;
    if (!place.base_url) {
        place.base_url = anthropic ? p->anthropic_url : p->openai_url;
    }
    place.key = anthropic ? p->anthropic_key : p->openai_key;
    return place;
}

/* "NAME=VALUE" as the "NAME: VALUE" of a request; the caller frees the list, also after a failure. */
static int make_headers(const struct options *o, char ***ret_headers)
{
    char **values = o->settings[OPT_HEADER].values, **headers = NULL;
    *ret_headers = NULL;
    for (size_t i = 0; values && values[i]; i++) {
        const char *equals = strchr(values[i], '=');
        if (!equals || equals == values[i] || strpbrk(values[i], "\r\n")) {
            text_complain("%s: a header is NAME=VALUE on one line", o->settings[OPT_HEADER].where);
            return EXIT_USAGE;
        }
        text_list_add(&headers,
                      text_format("%.*s: %s", (int)(equals - values[i]), values[i], equals + 1));
        *ret_headers = headers;
    }
    return 0;
}

static bool read_price(const char *text, struct rlm_price *price)
{
    char *copy = text_copy(text), *slash = strchr(copy, '/');
    bool fine = slash != NULL;
    if (fine) {
        *slash = '\0';
        fine = units_real(copy, &price->input) && units_real(slash + 1, &price->output);
        price->cached_input = price->cache_write = price->input;
    }
    free(copy);
    return fine;
}

/* Of the prices, the one for this name; one without a name is for --model. */
static int find_price(const struct options *o, const char *name, struct rlm_price *price)
{
    char **values = o->settings[OPT_PRICE].values;
    const char *main_model = options_text(o, OPT_MODEL);
    for (size_t i = 0; values && values[i]; i++) {
        struct rlm_price found;
        const char *equals = strrchr(values[i], '=');
        if (!read_price(equals ? equals + 1 : values[i], &found)) {
            text_complain(
                "%s is \"%s\"; it must be [MODEL=]IN/OUT, dollars for a million tokens such "
                "as 2.5/10",
                o->settings[OPT_PRICE].where, values[i]);
            return EXIT_USAGE;
        }
        size_t len = equals ? (size_t)(equals - values[i]) : 0;
        if (equals ? strlen(name) == len && strncmp(name, values[i], len) == 0
                   : main_model && strcmp(name, main_model) == 0) {
            *price = found;
        }
    }
    return 0;
}

bool models_lacks_key(const struct options *o, const struct model_place *place)
{
    char **headers = o->settings[OPT_HEADER].values;
    for (size_t i = 0; headers && headers[i]; i++) {
        char *name = text_format("%.*s", (int)strcspn(headers[i], "="), headers[i]);
        bool proof =
            strcasestr(name, "auth") || strcasestr(name, "key") || strcasestr(name, "token");
        free(name);
        if (proof) {
            return false;
        }
    }
    return !place->key && !place->base_url;
}

int models_new(rlm_loop *loop,
               const struct options *o,
               const struct provider_settings *p,
               const char *name,
               rlm_model **ret_model)
{
    struct rlm_model_options m = RLM_MODEL_OPTIONS_INIT;
    rlm_error *err = NULL;
    char **headers = NULL;
    if (models_is_scripted(name)) {
        return rlm_model_new_scripted(loop, name + 7, ret_model, &err) < 0 ? text_fail(err) : 0;
    }
    struct model_place place = models_place(o, p, name);
    if (models_lacks_key(o, &place)) {
        bool anthropic = place.api == RLM_API_ANTHROPIC;
        text_complain("no key for %s: set %s, or give --base-url URL of a local server",
                      anthropic ? "api.anthropic.com" : "api.openai.com",
                      anthropic ? "ANTHROPIC_API_KEY" : "OPENAI_API_KEY");
        return EXIT_USAGE;
    }
    m.api = place.api;
    m.name = name;
    m.base_url = place.base_url;
    m.key = place.key;
    if (o->settings[OPT_TEMPERATURE].values) {
        m.temperature = o->settings[OPT_TEMPERATURE].real;
    }
    m.reasoning_effort = options_text(o, OPT_REASONING_EFFORT);
    m.body_json = options_text(o, OPT_BODY);
    m.proxy = options_text(o, OPT_PROXY);
    m.ca_file = options_text(o, OPT_CA_FILE);
    if (m.ca_file && access(m.ca_file, R_OK) < 0) {
        int code = text_exit_code_of_errno(errno);
        text_complain("%s %s: %s", o->settings[OPT_CA_FILE].where, m.ca_file, strerror(errno));
        return code;
    }
    m.connect_timeout_ms = (int)options_number(o, OPT_CONNECT_TIMEOUT);
    m.first_byte_timeout_ms = (int)options_number(o, OPT_FIRST_BYTE_TIMEOUT);
    m.idle_timeout_ms = (int)options_number(o, OPT_IDLE_TIMEOUT);
    int code = make_headers(o, &headers);
    if (code == 0) {
        code = find_price(o, name, &m.price);
    }
    m.headers = (const char *const *)headers;
    if (code == 0 && rlm_model_new(loop, &m, ret_model, &err) < 0) {
        code = text_fail(err);
    }
    text_list_free(headers);
    return code;
}
