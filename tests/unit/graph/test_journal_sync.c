/* What is on disk: after a flush, when the disk is full, after kill -9. */
#include "run_files.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- a disk that is full --------------------------------------------------------------------- */

TEST(a_full_disk_ends_the_journal_at_its_last_whole_record)
{
    char text[301];
    rlm_journal *j = create(NULL, false);
    rlm_error *err = NULL, *again = NULL;
    memset(text, 'x', 300);
    text[300] = '\0';
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {1000, RLIM_INFINITY};
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 3; i++) {
        append(j, text);
    }
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_NODE, rlm_str_of(text), &err), RLM_E_IO);
    CHECK_CONTAINS(rlm_error_message(err), run_path());
    CHECK_CONTAINS(rlm_error_message(err), "byte 935");
    CHECK_CONTAINS(rlm_error_message(err), "free space");
    CHECK_CONTAINS(rlm_error_message(err), strerror(EFBIG));
    CHECK_INT(rlm_error_errno(err), EFBIG);
    struct stat st;
    CHECK_INT(stat(file_path(), &st), 0);
    CHECK_INT(st.st_size, 8 + 3 * 309);
    /* for good, also when there is room again */
    limit.rlim_cur = RLIM_INFINITY;
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_NODE, RLM_STR("y"), &again), RLM_E_IO);
    CHECK_TEXT(rlm_error_message(again), rlm_error_message(err));
    rlm_error_free(err);
    rlm_error_free(again);
    rlm_journal_close(j);
    CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, false, &j, NULL, NULL), 0);
    CHECK_INT(rlm_journal_records(j), 3);
    append(j, "y");
    rlm_journal_close(j);
}

/* ---- flushing -------------------------------------------------------------------------------- */

struct flush {
    int count, result;
    rlm_journal *close; /* inside the callback */
    rlm_loop *stop;
};

static void flushed(void *arg, int result)
{
    struct flush *f = arg;
    f->count++;
    f->result = result;
    if (f->close) {
        rlm_journal_close(f->close);
    }
    if (f->stop) {
        rlm_loop_stop(f->stop);
    }
}

static void check_flush(bool sync)
{
    rlm_loop *loop;
    struct flush f[3] = {0};
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    rlm_journal *j = create(loop, sync);
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(rlm_journal_blobs(j), RLM_BLOB_TEXT, RLM_STR("v"), &blob, NULL), 0);
    append(j, "one");
    CHECK_INT(rlm_journal_flush(j, flushed, &f[0], NULL), 0);
    append(j, "two");
    CHECK_INT(rlm_journal_flush(j, flushed, &f[1], NULL), 0);
    CHECK_INT(f[0].count, 0); /* never inside its own start */
    f[1].stop = loop;
    rlm_loop_run(loop);
    CHECK_INT(f[0].count, 1);
    CHECK_INT(f[1].count, 1);
    CHECK_INT(f[1].result, 0);
    if (sync) {
        CHECK(rlm_blobs_sync_begin(rlm_journal_blobs(j)) == NULL); /* it was synced before */
    }
    f[2].stop = loop; /* with nothing to do it completes all the same */
    CHECK_INT(rlm_journal_flush(j, flushed, &f[2], NULL), 0);
    CHECK_INT(f[2].count, 0);
    rlm_loop_run(loop);
    CHECK_INT(f[2].count, 1);
    rlm_journal_close(j);
    rlm_loop_free(loop);
}

TEST(a_flush_completes_on_the_loop)
{
    check_flush(false);
}

TEST(a_flush_with_sync_waits_for_the_disk)
{
    check_flush(true);
}

TEST(closing_waits_for_the_pool_and_answers_flushes)
{
    rlm_loop *loop;
    struct flush f = {0};
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    rlm_journal *j = create(loop, true);
    append(j, "one");
    CHECK_INT(rlm_journal_flush(j, flushed, &f, NULL), 0);
    append(j, "two");
    rlm_journal_close(j);
    CHECK_INT(f.count, 1);
    CHECK_INT(f.result, 0);
    rlm_loop_run(loop);
    CHECK_INT(f.count, 1);
    rlm_loop_free(loop);
    check_read("3@8:one;3@20:two;");
}

TEST(a_callback_may_close_the_journal)
{
    rlm_loop *loop;
    struct flush f[2] = {0};
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    rlm_journal *j = create(loop, true);
    append(j, "one");
    f[0].close = j;
    CHECK_INT(rlm_journal_flush(j, flushed, &f[0], NULL), 0);
    CHECK_INT(rlm_journal_flush(j, flushed, &f[1], NULL), 0);
    rlm_loop_run(loop);
    CHECK_INT(f[0].count, 1);
    CHECK_INT(f[1].count, 1);
    rlm_loop_free(loop);
}

TEST(an_append_is_synced_without_being_asked)
{
    rlm_loop *loop;
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    rlm_journal *j = create(loop, false);
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(rlm_journal_blobs(j), RLM_BLOB_TEXT, RLM_STR("v"), &blob, NULL), 0);
    append(j, "one");
    rlm_loop_run(loop); /* the timer, then the pool, then nothing is left */
    CHECK(rlm_blobs_sync_begin(rlm_journal_blobs(j)) == NULL);
    rlm_journal_close(j);
    rlm_loop_free(loop);
}

