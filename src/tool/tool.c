#include "tool/tool.h"

#include "base/alloc.h"
#include "base/error.h"
#include "tool/value.h"

enum {
    MAX_TOOLS = 256,
    MAX_NAME_BYTES = 64,
    MAX_DESCRIPTION_BYTES = 16 * 1024,
    MAX_SOURCE_BYTES = 256 * 1024,
    MAX_SHOWN = 80, /* characters of a value in a message */
};

static const char no_parameters[] =
    "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}";

/* ---- registration ---------------------------------------------------------------------------- */

/* What a session has already under these names. */
static const char *const engine_names[] = {
    "done",
    "launch_subagents",
    "llm_query",
    "llm_query_batched",
    "budget",
    "read_input",
    "INPUTS",
    "ENV",
    "Failure",
    "HostCallError",
    "ToolInterrupted",
    "CellEnded",
    "CellInterrupted",
    "InputNameError",
    "read_file",
    "write_file",
    "append_file",
    "edit_file",
    "ls",
    "read_lines",
    "line_count",
    "grep",
};

static const char *const keywords[] = {
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield",
};

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_identifier(const char *name)
{
    size_t len = 0;
    for (; name[len]; len++) {
        char c = name[len], letter = (char)(c | 0x20);
        bool digit = c >= '0' && c <= '9';
        if (!((letter >= 'a' && letter <= 'z') || c == '_' || (digit && len > 0))) {
            return false;
        }
    }
    return len > 0 && len <= MAX_NAME_BYTES;
}

static int check_name(const struct rlm_tools *t, const char *name, rlm_error **err)
{
    if (!name || !is_identifier(name)) {
        rlm_auto_buf struct rlm_buf shown = RLM_BUF(4096);
        rlm_json text = {.type = RLM_JSON_STRING, .text = rlm_str_of(name)};
        rlm_value_preview(&text, MAX_SHOWN, &shown);
        return rlm_error_set(
            err, RLM_E_INVAL,
            "%s is no name for a tool: use 1 to %d of a-z, A-Z, 0-9 and _, a digit "
            "not first",
            shown.ptr ? shown.ptr : "this", MAX_NAME_BYTES);
    }
    if (is_one_of(name, keywords, sizeof keywords / sizeof *keywords)) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "\"%s\" is no name for a tool: it is a keyword of Python", name);
    }
    if (strncmp(name, "__", 2) == 0) {
        return rlm_error_set(
            err, RLM_E_INVAL,
            "\"%s\" is no name for a tool: names with two underscores in front are "
            "Python's own",
            name);
    }
    if (is_one_of(name, engine_names, sizeof engine_names / sizeof *engine_names)) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "\"%s\" is no name for a tool: the engine itself offers it", name);
    }
    if (rlm_map_has(&t->by_name, rlm_str_of(name))) {
        return rlm_error_set(err, RLM_E_EXISTS, "there is a tool \"%s\" already", name);
    }
    return 0;
}

static int check_size(const struct rlm_tool_options *o,
                      const char *what,
                      const char *text,
                      size_t max_bytes,
                      rlm_error **err)
{
    if (text && strlen(text) > max_bytes) {
        return rlm_error_set(err, RLM_E_LIMIT, "the %s of the tool \"%s\" has more than %zu bytes",
                             what, o->name, max_bytes);
    }
    return 0;
}

/* Where it runs, and that what is said of its calls can be kept there. */
static int check_place(const struct rlm_tool_options *o, rlm_error **err)
{
    const struct rlm_tool_limits *limits = &o->limits;
    if (!o->run == !o->source) {
        return rlm_error_set(err, RLM_E_INVAL, "the tool \"%s\" has %s", o->name,
                             o->run ? "a callback and a source: it runs on the host or in the "
                                      "session"
                                    : "no callback and no source");
    }
    if (limits->max_calls < 0 || limits->timeout_ms < 0 || limits->max_result_bytes < 0) {
        return rlm_error_set(err, RLM_E_INVAL, "the tool \"%s\" has a negative limit", o->name);
    }
    if (o->source && (limits->max_calls || limits->timeout_ms || limits->max_result_bytes)) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the tool \"%s\" has limits, which hold only for tools that run on "
                             "the host",
                             o->name);
    }
    return 0;
}

static int
check_options(const struct rlm_tools *t, const struct rlm_tool_options *o, rlm_error **err)
{
    int r = check_name(t, o->name, err);
    if (r < 0) {
        return r;
    }
    if (!o->description || !*o->description) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the tool \"%s\" has no description; the model needs one paragraph "
                             "about what it does",
                             o->name);
    }
    if ((r = check_size(o, "description", o->description, MAX_DESCRIPTION_BYTES, err)) < 0 ||
        (r = check_size(o, "signature", o->signature, MAX_DESCRIPTION_BYTES, err)) < 0 ||
        (r = check_size(o, "source", o->source, MAX_SOURCE_BYTES, err)) < 0 ||
        (r = check_place(o, err)) < 0) {
        return r;
    }
    if (t->list.len >= MAX_TOOLS) {
        return rlm_error_set(err, RLM_E_LIMIT, "more than %d tools", MAX_TOOLS);
    }
    return 0;
}

