#include "cli/commands.h"
#include "cli/kept.h"
#include "cli/models.h"
#include "cli/python.h"
#include "cli/text.h"
#include "cli/units.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROBE_MS = 10000, NEWEST_MINOR = 20, OLDEST_MINOR = 8 };

enum state {
    OK,
    HINT, /* something optional is missing */
    PROBLEM,
};

static void put(enum state state, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(enum state state, const char *what, const char *format, ...)
{
    static const char *const words[] = {"ok", "hint", "PROBLEM"};
    va_list args;
    char *text = NULL;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) {
        text = NULL;
    }
    va_end(args);
    char *line = text_format("%-8s %-14s %s", words[state], what, text ? text : "");
    text_print_lines(stdout, (struct rlm_str){line, strlen(line)});
    free(line);
    free(text);
}

/* ---- interpreters ---- */

/* What an interpreter says about itself, "3.11.2"; false when it does not run. */
static bool probe(const char *path, char *out, size_t size)
{
    char code[] = "import sys; print('%d.%d.%d' % sys.version_info[:3])", flag[] = "-c";
    char *copy = text_copy(path), *argv[] = {copy, flag, code, NULL};
    int fds[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    size_t len = 0;
    if (pipe2(fds, O_CLOEXEC) < 0) {
        free(copy);
        return false;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    char *environment[] = {NULL};
    int problem = posix_spawn(&pid, path, &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    free(copy);
    while (problem == 0 && len + 1 < size) {
        struct pollfd ready = {.fd = fds[0], .events = POLLIN};
        ssize_t n = poll(&ready, 1, PROBE_MS) > 0 ? read(fds[0], out + len, size - len - 1) : -1;
        if (n <= 0) {
            problem = n < 0;
            kill(pid, n < 0 ? SIGKILL : 0);
            waitpid(pid, NULL, 0);
            break;
        }
        len += (size_t)n;
    }
    close(fds[0]);
    out[len] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    return problem == 0 && strncmp(out, "3.", 2) == 0;
}

static bool is_new_enough(const char *version)
{
    return atoi(version) > 3 || (atoi(version) == 3 && atoi(version + 2) >= OLDEST_MINOR);
}

/* The chosen interpreter must work; the others are listed. */
static bool check_interpreters(const struct options *o)
{
    const char *chosen = options_text(o, OPT_PYTHON);
    char *path = python_find(chosen), version[64];
    bool fine = path && probe(path, version, sizeof version);
    if (!path) {
        put(PROBLEM, "python", "%s is not found: install python3, or say --python PATH", chosen);
    } else if (!fine) {
        put(PROBLEM, "python", "%s does not run: say --python PATH of another", path);
    } else if (!is_new_enough(version)) {
        put(PROBLEM, "python", "%s is %s, but 3.%d is needed: say --python PATH of another", path,
            version, OLDEST_MINOR);
        fine = false;
    } else {
        put(OK, "python", "%s, %s (used for sessions)", path, version);
    }
    for (int minor = NEWEST_MINOR; minor >= OLDEST_MINOR; minor--) {
        char name[32];
        snprintf(name, sizeof name, "python3.%d", minor);
        char *other = python_find(name);
        if (other && probe(other, version, sizeof version)) {
            put(OK, "python", "%s, %s", other, version);
        }
        free(other);
    }
    free(path);
    return fine;
}

/* ---- models ---- */

static bool check_curl(bool needed)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW);
    if (!library) {
        put(needed ? PROBLEM : HINT, "libcurl",
            "%s; models over HTTP need it: apt-get install libcurl4", dlerror());
        return !needed;
    }
    put(OK, "libcurl", "found");
    return true;
}

struct answer {
    bool done;
    char *problem;
};

static void checked(void *arg, const rlm_error *problem)
{
    struct answer *a = arg;
    a->done = true;
    a->problem = problem ? text_copy(rlm_error_message(problem)) : NULL;
}

static void turn(rlm_loop *loop)
{
    struct pollfd ready = {.fd = rlm_loop_fd(loop), .events = POLLIN};
    poll(&ready, 1, rlm_loop_timeout(loop));
    rlm_loop_dispatch(loop);
}

static bool
check_model(const struct options *o, const struct provider_settings *p, const char *name)
{
    rlm_loop *loop = NULL;
    rlm_model *model = NULL;
    rlm_error *err = NULL;
    struct answer a = {0};
    if (rlm_loop_new(&loop, &err) < 0 || models_new(loop, o, p, name, &model) != 0) {
        if (err) {
            text_fail(err);
        }
        rlm_loop_free(loop);
        put(PROBLEM, "model", "%s cannot be used", name);
        return false;
    }
    if (rlm_model_check(model, checked, &a, &err) < 0) {
        a = (struct answer){true, text_copy(rlm_error_message(err))};
        rlm_error_free(err);
    }
    while (!a.done) {
        turn(loop);
    }
    bool fine = !a.problem;
    put(fine ? OK : PROBLEM, "model", "%s%s%s", name, fine ? "" : ": ", fine ? "" : a.problem);
    free(a.problem);
    rlm_model_free(model);
    rlm_loop_free(loop);
    return fine;
}

static void check_keys(const struct options *o, const struct provider_settings *p, const char *name)
{
    bool remote = name && !models_is_scripted(name);
    struct model_place place = remote ? models_place(o, p, name) : (struct model_place){0};
    if (remote && models_lacks_key(o, &place)) {
        put(PROBLEM, "keys", "none for %s: set %s, or give --base-url of a local server", name,
            place.api == RLM_API_ANTHROPIC ? "ANTHROPIC_API_KEY" : "OPENAI_API_KEY");
    } else if (p->openai_key || p->anthropic_key) {
        put(OK, "keys", "OPENAI_API_KEY %s, ANTHROPIC_API_KEY %s", p->openai_key ? "yes" : "no",
            p->anthropic_key ? "yes" : "no");
    } else {
        put(HINT, "keys",
            "none: set OPENAI_API_KEY or ANTHROPIC_API_KEY, unless --base-url is a local server's");
    }
}

static bool check_models(const struct options *o)
{
    struct provider_settings p = {0};
    const char *name = options_text(o, OPT_MODEL), *child = options_text(o, OPT_CHILD_MODEL);
    models_take_environment(&p);
    check_keys(o, &p, name);
    bool fine = check_curl(name && !models_is_scripted(name));
    if (!name) {
        put(HINT, "model",
            "none is chosen: say --model NAME with each run, or set RLMFLOW_MODEL, or model = \"NAME\" "
            "in rlmflow.toml");
    } else {
        fine = check_model(o, &p, name) && fine;
        fine = (!child || strcmp(child, name) == 0 || check_model(o, &p, child)) && fine;
    }
    models_forget(&p);
    return fine;
}

/* ---- state ---- */

/* The nearest directory above that exists decides whether the rest can be made. */
static bool is_writable(const char *directory)
{
    char *path = text_copy(directory);
    char *slash;
    while (access(path, F_OK) < 0 && (slash = strrchr(path, '/')) != NULL && slash != path) {
        *slash = '\0';
    }
    bool fine = access(path, W_OK | X_OK) == 0;
    free(path);
    return fine;
}

static bool check_state(void)
{
    char *directory = kept_directory();
    if (!directory) {
        put(PROBLEM, "state", "neither XDG_STATE_HOME nor HOME is set: say -o PATH with each run");
        return false;
    }
    bool fine = is_writable(directory);
    put(fine ? OK : PROBLEM, "state", "%s is %s", directory,
        fine ? "writable" : "not writable: set XDG_STATE_HOME, or say -o PATH with each run");
    struct kept_sum sum;
    char size[32];
    kept_measure(&sum);
    units_format_size(sum.bytes, size, sizeof size);
    put(OK, "kept runs", "%zu, %s", sum.runs, size);
    free(sum.largest);
    free(directory);
    return fine;
}

static int run(struct options *o)
{
    bool fine = check_interpreters(o);
    put(OK, "runtime", "subprocess: no isolation, agent code can do what you can do");
    fine = check_models(o) && fine;
    fine = check_state() && fine;
    return fine ? 0 : EXIT_FAILED;
}

const struct command cmd_doctor = {
    .name = "doctor",
    .bit = FOR_DOCTOR,
    .summary = "Checks interpreters, models and directories, and says what is missing.",
    .usage = "[FLAG]...",
    .description =
        "Each line is ok, a hint (something that is optional, or can be said with each run, is not set) or\n"
        "a PROBLEM. Each configured model is asked whether it is there.\n"
        "\n"
        "Exit codes: 0 without a PROBLEM, else 1; 2 bad usage.\n",
    .example = "  rlmflow doctor --model gpt-5-mini\n",
    .run = run,
};
