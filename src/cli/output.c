#include "cli/output.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    FILE *stream;
    FILE *messages; /* stderr */
    int problem;    /* errno of the first write that failed */
    bool told;
    bool hurried;       /* an interrupt found a message waiting for its reader */
    bool pipe_is_error; /* SIGPIPE was ignored by whoever started us */
} output;

/* A standard descriptor that is closed would be taken by the next file that is opened. It is opened for
 * the wrong direction, so that reading and writing still fail; only messages may go nowhere. */
static void open_standard_descriptors(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) != fd) {
            _exit(EXIT_FAILED);
        }
    }
}

static bool is_interrupted(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
            sigismember(&pending, SIGHUP) == 1);
}

/* Writes all. A reader that does not read holds the program up, but a signal that waits until the loop
 * turns (signals_block) ends that: nobody may be unable to interrupt. Returns 0 or an errno value. */
static int write_all(int fd, const char *bytes, size_t len, bool patient)
{
    enum { LOOK_MS = 100, PIECE = 4096 /* PIPE_BUF: what poll promises room for */ };
    struct stat st;
    bool pipe = fstat(fd, &st) == 0 && !S_ISREG(st.st_mode);
    while (len) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        if (poll(&ready, 1, patient ? LOOK_MS : 0) == 0) {
            if (!patient || is_interrupted()) {
                return EINTR;
            }
            continue;
        }
        ssize_t n = write(fd, bytes, pipe && len > PIECE ? PIECE : len);
        if (n >= 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (errno != EINTR && errno != EAGAIN) {
            return errno;
        }
    }
    return 0;
}

static ssize_t put(void *cookie, const char *bytes, size_t len)
{
    if (!output.problem) {
        output.problem = write_all(1, bytes, len, true);
    }
    errno = output.problem;
    return output.problem ? 0 : (ssize_t)len;
}

/* What cannot be told is told to nobody. */
static ssize_t put_message(void *cookie, const char *bytes, size_t len)
{
    /* Once interrupted, what follows does not wait either. */
    if (write_all(2, bytes, len, !output.hurried) == EINTR) {
        output.hurried = true;
    }
    return (ssize_t)len;
}

void output_begin(void)
{
    struct sigaction pipe_action;
    open_standard_descriptors();
    output.pipe_is_error =
        sigaction(SIGPIPE, NULL, &pipe_action) == 0 && pipe_action.sa_handler == SIG_IGN;
    /* What cannot be written is an error like others. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    output.stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = put});
    if (!output.stream) {
        text_complain("out of memory");
        _exit(EXIT_FAILED);
    }
    setvbuf(output.stream, NULL, isatty(1) ? _IOLBF : _IOFBF, BUFSIZ);
    stdout = output.stream;
    output.messages = fopencookie(NULL, "w", (cookie_io_functions_t){.write = put_message});
    if (output.messages) {
        setvbuf(output.messages, NULL, _IONBF, 0);
        stderr = output.messages;
    }
}

bool output_failed(void)
{
    if (fflush(stdout) != 0 && !output.problem) {
        output.problem = errno;
    }
    return output.problem != 0;
}

const char *output_problem(void)
{
    output.told = true;
    return output.problem == EPIPE && !output.pipe_is_error ? NULL : strerror(output.problem);
}

/* As if SIGPIPE had not been held back. It returns only if the signal is blocked. */
static void end_by_signal(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
}

int output_end(int code)
{
    output_failed();
    /* Some file systems say only now that there is no room. */
    if (close(1) < 0 && !output.problem) {
        output.problem = errno;
    }
    fclose(output.stream);
    stdout = NULL;
    if (!output.problem || code == EXIT_INTERRUPTED) {
        return code;
    }
    if (output.problem == EPIPE && !output.pipe_is_error) {
        end_by_signal();
    } else if (!output.told) {
        text_complain("writing to stdout: %s", strerror(output.problem));
    }
    return code ? code : EXIT_FAILED;
}
