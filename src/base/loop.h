/* The event loop: timers, descriptors, deferred calls and the pool for blocking work.
 *
 * One thread owns a loop and all that hangs on it.
 * The seam to libuv: no other file includes <uv.h>. Objects are freed at once from the caller's
 * view, also inside their own callback; no callback comes after that.
 *
 * A loop is dead in a process forked from the one that made it (the kernel object is shared with the
 * parent, so touching it would disturb the parent): there rlm_loop_run returns at once,
 * rlm_loop_dispatch returns false, watches and rlm_loop_free do nothing, and rlm_work_start fails.
 */
#pragma once

#include "base/str.h"

#include <stdint.h>

/* `rlm_loop`, rlm_loop_new/free and the embedding functions (fd, timeout, dispatch) are public. */
#include "rlmflow.h"

/* Runs until `rlm_loop_stop` or until nothing is left to wait for: no timer set, no descriptor
 * watched, no call deferred, no work or process under way. Not to be called from a callback. A stop
 * asked for while it does not run ends the next run at once. */
void rlm_loop_run(rlm_loop *loop);
void rlm_loop_stop(rlm_loop *loop);
/* Turns it once, waiting for something to happen; false when nothing is left to wait for. */
bool rlm_loop_turn(rlm_loop *loop);
/* What rlm_loop_free waits for although its owner has let go of it (a killed process that has not
 * ended yet). Each hold is released once, from a callback of the loop. */
void rlm_loop_hold(rlm_loop *loop);
void rlm_loop_release(rlm_loop *loop);

/* Milliseconds / microseconds of a monotonic clock, read anew at each call. */
uint64_t rlm_now_ms(void);
uint64_t rlm_now_us(void);
/* Microseconds since 1970, for records. */
int64_t rlm_wall_us(void);
/* Fills with unpredictable bytes (getrandom). */
void rlm_random(void *ptr, size_t len);

typedef void (*rlm_callback)(void *arg);

/* A one-shot timer that can be set again. It never fires inside rlm_timer_set, and with 0 in a later
 * turn. The time counts from the call. A set timer keeps rlm_loop_run going. */
typedef struct rlm_timer rlm_timer;
rlm_timer *rlm_timer_new(rlm_loop *loop, rlm_callback fire, void *arg); /* NULL: out of memory */
void rlm_timer_set(rlm_timer *t, uint64_t after_ms);
void rlm_timer_stop(rlm_timer *t);
bool rlm_timer_is_set(const rlm_timer *t);
void rlm_timer_free(rlm_timer *t); /* NULL allowed */

/* Watches a descriptor (a socket, a pipe, a pidfd; not owned), which becomes non-blocking. One watch
 * a descriptor at a time. An error or hang-up is told as whatever is watched for: the read or write
 * that follows finds it. Stop or free the watch before the descriptor is closed. */
enum { RLM_READABLE = 1, RLM_WRITABLE = 2 };
typedef struct rlm_watch rlm_watch;
typedef void (*rlm_watch_callback)(void *arg, int events);
/* NULL: out of memory, or `fd` cannot be watched (a file, a directory, or watched already). */
rlm_watch *rlm_watch_new(rlm_loop *loop, int fd, rlm_watch_callback ready, void *arg);
/* events = 0 stops watching; otherwise RLM_READABLE | RLM_WRITABLE, level-triggered. 0, RLM_E_NOMEM
 * or RLM_E_IO. */
int rlm_watch_set(rlm_watch *w, int events);
void rlm_watch_free(rlm_watch *w); /* NULL allowed; the descriptor may be closed right after it */

/* Calls `run(arg)` on a later turn of the loop, in the order of the requests. The object is one-shot
 * but can be scheduled again; scheduling twice before it ran runs it once. This is how an operation
 * completes without completing inside its own start. */
typedef struct rlm_defer rlm_defer;
rlm_defer *rlm_defer_new(rlm_loop *loop, rlm_callback run, void *arg);
void rlm_defer_schedule(rlm_defer *d);
void rlm_defer_cancel(rlm_defer *d);
void rlm_defer_free(rlm_defer *d); /* NULL allowed */

/* Blocking work on a pool thread: `work(arg)` there, then `done(arg)` on the loop. Always completes;
 * there is no cancel, so `arg` must live until `done`, for which rlm_loop_free waits too. 0 or a
 * negative code. */
int rlm_work_start(
    rlm_loop *loop, rlm_callback work, rlm_callback done, void *arg, rlm_error **err);
