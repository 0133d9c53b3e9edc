#include "cli/options.h"

#include "cli/text.h"
#include "cli/toml.h"
#include "cli/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- values ---- */

static void wipe(char *text)
{
    explicit_bzero(text, strlen(text));
}

/* What the environment and the caller's argv hold is not ours to free. */
static void clear(struct setting *s)
{
    text_list_free(s->values);
    free(s->where);
    *s = (struct setting){0};
}

static bool is_hidden(const struct option *option, const char *value)
{
    return option->secret || (option->url && strchr(value, '@'));
}

static const char *expected(const struct option *option)
{
    switch (option->kind) {
    case OPTION_NUMBER:
        return "a number such as 20 or 200k";
    case OPTION_TIME:
        return "a time such as 90s, 10m, 1h or 500ms";
    case OPTION_SIZE:
        return "a size such as 512k, 100m or 2g";
    case OPTION_MONEY:
        return "an amount of dollars such as 1.50";
    case OPTION_REAL:
        return "a number such as 0.7";
    case OPTION_CHOICE:
        return option->argument;
    case OPTION_SWITCH:
        return "true or false";
    case OPTION_TEXT:
        break;
    }
    return "a text";
}

static bool is_choice(const struct option *option, const char *value)
{
    for (size_t i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], value) == 0) {
            return true;
        }
    }
    return false;
}

static bool convert(const struct option *option, struct setting *s, const char *value)
{
    switch (option->kind) {
    case OPTION_TEXT:
        return *value != '\0';
    case OPTION_NUMBER:
        return units_number(value, &s->number);
    case OPTION_TIME:
        return units_time_ms(value, &s->number);
    case OPTION_SIZE:
        return units_size_bytes(value, &s->number);
    case OPTION_MONEY:
        return units_money_nano(value, &s->number);
    case OPTION_REAL:
        return units_real(value, &s->real);
    case OPTION_CHOICE:
        return is_choice(option, value);
    case OPTION_SWITCH:
        s->on = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
        return s->on || strcmp(value, "false") == 0 || strcmp(value, "0") == 0;
    }
    return false;
}

static char *refuse_choice(const struct option *option, const char *value, const char *where)
{
    char *text =
        text_format("%s is \"%s\"; there %s", where, value, option->choices[1] ? "are" : "is only");
    for (size_t i = 0; option->choices[i]; i++) {
        const char *before = i == 0 ? " " : option->choices[i + 1] ? ", " : " and ";
        char *longer = text_format("%s%s%s", text, before, option->choices[i]);
        free(text);
        text = longer;
    }
    return text;
}

/* Sets a value unless one of a source that counts more is there. Returns NULL, or what is wrong. */
static char *set(struct options *o,
                 enum option_id id,
                 const char *value,
                 enum option_source source,
                 const char *where)
{
    const struct option *option = &option_table[id];
    struct setting *s = &o->settings[id];
    if (source < s->source) {
        return NULL;
    }
    if (source > s->source) {
        clear(s);
    }
    if (option->kind == OPTION_CHOICE && !is_choice(option, value)) {
        return refuse_choice(option, value, where);
    }
    if (!convert(option, s, value)) {
        return text_format("%s is \"%s\"; it must be %s", where,
                           is_hidden(option, value) ? "..." : value, expected(option));
    }
    if (option->max && s->number > option->max) {
        return text_format("%s is %s; it can be at most %lld%s", where, value,
                           (long long)option->max, option->kind == OPTION_TIME ? "ms" : "");
    }
    char *copy = text_copy(value);
    text_list_add(&s->values, copy);
    s->value = copy;
    s->source = source;
    free(s->where);
    s->where = text_copy(where);
    return NULL;
}

/* ---- names ---- */

static size_t distance(const char *a, const char *b)
{
    size_t row[64];
    size_t n = strlen(b);
    if (n >= 64) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; *a; i++, a++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = diagonal + (*a != b[j - 1]);
            size_t least = row[j] < row[j - 1] ? row[j] : row[j - 1];
            diagonal = row[j];
            row[j] = change < least + 1 ? change : least + 1;
        }
    }
    return row[n];
}

