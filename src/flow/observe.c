#include "flow/observe.h"

#include "base/utf8.h"

#include <ctype.h>
#include <inttypes.h>

/* Head and tail of the output, with the number of characters left out between them. */
static void add_output(const struct rlm_observation *o, struct rlm_buf *out)
{
    size_t chars = o->max_chars ? rlm_utf8_count(o->output) : 0;
    if (!o->max_chars || chars <= (size_t)o->max_chars) {
        rlm_buf_add_str(out, o->output);
        if (o->omitted_chars) {
            rlm_buf_addf(out,
                         "\n(%" PRIu64 " characters in the middle of the output were not kept)",
                         o->omitted_chars);
        }
        return;
    }
    size_t half = (size_t)o->max_chars / 2;
    size_t head = rlm_utf8_offset(o->output, half);
    size_t tail = rlm_utf8_offset_from_end(o->output, (size_t)o->max_chars - half);
    rlm_buf_add_str(out, rlm_str_sub(o->output, 0, head));
    rlm_buf_addf(out,
                 "\n... (%" PRIu64
                 " characters left out; search by code, and print only what matters) ...\n",
                 (uint64_t)(chars - (size_t)o->max_chars) + o->omitted_chars);
    rlm_buf_add_str(out, rlm_str_sub(o->output, tail, o->output.len));
}

static void new_line(struct rlm_buf *out, size_t start)
{
    if (out->len > start && out->ptr[out->len - 1] != '\n') {
        rlm_buf_addc(out, '\n');
    }
}

static void add_note(struct rlm_buf *out, size_t start, rlm_str note)
{
    if (note.len) {
        new_line(out, start);
        rlm_buf_adds(out, "[");
        rlm_buf_add_str(out, note);
        rlm_buf_adds(out, "]");
    }
}

int rlm_observe(const struct rlm_observation *o, struct rlm_buf *out)
{
    size_t start = out->len;
    add_output(o, out);
    while (out->status == 0 && out->len > start && out->ptr[out->len - 1] == '\n') {
        rlm_buf_commit(out, (size_t)-1);
    }
    if (o->error.len) {
        new_line(out, start);
        rlm_buf_add_str(out, o->error);
    }
    for (uint32_t i = 0; rlm_json_is(o->notes, RLM_JSON_ARRAY) && i < o->notes->count; i++) {
        add_note(out, start, rlm_json_text(rlm_json_at(o->notes, i), RLM_STR("")));
    }
    add_note(out, start, o->note);
    if (out->len == start) {
        rlm_buf_adds(out, "(no output)");
    }
    return out->status;
}

bool rlm_output_is_same(rlm_str a, rlm_str b)
{
    size_t i = 0, k = 0;
    while (i < a.len && k < b.len && a.ptr[i] == b.ptr[k]) {
        i++, k++;
        if (i >= 2 && a.ptr[i - 2] == '0' && a.ptr[i - 1] == 'x') {
            while (i < a.len && isxdigit((unsigned char)a.ptr[i])) {
                i++;
            }
            while (k < b.len && isxdigit((unsigned char)b.ptr[k])) {
                k++;
            }
        }
    }
    return i == a.len && k == b.len;
}
