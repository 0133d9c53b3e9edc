/* Settings of the program. One table (option_table.c) declares each: from it come the flags and their
 * --help, the names in the environment (RLMFLOW_MAX_DEPTH), the keys of rlmflow.toml (max_depth, at the
 * top or in the table of their group) and what `rlmflow config` prints.
 *
 * A value comes from the first of: flag, environment, rlmflow.toml, default. The file is
 * ./rlmflow.toml, else $XDG_CONFIG_HOME/rlmflow/rlmflow.toml.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The options of a group stand together: --help shows them in this order. */
enum option_id {
    OPT_INPUT,
    OPT_CONTINUE,
    OPT_FROM,
    OPT_SCHEMA,
    OPT_MODEL,
    OPT_BASE_URL,
    OPT_API,
    OPT_CHILD_MODEL,
    OPT_TEMPERATURE,
    OPT_REASONING_EFFORT,
    OPT_MAX_OUTPUT_TOKENS,
    OPT_HEADER,
    OPT_BODY,
    OPT_PRICE,
    OPT_PROXY,
    OPT_CA_FILE,
    OPT_CONNECT_TIMEOUT,
    OPT_FIRST_BYTE_TIMEOUT,
    OPT_IDLE_TIMEOUT,
    OPT_RUNTIME,
    OPT_PYTHON,
    OPT_CWD,
    OPT_COLLECT,
    OPT_SPARE,
    OPT_APPROVE,
    OPT_RESTORE,
    OPT_EXECUTE,
    OPT_IGNORE_OUTPUT,
    OPT_MAX_DEPTH,
    OPT_MAX_ITERS,
    OPT_CHILD_MAX_ITERS,
    OPT_MAX_BUDGET,
    OPT_MAX_COST,
    OPT_MAX_TIME,
    OPT_EXEC_TIMEOUT,
    OPT_CPU_TIME,
    OPT_MAX_OUTPUT_LENGTH,
    OPT_MAX_QUERY_CHARS,
    OPT_MAX_MESSAGES,
    OPT_WORKERS,
    OPT_MAX_LIVE,
    OPT_MAX_AGENTS,
    OPT_MAX_INPUT_SIZE,
    OPT_CUT,
    OPT_OUTPUT,
    OPT_SYNC,
    OPT_JSON,
    OPT_QUIET,
    OPT_LOG_FILE,
    OPT_AGENT,
    OPT_NODE,
    OPT_USAGE,
    OPT_TIMELINE,
    OPT_CONVERSATION,
    OPT_DIFF,
    OPT_HTML,
    OPT_OLDER_THAN,
    OPT_KEEP_SIZE,
    OPT_DRY_RUN,
    OPT_TARGET,
    OPT_FORMAT,
    OPT_COUNT,
};

enum option_kind {
    OPTION_TEXT,
    OPTION_NUMBER, /* with k, M */
    OPTION_TIME,   /* milliseconds, with s, m, h, ms */
    OPTION_SIZE,   /* bytes, with k, m, g of 1024 */
    OPTION_MONEY,  /* nano-dollars */
    OPTION_REAL,
    OPTION_CHOICE, /* one of `choices` */
    OPTION_SWITCH,
};

enum option_source {
    FROM_NOWHERE,
    FROM_DEFAULT,
    FROM_FILE,
    FROM_ENVIRONMENT,
    FROM_RUN, /* a run that goes on: what it was started with */
    FROM_FLAG,
};

/* The commands of the program, as bits: an option says for which it is. */
enum command_bit {
    FOR_RUN = 1,
    FOR_VIEW = 2,
    FOR_DEMO = 4,
    FOR_DOCTOR = 8,
    FOR_CONFIG = 16,
    FOR_VERSION = 32,
    FOR_RESUME = 64,
    FOR_REPLAY = 128,
    FOR_RUNS = 256,
    FOR_EXPORT = 512,
    FOR_PACK = 1024,
    FOR_UNPACK = 2048,
    FOR_REWIND = 4096,
};

struct option {
    const char *name; /* "max-depth" */
    char letter;      /* 'o', or 0 */
    enum option_kind kind;
    const char *group;    /* "limits": a section of --help and a table of rlmflow.toml */
    const char *argument; /* "N" */
    const char *fallback; /* the default as text; NULL: unset */
    const char *help;
    const char *const *choices; /* NULL-terminated */
    unsigned commands;          /* of enum command_bit */
    int64_t max;                /* of a number, time or size; 0: INT64_MAX */
    bool list;                  /* may be given more than once */
    bool only_flag;             /* belongs to one run: no environment, no file */
    bool secret;                /* never shown, wiped from the command line and the environment */
    bool url;                   /* may hold credentials: the same when it does */
    bool path;                  /* kept with a run as an absolute one */
    bool stays;                 /* kept with a run although it is only for `run` */
};

struct setting {
    char **values; /* NULL-terminated; the last counts unless it is a list; NULL: unset */
    const char *value;
    int64_t number;
    double real;
    bool on;
    enum option_source source;
    char *where; /* "--max-depth", "RLMFLOW_MAX_DEPTH", "./rlmflow.toml:3" */
};

struct options {
    struct setting settings[OPT_COUNT];
    char **arguments; /* what is no flag, borrowed of argv; NULL-terminated or NULL */
    int n_arguments;
    char *file; /* the rlmflow.toml that was read, or NULL */
};

struct command {
    const char *name;
    enum command_bit bit;
    const char *summary;     /* one line */
    const char *usage;       /* what stands behind the name */
    const char *description; /* for --help; may be NULL */
    const char *example;
    int min_arguments, max_arguments;
    int (*run)(struct options *options); /* returns an exit code */
};

extern const struct option option_table[OPT_COUNT];

/* Fills `options` for a command. 0; EXIT_USAGE after a complaint; -1 when --help was asked for. What is
 * secret is wiped from argv and the environment. */
int options_parse(const struct command *command, int argc, char **argv, struct options *options);
/* With all that it holds, secrets wiped. */
void options_free(struct options *options);
/* Wipes the value of a variable from the process's environment block and removes it; returns a copy
 * (NULL: not set, or empty). */
char *options_take_variable(const char *name);

/* The settings that a run goes on with, as a JSON object: what is not secret and not the default. */
char *options_kept(const struct options *o);
/* Takes them from a run. 0, or an exit code after a complaint. */
int options_take_kept(struct options *o, const char *run);

/* All help is wrapped at the width of the terminal, or at 80 columns. */
void options_print_help(FILE *to, const struct command *command);
/* One command in the list of all. */
void options_print_summary(FILE *to, const char *name, const char *summary);
/* The name among `n` that is nearest to `word`, or NULL when none is near. */
const char *options_nearest(const char *word, const char *const *names, size_t n);

static inline const char *options_text(const struct options *o, enum option_id id)
{
    return o->settings[id].value;
}

static inline int64_t options_number(const struct options *o, enum option_id id)
{
    return o->settings[id].number;
}

static inline bool options_on(const struct options *o, enum option_id id)
{
    return o->settings[id].on;
}
