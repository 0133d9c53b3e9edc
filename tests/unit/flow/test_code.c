#include "base/alloc.h"
#include "base/json.h"
#include "flow/code.h"
#include "rlmflow.h"

#include "harness.h"

enum { TEXT_MAX = 64 * 1024 * 1024, HOSTILE_BYTES = 1024 * 1024 };

/* ---- replies with decided code (tests/data/README.md) ---- */

/* The `note` of the data, and how such a note begins. */
static const struct {
    const char *kind, *text;
} notes[] = {
    {"more", "Only the first code block of a reply runs: "},
    {"empty reply", "Nothing ran: your reply is empty."},
    {"empty block", "Nothing ran: your code block is empty."},
    {"other language", "Nothing ran: your block is tagged \""},
    {"reasoning", "Nothing ran: your reply is all reasoning,"},
    {"open reasoning", "Nothing ran: your reasoning never ended,"},
    {"no block", "Nothing ran: your reply has no code block."},
};

static const char *kind_of(rlm_str note)
{
    if (!note.len) {
        return "";
    }
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        if (rlm_str_starts(note, notes[i].text)) {
            return notes[i].kind;
        }
    }
    return "(unknown)";
}

static void show(const char *what, rlm_str text)
{
    rlm_auto_buf struct rlm_buf out = RLM_BUF(TEXT_MAX);
    struct rlm_json_writer w = {.buf = &out};
    rlm_json_put_str(&w, text);
    printf("#   %s: %s\n", what, out.ptr);
}

/* True when the extractor decides as the person did. */
static bool agrees(int line, const rlm_json *entry)
{
    rlm_auto_buf struct rlm_buf code = RLM_BUF(TEXT_MAX), note = RLM_BUF(TEXT_MAX);
    rlm_str reply = rlm_json_text(rlm_json_get(entry, "reply"), RLM_STR_NONE);
    const rlm_json *decided = rlm_json_get(entry, "code");
    rlm_str kind = rlm_json_text(rlm_json_get(entry, "note"), RLM_STR("(none)"));
    bool runs = rlm_json_is(decided, RLM_JSON_STRING);
    CHECK(runs || rlm_json_is(decided, RLM_JSON_NULL));

    int r = rlm_code_extract(reply, &code, &note);
    rlm_str text = rlm_json_text(decided, RLM_STR_NONE);
    if (r == (runs ? RLM_CODE_FOUND : RLM_CODE_NONE) && rlm_str_eq(rlm_buf_str(&code), text) &&
        rlm_str_is(kind, kind_of(rlm_buf_str(&note)))) {
        return true;
    }
    printf("# line %d\n", line);
    show("reply", reply);
    show("decided", text);
    show("found", rlm_buf_str(&code));
    printf("#   decided note: %.*s\n#   note: %s\n", RLM_FMT(kind), note.ptr ? note.ptr : "");
    return false;
}

static void check_file(const char *name, int at_least)
{
    char path[4096];
    rlm_auto_buf struct rlm_buf text = RLM_BUF(TEXT_MAX);
    rlm_auto_arena rlm_arena *arena = rlm_arena_new(0);
    const char *root = getenv("RLM_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/tests/data/%s", root ? root : ".", name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        harness_fail(__FILE__, __LINE__, "cannot open %s", path);
    }
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;) {
        CHECK(rlm_buf_add(&text, chunk, n) == 0);
    }
    fclose(file);

    int lines = 0, wrong = 0;
    for (char *line = text.ptr, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        const rlm_json *entry;
        CHECK(rlm_json_parse(arena, (rlm_str){line, (size_t)(end - line)}, &entry, NULL) == 0);
        wrong += !agrees(++lines, entry);
    }
    CHECK(lines >= at_least);
    CHECK_INT(wrong, 0);
}

TEST(replies_of_models)
{
    check_file("replies.jsonl", 250);
}

TEST(awkward_replies)
{
    check_file("awkward-replies.jsonl", 260);
}

TEST(a_program_gets_the_code_that_would_run)
{
    rlm_str reply = RLM_STR("So:\n```repl\nx = 1\n```\n```repl\nnot this\n```\n");
    rlm_autofree char *code = NULL, *none = NULL;
    size_t len;
    CHECK_INT(rlm_reply_code(reply, &code, &len, NULL), 0);
    CHECK_STR(((rlm_str){code, len}), "x = 1");
    CHECK_INT(rlm_reply_code(RLM_STR("Nothing to run."), &none, &len, NULL), 1);
    CHECK(!none && len == 0);
}

/* ---- what the files cannot hold ---- */

static void check(const char *reply, int outcome, const char *code, const char *note)
{
    rlm_auto_buf struct rlm_buf got = RLM_BUF(TEXT_MAX), told = RLM_BUF(TEXT_MAX);
    CHECK_INT(rlm_code_extract(rlm_str_of(reply), &got, &told), outcome);
    CHECK_STR(rlm_buf_str(&got), code);
    CHECK_STR(rlm_buf_str(&told), note);
}

#define HOW \
    " Write one block: a line ```repl, Python, a line ```. done(answer) in it ends the task."

