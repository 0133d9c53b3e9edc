/* A run in other forms: what the files export_*.c write from. docs/runs.md describes the forms.
 *
 * The graph is loaded as for looking at it, so damaged runs are exported up to the damage, with a note. */
#pragma once

#include "base/json.h"
#include "base/vec.h"
#include "graph/record.h"
#include "graph/target.h"

struct rlm_export {
    const char *journal;
    rlm_graph *root;
    char *note; /* what is missing of the run; NULL: nothing */
    rlm_blobs *blobs;
    rlm_arena *arena; /* holds the texts below */
    rlm_str version;  /* of the program that began the run; empty: it was imported */
    rlm_str options;  /* of the run, a JSON object */
    int64_t started_us;
    RLM_VEC(rlm_str) resumed; /* payloads of the RESUMED records */
    uint64_t n_missing;       /* blobs that values name and that cannot be read */
};

/* Writes a value as agents see it: a large text stands whole, bytes as {"$bytes": BASE64}. A blob that
 * is gone stays a reference and is counted. Fails only for lack of memory. */
int rlm_export_put_value(struct rlm_export *x,
                         struct rlm_json_writer *w,
                         const rlm_json *value,
                         rlm_error **err);
/* The same of a JSON text; what is none is written as a text. */
int rlm_export_put_json(struct rlm_export *x,
                        struct rlm_json_writer *w,
                        rlm_str json,
                        rlm_error **err);
/* A text of a record, whole; one that is gone is empty. In the arena of the caller. */
int rlm_export_get_text(
    struct rlm_export *x, const rlm_json *value, rlm_arena *a, rlm_str *ret_text, rlm_error **err);
void rlm_export_put_usage(struct rlm_json_writer *w, const struct rlm_usage *usage);

int rlm_export_json(struct rlm_export *x, struct rlm_target *to, rlm_error **err);
/* Makes the file `part`. */
int rlm_export_sqlite(struct rlm_export *x, const char *part, rlm_error **err);
/* Fills the directory `part`. */
int rlm_export_python(struct rlm_export *x, const char *part, rlm_error **err);

/* Texts are as large as the run's blobs. */
#define RLM_EXPORT_TEXT_MAX ((size_t)8 << 30)
