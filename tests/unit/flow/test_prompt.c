#include "flow/prompt.h"

#include "graph/graph.h"
#include "harness.h"

#include <ctype.h>

/* An agent made by hand: what prompts read is the flow, the graph's task, and blobs. */
static rlm_flow flow = {.limits = RLM_LIMITS_INIT};
static rlm_run run = {.flow = &flow};
static struct rlm_agent agent = {.run = &run};

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) {
        n++;
    }
    return n;
}

static const char *system_prompt(int depth)
{
    static char *text;
    free(text);
    CHECK((text = rlm_prompt_system(&flow, depth)) != NULL);
    return text;
}

static void open_blobs(void)
{
    CHECK(run.blobs || rlm_blobs_open(NULL, &run.blobs, NULL) == 0);
}

static const char *task_of(const struct rlm_graph_options *options)
{
    static struct rlm_buf out;
    rlm_buf_deinit(&out);
    out = RLM_BUF(1 << 20);
    rlm_graph_free(agent.graph);
    open_blobs();
    CHECK(rlm_graph_new(options, &agent.graph, NULL) == 0);
    CHECK(rlm_prompt_task(&agent, options->query, &out) == 0);
    return out.ptr;
}

static const char *task(const char *inputs)
{
    struct rlm_graph_options options = {.query = RLM_STR("TASK"), .inputs = rlm_str_of(inputs)};
    return task_of(&options);
}

/* A task whose input `x` is that text, inline or as a blob. */
static const char *task_with_text(rlm_str text, bool as_blob)
{
    struct rlm_buf json = RLM_BUF(1 << 20);
    struct rlm_json_writer w = {.buf = &json};
    rlm_json_begin(&w, '{');
    rlm_json_key(&w, "x");
    if (as_blob) {
        const struct rlm_blob *blob;
        open_blobs();
        CHECK(rlm_blobs_put(run.blobs, RLM_BLOB_AUTO, text, &blob, NULL) == 0);
        rlm_json_begin(&w, '{');
        rlm_json_member_text(&w, "$blob", blob->id);
        rlm_json_end(&w, '}');
    } else {
        rlm_json_put_str(&w, text);
    }
    rlm_json_end(&w, '}');
    const char *shown = task(json.ptr);
    rlm_buf_deinit(&json);
    return shown;
}

static const char look[] = "The first one only looks at the inputs";

/* At most so many tokens of a vocabulary of today's models, without one at hand. Their pre-tokenizers
 * cut a text into words (with the space before them), numbers, runs of punctuation and white space;
 * no token spans two of these. Taken as one token: six letters of a word (the common English words
 * are one token whatever their length), each digit and each punctuation mark (many pairs and triples
 * of them are one), each run of white space but the one space that belongs to what follows. */
static size_t most_tokens(const char *text)
{
    size_t tokens = 0;
    for (const char *p = text; *p;) {
        size_t letters = 0;
        while (isalpha((unsigned char)p[letters])) {
            letters++;
        }
        if (letters) {
            tokens += (letters + 5) / 6;
            p += letters;
        } else if (isspace((unsigned char)*p)) {
            size_t blanks = strspn(p, " \n");
            tokens += blanks > 1 || *p == '\n';
            p += blanks;
        } else {
            CHECK(isprint((unsigned char)*p));
            tokens++;
            p++;
        }
    }
    return tokens;
}

TEST(the_count_of_tokens_is_an_upper_bound)
{
    CHECK_INT(most_tokens("Reply with one block."), 5);
    CHECK_INT(most_tokens("summarising 12.1mm\n\n    if x"), 2 + 5 + 1 + 1 + 1);
}

TEST(the_system_prompt_has_at_most_900_tokens)
{
    CHECK(most_tokens(system_prompt(0)) <= 900);
    CHECK(most_tokens(system_prompt(2)) < most_tokens(system_prompt(0)));
}

TEST(it_names_what_a_session_has)
{
    static const char *const names[] = {
        "`INPUTS`",          "`done(",       "llm_query(", "llm_query_batched(",
        "launch_subagents(", "`Failure`",    "`budget()`", "`read_file,",
        " read_lines,",      " line_count,", " edit_file", " append_file,",
        " write_file,",      " ls,",         " grep`",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_CONTAINS(system_prompt(0), names[i]);
    }
}

