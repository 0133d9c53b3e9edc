/* The blocks of a model's reply. For code.h alone, which says what counts as a block. */
#pragma once

#include "base/buf.h"
#include "flow/code_mark.h"

/* A reply, and how many bytes may still be read more than once. What looks ahead takes from it, so
 * that no reply, however made, takes more than linear time; a real one never comes near. */
struct rlm_code_reply {
    rlm_str s;
    size_t budget;
};

/* False when there is not enough left. */
bool rlm_code_spend(struct rlm_code_reply *t, size_t bytes);

struct rlm_code_block {
    struct rlm_code_fence fence;
    size_t start, end;  /* the body, its last line ending included */
    size_t next;        /* where prose goes on */
    bool open_end;      /* no fence closes it: the reply or a tagged fence ends it */
    bool opened;        /* reasoning begins in it: its end is no news */
    bool was_reasoning; /* the end of reasoning that began before the block stands in it */
};

/* Finds the end of a block from `pos`, in its body, on: as Python, or as any other text. */
void rlm_code_scan_python(struct rlm_code_reply *t, struct rlm_code_block *b, size_t pos);
void rlm_code_scan_text(struct rlm_code_reply *t, struct rlm_code_block *b, size_t pos);

/* Where the triple-quoted string whose text begins at `start` ends (behind the quotes). NOWHERE
 * when it does not, or when the fences in it are not in pairs, which says that a quote is
 * missing. */
size_t rlm_code_triple_end(struct rlm_code_reply *t,
                           const struct rlm_code_fence *open,
                           size_t start,
                           char quote);

/* The code of a block; to be added with the indent of its fence. */
rlm_str rlm_code_body_of(const struct rlm_code_reply *t, const struct rlm_code_block *b);
/* Appends the body without `indent` columns, or as many as all its lines have. */
void rlm_code_add_body(struct rlm_buf *out, rlm_str body, size_t indent);
