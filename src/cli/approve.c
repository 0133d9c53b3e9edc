#include "cli/approve.h"

#include "cli/editor.h"
#include "cli/text.h"
#include "cli/tty.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AWAY_POLL_MS = 500 };

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
    struct tty tty;          /* without a device nobody can be asked */
    struct question **queue; /* the first is the one on the terminal, except AT_REST */
    size_t n_queue;
    char **trusted; /* agents whose code all runs */
    enum state state;
    bool stopped; /* the person wants no more */
    struct editor editor;
};

/* ---- the question on the terminal ---- */

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
    tty_say(&a->tty, text_copy("Run it? [y]es, [n]o, [e]dit, [a]ll of this agent, [q]uit: "));
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
    put_code(to, q->code, tty_columns(&a->tty));
    fclose(to);
    free(head);
    tty_drop_typed(&a->tty); /* which was no answer to this */
    tty_say(&a->tty, text);
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
    } else if (a->tty.fd < 0 || a->stopped) {
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

static void edit(approve *a)
{
    int problem = editor_start(&a->editor, a->queue[0]->code);
    if (problem) {
        tty_say(&a->tty, text_format("The editor could not be started: %s\n", strerror(problem)));
        prompt(a);
    } else {
        a->state = EDITOR;
    }
}

static bool is_unchanged(struct rlm_str code, struct rlm_str edited)
{
    return edited.len <= code.len && memcmp(edited.ptr, code.ptr, edited.len) == 0 &&
           strspn(code.ptr + edited.len, "\n") == code.len - edited.len;
}

static void take_edited(approve *a)
{
    const struct question *q = a->queue[0];
    struct rlm_str edited;
    int problem = editor_read(&a->editor, &edited);
    if (problem) {
        tty_say(&a->tty, text_format("What was edited cannot be read: %s\n", strerror(problem)));
        prompt(a);
        return;
    }
    if (!edited.len || text_bad_offset(edited) >= 0) {
        tty_say(&a->tty, text_copy(edited.len ? "What was edited is not UTF-8.\n"
                                              : "Nothing is left of it.\n"));
        prompt(a);
    } else {
        if (is_unchanged(q->code, edited)) {
            rlm_gate_allow(q->gate, a->who);
        } else {
            rlm_gate_rewrite(q->gate, a->who, edited);
        }
        next(a);
    }
    free((char *)(uintptr_t)edited.ptr);
}

static void look_at_editor(approve *a)
{
    bool failed;
    if (!editor_has_ended(&a->editor, &failed)) {
        return;
    }
    if (!a->queue[0]->gate) {
        next(a);
    } else if (failed) {
        tty_say(&a->tty, text_copy("The editor failed; nothing was changed.\n"));
        prompt(a);
    } else {
        take_edited(a);
    }
    editor_close(&a->editor);
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
        tty_say(&a->tty, text_copy("Why not (the model is told; may be empty)? "));
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

static struct rlm_str trimmed(struct rlm_str s)
{
    while (s.len && strchr(" \t\r", s.ptr[s.len - 1])) {
        s.len--;
    }
    while (s.len && strchr(" \t", s.ptr[0])) {
        s.ptr++, s.len--;
    }
    return s;
}

static void take_line(approve *a, struct rlm_str typed)
{
    struct rlm_str line = trimmed(typed);
    if (a->state == CHOICE) {
        take_choice(a, line);
    } else if (text_bad_offset(line) >= 0) {
        tty_say(&a->tty, text_copy("That is not UTF-8. Why not? "));
    } else {
        reject(a, line);
    }
}

static bool is_answering(const approve *a)
{
    return a->state == CHOICE || a->state == REASON;
}

static void read_answers(approve *a)
{
    struct rlm_str line;
    int r = 0;
    while (is_answering(a) && (r = tty_read_line(&a->tty, &line)) > 0) {
        take_line(a, line);
    }
    if (r < 0) {
        stop(a);
    }
}

bool approve_tick(approve *a)
{
    if (!a || a->tty.fd < 0) {
        return false;
    }
    tty_flush(&a->tty);
    if (a->state == EDITOR) {
        look_at_editor(a);
    }
    if (is_answering(a) && !a->queue[0]->gate) {
        tty_say(&a->tty, text_copy("\n(its agent has ended)\n"));
        next(a);
    }
    if (is_answering(a)) {
        if (tty_is_gone(&a->tty)) {
            stop(a);
        } else {
            read_answers(a);
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
    if (!a || a->tty.fd < 0) {
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
    bool in_front = tty_is_in_front(&a->tty);
    short events = (short)((in_front ? POLLIN : 0) | (a->tty.out ? POLLOUT : 0));
    *ret_timeout_ms = in_front ? -1 : AWAY_POLL_MS;
    *ret_fd = (struct pollfd){.fd = a->tty.fd, .events = events};
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
    tty_open(&a->tty);
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

void approve_free(approve *a)
{
    if (!a) {
        return;
    }
    if (editor_close(&a->editor)) {
        tty_restore(&a->tty);
    }
    while (a->n_queue) {
        remove_question(a, a->n_queue - 1);
    }
    tty_close(&a->tty);
    rlm_pattern_free(a->pattern);
    text_list_free(a->trusted);
    free(a->queue);
    free(a->rule);
    free(a->who);
    free(a);
}
