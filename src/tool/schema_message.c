#include "base/error.h"
#include "tool/schema_node.h"
#include "tool/value.h"

enum { MAX_MESSAGE_BYTES = 512 * 1024, MAX_POINTER_CHARS = 2000 };

static void add_quoted(struct rlm_buf *b, rlm_str text)
{
    rlm_json quoted = {.type = RLM_JSON_STRING, .text = text};
    rlm_value_preview(&quoted, SCHEMA_MAX_SHOWN, b);
}

static void add_types(struct rlm_buf *b, unsigned types)
{
    static const char *const words[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "an array",  "an object"};
    if (types & SCHEMA_NUMBER) {
        types &= ~(unsigned)SCHEMA_INTEGER;
    }
    /* null comes last: "a string or null" */
    unsigned order[] = {1, 2, 3, 4, 5, 6, 0}, left = (unsigned)__builtin_popcount(types);
    for (unsigned i = 0; i < sizeof order / sizeof *order; i++) {
        if (types & 1u << order[i]) {
            rlm_buf_adds(b, words[order[i]]);
            left--;
            rlm_buf_adds(b, left > 1 ? ", " : left == 1 ? " or " : "");
        }
    }
}

static void
add_count(struct rlm_buf *b, const char *bound, uint64_t count, const char *one, const char *many)
{
    rlm_buf_addf(b, "expected %s %llu %s", bound, (unsigned long long)count,
                 count == 1 ? one : many);
}

static void add_number(struct rlm_buf *b, const char *what, const rlm_json *number)
{
    rlm_buf_adds(b, what);
    rlm_value_preview(number, SCHEMA_MAX_SHOWN, b);
}

/* The known names of an object that has a surplus one. */
static void add_known_names(struct rlm_buf *b, const struct schema_node *n)
{
    const rlm_json *properties = rlm_json_get(n->json, "properties");
    if (!properties || properties->count == 0) {
        return;
    }
    rlm_auto_buf struct rlm_buf names = RLM_BUF(64 * 1024);
    for (uint32_t i = 0; i < properties->count && names.len < 4 * SCHEMA_MAX_SHOWN; i++) {
        rlm_buf_adds(&names, i ? ", " : "");
        add_quoted(&names, properties->members[i].key);
    }
    rlm_buf_adds(b, "; the properties are ");
    rlm_value_clip(&names, 0, SCHEMA_MAX_SHOWN);
    rlm_buf_add_str(b, rlm_buf_str(&names));
    b->status = b->status < 0 ? b->status : names.status;
}

/* What is wrong with the presence of properties; false when the fault is of another kind. */
static bool add_presence(struct rlm_buf *b, const struct schema_fault *f)
{
    switch (f->kind) {
    case FAULT_REQUIRED:
        rlm_buf_adds(b, "the required property ");
        add_quoted(b, f->name);
        rlm_buf_adds(b, " is missing");
        return true;
    case FAULT_DEPENDENT:
        rlm_buf_adds(b, "the property ");
        add_quoted(b, f->name);
        rlm_buf_adds(b, " is missing, which is required beside ");
        add_quoted(b, f->because);
        return true;
    case FAULT_SURPLUS:
        rlm_buf_adds(b, "the property ");
        add_quoted(b, f->name);
        rlm_buf_adds(b, " is not allowed");
        add_known_names(b, f->node);
        return true;
    case FAULT_REPEATED:
        rlm_buf_adds(b, "the property ");
        add_quoted(b, f->name);
        rlm_buf_adds(b, " stands twice in an object");
        return true;
    default:
        return false;
    }
}

/* "expected ..." about sizes; true when `f->first` says what was found. */
static bool add_size(struct rlm_buf *b, const struct schema_fault *f)
{
    const struct schema_node *n = f->node;
    switch (f->kind) {
    case FAULT_MIN_LENGTH:
        add_count(b, "at least", n->min_length, "character", "characters");
        return true;
    case FAULT_MAX_LENGTH:
        add_count(b, "at most", n->max_length, "character", "characters");
        return true;
    case FAULT_MIN_ITEMS:
        add_count(b, "at least", n->min_items, "item", "items");
        return true;
    case FAULT_MAX_ITEMS:
        add_count(b, "at most", n->max_items, "item", "items");
        return true;
    case FAULT_MIN_CONTAINS:
        add_count(b, "at least", n->min_contains, "item", "items");
        rlm_buf_adds(b, " that fit \"contains\"");
        return true;
    case FAULT_MAX_CONTAINS:
        add_count(b, "at most", n->max_contains, "item", "items");
        rlm_buf_adds(b, " that fit \"contains\"");
        return true;
    case FAULT_MIN_PROPERTIES:
        add_count(b, "at least", n->min_properties, "property", "properties");
        return true;
    case FAULT_MAX_PROPERTIES:
        add_count(b, "at most", n->max_properties, "property", "properties");
        return true;
    default:
        return false;
    }
}

