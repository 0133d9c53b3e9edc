/* The parts of taking inputs in: small values, files, directories. Used by input.c and read.c only. */
#pragma once

#include "flow/run.h"

#include <time.h>

enum { RLM_INPUT_JSON_MAX = 256 * 1024 * 1024 };

/* A file that is being read, or has been. */
struct rlm_input_file {
    rlm_blobs *blobs;
    struct rlm_import_bounds bounds;
    bool may_stream; /* a pipe or a device is allowed */
    bool stream;     /* it is one */
    int fd;
    uint64_t size;
    enum rlm_blob_type type;
    bool latin1;
    char *value_json; /* small contents, or the blob */
    struct rlm_blob facts;
    bool is_blob;
    int64_t bad_offset; /* where it ceased to be UTF-8; -1: it is text */
    int result;
    rlm_error *error;
};

struct rlm_input_entry {
    char *name; /* relative to the directory, with '/' */
    uint64_t size;
    struct timespec mtime;
    char *value_json; /* once it was read */
};

struct rlm_directory {
    char *input;
    char *path; /* absolute */
    int fd;     /* -1: a run went on and the directory is gone */
    RLM_VEC(struct rlm_input_entry) files;
    struct rlm_map by_name; /* -> index + 1 */
};

struct rlm_source {
    char *name;
    struct rlm_input_file file; /* fd >= 0: to be read */
    char *value_json;           /* what is known at once */
    struct rlm_directory *directory;
    char *path;
};

struct rlm_inputs {
    rlm_run *run; /* NULL: nobody waits any more */
    RLM_VEC(struct rlm_source) sources;
    rlm_defer *defer;
    bool working;
    void (*done)(rlm_run *run, const char *inputs_json, rlm_error *error);
};

/* A value below the blob threshold as JSON; NULL: no memory. */
char *rlm_input_small_value(enum rlm_blob_type type, rlm_str value);
char *rlm_input_blob_value(const struct rlm_blob *blob);

/* A file of the run that is not open yet, with the run's limits. */
void rlm_input_file_init(struct rlm_input_file *f, rlm_run *run);
/* Opens it for reading: a regular file, or also a pipe or device if that is allowed. */
int rlm_input_file_open(struct rlm_input_file *f, int dir_fd, const char *path, rlm_error **err);
/* Reads it (pool): small, or into a blob. The result is in the object. */
void rlm_input_file_read(struct rlm_input_file *f);
/* After it, on the loop: makes the blob known and sets value_json. */
int rlm_input_file_value(rlm_run *run, struct rlm_input_file *f, rlm_error **err);
void rlm_input_file_close(struct rlm_input_file *f);

/* Lists a directory with all below it, sorted. A symbolic link that leaves it is an error. */
int rlm_directory_new(const char *input,
                      const char *path,
                      struct rlm_directory **ret_directory,
                      rlm_error **err);
void rlm_directory_free(struct rlm_directory *d);
/* True when an open file lies below the directory: to be asked of what was opened, not of a name,
 * which agent code may turn into a link at any moment. */
bool rlm_directory_holds(const struct rlm_directory *d, int fd);
/* {"name", "files": [[name, bytes], ...]}, what an agent gets; `journaled` adds "path" and to each file
 * its time in nanoseconds. */
void rlm_directory_put(const struct rlm_directory *d, struct rlm_json_writer *w, bool journaled);
/* A directory as it was journaled. */
int rlm_directory_reopen(const rlm_json *list,
                         struct rlm_directory **ret_directory,
                         rlm_error **err);
