#include "graph/record.h"

#include "harness.h"

#include <sys/stat.h>
#include <unistd.h>

#define PAIR "\xED\xA0\xBD\xED\xB3\xA6" /* two surrogates, not the one character they mean */

static const char *run_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/a.rlm", harness_directory());
    return path;
}

static rlm_journal *create(void)
{
    rlm_journal *j = NULL;
    CHECK_INT(rlm_journal_create(NULL, run_path(), NULL, &j, NULL), 0);
    return j;
}

static rlm_graph *start(rlm_journal *j)
{
    struct rlm_graph_options options = {.query = RLM_STR("what?")};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_new(&options, &g, NULL), 0);
    CHECK_INT(rlm_record_run(j, g, RLM_STR("{\"max_depth\":2}"), NULL), 0);
    return g;
}

static rlm_graph *add_child(rlm_journal *j, rlm_graph *parent, const char *name, rlm_str query)
{
    struct rlm_graph_options options = {.query = query};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_add_child(parent, name, &options, &g, NULL), 0);
    CHECK_INT(rlm_record_child(j, g, NULL), 0);
    return g;
}

static void append(rlm_journal *j, rlm_graph *g, struct rlm_node node)
{
    const struct rlm_node *kept = NULL;
    CHECK_INT(rlm_graph_append(g, &node, &kept, NULL), 0);
    CHECK_INT(rlm_record_node(j, g, kept, NULL), 0);
}

static void append_text(rlm_journal *j, rlm_graph *g, const char *content)
{
    append(j, g, (struct rlm_node){.type = RLM_LLM_OUTPUT, .content = rlm_str_of(content)});
}

static rlm_graph *load(char **ret_note)
{
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_load(run_path(), &g, ret_note, NULL), 0);
    return g;
}

static void check_same_node(const struct rlm_node *a, const struct rlm_node *b)
{
    CHECK_INT(a->type, b->type);
    CHECK_INT(a->seq, b->seq);
    CHECK_TEXT(a->id, b->id);
    CHECK_INT(a->time_us, b->time_us);
    CHECK(rlm_str_eq(a->content, b->content));
    CHECK(rlm_str_eq(a->code, b->code));
    CHECK(rlm_str_eq(a->output, b->output));
    CHECK(rlm_str_eq(a->error, b->error));
    CHECK(rlm_str_eq(a->result, b->result));
    CHECK(rlm_str_eq(a->reason, b->reason));
    CHECK(rlm_str_eq(a->model, b->model));
    CHECK(rlm_str_eq(a->metadata, b->metadata));
    CHECK(memcmp(&a->usage, &b->usage, sizeof a->usage) == 0);
    CHECK_INT(a->call_id, b->call_id);
    CHECK_INT(a->n_agents, b->n_agents);
    for (size_t i = 0; i < a->n_agents; i++) {
        CHECK_TEXT(a->agents[i], b->agents[i]);
    }
}

static void check_same_tree(rlm_graph *a, rlm_graph *b)
{
    rlm_graph *root_a = a, *root_b = b;
    CHECK_TEXT(rlm_graph_id(a), rlm_graph_id(b));
    CHECK_INT(rlm_graph_agent_count(a), rlm_graph_agent_count(b));
    for (; a; a = rlm_graph_next(root_a, a), b = rlm_graph_next(root_b, b)) {
        CHECK(b != NULL);
        CHECK_TEXT(a->agent_id, b->agent_id);
        CHECK_TEXT(a->name, b->name);
        CHECK_INT(a->depth, b->depth);
        CHECK_INT(a->turns, b->turns);
        CHECK(rlm_str_eq(a->query, b->query));
        CHECK(rlm_str_eq(a->inputs, b->inputs));
        CHECK(rlm_str_eq(a->model, b->model));
        CHECK(rlm_str_eq(a->output_schema, b->output_schema));
        CHECK(memcmp(&a->total, &b->total, sizeof a->total) == 0);
        CHECK(memcmp(&a->own, &b->own, sizeof a->own) == 0);
        CHECK_INT(a->nodes.len, b->nodes.len);
        for (size_t i = 0; i < a->nodes.len; i++) {
            check_same_node(a->nodes.items[i], b->nodes.items[i]);
        }
    }
    CHECK(b == NULL);
}

