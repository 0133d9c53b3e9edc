/* Runtimes open sessions; a session is one live Python REPL of one agent.
 *
 *     start(code)      -> finished | suspended
 *     resume(results)  -> finished | suspended
 *     close()
 *
 * The session speaks the protocol of docs/protocol.md over whatever transport its runtime gives it,
 * checks every frame against its state, keeps the clocks of a cell, and turns what goes wrong into
 * a value: an event with a reason. It never looks inside calls but for streams and blobs.
 *
 * What a session is made of is its runtime's: session.c speaks with a worker over a transport of the
 * runtime's.
 */
#pragma once

#include "base/json.h"
#include "base/loop.h"
#include "graph/blob.h"

/* `rlm_runtime` is public. */

typedef struct rlm_session rlm_session;

enum {
    RLM_SESSION_MAX_VALUE = 1 << 30,       /* bytes of one value that a worker sends */
    RLM_SESSION_MAX_MESSAGE = 32 << 20,    /* bytes of one message's JSON, beside its streams */
    RLM_SESSION_MAX_OPEN_CALLS = 65536,    /* unanswered at once */
    RLM_SESSION_MAX_RESULTS = 256 << 20,   /* bytes of results that wait for the worker */
    RLM_SESSION_INTERRUPT_GRACE_MS = 2000, /* between the interrupt of a clock and the kill */
    RLM_SESSION_UNWIND_MS = 1000,          /* after `done`, and again after its interrupt */
    RLM_SESSION_STALL_MS = 30000,          /* without taking anything of what is being sent */
};

/* What an agent's session starts with; copied or used before rlm_session_open returns. */
struct rlm_session_options {
    rlm_blobs *blobs;               /* of the run; the session holds a reference */
    const char *agent_id;           /* whose session it is; NULL: not told */
    int depth;                      /* of that agent */
    rlm_str open_json;              /* the payload of `open` (docs/protocol.md) */
    const char *const *input_blobs; /* ids of the blobs the inputs name, NULL-terminated */
    const char *working_directory;  /* NULL: the runtime's */
    uint64_t exec_timeout_ms;       /* a cell, while no host call is open; 0: no limit */
    uint64_t cpu_time_ms;           /* a cell, always; 0: no limit */
    uint64_t open_timeout_ms;       /* until `ready`; 0: no limit */
    int64_t last_call;              /* ids of host calls begin behind it, as `open_json` says */
    /* The caller passes the word: the cell goes on with rlm_session_resume alone, also with no
     * results; `suspended` comes each time that the worker gives the word back, `woken` when it wants
     * it. */
    bool by_hand;
};

/* One host call as the worker made it. */
struct rlm_host_call {
    int64_t id;
    rlm_str name;
    const rlm_json *args;   /* an array; borrowed until the event returns */
    const rlm_json *kwargs; /* an object */
};

/* The answer to a host call: `value_json` (a value of the encoding), or an error. */
struct rlm_call_result {
    int64_t id;
    rlm_str value_json;
    const char *error_type; /* NULL: a value */
    rlm_str error_message;
    const char *error_reason;
    const char *error_agent_id;
};

struct rlm_cell_finished {
    rlm_str output;
    uint64_t omitted_chars; /* between head and tail of the output */
    const char *error_type; /* NULL: none; "CellInterrupted" after a clock ran out */
    rlm_str error_message;
    rlm_str traceback; /* for the model, without paths of the host */
    const char *clock; /* "exec_timeout" or "cpu_time" when that clock ended the cell, else NULL */
    const rlm_json *notes;           /* an array of texts, or NULL */
    const rlm_json *bound, *unbound; /* arrays of the names that changed, or NULL */
};

/* How a session ended by itself or was killed. */
struct rlm_session_death {
    /* "exit", "signal", "exec_timeout", "cpu_time", "memory", "protocol", "open", "killed", or "disk": the
     * run's blobs could not be written or read. */
    const char *reason;
    rlm_str message; /* for people and models: what happened, with values of limits. Of "disk":
                         * for people alone, it names a path of the host */
    rlm_str output;  /* of the cell under way, as far as it is known */
    bool during_cell;
};

/* Events come on the loop, never inside a call of this header. After `died` no event comes. What
 * they point to is borrowed until they return; every call of this header is allowed inside them,
 * rlm_session_close too. */
struct rlm_session_events {
    void (*ready)(void *arg, rlm_str ready_json);
    /* The cell waits for calls; `n_calls` are new, 0 when it waits on for older ones. */
    void (*suspended)(void *arg, const struct rlm_host_call *calls, size_t n_calls);
    void (*finished)(void *arg, const struct rlm_cell_finished *how);
    void (*died)(void *arg, const struct rlm_session_death *how);
    /* In mid-cell the code gave up these open calls (ascending): nobody waits for their answers any
     * more. NULL: not told. */
    void (*given_up)(void *arg, const int64_t *ids, size_t n_ids);
    void (*woken)(void *arg); /* by hand only */
};

/* Opens a session; `ready` or `died` follows. */
int rlm_session_open(rlm_runtime *r,
                     const struct rlm_session_options *options,
                     const struct rlm_session_events *events,
                     void *arg,
                     rlm_session **ret_session,
                     rlm_error **err);
/* The next cell finds this value (JSON of the encoding; it may name blobs) as RECOVERED. RLM_E_INVAL for
 * a blob that is unknown. */
