/* The `subprocess` runtime: each session is a plain child process of any Python from 3.8 on. */
#include "base/error.h"
#include "base/vec.h"
#include "runtime/child.h"
#include "runtime/compiled.h"
#include "runtime/environment.h"
#include "runtime/stub.h"
#include "runtime/warden.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum {
    MAX_SPARE = 256,
    REFILL_AFTER_MS = 200, /* without a session being opened: a burst needs the processors itself */
    FIRST_BACKOFF_MS = 200, /* after a spare worker died, doubled each time */
    LAST_BACKOFF_MS = 30000,
};

struct subprocess {
    rlm_runtime runtime; /* first: a runtime is cast to it */
    char *python;
    char *working_directory;
    struct rlm_environment env;
    int wanted_spares;
    RLM_VEC(struct rlm_transport *) spares;
    rlm_timer *refill;
    uint64_t backoff_ms; /* 0: the last spare worker was good */
    rlm_compiled *compiled;
    rlm_warden *warden;
    bool started_one;
    char *buffer;
};

static struct subprocess *subprocess_of(rlm_runtime *r)
{
    return (struct subprocess *)r;
}

/* ---- starting workers ------------------------------------------------------------------------ */

static int check_directory(const char *directory, rlm_error **err)
{
    struct stat st;
    if (!directory) {
        return 0;
    }
    if (stat(directory, &st) < 0) {
        return rlm_error_set_errno(err, errno == ENOENT ? RLM_E_NOT_FOUND : RLM_E_IO, errno,
                                   "the working directory \"%s\" cannot be used", directory);
    }
    if (!S_ISDIR(st.st_mode)) {
        return rlm_error_set(err, RLM_E_INVAL, "the working directory \"%s\" is not a directory",
                             directory);
    }
    return 0;
}

static void spare_ended(void *arg, struct rlm_transport *t);

static int start_worker(struct subprocess *p,
                        const char *working_directory,
                        struct rlm_transport **ret_transport,
                        rlm_error **err)
{
    /* -s: no user site-packages; never -I or -E, which would ignore PYTHONHASHSEED. */
    const char *argv[] = {p->python, "-s", "-u", "-c", RLM_WORKER_PROGRAM, "3", "4", NULL};
    /* A run of one session would only wait for it; from the second on it pays. */
    if (p->started_one) {
        rlm_compiled_begin(p->compiled);
    }
    p->started_one = true;
    rlm_warden_begin(p->warden);
    struct rlm_child_options options = {
        .worker = rlm_compiled_payload(p->compiled),
        .argv = argv,
        .env = (const char *const *)p->env.entries.items,
        .working_directory = working_directory,
        .buffer = p->buffer,
        .spare_ended = spare_ended,
        .arg = p,
    };
    int r = check_directory(working_directory, err);
    if (r < 0) {
        return r;
    }
    r = rlm_child_start(p->runtime.loop, &options, ret_transport, err);
    if (r == RLM_E_NOT_FOUND) {
        return rlm_error_set(err, r,
                             "there is no Python interpreter \"%s\"%s; install Python 3.8 or "
                             "newer, or name another interpreter",
                             p->python, strchr(p->python, '/') ? "" : " in PATH");
    }
    return r;
}

/* ---- spare workers --------------------------------------------------------------------------- */

static void back_off(struct subprocess *p)
{
    p->backoff_ms = p->backoff_ms ? p->backoff_ms * 2 : FIRST_BACKOFF_MS;
    if (p->backoff_ms > LAST_BACKOFF_MS) {
        p->backoff_ms = LAST_BACKOFF_MS;
    }
    rlm_timer_set(p->refill, p->backoff_ms);
}

static void spare_ended(void *arg, struct rlm_transport *t)
{
    struct subprocess *p = arg;
    for (size_t i = 0; i < p->spares.len; i++) {
        if (p->spares.items[i] == t) {
            rlm_vec_remove(&p->spares, i);
            break;
        }
    }
    t->ops->free(t);
    back_off(p);
}

static void compiled(void *arg)
{
    struct subprocess *p = arg;
    rlm_timer_set(p->refill, 0);
}

/* One a turn: starting takes about a millisecond of the loop. What fails here fails again, and is
 * told, when a session is opened. */
