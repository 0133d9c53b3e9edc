#include "cli/approve.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096, CODE_MAX_BYTES = 64 << 20, COLUMNS_USUAL = 80 };
enum { EDITOR_POLL_MS = 50, AWAY_POLL_MS = 500 };

enum state { AT_REST, CHOICE, REASON, EDITOR };

/* One piece of code that waits. */
struct question {
    rlm_gate *gate; /* NULL: its agent or the run has ended */
    char *agent;
    int turn;
    struct rlm_str code; /* owned */
};

struct approve {
    rlm_pattern *pattern; /* NULL: all is asked */
    char *rule, *who;
    int terminal;            /* -1: nobody can be asked */
    struct question **queue; /* the first is the one on the terminal, except AT_REST */
    size_t n_queue;
    char **trusted; /* agents whose code all runs */
    enum state state;
    bool stopped; /* the person wants no more */
    char line[LINE_MAX_BYTES];
    size_t line_len;
    char *out; /* what the terminal has not taken yet */
    size_t out_len, out_at;
    struct termios modes; /* as they were before */
    pid_t editor;
    char *file; /* that it edits */
};

/* ---- the terminal ---- */

static void flush(approve *a)
{
    while (a->out_at < a->out_len) {
        ssize_t n = write(a->terminal, a->out + a->out_at, a->out_len - a->out_at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            break; /* it is gone; reading finds out */
        }
        a->out_at += (size_t)n;
    }
    free(a->out);
    a->out = NULL;
    a->out_len = a->out_at = 0;
}

/* Takes the text. */
static void say(approve *a, char *text)
{
    size_t left = a->out_len - a->out_at, len = strlen(text);
    char *all = text_allocate(left + len + 1);
    memcpy(all, a->out ? a->out + a->out_at : "", left);
    memcpy(all + left, text, len);
    free(text);
    free(a->out);
    a->out = all;
    a->out_at = 0;
    a->out_len = left + len;
    flush(a);
}

/* In the background a read would stop the program. */
static bool is_in_front(const approve *a)
{
    return tcgetpgrp(a->terminal) == getpgrp();
}

/* Nobody will ever answer on it. */
static bool is_gone(const approve *a)
{
    return tcgetpgrp(a->terminal) < 0;
}

