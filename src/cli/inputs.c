#include "cli/inputs.h"

#include "cli/text.h"
#include "cli/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { QUERY_MAX_BYTES = 64 << 20 };

static int read_query(const char *path, struct rlm_str *ret_text)
{
    const char *shown = strcmp(path, "-") == 0 ? "stdin" : path;
    int problem = text_read_file(path, QUERY_MAX_BYTES, ret_text);
    if (problem == EFBIG) {
        char size[32];
        units_format_size(QUERY_MAX_BYTES, size, sizeof size);
        text_complain("the query: %s has more than %s; give such data as an input", shown, size);
    } else if (problem) {
        text_complain("the query: reading %s: %s", shown, strerror(problem));
    }
    return problem == EFBIG ? EXIT_USAGE : problem ? text_exit_code_of_errno(problem) : 0;
}

int inputs_query(const char *argument, struct rlm_str *ret_query)
{
    int r = 0;
    if (strcmp(argument, "-") == 0) {
        r = read_query("-", ret_query);
    } else if (argument[0] == '@' && argument[1] != '@') {
        r = read_query(argument + 1, ret_query);
    } else {
        argument += argument[0] == '@';
        *ret_query = (struct rlm_str){text_copy(argument), strlen(argument)};
    }
    if (r != 0) {
        return r;
    }
    long long bad = text_bad_offset(*ret_query);
    if (bad >= 0) {
        text_complain("the query is not UTF-8 (at byte %lld); give such data as an input", bad);
        return EXIT_USAGE;
    }
    if (ret_query->len == 0) {
        text_complain("the query is empty; say what the agent shall do");
        return EXIT_USAGE;
    }
    return 0;
}

/* @PATH[,encoding=NAME] */
static int from_path(const char *name, const char *path, struct rlm_input *in)
{
    static const char suffix[] = ",encoding=";
    struct stat st;
    char *copy = text_copy(path);
    char *encoding = NULL;
    for (char *next = copy; (next = strstr(next, suffix)) != NULL; next++) {
        encoding = next;
    }
    if (encoding) {
        *encoding = '\0';
        in->encoding = encoding + sizeof suffix - 1;
    }
    in->path = copy;
    if (stat(copy, &st) < 0) {
        text_complain("--input %s: %s: %m (a text that begins with @ is written NAME=@@TEXT)", name,
                      copy);
        return text_exit_code_of_errno(errno);
    }
    in->kind = S_ISDIR(st.st_mode) ? RLM_INPUT_DIRECTORY : RLM_INPUT_FILE;
    if (S_ISDIR(st.st_mode) && encoding) {
        text_complain("--input %s: a directory takes no encoding", name);
        return EXIT_USAGE;
    }
    return 0;
}

static int read_input(const char *text, struct rlm_input *in)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text) {
        text_complain("--input \"%s\" must be NAME=VALUE, NAME=@FILE or NAME=@DIR", text);
        return EXIT_USAGE;
    }
    char *name = text_format("%.*s", (int)(equals - text), text);
    const char *value = equals + 1;
    in->name = name;
    if (value[0] == '@' && value[1] != '@') {
        return from_path(name, value + 1, in);
    }
    value += value[0] == '@';
    in->value = (struct rlm_str){value, strlen(value)};
    in->kind = text_bad_offset(in->value) >= 0 ? RLM_INPUT_BYTES : RLM_INPUT_TEXT;
    return 0;
}

int inputs_all(const struct options *o, struct rlm_input **ret_inputs, size_t *ret_n)
{
    char **values = o->settings[OPT_INPUT].values;
    size_t n = 0;
    while (values && values[n]) {
        n++;
    }
    *ret_inputs = text_allocate((n + 1) * sizeof **ret_inputs);
    *ret_n = n;
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        r = read_input(values[i], &(*ret_inputs)[i]);
    }
    return r;
}

void inputs_free(struct rlm_input *inputs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free((char *)(uintptr_t)inputs[i].name);
        free((char *)(uintptr_t)inputs[i].path);
    }
    free(inputs);
}