const char *options_nearest(const char *word, const char *const *names, size_t n)
{
    size_t len = strlen(word), best = len / 3 + 2;
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, names[i]);
        bool begins = len >= 3 && strncmp(names[i], word, len) == 0;
        if (d < best || (begins && !nearest)) {
            best = d < best ? d : best;
            nearest = names[i];
        }
    }
    return nearest;
}

static const char *nearest_option(const char *word, unsigned commands, bool settings)
{
    const char *names[OPT_COUNT];
    size_t n = 0;
    for (size_t i = 0; i < OPT_COUNT; i++) {
        if (settings ? !option_table[i].only_flag : (option_table[i].commands & commands) != 0) {
            names[n++] = option_table[i].name;
        }
    }
    return options_nearest(word, names, n);
}

/* True when `name`, in which "_" stands for "-", is the option's. */
static bool is_named(const struct option *option, const char *name, size_t len)
{
    if (strlen(option->name) != len) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if ((name[i] == '_' ? '-' : name[i]) != option->name[i]) {
            return false;
        }
    }
    return true;
}

/* ---- sources ---- */

static void use_defaults(struct options *o)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        if (option_table[i].fallback) {
            free(set(o, (enum option_id)i, option_table[i].fallback, FROM_DEFAULT, "default"));
        }
    }
}

static char *
take_from_file(void *arg, const char *table, const char *key, const char *value, int line)
{
    struct options *o = arg;
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct option *option = &option_table[i];
        if (option->only_flag || !is_named(option, key, strlen(key))) {
            continue;
        }
        if (*table && strcmp(table, option->group) != 0) {
            return text_format("%s stands in the table [%s] or before all tables, not in [%s]", key,
                               option->group, table);
        }
        if (!option->list && o->settings[i].source == FROM_FILE) {
            return text_format("%s has more than one value", key);
        }
        char *where = text_format("%s:%d", o->file, line);
        char *wrong = set(o, (enum option_id)i, value, FROM_FILE, where);
        /* The caller puts file and line in front. */
        char *bare = wrong ? text_format("%s%s", key, wrong + strlen(where)) : NULL;
        free(where);
        free(wrong);
        return bare;
    }
    const char *near = nearest_option(key, 0, true);
    return near ? text_format("there is no setting \"%s\"; did you mean \"%s\"?", key, near)
                : text_format("there is no setting \"%s\"; `rlmflow config` lists them", key);
}

/* A file that somebody else can write could send keys to a server of theirs. */
static bool is_trusted(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        return true;
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) { /* of a directory reading complains */
        text_complain("%s is not read: it is no file", path);
        return false;
    }
    if ((st.st_uid == geteuid() || st.st_uid == 0) && !(st.st_mode & S_IWOTH)) {
        return true;
    }
    text_complain("%s is not read: it belongs to somebody else, or everybody can write it", path);
    return false;
}

static int use_file(struct options *o)
{
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char *paths[2] = {text_copy("./rlmflow.toml"), NULL};
    if (base && *base == '/') {
        paths[1] = text_format("%s/rlmflow/rlmflow.toml", base);
    } else if (home && *home == '/') {
        paths[1] = text_format("%s/.config/rlmflow/rlmflow.toml", home);
    }
    int found = 0;
    for (size_t i = 0; i < 2 && found == 0 && paths[i]; i++) {
        char *problem = NULL;
        o->file = paths[i];
        found = is_trusted(paths[i]) ? toml_read(paths[i], take_from_file, o, &problem) : 0;
        if (problem) {
            text_complain("%s", problem);
            free(problem);
        }
    }
    if (found == 0) {
        o->file = NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        if (paths[i] != o->file) {
            free(paths[i]);
        }
    }
    return found < 0 ? EXIT_USAGE : 0;
}

char *options_take_variable(const char *name)
{
    char *value = getenv(name);
    char *copy = value && *value ? text_copy(value) : NULL;
    if (value) {
        wipe(value);
        unsetenv(name);
    }
    return copy;
}

static char *variable_name(const char *option)
{
    char *name = text_format("RLMFLOW_%s", option);
    for (char *c = name; *c; c++) {
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    }
    return name;
}

static bool is_variable(const char *name, size_t len)
{
    bool found = false;
    for (size_t i = 0; i < OPT_COUNT && !found; i++) {
        char *known = variable_name(option_table[i].name);
        found =
            !option_table[i].only_flag && strlen(known) == len && strncmp(known, name, len) == 0;
        free(known);
    }
    return found;
}

