/* JSON Schema, a subset of draft 2020-12 (docs/json-schema.md names it): type, enum, const,
 * properties, required, additionalProperties, patternProperties, propertyNames, min/maxProperties,
 * items, prefixItems, contains, min/maxContains, min/maxItems, uniqueItems, min/maxLength (code
 * points), pattern (base/regex.h), minimum, maximum, exclusive ones, multipleOf, allOf, anyOf, oneOf,
 * not, if/then/else, dependentRequired, $ref to "#..." and $defs (or definitions), boolean schemas;
 * title, description, default, examples, format, contentEncoding, contentMediaType, contentSchema,
 * discriminator, deprecated, readOnly, writeOnly, $schema, $id of the root and $comment are accepted
 * and mean nothing. Any other keyword is an error at compile time
 * that names it, so that nothing is silently not checked. Depth and steps are bounded.
 *
 * A schema is for one thread at a time.
 */
#pragma once

#include "base/error.h"
#include "base/json.h"

typedef struct rlm_schema rlm_schema;

/* RLM_E_PARSE (no JSON) or RLM_E_SCHEMA, with the JSON Pointer of the faulty keyword; RLM_E_LIMIT for
 * a schema that is too big; RLM_E_NOMEM. */
int rlm_schema_new(rlm_str json, rlm_schema **ret_schema, rlm_error **err);
void rlm_schema_free(rlm_schema *s);

/* 0, or RLM_E_SCHEMA: the message says the JSON Pointer of the value ("at /items/3/price"), what was
 * expected and what was found (clipped). Of several faults the first is named: those of a value
 * before those of its parts, parts in the order of the document, then what allOf, anyOf and the like
 * find. Of anyOf and oneOf the fault of the schema that got deepest is named. An object that names a
 * member twice does not fit any schema, for readers disagree on what it means. A check that would
 * take too long is given up, which is RLM_E_SCHEMA too. RLM_E_NOMEM. */
int rlm_schema_check(const rlm_schema *s, const rlm_json *value, rlm_error **err);

/* The schema as it was given, as a tree that lives as long as the schema. */
const rlm_json *rlm_schema_root(const rlm_schema *s);