int rlm_session_recover(rlm_session *s, rlm_str value_json, rlm_error **err);
/* Runs a cell; the session must be ready and idle. */
int rlm_session_start(rlm_session *s, int64_t cell, rlm_str code, rlm_error **err);
/* Hands over results of open calls, in this order. If a start/resume is outstanding they are kept
 * and a `yield` is sent; the session resumes by itself also after `wake`. So the caller never needs
 * to know who has the word. Results may name blobs; the session announces them first. A result for
 * a call that ended with its cell is dropped. RLM_E_INVAL (a call or blob that never was; nothing is
 * taken of this and later results), RLM_E_LIMIT, RLM_E_SESSION (it has died). */
int rlm_session_resume(rlm_session *s,
                       const struct rlm_call_result *results,
                       size_t n_results,
                       rlm_error **err);
/* A cell that has nothing more to say after `done` was accepted: 1 s to unwind, then the interrupt,
 * then, after another second, the kill. */
void rlm_session_unwind(rlm_session *s);
/* Ends the cell under way: the interrupt, then after `grace_ms` the kill. */
void rlm_session_interrupt(rlm_session *s, const char *reason, rlm_str message, uint64_t grace_ms);
/* Stops the clocks of the cell and lets them go on (while a gate is open). */
void rlm_session_pause(rlm_session *s, bool paused);
/* Ends the session and all its processes. No event comes. NULL allowed. */
void rlm_session_close(rlm_session *s);

bool rlm_session_is_busy(const rlm_session *s); /* a cell is under way */
/* It is to be closed before its run has ended, and not only when there is time. */
bool rlm_session_closes_early(const rlm_session *s);

/* What sessions of this runtime can do to the world: "none" or "outside". */
const char *rlm_runtime_effects(const rlm_runtime *r);
const char *rlm_runtime_name(const rlm_runtime *r);
/* A model call can wait for a session. */
bool rlm_runtime_opens_soon(const rlm_runtime *r);

/* For implementations: what a session does with these calls. */
struct rlm_session_ops {
    int (*recover)(rlm_session *s, rlm_str value_json, rlm_error **err);
    int (*start)(rlm_session *s, int64_t cell, rlm_str code, rlm_error **err);
    int (*resume)(rlm_session *s,
                  const struct rlm_call_result *results,
                  size_t n_results,
                  rlm_error **err);
    void (*unwind)(rlm_session *s);
    void (*interrupt)(rlm_session *s, const char *reason, rlm_str message, uint64_t grace_ms);
    void (*pause)(rlm_session *s, bool paused);
    void (*close)(rlm_session *s);
    bool (*is_busy)(const rlm_session *s);
    bool closes_early;
};
struct rlm_session {
    const struct rlm_session_ops *ops;
};

/* For implementations: a transport gives a session its bytes and its end. Events come on the loop,
 * never inside an operation. `free` may be called inside any event: the transport does not touch
 * itself after an event returned before it has returned to the loop. */
struct rlm_transport;
struct rlm_transport_events {
    void (*received)(void *arg, const void *bytes, size_t len);
    void (*drained)(void *arg); /* the queue has become empty */
    /* Once; all bytes came before. `reason` is one of rlm_session_death (a literal); `message` starts
     * with "the worker": "the worker was killed by signal 9 (SIGKILL)"; `said` is what it wrote to
     * its standard error while it could not speak the protocol, or empty. */
    void (*ended)(void *arg, const char *reason, rlm_str message, rlm_str said);
};
struct rlm_transport_ops {
    /* Sends bytes, or queues what the kernel does not take at once; with a descriptor to pass along
     * with the first byte (taken over in every case; -1: none). The session asks `queued` before it
     * sends more than control frames; past a maximum of its own the transport refuses
     * (RLM_E_LIMIT). A broken connection is no error here: `ended` tells. */
    int (*send)(struct rlm_transport *t, const void *bytes, size_t len, int fd, rlm_error **err);
    bool passes_descriptors;
    const char *killed; /* how a kill reads to people; NULL: "its worker was killed" */
    size_t (*queued)(const struct rlm_transport *t); /* bytes not yet taken by the kernel */
    int64_t (*cpu_ms)(
        const struct rlm_transport *t);    /* CPU time of the far side; -1 or NULL: unknown */
    void (*kill)(struct rlm_transport *t); /* all of it, at once; `ended` follows */
    void (*free)(struct rlm_transport *t); /* kills what is left; no event comes */
};
struct rlm_transport {
    const struct rlm_transport_ops *ops;
    const struct rlm_transport_events *events; /* set by the session */
    void *arg;
};
struct rlm_runtime {
    const struct rlm_runtime_ops *ops;
    rlm_loop *loop;
};
struct rlm_runtime_ops {
    const char *name;
    const char *effects;
    bool opens_soon;
    /* A transport with a worker at its far end that waits for `open`. */
    int (*connect)(rlm_runtime *r,
                   const struct rlm_session_options *options,
                   struct rlm_transport **ret_transport,
                   rlm_error **err);
    void (*free)(rlm_runtime *r);
    /* Opens a session that is not one of a worker; NULL: it is, and `connect` gives its transport. */
    int (*open)(rlm_runtime *r,
                const struct rlm_session_options *options,
                const struct rlm_session_events *events,
                void *arg,
                rlm_session **ret_session,
                rlm_error **err);
};
/* session.c: one of a worker. */
int rlm_session_open_worker(rlm_runtime *r,
                            const struct rlm_session_options *options,
                            const struct rlm_session_events *events,
                            void *arg,
                            rlm_session **ret_session,
                            rlm_error **err);
/* Of a session of a worker, by hand: asks for the word, if the worker has it. */
void rlm_session_ask_for_word(rlm_session *s);

/* The parts of worker/, joined and compiled in. */
extern const char rlm_worker_source[];
extern const size_t rlm_worker_source_size;
