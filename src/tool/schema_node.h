/* A compiled schema: what schema.c makes, schema_check.c walks and schema_message.c explains. */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "base/regex.h"
#include "base/vec.h"
#include "tool/schema.h"

enum {
    SCHEMA_MAX_BYTES = 1024 * 1024,
    SCHEMA_MAX_NODES = 20000,
    SCHEMA_MAX_PATTERNS = 1000,
    SCHEMA_MAX_IN_PLACE = 100, /* schemas applied to one value, each inside the one before */
    SCHEMA_MAX_FRAMES = 2000,  /* schemas applied at one time, on the way to the deepest value */
    SCHEMA_MAX_POINTER = 256 * 1024, /* bytes, before it is clipped */
    SCHEMA_MAX_SHOWN = 80,           /* characters of a value in a message */
};

enum schema_type {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_INTEGER = 4,
    SCHEMA_NUMBER = 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
};

struct schema_node;

struct schema_list {
    struct schema_node **items;
    size_t len;
};

struct schema_property {
    rlm_str name;
    struct schema_node *node;
};

struct schema_pattern {
    rlm_regex *regex;
    struct schema_node *node;
};

/* One schema. Bounds that are not given are such that any value passes; pointers are NULL. */
struct schema_node {
    const rlm_json *json;
    bool refuses; /* the schema `false` */
    uint8_t types;
    const rlm_json *constant;
    const rlm_json *values; /* enum */

    const rlm_json *minimum;
    const rlm_json *maximum;
    const rlm_json *above; /* exclusiveMinimum */
    const rlm_json *below; /* exclusiveMaximum */
    const rlm_json *divisor;

    uint64_t min_length;
    uint64_t max_length;
    rlm_regex *pattern;

    uint64_t min_items;
    uint64_t max_items;
    uint64_t min_contains;
    uint64_t max_contains;
    bool unique;
    struct schema_list prefix;
    struct schema_node *items;
    struct schema_node *contains;

    uint64_t min_properties;
    uint64_t max_properties;
    const rlm_json *required;           /* names */
    const rlm_json *dependencies;       /* dependentRequired: names to names */
    struct schema_property *properties; /* sorted */
    size_t n_properties;
    struct schema_pattern *patterns;
    size_t n_patterns;
    struct schema_node *additional;
    struct schema_node *names;

    struct schema_node *ref;
    struct schema_list all_of;
    struct schema_list any_of;
    struct schema_list one_of;
    struct schema_node *not_schema;
    struct schema_node *if_schema;
    struct schema_node *then_schema;
    struct schema_node *else_schema;

    uint8_t visit;     /* while loops are searched: 0 not seen, 1 on the way, 2 done */
    uint16_t in_place; /* how many schemas stand in each other below this one, for one value */
};

struct rlm_schema {
    rlm_arena *arena;
    rlm_str text;
    const rlm_json *json;
    struct schema_node *root;
    RLM_VEC(rlm_regex *) regexes;
};

const struct schema_property *schema_find_property(const struct schema_node *n, rlm_str name);

/* What a value does not fit. */
enum schema_fault_kind {
    FAULT_REFUSED,
    FAULT_TYPE,
    FAULT_CONST,
    FAULT_ENUM,
    FAULT_MINIMUM,
    FAULT_MAXIMUM,
    FAULT_ABOVE,
    FAULT_BELOW,
    FAULT_MULTIPLE,
    FAULT_MIN_LENGTH,
    FAULT_MAX_LENGTH,
    FAULT_PATTERN,
    FAULT_MIN_ITEMS,
    FAULT_MAX_ITEMS,
    FAULT_MIN_CONTAINS,
    FAULT_MAX_CONTAINS,
    FAULT_UNIQUE,
    FAULT_MIN_PROPERTIES,
    FAULT_MAX_PROPERTIES,
    FAULT_REQUIRED,
    FAULT_DEPENDENT,
    FAULT_SURPLUS,
    FAULT_ONE_OF,
    FAULT_NOT,
    FAULT_REPEATED, /* an object names a member twice */
};

struct schema_fault {
    enum schema_fault_kind kind;
    uint8_t types;  /* FAULT_TYPE: those that are allowed */
    uint32_t depth; /* of the value in the tree */
    const struct schema_node *node;
    const rlm_json *value;
    rlm_str name;    /* the property that is missing, surplus, or has a name that does not fit */
    rlm_str because; /* FAULT_DEPENDENT: the property that is there */
    const rlm_json *holder; /* the object, when it is the name of a property that does not fit */
    uint64_t first;         /* counts, or the two items or schemas in question */
    uint64_t second;
};

/* "at /items/3", or "at the root". */
void schema_add_place(struct rlm_buf *out, const rlm_json *tree, const rlm_json *value);
/* Sets RLM_E_SCHEMA with the message (or RLM_E_NOMEM) and returns it. */
int schema_fault_error(const struct schema_fault *f, const rlm_json *tree, rlm_error **err);
