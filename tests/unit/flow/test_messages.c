#include "flow/messages.h"

#include "flow/prompt.h"
#include "graph/graph.h"
#include "harness.h"

/* An agent made by hand: what a projection reads is its graph, and limits and prompt of its flow. */
static rlm_flow flow = {.limits = RLM_LIMITS_INIT};
static rlm_run run = {.flow = &flow};
static struct rlm_agent agent = {.run = &run};

static void begin(const char *query)
{
    struct rlm_graph_options options = {.query = rlm_str_of(query)};
    flow.system_prompt = rlm_strdup("SYSTEM");
    CHECK(rlm_graph_new(&options, &agent.graph, NULL) == 0);
    struct rlm_node node = {.type = RLM_USER_QUERY, .content = rlm_str_of(query)};
    CHECK(rlm_graph_append(agent.graph, &node, NULL, NULL) == 0);
}

static void append(enum rlm_node_type type, const char *content, const char *code)
{
    struct rlm_node node = {.type = type, .content = rlm_str_of(content), .code = rlm_str_of(code)};
    CHECK(rlm_graph_append(agent.graph, &node, NULL, NULL) == 0);
}

static void turn(const char *code, const char *output)
{
    append(RLM_LLM_OUTPUT, code, code);
    append(RLM_EXEC_ACTION, "", code);
    append(RLM_EXEC_OUTPUT, output, "");
}

/* Projects, and checks what holds for every conversation. */
static struct rlm_messages project(int turns_dropped, bool final)
{
    static rlm_arena *arena;
    rlm_arena_free(arena);
    CHECK((arena = rlm_arena_new(0)) != NULL);
    struct rlm_messages_options options = {.turns_dropped = turns_dropped, .final = final};
    struct rlm_messages m;
    CHECK(rlm_messages_build(&agent, &options, arena, &m, NULL) == 0);
    uint64_t bytes = 0;
    for (size_t i = 0; i < m.count; i++) {
        CHECK_INT(m.items[i].role, i == 0 ? RLM_SYSTEM : i % 2 ? RLM_USER : RLM_ASSISTANT);
        CHECK(m.items[i].text.len > 0);
        bytes += m.items[i].text.len;
    }
    CHECK(m.items[m.count - 1].role == RLM_USER);
    CHECK(m.bytes == bytes);
    CHECK_STR(m.items[0].text, "SYSTEM");
    CHECK(rlm_str_starts(m.items[1].text, "Task: TASK\n"));
    return m;
}

static bool has(rlm_str text, const char *part)
{
    return memmem(text.ptr, text.len, part, strlen(part)) != NULL;
}

static const char marker[] = "[Earlier turns are left out here.]";
static const char hint[] = "\n[If this shows the answer, call done(answer)";
static const char again[] = "\n[You have sent this code before, and the same came out;";

TEST(a_new_agent_has_its_task)
{
    begin("TASK");
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 2);
    CHECK_INT(m.turns_shown, 0);
    CHECK(!has(m.items[1].text, marker));
}

TEST(a_turn_is_a_reply_and_what_it_printed)
{
    begin("TASK");
    turn("print(1)", "1");
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 4);
    CHECK_INT(m.turns_shown, 1);
    CHECK_STR(m.items[2].text, "print(1)");
    CHECK(rlm_str_starts(m.items[3].text, "1\n"));
}

TEST(nodes_between_a_reply_and_its_output_are_not_told)
{
    begin("TASK");
    append(RLM_LLM_OUTPUT, "code", "code");
    append(RLM_EXEC_ACTION, "", "code");
    append(RLM_SUPERVISING_OUTPUT, "waits", "");
    append(RLM_RESUME_ACTION, "resumed", "");
    append(RLM_EXEC_OUTPUT, "out", "");
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 4);
    CHECK(!has(m.items[3].text, "waits") && !has(m.items[3].text, "resumed"));
}

TEST(what_ran_without_done_ends_with_what_to_do)
{
    begin("TASK");
    turn("print(1)", "1");
    turn("print(2)", "2");
    struct rlm_messages m = project(0, false);
    CHECK(has(m.items[3].text, hint));
    CHECK(has(m.items[5].text, hint));
}

static void failed_turn(const char *code, const char *error, const char *kind)
{
    append(RLM_LLM_OUTPUT, code, code);
    append(RLM_EXEC_ACTION, "", code);
    struct rlm_node node = {
        .type = RLM_ERROR_OUTPUT, .content = rlm_str_of(error), .error = rlm_str_of(kind)};
    CHECK(rlm_graph_append(agent.graph, &node, NULL, NULL) == 0);
}

