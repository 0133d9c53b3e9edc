/* Any bytes: parse; what parses is written, parsed again to an equal tree, and its canonical form
 * is a fixed point. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

#include <math.h>

static bool equal(const rlm_json *a, const rlm_json *b)
{
    if (a->type != b->type || a->count != b->count) {
        return false;
    }
    switch (a->type) {
    case RLM_JSON_NUMBER:
    case RLM_JSON_STRING:
        return rlm_str_eq(a->text, b->text);
    case RLM_JSON_ARRAY:
        for (uint32_t i = 0; i < a->count; i++) {
            if (!equal(&a->items[i], &b->items[i])) {
                return false;
            }
        }
        return true;
    case RLM_JSON_OBJECT:
        for (uint32_t i = 0; i < a->count; i++) {
            if (!rlm_str_eq(a->members[i].key, b->members[i].key) ||
                !equal(&a->members[i].value, &b->members[i].value)) {
                return false;
            }
        }
        return true;
    default:
        return true;
    }
}

/* Strings are WTF-8 without a pair of surrogates; numbers read without harm, and a double that is
 * written reads back as itself. */
static void check_values(rlm_arena *arena, const rlm_json *v)
{
    if (v->type == RLM_JSON_STRING) {
        bool high = false;
        for (size_t pos = 0; pos < v->text.len;) {
            int32_t c = rlm_utf8_next(v->text, &pos);
            REQUIRE(c >= 0 && !(high && c >= 0xDC00 && c < 0xE000));
            high = c >= 0xD800 && c < 0xDC00;
        }
    } else if (v->type == RLM_JSON_NUMBER) {
        char digits[400] = "";
        memcpy(digits, v->text.ptr, v->text.len < sizeof digits ? v->text.len : 0);
        double number = strtod(digits, NULL);
        int64_t whole = rlm_json_int(v, INT64_MIN);
        REQUIRE(whole == INT64_MIN || !*digits || (double)whole == number);
        if (isfinite(number)) {
            rlm_auto_buf struct rlm_buf text = RLM_BUF(64);
            struct rlm_json_writer w = {.buf = &text};
            const rlm_json *again;
            rlm_json_put_double(&w, number);
            REQUIRE(rlm_json_parse(arena, rlm_buf_str(&text), &again, NULL) == 0);
            double back = strtod(text.ptr, NULL);
            REQUIRE(memcmp(&back, &number, sizeof number) == 0);
        }
    }
    for (uint32_t i = 0; v->type == RLM_JSON_ARRAY && i < v->count; i++) {
        check_values(arena, &v->items[i]);
    }
    for (uint32_t i = 0; v->type == RLM_JSON_OBJECT && i < v->count; i++) {
        REQUIRE(rlm_json_get_str(v, v->members[i].key) >= &v->members[i].value);
        check_values(arena, &v->members[i].value);
    }
}

static void check_forms(rlm_arena *arena, const rlm_json *tree, size_t max_bytes)
{
    rlm_auto_buf struct rlm_buf text = RLM_BUF(max_bytes), form = RLM_BUF(max_bytes),
                                again = RLM_BUF(max_bytes), direct = RLM_BUF(max_bytes);
    struct rlm_json_writer w = {.buf = &text};
    const rlm_json *reread, *canonical;

    rlm_json_put(&w, tree);
    REQUIRE(text.status == 0 && rlm_utf8_valid(rlm_buf_str(&text)));
    REQUIRE(rlm_json_parse(arena, rlm_buf_str(&text), &reread, NULL) == 0);
    REQUIRE(equal(tree, reread));

    rlm_json_canonical(&form, reread);
    rlm_json_canonical(&direct, tree);
    REQUIRE(form.status == 0 && rlm_utf8_valid(rlm_buf_str(&form)));
    REQUIRE(rlm_str_eq(rlm_buf_str(&form), rlm_buf_str(&direct)));
    REQUIRE(rlm_json_parse(arena, rlm_buf_str(&form), &canonical, NULL) == 0);
    rlm_json_canonical(&again, canonical);
    REQUIRE(rlm_str_eq(rlm_buf_str(&form), rlm_buf_str(&again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    rlm_autoerr rlm_error *err = NULL;
    const rlm_json *tree = NULL;
    int r = rlm_json_parse(arena, (rlm_str){(const char *)data, size}, &tree, &err);
    REQUIRE((r < 0) == (err != NULL));
    if (r < 0) {
        REQUIRE(r == RLM_E_PARSE && !tree);
        return 0;
    }
    check_values(arena, tree);
    check_forms(arena, tree, size * 6 + 64);
    return 0;
}