/* Texts that are hard to keep, each in every field. */
static const struct rlm_str hard_texts[] = {
    RLM_STR("plain"),
    RLM_STR("a\0b"),
    RLM_STR("\0"),
    RLM_STR("line\r\nline\n\r\ttab \x01\x1f\x7f"),
    RLM_STR("\"quoted\" \\back/slash\\u0041"),
    RLM_STR("h\xE2\x82\xACllo \xF0\x9F\x93\xA6"),
    RLM_STR("lone \xED\xB2\x80 and \xED\xA0\xBD"),
    RLM_STR("pair " PAIR " kept as two"),
    RLM_STR(PAIR),
    RLM_STR("\xED\xA0\xBD\xED\xA0\xBD\xED\xB3\xA6"),
    RLM_STR("no UTF-8: \xFF\xC3"),
    RLM_STR("{\"$blob\": \"x\"}"),
    RLM_STR("{\"$hex\":\"00\"}"),
    RLM_STR("{\"a\":1}"),
    RLM_STR("{ \"a\" : 1 }"),
    RLM_STR("{\"a\":1.0e5,\"b\":[true,null,-0],\"c\":\"\\u00e9\",\"a\":2}"),
    RLM_STR("[]"),
    RLM_STR("null"),
    RLM_STR("true"),
    RLM_STR("12"),
    RLM_STR("\"string\""),
    RLM_STR("{\"unfinished\":"),
};

TEST(every_field_comes_back_byte_for_byte)
{
    rlm_journal *j = create();
    rlm_graph *g = start(j);
    const char *const agents[] = {"root.b", "root.gone"};
    add_child(j, g, "b", RLM_STR("q"));
    for (size_t i = 0; i < sizeof hard_texts / sizeof *hard_texts; i++) {
        rlm_str t = hard_texts[i];
        struct rlm_node node = {.type = (enum rlm_node_type)(i % RLM_DONE_OUTPUT), .content = t};
        append(j, g, node);
        node.output = t; /* equal to the content */
        append(j, g, node);
        node = (struct rlm_node){
            .type = RLM_EXEC_OUTPUT,
            .code = t,
            .output = t,
            .error = t,
            .result = t,
            .reason = t,
            .model = t,
            .metadata = t,
            .usage = {1, INT64_MAX / 100, 3, 4, 5, 6},
            .agents = agents,
            .n_agents = i % 3,
            .call_id = (int64_t)i,
        };
        append(j, g, node);
        char name[32];
        struct rlm_graph_options options = {
            .query = t, .inputs = t, .model = t, .output_schema = t};
        rlm_graph *child;
        snprintf(name, sizeof name, "c%zu", i);
        CHECK_INT(rlm_graph_add_child(g, name, &options, &child, NULL), 0);
        CHECK_INT(rlm_record_child(j, child, NULL), 0);
    }
    rlm_journal_close(j);
    char *note = NULL;
    rlm_graph *loaded = load(&note);
    CHECK(note == NULL);
    check_same_tree(g, loaded);
    CHECK(loaded->nodes.items[1]->output.ptr == loaded->nodes.items[1]->content.ptr);
    rlm_graph_free(loaded);
    rlm_graph_free(g);
}

TEST(deep_json_does_not_make_a_record_unreadable)
{
    rlm_journal *j = create();
    rlm_graph *g = start(j);
    for (size_t depth = 200; depth <= RLM_JSON_MAX_DEPTH + 1; depth++) {
        char text[2 * (RLM_JSON_MAX_DEPTH + 1)];
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        append(j, g, (struct rlm_node){.metadata = {text, 2 * depth}});
    }
    rlm_journal_close(j);
    rlm_graph *loaded = load(NULL);
    check_same_tree(g, loaded);
    rlm_graph_free(loaded);
    rlm_graph_free(g);
}

static void append_large(rlm_journal *j, rlm_graph *g)
{
    size_t size = 3 * RLM_BLOB_THRESHOLD;
    char *text = malloc(size);
    memset(text, 'x', size);
    append(j, g, (struct rlm_node){.content = {text, size}, .output = {text, size}});
    text[7] = '\xFF';
    append(j, g, (struct rlm_node){.content = {text, size}});
    memcpy(text, PAIR, 6);
    text[7] = 'y';
    append(j, g, (struct rlm_node){.content = {text, size}});
    memset(text, '[', size / 2);
    memset(text + size / 2, ']', size / 2);
    append(j, g, (struct rlm_node){.metadata = {text, size}});
    free(text);
}

