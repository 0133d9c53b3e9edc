/* What tools of the host are given, and what the code gets of their results: large values, and those that JSON
 * has no form for. */
#include "whole_run.h"

#include "base/buf.h"
#include "base/json.h"

#include <sys/stat.h>

/* Echoes its arguments as its result, and keeps them. */
struct echo {
    struct rlm_buf arguments;
};

static void echo(void *arg, rlm_tool_call *call, struct rlm_str arguments)
{
    struct echo *e = arg;
    rlm_buf_clear(&e->arguments);
    rlm_buf_add_str(&e->arguments, arguments);
    rlm_tool_call_return(call, arguments);
}

static void add_echo(struct setup *s, struct echo *e, bool encoded, const char *type)
{
    char parameters[200];
    snprintf(parameters, sizeof parameters,
             "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"%s\"}}}", type);
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    rlm_error *err = NULL;
    *e = (struct echo){RLM_BUF(256 * 1024 * 1024)};
    o.name = "echo";
    o.description = "Echoes.";
    o.parameters_json = parameters;
    o.run = echo;
    o.arg = e;
    o.encoded = encoded;
    if (rlm_flow_add_tool(s->flow, &o, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
}

/* Runs the code, which answers by done(). */
static struct setup
run_code(const char *code, struct echo *e, bool encoded, const char *type, const char *answer)
{
    char script[4000];
    snprintf(script, sizeof script, "@reply\n```repl\n%s\n```\n", code);
    struct setup s = setup(script, defaults);
    add_echo(&s, e, encoded, type);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", answer);
    return s;
}

static void end(struct setup *s, struct echo *e)
{
    rlm_buf_deinit(&e->arguments);
    teardown(s);
}

TEST(a_tool_gets_large_texts_themselves_however_deep_they_stand)
{
    for (int encoded = 0; encoded < 2; encoded++) {
        struct echo e;
        struct setup s = run_code("big = 'a' * 65535 + chr(0xe9)\n"
                                  "r = echo({'deep': [big, {'er': big}], 'small': 's'})['x']\n"
                                  "done(repr([r['deep'] == [big, {'er': big}], r['small']]))",
                                  &e, encoded, "object", "[True, 's']");
        /* Both times the text of 65,537 bytes, and no name of a blob. */
        CHECK(e.arguments.len > 2 * (size_t)65537);
        CHECK(!strstr(e.arguments.ptr, "$blob"));
        CHECK_INT(strspn(strstr(e.arguments.ptr, "aaaa"), "a"), 65535);
        end(&s, &e);
    }
}

TEST(a_tool_gets_large_bytes_themselves_where_it_takes_the_encoding)
{
    struct echo e;
    struct setup s = run_code("big = bytes(range(256)) * 1024\n"
                              "done(repr(echo([big])['x'] == [big]))",
                              &e, true, "array", "True");
    CHECK(!strstr(e.arguments.ptr, "$blob"));
    CHECK_CONTAINS(e.arguments.ptr, "{\"x\":[{\"$bytes\":\"AAECAwQF");
    end(&s, &e);
}

TEST(a_schema_of_an_encoded_tool_sees_plain_json)
{
    struct echo e;
    struct setup s = run_code("out = []\n"
                              "for x in ((1, 'a'), {2}, frozenset(), [3], b'4', {5: 6}, 7):\n"
                              "    try:\n"
                              "        out.append(echo(x)['x'] == x)\n"
                              "    except TypeError as error:\n"
                              "        out.append(str(error).split(',')[0])\n"
                              "done(repr(out))",
                              &e, true, "array",
                              "[True, True, True, True, 'echo(): at /x: expected an array', "
                              "'echo(): at /x: expected an array', "
                              "'echo(): at /x: expected an array']");
    end(&s, &e);
    s = run_code("a = [float('inf'), float('-inf'), 2.5]\n"
                 "done(repr([echo(x)['x'] == x for x in a] + [repr(echo(float('nan'))['x'])]))",
                 &e, true, "number", "[True, True, True, 'nan']");
    end(&s, &e);
    s = run_code("x = {1: 'a', 'b': ()}\ndone(repr(echo(x)['x'] == x))", &e, true, "object",
                 "True");
    end(&s, &e);
}

TEST(a_plain_tool_gets_plain_json_or_is_not_called)
{
    struct echo e;
    struct setup s = run_code("out = [echo(((1, 2), [3]))['x']]\n"
                              "for x in ([b'x'], [{1: 2}], [float('inf')]):\n"
                              "    try:\n"
                              "        echo(x)\n"
                              "    except TypeError as error:\n"
                              "        out.append(str(error))\n"
                              "done(repr(out))",
                              &e, false, "array",
                              "[[[1, 2], [3]], "
                              "'echo(): it holds a value that JSON has no form for (bytes)', "
                              "'echo(): it holds a value that JSON has no form for (dict)', "
                              "'echo(): it holds a value that JSON has no form for (float)']");
    CHECK_TEXT(e.arguments.ptr, "{\"x\":[[1,2],[3]]}");
    end(&s, &e);
}

/* Returns what looks like the engine's own marks. */
static void looks_special(void *arg, rlm_tool_call *call, struct rlm_str arguments)
{
    (void)arg, (void)arguments;
    rlm_tool_call_return(call, rlm_str_of("[{\"$blob\":\"x\"},{\"$set\":{\"$tuple\":[1]}}]"));
}

TEST(what_a_plain_tool_returns_means_itself)
{
    struct setup s = setup("@reply\n```repl\ndone(repr(looks()))\n```\n", defaults);
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    o.name = "looks", o.description = "d", o.run = looks_special;
    CHECK_INT(rlm_flow_add_tool(s.flow, &o, NULL), 0);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "[{'$blob': 'x'}, {'$set': {'$tuple': [1]}}]");
    teardown(&s);
}

TEST(arguments_that_are_too_large_are_an_error_in_the_code)
{
    struct echo e;
    struct setup s = run_code("part = 'x' * (40 << 20)\n"
                              "try:\n"
                              "    echo([part, part])\n"
                              "except ValueError as error:\n"
                              "    done(str(error))",
                              &e, true, "array",
                              "the arguments of echo() are more than 64 MiB; pass a part of them, "
                              "or where to find them");
    CHECK_INT(e.arguments.len, 0);
    end(&s, &e);
}

TEST(names_that_look_like_the_encoding_of_values_are_names)
{
    struct setup s =
        setup("@reply\n```repl\ndone(repr([INPUTS, marks.__name__]))\n```\n", defaults);
    struct rlm_tool_options tool = RLM_TOOL_OPTIONS_INIT;
    tool.name = "marks", tool.description = "d", tool.run = looks_special;
    tool.parameters_json =
        "{\"type\":\"object\",\"properties\":{\"$bytes\":{\"type\":\"string\"}}}";
    CHECK_INT(rlm_flow_add_tool(s.flow, &tool, NULL), 0);
    struct rlm_input input = {.name = "$set", .kind = RLM_INPUT_JSON};
    input.value = rlm_str_of("{\"a\":[{\"b\":null}]}");
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    o.query = rlm_str_of("do it");
    o.inputs = &input;
    o.n_inputs = 1;
    CHECK_INT(rlm_run_start(s.flow, &o, NULL, NULL, &s.run, NULL), 0);
    finish(&s, "answered", "[{'$set': {'a': [{'b': None}]}}, 'marks']");
    teardown(&s);
}

TEST(a_directory_input_is_not_passed_to_a_tool)
{
    char path[300];
    snprintf(path, sizeof path, "%s/files", harness_directory());
    CHECK_INT(mkdir(path, 0700), 0);
    struct setup s = setup("@reply\n```repl\n"
                           "try:\n"
                           "    echo({'d': [d]})\n"
                           "except TypeError as error:\n"
                           "    done(str(error))\n```\n",
                           defaults);
    struct echo e;
    add_echo(&s, &e, true, "object");
    struct rlm_input input = {.name = "d", .kind = RLM_INPUT_DIRECTORY, .path = path};
    struct rlm_run_options o = RLM_RUN_OPTIONS_INIT;
    o.query = rlm_str_of("do it");
    o.inputs = &input;
    o.n_inputs = 1;
    rlm_error *err = NULL;
    if (rlm_run_start(s.flow, &o, NULL, NULL, &s.run, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
    finish(&s, "answered",
           "echo(): an input that is a directory cannot be passed on; pass the contents of its "
           "files");
    end(&s, &e);
}