TEST(it_has_one_example_that_looks_first_and_then_answers)
{
    const char *text = system_prompt(0);
    CHECK_INT(count(text, "Example of a task"), 1);
    CHECK_INT(count(text, "\n```repl\n"), 2);
    CHECK_INT(count(text, "\n```\n"), 2);
    const char *first = strstr(text, "\n```repl\n");
    const char *second = strstr(first + 1, "\n```repl\n");
    const char *answer = strstr(first, "done(");
    CHECK(answer && answer > second);
}

TEST(sub_agents_are_offered_where_depth_allows_them)
{
    CHECK_CONTAINS(system_prompt(0), "launch_subagents");
    CHECK_CONTAINS(system_prompt(1), "launch_subagents");
    CHECK(!strstr(system_prompt(2), "launch_subagents"));
    flow.limits.max_depth = 0;
    CHECK(!strstr(system_prompt(0), "launch_subagents"));
    CHECK_CONTAINS(system_prompt(0), "llm_query");
}

TEST(agents_of_every_depth_that_may_launch_share_one_prompt)
{
    char *root = rlm_strdup(system_prompt(0));
    CHECK_TEXT(system_prompt(1), root);
    free(root);
    char *leaf = rlm_strdup(system_prompt(2));
    CHECK_TEXT(system_prompt(3), leaf);
    free(leaf);
}

static void no_tool(void *arg, rlm_tool_call *call, struct rlm_str arguments_json)
{
    (void)arg, (void)call, (void)arguments_json;
}

TEST(tools_and_models_of_the_run_are_listed)
{
    struct rlm_tool_options tool = {
        .size = sizeof tool,
        .name = "lookup",
        .description = "Finds a word.",
        .run = no_tool,
        .parameters_json =
            "{\"type\":\"object\",\"properties\":{\"word\":{\"type\":\"string\"},\"n\":{}}}",
    };
    CHECK(!strstr(system_prompt(0), "Tools of this run"));
    CHECK(rlm_tools_add(&flow.tools, &tool, NULL) == 0);
    CHECK_CONTAINS(system_prompt(0), "- `lookup(word, n)`: Finds a word.\n");
    CHECK(!strstr(system_prompt(0), "Models that specs"));
    struct rlm_flow_model first = {.name = (char[]){"default"}}, second = {.name = (char[]){"big"}};
    struct rlm_flow_model **slot = rlm_vec_push(&flow.models);
    *slot = &first;
    CHECK(!strstr(system_prompt(0), "Models that specs"));
    slot = rlm_vec_push(&flow.models);
    *slot = &second;
    CHECK_CONTAINS(system_prompt(0), "(`model=`): default, big\n");
}

TEST(a_prompt_of_the_user_replaces_all)
{
    flow.system_prompt = rlm_strdup("mine");
    CHECK_TEXT(system_prompt(0), "mine");
    CHECK_CONTAINS(task("{\"a\":[1,2,3]}"), "\n- a: list of 3\n");
    CHECK(!strstr(task("{\"a\":[1,2,3]}"), "example"));
}

TEST(a_task_without_inputs_is_the_query_and_the_turns)
{
    CHECK_TEXT(task("{}"), "Task: TASK\n\nYou have 20 turns.");
}

TEST(turns_are_those_of_the_depth)
{
    flow.limits.max_iters = 7;
    CHECK_CONTAINS(task("{}"), "\nYou have 7 turns.");
}

TEST(short_values_stand_whole)
{
    const char *text = task("{\"city\":\"Lima\\n\",\"n\":3,\"on\":true,\"none\":null}");
    CHECK_CONTAINS(text, "\nInputs, in INPUTS and as variables:\n");
    CHECK_CONTAINS(text, "\n- city: str, 5 characters: \"Lima\\n\"\n");
    CHECK_CONTAINS(text, "\n- n: 3\n- on: true\n- none: null\n");
    CHECK(!strstr(text, look));
}

TEST(values_that_do_not_stand_whole_shall_be_looked_at_first)
{
    CHECK_CONTAINS(task("{\"a\":[1,2,3]}"), "\n- a: list of 3\n");
    CHECK_CONTAINS(task("{\"a\":{\"k\":1}}"), "\n- a: dict of 1\n");
    CHECK_CONTAINS(task("{\"a\":[1,2,3]}"), look);
    flow.limits.max_iters = 1;
    CHECK(!strstr(task("{\"a\":[1,2,3]}"), look));
}

