#include "tool/schema.h"

#include "base/alloc.h"
#include "tool/number.h"
#include "tool/schema_compile.h"
#include "tool/value.h"

#include <stdarg.h>
#include <stdio.h>

int schema_compile_fail(struct schema_compiler *c, const rlm_json *at, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    rlm_auto_buf struct rlm_buf pointer = RLM_BUF(128 * 1024);
    rlm_value_pointer(c->s->json, at, &pointer);
    if (pointer.status == RLM_E_NOMEM) {
        return rlm_error_nomem(c->err);
    }
    return rlm_error_set(c->err, RLM_E_SCHEMA, "schema%s%s: %s", pointer.len ? " at " : "",
                         pointer.ptr ? pointer.ptr : "", what);
}

static void *allocate(struct schema_compiler *c, size_t count, size_t size)
{
    /* Never 0 bytes, so that NULL means want of memory. */
    return rlm_arena_alloc(c->s->arena, count ? count * size : 1);
}

/* ---- values of keywords ---------------------------------------------------------------------- */

/* Each compiles the value `v` of a keyword into the member of the node at `slot`. */
typedef int (*compile_keyword)(struct schema_compiler *c,
                               struct schema_node *n,
                               const rlm_json *v,
                               void *slot);

static int ignore(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    return 0;
}

static int
ignore_text(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    return v->type == RLM_JSON_STRING ? 0 : schema_compile_fail(c, v, "expected a string");
}

static int
compile_id(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (n->json != c->s->json) {
        return schema_compile_fail(c, v, "$id is supported in the root only");
    }
    return ignore_text(c, n, v, slot);
}

static int
compile_any(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    *(const rlm_json **)slot = v;
    return 0;
}

static int
compile_number(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    *(const rlm_json **)slot = v;
    return v->type == RLM_JSON_NUMBER ? 0 : schema_compile_fail(c, v, "expected a number");
}

static int
compile_divisor(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_NUMBER || rlm_number_sign(v->text) <= 0) {
        return schema_compile_fail(c, v, "expected a number above 0");
    }
    if (rlm_number_digits(v->text) > RLM_NUMBER_MAX_DIVISOR_DIGITS) {
        return schema_compile_fail(c, v, "at most %d digits are supported",
                                   RLM_NUMBER_MAX_DIVISOR_DIGITS);
    }
    return compile_any(c, n, v, slot);
}

static int
compile_count(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_NUMBER || rlm_number_sign(v->text) < 0 ||
        !rlm_number_is_integer(v->text)) {
        return schema_compile_fail(c, v, "expected an integer of at least 0");
    }
    *(uint64_t *)slot = (uint64_t)rlm_json_int(v, INT64_MAX);
    return 0;
}

static int
compile_bool(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_TRUE && v->type != RLM_JSON_FALSE) {
        return schema_compile_fail(c, v, "expected true or false");
    }
    *(bool *)slot = v->type == RLM_JSON_TRUE;
    return 0;
}

static int add_type(struct schema_compiler *c, const rlm_json *v, uint8_t *types)
{
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    for (unsigned i = 0; v->type == RLM_JSON_STRING && i < sizeof names / sizeof *names; i++) {
        if (rlm_str_is(v->text, names[i])) {
            *types |= (uint8_t)(1u << i);
            return 0;
        }
    }
    return schema_compile_fail(c, v,
                               "expected null, boolean, integer, number, string, array or object");
}

static int
compile_type(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_ARRAY) {
        return add_type(c, v, &n->types);
    }
    if (v->count == 0) {
        return schema_compile_fail(c, v, "a list of types must not be empty");
    }
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        r = add_type(c, &v->items[i], &n->types);
    }
    return r;
}

static int
compile_values(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_ARRAY || v->count == 0) {
        return schema_compile_fail(c, v, "expected a list of at least one value");
    }
    return compile_any(c, n, v, slot);
}

static int
compile_names(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_ARRAY) {
        return schema_compile_fail(c, v, "expected a list of names");
    }
    for (uint32_t i = 0; i < v->count; i++) {
        if (v->items[i].type != RLM_JSON_STRING) {
            return schema_compile_fail(c, &v->items[i], "expected a name");
        }
    }
    return compile_any(c, n, v, slot);
}

