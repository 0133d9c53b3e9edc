/* A worker in a child process: what it is told comes through a socket that is its descriptor 3 and
 * passes descriptors too; what it says goes out through a pipe that is its descriptor 4, since waking
 * the reader of a pipe costs less. Either end that the worker closes ends it.
 *
 * The child starts with /dev/null as its input, and with a pipe as its output and standard error
 * until the worker puts its own there: what an interpreter says that cannot run the worker (a syntax
 * error, a missing module, a wrong version) becomes part of how it ended. The worker's source is
 * pushed through the socket as runtime/stub.h expects, so a child that was started ahead waits for
 * `open` with everything imported.
 */
#pragma once

#include "base/process.h"
#include "runtime/runtime.h"

enum { RLM_CHILD_BUFFER = 256 * 1024 };

struct rlm_child_options {
    const char *const *argv; /* all of it: the interpreter, RLM_WORKER_PROGRAM, the numbers */
    const char *const *env;
    const char *working_directory;
    /* It is a command at whose far end the worker is: the stream is its standard input and output, and passes no
     * descriptors; its standard error is what it says, and its processor time not the worker's. */
    bool is_command;
    rlm_str worker; /* what the stub shall run: the worker's text, or its compiled form */
    char *buffer; /* RLM_CHILD_BUFFER bytes for receiving, shared by all children; outlives them */
    /* It ended before a session had it; it must be freed then (also inside). */
    void (*spare_ended)(void *arg, struct rlm_transport *t);
    void *arg;
};

/* Starts it. The transport is free for a session as soon as `events` is set and rlm_child_attach has
 * been called. RLM_E_NOT_FOUND: there is no such program. */
int rlm_child_start(rlm_loop *loop,
                    const struct rlm_child_options *options,
                    struct rlm_transport **ret_transport,
                    rlm_error **err);
/* From now on what it says is read and its end is told to the session. */
void rlm_child_attach(struct rlm_transport *t);
/* False as soon as its end has been noticed, which `spare_ended` tells on a later turn. */
bool rlm_child_alive(const struct rlm_transport *t);
