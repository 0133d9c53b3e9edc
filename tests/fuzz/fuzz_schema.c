/* A schema, a NUL byte, a value: what is compiled gives one verdict on the value, in any order of its
 * members and however it is written, with a message that is text. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tool/schema.h"

static void check_message(int r, const rlm_error *err)
{
    REQUIRE((r < 0) == (err != NULL));
    REQUIRE(rlm_utf8_valid(rlm_str_of(rlm_error_message(err))));
    REQUIRE(r == 0 || *rlm_error_message(err));
}

static int verdict(const rlm_schema *schema, const rlm_json *value)
{
    rlm_autoerr rlm_error *err = NULL;
    int r = rlm_schema_check(schema, value, &err);
    check_message(r, err);
    REQUIRE(r == 0 || r == RLM_E_SCHEMA);
    return r;
}

static void check_value(const rlm_schema *schema, rlm_str text)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *value, *again;
    if (rlm_json_parse(arena, text, &value, NULL) < 0) {
        return;
    }
    int r = verdict(schema, value);
    REQUIRE(verdict(schema, value) == r);

    /* The canonical form has no repeated member, so it can only fit better. */
    rlm_auto_buf struct rlm_buf form = RLM_BUF(text.len * 6 + 64);
    rlm_json_canonical(&form, value);
    REQUIRE(rlm_json_parse(arena, rlm_buf_str(&form), &again, NULL) == 0);
    REQUIRE(r < 0 || verdict(schema, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rlm_str text = {(const char *)data, size};
    const char *nul = size ? memchr(text.ptr, '\0', size) : NULL;
    size_t cut = nul ? (size_t)(nul - text.ptr) : size;
    rlm_autoerr rlm_error *err = NULL;
    rlm_schema *schema = NULL;
    int r = rlm_schema_new(rlm_str_sub(text, 0, cut), &schema, &err);
    check_message(r, err);
    if (r < 0) {
        REQUIRE(!schema);
        return 0;
    }
    if (nul) {
        check_value(schema, rlm_str_sub(text, cut + 1, size));
    }
    rlm_schema_free(schema);
    return 0;
}