TEST(a_sync_that_fails_ends_the_journal)
{
    rlm_loop *loop;
    struct flush f = {0};
    rlm_error *err = NULL;
    char path[400];
    CHECK_INT(rlm_loop_new(&loop, NULL), 0);
    rlm_journal *j = create(loop, true);
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(rlm_journal_blobs(j), RLM_BLOB_TEXT, RLM_STR("v"), &blob, NULL), 0);
    snprintf(path, sizeof path, "%s/blobs/%s", run_path(), blob->id);
    CHECK_INT(unlink(path), 0);
    append(j, "one");
    CHECK_INT(rlm_journal_flush(j, flushed, &f, NULL), 0);
    rlm_loop_run(loop);
    CHECK_INT(f.count, 1);
    CHECK_INT(f.result, RLM_E_IO);
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_NODE, RLM_STR("x"), &err), RLM_E_IO);
    CHECK_CONTAINS(rlm_error_message(err), blob->id);
    CHECK_INT(rlm_journal_flush(j, flushed, &f, NULL), RLM_E_IO);
    rlm_error_free(err);
    rlm_journal_close(j);
    rlm_loop_free(loop);
}

/* ---- kill -9 --------------------------------------------------------------------------------- */

struct numbers {
    uint32_t next;
    rlm_blobs *blobs;
};

/* Record n is "n ID" (or "n -") and n % 997 spaces. */
static int
check_number(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct numbers *numbers = arg;
    unsigned n = 0;
    char id[80] = "";
    CHECK(sscanf(payload.ptr, "%u %64s", &n, id) >= 1);
    CHECK_INT(n, numbers->next);
    if (numbers->blobs && id[0] != '-') {
        rlm_auto_buf struct rlm_buf out = RLM_BUF(1000);
        CHECK_INT(rlm_blobs_read(numbers->blobs, rlm_str_of(id), &out, NULL), 0);
        char hash[65];
        CHECK_INT(rlm_sha256_of(rlm_buf_str(&out), hash), 0);
        CHECK_TEXT(hash, id);
    }
    numbers->next++;
    return 0;
}

/* Appends until it is killed, telling through the pipe what it has written. */
static void write_numbers(uint32_t from, uint32_t limit, int tell, bool reopen)
{
    rlm_journal *j;
    int r = reopen ? rlm_journal_open(NULL, run_path(), NULL, false, &j, NULL, NULL)
                   : rlm_journal_create(NULL, run_path(), NULL, &j, NULL);
    CHECK_INT(r, 0);
    static char text[2000];
    for (uint32_t n = from; n < limit; n++) {
        const struct rlm_blob *blob = NULL;
        if (n % 5 == 0) {
            int len = snprintf(text, sizeof text, "blob of %u", n);
            CHECK_INT(rlm_blobs_put(rlm_journal_blobs(j), RLM_BLOB_TEXT,
                                    (rlm_str){text, (size_t)len}, &blob, NULL),
                      0);
        }
        int len =
            snprintf(text, sizeof text, "%u %s %*s", n, blob ? blob->id : "-", (int)(n % 997), "");
        CHECK_INT(rlm_journal_append(j, RLM_RECORD_NODE, (rlm_str){text, (size_t)len}, NULL), 0);
        CHECK_INT(write(tell, &n, sizeof n), sizeof n);
    }
    pause();
}

TEST(a_kill_loses_nothing_that_was_written)
{
    uint32_t known = 0;
    for (unsigned round = 0; round < 25; round++) {
        int pipes[2];
        CHECK_INT(pipe(pipes), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(pipes[0]);
            write_numbers(known, UINT32_MAX, pipes[1], round > 0);
        }
        close(pipes[1]);
        uint32_t told = 0, n, wanted = known + 1 + round * 37 % 200;
        while (read(pipes[0], &n, sizeof n) == sizeof n) {
            told = n + 1;
            if (told >= wanted) {
                /* some way into what comes next */
                for (volatile unsigned spin = 0; spin < round * 3000; spin++) {
                }
                kill(pid, SIGKILL);
            }
        }
        close(pipes[0]);
        waitpid(pid, NULL, 0);
        char blobs[300];
        struct numbers numbers = {0};
        struct rlm_journal_damage damage;
        snprintf(blobs, sizeof blobs, "%s/blobs", run_path());
        CHECK_INT(rlm_blobs_open_to_view(blobs, &numbers.blobs, NULL), 0);
        CHECK_INT(rlm_journal_read(run_path(), check_number, &numbers, &damage, NULL), 0);
        CHECK_INT(damage.valid_after, 0);
        CHECK(numbers.next >= told);
        known = numbers.next;
        rlm_blobs_free(numbers.blobs);
    }
}

TEST(a_record_under_way_is_no_damage)
{
    rlm_journal *j = create(NULL, false);
    append(j, "one");
    int fd = open(file_path(), O_WRONLY | O_APPEND);
    CHECK_INT(write(fd, "\x03\0\0\0half", 8), 8);
    close(fd);
    CHECK_INT(check_read("3@8:one;").offset, -1);
    append(j, "two"); /* stands where it was */
    CHECK_INT(check_read("3@8:one;3@20:two;").offset, -1);
    rlm_journal_close(j);
    CHECK_INT(truncate(file_path(), 31), 0);
    CHECK_INT(check_read("3@8:one;").offset, 20);
}

TEST(a_run_is_read_while_it_is_written)
{
    int pipes[2];
    uint32_t n, last = 0;
    CHECK_INT(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(pipes[0]);
        write_numbers(0, 20000, pipes[1], false);
    }
    close(pipes[1]);
    CHECK_INT(read(pipes[0], &n, sizeof n), sizeof n);
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 100; i++) {
        struct numbers numbers = {0};
        struct rlm_journal_damage damage;
        while (read(pipes[0], &n, sizeof n) == sizeof n) {
            last = n + 1;
        }
        CHECK_INT(rlm_journal_read(run_path(), check_number, &numbers, &damage, NULL), 0);
        CHECK_INT(damage.offset, -1);
        CHECK(numbers.next >= last);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
