#include "cli/signals.h"

#include "cli/text.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* As nohup has it. The kernel would keep a blocked signal for us even so. */
static bool ignores_hangup(void)
{
    struct sigaction now;
    return sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static void fill(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    if (!ignores_hangup()) {
        sigaddset(set, SIGHUP);
    }
}

void signals_block(void)
{
    sigset_t set;
    fill(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

void signals_unblock(void)
{
    sigset_t set;
    fill(&set);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int signals_open(void)
{
    sigset_t set;
    fill(&set);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* For a signal handler, which gets no argument of ours: what is still to be removed. */
static const char *directory_left;

static void interrupted_while_ending(int signal)
{
    pid_t pid = directory_left ? fork() : -1;
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", "--", directory_left, (char *)NULL);
        _exit(1);
    }
    if (pid > 0) {
        waitpid(pid, NULL, 0);
    }
    _exit(EXIT_INTERRUPTED);
}

void signals_end_program(const char *left_behind)
{
    struct sigaction end = {.sa_handler = interrupted_while_ending};
    directory_left = left_behind;
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    if (!ignores_hangup()) {
        sigaction(SIGHUP, &end, NULL);
    }
    sigaction(SIGALRM, &end, NULL);
    signals_unblock();
}

void signals_set_limit(int limit_ms)
{
    struct itimerval limit = {.it_value = {limit_ms / 1000, limit_ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &limit, NULL);
}