TEST(large_texts_are_blobs_and_come_back)
{
    rlm_journal *j = create();
    rlm_graph *g = start(j);
    append_large(j, g);
    CHECK_INT(rlm_blobs_disk_bytes(rlm_journal_blobs(j)), 4 * 3 * RLM_BLOB_THRESHOLD);
    CHECK(rlm_journal_disk_bytes(j) < 4 * 3 * RLM_BLOB_THRESHOLD + 4000);
    rlm_graph *loaded = load(NULL); /* while it is written */
    check_same_tree(g, loaded);
    rlm_graph_free(loaded);
    rlm_journal_close(j);
    struct rlm_journal_damage damage;
    CHECK_INT(rlm_record_load(run_path(), NULL, NULL, &loaded, &damage, NULL), 0);
    check_same_tree(g, loaded);
    rlm_graph_free(loaded);
    rlm_graph_free(g);
}

TEST(a_blob_that_is_gone_is_noted_or_an_error)
{
    rlm_journal *j = create();
    rlm_graph *g = start(j);
    rlm_error *err = NULL;
    char command[400], *note = NULL;
    append_large(j, g);
    append_text(j, g, "after");
    rlm_journal_close(j);
    snprintf(command, sizeof command, "rm -rf '%s/blobs'", run_path());
    CHECK_INT(system(command), 0);
    rlm_graph *loaded = load(&note);
    CHECK_INT(rlm_graph_node_count(loaded), 5);
    CHECK_STR(rlm_graph_current(loaded)->content, "after");
    CHECK_CONTAINS(rlm_graph_node(loaded, 0)->content.ptr, "is missing from");
    CHECK_CONTAINS(note, "4 large texts cannot be shown: blob ");
    CHECK(access(strcat(strcpy((char[300]){0}, run_path()), "/blobs"), F_OK) < 0);
    free(note);
    rlm_graph_free(loaded);
    struct rlm_journal_damage damage;
    CHECK_INT(rlm_record_load(run_path(), NULL, NULL, &loaded, &damage, &err), RLM_E_NOT_FOUND);
    CHECK_CONTAINS(rlm_error_message(err), "the record at byte ");
    CHECK_CONTAINS(rlm_error_message(err), "\"content\"");
    rlm_error_free(err);
    rlm_graph_free(g);
    /* it can be cut there, and nowhere between records */
    CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, false, &j, NULL, NULL), 0);
    CHECK_INT(rlm_journal_cut(j, damage.offset + 1, NULL), RLM_E_INVAL);
    CHECK_INT(rlm_journal_cut(j, 1 << 30, NULL), RLM_E_INVAL);
    CHECK_INT(rlm_journal_records(j), 6);
    CHECK_INT(rlm_journal_cut(j, damage.offset, NULL), 0);
    CHECK_INT(rlm_journal_records(j), 1);
    CHECK_INT(rlm_record_load(run_path(), NULL, NULL, &loaded, &damage, NULL), 0);
    CHECK_INT(rlm_graph_node_count(loaded), 0);
    append_text(j, loaded, "on");
    rlm_journal_close(j);
    rlm_graph_free(loaded);
    loaded = load(&note);
    CHECK(note == NULL);
    CHECK_INT(rlm_graph_node_count(loaded), 1);
    rlm_graph_free(loaded);
}

TEST(children_keep_their_order_and_place)
{
    rlm_journal *j = create();
    rlm_graph *g = start(j), *b = add_child(j, g, "z", RLM_STR("1"));
    add_child(j, g, "a", RLM_STR("2"));
    rlm_graph *deep = add_child(j, b, "z", RLM_STR("3"));
    append_text(j, deep, "deep");
    append_text(j, g, "top");
    add_child(j, g, "m.n", RLM_STR("4"));
    append(j, deep,
           (struct rlm_node){
               .type = RLM_DONE_OUTPUT, .reason = RLM_STR("answered"), .result = RLM_STR("r")});
    rlm_journal_close(j);
    rlm_graph *loaded = load(NULL);
    check_same_tree(g, loaded);
    CHECK_TEXT(rlm_graph_agent_id(rlm_graph_child(loaded, 2)), "root.m.n");
    CHECK_STR(rlm_graph_result(rlm_graph_agent(loaded, "root.z.z")), "r");
    rlm_graph_free(loaded);
    rlm_graph_free(g);
}

static int
note_kind(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct rlm_buf *out = arg;
    rlm_buf_addf(out, "%d ", (int)kind);
    return kind == RLM_RECORD_GATE ? rlm_error_set(err, RLM_E_CANCELED, "enough") : 0;
}

static void add_record(rlm_journal *j, int kind, const char *payload)
{
    CHECK_INT(rlm_journal_append(j, (enum rlm_record_kind)kind, rlm_str_of(payload), NULL), 0);
}