static void add_expected(struct rlm_buf *b, const struct schema_fault *f)
{
    const struct schema_node *n = f->node;
    switch (f->kind) {
    case FAULT_REFUSED:
        rlm_buf_adds(b, "no value is allowed here");
        break;
    case FAULT_TYPE:
        rlm_buf_adds(b, "expected ");
        add_types(b, f->types);
        break;
    case FAULT_CONST:
        add_number(b, "expected ", n->constant);
        break;
    case FAULT_ENUM:
        rlm_buf_adds(b, n->values->count > 1 ? "expected one of " : "expected ");
        rlm_value_preview_list(n->values, SCHEMA_MAX_SHOWN, b);
        break;
    case FAULT_MINIMUM:
        add_number(b, "expected at least ", n->minimum);
        break;
    case FAULT_MAXIMUM:
        add_number(b, "expected at most ", n->maximum);
        break;
    case FAULT_ABOVE:
        add_number(b, "expected more than ", n->above);
        break;
    case FAULT_BELOW:
        add_number(b, "expected less than ", n->below);
        break;
    case FAULT_MULTIPLE:
        add_number(b, "expected a multiple of ", n->divisor);
        break;
    case FAULT_PATTERN:
        rlm_buf_adds(b, "expected text that matches the pattern ");
        add_quoted(b, rlm_json_text(rlm_json_get(n->json, "pattern"), RLM_STR_NONE));
        break;
    case FAULT_UNIQUE:
        rlm_buf_addf(b, "expected items that differ, but items %llu and %llu are equal",
                     (unsigned long long)f->first, (unsigned long long)f->second);
        break;
    case FAULT_ONE_OF:
        rlm_buf_addf(b,
                     "expected a value that fits exactly one schema of \"oneOf\", but it fits "
                     "numbers %llu and %llu",
                     (unsigned long long)f->first, (unsigned long long)f->second);
        break;
    default:
        rlm_buf_adds(b, "expected a value that does not fit the schema of \"not\"");
        break;
    }
}

static void add_what(struct rlm_buf *b, const struct schema_fault *f)
{
    if (f->holder) {
        rlm_buf_adds(b, "a property name: ");
    }
    if (add_presence(b, f)) {
        return;
    }
    bool sized = add_size(b, f);
    if (!sized) {
        add_expected(b, f);
    }
    rlm_buf_adds(b, ", found ");
    if (sized) {
        rlm_buf_addf(b, "%llu%s", (unsigned long long)f->first, f->holder ? " in " : "");
    }
    if (f->holder) {
        add_quoted(b, f->name);
    } else if (!sized) {
        rlm_value_preview(f->value, SCHEMA_MAX_SHOWN, b);
    }
}

void schema_add_place(struct rlm_buf *out, const rlm_json *tree, const rlm_json *value)
{
    rlm_auto_buf struct rlm_buf pointer = RLM_BUF(SCHEMA_MAX_POINTER);
    if (value == tree || !rlm_value_pointer(tree, value, &pointer)) {
        rlm_buf_adds(out, "at the root");
        return;
    }
    rlm_value_clip(&pointer, 0, MAX_POINTER_CHARS);
    rlm_buf_adds(out, "at ");
    rlm_buf_add_str(out, rlm_buf_str(&pointer));
}

int schema_fault_error(const struct schema_fault *f, const rlm_json *tree, rlm_error **err)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(MAX_MESSAGE_BYTES);
    schema_add_place(&b, tree, f->value);
    rlm_buf_adds(&b, ": ");
    add_what(&b, f);
    int r = rlm_buf_check(&b, err);
    return r < 0 ? r : rlm_error_set(err, RLM_E_SCHEMA, "%s", b.ptr);
}
