/* Tools: what agent code may call beside the engine's own functions.
 *
 * A tool is a name, a description for the model, a JSON schema of its arguments, and either a callback on
 * the host that may answer later, with limits, or the source of a function that runs in the session.
 * Arguments are checked against the schema before the callback runs.
 * Registered through rlm_flow_add_tool (public); the registry is flow's.
 */
#pragma once

#include "base/json.h"
#include "base/map.h"
#include "base/vec.h"
#include "tool/schema.h"

/* `struct rlm_tool_limits`, `rlm_tool_call`, `rlm_tool_callback` are public. */

struct rlm_tool {
    char *name;
    char *description;
    char *parameters_json; /* the schema as given */
    rlm_schema *parameters;
    char *signature;       /* or NULL */
    char *source;          /* NULL: it runs on the host */
    rlm_tool_callback run; /* NULL: it runs in the session */
    void *arg;
    bool idempotent;
    bool is_async;
    bool encoded;
    struct rlm_tool_limits limits;
    size_t index; /* in the list */
};

struct rlm_tools {
    RLM_VEC(struct rlm_tool *) list; /* in order of registration */
    struct rlm_map by_name;
};

void rlm_tools_deinit(struct rlm_tools *t);
/* Checks name, description, limits and schema; copies the texts. A name is an ASCII identifier of at
 * most 64 bytes, no keyword of Python, none of the engine's own names, and does not start with two
 * underscores. The schema must say "type": "object"; NULL means no arguments. RLM_E_INVAL,
 * RLM_E_EXISTS (the name is taken), RLM_E_PARSE or RLM_E_SCHEMA (the schema), RLM_E_LIMIT (more than
 * 256 tools, a description or signature of more than 16 KiB, a source of more than 256 KiB), RLM_E_NOMEM. */
int rlm_tools_add(struct rlm_tools *t, const struct rlm_tool_options *options, rlm_error **err);
struct rlm_tool *rlm_tools_find(const struct rlm_tools *t, rlm_str name);

/* Binds `args` and `kwargs` of a call to the schema's properties (positional ones in the order in
 * which the properties stand), applies the schema, and appends the object of arguments to `out` as
 * JSON. RLM_E_SCHEMA with a message for the agent: which tool, which argument, what was expected. */
int rlm_tool_bind(const struct rlm_tool *tool,
                  const rlm_json *args,
                  const rlm_json *kwargs,
                  struct rlm_buf *out,
                  rlm_error **err);
