#include "runtime/compiled.h"

#include "base/alloc.h"
#include "base/process.h"
#include "runtime/runtime.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 8 * 1024 * 1024, TIME_LIMIT_MS = 30 * 1000 };

struct rlm_compiled {
    rlm_loop *loop;
    const char *python;
    const char *const *env;
    rlm_callback ready;
    void *arg;
    bool begun;
    rlm_process *process; /* while it runs */
    rlm_timer *deadline;
    int out; /* its standard output, -1: none */
    char *text;
    size_t len;
};

static const char compiler[] =
    "import binascii,marshal,sys\n"
    "from _frozen_importlib_external import MAGIC_NUMBER\n"
    "code=compile(sys.stdin.buffer.read(),'<worker>','exec')\n"
    "data=binascii.b2a_base64(marshal.dumps(code),newline=False).decode()\n"
    "sys.stdout.write('import binascii,marshal,sys\\n'\n"
    "'from _frozen_importlib_external import MAGIC_NUMBER\\n'\n"
    "'if MAGIC_NUMBER!=%r: sys.exit(\"the Python interpreter was replaced while it was in use\")\\n'\n"
    "'exec(marshal.loads(binascii.a2b_base64(\"%s\")))' % (MAGIC_NUMBER,data))\n";

rlm_compiled *rlm_compiled_new(
    rlm_loop *loop, const char *python, const char *const *env, rlm_callback ready, void *arg)
{
    rlm_compiled *c;
    if (RLM_NEW(c)) {
        *c = (struct rlm_compiled){
            .loop = loop, .python = python, .env = env, .ready = ready, .arg = arg, .out = -1};
    }
    return c;
}

static void close_out(rlm_compiled *c)
{
    if (c->out >= 0) {
        close(c->out);
        c->out = -1;
    }
}

static void read_result(rlm_compiled *c)
{
    struct stat st;
    if (fstat(c->out, &st) < 0 || st.st_size <= 0 || st.st_size > MAX_BYTES ||
        !(c->text = rlm_malloc((size_t)st.st_size))) {
        return;
    }
    if (pread(c->out, c->text, (size_t)st.st_size, 0) == st.st_size) {
        c->len = (size_t)st.st_size;
    } else {
        free(rlm_steal(&c->text));
    }
}

static void exited(void *arg, const struct rlm_process_exit *how)
{
    rlm_compiled *c = arg;
    rlm_timer_stop(c->deadline);
    if (how->status == 0) {
        read_result(c);
    }
    close_out(c);
    rlm_process_free(rlm_steal(&c->process));
    c->ready(c->arg);
}

static void too_late(void *arg)
{
    rlm_compiled *c = arg;
    rlm_process_signal_group(c->process, 9);
}

static int source_fd(void)
{
    int fd = memfd_create("worker", MFD_CLOEXEC);
    if (fd >= 0 && pwrite(fd, rlm_worker_source, rlm_worker_source_size, 0) !=
                       (ssize_t)rlm_worker_source_size) {
        close(fd);
        return -1;
    }
    return fd;
}

void rlm_compiled_begin(rlm_compiled *c)
{
    if (c->begun) {
        return;
    }
    c->begun = true;
    const char *const argv[] = {c->python, "-s", "-c", compiler, NULL};
    int in = source_fd();
    c->out = memfd_create("compiled", MFD_CLOEXEC);
    c->deadline = rlm_timer_new(c->loop, too_late, c);
    int fds[] = {in, c->out, -1};
    struct rlm_process_options options = {
        .argv = argv, .env = c->env, .child_fds = fds, .n_child_fds = 3};
    if (in < 0 || c->out < 0 || !c->deadline ||
        rlm_process_start(c->loop, &options, exited, c, &c->process, NULL) < 0) {
        close_out(c);
    } else {
        rlm_timer_set(c->deadline, TIME_LIMIT_MS);
    }
    if (in >= 0) {
        close(in);
    }
}

bool rlm_compiled_is_busy(const rlm_compiled *c)
{
    return c->process != NULL;
}

rlm_str rlm_compiled_payload(const rlm_compiled *c)
{
    return c->len ? (rlm_str){c->text, c->len}
                  : (rlm_str){rlm_worker_source, rlm_worker_source_size};
}

void rlm_compiled_free(rlm_compiled *c)
{
    if (c) {
        if (c->process) {
            rlm_process_free(c->process);
        }
        rlm_timer_free(c->deadline);
        close_out(c);
        free(c->text);
        free(c);
    }
}
