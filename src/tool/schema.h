/* JSON Schema, a subset of draft 2020-12 (docs/json-schema.md names it): type, enum, const,
 * properties, required, additionalProperties, patternProperties, propertyNames, min/maxProperties,
 * items, prefixItems, contains, min/maxContains, min/maxItems, uniqueItems, min/maxLength (code
 * points), pattern (PCRE2, UTF), minimum, maximum, exclusive ones, multipleOf, allOf, anyOf, oneOf, not,
 * if/then/else, dependentRequired, $ref to "#..." and $defs, boolean schemas; title, description,
 * default, examples, format, $schema, $id of the root and $comment are accepted and mean nothing.
 * Any other keyword is an error at compile time that names it, so that nothing is silently not
 * checked. Depth and steps are bounded.
 */
#pragma once

#include "base/error.h"
#include "base/json.h"

typedef struct rlm_schema rlm_schema;

/* RLM_E_PARSE (no JSON) or RLM_E_SCHEMA, with the JSON Pointer of the faulty keyword. */
int rlm_schema_new(rlm_str json, rlm_schema **ret_schema, rlm_error **err);
void rlm_schema_free(rlm_schema *s);

/* 0, or RLM_E_SCHEMA: the message says the JSON Pointer of the value ("at /items/3/price"), what was
 * expected and what was found (clipped). Of several faults the first in document order. */
int rlm_schema_check(const rlm_schema *s, const rlm_json *value, rlm_error **err);

/* The schema as it was given. */
rlm_str rlm_schema_json(const rlm_schema *s);