TEST(code_that_raised_is_told_to_look_first)
{
    begin("TASK");
    failed_turn("prnt(1)", "NameError: prnt", "exec");
    rlm_str text = project(0, false).items[3].text;
    CHECK(rlm_str_starts(text, "NameError: prnt\n[Your code stopped there;"));
    CHECK(!has(text, hint));
}

TEST(other_errors_say_themselves_what_to_do)
{
    begin("TASK");
    failed_turn("while 1: pass", "too slow", "exec_timeout");
    failed_turn("", "Nothing ran: write a block", "no_code");
    struct rlm_messages m = project(0, false);
    CHECK_STR(m.items[3].text, "too slow");
    CHECK_STR(m.items[5].text, "Nothing ran: write a block");
}

TEST(code_sent_twice_in_a_row_is_shown_once)
{
    begin("TASK");
    turn("print(1)", "1");
    turn("print(1)", "1");
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 4);
    CHECK(has(m.items[3].text, hint) && has(m.items[3].text, again));
    size_t once = m.items[3].text.len;
    turn("print(1)", "1");
    m = project(0, false);
    CHECK_INT(m.count, 4);
    rlm_str text = m.items[3].text;
    CHECK(has((rlm_str){text.ptr + once, text.len - once}, "once more")); /* a line for each time */
    turn("print(2)", "2");
    m = project(0, false);
    CHECK_INT(m.count, 6);
    CHECK(!has(m.items[5].text, again));
}

TEST(the_number_of_the_cell_is_no_difference)
{
    begin("TASK");
    failed_turn("x", "out\n  File \"<cell 9>\", line 3\nValueError: 7", "exec");
    failed_turn("x", "out\n  File \"<cell 10>\", line 3\nValueError: 7", "exec");
    CHECK_INT(project(0, false).count, 4);
    failed_turn("x", "out\n  File \"<cell 11>\", line 3\nValueError: 8", "exec");
    CHECK_INT(project(0, false).count, 6);
    failed_turn("x", "out\n  File \"<cell 12>\", line 3\nValueError: 81", "exec");
    CHECK_INT(project(0, false).count, 8);
}

TEST(code_whose_first_sending_is_left_out_is_shown)
{
    begin("TASK");
    turn("print(1)", "1");
    turn("print(1)", "1");
    struct rlm_messages m = project(1, false);
    CHECK_INT(m.count, 4);
    CHECK_STR(m.items[2].text, "print(1)");
}

TEST(code_whose_output_changes_does_not_repeat_itself)
{
    begin("TASK");
    turn("print(next(it))", "1");
    turn("print(next(it))", "2");
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 6);
    CHECK(!has(m.items[5].text, again));
}

TEST(replies_without_code_do_not_repeat_code)
{
    begin("TASK");
    failed_turn("", "Nothing ran", "no_code");
    failed_turn("", "Nothing ran", "no_code");
    CHECK_STR(project(0, false).items[5].text, "Nothing ran");
}

TEST(what_was_sent_stays_as_turns_come)
{
    begin("TASK");
    turn("print(1)", "1");
    struct rlm_messages before = project(0, false);
    char *sent = rlm_strndup(before.items[3].text.ptr, before.items[3].text.len);
    turn("print(1)", "1");
    CHECK(rlm_str_starts(project(0, false).items[3].text, sent));
    turn("print(2)", "2");
    turn("print(1)", "1");
    CHECK(rlm_str_starts(project(0, false).items[3].text, sent));
    free(sent);
}

TEST(blanks_alone_are_not_sent)
{
    begin("TASK");
    turn(" \n", "\t\n");
    struct rlm_messages m = project(0, false);
    CHECK_STR(m.items[2].text, "(empty reply)");
    CHECK(rlm_str_starts(m.items[3].text, "(nothing)"));
}

TEST(no_message_is_empty)
{
    begin("TASK");
    turn("", "");
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 4);
    CHECK_STR(m.items[2].text, "(empty reply)");
    CHECK(rlm_str_starts(m.items[3].text, "(nothing)"));
}

TEST(a_reply_without_an_observation_is_answered)
{
    begin("TASK");
    append(RLM_LLM_OUTPUT, "code", "code");
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 4);
    CHECK(has(m.items[3].text, "done(answer)"));
}

