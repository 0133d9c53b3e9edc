#include "base/alloc.h"
#include "base/arena.h"
#include "base/error.h"
#include "harness.h"
#include "tool/tool.h"

static char message[4096];

static void run_nothing(void *arg, rlm_tool_call *call, struct rlm_str arguments_json)
{
}

static int
add(struct rlm_tools *t, const char *name, const char *description, const char *parameters)
{
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    o.name = name;
    o.description = description;
    o.parameters_json = parameters;
    o.run = run_nothing;
    rlm_autoerr rlm_error *err = NULL;
    int r = rlm_tools_add(t, &o, &err);
    CHECK((r < 0) == (err != NULL));
    snprintf(message, sizeof message, "%s", rlm_error_message(err));
    return r;
}

TEST(tools_are_found_by_name_and_kept_in_order)
{
    struct rlm_tools t = {0};
    static int arg;
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    char name[] = "fetch", description[] = "Fetches.", parameters[] = "{\"type\":\"object\"}";
    o.name = name;
    o.description = description;
    o.parameters_json = parameters;
    o.run = run_nothing;
    o.arg = &arg;
    o.idempotent = true;
    o.limits = (struct rlm_tool_limits){.max_calls = 3, .timeout_ms = 7, .max_result_bytes = 9};
    CHECK_INT(rlm_tools_add(&t, &o, NULL), 0);
    memset(name, 'x', 5), memset(description, 'x', 8), memset(parameters, 'x', 17);
    CHECK_INT(add(&t, "_b2", "B.", NULL), 0);

    const struct rlm_tool *tool = rlm_tools_find(&t, RLM_STR("fetch"));
    CHECK(tool && t.list.len == 2 && t.list.items[0] == tool);
    CHECK_TEXT(tool->name, "fetch");
    CHECK_TEXT(tool->description, "Fetches.");
    CHECK_TEXT(tool->parameters_json, "{\"type\":\"object\"}");
    CHECK(tool->run == run_nothing && tool->arg == &arg && tool->idempotent && tool->index == 0);
    CHECK_INT(tool->limits.max_calls, 3);
    CHECK_INT(tool->limits.timeout_ms, 7);
    CHECK_INT(tool->limits.max_result_bytes, 9);
    CHECK(rlm_tools_find(&t, RLM_STR("_b2")) == t.list.items[1]);
    CHECK(rlm_tools_find(&t, RLM_STR("other")) == NULL);
    rlm_tools_deinit(&t);
    CHECK(t.list.len == 0 && rlm_tools_find(&t, RLM_STR("fetch")) == NULL);
}

TEST(tools_refuse_names)
{
    static const char *const names[] = {
        NULL,
        "",
        "2a",
        "a-b",
        "a b",
        "a.b",
        "\xc3\xa4",
        "class",
        "None",
        "await",
        "__import__",
        "done",
        "grep", /* the others: flow/test_run.c */
        "a234567890123456789012345678901234567890123456789012345678901234x",
    };
    struct rlm_tools t = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (add(&t, names[i], "Does.", NULL) != RLM_E_INVAL) {
            harness_fail(__FILE__, __LINE__, "%s is accepted", names[i]);
        }
        CHECK_CONTAINS(message, "no name for a tool");
    }
    CHECK_INT(add(&t, "match", "Soft keywords are names.", NULL), 0);
    CHECK_INT(add(&t, "Done", "Case counts.", NULL), 0);
    CHECK_INT(add(&t, "match", "Again.", NULL), RLM_E_EXISTS);
    CHECK_CONTAINS(message, "\"match\"");
    CHECK_INT(t.list.len, 2);
    rlm_tools_deinit(&t);
}

