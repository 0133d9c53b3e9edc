/* The queue in front of a worker's stream. */
#include "harness.h"
#include "runtime/sender.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 64 << 10, PIECES = 512 }; /* 32 MiB, four times what may wait */

static char byte_at(size_t at)
{
    return (char)(at * 2654435761u >> 24);
}

static void fill(char *piece, size_t at)
{
    for (size_t i = 0; i < PIECE; i++) {
        piece[i] = byte_at(at + i);
    }
}

/* Takes at most `most` bytes, which must be those that follow `*at`. */
static void take(int fd, size_t most, size_t *at)
{
    static char bytes[PIECE];
    while (most > 0) {
        ssize_t n = read(fd, bytes, most < sizeof bytes ? most : sizeof bytes);
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++) {
            if (bytes[i] != byte_at(*at + (size_t)i)) {
                CHECK_INT(*at + (size_t)i, -1); /* the first that differs */
            }
        }
        *at += (size_t)n;
        most -= (size_t)n;
    }
}

TEST(more_than_may_wait_goes_through_a_queue_that_is_never_empty)
{
    static char piece[PIECE];
    struct rlm_sender s = RLM_SENDER_INIT;
    rlm_error *err = NULL;
    size_t taken = 0;
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    s.fd = ends[1];
    for (size_t i = 0; i < PIECES; i++) {
        fill(piece, i * PIECE);
        CHECK_INT(rlm_sender_send(&s, piece, PIECE, -1, &err), 0);
        if (i >= 8) { /* eight pieces wait, in the pipe and before it */
            take(ends[0], PIECE, &taken);
            rlm_sender_flush(&s);
            CHECK(rlm_sender_waits(&s));
        }
    }
    while (taken < (size_t)PIECES * PIECE) {
        take(ends[0], PIECE, &taken);
        rlm_sender_flush(&s);
    }
    CHECK(!rlm_sender_waits(&s) && !s.broken);
    rlm_sender_deinit(&s);
    close(ends[0]);
    close(ends[1]);
}

TEST(who_does_not_read_gets_no_more_than_may_wait)
{
    static char piece[PIECE];
    struct rlm_sender s = RLM_SENDER_INIT;
    rlm_error *err = NULL;
    int ends[2], r = 0;
    size_t sent = 0;
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    s.fd = ends[1];
    while (r == 0 && sent < PIECES) {
        r = rlm_sender_send(&s, piece, PIECE, -1, &err);
        sent++;
    }
    CHECK_INT(r, RLM_E_LIMIT);
    CHECK(s.broken && sent * PIECE > RLM_SENDER_MAX_BYTES);
    rlm_error_free(err);
    rlm_sender_deinit(&s);
    close(ends[0]);
    close(ends[1]);
}

/* Whether a descriptor came with the next byte, which must be that at `at`. */
static bool take_byte(int fd, size_t at)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec one = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    CHECK_INT(recvmsg(fd, &message, MSG_CMSG_CLOEXEC), 1);
    CHECK_INT(byte, byte_at(at));
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    int passed;
    if (c) {
        memcpy(&passed, CMSG_DATA(c), sizeof passed);
        close(passed);
    }
    return c != NULL;
}

/* Takes a piece; every third comes with a descriptor at its first byte. */
static void take_piece(struct rlm_sender *s, int fd, size_t piece)
{
    size_t at = piece * PIECE;
    rlm_sender_flush(s);
    CHECK_INT(take_byte(fd, at), piece % 3 == 0);
    at++;
    while (at < (piece + 1) * PIECE) {
        take(fd, (piece + 1) * PIECE - at, &at);
        rlm_sender_flush(s);
    }
}

TEST(descriptors_keep_their_bytes_when_what_was_sent_is_dropped)
{
    enum { ALL = 200, WAITING = 16 };
    static char piece[PIECE];
    struct rlm_sender s = RLM_SENDER_INIT;
    rlm_error *err = NULL;
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    s.fd = ends[1];
    for (size_t i = 0; i < ALL; i++) {
        fill(piece, i * PIECE);
        int passed = i % 3 == 0 ? fcntl(ends[0], F_DUPFD_CLOEXEC, 0) : -1;
        CHECK_INT(rlm_sender_send(&s, piece, PIECE, passed, &err), 0);
        if (i >= WAITING) {
            take_piece(&s, ends[0], i - WAITING);
        }
    }
    for (size_t i = ALL - WAITING; i < ALL; i++) {
        take_piece(&s, ends[0], i);
    }
    CHECK(!rlm_sender_waits(&s) && !s.broken);
    rlm_sender_deinit(&s);
    close(ends[0]);
    close(ends[1]);
}
