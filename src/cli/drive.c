#include "cli/drive.h"

#include "cli/json_out.h"
#include "cli/kept.h"
#include "cli/machine.h"
#include "cli/outcome.h"
#include "cli/replay_report.h"
#include "cli/signals.h"
#include "cli/text.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* A stop that takes longer than this is cut short: people were promised two seconds. */
enum { STOP_MS = 1500 };

/* Asks on the terminal; where there is none the safe answer stands. */
static enum rlm_restore_mode ask_person(void)
{
    FILE *terminal = fopen("/dev/tty", "r+");
    char line[80] = "";
    if (!terminal) {
        text_say("--restore ask: there is no terminal to ask on; sessions start anew");
        return RLM_RESTORE_FRESH;
    }
    while (line[0] != 'r' && line[0] != 'f') {
        fprintf(terminal,
                "The run's code may have changed things outside its session. Run it again to "
                "get its variables back [r], or go on without them [f]? ");
        fflush(terminal);
        if (!fgets(line, sizeof line, terminal)) {
            break;
        }
    }
    fclose(terminal);
    return line[0] == 'r' ? RLM_RESTORE_REPLAY : RLM_RESTORE_FRESH;
}

enum rlm_restore_mode drive_restore_mode(const struct options *o)
{
    const char *word = options_text(o, OPT_RESTORE);
    return strcmp(word, "replay") == 0  ? RLM_RESTORE_REPLAY
           : strcmp(word, "fresh") == 0 ? RLM_RESTORE_FRESH
           : strcmp(word, "ask") == 0   ? ask_person()
                                        : RLM_RESTORE_AUTO;
}

/* ---- running ---- */

/* At once: the kernel ends the sessions, since each is told to die with its parent. */
static void leave(struct machine *m)
{
    collect_free(m->collect);
    _exit(EXIT_INTERRUPTED);
}

static void read_signals(struct machine *m)
{
    struct signalfd_siginfo info;
    while (read(m->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (m->interrupted) {
            leave(m);
        }
        m->interrupted = true;
        m->stopped_at_ms = live_elapsed_ms(m->live);
        rlm_run_stop(m->run);
    }
}

static void on_event(void *arg, rlm_run *run, const struct rlm_event *event)
{
    struct machine *m = arg;
    live_event(m->live, run, event);
    if (m->json && !m->stdout_gone) {
        /* A run that goes on has a past: the lines make its graph too. */
        if (event->type == RLM_EVENT_GRAPH_CREATED) {
            json_out_tree(event->graph);
        } else {
            json_out_event(event);
        }
    }
}

static int least_timeout(int a, int b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

static int turn(struct machine *m)
{
    struct pollfd fds[3] = {{.fd = rlm_loop_fd(m->loop), .events = POLLIN},
                            {.fd = m->signal_fd, .events = POLLIN}};
    int timeout, n_fds = 2 + approve_poll(m->approve, &fds[2], &timeout);
    timeout = least_timeout(rlm_loop_timeout(m->loop), timeout);
    if (!approve_is_asking(m->approve)) {
        timeout = least_timeout(timeout, live_timeout(m->live));
    }
    if (m->interrupted) {
        timeout = least_timeout(timeout, STOP_MS);
        if (live_elapsed_ms(m->live) - m->stopped_at_ms >= STOP_MS) {
            leave(m);
        }
    }
    if (poll(fds, (nfds_t)n_fds, timeout) < 0 && errno != EINTR) {
        text_complain("waiting for events: %s", strerror(errno));
        return EXIT_FAILED;
    }
    if (fds[1].revents) {
        read_signals(m);
    }
    rlm_loop_dispatch(m->loop);
    bool asked = approve_is_asking(m->approve);
    if (approve_tick(m->approve) || asked) {
        live_move_on(m->live);
    }
    if (!approve_is_asking(m->approve)) {
        live_tick(m->live, m->run);
    }
    if (m->json) {
        outcome_look_at_stdout(m);
    }
    return 0;
}

static int run_to_the_end(struct machine *m)
{
    int code = 0;
    while (code == 0 && !rlm_run_has_ended(m->run)) {
        code = turn(m);
    }
    live_end(m->live, m->run);
    if (code) {
        return code;
    }
    if (m->d->replay) {
        return m->interrupted ? EXIT_INTERRUPTED
                              : replay_report(m->run, options_on(m->d->options, OPT_IGNORE_OUTPUT));
    }
    return outcome_report(m);
}

int drive_run(struct drive *d)
{
    static const struct rlm_run_events events = {.event = on_event};
    struct machine m = {.d = d, .signal_fd = -1, .json = options_on(d->options, OPT_JSON)};
    int code = machine_make(&m, &events);
    bool ran = m.run != NULL;
    code = code ? code : run_to_the_end(&m);
    signals_end_program(m.collect ? collect_temporary(m.collect) : NULL);
    if (m.interrupted) {
        signals_set_limit(STOP_MS); /* it may wait for a large file that is being read */
    }
    machine_free(&m);
    signals_set_limit(0);
    if (ran && m.collect) {
        int problem = collect_finish(m.collect, d->path);
        code = code ? code : problem;
    }
    signals_end_program(NULL);
    collect_free(m.collect);
    if (ran) {
        kept_warn();
    }
    return code;
}
