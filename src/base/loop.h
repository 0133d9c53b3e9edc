/* The event loop: timers, descriptors, deferred calls and the pool for blocking work.
 *
 * One thread owns a loop and all that hangs on it; only `rlm_loop_wake` may be called from others.
 * The seam to libuv: no other file includes <uv.h>. Objects are freed at once from the caller's
 * view, also inside their own callback; no callback comes after that.
 */
#pragma once

#include "base/str.h"

#include <stdint.h>

/* `rlm_loop`, rlm_loop_new/free and the embedding functions (fd, timeout, dispatch) are public. */
#include "rlmflow.h"

/* Runs until `rlm_loop_stop` or until nothing is left to wait for. */
void rlm_loop_run(rlm_loop *loop);
void rlm_loop_stop(rlm_loop *loop);
/* From any thread: makes the loop turn once and call the wake callback, on the loop's thread. */
void rlm_loop_on_wake(rlm_loop *loop, void (*wake)(void *arg), void *arg);
void rlm_loop_wake(rlm_loop *loop);

/* Milliseconds / microseconds of a monotonic clock, read anew at each call. */
uint64_t rlm_now_ms(void);
uint64_t rlm_now_us(void);
/* Microseconds since 1970, for records. */
int64_t rlm_wall_us(void);
/* Fills with unpredictable bytes (getrandom). */
void rlm_random(void *ptr, size_t len);

typedef void (*rlm_callback)(void *arg);

/* A one-shot timer that can be set again. It never fires inside rlm_timer_set. A set timer keeps
 * rlm_loop_run going. */
typedef struct rlm_timer rlm_timer;
rlm_timer *rlm_timer_new(rlm_loop *loop, rlm_callback fire, void *arg); /* NULL: out of memory */
void rlm_timer_set(rlm_timer *t, uint64_t after_ms);
void rlm_timer_stop(rlm_timer *t);
bool rlm_timer_is_set(const rlm_timer *t);
void rlm_timer_free(rlm_timer *t); /* NULL allowed */

/* Watches a descriptor (a socket, a pipe, a pidfd; not owned). */
enum { RLM_READABLE = 1, RLM_WRITABLE = 2 };
typedef struct rlm_watch rlm_watch;
typedef void (*rlm_watch_callback)(void *arg, int events);
rlm_watch *rlm_watch_new(rlm_loop *loop, int fd, rlm_watch_callback ready, void *arg);
/* events = 0 stops watching; otherwise RLM_READABLE | RLM_WRITABLE, level-triggered. */
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
 * there is no cancel, so `arg` must live until `done`. 0 or a negative code. */
int rlm_work_start(rlm_loop *loop, rlm_callback work, rlm_callback done, void *arg,
                   rlm_error **err);
