/* read_input: the content of a file of a directory input, at its first access by whatever agent; the
 * same for every agent after that.
 */
#include "flow/call.h"
#include "flow/input.h"
#include "flow/record.h"

#include <sys/stat.h>

struct rlm_read {
    struct rlm_call *call; /* NULL: given up */
    rlm_run *run;
    struct rlm_directory *directory;
    size_t index;
    struct rlm_input_file file;
};

static struct rlm_directory *find_directory(const struct rlm_agent *agent, rlm_str name)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *inputs;
    bool given = false;
    if (!arena || rlm_json_parse(arena, agent->graph->inputs, &inputs, NULL) < 0) {
        return NULL;
    }
    /* Only what was given to this agent: any call may be forged. */
    for (uint32_t i = 0; i < inputs->count; i++) {
        const rlm_json *dir = rlm_json_get(&inputs->members[i].value, "$dir");
        given |= dir && rlm_str_eq(rlm_json_text(rlm_json_get(dir, "name"), RLM_STR("")), name);
    }
    struct rlm_inputs *in = agent->run->inputs;
    for (size_t i = 0; given && i < in->sources.len; i++) {
        struct rlm_directory *d = in->sources.items[i].directory;
        if (d && rlm_str_is(name, d->input)) {
            return d;
        }
    }
    return NULL;
}

static void file_read(void *arg)
{
    struct rlm_read *read = arg;
    struct rlm_input_entry *f = &read->directory->files.items[read->index];
    struct rlm_call *call = read->call;
    rlm_error *err = NULL;
    read->run->reads--;
    if (call) {
        call->read = NULL;
        if (rlm_input_file_value(read->run, &read->file, &err) < 0 &&
            rlm_blobs_write_failed(read->run->blobs)) {
            rlm_run_fail(read->run, rlm_steal(&err)); /* it names a path of the host */
        } else if (err) {
            rlm_call_raise(call, "HostCallError", "read", rlm_str_of(rlm_error_message(err)));
        } else {
            if (!f->value_json) {
                f->value_json = rlm_steal(&read->file.value_json);
            }
            if (!read->file.is_blob || rlm_record_blob(read->run, &read->file.facts) == 0) {
                rlm_call_answer(call, rlm_str_of(f->value_json));
            }
        }
    }
    rlm_error_free(err);
    rlm_input_file_close(&read->file);
    free(read);
}

static void read_on_pool(void *arg)
{
    struct rlm_read *read = arg;
    rlm_input_file_read(&read->file);
}

static int start_read(struct rlm_agent *agent,
                      const struct rlm_host_call *host_call,
                      struct rlm_directory *d,
                      size_t index,
                      rlm_error **err)
{
    struct rlm_input_entry *f = &d->files.items[index];
    struct rlm_read *read;
    struct stat st;
    if (!RLM_NEW(read)) {
        return rlm_error_nomem(err);
    }
    rlm_input_file_init(&read->file, agent->run);
    int r = rlm_input_file_open(&read->file, d->fd, f->name, err);
    if (r == 0 && !rlm_directory_holds(d, read->file.fd)) {
        r = rlm_error_set(err, RLM_E_INVAL,
                          "%s has become a symbolic link that leaves the directory", f->name);
    }
    if (r < 0) {
        rlm_input_file_close(&read->file);
        free(read);
        return r;
    }
    if (fstat(read->file.fd, &st) == 0 &&
        ((uint64_t)st.st_size != f->size || st.st_mtim.tv_sec != f->mtime.tv_sec ||
         st.st_mtim.tv_nsec != f->mtime.tv_nsec)) {
        rlm_run_notice(agent->run,
                       "input %s: %s has changed since the run began; it is read as it is now",
                       d->input, f->name);
    }
    struct rlm_call *call = rlm_call_new(agent, host_call, RLM_CALL_READ, 0);
    read->run = agent->run;
    read->directory = d;
    read->index = index;
    read->call = call;
    if (!call || (r = rlm_work_start(agent->run->loop, read_on_pool, file_read, read, err)) < 0) {
        rlm_input_file_close(&read->file);
        free(read);
        return r;
    }
    call->read = read;
    agent->run->reads++;
    return 0;
}

void rlm_input_read_begin(struct rlm_agent *agent, const struct rlm_host_call *host_call)
{
    rlm_str name = rlm_json_text(rlm_json_at(host_call->args, 0), RLM_STR(""));
    rlm_str file = rlm_json_text(rlm_json_at(host_call->args, 1), RLM_STR(""));
    struct rlm_directory *d = find_directory(agent, name);
    size_t index = d ? (size_t)(uintptr_t)rlm_map_get(&d->by_name, file) : 0;
    rlm_error *err = NULL;
    if (!index) {
        rlm_host_call_raise(agent, host_call, "KeyError", "read", file);
    } else if (d->files.items[index - 1].value_json) {
        struct rlm_call *call = rlm_call_new(agent, host_call, RLM_CALL_READ, 0);
        if (call) {
            rlm_call_answer(call, rlm_str_of(d->files.items[index - 1].value_json));
        }
    } else if (start_read(agent, host_call, d, index - 1, &err) < 0) {
        rlm_host_call_raise(agent, host_call, "HostCallError", "read",
                            rlm_str_of(rlm_error_message(err)));
        rlm_error_free(err);
    }
}

void rlm_input_read_cancel(struct rlm_call *call)
{
    if (call->read) {
        call->read->call = NULL;
        call->read = NULL;
    }
}
