#include "runtime/sender.h"

#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* write(2) to a pipe that may be broken, in a program that may not ignore SIGPIPE. */
static ssize_t write_quietly(int fd, const char *bytes, size_t len)
{
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    ssize_t n = write(fd, bytes, len);
    int why = errno;
    if (n < 0 && why == EPIPE && !sigismember(&pending, SIGPIPE)) {
        sigtimedwait(&pipe_only, NULL, &(struct timespec){0});
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return n;
}

static ssize_t send_with(int to_fd, const char *bytes, size_t len, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof control.bytes,
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    return sendmsg(to_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What the kernel takes at once: a number of bytes, 0 if none; negative: an errno. */
static ssize_t send_some(const struct rlm_sender *s, const char *bytes, size_t len, int fd)
{
    ssize_t n;
    do {
        if (fd >= 0) {
            n = send_with(s->fd, bytes, len, fd);
        } else {
            n = send(s->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno == ENOTSOCK) {
                n = write_quietly(s->fd, bytes, len);
            }
        }
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return errno == EAGAIN || errno == ENOBUFS ? 0 : -errno;
    }
    return n;
}

static void drop_queue(struct rlm_sender *s)
{
    for (size_t i = 0; i < s->fds.len; i++) {
        close(s->fds.items[i].fd);
    }
    s->fds.len = 0;
    s->sent = 0;
    rlm_buf_deinit(&s->queue);
    s->queue = RLM_BUF(RLM_SENDER_MAX_BYTES);
}

/* A queue that is never quite empty must not keep all that went through it. What is moved is less than what has
 * been sent since the last time, unless the queue is full. */
static void drop_sent(struct rlm_sender *s, size_t wanted)
{
    if (s->sent > rlm_sender_queued(s) || s->queue.len + wanted > RLM_SENDER_MAX_BYTES) {
        rlm_buf_drop(&s->queue, s->sent);
        for (size_t i = 0; i < s->fds.len; i++) {
            s->fds.items[i].at -= s->sent;
        }
        s->sent = 0;
    }
}

static int enqueue(struct rlm_sender *s, const char *bytes, size_t len, int fd, rlm_error **err)
{
    drop_sent(s, len);
    if (fd >= 0) {
        struct rlm_passed_fd *p = rlm_vec_push(&s->fds);
        if (!p) {
            close(fd);
            return rlm_error_nomem(err);
        }
        *p = (struct rlm_passed_fd){.at = s->queue.len, .fd = fd};
    }
    if (rlm_buf_add(&s->queue, bytes, len) < 0) {
        int r = rlm_buf_check(&s->queue, err);
        s->broken = true; /* the stream has lost a piece */
        drop_queue(s);
        return r == RLM_E_LIMIT ? rlm_error_set(err, r, "%d MiB wait for it and it does not read",
                                                RLM_SENDER_MAX_BYTES >> 20)
                                : r;
    }
    return 0;
}

int rlm_sender_send(struct rlm_sender *s, const void *bytes, size_t len, int fd, rlm_error **err)
{
    ssize_t n = 0;
    if (!s->broken && s->fd >= 0 && s->queue.len == 0) {
        n = send_some(s, bytes, len, fd);
        s->broken = n < 0;
    }
    if (s->broken || (size_t)n == len) {
        if (fd >= 0) {
            close(fd);
        }
        return n < 0 && n != -EPIPE && n != -ECONNRESET
                   ? rlm_error_set_errno(err, RLM_E_IO, (int)-n, "sending to the worker")
                   : 0;
    }
    if (n > 0 && fd >= 0) {
        close(fd);
        fd = -1;
    }
    return enqueue(s, (const char *)bytes + n, len - (size_t)n, fd, err);
}

/* A descriptor goes with the first byte of what follows it, and ends what can be sent before it. */
void rlm_sender_flush(struct rlm_sender *s)
{
    while (rlm_sender_waits(s)) {
        bool passes = s->fds.len && s->fds.items[0].at == s->sent;
        size_t next = passes ? 1 : 0;
        size_t end = s->fds.len > next ? s->fds.items[next].at : s->queue.len;
        ssize_t n =
            send_some(s, s->queue.ptr + s->sent, end - s->sent, passes ? s->fds.items[0].fd : -1);
        if (n == 0) {
            return;
        }
        if (n < 0) {
            s->broken = true;
            break;
        }
        if (passes) {
            close(s->fds.items[0].fd);
            rlm_vec_remove(&s->fds, 0);
        }
        s->sent += (size_t)n;
    }
    drop_queue(s);
}

void rlm_sender_deinit(struct rlm_sender *s)
{
    drop_queue(s);
    free(s->fds.items);
}