TEST(other_records_go_to_their_owner)
{
    rlm_journal *j = create();
    rlm_graph *g = start(j), *loaded = NULL;
    rlm_auto_buf struct rlm_buf kinds = RLM_BUF(1000);
    append_text(j, g, "x");
    add_record(j, RLM_RECORD_CELL_STARTED, "{}");
    add_record(j, RLM_RECORD_SETTLE, "{\"agent\":\"root\",\"calls\":1,\"input_tokens\":10}");
    add_record(j, RLM_RECORD_SETTLE, "{\"agent\":\"nobody\",\"calls\":5}");
    add_record(j, 60, "\x01 of a later program");
    add_child(j, g, "c", RLM_STR("q"));
    add_record(j, RLM_RECORD_RUN_ENDED, "not read here");
    CHECK_INT(rlm_record_load(run_path(), note_kind, &kinds, &loaded, NULL, NULL), 0);
    CHECK_TEXT(kinds.ptr, "1 7 12 12 15 ");
    CHECK_INT(rlm_graph_usage(loaded, true).calls, 1);
    CHECK_INT(rlm_graph_usage(loaded, true).input_tokens, 10);
    CHECK_INT(rlm_graph_child_count(loaded), 1);
    rlm_graph_free(loaded);
    add_record(j, RLM_RECORD_GATE, "{}");
    rlm_error *err = NULL;
    loaded = NULL;
    CHECK_INT(rlm_record_load(run_path(), note_kind, &kinds, &loaded, NULL, &err), RLM_E_CANCELED);
    CHECK_CONTAINS(rlm_error_message(err), "enough");
    CHECK(loaded == NULL);
    rlm_error_free(err);
    rlm_journal_close(j);
    rlm_graph_free(g);
}

static off_t size_of_journal(void)
{
    struct stat st;
    char path[300];
    snprintf(path, sizeof path, "%s/journal", run_path());
    CHECK_INT(stat(path, &st), 0);
    return st.st_size;
}

TEST(a_note_says_what_is_torn_or_damaged)
{
    char path[300], expected[100], *note = NULL;
    rlm_journal *j = create();
    rlm_graph *g = start(j);
    append_text(j, g, "one");
    off_t offset = size_of_journal();
    append_text(j, g, "two");
    append_text(j, g, "three");
    off_t size = size_of_journal();
    rlm_journal_close(j);
    snprintf(path, sizeof path, "%s/journal", run_path());
    CHECK_INT(truncate(path, size - 1), 0);
    rlm_graph *loaded = load(&note);
    CHECK_INT(rlm_graph_node_count(loaded), 2);
    CHECK_CONTAINS(note, "end is torn");
    free(note);
    rlm_graph_free(loaded);
    FILE *f = fopen(path, "r+");
    fseek(f, offset + 20, SEEK_SET);
    fputc('#', f);
    fclose(f);
    loaded = load(&note);
    CHECK_INT(rlm_graph_node_count(loaded), 1);
    snprintf(expected, sizeof expected, "byte %lld", (long long)offset);
    CHECK_CONTAINS(note, expected);
    CHECK_CONTAINS(note, "torn"); /* no good record follows since the last one was cut */
    free(note);
    rlm_graph_free(loaded);
    rlm_graph_free(g);
}

