/* --help of a command, made from the table of options. */
#include "cli/options.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { HELP_COLUMN = 30, SUMMARY_COLUMN = 11, NARROWEST = 60, WIDEST = 120, USUAL = 80 };

/* Of the terminal; wider lines are hard to read. */
static int columns_of(FILE *to)
{
    struct winsize size = {0};
    int fd = to == stdout ? STDOUT_FILENO
                          : STDERR_FILENO; /* the streams have no descriptor (output.c) */
    bool known = isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col;
    int columns = known ? size.ws_col : USUAL;
    return columns < NARROWEST ? NARROWEST : columns > WIDEST ? WIDEST : columns;
}

/* The first `n` bytes, with ends of lines as blanks. */
static void put_words(FILE *to, const char *text, size_t n, int column)
{
    int at = column, columns = columns_of(to);
    const char *end = text + n;
    while (text < end) {
        int len = (int)strcspn(text, " \n");
        if (text + len > end) {
            len = (int)(end - text);
        }
        if (at > column && at + 1 + len > columns) {
            fprintf(to, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', to);
            at++;
        }
        fwrite(text, 1, (size_t)len, to);
        at += len;
        text += len;
        text += strspn(text, " \n");
    }
    fputc('\n', to);
}

static void put_wrapped(FILE *to, const char *text, int column)
{
    put_words(to, text, strlen(text), column);
}

/* Paragraphs with empty lines between them; the lines of each are filled anew. */
static void put_paragraphs(FILE *to, const char *text)
{
    while (*text) {
        const char *end = strstr(text, "\n\n");
        size_t n = end ? (size_t)(end - text) : strlen(text);
        put_words(to, text, n, 0);
        if (end) {
            fputc('\n', to);
        }
        text += end ? n + 2 : n;
    }
}

static void put_option(FILE *to, const struct option *option)
{
    char flag[96], help[512];
    snprintf(flag, sizeof flag, "  %c%c%s--%s%s%s", option->letter ? '-' : ' ',
             option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option->name,
             option->argument ? " " : "", option->argument ? option->argument : "");
    snprintf(help, sizeof help, "%s%s%s%s%s", option->help, option->fallback ? " (default " : "",
             option->fallback ? option->fallback : "", option->fallback ? ")" : "",
             option->list ? "; may be repeated" : "");
    if (strlen(flag) + 2 > HELP_COLUMN) {
        fprintf(to, "%s\n%*s", flag, HELP_COLUMN, "");
    } else {
        fprintf(to, "%-*s", HELP_COLUMN, flag);
    }
    put_wrapped(to, help, HELP_COLUMN);
}

void options_print_summary(FILE *to, const char *name, const char *summary)
{
    fprintf(to, "  %-*s", SUMMARY_COLUMN - 2, name);
    put_wrapped(to, summary, SUMMARY_COLUMN);
}

void options_print_help(FILE *to, const struct command *command)
{
    fprintf(to, "rlmflow %s%s%s\n\n", command->name, *command->usage ? " " : "", command->usage);
    put_wrapped(to, command->summary, 0);
    if (command->description) {
        fputc('\n', to);
        put_paragraphs(to, command->description);
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
