/* Tools that run in the session: their source goes into each, also into one that takes another's place. */
#include "whole_run.h"

static void add(struct setup *s, const char *name, const char *source, bool is_async)
{
    struct rlm_tool_options o = RLM_TOOL_OPTIONS_INIT;
    rlm_error *err = NULL;
    o.name = name;
    o.description = "Works in the session.";
    o.signature = "(x, *, times: int = 2)";
    o.source = source;
    o.is_async = is_async;
    if (rlm_flow_add_tool(s->flow, &o, &err) < 0) {
        harness_fail(__FILE__, __LINE__, "%s", rlm_error_message(err));
    }
}

static const char many[] = "import math\n"
                           "HALF = 0.5\n"
                           "def half(x):\n"
                           "    return math.floor(x * HALF)\n"
                           "def many(x, *, times: int = 2):\n"
                           "    'Does it many times.'\n"
                           "    return [half(x)] * times\n";

TEST(a_source_tool_is_a_function_of_the_session)
{
    struct setup s =
        setup("@reply\n```repl\n"
              "import inspect\n"
              "x = 7\n"
              "names = [n for n in ('half', 'HALF', 'math') if n in globals()]\n"
              "done(repr([many(x), many(9, times=1), many.__doc__, names,\n"
              "           str(inspect.signature(many)), inspect.getsource(many)[:9]]))\n```\n",
              defaults);
    add(&s, "many", many, false);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered",
           "[[3, 3], [4], 'Does it many times.', [], '(x, *, times: int = 2)', 'def many(']");
    teardown(&s);
}

TEST(a_source_tool_may_be_async)
{
    struct setup s =
        setup("@reply\n```repl\nimport asyncio\n"
              "done(repr([await later(1), await asyncio.gather(later(2), later(3))]))\n```\n",
              defaults);
    add(&s, "later",
        "import asyncio\nasync def later(x):\n    await asyncio.sleep(0.001)\n    return x", true);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "[1, [2, 3]]");
    teardown(&s);
}

TEST(models_are_shown_source_tools_with_their_signature)
{
    struct setup s = setup("@reply\nx\n", defaults);
    add(&s, "many", many, false);
    add(&s, "later", "async def later(x, *, times=2): pass", true);
    char *prompt = rlm_flow_system_prompt(s.flow, 0);
    CHECK_CONTAINS(prompt, "- `many(x, *, times: int = 2)`: Works in the session.\n"
                           "- `await later(x, *, times: int = 2)`: Works in the session.\n");
    free(prompt);
    teardown(&s);
}

TEST(tracebacks_show_the_lines_of_a_source_tool)
{
    struct setup s = setup("@reply turn=1\n```repl\nmany('a')\n```\n"
                           "@reply turn=2\n```repl\ndone(1)\n```\n",
                           defaults);
    add(&s, "many", many, false);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "1");
    const rlm_graph *g = rlm_run_graph(s.run);
    char text[1000] = "";
    for (size_t i = 0; i < rlm_graph_node_count(g); i++) {
        const struct rlm_node *node = rlm_graph_node(g, i);
        if (node->type == RLM_ERROR_OUTPUT) {
            snprintf(text, sizeof text, "%.*s", RLM_FMT(node->content));
        }
    }
    CHECK_CONTAINS(text, "  File \"<cell 1>\", line 1, in <module>\n");
    CHECK_CONTAINS(text, "  File \"<tool many>\", line 7, in many\n    return [half(x)] * times\n");
    CHECK_CONTAINS(text,
                   "  File \"<tool many>\", line 4, in half\n    return math.floor(x * HALF)\n");
    CHECK_CONTAINS(text, "TypeError: can't multiply sequence by non-int of type 'float'");
    teardown(&s);
}

TEST(a_source_that_fails_fails_the_calls_of_its_tool_alone)
{
    struct setup s = setup("@reply\n```repl\n"
                           "out = []\n"
                           "for tool in (lacks, nameless, broken, leaves):\n"
                           "    try:\n"
                           "        tool(1)\n"
                           "    except RuntimeError as e:\n"
                           "        out.append(str(e))\n"
                           "done('\\n'.join(out + [repr(many(4))]))\n```\n",
                           defaults);
    add(&s, "lacks", "import no_such_module\ndef lacks(x): pass", false);
    add(&s, "nameless", "def other(x): pass", false);
    add(&s, "broken", "def broken(x):", false);
    add(&s, "leaves", "raise SystemExit(3)", false);
    add(&s, "many", many, false);
    start(&s, NULL, NULL, NULL);
    CHECK(rlm_run_wait(s.run, NULL) == 0);
    char answer[1000];
    snprintf(answer, sizeof answer, "%.*s", RLM_FMT(rlm_run_answer(s.run)));
    CHECK_CONTAINS(answer, "the tool lacks cannot be used in this session: ModuleNotFoundError: No "
                           "module named 'no_such_module'\n"
                           "the tool nameless cannot be used in this session: KeyError: "
                           "'nameless'\n"
                           "the tool broken cannot be used in this session: IndentationError: ");
    CHECK_CONTAINS(answer, "the tool leaves cannot be used in this session: SystemExit: 3\n[2, 2]");
    teardown(&s);
}

TEST(a_session_that_takes_another_ones_place_has_the_source_tools_too)
{
    struct setup s = setup("@reply turn=1\n```repl\nx = many(2)\nimport os\nos._exit(3)\n```\n"
                           "@reply turn=2\n```repl\ndone(repr(many(8)))\n```\n",
                           defaults);
    add(&s, "many", many, false);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "[4, 4]");
    teardown(&s);
}

TEST(a_source_tool_cannot_be_called_on_the_host)
{
    struct setup s = setup("@reply\n```repl\n"
                           "import gc\n"
                           "api = [o for o in gc.get_objects() if type(o).__name__ == 'Api'][0]\n"
                           "try:\n"
                           "    api.session.call('many', (), {'x': 1})\n"
                           "except HostCallError as e:\n"
                           "    done(str(e))\n```\n",
                           defaults);
    add(&s, "many", many, false);
    start(&s, NULL, NULL, NULL);
    finish(&s, "answered", "no tool of this name is registered");
    teardown(&s);
}
