#include "base/utf8.h"
#include "tool/number.h"
#include "tool/schema_node.h"
#include "tool/value.h"

/* Enough for any schema that looks at a value a few dozen times; what needs more multiplies. */
enum { BASE_STEPS = 10000000, STEPS_PER_VALUE = 64 };

struct checker {
    const rlm_json *tree;

    uint64_t steps;
    uint32_t frames;
    rlm_error **err;
};

/* All checks return 0 when the value fits, 1 with the fault when not, negative with the error. */
typedef struct schema_fault fault;

static int
check(struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f);

static int give_up(struct checker *c, const rlm_json *at, const char *why)
{
    rlm_auto_buf struct rlm_buf place = RLM_BUF(SCHEMA_MAX_POINTER);
    schema_add_place(&place, c->tree, at);
    c->steps = 0;
    return rlm_error_set(c->err, RLM_E_SCHEMA, "%s: the check against the schema was given up: %s",
                         place.ptr ? place.ptr : "at the root", why);
}

static int spend(struct checker *c, const rlm_json *at, uint64_t steps)
{
    if (c->steps <= steps) {
        return give_up(c, at, "the value is too large or the schema tries too many ways");
    }
    c->steps -= steps;
    return 0;
}

static int found(fault *f,
                 enum schema_fault_kind kind,
                 const struct schema_node *n,
                 const rlm_json *v,
                 uint32_t depth)
{
    *f = (fault){.kind = kind, .node = n, .value = v, .depth = depth, .types = n->types};
    return 1;
}

static int found_number(fault *f,
                        enum schema_fault_kind kind,
                        const struct schema_node *n,
                        const rlm_json *v,
                        uint32_t depth,
                        uint64_t number)
{
    found(f, kind, n, v, depth);
    f->first = number;
    return 1;
}

static int found_name(fault *f,
                      enum schema_fault_kind kind,
                      const struct schema_node *n,
                      const rlm_json *v,
                      uint32_t depth,
                      rlm_str name)
{
    found(f, kind, n, v, depth);
    f->name = name;
    return 1;
}

/* ---- any value ------------------------------------------------------------------------------- */

static bool has_type(const rlm_json *v, uint8_t types)
{
    switch ((enum rlm_json_type)v->type) {
    case RLM_JSON_NULL:
        return types & SCHEMA_NULL;
    case RLM_JSON_FALSE:
    case RLM_JSON_TRUE:
        return types & SCHEMA_BOOLEAN;
    case RLM_JSON_NUMBER:
        return types & SCHEMA_NUMBER || (types & SCHEMA_INTEGER && rlm_number_is_integer(v->text));
    case RLM_JSON_STRING:
        return types & SCHEMA_STRING;
    case RLM_JSON_ARRAY:
        return types & SCHEMA_ARRAY;
    case RLM_JSON_OBJECT:
        return types & SCHEMA_OBJECT;
    }
    return false;
}

static int check_any(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    if (n->refuses) {
        return found(f, FAULT_REFUSED, n, v, depth);
    }
    if (n->types && !has_type(v, n->types)) {
        return found(f, FAULT_TYPE, n, v, depth);
    }
    if (n->constant && !rlm_value_equal(v, n->constant, &c->steps)) {
        return spend(c, v, 0) < 0 ? RLM_E_SCHEMA : found(f, FAULT_CONST, n, v, depth);
    }
    if (n->values) {
        bool equal = false;
        for (uint32_t i = 0; !equal && i < n->values->count; i++) {
            int r = spend(c, v, 1);
            if (r < 0) {
                return r;
            }
            equal = rlm_value_equal(v, &n->values->items[i], &c->steps);
        }
        if (!equal) {
            return spend(c, v, 0) < 0 ? RLM_E_SCHEMA : found(f, FAULT_ENUM, n, v, depth);
        }
    }
    return 0;
}

/* ---- numbers and strings --------------------------------------------------------------------- */

