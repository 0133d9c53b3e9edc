/* The `command` runtime: each session is a worker behind a command that passes a byte stream on. */
#include "base/error.h"
#include "base/vec.h"
#include "runtime/child.h"
#include "runtime/environment.h"
#include "runtime/stub.h"
#include "runtime/warden.h"

#include <stdlib.h>

#define PLACE         "{worker}"
#define TO_DIRECTORY  "import os,sys;os.chdir(sys.argv[3]);"
#define MAX_ARG_BYTES (128 * 1024) /* of the kernel's for one argument */
#define MAX_ARGS      1000

struct command {
    rlm_runtime runtime; /* first: a runtime is cast to it */
    RLM_VEC(char *) argv;
    char *python;
    char *working_directory;
    struct rlm_environment env;
    rlm_warden *warden;
    char *buffer;
};

static struct command *command_of(rlm_runtime *r)
{
    return (struct command *)r;
}

/* ---- command lines --------------------------------------------------------------------------- */

/* The words that start the worker on the far side. */
struct words {
    const char *items[12];
    size_t n;
};

static struct words worker_words(const struct command *p, const char *directory)
{
    struct words w = {
        .items = {"env", "TZ=UTC", "PYTHONHASHSEED=0", p->python, "-s", "-u", "-c",
                  directory ? TO_DIRECTORY RLM_WORKER_PROGRAM : RLM_WORKER_PROGRAM, "0", "1"},
        .n = 10,
    };
    if (directory) {
        w.items[w.n++] = directory;
    }
    return w;
}

static void add_quoted(struct rlm_buf *line, const char *word)
{
    rlm_buf_adds(line, " '");
    for (const char *c = word; *c; c++) {
        if (*c == '\'') {
            rlm_buf_adds(line, "'\\''");
        } else {
            rlm_buf_add(line, c, 1);
        }
    }
    rlm_buf_adds(line, "'");
}

/* The argument with the line of shell in the place of PLACE. */
static int
fill_place(const char *argument, const struct words *words, char **ret_text, rlm_error **err)
{
    const char *place = strstr(argument, PLACE);
    rlm_auto_buf struct rlm_buf line = RLM_BUF(MAX_ARG_BYTES);
    rlm_buf_add(&line, argument, (size_t)(place - argument));
    rlm_buf_adds(&line, "exec");
    for (size_t i = 0; i < words->n; i++) {
        add_quoted(&line, words->items[i]);
    }
    rlm_buf_adds(&line, place + strlen(PLACE));
    int r = rlm_buf_check(&line, err);
    if (r < 0) {
        return r;
    }
    *ret_text = rlm_buf_take(&line);
    return 0;
}

static int start(struct command *p,
                 const char *directory,
                 struct rlm_transport **ret_transport,
                 rlm_error **err)
{
    const char *argv[MAX_ARGS + 13];
    struct words words = worker_words(p, directory);
    rlm_autofree char *filled = NULL;
    size_t n = 0;
    for (; n < p->argv.len; n++) {
        argv[n] = p->argv.items[n];
        if (!filled && strstr(argv[n], PLACE)) {
            int r = fill_place(argv[n], &words, &filled, err);
            if (r < 0) {
                return r;
            }
            argv[n] = filled;
        }
    }
    for (size_t i = 0; !filled && i < words.n; i++) {
        argv[n++] = words.items[i];
    }
    argv[n] = NULL;
    rlm_warden_begin(p->warden);
    struct rlm_child_options options = {
        .argv = argv,
        .env = (const char *const *)p->env.entries.items,
        .is_command = true,
        .worker = rlm_worker_text(),
        .buffer = p->buffer,
    };
    return rlm_child_start(p->runtime.loop, &options, ret_transport, err);
}

/* ---- the runtime ----------------------------------------------------------------------------- */

static int command_connect(rlm_runtime *r,
                           const struct rlm_session_options *options,
                           struct rlm_transport **ret_transport,
                           rlm_error **err)
{
    struct command *p = command_of(r);
    const char *directory =
        options->working_directory ? options->working_directory : p->working_directory;
    int result = start(p, directory, ret_transport, err);
    if (result == RLM_E_NOT_FOUND) {
        return rlm_error_set(err, result, "there is no command \"%s\"%s", p->argv.items[0],
                             strchr(p->argv.items[0], '/') ? "" : " in PATH");
    }
    if (result == 0) {
        rlm_child_attach(*ret_transport);
    }
    return result;
}

static void command_free(rlm_runtime *r)
{
    struct command *p = command_of(r);
    for (size_t i = 0; i < p->argv.len; i++) {
        free(p->argv.items[i]);
    }
    free(p->argv.items);
    free(p->python);
    free(p->working_directory);
    free(p->buffer);
    rlm_environment_deinit(&p->env);
    rlm_warden_free(p->warden);
    free(p);
}

static const struct rlm_runtime_ops command_ops = {
    .name = "command",
    .effects = "outside",
    .connect = command_connect,
    .free = command_free,
};

static int copy_argv(struct command *p, const char *const *argv, rlm_error **err)
{
    for (; *argv; argv++) {
        if (p->argv.len == MAX_ARGS) {
            return rlm_error_set(err, RLM_E_LIMIT, "a command has at most %d arguments", MAX_ARGS);
        }
        char *copy = rlm_strdup(*argv);
        char **place = copy ? rlm_vec_push(&p->argv) : NULL;
        if (!place) {
            free(copy);
            return rlm_error_nomem(err);
        }
        *place = copy;
    }
    return 0;
}

static int prepare(struct command *p, const struct rlm_command_options *o, rlm_error **err)
{
    p->python = rlm_strdup(o->python && *o->python ? o->python : "python3");
    p->buffer = rlm_malloc(RLM_CHILD_BUFFER);
    p->warden = rlm_warden_new(p->runtime.loop);
    if (!p->python || !p->buffer || !p->warden ||
        (o->working_directory && !(p->working_directory = rlm_strdup(o->working_directory)))) {
        return rlm_error_nomem(err);
    }
    int r = copy_argv(p, o->argv, err);
    return r < 0 ? r : rlm_environment_make(&p->env, rlm_warden_mark(p->warden), o->env, err);
}

int rlm_runtime_new_command(rlm_loop *loop,
                            const struct rlm_command_options *options,
                            rlm_runtime **ret_runtime,
                            rlm_error **err)
{
    struct rlm_command_options o = RLM_COMMAND_OPTIONS_INIT;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (!o.argv || !o.argv[0] || !*o.argv[0]) {
        return rlm_error_set(err, RLM_E_INVAL, "a command runtime needs a command");
    }
    struct command *p;
    if (!RLM_NEW(p)) {
        return rlm_error_nomem(err);
    }
    p->runtime = (rlm_runtime){.ops = &command_ops, .loop = loop};
    int r = prepare(p, &o, err);
    if (r < 0) {
        command_free(&p->runtime);
        return r;
    }
    *ret_runtime = &p->runtime;
    return 0;
}
