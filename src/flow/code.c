#include "flow/code.h"

#include "flow/code_block.h"
#include "flow/code_plain.h"

enum { NOTE_TAG_BYTES = 24 };

struct finder {
    struct rlm_code_reply text;
    struct rlm_code_block block; /* the one that runs */
    size_t found;                /* blocks that could run */
    size_t openers;              /* blocks at all */
    bool blank;                  /* one was blank */
    rlm_str other;               /* the tag of the first that is no Python */
    bool closing_only;           /* the last line of the reply is a bare fence that opens nothing */
    bool reasoning, open_reasoning;
    rlm_str prose;  /* the text outside blocks and reasoning up to the first block */
    bool scattered; /* it stands on both sides of reasoning */
};

/* Everything so far was reasoning. */
static void forget(struct finder *f)
{
    f->reasoning = true;
    f->found = f->openers = 0;
    f->blank = f->closing_only = f->scattered = false;
    f->other = f->prose = RLM_STR_NONE;
}

static void add_prose(struct finder *f, size_t start, size_t end)
{
    rlm_str s = f->text.s;
    if (end > start && rlm_code_trim(rlm_str_sub(s, start, end)).len) {
        f->scattered = f->scattered || f->prose.len;
        f->prose = rlm_str_sub(s, start, end);
    }
}

static bool is_bare(rlm_str info)
{
    for (size_t i = 0; i < info.len; i++) {
        if (!memchr(":.{}", info.ptr[i], 4)) {
            return false;
        }
    }
    return true;
}

static size_t take_block(struct finder *f, const struct rlm_code_fence *fence, size_t end)
{
    rlm_str s = f->text.s;
    struct rlm_code_block b = {.fence = *fence, .start = rlm_code_line_next(s, end)};
    bool runnable = rlm_code_has_runnable_tag(fence->info) || is_bare(fence->info);
    if (runnable) {
        b.start = rlm_code_skip_echo(s, b.start);
        rlm_code_scan_python(&f->text, &b, b.start);
    } else {
        rlm_code_scan_text(&f->text, &b, b.start);
    }
    bool blank = !rlm_code_trim(rlm_code_body_of(&f->text, &b)).len;
    if (b.was_reasoning) {
        forget(f);
        return b.next;
    }
    rlm_str code;
    if (runnable && !blank && !fence->info.len && b.open_end &&
        !rlm_code_plain(rlm_code_body_of(&f->text, &b), &code)) {
        /* The end of a block whose start is missing, and what follows is prose. */
        f->scattered = true;
        return b.next;
    }
    f->openers++;
    f->closing_only = f->openers == 1 && blank && !fence->info.len && b.next == s.len;
    if (!runnable) {
        f->other = f->other.len ? f->other : rlm_code_tag_of(fence->info);
    } else if (blank) {
        f->blank = true;
    } else if (f->found++ == 0) {
        f->block = b;
    }
    return b.next;
}

/* The line from `pos` to `end` opens a block. The rest of a line, behind reasoning, may be looked
 * at many times. */
static bool opens(struct finder *f, size_t pos, size_t end, struct rlm_code_fence *fence)
{
    rlm_str s = f->text.s;
    bool fresh = pos == 0 || s.ptr[pos - 1] == '\n' || s.ptr[pos - 1] == '\r';
    return (fresh || rlm_code_spend(&f->text, end - pos)) &&
           rlm_code_read_opener(s, pos, end, fence);
}

static void find(struct finder *f)
{
    rlm_str s = f->text.s;
    size_t pos = rlm_str_starts(s, "\xEF\xBB\xBF") ? 3 : 0, prose = pos;
    size_t end = rlm_code_line_end(s, pos);
    while (pos < s.len) {
        struct rlm_code_fence fence;
        struct rlm_code_tag tag;
        end = pos > end ? rlm_code_line_end(s, pos) : end;
        size_t at = rlm_code_find_reasoning_tag(s, pos, end, &tag);
        if (opens(f, pos, end, &fence) && (at == RLM_CODE_NOWHERE || fence.start < at)) {
            add_prose(f, prose, pos);
            prose = pos = take_block(f, &fence, end);
        } else if (at == RLM_CODE_NOWHERE) {
            pos = rlm_code_line_next(s, end);
        } else if (tag.closing) {
            forget(f);
            prose = pos = tag.end;
        } else {
            size_t after = rlm_code_reasoning_end(s, &tag);
            add_prose(f, prose, at);
            f->reasoning = true;
            f->open_reasoning = after == RLM_CODE_NOWHERE;
            prose = pos = after == RLM_CODE_NOWHERE ? s.len : after;
        }
    }
    add_prose(f, prose, s.len);
}

static const char how[] =
    " Write one block: a line ```repl, Python, a line ```. done(answer) in it ends the task.";

static void add_reason(const struct finder *f, struct rlm_buf *note)
{
    rlm_buf_adds(note, "Nothing ran: ");
    if (f->blank) {
        rlm_buf_adds(note, "your code block is empty.");
    } else if (f->openers) {
        size_t len = f->other.len < NOTE_TAG_BYTES ? f->other.len : NOTE_TAG_BYTES;
        rlm_buf_addf(note, "your block is tagged \"%.*s\", and only ```repl blocks run.",
                     f->other.len ? (int)len : 1, f->other.len ? f->other.ptr : "?");
    } else if (f->open_reasoning) {
        rlm_buf_adds(note,
                     "your reasoning never ended, and code in it is not run. Close it first.");
    } else if (f->reasoning && !f->prose.len) {
        rlm_buf_adds(note, "your reply is all reasoning, and code in it is not run.");
    } else if (!rlm_code_trim(f->text.s).len) {
        rlm_buf_adds(note, "your reply is empty.");
    } else {
        rlm_buf_adds(note, "your reply has no code block.");
    }
    rlm_buf_adds(note, how);
}

int rlm_code_extract(rlm_str reply, struct rlm_buf *ret_code, struct rlm_buf *ret_note)
{
    struct finder f = {.text = {reply, 4 * reply.len + 65536}};
    int outcome = RLM_CODE_FOUND;
    find(&f);
    if (f.found) {
        rlm_code_add_body(ret_code, rlm_code_body_of(&f.text, &f.block), f.block.fence.indent);
        if (f.found > 1) {
            rlm_buf_addf(ret_note,
                         "Only the first code block of a reply runs: %zu more %s ignored.",
                         f.found - 1, f.found == 2 ? "was" : "were");
        }
    } else {
        rlm_str plain;
        if ((!f.openers || f.closing_only) && !f.scattered && rlm_code_plain(f.prose, &plain)) {
            rlm_code_add_body(ret_code, plain, 0);
        } else {
            add_reason(&f, ret_note);
            outcome = RLM_CODE_NONE;
        }
    }
    int r = ret_code->status ? ret_code->status : ret_note->status;
    return r ? r : outcome;
}