static void free_tool(struct rlm_tool *tool)
{
    if (tool) {
        free(tool->name);
        free(tool->description);
        free(tool->parameters_json);
        free(tool->signature);
        free(tool->source);
        rlm_schema_free(tool->parameters);
        free(tool);
    }
}

/* Arguments are an object: a schema that says something else could never be satisfied. */
static int check_parameters(const struct rlm_tool *tool, rlm_error **err)
{
    const rlm_json *root = rlm_schema_root(tool->parameters);
    if (!rlm_str_is(rlm_json_text(rlm_json_get(root, "type"), RLM_STR_NONE), "object")) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the parameters of the tool \"%s\" must be a JSON schema with "
                             "\"type\": \"object\"",
                             tool->name);
    }
    return 0;
}

static int make_tool(const struct rlm_tool_options *o, struct rlm_tool **ret_tool, rlm_error **err)
{
    const char *parameters = o->parameters_json ? o->parameters_json : no_parameters;
    struct rlm_tool *tool;
    int r = 0;
    if (!RLM_NEW(tool)) {
        return rlm_error_nomem(err);
    }
    tool->run = o->run;
    tool->arg = o->arg;
    tool->idempotent = o->idempotent;
    tool->is_async = o->is_async;
    tool->encoded = o->encoded;
    tool->limits = o->limits;
    if (!(tool->name = rlm_strdup(o->name)) || !(tool->description = rlm_strdup(o->description)) ||
        !(tool->parameters_json = rlm_strdup(parameters)) ||
        (o->signature && !(tool->signature = rlm_strdup(o->signature))) ||
        (o->source && !(tool->source = rlm_strdup(o->source)))) {
        r = rlm_error_nomem(err);
    } else if ((r = rlm_schema_new(rlm_str_of(parameters), &tool->parameters, err)) < 0) {
        rlm_error_wrap(err, r, "parameters of the tool \"%s\"", o->name);
    } else {
        r = check_parameters(tool, err);
    }
    if (r < 0) {
        free_tool(tool);
        return r;
    }
    *ret_tool = tool;
    return 0;
}

int rlm_tools_add(struct rlm_tools *t, const struct rlm_tool_options *options, rlm_error **err)
{
    if (!options || options->size == 0) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the options of a tool must start with RLM_TOOL_OPTIONS_INIT");
    }
    /* A caller built against another version has fewer members, or more. */
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    int r = check_options(t, &o, err);
    if (r < 0) {
        return r;
    }
    struct rlm_tool *tool;
    if ((r = make_tool(&o, &tool, err)) < 0) {
        return r;
    }
    struct rlm_tool **place = rlm_vec_push(&t->list);
    if (!place || rlm_map_set(&t->by_name, rlm_str_of(tool->name), tool) < 0) {
        t->list.len -= place != NULL;
        free_tool(tool);
        return rlm_error_nomem(err);
    }
    tool->index = t->list.len - 1;
    *place = tool;
    return 0;
}

int rlm_tool_check(const struct rlm_tool_options *tool, rlm_error **err)
{
    struct rlm_tools alone = {0};
    int r = rlm_tools_add(&alone, tool, err);
    rlm_tools_deinit(&alone);
    return r;
}

void rlm_tools_deinit(struct rlm_tools *t)
{
    for (size_t i = 0; i < t->list.len; i++) {
        free_tool(t->list.items[i]);
    }
    free(t->list.items);
    rlm_map_deinit(&t->by_name);
    *t = (struct rlm_tools){0};
}

struct rlm_tool *rlm_tools_find(const struct rlm_tools *t, rlm_str name)
{
    return rlm_map_get(&t->by_name, name);
}

/* ---- binding --------------------------------------------------------------------------------- */

static void add_quoted(struct rlm_buf *b, rlm_str text)
{
    rlm_json quoted = {.type = RLM_JSON_STRING, .text = text};
    rlm_value_preview(&quoted, MAX_SHOWN, b);
}

/* Sets "TOOL(): BEFORE "name"AFTER"; then what the tool takes. */
static int refuse(const struct rlm_tool *tool,
                  const char *before,
                  rlm_str name,
                  const char *after,
                  rlm_error **err)
{
    rlm_auto_buf struct rlm_buf b = RLM_BUF(64 * 1024);
    const rlm_json *properties = rlm_json_get(rlm_schema_root(tool->parameters), "properties");
    rlm_buf_addf(&b, "%s(): %s", tool->name, before);
    add_quoted(&b, name);
    rlm_buf_adds(&b, after);
    uint32_t count = properties ? properties->count : 0;
    rlm_buf_adds(&b, count ? "; the arguments are " : "; it takes no arguments");
    size_t start = b.len;
    for (uint32_t i = 0; i < count && b.len - start < 16 * MAX_SHOWN; i++) {
        rlm_buf_adds(&b, i ? ", " : "");
        rlm_value_preview(&(rlm_json){.type = RLM_JSON_STRING, .text = properties->members[i].key},
                          MAX_SHOWN, &b);
    }
    rlm_value_clip(&b, start, 4 * MAX_SHOWN);
    int r = rlm_buf_check(&b, err);
    return r < 0 ? r : rlm_error_set(err, RLM_E_SCHEMA, "%s", b.ptr);
}