static int columns_of(const approve *a)
{
    struct winsize size;
    return ioctl(a->terminal, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : COLUMNS_USUAL;
}

/* What is shown is what would run, all of it; so nothing is taken out as from other text. */
static void put_code(FILE *to, struct rlm_str code, int columns)
{
    struct rlm_view_options view = RLM_VIEW_OPTIONS_INIT;
    size_t hidden;
    view.width = columns;
    char *shown = text_or_end(rlm_view_code(code, &view, &hidden));
    fputs(shown, to);
    free(shown);
    if (hidden) {
        fprintf(to,
                "--- it has %zu hidden character%s, written as <U+...> in lines with a \"!\" ---\n",
                hidden, hidden == 1 ? "" : "s");
    } else {
        fputs("---\n", to);
    }
}

static void prompt(approve *a)
{
    a->state = CHOICE;
    say(a, text_copy("Run it? [y]es, [n]o, [e]dit, [a]ll of this agent, [q]uit: "));
}

static void show(approve *a)
{
    const struct question *q = a->queue[0];
    char *text, *head;
    size_t len;
    FILE *to = text_stream(&text, &len);
    head = a->n_queue > 1 ? text_format("--- %s, turn %d wants to run this (%zu more after it) ---",
                                        q->agent, q->turn, a->n_queue - 1)
                          : text_format("--- %s, turn %d wants to run this ---", q->agent, q->turn);
    text_print_lines(to, (struct rlm_str){head, strlen(head)});
    put_code(to, q->code, columns_of(a));
    fclose(to);
    free(head);
    if (is_in_front(a)) {
        tcflush(a->terminal, TCIFLUSH); /* what was typed before was no answer to this */
    }
    a->line_len = 0;
    say(a, text);
    prompt(a);
}

/* ---- the queue ---- */

static void question_free(struct question *q)
{
    free(q->agent);
    free((char *)(uintptr_t)q->code.ptr);
    free(q);
}

static void remove_question(approve *a, size_t i)
{
    question_free(a->queue[i]);
    a->n_queue--;
    memmove(a->queue + i, a->queue + i + 1, (a->n_queue - i) * sizeof *a->queue);
}

/* Ends the question on the terminal; its gate has been answered. */
static void next(approve *a)
{
    remove_question(a, 0);
    a->state = AT_REST;
}

static void cancelled(void *arg)
{
    struct question *q = arg;
    rlm_gate *gate = q->gate;
    q->gate = NULL;
    rlm_gate_allow(gate, NULL); /* which is dropped */
}

static bool is_trusted(const approve *a, const char *agent)
{
    for (size_t i = 0; a->trusted && a->trusted[i]; i++) {
        if (strcmp(a->trusted[i], agent) == 0) {
            return true;
        }
    }
    return false;
}

/* A search that is given up may be of code that was made so: it is asked. */
static bool is_asked(approve *a, struct rlm_str code)
{
    rlm_error *err = NULL;
    int r = a->pattern ? rlm_pattern_search(a->pattern, code, &err) : 1;
    rlm_error_free(err);
    return r != 0;
}

static void enqueue(approve *a, rlm_gate *gate, rlm_graph *g, struct rlm_str code)
{
    struct question *q = text_allocate(sizeof *q);
    char *copy = text_allocate(code.len + 1);
    struct question **queue = text_allocate((a->n_queue + 1) * sizeof *queue);
    memcpy(copy, code.ptr, code.len);
    *q = (struct question){
        gate, text_copy(rlm_graph_agent_id(g)), rlm_graph_turns(g), {copy, code.len}};
    memcpy(queue, a->queue ? a->queue : queue, a->n_queue * sizeof *queue);
    queue[a->n_queue++] = q;
    free(a->queue);
    a->queue = queue;
    rlm_gate_on_cancel(gate, cancelled, q);
}

static void exec_turn(void *arg, rlm_gate *gate, rlm_graph *g, struct rlm_str code, bool replay)
{
    approve *a = arg;
    (void)replay;
    if (is_trusted(a, rlm_graph_agent_id(g))) {
        rlm_gate_allow(gate, a->who);
    } else if (!is_asked(a, code)) {
        rlm_gate_allow(gate, a->rule);
    } else if (a->terminal < 0 || a->stopped) {
        char *why = text_format("%s, turn %d wants to run code%s", rlm_graph_agent_id(g),
                                rlm_graph_turns(g),
                                a->stopped ? "" : ", and there is no terminal to ask on");
        rlm_gate_postpone(gate, why);
        free(why);
    } else {
        enqueue(a, gate, g, code);
    }
}

/* ---- the editor ---- */

static bool write_file(approve *a, const struct question *q)
{
    const char *directory = getenv("TMPDIR");
    a->file = text_format("%s/rlmflow-XXXXXX.py", directory && *directory ? directory : "/tmp");
    int fd = mkostemps(a->file, 3, O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        return false;
    }
    fwrite(q->code.ptr, 1, q->code.len, f);
    fputc('\n', f);
    return fclose(f) == 0;
}

/* On the terminal, with descriptors of its own: those here do not wait. */
static int spawn(approve *a)
{
    static char shell[] = "sh", flag[] = "-c", line[] = "exec ${VISUAL:-${EDITOR:-vi}} \"$1\"";
    char *argv[] = {shell, flag, line, shell, a->file, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/tty", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&files, 0, 1);
    posix_spawn_file_actions_adddup2(&files, 0, 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int problem = posix_spawn(&a->editor, "/bin/sh", &files, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    a->editor = problem ? 0 : a->editor;
    return problem;
}

static void remove_file(approve *a)
{
    if (a->file) {
        unlink(a->file);
        free(a->file);
        a->file = NULL;
    }
}

static void edit(approve *a)
{
    int problem = write_file(a, a->queue[0]) ? spawn(a) : errno;
    if (problem) {
        say(a, text_format("The editor could not be started: %s\n", strerror(problem)));
        remove_file(a);
        prompt(a);
    } else {
        a->state = EDITOR;
    }
}

static void take_edited(approve *a)
{
    const struct question *q = a->queue[0];
    struct rlm_str text;
    int problem = text_read_file(a->file, CODE_MAX_BYTES, &text);
    if (problem) {
        say(a, text_format("What was edited cannot be read: %s\n", strerror(problem)));
        prompt(a);
        return;
    }
    size_t len = text.len;
    while (len && text.ptr[len - 1] == '\n') {
        len--;
    }
    struct rlm_str code = {text.ptr, len};
    bool same = code.len <= q->code.len && memcmp(code.ptr, q->code.ptr, code.len) == 0 &&
                strspn(q->code.ptr + code.len, "\n") == q->code.len - code.len;
    if (!len || text_bad_offset(code) >= 0) {
        say(a, text_copy(len ? "What was edited is not UTF-8.\n" : "Nothing is left of it.\n"));
        prompt(a);
    } else {
        if (same) {
            rlm_gate_allow(q->gate, a->who);
        } else {
            rlm_gate_rewrite(q->gate, a->who, code);
        }
        next(a);
    }
    free((char *)(uintptr_t)text.ptr);
}

static void look_at_editor(approve *a)
{
    int status;
    if (waitpid(a->editor, &status, WNOHANG) != a->editor) {
        return;
    }
    a->editor = 0;
    if (!a->queue[0]->gate) {
        next(a);
    } else if (status != 0) {
        say(a, text_copy("The editor failed; nothing was changed.\n"));
        prompt(a);
    } else {
        take_edited(a);
    }
    remove_file(a);
}

/* ---- answers ---- */

static void allow_all(approve *a)
{
    char *agent = text_copy(a->queue[0]->agent);
    text_list_add(&a->trusted, agent);
    for (size_t i = 0; i < a->n_queue;) {
        struct question *q = a->queue[i];
        if (q->gate && strcmp(q->agent, agent) == 0) {
            rlm_gate_allow(q->gate, a->who);
            remove_question(a, i);
        } else {
            i++;
        }
    }
    a->state = AT_REST;
}

static void stop(approve *a)
{
    struct question *q = a->queue[0];
    rlm_gate *gate = q->gate;
    char *why = text_format("%s, turn %d wants to run code", q->agent, q->turn);
    a->stopped = true;
    next(a);
    rlm_gate_postpone(gate, why);
    free(why);
}

static void reject(approve *a, struct rlm_str reason)
{
    static const char rejected[] = "This code was looked at by a person, and was not run.";
    char *text = reason.len
                     ? text_format("%s They say: %.*s", rejected, (int)reason.len, reason.ptr)
                     : text_copy(rejected);
    rlm_gate_reject(a->queue[0]->gate, a->who, (struct rlm_str){text, strlen(text)});
    free(text);
    next(a);
}

static void take_choice(approve *a, struct rlm_str line)
{
    switch (line.len == 1 ? line.ptr[0] : 0) {
    case 'y':
        rlm_gate_allow(a->queue[0]->gate, a->who);
        next(a);
        break;
    case 'n':
        a->state = REASON;
        say(a, text_copy("Why not (the model is told; may be empty)? "));
        break;
    case 'e':
        edit(a);
        break;
    case 'a':
        allow_all(a);
        break;
    case 'q':
        stop(a);
        break;
    default:
        prompt(a);
    }
}

static struct rlm_str trimmed(const char *text, size_t len)
{
    while (len && strchr(" \t\r", text[len - 1])) {
        len--;
    }
    while (len && strchr(" \t", text[0])) {
        text++, len--;
    }
    return (struct rlm_str){text, len};
}

static void take_line(approve *a, size_t len)
{
    struct rlm_str line = trimmed(a->line, len);
    if (a->state == CHOICE) {
        take_choice(a, line);
    } else if (text_bad_offset(line) >= 0) {
        say(a, text_copy("That is not UTF-8. Why not? "));
    } else {
        reject(a, line);
    }
}

static void read_answer(approve *a)
{
    ssize_t n = 1;
    while (n > 0 && (a->state == CHOICE || a->state == REASON) && is_in_front(a)) {
        char c;
        n = read(a->terminal, &c, 1);
        if (n == 1 && c == '\n') {
            size_t len = a->line_len;
            a->line_len = 0;
            take_line(a, len);
        } else if (n == 1 && a->line_len < sizeof a->line) {
            a->line[a->line_len++] = c;
        }
    }
    /* The end of input, or of the terminal: nobody answers any more. */
    if ((n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) && a->n_queue) {
        stop(a);
    }
}

bool approve_tick(approve *a)
{
    if (!a || a->terminal < 0) {
        return false;
    }
    flush(a);
    if (a->state == EDITOR) {
        look_at_editor(a);
    }
    if ((a->state == CHOICE || a->state == REASON) && !a->queue[0]->gate) {
        say(a, text_copy("\n(its agent has ended)\n"));
        next(a);
    }
    if (a->state == CHOICE || a->state == REASON) {
        if (is_gone(a)) {
            stop(a);
        } else {
            read_answer(a);
        }
    }
    while (a->state == AT_REST && a->n_queue && !a->queue[0]->gate) {
        remove_question(a, 0);
    }
    if (a->state == AT_REST && a->n_queue && !a->stopped) {
        show(a);
        return true;
    }
    return false;
}

int approve_poll(const approve *a, struct pollfd *ret_fd, int *ret_timeout_ms)
{
    *ret_timeout_ms = -1;
    if (!a || a->terminal < 0) {
        return 0;
    }
    if (a->state == EDITOR) {
        *ret_timeout_ms = EDITOR_POLL_MS;
        return 0;
    }
    if (a->state == AT_REST) {
        *ret_timeout_ms = a->n_queue && !a->stopped ? 0 : -1;
        return 0;
    }
    bool in_front = is_in_front(a);
    short events = (short)((in_front ? POLLIN : 0) | (a->out ? POLLOUT : 0));
    *ret_timeout_ms = in_front ? -1 : AWAY_POLL_MS;
    *ret_fd = (struct pollfd){.fd = a->terminal, .events = events};
    return events ? 1 : 0;
}

bool approve_is_asking(const approve *a)
{
    return a && a->state != AT_REST;
}

/* ---- making ---- */

static char *name_of_person(void)
{
    const struct passwd *user = getpwuid(getuid());
    return user ? text_format("%s, on the terminal", user->pw_name)
                : text_format("user %u, on the terminal", (unsigned)getuid());
}

int approve_new(const char *rule, approve **ret_approve)
{
    rlm_pattern *pattern = NULL;
    *ret_approve = NULL;
    if (!rule || strcmp(rule, "none") == 0) {
        return 0;
    }
    if (strncmp(rule, "match:", 6) == 0) {
        struct rlm_str text = {rule + 6, strlen(rule + 6)};
        rlm_error *err = NULL;
        if (rlm_pattern_new(text, &pattern, &err) < 0) {
            text_complain("--approve %s: %s", rule, rlm_error_message(err));
            rlm_error_free(err);
            return EXIT_USAGE;
        }
    } else if (strcmp(rule, "all") != 0) {
        text_complain("--approve %s: it is none, all or match:REGEX", rule);
        return EXIT_USAGE;
    }
    approve *a = text_allocate(sizeof *a);
    a->pattern = pattern;
    a->rule = text_format("--approve %s", rule);
    a->who = name_of_person();
    a->terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (a->terminal >= 0 && tcgetattr(a->terminal, &a->modes) < 0) {
        close(a->terminal);
        a->terminal = -1;
    }
    *ret_approve = a;
    return 0;
}

int approve_begin(approve *a, rlm_flow *flow)
{
    struct rlm_flow_hooks hooks = RLM_FLOW_HOOKS_INIT;
    rlm_error *err = NULL;
    if (!a) {
        return 0;
    }
    hooks.arg = a;
    hooks.exec_turn = exec_turn;
    return rlm_flow_set_hooks(flow, &hooks, &err) < 0 ? text_fail(err) : 0;
}

static void end_editor(approve *a)
{
    static const struct timespec moment = {.tv_nsec = EDITOR_POLL_MS * 1000000L};
    kill(a->editor, SIGTERM);
    for (int i = 0; waitpid(a->editor, NULL, WNOHANG) == 0; i++) {
        if (i == 10) {
            kill(a->editor, SIGKILL);
        }
        nanosleep(&moment, NULL);
    }
    if (is_in_front(a)) {
        tcsetattr(a->terminal, TCSADRAIN, &a->modes);
    }
}

void approve_free(approve *a)
{
    if (!a) {
        return;
    }
    if (a->editor) {
        end_editor(a);
    }
    remove_file(a);
    while (a->n_queue) {
        remove_question(a, a->n_queue - 1);
    }
    if (a->terminal >= 0) {
        close(a->terminal);
    }
    rlm_pattern_free(a->pattern);
    text_list_free(a->trusted);
    free(a->queue);
    free(a->rule);
    free(a->who);
    free(a->out);
    free(a);
}
