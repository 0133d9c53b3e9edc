/* Runs as things, by the C API: at a glance, removed, packed and unpacked, and hostile ones of each. */
#include "graph/record.h"

#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path_of(const char *name)
{
    static char paths[8][320];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", harness_directory(), name);
    return path;
}

static rlm_journal *make_run(const char *name, bool large)
{
    rlm_journal *j = NULL;
    rlm_graph *g = NULL;
    struct rlm_graph_options options = {.query = RLM_STR("what?")};
    static char big[RLM_BLOB_THRESHOLD + 10];
    memset(big, 'b', sizeof big);
    CHECK_INT(rlm_journal_create(NULL, path_of(name), NULL, &j, NULL), 0);
    CHECK_INT(rlm_graph_new(&options, &g, NULL), 0);
    CHECK_INT(rlm_record_run(j, g, RLM_STR("{}"), NULL), 0);
    struct rlm_node node = {.type = RLM_LLM_OUTPUT,
                            .content = large ? (rlm_str){big, sizeof big} : RLM_STR("hm"),
                            .usage = {.calls = 1, .input_tokens = 5, .cost_nano = 7}};
    const struct rlm_node *kept;
    CHECK_INT(rlm_graph_append(g, &node, &kept, NULL), 0);
    CHECK_INT(rlm_record_node(j, g, kept, NULL), 0);
    rlm_graph_free(g);
    return j;
}

static struct rlm_run_glance look(const char *name)
{
    struct rlm_run_glance g = RLM_RUN_GLANCE_INIT;
    CHECK_INT(rlm_run_glance(path_of(name), &g, NULL), 0);
    return g;
}

static size_t count_entries(void)
{
    size_t n = 0;
    DIR *dir = opendir(harness_directory());
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        n += entry->d_name[0] != '.';
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

TEST(a_glance_sums_what_all_records_say)
{
    rlm_journal *j = make_run("a.rlm", false);
    struct rlm_run_glance g = look("a.rlm");
    CHECK_INT(g.state, RLM_RUN_RUNNING); /* this process holds it */
    rlm_run_glance_deinit(&g);
    CHECK_INT(rlm_run_remove(path_of("a.rlm"), NULL), RLM_E_BUSY);
    rlm_journal_close(j);
    g = look("a.rlm");
    CHECK_INT(g.state, RLM_RUN_UNFINISHED);
    CHECK_TEXT(g.query, "what?");
    CHECK_TEXT(g.reason, "");
    CHECK_INT(g.usage.input_tokens, 5);
    CHECK_INT(g.usage.cost_nano, 7);
    CHECK_INT(g.agents, 1);
    rlm_run_glance_deinit(&g);
}

TEST(the_last_record_has_all_sums_of_a_run_that_ended)
{
    rlm_journal *j = make_run("a.rlm", false);
    rlm_str end =
        RLM_STR("{\"reason\":\"budget\",\"agents\":9,\"usage\":{\"calls\":3,\"cost_nano\":70}}");
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_RUN_ENDED, end, NULL), 0);
    rlm_journal_close(j);
    struct rlm_run_glance g = look("a.rlm");
    CHECK_INT(g.state, RLM_RUN_ENDED);
    CHECK_TEXT(g.reason, "budget");
    CHECK_INT(g.agents, 9);
    CHECK_INT(g.usage.calls, 3);
    CHECK_INT(g.usage.cost_nano, 70);
    rlm_run_glance_deinit(&g);
    CHECK_INT(rlm_run_remove(path_of("a.rlm"), NULL), 0);
    CHECK_INT(rlm_run_remove(path_of("a.rlm"), NULL), RLM_E_NOT_FOUND);
    CHECK_INT(count_entries(), 0);
}

TEST(a_pack_gives_the_same_run)
{
    rlm_journal_close(make_run("a.rlm", true));
    CHECK_INT(rlm_run_pack(path_of("a.rlm"), path_of("p"), NULL), 0);
    CHECK_INT(rlm_run_pack(path_of("a.rlm"), path_of("p"), NULL), RLM_E_EXISTS);
    CHECK_INT(rlm_run_unpack(path_of("p"), path_of("b.rlm"), NULL), 0);
    CHECK_INT(rlm_run_unpack(path_of("p"), path_of("b.rlm"), NULL), RLM_E_EXISTS);
    rlm_graph *g = NULL;
    char *note = NULL;
    CHECK_INT(rlm_graph_load(path_of("b.rlm"), &g, &note, NULL), 0);
    CHECK(!note);
    CHECK_INT(rlm_graph_node(g, 0)->content.len, RLM_BLOB_THRESHOLD + 10);
    rlm_graph_free(g);
    CHECK_INT(count_entries(), 3);
}

