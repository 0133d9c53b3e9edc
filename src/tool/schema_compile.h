/* What schema.c (keywords) and schema_refs.c (references and loops) share while a schema is made. */
#pragma once

#include "base/map.h"
#include "tool/schema_node.h"

/* A $ref whose target is looked up once everything is compiled. */
struct schema_reference {
    struct schema_node *from;
    const rlm_json *at; /* the text of the reference */
};

struct schema_compiler {
    rlm_schema *s;
    struct rlm_map nodes; /* from the address of the JSON value to its node */
    RLM_VEC(struct schema_reference) references;
    rlm_error **err;
};

static inline rlm_str schema_address(const rlm_json *const *v)
{
    return (rlm_str){(const char *)v, sizeof *v};
}

/* Says where in the schema, then what: RLM_E_SCHEMA. */
int schema_compile_fail(struct schema_compiler *c, const rlm_json *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int schema_compile_node(struct schema_compiler *c,
                        const rlm_json *v,
                        struct schema_node **ret_node);
/* Finds, and compiles where that is still to be done, what each $ref leads to. */
int schema_compile_references(struct schema_compiler *c);
/* Refuses schemas that apply to one value for ever, or nest in each other too deep. */
int schema_refuse_loops(struct schema_compiler *c);
