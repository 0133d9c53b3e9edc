/* Big values between the engine and child processes: mapped, as blobs, as large messages. */
#include "real_worker.h"

static long rss_anon_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "RssAnon: %ld", &kib) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return kib;
}

enum { BIG = 64 << 20 };

static void map_input(const char *prefix, const char *count_code, const char *expected)
{
    begin();
    char *value = malloc(BIG);
    memset(value, 'a', BIG);
    memcpy(value, prefix, strlen(prefix));
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(t.blobs, RLM_BLOB_TEXT, (rlm_str){value, BIG}, &blob, NULL), 0);
    free(value);
    const char *ids[] = {blob->id, NULL};
    char inputs[200];
    snprintf(inputs, sizeof inputs, "{\"big\":{\"$blob\":\"%s\"}}", blob->id);
    t.input_blobs = ids;
    t.inputs = rlm_str_of(inputs);
    make_runtime();
    open_session();
    long before = rss_anon_kib(t.pid);
    CHECK(before > 0);
    CHECK_TEXT(run(count_code), expected);
    long grown = rss_anon_kib(t.pid) - before;
    if (grown > 4096) {
        harness_fail(__FILE__, __LINE__, "RssAnon grew by %ld KiB", grown);
    }
    /* It goes back to the host by name. */
    start("await llm_query(INPUTS['big'])");
    const char *told = wait_for("suspended");
    CHECK_CONTAINS(told, "{\"$blob\":\"");
    CHECK_CONTAINS(told, blob->id);
    end();
}

TEST(subprocess_maps_a_big_input)
{
    map_input("xyz", "b = INPUTS['big']; print(type(b) is str, len(b), b.count('a'), b[:4])",
              "finished ok: True 67108864 67108861 xyza\n|");
}

TEST(subprocess_maps_a_big_wide_input)
{
    map_input("\xe2\x82\xac", "b = INPUTS['big']; print(type(b) is str, len(b), ascii(b[:2]))",
              "finished ok: True 67108862 '\\u20aca'\n|");
}

TEST(subprocess_takes_slices_as_blobs)
{
    begin_session();
    start("import asyncio\n"
          "text = 'ab\\u20ac' * 1000000\n"
          "r = await asyncio.gather(*[llm_query(text[i << 20:(i + 1) << 20]) for i in range(2)])\n"
          "print(r[0] == text[:1 << 20], r[1] is r[0])");
    const char *told = wait_for("suspended");
    CHECK_CONTAINS(told, "1 llm_query [{\"$blob\":\"");
    CHECK_CONTAINS(told, "2 llm_query [{\"$blob\":\"");
    char id[RLM_SHA256_HEX + 1] = {0};
    strncpy(id, strstr(told, "$blob") + 8, RLM_SHA256_HEX);
    const struct rlm_blob *blob = rlm_blobs_find(t.blobs, rlm_str_of(id));
    CHECK(blob != NULL);
    CHECK_INT(blob->chars, 1 << 20);
    /* And down again, the same for both. */
    char value[120];
    snprintf(value, sizeof value, "{\"$blob\":\"%s\"}", id);
    give(1, value);
    give(2, value);
    CHECK_CONTAINS(wait_for("finished"), "finished ok: True True\n|");
    end();
}

TEST(subprocess_queues_descriptors_for_a_worker_that_does_not_read)
{
    begin_session();
    start("import asyncio\n"
          "r = await asyncio.gather(*[llm_query(i) for i in range(3)])\n"
          "print(*map(len, r), r[1][-3:], r[2][-3:])");
    wait_for("suspended");
    char id[2][RLM_SHA256_HEX + 1], value[160];
    for (int i = 0; i < 2; i++) {
        char content[100000];
        memset(content, 'a' + i, sizeof content);
        const struct rlm_blob *blob;
        CHECK_INT(
            rlm_blobs_put(t.blobs, RLM_BLOB_TEXT, (rlm_str){content, sizeof content}, &blob, NULL),
            0);
        strcpy(id[i], blob->id);
    }
    /* The first result fills the way in, so that what follows has to wait in the queue. */
    CHECK_INT(kill(t.pid, SIGSTOP), 0);
    char *big = malloc(400003);
    memset(big, 'x', 400002);
    big[0] = big[400001] = '"';
    big[400002] = '\0';
    give(1, big);
    free(big);
    for (int i = 0; i < 2; i++) {
        snprintf(value, sizeof value, "{\"$blob\":\"%s\"}", id[i]);
        give(2 + i, value);
    }
    int waiting = count_descriptors();
    CHECK_INT(kill(t.pid, SIGCONT), 0);
    CHECK_CONTAINS(wait_for("finished"), "finished ok: 400000 100000 100000 aaa bbb\n|");
    CHECK(count_descriptors() < waiting);
    end();
}

TEST(subprocess_carries_large_messages_both_ways)
{
    begin_session();
    start("r = ask(['x' * 1000] * 2000)\nprint(len(r), r[-1])");
    const char *told = wait_for("suspended");
    CHECK(strlen(told) > 2000000);
    rlm_auto_buf struct rlm_buf value = RLM_BUF(8 << 20);
    rlm_buf_addc(&value, '[');
    for (int i = 0; i < 500000; i++) {
        rlm_buf_addf(&value, "%d,", i);
    }
    rlm_buf_adds(&value, "\"last\"]");
    give(1, value.ptr);
    CHECK_TEXT(wait_for("finished"), "finished ok: 500001 last\n|");
    /* Code that is larger than a frame, stopped before the worker can have read it all. */
    rlm_auto_buf struct rlm_buf code = RLM_BUF(8 << 20);
    rlm_buf_adds(&code, "print('begun')\nwhile True: pass\n");
    for (int i = 0; i < 100000; i++) {
        rlm_buf_adds(&code, "# a line of no consequence\n");
    }
    start(code.ptr);
    rlm_session_interrupt(t.session, "stop", RLM_STR("enough"), 20000);
    CHECK_CONTAINS(wait_for("finished"), "finished CellInterrupted: ");
    CHECK_TEXT(run("print(len(r))"), "finished ok: 500001\n|");
    end();
}
