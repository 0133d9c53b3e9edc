/* Any bytes as a reply: the code found is a piece of it, the same every time, and none is ever found
 * in what stands behind an open <think> or before an end of reasoning. */
#include "fuzz.h"

#include "flow/code.h"

enum { NOTE_MAX = 400 };

/* Spaces and tabs, which an indent is made of, left out. */
static void add_without_blanks(struct rlm_buf *out, rlm_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] != ' ' && s.ptr[i] != '\t') {
            rlm_buf_addc(out, s.ptr[i]);
        }
    }
}

static void check_piece(rlm_str reply, rlm_str code)
{
    rlm_auto_buf struct rlm_buf whole = RLM_BUF(reply.len), piece = RLM_BUF(reply.len);
    add_without_blanks(&whole, reply);
    add_without_blanks(&piece, code);
    REQUIRE(whole.status == 0 && piece.status == 0 && piece.len > 0);
    REQUIRE(memmem(whole.ptr, whole.len, piece.ptr, piece.len));
}

/* Nothing may run when `reply` is put between these. */
static void check_never_runs(const char *before, rlm_str reply, const char *after)
{
    rlm_auto_buf struct rlm_buf text = RLM_BUF(reply.len + 64), code = RLM_BUF(reply.len + 64),
                                note = RLM_BUF(NOTE_MAX);
    rlm_buf_adds(&text, before);
    rlm_buf_add_str(&text, reply);
    rlm_buf_adds(&text, after);
    REQUIRE(rlm_code_extract(rlm_buf_str(&text), &code, &note) == RLM_CODE_NONE);
}

static bool has_any(rlm_str s, const char *chars)
{
    for (; *chars; chars++) {
        if (s.len && memchr(s.ptr, *chars, s.len)) {
            return true;
        }
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rlm_str reply = {(const char *)data, size};
    rlm_auto_buf struct rlm_buf code = RLM_BUF(size), note = RLM_BUF(NOTE_MAX);
    rlm_auto_buf struct rlm_buf again = RLM_BUF(size), told = RLM_BUF(NOTE_MAX);
    int r = rlm_code_extract(reply, &code, &note);
    REQUIRE(r == RLM_CODE_FOUND || r == RLM_CODE_NONE);
    if (r == RLM_CODE_FOUND) {
        check_piece(reply, rlm_buf_str(&code));
    } else {
        REQUIRE(code.len == 0 && note.len > 0);
    }
    REQUIRE(rlm_code_extract(reply, &again, &told) == r);
    REQUIRE(rlm_str_eq(rlm_buf_str(&code), rlm_buf_str(&again)));
    REQUIRE(rlm_str_eq(rlm_buf_str(&note), rlm_buf_str(&told)));

    if (!has_any(reply, "<[")) {
        check_never_runs("<think>", reply, "");
        if (!has_any(reply, "\\")) {
            check_never_runs("", reply, "\n</think>\n");
        }
    }
    return 0;
}
