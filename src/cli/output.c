#include "cli/output.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct {
    FILE *stream;
    int problem; /* errno of the first write that failed */
    bool told;
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

static ssize_t put(void *cookie, const char *bytes, size_t len)
{
    size_t done = 0;
    while (done < len && !output.problem) {
        ssize_t n = write(1, bytes + done, len - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            output.problem = errno;
        }
    }
    errno = output.problem;
    return (ssize_t)done;
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