static int check_number(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    enum { BYTES_PER_STEP = 16 };
    int r = spend(c, v, v->text.len / BYTES_PER_STEP);
    if (r < 0) {
        return r;
    }
    if (n->minimum && rlm_number_compare(v->text, n->minimum->text) < 0) {
        return found(f, FAULT_MINIMUM, n, v, depth);
    }
    if (n->maximum && rlm_number_compare(v->text, n->maximum->text) > 0) {
        return found(f, FAULT_MAXIMUM, n, v, depth);
    }
    if (n->above && rlm_number_compare(v->text, n->above->text) <= 0) {
        return found(f, FAULT_ABOVE, n, v, depth);
    }
    if (n->below && rlm_number_compare(v->text, n->below->text) >= 0) {
        return found(f, FAULT_BELOW, n, v, depth);
    }
    if (n->divisor && !rlm_number_is_multiple(v->text, n->divisor->text)) {
        return found(f, FAULT_MULTIPLE, n, v, depth);
    }
    return 0;
}

/* 1 when the text matches, 0 when not; running out of steps or memory is an error. */
static int matches(struct checker *c, const rlm_json *v, rlm_regex *regex, rlm_str text)
{
    rlm_autoerr rlm_error *why = NULL;
    int r = rlm_regex_search(regex, text, NULL, 0, &why);
    if (r == RLM_E_NOMEM) {
        return rlm_error_nomem(c->err);
    }
    if (r < 0) {
        return give_up(c, v, rlm_error_message(why));
    }
    int spent = spend(c, v, rlm_regex_cost(regex));
    return spent < 0 ? spent : r;
}

static int check_string(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    if (n->min_length || n->max_length != UINT64_MAX) {
        enum { BYTES_PER_STEP = 64 };
        int r = spend(c, v, v->text.len / BYTES_PER_STEP);
        if (r < 0) {
            return r;
        }
        uint64_t length = rlm_utf8_count(v->text);
        if (length < n->min_length) {
            return found_number(f, FAULT_MIN_LENGTH, n, v, depth, length);
        }
        if (length > n->max_length) {
            return found_number(f, FAULT_MAX_LENGTH, n, v, depth, length);
        }
    }
    if (n->pattern) {
        int r = matches(c, v, n->pattern, v->text);
        if (r <= 0) {
            return r < 0 ? r : found(f, FAULT_PATTERN, n, v, depth);
        }
    }
    return 0;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static int check_contains(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    uint64_t count = 0;
    fault ignored;
    for (uint32_t i = 0; i < v->count; i++) {
        int r = check(c, n->contains, &v->items[i], depth + 1, &ignored);
        if (r < 0) {
            return r;
        }
        count += r == 0;
    }
    if (count < n->min_contains) {
        return found_number(f, FAULT_MIN_CONTAINS, n, v, depth, count);
    }
    if (count > n->max_contains) {
        return found_number(f, FAULT_MAX_CONTAINS, n, v, depth, count);
    }
    return 0;
}

static int check_unique(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    size_t first, second;
    int r = rlm_value_repeated_item(v, &c->steps, &first, &second, c->err);
    if (r < 0) {
        return r;
    }
    if (spend(c, v, 0) < 0) {
        return RLM_E_SCHEMA;
    }
    if (r > 0) {
        found_number(f, FAULT_UNIQUE, n, v, depth, first);
        f->second = second;
    }
    return r;
}

static int check_array(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    if (v->count < n->min_items) {
        return found_number(f, FAULT_MIN_ITEMS, n, v, depth, v->count);
    }
    if (v->count > n->max_items) {
        return found_number(f, FAULT_MAX_ITEMS, n, v, depth, v->count);
    }
    int r = 0;
    if (n->contains && (r = check_contains(c, n, v, depth, f)) != 0) {
        return r;
    }
    if (n->unique && (r = check_unique(c, n, v, depth, f)) != 0) {
        return r;
    }
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        const struct schema_node *item = i < n->prefix.len ? n->prefix.items[i] : n->items;
        if (!item) {
            break;
        }
        r = check(c, item, &v->items[i], depth + 1, f);
    }
    return r;
}

/* ---- objects --------------------------------------------------------------------------------- */