static int compile_dependencies(struct schema_compiler *c,
                                struct schema_node *n,
                                const rlm_json *v,
                                void *slot)
{
    if (v->type != RLM_JSON_OBJECT) {
        return schema_compile_fail(c, v, "expected an object of lists of names");
    }
    const rlm_json *names;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        r = compile_names(c, n, &v->members[i].value, &names);
    }
    return r < 0 ? r : compile_any(c, n, v, slot);
}

static int
make_regex(struct schema_compiler *c, const rlm_json *at, rlm_str pattern, rlm_regex **ret_regex)
{
    if (c->s->regexes.len >= SCHEMA_MAX_PATTERNS) {
        return schema_compile_fail(c, at, "more than %d patterns", SCHEMA_MAX_PATTERNS);
    }
    rlm_regex **place = rlm_vec_push(&c->s->regexes);
    if (!place) {
        return rlm_error_nomem(c->err);
    }
    rlm_autoerr rlm_error *why = NULL;
    int r = rlm_regex_new(pattern, place, &why);
    if (r == RLM_E_NOMEM) {
        return rlm_error_nomem(c->err);
    }
    *ret_regex = *place;
    return r < 0 ? schema_compile_fail(c, at, "%s", rlm_error_message(why)) : 0;
}

static int
compile_pattern(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_STRING) {
        return schema_compile_fail(c, v, "expected a regular expression");
    }
    return make_regex(c, v, v->text, &n->pattern);
}

/* ---- keywords that hold schemas -------------------------------------------------------------- */

static int
compile_sub(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    return schema_compile_node(c, v, slot);
}

static int
compile_items(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type == RLM_JSON_ARRAY) {
        return schema_compile_fail(c, v, "a list of schemas is written as prefixItems");
    }
    return schema_compile_node(c, v, slot);
}

static int
compile_list(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    struct schema_list *list = slot;
    if (v->type != RLM_JSON_ARRAY || v->count == 0) {
        return schema_compile_fail(c, v, "expected a list of at least one schema");
    }
    list->len = v->count;
    list->items = allocate(c, v->count, sizeof *list->items);
    if (!list->items) {
        return rlm_error_nomem(c->err);
    }
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        r = schema_compile_node(c, &v->items[i], &list->items[i]);
    }
    return r;
}

static int compare_names(rlm_str a, rlm_str b)
{
    if (a.len != b.len) {
        return a.len < b.len ? -1 : 1;
    }
    return a.len ? memcmp(a.ptr, b.ptr, a.len) : 0;
}

static int by_name(const void *left, const void *right)
{
    const struct schema_property *a = left, *b = right;
    return compare_names(a->name, b->name);
}

const struct schema_property *schema_find_property(const struct schema_node *n, rlm_str name)
{
    struct schema_property key = {.name = name};
    return n->n_properties ? bsearch(&key, n->properties, n->n_properties, sizeof key, by_name)
                           : NULL;
}

static int
compile_properties(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_OBJECT) {
        return schema_compile_fail(c, v, "expected an object of schemas");
    }
    n->properties = allocate(c, v->count, sizeof *n->properties);
    if (!n->properties) {
        return rlm_error_nomem(c->err);
    }
    for (uint32_t i = 0; i < v->count; i++) {
        n->properties[i].name = v->members[i].key;
        int r = schema_compile_node(c, &v->members[i].value, &n->properties[i].node);
        if (r < 0) {
            return r;
        }
    }
    n->n_properties = v->count;
    qsort(n->properties, n->n_properties, sizeof *n->properties, by_name);
    return 0;
}

static int
compile_patterns(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_OBJECT) {
        return schema_compile_fail(c, v, "expected an object of schemas");
    }
    n->patterns = allocate(c, v->count, sizeof *n->patterns);
    if (!n->patterns) {
        return rlm_error_nomem(c->err);
    }
    n->n_patterns = v->count;
    for (uint32_t i = 0; i < v->count; i++) {
        const struct rlm_json_member *m = &v->members[i];
        int r = make_regex(c, &m->value, m->key, &n->patterns[i].regex);
        if (r < 0 || (r = schema_compile_node(c, &m->value, &n->patterns[i].node)) < 0) {
            return r;
        }
    }
    return 0;
}

