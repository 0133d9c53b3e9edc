#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/kept.h"
#include "cli/program.h"
#include "cli/signals.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void set_screen(struct rlm_view_options *view)
{
    struct winsize size = {0};
    if (isatty(1)) {
        view->color = !getenv("NO_COLOR");
        if (ioctl(1, TIOCGWINSZ, &size) == 0) {
            view->width = size.ws_col;
        }
    }
}

/* The node that `place` names: of `agent` where one is given, and where it has it. */
static int find_node(rlm_graph *root,
                     const rlm_graph *agent,
                     const char *place,
                     rlm_graph **ret_graph,
                     const struct rlm_node **ret_node)
{
    rlm_error *err = NULL;
    char *own = agent ? text_format("%s:%s", rlm_graph_agent_id(agent), place) : NULL;
    bool found = own && rlm_graph_find(root, own, ret_graph, ret_node, NULL) == 0;
    free(own);
    if (!found && rlm_graph_find(root, place, ret_graph, ret_node, &err) < 0) {
        return text_fail(err);
    }
    return 0;
}

/* The agent of that id, or the only one whose last part it is, as the tree names it. */
static rlm_graph *find_agent(rlm_graph *root, const char *name)
{
    rlm_graph *found = rlm_graph_agent(root, name);
    for (rlm_graph *g = found ? NULL : root; g; g = json_out_next(root, g)) {
        const char *id = rlm_graph_agent_id(g), *dot = strrchr(id, '.');
        if (dot && strcmp(dot + 1, name) == 0) {
            if (found) {
                return NULL;
            }
            found = g;
        }
    }
    return found;
}

static void put_tree_json(rlm_graph *root, const char *path)
{
    json_out_tree(root);
    struct rlm_usage usage = rlm_graph_usage(root, true);
    struct rlm_str answer = rlm_graph_result(root), reason = rlm_graph_reason(root);
    char *reason_text = text_format("%.*s", (int)reason.len, reason.ptr ? reason.ptr : "");
    json_out_result(strcmp(reason_text, "answered") == 0 ? &answer : NULL, reason_text, &usage,
                    rlm_graph_agent_count(root), path);
    free(reason_text);
}

static int put_text(char *text)
{
    if (!text) {
        text_complain("view: out of memory");
        return EXIT_FAILED;
    }
    fputs(text, stdout);
    free(text);
    return 0;
}

/* What can be done with a run that has not ended. */
static void say_how_to_go_on(const char *path)
{
    struct rlm_run_glance glance = RLM_RUN_GLANCE_INIT;
    if (rlm_run_glance(path, &glance, NULL) == 0) {
        char *program = program_word(), *word = text_shell_word(path);
        if (glance.state == RLM_RUN_RUNNING) {
            text_say("the run is going on");
        } else if (glance.state == RLM_RUN_UNFINISHED) {
            text_say("%s; go on with: %s resume %s",
                     strcmp(glance.reason, "awaiting_approval") == 0
                         ? "the run waits for an approval"
                         : "the run was stopped",
                     program, word);
        }
        free(program);
        free(word);
    }
    rlm_run_glance_deinit(&glance);
}

/* The answer, below the tree. */
static void put_end(const rlm_graph *root, const char *path)
{
    struct rlm_str answer = rlm_graph_result(root);
    if (answer.len) {
        printf("\n");
        text_print_lines(stdout, answer);
    }
    fflush(stdout);
    if (!rlm_graph_finished(root)) {
        say_how_to_go_on(path);
    }
}

static int show_timeline(const rlm_graph *root,
                         const rlm_graph *agent,
                         const char *path,
                         bool json,
                         const struct rlm_view_options *view)
{
    char *text = NULL;
    rlm_error *err = NULL;
    return rlm_view_timeline(root, agent, path, json, view, &text, &err) < 0 ? text_fail(err)
                                                                             : put_text(text);
}

static int show_conversation(const char *path,
                             const rlm_graph *g,
                             bool json,
                             const struct rlm_view_options *view)
{
    char *text = NULL;
    rlm_error *err = NULL;
    return rlm_view_conversation(path, rlm_graph_agent_id(g), json, view, &text, &err) < 0
               ? text_fail(err)
               : put_text(text);
}

/* Exit code 1 when they differ, as of programs that compare. */
static int show_diff(const rlm_graph *root, const struct options *o)
{
    struct rlm_view_options view = RLM_VIEW_OPTIONS_INIT;
    char *path = kept_find(options_text(o, OPT_DIFF)), *note = NULL, *text = NULL;
    rlm_graph *other = NULL;
    rlm_error *err = NULL;
    set_screen(&view);
    int code, r = rlm_graph_load(path, &other, &note, &err);
    if (note) {
        text_say("note: %s: %s", path, note);
    }
    r = r < 0 ? r : rlm_view_diff(root, other, &view, &text, &err);
    if (r < 0) {
        code = text_fail(err);
    } else {
        code = put_text(text);
        code = code ? code : r > 0 ? EXIT_FAILED : EXIT_ANSWERED;
    }
    rlm_graph_free(other);
    free(note);
    free(path);
    return code;
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        text += n < 0 ? 0 : n;
        len -= n < 0 ? 0 : (size_t)n;
    }
    return 0;
}

static int close_now(int *fd)
{
    int was = *fd;
    *fd = -1;
    return close(was);
}

/* A page that is there is replaced when the new one is whole. What is no plain file (a device, a pipe) is
 * written to. Returns an errno value. */
