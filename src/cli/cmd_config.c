#include "cli/commands.h"
#include "cli/models.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

/* Never a secret: of those only that they are there. */
static char *shown_value(const struct option *option, const struct setting *s)
{
    char *text = NULL;
    size_t len;
    if (!s->values) {
        return text_copy("-");
    }
    FILE *out = text_stream(&text, &len);
    for (size_t i = 0; s->values[i]; i++) {
        const char *value = option->list ? s->values[i] : s->value;
        bool hidden = option->secret || (option->url && strchr(value, '@'));
        const char *equals = option->secret ? strchr(value, '=') : NULL;
        fprintf(out, "%s", i ? ", " : "");
        if (equals) {
            fprintf(out, "%.*s=****", (int)(equals - value), value);
        } else {
            fputs(hidden ? "****" : value, out);
        }
        if (!option->list) {
            break;
        }
    }
    fclose(out);
    return text;
}

static void put_row(const char *name, const char *value, const char *where)
{
    char *harmless = rlm_view_text((struct rlm_str){value, strlen(value)}, NULL);
    const char *shown = harmless ? harmless : "";
    if (*where) {
        printf("%-20s  %-28s  %s\n", name, shown, where);
    } else { /* no blanks at the end of a line */
        printf("%-20s  %s\n", name, shown);
    }
    free(harmless);
}

static void put_variable(const char *name, const char *value, bool secret)
{
    put_row(name,
            !value                         ? "-"
            : secret || strchr(value, '@') ? "****"
                                           : value,
            value ? "environment" : "");
}

static int run(struct options *o)
{
    struct provider_settings p = {0};
    models_take_environment(&p);
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct option *option = &option_table[i];
        const struct setting *s = &o->settings[i];
        if (option->commands & FOR_CONFIG) {
            char *value = shown_value(option, s);
            put_row(option->name, value, s->values ? s->where : "");
            free(value);
        }
    }
    put_variable("OPENAI_API_KEY", p.openai_key, true);
    put_variable("OPENAI_BASE_URL", p.openai_url, false);
    put_variable("ANTHROPIC_API_KEY", p.anthropic_key, true);
    put_variable("ANTHROPIC_BASE_URL", p.anthropic_url, false);
    if (options_text(o, OPT_MODEL) && !models_is_scripted(options_text(o, OPT_MODEL))) {
        struct model_place place = models_place(o, &p, options_text(o, OPT_MODEL));
        text_say("%s would be asked over the %s API%s", options_text(o, OPT_MODEL),
                 place.api == RLM_API_ANTHROPIC ? "Anthropic" : "OpenAI",
                 place.key ? "" : ", without a key");
    }
    models_forget(&p);
    return 0;
}

const struct command cmd_config = {
    .name = "config",
    .bit = FOR_CONFIG,
    .summary = "Prints each setting's value and where it came from.",
    .usage = "[FLAG]...",
    .description =
        "Flags come before the environment (RLMFLOW_MAX_DEPTH), that before ./rlmflow.toml, else\n"
        "$XDG_CONFIG_HOME/rlmflow/rlmflow.toml (max_depth = 3, at the top or in its table, [limits]).\n"
        "Keys and headers are masked.\n",
    .example = "  RLMFLOW_MAX_DEPTH=3 rlmflow config\n",
    .run = run,
};
