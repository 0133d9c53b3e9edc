/* The program with a parser that reads replies differently: linked with --wrap=rlm_code_extract. How goes by
 * OTHER_PARSER: "last" takes the last block tagged repl instead of the first, "tagged" nothing but blocks
 * with that tag, "any" a reply without code as it stands, and "silent" leaves out the notes. Where it is not
 * set, and for replies that all of them read alike, it is the program's own parser. */
#include "flow/code.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int __real_rlm_code_extract(rlm_str reply, struct rlm_buf *ret_code, struct rlm_buf *ret_note);
int __wrap_rlm_code_extract(rlm_str reply, struct rlm_buf *ret_code, struct rlm_buf *ret_note);

/* Where the last block that is tagged begins, or -1. */
static ptrdiff_t last_tagged(rlm_str reply)
{
    static const char mark[] = "```repl\n";
    ptrdiff_t found = -1;
    for (size_t at = 0; at + sizeof mark - 1 <= reply.len; at++) {
        if (memcmp(reply.ptr + at, mark, sizeof mark - 1) == 0) {
            found = (ptrdiff_t)at;
        }
    }
    return found;
}

int __wrap_rlm_code_extract(rlm_str reply, struct rlm_buf *ret_code, struct rlm_buf *ret_note)
{
    rlm_auto_buf struct rlm_buf unheard = RLM_BUF(1 << 20);
    const char *set = getenv("OTHER_PARSER");
    rlm_str how = rlm_str_of(set ? set : ""), read = reply;
    ptrdiff_t last = last_tagged(reply);
    if (rlm_str_is(how, "last") && last > 0) {
        read = (rlm_str){reply.ptr + last, reply.len - (size_t)last};
    } else if (rlm_str_is(how, "tagged") && last < 0) {
        read = RLM_STR("");
    }
    bool is_silent = rlm_str_is(how, "silent");
    int r = __real_rlm_code_extract(read, ret_code, is_silent ? &unheard : ret_note);
    if (r == RLM_CODE_NONE && rlm_str_is(how, "any")) {
        r = rlm_buf_add_str(ret_code, reply) < 0 ? RLM_E_LIMIT : RLM_CODE_FOUND;
    }
    return r;
}