TEST(a_follow_up_is_merged_behind_the_earlier_answer)
{
    begin("TASK");
    append(RLM_LLM_OUTPUT, "done(1)", "done(1)");
    append(RLM_EXEC_ACTION, "", "done(1)");
    struct rlm_node done = {
        .type = RLM_DONE_OUTPUT, .result = RLM_STR("one"), .reason = RLM_STR("answered")};
    CHECK(rlm_graph_append(agent.graph, &done, NULL, NULL) == 0);
    append(RLM_USER_QUERY, "AND THEN?", "");
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 4);
    CHECK_STR(m.items[3].text, "one\n\nAND THEN?");
}

TEST(dropped_turns_leave_a_marker_behind_the_task)
{
    begin("TASK");
    turn("print(1)", "first");
    turn("print(2)", "second");
    turn("print(3)", "third");
    struct rlm_messages m = project(2, false);
    CHECK_INT(m.count, 4);
    CHECK_INT(m.turns_shown, 1);
    CHECK(has(m.items[1].text, marker));
    CHECK_STR(m.items[2].text, "print(3)");
    m = project(3, false);
    CHECK_INT(m.count, 2);
    CHECK(has(m.items[1].text, marker));
}

TEST(a_cap_of_messages_keeps_the_task_and_the_newest)
{
    begin("TASK");
    for (int i = 0; i < 9; i++) {
        char code[20];
        snprintf(code, sizeof code, "print(%d)", i);
        turn(code, code + 5);
    }
    for (int most = 4; most < 20; most++) {
        flow.limits.max_messages = most;
        struct rlm_messages m = project(0, false);
        CHECK((int)m.count <= most && (int)m.count >= most - 1);
        CHECK(has(m.items[1].text, marker));
        CHECK(rlm_str_starts(m.items[m.count - 1].text, "(8)\n"));
        CHECK((int)project(0, true).count <= most);
    }
    flow.limits.max_messages = 20;
    CHECK_INT(project(0, false).count, 20);
    CHECK(!has(project(0, false).items[1].text, marker));
}

TEST(a_cap_and_dropped_turns_leave_one_marker)
{
    begin("TASK");
    for (int i = 0; i < 5; i++) {
        turn("next(it)", (char[]){(char)('a' + i), 0});
    }
    flow.limits.max_messages = 6;
    struct rlm_messages m = project(4, false);
    CHECK_INT(m.turns_shown, 1);
    rlm_str text = m.items[1].text;
    const char *first = memmem(text.ptr, text.len, marker, strlen(marker));
    CHECK(first && !has((rlm_str){first + 1, text.len - (size_t)(first + 1 - text.ptr)}, marker));
}

TEST(a_cap_does_not_drop_a_follow_up)
{
    begin("TASK");
    turn("print(1)", "1");
    struct rlm_node done = {
        .type = RLM_DONE_OUTPUT, .result = RLM_STR("one"), .reason = RLM_STR("answered")};
    CHECK(rlm_graph_append(agent.graph, &done, NULL, NULL) == 0);
    append(RLM_USER_QUERY, "AND THEN?", "");
    for (int i = 0; i < 4; i++) {
        turn("print(2)", "2");
    }
    flow.limits.max_messages = 4;
    struct rlm_messages m = project(0, false);
    CHECK_INT(m.count, 4);
    CHECK(has(m.items[1].text, "AND THEN?"));
}

TEST(the_last_turn_is_said_behind_the_last_message)
{
    begin("TASK");
    turn("print(1)", "1");
    struct rlm_messages m = project(0, true);
    CHECK_INT(m.count, 4);
    size_t note = strlen(rlm_prompt_final);
    rlm_str last = m.items[3].text;
    CHECK_STR(((rlm_str){last.ptr + last.len - note, note}), rlm_prompt_final);
    CHECK(!has(project(0, false).items[3].text, rlm_prompt_final));
}

TEST(caches_may_end_behind_the_system_prompt_and_the_two_newest_of_the_user)
{
    begin("TASK");
    struct rlm_messages m = project(0, false);
    CHECK(m.items[0].cache && m.items[1].cache);
    turn("print(1)", "1");
    turn("print(2)", "2");
    turn("print(3)", "3");
    m = project(0, false);
    CHECK_INT(m.count, 8);
    for (size_t i = 0; i < m.count; i++) {
        CHECK_INT(m.items[i].cache, i == 0 || i == 5 || i == 7);
    }
}
