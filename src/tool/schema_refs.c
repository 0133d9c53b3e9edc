#include "tool/schema_compile.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes one token of a pointer in a URI fragment, %XX first, then ~0 and ~1. */
static void decode_token(rlm_str token, struct rlm_buf *out)
{
    rlm_buf_clear(out);
    for (size_t i = 0; i < token.len; i++) {
        char c = token.ptr[i];
        if (c == '%' && i + 2 < token.len && hex_digit(token.ptr[i + 1]) >= 0 &&
            hex_digit(token.ptr[i + 2]) >= 0) {
            c = (char)(hex_digit(token.ptr[i + 1]) << 4 | hex_digit(token.ptr[i + 2]));
            i += 2;
        }
        rlm_buf_addc(out, c);
    }
    size_t to = 0;
    for (size_t i = 0; i < out->len; i++) {
        char c = out->ptr[i];
        if (c == '~' && i + 1 < out->len && (out->ptr[i + 1] == '0' || out->ptr[i + 1] == '1')) {
            c = out->ptr[++i] == '0' ? '~' : '/';
        }
        out->ptr[to++] = c;
    }
    out->len = to;
}

static const rlm_json *step_into(const rlm_json *v, rlm_str token)
{
    if (v->type == RLM_JSON_OBJECT) {
        return rlm_json_get_str(v, token);
    }
    if (v->type != RLM_JSON_ARRAY || token.len == 0 || token.len > 9 ||
        (token.ptr[0] == '0' && token.len > 1)) {
        return NULL;
    }
    size_t index = 0;
    for (size_t i = 0; i < token.len; i++) {
        if (token.ptr[i] < '0' || token.ptr[i] > '9') {
            return NULL;
        }
        index = index * 10 + (size_t)(token.ptr[i] - '0');
    }
    return rlm_json_at(v, index);
}

static int find_target(struct schema_compiler *c, const rlm_json *at, const rlm_json **ret_target)
{
    rlm_str rest = rlm_str_sub(at->text, 1, at->text.len);
    const rlm_json *v = c->s->json;
    rlm_auto_buf struct rlm_buf token = RLM_BUF(SCHEMA_MAX_BYTES);
    if (rest.len && rest.ptr[0] != '/') {
        return schema_compile_fail(
            c, at, "only references of the form \"#/...\" are supported, no anchors");
    }
    while (v && rest.len) {
        rest = rlm_str_sub(rest, 1, rest.len);
        const char *slash = rest.len ? memchr(rest.ptr, '/', rest.len) : NULL;
        size_t len = slash ? (size_t)(slash - rest.ptr) : rest.len;
        decode_token(rlm_str_sub(rest, 0, len), &token);
        if (token.status < 0) {
            return rlm_buf_check(&token, c->err);
        }
        v = step_into(v, rlm_buf_str(&token));
        rest = rlm_str_sub(rest, len, rest.len);
    }
    if (!v) {
        return schema_compile_fail(c, at, "the reference leads nowhere");
    }
    *ret_target = v;
    return 0;
}

int schema_compile_references(struct schema_compiler *c)
{
    /* Compiling a target may add references at the end. */
    for (size_t i = 0; i < c->references.len; i++) {
        struct schema_reference reference = c->references.items[i];
        const rlm_json *target;
        int r = find_target(c, reference.at, &target);
        if (r < 0) {
            return r;
        }
        struct schema_node *node = rlm_map_get(&c->nodes, schema_address(&target));
        if (!node && (r = schema_compile_node(c, target, &node)) < 0) {
            return r;
        }
        reference.from->ref = node;
    }
    return 0;
}

static int measure(struct schema_compiler *c, struct schema_node *n, unsigned level);

static int measure_below(struct schema_compiler *c,
                         struct schema_node *n,
                         struct schema_node *below,
                         unsigned level)
{
    int r = below ? measure(c, below, level + 1) : 0;
    if (r == 0 && below && below->in_place >= n->in_place) {
        n->in_place = (uint16_t)(below->in_place + 1);
    }
    return r;
}

/* Follows the schemas that apply to the same value: a loop among them would never end. */
static int measure(struct schema_compiler *c, struct schema_node *n, unsigned level)
{
    if (n->visit == 1) {
        return schema_compile_fail(c, n->json,
                                   "this schema refers to itself without going into the value");
    }
    if (level + n->in_place > SCHEMA_MAX_IN_PLACE) {
        return schema_compile_fail(c, n->json, "more than %d schemas inside each other",
                                   SCHEMA_MAX_IN_PLACE);
    }
    if (n->visit == 2) {
        return 0;
    }
    n->visit = 1;
    struct schema_node *single[] = {n->ref, n->not_schema, n->if_schema, n->then_schema,
                                    n->else_schema};
    struct schema_list lists[] = {n->all_of, n->any_of, n->one_of};
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof single / sizeof *single; i++) {
        r = measure_below(c, n, single[i], level);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (size_t j = 0; r == 0 && j < lists[i].len; j++) {
            r = measure_below(c, n, lists[i].items[j], level);
        }
    }
    n->visit = 2;
    return r;
}

int schema_refuse_loops(struct schema_compiler *c)
{
    size_t pos = 0;
    rlm_str key;
    void *node;
    int r = 0;
    while (r == 0 && rlm_map_next(&c->nodes, &pos, &key, &node)) {
        r = measure(c, node, 0);
    }
    return r;
}
