/* A server of canned answers on the loopback interface, in a thread of the test: the n-th request
 * gets the n-th answer. Answers are sent in the pieces they are given in; "Content-Length: ???" is
 * filled in. */
#pragma once

#include "harness.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CANNED_MAX = 16 };

enum canned_end {
    CANNED_KEEP,  /* the connection stays open for the next request */
    CANNED_CLOSE, /* closed after the answer */
    CANNED_RESET, /* closed with a reset */
    CANNED_HOLD,  /* nothing more, until the client leaves */
};

struct canned {
    const char *pieces[12]; /* NULL-terminated */
    enum canned_end end;
};

struct canned_server {
    int fd;
    int port;
    pthread_t thread;
    const struct canned *answers;
    size_t n_answers;
    atomic_int n_requests, n_connections;
    char *requests[CANNED_MAX];
};

static inline char *canned_read(int fd)
{
    size_t len = 0, cap = 1 << 20, wanted = 0;
    char *text = malloc(cap + 1);
    while (len < cap) {
        ssize_t got = read(fd, text + len, cap - len);
        if (got <= 0) {
            free(text);
            return NULL;
        }
        len += (size_t)got;
        text[len] = '\0';
        char *end = strstr(text, "\r\n\r\n");
        if (end && !wanted) {
            char *length = strcasestr(text, "content-length:");
            wanted =
                (size_t)(end - text) + 4 + (length && length < end ? (size_t)atol(length + 15) : 0);
        }
        if (wanted && len >= wanted) {
            break;
        }
    }
    return text;
}

static inline bool canned_send(int fd, const char *piece)
{
    char *copy = strdup(piece);
    char *gap = strstr(copy, "Content-Length: ???");
    if (gap) {
        char digits[24];
        snprintf(digits, sizeof digits, "%03zu", strlen(strstr(copy, "\r\n\r\n") + 4));
        memcpy(gap + 16, digits, 3);
    }
    bool sent = send(fd, copy, strlen(copy), MSG_NOSIGNAL) >= 0;
    free(copy);
    return sent;
}

/* False when the connection is not to be used again. */
static inline bool canned_answer(int fd, const struct canned *answer)
{
    for (const char *const *piece = answer->pieces; *piece; piece++) {
        if (piece != answer->pieces) {
            usleep(3000); /* so that it is a segment of its own */
        }
        if (!canned_send(fd, *piece)) {
            return false;
        }
    }
    if (answer->end == CANNED_HOLD) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, -1);
        return false;
    }
    if (answer->end == CANNED_RESET) {
        usleep(10000); /* a reset overtakes what is not read yet */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    }
    return answer->end == CANNED_KEEP;
}

struct canned_connection {
    struct canned_server *server;
    int fd;
};

static inline void *canned_serve(void *arg)
{
    struct canned_connection c = *(struct canned_connection *)arg;
    free(arg);
    char *request;
    while ((request = canned_read(c.fd))) {
        int n = atomic_fetch_add(&c.server->n_requests, 1);
        if (n >= (int)c.server->n_answers || n >= CANNED_MAX) {
            free(request);
            break;
        }
        c.server->requests[n] = request;
        if (!canned_answer(c.fd, &c.server->answers[n])) {
            break;
        }
    }
    close(c.fd);
    return NULL;
}

static inline void *canned_accept(void *arg)
{
    struct canned_server *s = arg;
    int fd;
    while ((fd = accept(s->fd, NULL, NULL)) >= 0) {
        struct canned_connection *c = malloc(sizeof *c);
        pthread_t thread;
        *c = (struct canned_connection){s, fd};
        atomic_fetch_add(&s->n_connections, 1);
        pthread_create(&thread, NULL, canned_serve, c);
        pthread_detach(thread);
    }
    return NULL;
}

/* The process of the test ends with the threads in it. */
static inline void canned_start(struct canned_server *s, const struct canned *answers, size_t n)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    *s = (struct canned_server){.answers = answers, .n_answers = n};
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(s->fd, (struct sockaddr *)&address, len) == 0 && listen(s->fd, 64) == 0);
    CHECK(getsockname(s->fd, (struct sockaddr *)&address, &len) == 0);
    s->port = ntohs(address.sin_port);
    CHECK(pthread_create(&s->thread, NULL, canned_accept, s) == 0);
}