/* A name near a setting's is a misspelt one. What is far from all belongs to something else. */
static void warn_of_misspelt_variables(void)
{
    static const char prefix[] = "RLMFLOW_";
    enum { PREFIX = sizeof prefix - 1 };
    for (char **v = environ; v && *v; v++) {
        size_t len = strcspn(*v, "=");
        if (strncmp(*v, prefix, PREFIX) != 0 || is_variable(*v, len)) {
            continue;
        }
        char *word = text_format("%.*s", (int)(len - PREFIX), *v + PREFIX);
        for (char *c = word; *c; c++) {
            *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
        }
        const char *near = nearest_option(word, 0, true);
        for (size_t i = 0; i < OPT_COUNT && !near && strlen(word) > 3; i++) {
            bool part = !option_table[i].only_flag && strstr(option_table[i].name, word);
            near = part ? option_table[i].name : NULL;
        }
        if (near) {
            char *meant = variable_name(near);
            text_complain("warning: there is no setting %.*s; did you mean %s?", (int)len, *v,
                          meant);
            free(meant);
        }
        free(word);
    }
}

static int use_environment(struct options *o)
{
    warn_of_misspelt_variables();
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct option *option = &option_table[i];
        char *name = variable_name(option->name);
        const char *there = option->only_flag ? NULL : getenv(name);
        if (!there || !*there) {
            free(name);
            continue;
        }
        char *value = is_hidden(option, there) ? options_take_variable(name) : text_copy(there);
        char *wrong = NULL, *rest = value;
        do {
            char *one = option->list ? strsep(&rest, "\n") : strsep(&rest, "");
            wrong = *one || !option->list ? set(o, (enum option_id)i, one, FROM_ENVIRONMENT, name)
                                          : NULL;
        } while (rest && !wrong);
        free(value);
        free(name);
        if (wrong) {
            text_complain("%s", wrong);
            free(wrong);
            return EXIT_USAGE;
        }
    }
    return 0;
}

/* ---- flags ---- */

static const struct option *find_flag(const struct command *command, const char *word, size_t len)
{
    bool letter = word[0] == '-' && word[1] != '-' && len == 2;
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct option *option = &option_table[i];
        if ((option->commands & command->bit) &&
            (letter ? option->letter == word[1]
                    : len > 2 && strncmp(word, "--", 2) == 0 && strlen(option->name) == len - 2 &&
                          strncmp(option->name, word + 2, len - 2) == 0)) {
            return option;
        }
    }
    return NULL;
}

static int complain_of_flag(const struct command *command, const char *word, size_t len)
{
    char *flag = text_format("%.*s", (int)len, word);
    const char *near = nearest_option(flag + strspn(flag, "-"), command->bit, false);
    if (near) {
        text_complain("%s: there is no flag %s; did you mean --%s?", command->name, flag, near);
    } else {
        text_complain("%s: there is no flag %s; `rlmflow %s --help` lists them", command->name,
                      flag, command->name);
    }
    free(flag);
    return EXIT_USAGE;
}

/* Takes argv[*index] (and what follows, for its value). */
static int
take_flag(const struct command *command, struct options *o, int argc, char **argv, int *index)
{
    char *word = argv[*index];
    char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    if (word[1] != '-' && len > 2) {
        len = 2;
    }
    const struct option *option = find_flag(command, word, len);
    if (!option) {
        return complain_of_flag(command, word, len);
    }
    char *flag = text_format("--%s", option->name);
    char *value = equals ? equals + 1 : word[1] != '-' && word[2] ? word + 2 : NULL;
    char always[] = "true";
    if (!value && option->kind == OPTION_SWITCH) {
        value = always;
    } else if (!value && *index + 1 < argc) {
        value = argv[++*index];
    }
    char *wrong = value ? set(o, (enum option_id)(option - option_table), value, FROM_FLAG, flag)
                        : text_format("%s needs a value: %s %s", flag, flag, option->argument);
    if (value && value != always && is_hidden(option, value)) {
        wipe(value); /* other processes can read the command line */
    }
    free(flag);
    if (wrong) {
        text_complain("%s: %s", command->name, wrong);
        free(wrong);
        return EXIT_USAGE;
    }
    return 0;
}

