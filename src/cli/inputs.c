#include "cli/inputs.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { QUERY_MAX_BYTES = 64 << 20 };

/* What is no regular file (a pipe of the shell) is read here. */
#define STREAM_MAX_BYTES ((size_t)2 << 30)

static int read_whole(const char *what, const char *path, size_t max, struct rlm_str *ret_text)
{
    int problem = text_read_file(path, max, ret_text);
    if (problem) {
        text_complain("%s: reading %s: %s", what, strcmp(path, "-") == 0 ? "stdin" : path,
                      strerror(problem));
    }
    return problem ? EXIT_USAGE : 0;
}

int inputs_query(const char *argument, struct rlm_str *ret_query)
{
    int r = 0;
    if (strcmp(argument, "-") == 0) {
        r = read_whole("the query", "-", QUERY_MAX_BYTES, ret_query);
    } else if (argument[0] == '@' && argument[1] != '@') {
        r = read_whole("the query", argument + 1, QUERY_MAX_BYTES, ret_query);
    } else {
        argument += argument[0] == '@';
        *ret_query = (struct rlm_str){argument, strlen(argument)};
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
        return EXIT_USAGE;
    }
    if (S_ISDIR(st.st_mode)) {
        in->kind = RLM_INPUT_DIRECTORY;
        if (encoding) {
            text_complain("--input %s: a directory takes no encoding", name);
            return EXIT_USAGE;
        }
        return 0;
    }
    in->kind = RLM_INPUT_FILE;
    if (S_ISREG(st.st_mode)) {
        return 0;
    }
    if (encoding) {
        text_complain("--input %s: an encoding needs a regular file", name);
        return EXIT_USAGE;
    }
    int r = read_whole(name, copy, STREAM_MAX_BYTES, &in->value);
    in->kind = r == 0 && text_bad_offset(in->value) >= 0 ? RLM_INPUT_BYTES : RLM_INPUT_TEXT;
    return r;
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