/* Definitions are compiled even if nothing refers to them, so that their faults are found. */
static int
compile_definitions(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_OBJECT) {
        return schema_compile_fail(c, v, "expected an object of schemas");
    }
    struct schema_node *node;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        r = schema_compile_node(c, &v->members[i].value, &node);
    }
    return r;
}

static int
compile_ref(struct schema_compiler *c, struct schema_node *n, const rlm_json *v, void *slot)
{
    if (v->type != RLM_JSON_STRING || !rlm_str_starts(v->text, "#")) {
        return schema_compile_fail(c, v,
                                   "only references into this schema (\"#/...\") are supported");
    }
    struct schema_reference *reference = rlm_vec_push(&c->references);
    if (!reference) {
        return rlm_error_nomem(c->err);
    }
    *reference = (struct schema_reference){n, v};
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define SLOT(member) offsetof(struct schema_node, member)

static const struct {
    const char *name;
    compile_keyword compile;
    size_t slot;
} keywords[] = {
    {"$comment", ignore_text, 0},
    {"$defs", compile_definitions, 0},
    {"$id", compile_id, 0},
    {"$ref", compile_ref, 0},
    {"$schema", ignore_text, 0},
    {"additionalProperties", compile_sub, SLOT(additional)},
    {"allOf", compile_list, SLOT(all_of)},
    {"anyOf", compile_list, SLOT(any_of)},
    {"const", compile_any, SLOT(constant)},
    {"contains", compile_sub, SLOT(contains)},
    {"contentEncoding", ignore, 0},
    {"contentMediaType", ignore, 0},
    {"contentSchema", ignore, 0},
    {"default", ignore, 0},
    {"definitions", compile_definitions, 0},
    {"dependentRequired", compile_dependencies, SLOT(dependencies)},
    {"deprecated", ignore, 0},
    {"description", ignore_text, 0},
    {"discriminator", ignore, 0},
    {"else", compile_sub, SLOT(else_schema)},
    {"enum", compile_values, SLOT(values)},
    {"examples", ignore, 0},
    {"exclusiveMaximum", compile_number, SLOT(below)},
    {"exclusiveMinimum", compile_number, SLOT(above)},
    {"format", ignore_text, 0},
    {"if", compile_sub, SLOT(if_schema)},
    {"items", compile_items, SLOT(items)},
    {"maxContains", compile_count, SLOT(max_contains)},
    {"maxItems", compile_count, SLOT(max_items)},
    {"maxLength", compile_count, SLOT(max_length)},
    {"maxProperties", compile_count, SLOT(max_properties)},
    {"maximum", compile_number, SLOT(maximum)},
    {"minContains", compile_count, SLOT(min_contains)},
    {"minItems", compile_count, SLOT(min_items)},
    {"minLength", compile_count, SLOT(min_length)},
    {"minProperties", compile_count, SLOT(min_properties)},
    {"minimum", compile_number, SLOT(minimum)},
    {"multipleOf", compile_divisor, SLOT(divisor)},
    {"not", compile_sub, SLOT(not_schema)},
    {"oneOf", compile_list, SLOT(one_of)},
    {"pattern", compile_pattern, 0},
    {"patternProperties", compile_patterns, 0},
    {"prefixItems", compile_list, SLOT(prefix)},
    {"properties", compile_properties, 0},
    {"propertyNames", compile_sub, SLOT(names)},
    {"readOnly", ignore, 0},
    {"required", compile_names, SLOT(required)},
    {"then", compile_sub, SLOT(then_schema)},
    {"title", ignore_text, 0},
    {"type", compile_type, 0},
    {"uniqueItems", compile_bool, SLOT(unique)},
    {"writeOnly", ignore, 0},
};

static int
compile_member(struct schema_compiler *c, struct schema_node *n, const struct rlm_json_member *m)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (rlm_str_is(m->key, keywords[i].name)) {
            return keywords[i].compile(c, n, &m->value, (char *)n + keywords[i].slot);
        }
    }
    rlm_auto_buf struct rlm_buf name = RLM_BUF(4096);
    rlm_value_preview(&(rlm_json){.type = RLM_JSON_STRING, .text = m->key}, SCHEMA_MAX_SHOWN,
                      &name);
    return schema_compile_fail(
        c, &m->value, "the keyword %s is not supported (docs/json-schema.md lists those that are)",
        name.ptr ? name.ptr : "");
}