TEST(notes_say_what_happened_and_what_to_write)
{
    check("```repl\nx\n```\n", RLM_CODE_FOUND, "x", "");
    check("```repl\nx\n```\n```\ny\n```\n", RLM_CODE_FOUND, "x",
          "Only the first code block of a reply runs: 1 more was ignored.");
    check("```repl\nx\n```\n```\ny\n```\n```py\nz\n```", RLM_CODE_FOUND, "x",
          "Only the first code block of a reply runs: 2 more were ignored.");
    check("4", RLM_CODE_NONE, "", "Nothing ran: your reply has no code block." HOW);
    check("```json\n4\n```", RLM_CODE_NONE, "",
          "Nothing ran: your block is tagged \"json\", and only ```repl blocks run." HOW);
    check("~~~a%sb\n4\n~~~", RLM_CODE_NONE, "",
          "Nothing ran: your block is tagged \"a\", and only ```repl blocks run." HOW);
    check("```\xd0\xbf\n4\n```", RLM_CODE_NONE, "",
          "Nothing ran: your block is tagged \"?\", and only ```repl blocks run." HOW);
    check("```aaaaaaaaaabbbbbbbbbbccccdddddd\n4\n```", RLM_CODE_NONE, "",
          "Nothing ran: your block is tagged \"aaaaaaaaaabbbbbbbbbbcccc\", and only ```repl blocks "
          "run." HOW);
}

TEST(appends_to_its_buffers)
{
    rlm_auto_buf struct rlm_buf code = RLM_BUF(64), note = RLM_BUF(256);
    rlm_buf_adds(&code, "a ");
    rlm_buf_adds(&note, "b ");
    CHECK(rlm_code_extract(RLM_STR("```\nx\n```\n```\ny\n```"), &code, &note) == RLM_CODE_FOUND);
    CHECK_TEXT(code.ptr, "a x");
    CHECK_TEXT(note.ptr, "b Only the first code block of a reply runs: 1 more was ignored.");
}

TEST(tells_when_a_buffer_is_full)
{
    rlm_auto_buf struct rlm_buf code = RLM_BUF(4), note = RLM_BUF(4);
    CHECK(rlm_code_extract(RLM_STR("```\nlong\n```"), &code, &note) == RLM_CODE_FOUND);
    rlm_buf_clear(&code);
    CHECK(rlm_code_extract(RLM_STR("```\nlonger\n```"), &code, &note) == RLM_E_LIMIT);
    rlm_buf_clear(&code);
    CHECK(rlm_code_extract(RLM_STR("prose"), &code, &note) == RLM_E_LIMIT);
    CHECK_INT(code.len, 0);
}

TEST(no_reply_at_all)
{
    rlm_auto_buf struct rlm_buf code = RLM_BUF(64), note = RLM_BUF(256);
    CHECK(rlm_code_extract(RLM_STR_NONE, &code, &note) == RLM_CODE_NONE);
    CHECK_STR(rlm_buf_str(&note), "Nothing ran: your reply is empty." HOW);
}

/* First once, then up to half the length, then to the end. With work in the square of the length each of these would take hours; the harness ends it. */
TEST(hostile_replies_take_linear_time)
{
    static const char *const parts[][3] = {
        {"", "`"},
        {"", "```\n"},
        {"", "```repl\n"},
        {"```md\n", "```x\n"},
        {"", "```\n\\'''\n```\n"},
        {"", "```\n\\'''\n```\n</think>\n"},
        {"", "```\n\\'''\n```\n\\\"\"\"\n"},
        {"```repl\n", "'''\n```\n'''\n"},
        {"```repl\n", "'''\n```x\n''';"},
        {"```repl\n", "'"},
        {"```repl\n", "#```\n"},
        {"```repl\n", " "},
        {"```repl\nx\n", "  \n"},
        {"", "<think>"},
        {"", "<think></think>"},
        {"", "<think></think>```x"},
        {"", "<think></think> a"},
        {"", "</think>\n"},
        {"", "<a"},
        {"", "```json\nx```\n"},
        {"", "```json\nx```\n~~~x\ny~~~\n"},
        {"", "```repl\n#```\n</think>\n"},
        {"", "```\nprose\n```repl\n\n```\n"},
        {"", "a: ```repl\n"},
        {"", "- - - "},
        {"", "f("},
        {"", "f(1)\n"},
        {"", "\\\n"},
        {"", "<code>"},
        {"<code>", "</code>"},
        {"", "<think></think>", "a"},
        {"", "<think></think>", "`"},
        {"", "<think></think>~~~`", "`"},
        {"", "<think></think> ", " "},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        rlm_auto_buf struct rlm_buf reply = RLM_BUF(TEXT_MAX), code = RLM_BUF(TEXT_MAX),
                                    note = RLM_BUF(TEXT_MAX);
        rlm_buf_adds(&reply, parts[i][0]);
        while (reply.len < HOSTILE_BYTES) {
            rlm_buf_adds(&reply, parts[i][1]);
        }
        while (parts[i][2] && reply.len < 2 * HOSTILE_BYTES) {
            rlm_buf_adds(&reply, parts[i][2]);
        }
        CHECK(rlm_code_extract(rlm_buf_str(&reply), &code, &note) >= 0);
        CHECK(note.len < 300);
    }
}

/* Fences of falling length, each glued: every block must look to the end for a fence of its own. */
TEST(falling_fences_take_linear_time)
{
    rlm_auto_buf struct rlm_buf reply = RLM_BUF(TEXT_MAX), code = RLM_BUF(TEXT_MAX),
                                note = RLM_BUF(TEXT_MAX);
    char fence[2048];
    memset(fence, '`', sizeof fence);
    for (int len = (int)sizeof fence; len >= 3; len--) {
        rlm_buf_addf(&reply, "%.*sjson\ny%.*s\n", len, fence, len, fence);
    }
    CHECK(rlm_code_extract(rlm_buf_str(&reply), &code, &note) == RLM_CODE_NONE);
}
