/* --help of a command, made from the table of options. */
#include "cli/options.h"

#include <string.h>

enum { HELP_COLUMN = 30, WIDTH = 100 };

static void put_wrapped(FILE *to, const char *text, int column)
{
    int at = column;
    while (*text) {
        int len = (int)strcspn(text, " ");
        if (at > column && at + 1 + len > WIDTH) {
            fprintf(to, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', to);
            at++;
        }
        fwrite(text, 1, (size_t)len, to);
        at += len;
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

static void put_option(FILE *to, const struct option *option)
{
    char flag[96], help[512];
    snprintf(flag, sizeof flag, "  %c%c%s--%s%s%s", option->letter ? '-' : ' ',
             option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option->name,
             option->argument ? " " : "", option->argument ? option->argument : "");
    snprintf(help, sizeof help, "%s%s%s%s%s", option->help, option->fallback ? " (" : "",
             option->fallback ? option->fallback : "", option->fallback ? ")" : "",
             option->list ? "; may be repeated" : "");
    if (strlen(flag) + 2 > HELP_COLUMN) {
        fprintf(to, "%s\n%*s", flag, HELP_COLUMN, "");
    } else {
        fprintf(to, "%-*s", HELP_COLUMN, flag);
    }
    put_wrapped(to, help, HELP_COLUMN);
}

void options_print_help(FILE *to, const struct command *command)
{
    fprintf(to, "rlmflow %s%s%s\n\n", command->name, *command->usage ? " " : "", command->usage);
    put_wrapped(to, command->summary, 0);
    if (command->description) {
        fprintf(to, "\n%s", command->description);
    }
    fprintf(to, "\nExample:\n%s", command->example);
    const char *group = "";
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct option *option = &option_table[i];
        if (option->commands & command->bit) {
            if (strcmp(group, option->group) != 0) {
                group = option->group;
                fprintf(to, "\n%c%s:\n", group[0] - 'a' + 'A', group + 1);
            }
            put_option(to, option);
        }
    }
}