static int use_flags(const struct command *command, struct options *o, int argc, char **argv)
{
    bool only_arguments = false;
    int r = 0;
    for (int i = 0; i < argc && r == 0; i++) {
        char *word = argv[i];
        if (!only_arguments && strcmp(word, "--") == 0) {
            only_arguments = true;
        } else if (!only_arguments && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            return -1;
        } else if (only_arguments || word[0] != '-' || !word[1]) {
            text_list_add(&o->arguments, word);
            o->n_arguments++;
        } else {
            r = take_flag(command, o, argc, argv, &i);
        }
    }
    return r;
}

/* ---- settings that stay with a run ---- */

static bool is_kept(const struct options *o, enum option_id id)
{
    const struct option *option = &option_table[id];
    const struct setting *s = &o->settings[id];
    bool stays = option->stays || ((option->commands & FOR_RESUME) && !option->only_flag);
    if (!stays || !s->value || strcmp(option->group, "result") == 0 || s->source == FROM_DEFAULT) {
        return false;
    }
    for (size_t i = 0; s->values[i]; i++) {
        if (is_hidden(option, s->values[i])) {
            return false;
        }
    }
    return true;
}

/* A program that is looked for in PATH has no path yet. */
static void put_kept(FILE *to, enum option_id id, const char *value)
{
    bool path = option_table[id].path && (id != OPT_PYTHON || strchr(value, '/'));
    char *text = path ? text_absolute(value) : text_copy(value);
    text_write_json(to, (struct rlm_str){text, strlen(text)});
    free(text);
}

char *options_kept(const struct options *o)
{
    char *json = NULL;
    size_t size;
    FILE *to = open_memstream(&json, &size);
    const char *between = "";
    if (!to) {
        return NULL;
    }
    fputc('{', to);
    for (size_t i = 0; i < OPT_COUNT; i++) {
        if (!is_kept(o, (enum option_id)i)) {
            continue;
        }
        fprintf(to, "%s\"%s\":[", between, option_table[i].name);
        for (size_t k = 0; o->settings[i].values[k]; k++) {
            fputs(k ? "," : "", to);
            put_kept(to, (enum option_id)i, o->settings[i].values[k]);
        }
        fputc(']', to);
        between = ",";
    }
    fputc('}', to);
    fclose(to);
    return json;
}

struct taking {
    struct options *o;
    char *wrong;
};

static void take_kept(void *arg, struct rlm_str key, struct rlm_str value)
{
    struct taking *t = arg;
    for (size_t i = 0; i < OPT_COUNT && !t->wrong; i++) {
        if (is_named(&option_table[i], key.ptr, key.len)) {
            char *text = text_format("%.*s", (int)value.len, value.ptr);
            t->wrong = set(t->o, (enum option_id)i, text, FROM_RUN, "the run");
            free(text);
        }
    }
}

int options_take_kept(struct options *o, const char *run)
{
    struct taking t = {.o = o};
    rlm_error *err = NULL;
    if (rlm_run_read_program(run, take_kept, &t, &err) < 0) {
        return text_fail(err);
    }
    if (t.wrong) {
        text_complain("%s", t.wrong);
        free(t.wrong);
        return EXIT_USAGE;
    }
    return 0;
}

void options_free(struct options *o)
{
    for (size_t i = 0; i < OPT_COUNT; i++) {
        clear(&o->settings[i]);
    }
    free(o->arguments);
    free(o->file);
    free(o);
}

int options_parse(const struct command *command, int argc, char **argv, struct options *o)
{
    use_defaults(o);
    int r = use_flags(command, o, argc, argv);
    if (r != 0) {
        return r;
    }
    if (o->n_arguments < command->min_arguments || o->n_arguments > command->max_arguments) {
        text_complain("%s: usage: rlmflow %s %s (see `rlmflow %s --help`)", command->name,
                      command->name, command->usage, command->name);
        return EXIT_USAGE;
    }
    if (command->bit & (FOR_RUN | FOR_RESUME | FOR_REPLAY | FOR_DEMO | FOR_DOCTOR | FOR_CONFIG)) {
        r = use_environment(o);
        if (r == 0) {
            r = use_file(o);
        }
    }
    return r;
}