int schema_compile_node(struct schema_compiler *c, const rlm_json *v, struct schema_node **ret_node)
{
    if (v->type != RLM_JSON_OBJECT && v->type != RLM_JSON_TRUE && v->type != RLM_JSON_FALSE) {
        return schema_compile_fail(c, v, "expected a schema, which is an object, true or false");
    }
    if (c->nodes.count >= SCHEMA_MAX_NODES) {
        return rlm_error_set(c->err, RLM_E_LIMIT, "the schema consists of more than %d schemas",
                             SCHEMA_MAX_NODES);
    }
    struct schema_node *n = rlm_arena_alloc(c->s->arena, sizeof *n);
    if (!n || rlm_map_set(&c->nodes, schema_address(&v), n) < 0) {
        return rlm_error_nomem(c->err);
    }
    *n = (struct schema_node){
        .json = v,
        .refuses = v->type == RLM_JSON_FALSE,
        .max_length = UINT64_MAX,
        .max_items = UINT64_MAX,
        .min_contains = 1,
        .max_contains = UINT64_MAX,
        .max_properties = UINT64_MAX,
    };
    int r = 0;
    for (uint32_t i = 0; r == 0 && v->type == RLM_JSON_OBJECT && i < v->count; i++) {
        r = compile_member(c, n, &v->members[i]);
    }
    if (r == 0) {
        *ret_node = n;
    }
    return r;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int compile(rlm_schema *s, rlm_error **err)
{
    struct schema_compiler c = {.s = s, .err = err};
    const rlm_json *object = NULL;
    rlm_str name = RLM_STR_NONE;
    uint64_t count = 0;
    int r = rlm_value_repeated_member(s->json, &count, &object, &name, err);
    if (r > 0) {
        rlm_auto_buf struct rlm_buf shown = RLM_BUF(4096);
        rlm_json quoted = {.type = RLM_JSON_STRING, .text = name};
        rlm_value_preview(&quoted, SCHEMA_MAX_SHOWN, &shown);
        r = schema_compile_fail(&c, object, "%s stands here twice",
                                shown.ptr ? shown.ptr : "a name");
    }
    if (r < 0 || (r = schema_compile_node(&c, s->json, &s->root)) < 0 ||
        (r = schema_compile_references(&c)) < 0) {
        goto out;
    }
    r = schema_refuse_loops(&c);
out:
    rlm_map_deinit(&c.nodes);
    free(c.references.items);
    return r;
}

int rlm_schema_new(rlm_str json, rlm_schema **ret_schema, rlm_error **err)
{
    if (json.len > SCHEMA_MAX_BYTES) {
        return rlm_error_set(err, RLM_E_LIMIT, "a schema of %zu bytes: at most %d are allowed",
                             json.len, SCHEMA_MAX_BYTES);
    }
    rlm_schema *s;
    if (!RLM_NEW(s)) {
        return rlm_error_nomem(err);
    }
    int r;
    s->arena = rlm_arena_new(0);
    if (!s->arena || !(s->text = rlm_arena_copy(s->arena, json)).ptr) {
        r = rlm_error_nomem(err);
    } else if ((r = rlm_json_parse(s->arena, s->text, &s->json, err)) < 0) {
        rlm_error_wrap(err, r, "schema");
    } else {
        r = compile(s, err);
    }
    if (r < 0) {
        rlm_schema_free(s);
        return r;
    }
    *ret_schema = s;
    return 0;
}

void rlm_schema_free(rlm_schema *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->regexes.len; i++) {
        rlm_regex_free(s->regexes.items[i]);
    }
    free(s->regexes.items);
    rlm_arena_free(s->arena);
    free(s);
}

const rlm_json *rlm_schema_root(const rlm_schema *s)
{
    return s->json;
}

int rlm_json_check(rlm_str schema_json, rlm_str value_json, rlm_error **err)
{
    rlm_schema *schema;
    int r = rlm_schema_new(schema_json, &schema, err);
    if (r < 0 || !value_json.ptr) {
        if (r == 0) {
            rlm_schema_free(schema);
        }
        return r;
    }
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *value;
    r = arena ? rlm_json_parse(arena, value_json, &value, err) : rlm_error_nomem(err);
    if (r == 0) {
        r = rlm_schema_check(schema, value, err);
    }
    rlm_schema_free(schema);
    return r;
}