static unsigned random_below(unsigned limit)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state % limit);
}

static size_t read_all(const char *path, char *to, size_t max)
{
    FILE *file = fopen(path, "rb");
    CHECK(file);
    size_t n = fread(to, 1, max, file);
    fclose(file);
    return n;
}

static void write_all(const char *path, const char *from, size_t n)
{
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(from, 1, n, file) == n);
    fclose(file);
}

/* One to three bytes, or a piece, or the length. */
static size_t mutate(char *bytes, size_t len)
{
    unsigned how = random_below(8);
    if (how == 0) {
        return random_below((unsigned)len);
    }
    if (how == 1) {
        size_t a = random_below((unsigned)len), b = random_below((unsigned)len);
        size_t n = random_below(600);
        n = a + n > len ? len - a : n;
        n = b + n > len ? len - b : n;
        memmove(bytes + a, bytes + b, n);
        return len;
    }
    for (unsigned i = 0; i < how; i++) {
        bytes[random_below(how % 2 ? 1536 : (unsigned)len)] = (char)random_below(256);
    }
    return len;
}

TEST(a_changed_pack_is_refused_or_gives_a_run_with_the_blobs_it_names)
{
    static char good[256 * 1024], bad[256 * 1024];
    rlm_journal_close(make_run("a.rlm", true));
    CHECK_INT(rlm_run_pack(path_of("a.rlm"), path_of("p"), NULL), 0);
    size_t len = read_all(path_of("p"), good, sizeof good);
    int taken = 0, refused = 0;
    for (int i = 0; i < 400; i++) {
        memcpy(bad, good, len);
        write_all(path_of("m"), bad, mutate(bad, len));
        int r = rlm_run_unpack(path_of("m"), path_of("out.rlm"), NULL);
        if (r == 0) {
            struct rlm_run_glance g = look("out.rlm");
            taken++;
            rlm_run_glance_deinit(&g);
            CHECK_INT(rlm_run_remove(path_of("out.rlm"), NULL), 0);
        } else {
            CHECK(r == RLM_E_PARSE || r == RLM_E_CORRUPT || r == RLM_E_VERSION);
            refused++;
        }
        CHECK_INT(count_entries(), 3);
    }
    CHECK(taken > 0 && refused > 100);
}

TEST(a_glance_at_a_changed_journal_never_fails)
{
    static char good[64 * 1024], bad[64 * 1024];
    rlm_journal *j = make_run("a.rlm", false);
    rlm_str end = RLM_STR("{\"reason\":\"answered\",\"agents\":1,\"usage\":{\"calls\":1}}");
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_RUN_ENDED, end, NULL), 0);
    rlm_journal_close(j);
    size_t len = read_all(path_of("a.rlm/journal"), good, sizeof good);
    int damaged = 0;
    for (int i = 0; i < 600; i++) {
        memcpy(bad, good, len);
        size_t n = i < (int)len ? (size_t)i : len;
        if (n == len) {
            bad[random_below((unsigned)len)] ^= (char)(1 + random_below(255));
        }
        write_all(path_of("a.rlm/journal"), bad, n);
        struct rlm_run_glance g = look("a.rlm");
        CHECK(g.query && g.reason && (g.state == RLM_RUN_DAMAGED) == (g.problem != NULL));
        damaged += g.state == RLM_RUN_DAMAGED;
        rlm_run_glance_deinit(&g);
    }
    CHECK(damaged > 10 && damaged < 600);
}

TEST(what_is_no_run_is_not_removed)
{
    CHECK_INT(mkdir(path_of("d"), 0700), 0);
    write_all(path_of("d/file"), "x", 1);
    CHECK_INT(rlm_run_remove(path_of("d"), NULL), RLM_E_PARSE);
    write_all(path_of("d/journal"), "dear diary", 10);
    CHECK_INT(rlm_run_remove(path_of("d"), NULL), RLM_E_PARSE);
    CHECK_INT(access(path_of("d/journal"), F_OK), 0);
    CHECK_INT(access(path_of("d/file"), F_OK), 0);
    CHECK_INT(symlink("d", path_of("l")), 0);
    CHECK_INT(rlm_run_remove(path_of("l"), NULL), RLM_E_INVAL);
    CHECK_INT(rlm_run_remove(path_of("d/file"), NULL), RLM_E_PARSE);
}
