/* Any bytes as a file of settings: what is wrong is said with its line; what is taken is UTF-8 text, and
 * written again as plain strings it is taken the same. */
#include "cli/text.h"
#include "cli/toml.h"
#include "fuzz.h"

#include <string.h>

struct taken {
    FILE *out; /* the settings, one a line, as strings */
    char *table;
    int lines; /* of the text */
    int last_line;
    bool refuses; /* a value of "no" is wrong */
};

static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            fprintf(out, "\\%c", *text);
        } else if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            fprintf(out, "\\u%04x", (unsigned)*text);
        } else {
            fputc(*text, out);
        }
    }
    fputc('"', out);
}

static char *take(void *arg, const char *table, const char *key, const char *value, int line)
{
    struct taken *t = arg;
    REQUIRE(line >= t->last_line && line <= t->lines);
    REQUIRE(text_bad_offset((struct rlm_str){key, strlen(key)}) < 0);
    REQUIRE(text_bad_offset((struct rlm_str){value, strlen(value)}) < 0);
    t->last_line = line;
    if (t->refuses && strcmp(value, "no") == 0) {
        return text_copy("refused");
    }
    if (strcmp(table, t->table) != 0) {
        fputc('[', t->out), put_string(t->out, table), fputs("]\n", t->out);
        free(t->table);
        t->table = text_copy(table);
    }
    put_string(t->out, key), fputs(" = ", t->out), put_string(t->out, value), fputc('\n', t->out);
    return NULL;
}

static int count_lines(struct rlm_str text)
{
    int lines = 1;
    for (size_t i = 0; i < text.len; i++) {
        lines += text.ptr[i] == '\n';
    }
    return lines;
}

/* Returns the settings that were taken; *ret_problem as of toml_parse. */
static char *parse(struct rlm_str text, bool refuses, char **ret_problem)
{
    char *settings;
    size_t len;
    struct taken t = {.out = text_stream(&settings, &len),
                      .table = text_copy(""),
                      .lines = count_lines(text),
                      .refuses = refuses};
    *ret_problem = NULL;
    bool fine = toml_parse("f.toml", text, take, &t, ret_problem);
    REQUIRE(fine == !*ret_problem);
    if (!fine) {
        int line = 0;
        REQUIRE(sscanf(*ret_problem, "f.toml:%d: ", &line) == 1 && line >= 1 && line <= t.lines);
    }
    fclose(t.out);
    free(t.table);
    return settings;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *problem, *again_problem;
    struct rlm_str text = {(const char *)data, size};
    char *settings = parse(text, true, &problem);
    /* What was taken before the fault, too, is a faultless file. */
    char *again = parse((struct rlm_str){settings, strlen(settings)}, false, &again_problem);
    REQUIRE(!again_problem && strcmp(settings, again) == 0);
    free(problem);
    free(settings);
    free(again);
    return 0;
}