TEST(tools_refuse_what_cannot_be_called)
{
    struct rlm_tools t = {0};
    CHECK_INT(add(&t, "a", NULL, NULL), RLM_E_INVAL);
    CHECK_INT(add(&t, "a", "", NULL), RLM_E_INVAL);
    CHECK_INT(add(&t, "a", "A.", "{\"type\":\"array\"}"), RLM_E_INVAL);
    CHECK_INT(add(&t, "a", "A.", "true"), RLM_E_INVAL);
    CHECK_INT(add(&t, "a", "A.", "{\"type\":\"object\",\"x\":1}"), RLM_E_SCHEMA);
    CHECK_CONTAINS(message, "parameters of the tool \"a\": schema at /x");
    CHECK_INT(add(&t, "a", "A.", "{"), RLM_E_PARSE);

    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    o.name = "a";
    o.description = "A.";
    CHECK_INT(rlm_tools_add(&t, &o, NULL), RLM_E_INVAL);
    o.run = run_nothing;
    o.limits.timeout_ms = -1;
    CHECK_INT(rlm_tools_add(&t, &o, NULL), RLM_E_INVAL);
    o.limits.timeout_ms = 0;
    o.size = 0;
    CHECK_INT(rlm_tools_add(&t, &o, NULL), RLM_E_INVAL);
    /* A caller built before `limits` were there: what stands behind its options is not read. */
    o.size = offsetof(struct rlm_tool_options, limits);
    o.limits.max_calls = 77;
    CHECK_INT(rlm_tools_add(&t, &o, NULL), 0);
    CHECK_INT(t.list.items[0]->limits.max_calls, 0);
    rlm_tools_deinit(&t);
}

TEST(a_tool_runs_on_the_host_or_in_the_session)
{
    struct rlm_tools t = {0};
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    char source[] = "def a(x): return x", signature[] = "(x)";
    rlm_autoerr rlm_error *err = NULL;
    o.name = "a", o.description = "A.", o.source = source, o.signature = signature;
    o.limits.max_calls = 1;
    CHECK_INT(rlm_tools_add(&t, &o, &err), RLM_E_INVAL);
    CHECK_TEXT(rlm_error_message(err), "the tool \"a\" has limits, which hold only for tools that "
                                       "run on the host");
    o.limits.max_calls = 0;
    CHECK_INT(rlm_tools_add(&t, &o, NULL), 0);
    memset(source, 'x', 5), memset(signature, 'x', 3);
    CHECK_TEXT(t.list.items[0]->source, "def a(x): return x");
    CHECK_TEXT(t.list.items[0]->signature, "(x)");
    CHECK(!t.list.items[0]->run);

    o.name = "b", o.run = run_nothing;
    CHECK_INT(rlm_tools_add(&t, &o, NULL), RLM_E_INVAL);
    rlm_autofree char *large = rlm_malloc(256 * 1024 + 2);
    memset(large, '#', 256 * 1024 + 1);
    large[256 * 1024 + 1] = '\0';
    o.run = NULL, o.source = large;
    CHECK_INT(rlm_tools_add(&t, &o, NULL), RLM_E_LIMIT);
    large[256 * 1024] = '\0';
    CHECK_INT(rlm_tools_add(&t, &o, NULL), 0);
    rlm_tools_deinit(&t);
}

TEST(a_tool_is_checked_before_a_flow_takes_it)
{
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    rlm_autoerr rlm_error *err = NULL;
    o.name = "done", o.description = "D.", o.run = run_nothing;
    CHECK_INT(rlm_tool_check(&o, &err), RLM_E_INVAL);
    CHECK_TEXT(rlm_error_message(err),
               "\"done\" is no name for a tool: the engine itself offers it");
    o.name = "d", o.parameters_json = "{";
    CHECK_INT(rlm_tool_check(&o, NULL), RLM_E_PARSE);
    o.parameters_json = NULL;
    CHECK_INT(rlm_tool_check(&o, NULL), 0);
    CHECK_INT(rlm_tool_check(&o, NULL), 0);
}

TEST(tools_have_a_maximum)
{
    struct rlm_tools t = {0};
    char name[16];
    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "t%d", i);
        CHECK_INT(add(&t, name, "T.", NULL), 0);
    }
    CHECK_INT(add(&t, "more", "T.", NULL), RLM_E_LIMIT);
    rlm_tools_deinit(&t);
}

/* ---- binding --------------------------------------------------------------------------------- */

static const char fetch_parameters[] =
    "{\"type\":\"object\",\"properties\":{\"url\":{\"type\":\"string\"},\"timeout\":{\"type\":"
    "\"number\",\"minimum\":0},\"headers\":{\"additionalProperties\":{\"type\":\"string\"}}},"
    "\"required\":[\"url\"],\"additionalProperties\":false}";

