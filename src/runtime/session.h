/* Inside of a session, shared by session*.c and nobody else.
 *
 *     session.c         its life: open, cells, results, how it ends
 *     session_in.c      frames that come, checked against the state
 *     session_stream.c  values and bodies that come in pieces
 *     session_value.c   the values in calls and results: what they may name
 *     session_out.c     what is sent, in which order, under whose credit
 *     session_clock.c   when a cell has had its time
 *
 * A function that returns int fails with the session's death in mind: the caller gives the error to
 * session_fail.
 */
#pragma once

#include "base/map.h"
#include "base/vec.h"
#include "runtime/frame.h"
#include "runtime/message.h"
#include "runtime/runtime.h"

enum session_state {
    SESSION_OPENING,   /* until `ready` */
    SESSION_IDLE,      /* no cell */
    SESSION_RUNNING,   /* a start or resume is outstanding: the worker has the word */
    SESSION_SUSPENDED, /* a cell waits, the engine has the word */
    SESSION_DEAD,
};

/* ---- what comes in pieces -------------------------------------------------------------------- */

struct in_stream {
    uint16_t number;
    uint8_t kind;        /* text, bytes or body */
    bool ended;          /* a body that its control frame has not named yet */
    uint32_t owed_bytes; /* taken in and not granted anew */
    rlm_blob_writer *writer;
    struct rlm_buf body;
};

struct in_streams {
    RLM_VEC(struct in_stream) open;
    const struct rlm_blob **ended; /* by stream number; NULL until the first */
    uint64_t blob_bytes;           /* of all values so far */
    uint64_t body_bytes;           /* held now */
};

/* ---- what is sent ---------------------------------------------------------------------------- */

/* A blob being opened on the pool. Outlives its session when that is closed meanwhile. */
struct blob_opening {
    struct worker_session *session; /* NULL: gone */
    rlm_blobs *blobs;
    const struct rlm_blob *blob;
    int result;
    int fd;
    int width;
    bool ascii;
    rlm_error *err;
};

struct out_item {
    struct out_item *next;
    uint8_t kind;         /* of the control frame */
    struct rlm_buf frame; /* room for a header, then the payload; not for blobs */
    const struct rlm_blob *blob;
    struct blob_opening *opening;
    uint16_t stream; /* of what goes in pieces; 0: not begun */
    uint64_t sent_bytes;
    uint64_t credit_bytes; /* left */
};

struct out_queue {
    struct out_item *first;
    struct out_item **last;
    size_t held_bytes;    /* payloads in the queue */
    uint64_t sequence;    /* of the last frame sent */
    uint16_t stream;      /* the last number used */
    struct rlm_buf frame; /* being built; reused */
};

/* ---- clocks ---------------------------------------------------------------------------------- */

/* All due times are microseconds of rlm_now_us; 0: not set. */
struct session_clock {
    rlm_timer *timer;
    uint64_t armed_us; /* when the timer fires; 0: it is not set */
    bool paused;
    uint64_t exec_used_us;
    uint64_t exec_since_us; /* it counts since then; 0: it does not */
    uint64_t cpu_due_us;    /* the next sample */
    bool cpu_known;         /* `cpu_base_ms` has been sampled */
    int64_t cpu_base_ms;    /* of the worker when the cell began, or after a pause */
    int64_t cpu_used_ms;    /* before the last pause */
    uint64_t open_due_us;
    uint64_t unwind_due_us; /* when the interrupt follows */
    uint64_t kill_due_us;
    uint64_t stall_due_us;
};

/* The session of a worker. */
struct worker_session {
    rlm_session base; /* first: a session is cast to it */
    rlm_loop *loop;
    struct rlm_transport *transport;
    rlm_blobs *blobs;
    const struct rlm_session_events *events;
    void *arg;
    struct rlm_session_events events_copy;
    uint64_t exec_timeout_ms, cpu_time_ms, open_timeout_ms;

    enum session_state state;
    bool by_hand;
    bool was_ready;
    int64_t cell;   /* the last one started */
    unsigned depth; /* events being handled: it is freed when they are done */
    bool closed;

    struct rlm_frame_decoder decoder;
    rlm_arena *arena; /* of the message being handled */
    struct in_streams in;
    struct rlm_map blob_flags;  /* blob id -> BLOB_... */
    struct rlm_buf cell_output; /* of the cell under way */

    struct out_queue out;
    struct session_clock clock;

    int64_t last_call_id;
    RLM_VEC(int64_t) open_calls; /* ascending */
    struct rlm_buf recovered;    /* JSON for the next cell; empty: none */
    struct rlm_buf results;      /* a `resume` in the making: header's room and its start */
    size_t n_results;
    bool woken;        /* the worker asked for the word */
    bool yield_sent;   /* since the last start or resume */
    bool in_suspended; /* inside the event: results are collected */

    bool interrupted; /* in this cell */
    char interrupt_reason[64];
    const char *interrupt_clock; /* "exec_timeout", "cpu_time" or NULL */
    uint64_t interrupt_grace_ms;
    bool unwinding;