/* Lines "line 000\n" to "line 199\n". */
static rlm_str lines(void)
{
    static char text[200 * 9 + 1];
    for (int i = 0; i < 200; i++) {
        snprintf(text + (ptrdiff_t)i * 9, 10, "line %03d\n", i);
    }
    return (rlm_str){text, sizeof text - 1};
}

TEST(long_texts_show_their_beginning_on_one_line)
{
    for (int as_blob = 0; as_blob < 2; as_blob++) {
        const char *text = task_with_text(lines(), as_blob);
        CHECK_CONTAINS(text, "\n- x: str, 1,800 characters, begins with \"line 000\\nline 001\\n");
        CHECK_CONTAINS(text, look);
        CHECK(strlen(text) < 400);
    }
}

TEST(previews_cut_no_character)
{
    char text[3001] = "x";
    for (size_t i = 1; i + 4 < sizeof text; i += 4) {
        memcpy(text + i, "\xf0\x9f\x8c\x8d", 4); /* a globe: the widest character there is */
    }
    for (int as_blob = 0; as_blob < 2; as_blob++) {
        const char *shown = task_with_text(rlm_str_of(text), as_blob);
        CHECK_CONTAINS(shown, ", begins with \"x\xf0\x9f\x8c\x8d");
        CHECK_CONTAINS(shown, "\xf0\x9f\x8c\x8d\"\n");
        CHECK(!strstr(shown, "\xef\xbf\xbd"));
    }
}

TEST(bytes_are_called_bytes)
{
    CHECK_CONTAINS(task_with_text((rlm_str){"\xff\xfe\x00", 3}, true),
                   "\n- x: bytes, 3 bytes (not UTF-8 text)\n");
    CHECK_CONTAINS(task("{\"x\":{\"$bytes\":\"AAAA\"}}"), "\n- x: bytes, about 3 bytes\n");
}

TEST(directories_are_listed)
{
    CHECK_CONTAINS(
        task("{\"d\":{\"$dir\":{\"files\":[[\"a.c\",1000],[\"b/c.h\",234]]}}}"),
        "\n- d: the files of a directory as a dict (for file, content in d.items(): ...), 2 files, 1,234 bytes: a.c, b/c.h\n");
    struct rlm_buf json = RLM_BUF(1 << 20);
    rlm_buf_adds(&json, "{\"d\":{\"$dir\":{\"files\":[");
    for (int i = 0; i < 40; i++) {
        rlm_buf_addf(&json, "%s[\"f%d\",1]", i ? "," : "", i);
    }
    rlm_buf_adds(&json, "]}}}");
    const char *text = task(json.ptr);
    CHECK_CONTAINS(text, "40 files, 40 bytes: f0, f1, ");
    CHECK_CONTAINS(text, ", f11, ...\n");
    CHECK_CONTAINS(text, look);
    rlm_buf_deinit(&json);
}

TEST(a_schema_of_the_answer_is_told)
{
    struct rlm_graph_options options = {.query = RLM_STR("TASK"),
                                        .output_schema = RLM_STR("{\"type\":\"integer\"}")};
    CHECK_CONTAINS(task_of(&options), "JSON Schema:\n{\"type\":\"integer\"}\n");
}

TEST(the_system_prompt_is_its_sections_with_blank_lines_between)
{
    for (int depth = 0; depth < 3; depth += 2) {
        struct rlm_buf joined = RLM_BUF(1 << 20);
        for (int i = 0; i < RLM_PROMPT_SECTIONS; i++) {
            rlm_autofree char *text =
                rlm_flow_prompt_section(&flow, depth, (enum rlm_prompt_section)i);
            CHECK((text[0] != '\0') ==
                  (i < RLM_PROMPT_TOOLS)); /* this flow has none, and one model */
            if (text[0]) {
                rlm_buf_addf(&joined, "%s%s\n", joined.len ? "\n" : "", text);
            }
        }
        CHECK_TEXT(joined.ptr, system_prompt(depth));
        rlm_buf_deinit(&joined);
    }
    rlm_autofree char *any = rlm_flow_prompt_section(NULL, 0, RLM_PROMPT_SESSION);
    rlm_autofree char *leaf = rlm_flow_prompt_section(&flow, 2, RLM_PROMPT_SESSION);
    rlm_autofree char *none = rlm_flow_prompt_section(NULL, 0, RLM_PROMPT_TOOLS);
    CHECK_CONTAINS(any, "launch_subagents");
    CHECK(!strstr(leaf, "launch_subagents"));
    CHECK_TEXT(none, "");
}