/* The names of the list that the object lacks: 1 with the first of them. */
static int
find_missing(struct checker *c, const rlm_json *names, const rlm_json *object, rlm_str *ret_name)
{
    enum { MEMBERS_PER_STEP = 8 };
    for (uint32_t i = 0; i < names->count; i++) {
        int r = spend(c, object, 1 + object->count / MEMBERS_PER_STEP);
        if (r < 0) {
            return r;
        }
        if (!rlm_json_get_str(object, names->items[i].text)) {
            *ret_name = names->items[i].text;
            return 1;
        }
    }
    return 0;
}

static int check_presence(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    rlm_str name;
    int r = n->required ? find_missing(c, n->required, v, &name) : 0;
    if (r != 0) {
        return r < 0 ? r : found_name(f, FAULT_REQUIRED, n, v, depth, name);
    }
    if (v->count < n->min_properties) {
        return found_number(f, FAULT_MIN_PROPERTIES, n, v, depth, v->count);
    }
    if (v->count > n->max_properties) {
        return found_number(f, FAULT_MAX_PROPERTIES, n, v, depth, v->count);
    }
    for (uint32_t i = 0; n->dependencies && i < n->dependencies->count; i++) {
        const struct rlm_json_member *m = &n->dependencies->members[i];
        rlm_json reason = {.type = RLM_JSON_STRING, .text = m->key};
        rlm_json reasons = {.type = RLM_JSON_ARRAY, .count = 1, .items = &reason};
        if ((r = find_missing(c, &reasons, v, &name)) == 0 &&
            (r = find_missing(c, &m->value, v, &name)) > 0) {
            found_name(f, FAULT_DEPENDENT, n, v, depth, name);
            f->because = m->key;
            return 1;
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int check_name(struct checker *c,
                      const struct schema_node *n,
                      const rlm_json *object,
                      rlm_str name,
                      uint32_t depth,
                      fault *f)
{
    rlm_json text = {.type = RLM_JSON_STRING, .text = name};
    int r = check(c, n->names, &text, depth, f);
    if (r > 0) {
        f->value = object; /* `text` ends here */
        f->holder = object;
        f->name = name;
    }
    return r;
}

static int check_member(struct checker *c,
                        const struct schema_node *n,
                        const rlm_json *object,
                        const struct rlm_json_member *m,
                        uint32_t depth,
                        fault *f)
{
    int r = 0;
    bool known = false;
    if (n->names && (r = check_name(c, n, object, m->key, depth, f)) != 0) {
        return r;
    }
    const struct schema_property *property = schema_find_property(n, m->key);
    if (property) {
        known = true;
        if ((r = check(c, property->node, &m->value, depth + 1, f)) != 0) {
            return r;
        }
    }
    for (size_t i = 0; i < n->n_patterns; i++) {
        if ((r = matches(c, &m->value, n->patterns[i].regex, m->key)) < 0) {
            return r;
        }
        if (r > 0) {
            known = true;
            if ((r = check(c, n->patterns[i].node, &m->value, depth + 1, f)) != 0) {
                return r;
            }
        }
    }
    if (known || !n->additional) {
        return 0;
    }
    if (n->additional->refuses) {
        return found_name(f, FAULT_SURPLUS, n, object, depth, m->key);
    }
    return check(c, n->additional, &m->value, depth + 1, f);
}

static int check_object(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    int r = check_presence(c, n, v, depth, f);
    bool looks_inside = n->n_properties || n->n_patterns || n->additional || n->names;
    for (uint32_t i = 0; r == 0 && looks_inside && i < v->count; i++) {
        if ((r = spend(c, v, 1)) == 0) {
            r = check_member(c, n, v, &v->members[i], depth, f);
        }
    }
    return r;
}

/* ---- schemas applied to the same value ------------------------------------------------------- */

/* Keeps in `best` the fault to be told of the branches of anyOf and oneOf: the deepest; at one depth
 * one that is not about the type, since the branch at least began to fit; types are joined. */
static void keep_better(fault *best, const fault *f, bool first)
{
    bool type = f->kind == FAULT_TYPE, best_type = best->kind == FAULT_TYPE;
    if (first || f->depth > best->depth || (f->depth == best->depth && best_type && !type)) {
        *best = *f;
    } else if (f->depth == best->depth && type && best_type && f->value == best->value) {
        best->types |= f->types;
    }
}

static int check_any_of(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    int r = 0;
    fault branch;
    for (size_t i = 0; i < n->any_of.len; i++) {
        r = check(c, n->any_of.items[i], v, depth, &branch);
        if (r <= 0) {
            return r;
        }
        keep_better(f, &branch, i == 0);
    }
    return r;
}

static int check_one_of(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    fault branch, best = {0};
    size_t fits = 0, first = 0;
    for (size_t i = 0; i < n->one_of.len; i++) {
        int r = check(c, n->one_of.items[i], v, depth, &branch);
        if (r < 0) {
            return r;
        }
        if (r > 0) {
            keep_better(&best, &branch, i == 0);
        } else if (fits++ == 0) {
            first = i;
        } else {
            found_number(f, FAULT_ONE_OF, n, v, depth, first);
            f->second = i;
            return 1;
        }
    }
    if (n->one_of.len && fits == 0) {
        *f = best;
        return 1;
    }
    return 0;
}

static int check_condition(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    fault ignored;
    int r = check(c, n->if_schema, v, depth, &ignored);
    if (r < 0) {
        return r;
    }
    const struct schema_node *next = r == 0 ? n->then_schema : n->else_schema;
    return next ? check(c, next, v, depth, f) : 0;
}

static int check_in_place(
    struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    int r = n->ref ? check(c, n->ref, v, depth, f) : 0;
    for (size_t i = 0; r == 0 && i < n->all_of.len; i++) {
        r = check(c, n->all_of.items[i], v, depth, f);
    }
    if (r == 0) {
        r = check_any_of(c, n, v, depth, f);
    }
    if (r == 0) {
        r = check_one_of(c, n, v, depth, f);
    }
    if (r == 0 && n->not_schema) {
        fault expected;
        r = check(c, n->not_schema, v, depth, &expected);
        r = r < 0 ? r : r > 0 ? 0 : found(f, FAULT_NOT, n, v, depth);
    }
    if (r == 0 && n->if_schema) {
        r = check_condition(c, n, v, depth, f);
    }
    return r;
}

static int
check(struct checker *c, const struct schema_node *n, const rlm_json *v, uint32_t depth, fault *f)
{
    int r = spend(c, v, 1);
    if (r < 0) {
        return r;
    }
    if (c->frames >= SCHEMA_MAX_FRAMES) {
        return give_up(c, v, "the value is nested too deep for it");
    }
    c->frames++;
    r = check_any(c, n, v, depth, f);
    if (r == 0 && v->type == RLM_JSON_NUMBER) {
        r = check_number(c, n, v, depth, f);
    } else if (r == 0 && v->type == RLM_JSON_STRING) {
        r = check_string(c, n, v, depth, f);
    } else if (r == 0 && v->type == RLM_JSON_ARRAY) {
        r = check_array(c, n, v, depth, f);
    } else if (r == 0 && v->type == RLM_JSON_OBJECT) {
        r = check_object(c, n, v, depth, f);
    }
    if (r == 0 && n->in_place) {
        r = check_in_place(c, n, v, depth, f);
    }
    c->frames--;
    return r;
}

int rlm_schema_check(const rlm_schema *s, const rlm_json *value, rlm_error **err)
{
    struct checker c = {.tree = value, .err = err};
    fault f = {0};
    uint64_t count = 0;
    const rlm_json *object;
    rlm_str name;
    int r = rlm_value_repeated_member(value, &count, &object, &name, err);
    if (r < 0) {
        return r;
    }
    if (r > 0) {
        f = (fault){.kind = FAULT_REPEATED, .value = object, .name = name};
        return schema_fault_error(&f, value, err);
    }
    c.steps = BASE_STEPS + STEPS_PER_VALUE * count;
    r = check(&c, s->root, value, 0, &f);
    return r > 0 ? schema_fault_error(&f, value, err) : r;
}