/* Binds JSON texts (NULL: absent); the object, or the message, goes to `message`. */
static int bind(const char *parameters, const char *args, const char *kwargs)
{
    struct rlm_tools t = {0};
    CHECK_INT(add(&t, "fetch", "Fetches.", parameters), 0);
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *a = NULL, *k = NULL;
    CHECK(!args || rlm_json_parse(arena, rlm_str_of(args), &a, NULL) == 0);
    CHECK(!kwargs || rlm_json_parse(arena, rlm_str_of(kwargs), &k, NULL) == 0);
    rlm_auto_buf struct rlm_buf out = RLM_BUF(4096);
    rlm_autoerr rlm_error *err = NULL;
    rlm_buf_adds(&out, ">");
    int r = rlm_tool_bind(t.list.items[0], a, k, &out, &err);
    CHECK((r < 0) == (err != NULL));
    CHECK(r == 0 || out.len == 1);
    snprintf(message, sizeof message, "%s", r < 0 ? rlm_error_message(err) : out.ptr);
    rlm_tools_deinit(&t);
    return r;
}

#define CHECK_BOUND(args, kwargs, expected)                 \
    do {                                                    \
        CHECK_INT(bind(fetch_parameters, args, kwargs), 0); \
        CHECK_TEXT(message, expected);                      \
    } while (0)
#define CHECK_REFUSED(args, kwargs, expected)                          \
    do {                                                               \
        CHECK_INT(bind(fetch_parameters, args, kwargs), RLM_E_SCHEMA); \
        CHECK_TEXT(message, expected);                                 \
    } while (0)

TEST(tool_binds_by_position_and_by_name)
{
    CHECK_BOUND("[\"u\"]", NULL, ">{\"url\":\"u\"}");
    CHECK_BOUND("[\"u\",1.50]", "{\"headers\":{}}",
                ">{\"url\":\"u\",\"timeout\":1.50,\"headers\":{}}");
    CHECK_BOUND(NULL, "{\"timeout\":1,\"url\":\"\\ud800\"}",
                ">{\"timeout\":1,\"url\":\"\\ud800\"}");
    CHECK_BOUND("null", "{\"url\":\"u\"}", ">{\"url\":\"u\"}");
}

TEST(tool_refuses_arguments_by_name)
{
    CHECK_REFUSED("[]", "{}",
                  "fetch(): the argument \"url\" is missing; the arguments are \"url\", "
                  "\"timeout\", \"headers\"");
    CHECK_REFUSED("[\"u\"]", "{\"url\":\"v\"}",
                  "fetch(): the argument \"url\" was given twice; the "
                  "arguments are \"url\", \"timeout\", \"headers\"");
    CHECK_REFUSED("[\"u\"]", "{\"size\":1}",
                  "fetch(): there is no argument \"size\"; the arguments are "
                  "\"url\", \"timeout\", \"headers\"");
    CHECK_REFUSED("[\"u\",1,{},4]", NULL,
                  "fetch() takes at most 3 positional arguments, 4 were given");
    CHECK_REFUSED("[3]", NULL, "fetch(): at /url: expected a string, found 3");
    CHECK_REFUSED("[\"u\"]", "{\"headers\":{\"a\":1}}",
                  "fetch(): at /headers/a: expected a string, found 1");
    CHECK_REFUSED(NULL, "{\"url\":\"u\",\"url\":\"v\"}",
                  "fetch(): at the root: the property \"url\" stands twice in an object");
    CHECK_REFUSED("{}", NULL, "fetch(): the arguments must come as a list and an object");
}

TEST(tool_without_parameters_takes_none)
{
    CHECK_INT(bind(NULL, "[]", "{}"), 0);
    CHECK_TEXT(message, ">{}");
    CHECK_INT(bind(NULL, "[1]", NULL), RLM_E_SCHEMA);
    CHECK_INT(bind(NULL, NULL, "{\"a\":1}"), RLM_E_SCHEMA);
    CHECK_TEXT(message, "fetch(): there is no argument \"a\"; it takes no arguments");
}

TEST(tool_passes_other_names_where_the_schema_lets_them)
{
    CHECK_INT(bind("{\"type\":\"object\"}", NULL, "{\"x\":1}"), 0);
    CHECK_INT(bind("{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"null\"}},"
                   "\"additionalProperties\":false}",
                   NULL, "{\"x\":1}"),
              RLM_E_SCHEMA);
    CHECK_TEXT(message, "fetch(): at /x: expected null, found 1");
}