/* What JSON Schema would say in its own words, in those of a call: names that are given twice, are
 * not known, or are missing. */
static int check_names(const struct rlm_tool *tool,
                       const rlm_json *object,
                       uint32_t n_positional,
                       rlm_error **err)
{
    const rlm_json *root = rlm_schema_root(tool->parameters);
    const rlm_json *properties = rlm_json_get(root, "properties");
    bool closed = rlm_json_is(rlm_json_get(root, "additionalProperties"), RLM_JSON_FALSE) &&
                  !rlm_json_get(root, "patternProperties");
    rlm_json positional = *object;
    positional.count = n_positional;
    for (uint32_t i = n_positional; i < object->count; i++) {
        rlm_str name = object->members[i].key;
        if (rlm_json_get_str(&positional, name)) {
            return refuse(tool, "the argument ", name, " was given twice", err);
        }
        if (closed && !rlm_json_get_str(properties, name)) {
            return refuse(tool, "there is no argument ", name, "", err);
        }
    }
    const rlm_json *required = rlm_json_get(root, "required");
    for (uint32_t i = 0; required && i < required->count; i++) {
        rlm_str name = required->items[i].text;
        if (!rlm_json_get_str(object, name)) {
            return refuse(tool, "the argument ", name, " is missing", err);
        }
    }
    return 0;
}

/* A schema speaks of JSON, so what is encoded is checked as what it would be there. */
static int check_values(const struct rlm_tool *tool, const rlm_json *object, rlm_error **err)
{
    if (!tool->encoded) {
        return rlm_schema_check(tool->parameters, object, err);
    }
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    struct rlm_json_member *members =
        arena ? rlm_arena_alloc(arena, (object->count + 1) * sizeof *members) : NULL;
    for (uint32_t i = 0; members && i < object->count; i++) {
        members[i].key = object->members[i].key;
        if (rlm_value_as_plain(arena, &object->members[i].value, &members[i].value) < 0) {
            members = NULL;
        }
    }
    if (!members) {
        return rlm_error_nomem(err);
    }
    rlm_json plain = {.type = RLM_JSON_OBJECT, .count = object->count, .members = members};
    return rlm_schema_check(tool->parameters, &plain, err);
}

int rlm_tool_bind(const struct rlm_tool *tool,
                  const rlm_json *args,
                  const rlm_json *kwargs,
                  struct rlm_buf *out,
                  rlm_error **err)
{
    if ((args && args->type != RLM_JSON_ARRAY && args->type != RLM_JSON_NULL) ||
        (kwargs && kwargs->type != RLM_JSON_OBJECT && kwargs->type != RLM_JSON_NULL)) {
        return rlm_error_set(err, RLM_E_SCHEMA,
                             "%s(): the arguments must come as a list and an object", tool->name);
    }
    const rlm_json *properties = rlm_json_get(rlm_schema_root(tool->parameters), "properties");
    uint32_t known = properties ? properties->count : 0;
    uint32_t n_args = rlm_json_is(args, RLM_JSON_ARRAY) ? args->count : 0;
    uint32_t n_kwargs = rlm_json_is(kwargs, RLM_JSON_OBJECT) ? kwargs->count : 0;
    if (n_args > known) {
        return rlm_error_set(err, RLM_E_SCHEMA,
                             "%s() takes at most %u positional argument%s, %u were given",
                             tool->name, known, known == 1 ? "" : "s", n_args);
    }
    size_t count = (size_t)n_args + n_kwargs;
    rlm_autofree struct rlm_json_member *members = rlm_calloc(count ? count : 1, sizeof *members);
    if (!members) {
        return rlm_error_nomem(err);
    }
    for (uint32_t i = 0; i < n_args; i++) {
        members[i] = (struct rlm_json_member){properties->members[i].key, args->items[i]};
    }
    for (uint32_t i = 0; i < n_kwargs; i++) {
        members[n_args + i] = kwargs->members[i];
    }
    rlm_json object = {.type = RLM_JSON_OBJECT, .count = (uint32_t)count, .members = members};
    int r = check_names(tool, &object, n_args, err);
    if (r < 0) {
        return r;
    }
    if ((r = check_values(tool, &object, err)) < 0) {
        return rlm_error_wrap(err, r, "%s()", tool->name);
    }
    struct rlm_json_writer w = {.buf = out};
    rlm_json_put(&w, &object);
    return rlm_buf_check(out, err);
}