TEST(a_record_that_makes_no_sense_is_noted_or_an_error)
{
    static const struct {
        int kind;
        const char *payload, *message;
        int code;
    } cases[] = {
        {RLM_RECORD_NODE, "{\"agent\":\"root.x\",\"type\":\"llm_output\"}", "no agent \"root.x\"",
         RLM_E_CORRUPT},
        {RLM_RECORD_NODE, "{\"agent\":\"root\",\"type\":\"thought\"}", "unknown type \"thought\"",
         RLM_E_VERSION},
        {RLM_RECORD_NODE, "{\"agent\":\"root\",\"type\":\"llm_output\",\"content\":5}",
         "neither a string nor", RLM_E_CORRUPT},
        {RLM_RECORD_NODE,
         "{\"agent\":\"root\",\"type\":\"llm_output\",\"content\":{\"$hex\":\"zz\"}}",
         "hexadecimal", RLM_E_CORRUPT},
        {RLM_RECORD_NODE,
         "{\"agent\":\"root\",\"type\":\"llm_output\",\"content\":{\"$blob\":\"../x\",\"size\":1}}",
         "lacks its facts", RLM_E_CORRUPT},
        {RLM_RECORD_CHILD, "{\"parent\":\"root\",\"name\":\"c\"}", "already exists", RLM_E_CORRUPT},
        {RLM_RECORD_CHILD, "{\"parent\":\"root\"}", "name is empty", RLM_E_CORRUPT},
        {RLM_RECORD_NODE, "no JSON", "", RLM_E_CORRUPT},
        {RLM_RECORD_NODE, "[]", "not a JSON object", RLM_E_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[400], *note = NULL;
        rlm_error *err = NULL;
        rlm_journal *j = create();
        rlm_graph *g = start(j), *loaded = NULL;
        add_child(j, g, "c", RLM_STR("q"));
        append_text(j, g, "before");
        add_record(j, cases[i].kind, cases[i].payload);
        append_text(j, g, "after");
        rlm_journal_close(j);
        rlm_graph_free(g);
        CHECK_INT(rlm_record_load(run_path(), NULL, NULL, &loaded, NULL, &err), cases[i].code);
        CHECK_CONTAINS(rlm_error_message(err), cases[i].message);
        CHECK_CONTAINS(rlm_error_message(err), "the record at byte ");
        rlm_error_free(err);
        CHECK(loaded == NULL);
        loaded = load(&note);
        CHECK_INT(rlm_graph_node_count(loaded), 1);
        CHECK_CONTAINS(note, cases[i].message);
        CHECK_CONTAINS(note, "what is shown ends there");
        free(note);
        rlm_graph_free(loaded);
        snprintf(command, sizeof command, "rm -rf '%s'", run_path());
        CHECK_INT(system(command), 0);
    }
}

static void check_no_graph(int code, const char *message)
{
    rlm_graph *g = NULL;
    rlm_error *err = NULL;
    CHECK_INT(rlm_graph_load(run_path(), &g, NULL, &err), code);
    CHECK_CONTAINS(rlm_error_message(err), message);
    rlm_error_free(err);
}

TEST(a_run_without_its_first_record_is_none)
{
    check_no_graph(RLM_E_NOT_FOUND, "there is no run");
    rlm_journal *j = create();
    check_no_graph(RLM_E_PARSE, "holds nothing");
    add_record(j, RLM_RECORD_NODE, "{\"agent\":\"root\",\"type\":\"llm_output\"}");
    check_no_graph(RLM_E_CORRUPT, "before the record that starts the run");
    rlm_journal_close(j);
}

TEST(a_newer_format_is_refused)
{
    rlm_journal *j = create();
    add_record(j, RLM_RECORD_RUN, "{\"format\":2}");
    check_no_graph(RLM_E_VERSION, "version 2");
    rlm_journal_close(j);
}

TEST(without_a_journal_nothing_is_recorded)
{
    struct rlm_graph_options options = {0};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_new(&options, &g, NULL), 0);
    CHECK_INT(rlm_record_run(NULL, g, RLM_STR("no JSON"), NULL), 0);
    append(NULL, g, (struct rlm_node){.type = RLM_LLM_OUTPUT});
    add_child(NULL, g, "c", RLM_STR(""));
    rlm_graph_free(g);
}

TEST(options_must_be_json)
{
    rlm_journal *j = create();
    struct rlm_graph_options options = {0};
    rlm_graph *g = NULL;
    CHECK_INT(rlm_graph_new(&options, &g, NULL), 0);
    CHECK_INT(rlm_record_run(j, g, RLM_STR("{\"a\":"), NULL), RLM_E_PARSE);
    CHECK_INT(rlm_journal_records(j), 0);
    rlm_journal_close(j);
    rlm_graph_free(g);
}

TEST(texts_are_read_and_written_by_others_too)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    rlm_blobs *blobs = NULL;
    CHECK_INT(rlm_blobs_open(NULL, &blobs, NULL), 0);
    size_t size = RLM_BLOB_THRESHOLD;
    char *large = malloc(size);
    memset(large, 'l', size);
    rlm_str texts[] = {RLM_STR("short"), RLM_STR(PAIR), {large, size}, {large, size - 1}};
    for (int i = 0; i < 4; i++) {
        rlm_auto_buf struct rlm_buf b = RLM_BUF(1 << 20);
        struct rlm_json_writer w = {.buf = &b};
        const rlm_json *value;
        rlm_str text;
        CHECK_INT(rlm_record_put_text(&w, blobs, texts[i], NULL), 0);
        CHECK_INT(rlm_json_parse(a, rlm_buf_str(&b), &value, NULL), 0);
        CHECK((rlm_json_get(value, "$blob") != NULL) == (i == 2));
        CHECK_INT(rlm_record_get_text(value, blobs, a, &text, NULL), 0);
        CHECK(rlm_str_eq(text, texts[i]));
        CHECK_INT(rlm_record_get_text(value, NULL, a, &text, NULL), i == 2 ? RLM_E_INVAL : 0);
    }
    CHECK(rlm_blobs_disk_bytes(blobs) == 0);
    free(large);
    rlm_blobs_free(blobs);
}
