#include "flow/observe.h"

#include "base/arena.h"
#include "harness.h"

static const char *observe(struct rlm_observation o)
{
    static struct rlm_buf out;
    rlm_buf_deinit(&out);
    out = RLM_BUF(1 << 20);
    CHECK(rlm_observe(&o, &out) == 0);
    return out.ptr;
}

TEST(output_stands_as_it_was_without_its_last_newline)
{
    CHECK_TEXT(observe((struct rlm_observation){.output = RLM_STR("a\nb\n"), .max_chars = 100}),
               "a\nb");
}

TEST(nothing_printed_is_said)
{
    CHECK_TEXT(observe((struct rlm_observation){.max_chars = 100}), "(no output)");
    CHECK_TEXT(observe((struct rlm_observation){.output = RLM_STR("\n\n"), .max_chars = 100}),
               "(no output)");
}

TEST(long_output_keeps_head_and_tail_by_characters)
{
    const char *text = observe((struct rlm_observation){
        .output = RLM_STR("\xc3\xa4\xc3\xb6\xc3\xbc-----------xyz"), .max_chars = 6});
    CHECK(strncmp(text, "\xc3\xa4\xc3\xb6\xc3\xbc\n", 7) == 0);
    CHECK_TEXT(text + strlen(text) - 4, "\nxyz");
    CHECK_CONTAINS(text, "(11 characters left out");
}

TEST(the_error_is_always_there)
{
    char flood[10001];
    memset(flood, 'x', sizeof flood - 1);
    flood[sizeof flood - 1] = '\0';
    const char *text = observe((struct rlm_observation){
        .output = rlm_str_of(flood), .error = RLM_STR("ValueError: boom"), .max_chars = 100});
    CHECK_TEXT(text + strlen(text) - 17, "\nValueError: boom");
    CHECK(strlen(text) < 400);
}

TEST(what_the_worker_left_out_is_counted_in)
{
    CHECK_CONTAINS(observe((struct rlm_observation){
                       .output = RLM_STR("abcdefghij"), .omitted_chars = 1000, .max_chars = 4}),
                   "(1006 characters left out");
    CHECK_CONTAINS(observe((struct rlm_observation){
                       .output = RLM_STR("abcdefghij"), .omitted_chars = 1000, .max_chars = 0}),
                   "(1000 characters in the middle");
}

TEST(notes_follow)
{
    rlm_arena *arena = rlm_arena_new(0);
    const rlm_json *notes;
    CHECK(rlm_json_parse(arena, RLM_STR("[\"one\",\"two\"]"), &notes, NULL) == 0);
    CHECK_TEXT(
        observe((struct rlm_observation){
            .output = RLM_STR("out"), .notes = notes, .note = RLM_STR("three"), .max_chars = 100}),
        "out\n[one]\n[two]\n[three]");
    rlm_arena_free(arena);
}

static bool same(const char *a, const char *b)
{
    return rlm_output_is_same(rlm_str_of(a), rlm_str_of(b));
}

TEST(addresses_make_no_difference)
{
    CHECK(same("<f at 0x7f01>, <g at 0xa>\n", "<f at 0x5>, <g at 0xbcd>\n"));
    CHECK(same("", ""));
    CHECK(!same("0x1 a", "0x1 b"));
    CHECK(!same("0x1 and more", "0x1"));
    CHECK(!same("71", "72"));
}