static int write_file(const char *path, const char *text, size_t len)
{
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (strcmp(path, "-") == 0 || (there && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
        int fd = path[0] == '-' && !path[1] ? dup(1) : open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        int problem = fd < 0 ? errno : write_all(fd, text, len);
        if (fd >= 0) {
            close(fd);
        }
        return problem;
    }
    char *temporary = text_format("%s.XXXXXX", path);
    signals_end_program(temporary);
    mode_t mask = umask(0);
    umask(mask);
    int fd = mkostemp(temporary, O_CLOEXEC), problem = fd < 0 ? errno : 0;
    if (fd >= 0) {
        problem = write_all(fd, text, len);
        if (problem == 0 && (fchmod(fd, (there ? st.st_mode & 0777 : 0666 & ~mask)) < 0 ||
                             close_now(&fd) < 0 || rename(temporary, path) < 0)) {
            problem = errno;
        }
        if (fd >= 0) {
            close(fd);
        }
        if (problem) {
            unlink(temporary);
        }
    }
    signals_end_program(NULL);
    free(temporary);
    return problem;
}

static int write_html(const rlm_graph *root, const char *path, const char *note, const char *file)
{
    char *html = NULL;
    size_t len = 0;
    rlm_error *err = NULL;
    if (rlm_view_html(root, path, note, &html, &len, &err) < 0) {
        return text_fail(err);
    }
    int problem = write_file(file, html, len);
    free(html);
    if (problem) {
        text_complain("view: writing %s: %s", file, strerror(problem));
        return text_exit_code_of_errno(problem);
    }
    if (strcmp(file, "-") != 0) {
        text_say("wrote %s", file);
    }
    return 0;
}

static int show(rlm_graph *root, const struct options *o, const char *path)
{
    struct rlm_view_options view = RLM_VIEW_OPTIONS_INIT;
    const char *agent = options_text(o, OPT_AGENT), *id = options_text(o, OPT_NODE);
    bool json = options_on(o, OPT_JSON);
    rlm_graph *g = agent ? find_agent(root, agent) : root;
    set_screen(&view);
    view.journal = path;
    if (!g) {
        text_complain(
            "view: %s has no agent \"%s\", or more than one; say root.NAME as the tree has it",
            path, agent);
        return EXIT_USAGE;
    }
    if (id) {
        rlm_graph *owner;
        const struct rlm_node *node;
        int code = find_node(root, agent ? g : NULL, id, &owner, &node);
        if (code != 0) {
            return code;
        }
        code = put_text(json ? rlm_node_json(owner, node) : rlm_view_node(owner, node, &view));
        if (json) {
            putchar('\n');
        }
        return code;
    }
    if (options_on(o, OPT_TIMELINE)) {
        return show_timeline(root, agent ? g : NULL, path, json, &view);
    }
    if (options_on(o, OPT_CONVERSATION)) {
        return show_conversation(path, g, json, &view);
    }
    if (json && agent) {
        json_out_graph(g);
        return 0;
    }
    if (json) {
        put_tree_json(root, path);
        return 0;
    }
    if (options_on(o, OPT_USAGE)) {
        return put_text(rlm_view_usage(g, &view));
    }
    if (agent) {
        return put_text(rlm_view_agent(g, &view));
    }
    int code = put_text(rlm_view_tree(root, &view));
    put_end(root, path);
    return code;
}

/* Each view is of one thing, and says what it does not go with. */
static int check(const struct options *o)
{
    bool agent = options_text(o, OPT_AGENT), node = options_text(o, OPT_NODE);
    bool json = options_on(o, OPT_JSON), conversation = options_on(o, OPT_CONVERSATION);
    const struct {
        const char *name;
        bool on, with_agent, with_json;
    } views[] = {
        {"--node", node, true, true},
        {"--usage", options_on(o, OPT_USAGE), true, false},
        {"--timeline", options_on(o, OPT_TIMELINE), true, true},
        {"--conversation", conversation, true, true},
        {"--diff", options_text(o, OPT_DIFF) != NULL, false, false},
        {"--html", options_text(o, OPT_HTML) != NULL, false, false},
    };
    const char *first = NULL;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        const char *other = !views[i].on                    ? NULL
                            : first                         ? first
                            : agent && !views[i].with_agent ? "--agent"
                            : json && !views[i].with_json   ? "--json"
                                                            : NULL;
        if (other) {
            text_complain("view: %s does not go with %s", views[i].name, other);
            return EXIT_USAGE;
        }
        first = views[i].on ? views[i].name : first;
    }
    if (conversation && !agent) {
        text_complain("view: --conversation needs --agent ID: whose conversation?");
        return EXIT_USAGE;
    }
    return 0;
}

static int run(struct options *o)
{
    char *path = kept_find(o->arguments[0]);
    rlm_graph *root = NULL;
    char *note = NULL;
    rlm_error *err = NULL;
    int code;
    if ((code = check(o)) != 0) {
        /* It has been said. */
    } else if (rlm_graph_load(path, &root, &note, &err) < 0) {
        code = text_fail(err);
    } else {
        if (note) {
            text_say("note: %s", note);
        }
        const char *html = options_text(o, OPT_HTML);
        code = html                        ? write_html(root, path, note, html)
               : options_text(o, OPT_DIFF) ? show_diff(root, o)
                                           : show(root, o, path);
    }
    rlm_graph_free(root);
    free(note);
    free(path);
    return code;
}

const struct command cmd_view = {
    .name = "view",
    .bit = FOR_VIEW,
    .summary = "Shows a run: its tree of agents, one agent, one node, where time and money went.",
    .usage = "RUN [FLAG]...",
    .description =
        "RUN is a path or the name of a kept run. A run may still be going on, or be damaged: what\n"
        "can be read is shown, and stderr says what is missing.\n",
    .example = "  rlmflow view run.rlm --agent root\n"
               "  rlmflow view run.rlm --html run.html\n",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