    rlm_defer *death_defer;
    const char *death_reason;
    struct rlm_buf death_message;
    bool died_in_cell;
};

/* What a session may do with a blob; kept as a pointer's bits in `blob_flags`. */
enum {
    BLOB_ALLOWED = 1,   /* the worker was given it or sent it */
    BLOB_ANNOUNCED = 2, /* the worker knows it by name */
};

enum { SESSION_MAX_BLOBS = 200 * 1000 }; /* that a session can name */

/* ---- session.c ------------------------------------------------------------------------------- */

static inline bool session_is_busy(const struct worker_session *s)
{
    return s->state == SESSION_RUNNING || s->state == SESSION_SUSPENDED;
}
/* Ends the session: the worker is killed, `died` follows on a later turn. Once; later ones are
 * ignored. `reason` is a literal. */
void session_die(struct worker_session *s, const char *reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for an error: "protocol" when it is one of the protocol, else "killed". */
void session_fail(struct worker_session *s, const rlm_error *err);
/* What storing or reading a blob gave, passed on; if the store itself failed the session ends as "disk",
 * which is no fault of its worker, and whose message is not for agents. */
int session_stored(struct worker_session *s, int result, const rlm_error *err);
/* The worker has returned the word with a cell that goes on, or asked for it. */
void session_pass_results(struct worker_session *s);
/* A cell has ended: what belonged to it goes. */
void session_end_cell(struct worker_session *s);
void session_interrupt(struct worker_session *s,
                       const char *reason,
                       const char *clock,
                       rlm_str message,
                       uint64_t grace_ms);

/* ---- session_in.c ---------------------------------------------------------------------------- */

void session_received(struct worker_session *s, const void *bytes, size_t len);

/* ---- session_stream.c ------------------------------------------------------------------------ */

/* A text, bytes or body frame. */
int session_stream_frame(struct worker_session *s, const struct rlm_frame *f, rlm_error **err);
/* Moves the body of an ended stream out; the caller frees it. */
int session_stream_take_body(struct worker_session *s,
                             uint16_t number,
                             struct rlm_buf *ret_body,
                             rlm_error **err);
/* The blob that the last stream of this number became; NULL: none has ended. */
const struct rlm_blob *session_stream_blob(const struct worker_session *s, uint16_t number);
void session_streams_deinit(struct worker_session *s);

/* ---- session_value.c ------------------------------------------------------------------------- */

int session_allow_blob(struct worker_session *s, const char *id, int flags, rlm_error **err);
int session_blob_flags(const struct worker_session *s, rlm_str id);
/* Checks the values of a call and turns their streams into blobs, in place. */
int session_take_values(struct worker_session *s,
                        const struct rlm_host_call *call,
                        rlm_error **err);
/* Announces the blobs that a value for the worker names. RLM_E_INVAL for one that is unknown. */
int session_announce_blobs(struct worker_session *s, rlm_str value_json, rlm_error **err);

/* ---- session_out.c --------------------------------------------------------------------------- */

/* A short control frame ahead of all that waits. */
int session_send_now(
    struct worker_session *s, uint8_t kind, uint16_t stream, rlm_str payload, rlm_error **err);
/* The same for one that was built as for session_send. */
int session_send_ahead(struct worker_session *s,
                       uint8_t kind,
                       struct rlm_buf *frame,
                       rlm_error **err);
/* A control frame in its turn: `frame` has RLM_FRAME_HEADER bytes of room before the payload, and is
 * empty, with or without its memory, after success. */
int session_send(struct worker_session *s, uint8_t kind, struct rlm_buf *frame, rlm_error **err);
/* A blob's announcement, in its turn. */
int session_send_blob(struct worker_session *s, const struct rlm_blob *blob, rlm_error **err);
/* Clears the shared frame and leaves room for a header. */
struct rlm_buf *session_new_frame(struct worker_session *s);
/* The worker grants bytes for a stream. */
int session_credit(struct worker_session *s, uint16_t stream, uint32_t bytes, rlm_error **err);
/* Sends what can be sent now. */
void session_pump(struct worker_session *s);
/* Something is on its way to the worker. */
bool session_out_pending(const struct worker_session *s);
/* It waits for the worker to read. */
bool session_out_waits(const struct worker_session *s);
/* A frame of this kind stands in the queue. */
bool session_out_has(const struct worker_session *s, uint8_t kind);
void session_out_deinit(struct worker_session *s);

/* ---- session_clock.c ------------------------------------------------------------------------- */

void session_clock_fired(void *arg);
void session_clock_begin_cell(struct worker_session *s);
void session_clock_pause(struct worker_session *s, bool paused);
/* To be called when anything changed that a clock depends on. */
void session_clock_update(struct worker_session *s);
/* The worker took something of what is being sent. */
void session_clock_progress(struct worker_session *s);
/* "2 s", "1.5 s", "300 ms" */
const char *session_duration(uint64_t ms, char out[32]);
