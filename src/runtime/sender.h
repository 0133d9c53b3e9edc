/* The sending half of a transport: a queue in front of a descriptor that takes what it can.
 *
 *     rlm_sender_send      sends, or queues what the kernel does not take at once
 *     rlm_sender_flush     when the descriptor can be written to (rlm_sender_waits: if that is wanted)
 *
 * A descriptor passed along goes with the first byte of what it was given with. A broken connection is
 * no error: `broken` tells. Until `fd` is set everything is queued.
 */
#pragma once

#include "base/buf.h"
#include "base/vec.h"

enum { RLM_SENDER_MAX_BYTES = 8 << 20 }; /* a worker that does not read gets no more than this */

struct rlm_passed_fd {
    size_t at; /* goes with the byte at this place of the queue */
    int fd;
};

struct rlm_sender {
    int fd;      /* a socket, or a pipe if none are passed; not owned; -1: none yet */
    bool broken; /* nothing more can be sent */
    struct rlm_buf queue;
    size_t sent; /* of the queue */
    RLM_VEC(struct rlm_passed_fd) fds;
};

#define RLM_SENDER_INIT \
    ((struct rlm_sender){.fd = -1, .queue = {.max_bytes = RLM_SENDER_MAX_BYTES}})

/* As `send` of rlm_transport_ops. */
int rlm_sender_send(
    struct rlm_sender *s, const void *bytes, size_t len, int passed_fd, rlm_error **err);
void rlm_sender_flush(struct rlm_sender *s);
static inline size_t rlm_sender_queued(const struct rlm_sender *s)
{
    return s->queue.len - s->sent;
}
static inline bool rlm_sender_waits(const struct rlm_sender *s)
{
    return s->fd >= 0 && !s->broken && rlm_sender_queued(s) > 0;
}
void rlm_sender_deinit(struct rlm_sender *s);