static void refill(void *arg)
{
    struct subprocess *p = arg;
    if (p->spares.len >= (size_t)p->wanted_spares || rlm_compiled_is_busy(p->compiled)) {
        return;
    }
    struct rlm_transport *t;
    if (start_worker(p, p->working_directory, &t, NULL) < 0) {
        back_off(p);
        return;
    }
    struct rlm_transport **place = rlm_vec_push(&p->spares);
    if (!place) {
        t->ops->free(t);
        back_off(p);
        return;
    }
    *place = t;
    if (p->spares.len < (size_t)p->wanted_spares) {
        rlm_timer_set(p->refill, 0);
    }
}

static struct rlm_transport *take_spare(struct subprocess *p)
{
    for (size_t i = 0; i < p->spares.len; i++) {
        struct rlm_transport *t = p->spares.items[i];
        if (rlm_child_alive(t)) {
            rlm_vec_remove(&p->spares, i);
            p->backoff_ms = 0;
            rlm_timer_set(p->refill, REFILL_AFTER_MS);
            return t;
        }
    }
    return NULL;
}

/* ---- the runtime ----------------------------------------------------------------------------- */

static bool same_directory(const struct subprocess *p, const char *directory)
{
    return !directory || (p->working_directory && strcmp(directory, p->working_directory) == 0);
}

static int subprocess_connect(rlm_runtime *r,
                              const struct rlm_session_options *options,
                              struct rlm_transport **ret_transport,
                              rlm_error **err)
{
    struct subprocess *p = subprocess_of(r);
    bool same = same_directory(p, options->working_directory);
    struct rlm_transport *t = same ? take_spare(p) : NULL;
    if (!t) {
        int result =
            start_worker(p, same ? p->working_directory : options->working_directory, &t, err);
        if (result < 0) {
            return result;
        }
    }
    rlm_child_attach(t);
    *ret_transport = t;
    return 0;
}

static void subprocess_free(rlm_runtime *r)
{
    struct subprocess *p = subprocess_of(r);
    for (size_t i = 0; i < p->spares.len; i++) {
        p->spares.items[i]->ops->free(p->spares.items[i]);
    }
    free(p->spares.items);
    rlm_environment_deinit(&p->env);
    rlm_timer_free(p->refill);
    rlm_compiled_free(p->compiled);
    rlm_warden_free(p->warden);
    free(p->python);
    free(p->working_directory);
    free(p->buffer);
    free(p);
}

static const struct rlm_runtime_ops subprocess_ops = {
    .name = "subprocess",
    .effects = "outside",
    .opens_soon = true,
    .connect = subprocess_connect,
    .free = subprocess_free,
};

/* ---- making one ------------------------------------------------------------------------------ */

static int prepare(struct subprocess *p, const struct rlm_subprocess_options *o, rlm_error **err)
{
    p->wanted_spares = o->spare < 0 ? 0 : o->spare > MAX_SPARE ? MAX_SPARE : o->spare;
    p->python = rlm_strdup(o->python && *o->python ? o->python : "python3");
    p->buffer = rlm_malloc(RLM_CHILD_BUFFER);
    p->refill = rlm_timer_new(p->runtime.loop, refill, p);
    if (!p->python || !p->buffer || !p->refill) {
        return rlm_error_nomem(err);
    }
    if (o->working_directory && !(p->working_directory = rlm_strdup(o->working_directory))) {
        return rlm_error_nomem(err);
    }
    if (!(p->warden = rlm_warden_new(p->runtime.loop))) {
        return rlm_error_nomem(err);
    }
    int r = check_directory(p->working_directory, err);
    if (r == 0) {
        r = rlm_environment_make(&p->env, rlm_warden_mark(p->warden), o->env, err);
    }
    if (r == 0 &&
        !(p->compiled = rlm_compiled_new(p->runtime.loop, p->python,
                                         (const char *const *)p->env.entries.items, compiled, p))) {
        r = rlm_error_nomem(err);
    }
    return r;
}

int rlm_runtime_new_subprocess(rlm_loop *loop,
                               const struct rlm_subprocess_options *options,
                               rlm_runtime **ret_runtime,
                               rlm_error **err)
{
    struct rlm_subprocess_options o = RLM_SUBPROCESS_OPTIONS_INIT;
    if (options) {
        memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    }
    struct subprocess *p;
    if (!RLM_NEW(p)) {
        return rlm_error_nomem(err);
    }
    p->runtime.ops = &subprocess_ops;
    p->runtime.loop = loop;
    int r = prepare(p, &o, err);
    if (r < 0) {
        subprocess_free(&p->runtime);
        return r;
    }
    if (p->wanted_spares) {
        rlm_timer_set(p->refill, 0);
    }
    *ret_runtime = &p->runtime;
    return 0;
}
