#include "graph/journal.h"

#include "base/vec.h"
#include "graph/journal_scan.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *run_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/a.rlm", harness_directory());
    return path;
}

static const char *file_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/a.rlm/journal", harness_directory());
    return path;
}

static rlm_journal *create(rlm_loop *loop, bool sync)
{
    rlm_journal *j = NULL;
    CHECK_INT(rlm_journal_create(loop, run_path(), &(struct rlm_journal_options){sync}, &j, NULL),
              0);
    return j;
}

static void append(rlm_journal *j, const char *text)
{
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_NODE, rlm_str_of(text), NULL), 0);
}

/* What a reading gives, as text: "kind@offset:payload;". */
static int
collect(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct rlm_buf *out = arg;
    rlm_buf_addf(out, "%d@%lld:", (int)kind, (long long)offset);
    rlm_buf_add_str(out, payload);
    rlm_buf_addc(out, ';');
    return 0;
}

static struct rlm_journal_damage check_read(const char *expected)
{
    struct rlm_journal_damage damage = {0};
    rlm_auto_buf struct rlm_buf out = RLM_BUF(1 << 20);
    CHECK_INT(rlm_journal_read(run_path(), collect, &out, &damage, NULL), 0);
    CHECK_STR(rlm_buf_str(&out), expected);
    return damage;
}

/* Three records of 12 bytes, at 8, 20 and 32, to 44. */
static void make_three(void)
{
    rlm_journal *j = create(NULL, false);
    append(j, "one");
    append(j, "two");
    append(j, "six");
    rlm_journal_close(j);
}

static void change_byte(off_t offset, unsigned char flip)
{
    unsigned char byte;
    int fd = open(file_path(), O_RDWR);
    CHECK_INT(pread(fd, &byte, 1, offset), 1);
    byte ^= flip;
    CHECK_INT(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

TEST(records_come_back_in_order)
{
    rlm_journal *j = create(NULL, false);
    CHECK_TEXT(rlm_journal_path(j), run_path());
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_RUN, (rlm_str){"a\0b", 3}, NULL), 0);
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_EDIT, RLM_STR(""), NULL), 0);
    CHECK_INT(rlm_journal_records(j), 2);
    CHECK_INT(rlm_journal_disk_bytes(j), 8 + 12 + 9);
    rlm_auto_buf struct rlm_buf out = RLM_BUF(1000);
    struct rlm_journal_damage damage;
    CHECK_INT(rlm_journal_read(run_path(), collect, &out, &damage, NULL), 0);
    CHECK_INT(out.len, 15);
    CHECK(memcmp(out.ptr, "1@8:a\0b;16@20:;", 15) == 0);
    CHECK_INT(damage.offset, -1);
    CHECK_INT(damage.lost_bytes, 0);
    CHECK_INT(damage.valid_after, 0);
    rlm_journal_close(j);
    struct stat st;
    CHECK_INT(stat(run_path(), &st), 0);
    CHECK_INT(st.st_mode & 0777, 0700);
    CHECK_INT(stat(file_path(), &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
}

TEST(appending_goes_on_where_it_was)
{
    rlm_journal *j;
    struct rlm_journal_damage damage = {0};
    make_three();
    CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, false, &j, &damage, NULL), 0);
    CHECK_INT(damage.offset, -1);
    CHECK_INT(rlm_journal_records(j), 3);
    append(j, "more");
    rlm_journal_close(j);
    damage = check_read("3@8:one;3@20:two;3@32:six;3@44:more;");
    CHECK_INT(damage.offset, -1);
}

TEST(what_cannot_be_appended_harms_nothing)
{
    rlm_journal *j = create(NULL, false);
    static char large[RLM_RECORD_MAX_BYTES + 1];
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_NODE, (rlm_str){large, sizeof large}, NULL),
              RLM_E_LIMIT);
    CHECK_INT(rlm_journal_append(j, 0, RLM_STR("x"), NULL), RLM_E_INVAL);
    CHECK_INT(
        rlm_journal_append(j, (enum rlm_record_kind)RLM_RECORD_KIND_LIMIT, RLM_STR("x"), NULL),
        RLM_E_INVAL);
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_NODE, (rlm_str){large, sizeof large - 1}, NULL), 0);
    append(j, "x");
    CHECK_INT(rlm_journal_records(j), 2);
    rlm_journal_close(j);
}

static void check_no_run(int code, const char *part)
{
    rlm_error *err = NULL;
    rlm_journal *j = NULL;
    CHECK_INT(rlm_journal_read(run_path(), collect, NULL, NULL, &err), code);
    CHECK_CONTAINS(rlm_error_message(err), part);
    CHECK_CONTAINS(rlm_error_message(err), run_path());
    rlm_error_free(err);
    err = NULL;
    CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, true, &j, NULL, &err), code);
    CHECK_CONTAINS(rlm_error_message(err), part);
    CHECK_CONTAINS(rlm_error_message(err), run_path());
    rlm_error_free(err);
    CHECK(j == NULL);
}

static void write_journal(const void *bytes, size_t len)
{
    int fd = open(file_path(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
}

TEST(what_is_no_run_is_named)
{
    rlm_journal *j = NULL;
    rlm_error *err = NULL;
    check_no_run(RLM_E_NOT_FOUND, "there is no run");
    int fd = open(run_path(), O_WRONLY | O_CREAT, 0600);
    close(fd);
    check_no_run(RLM_E_PARSE, "is not a run");
    CHECK_INT(rlm_journal_create(NULL, run_path(), NULL, &j, &err), RLM_E_EXISTS);
    CHECK_CONTAINS(rlm_error_message(err), run_path());
    rlm_error_free(err);
    unlink(run_path());
    CHECK_INT(mkdir(run_path(), 0700), 0);
    check_no_run(RLM_E_PARSE, "no journal in it");
    write_journal("", 0);
    check_no_run(RLM_E_PARSE, "is empty");
    write_journal("rlmfl", 5);
    check_no_run(RLM_E_PARSE, "ends after 5 bytes");
    write_journal("SQLite format 3", 15);
    check_no_run(RLM_E_PARSE, "not the journal of a run");
    write_journal("rlmflow\x02"
                  "and more",
                  16);
    check_no_run(RLM_E_VERSION, "version 2");
    unlink(file_path());
    CHECK_INT(mkfifo(file_path(), 0600), 0);
    check_no_run(RLM_E_PARSE, "not a file");
}

TEST(a_new_run_without_records_is_a_run)
{
    rlm_journal *j = create(NULL, false);
    rlm_journal_close(j);
    CHECK_INT(check_read("").offset, -1);
}

TEST(one_process_writes)
{
    rlm_journal *j = create(NULL, false), *second = NULL;
    rlm_error *err = NULL;
    append(j, "one");
    CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, false, &second, NULL, &err), RLM_E_BUSY);
    CHECK_CONTAINS(rlm_error_message(err), run_path());
    rlm_error_free(err);
    check_read("3@8:one;");
    rlm_journal_close(j);
    CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, false, &second, NULL, NULL), 0);
    rlm_journal_close(second);
}

TEST(a_program_that_was_started_holds_no_lock)
{
    rlm_journal *j = create(NULL, false);
    int gate[2];
    CHECK_INT(pipe(gate), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(gate[0], 0);
        close(gate[1]);
        execlp("cat", "cat", (char *)NULL);
        _exit(127);
    }
    close(gate[0]);
    rlm_journal_close(j);
    int r = RLM_E_BUSY; /* until the child has come to its exec */
    for (int i = 0; i < 100 && r == RLM_E_BUSY; i++, usleep(20 * 1000)) {
        r = rlm_journal_open(NULL, run_path(), NULL, false, &j, NULL, NULL);
    }
    CHECK_INT(r, 0);
    rlm_journal_close(j);
    close(gate[1]);
    waitpid(pid, NULL, 0);
}

TEST(a_torn_tail_is_cut_wherever_it_is_torn)
{
    for (off_t size = 33; size < 44; size++) {
        rlm_journal *j;
        struct rlm_journal_damage damage;
        make_three();
        CHECK_INT(truncate(file_path(), size), 0);
        damage = check_read("3@8:one;3@20:two;");
        CHECK_INT(damage.offset, 32);
        CHECK_INT(damage.lost_bytes, size - 32);
        CHECK_INT(damage.valid_after, 0);
        damage.offset = 0;
        CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, false, &j, &damage, NULL), 0);
        CHECK_INT(damage.offset, 32);
        append(j, "new");
        rlm_journal_close(j);
        CHECK_INT(check_read("3@8:one;3@20:two;3@32:new;").offset, -1);
        unlink(file_path());
        CHECK_INT(rmdir(strcat(strcpy((char[256]){0}, run_path()), "/blobs")), 0);
        rmdir(run_path());
    }
}

TEST(a_tail_of_zeros_is_torn)
{
    make_three();
    CHECK_INT(truncate(file_path(), 100000), 0);
    struct rlm_journal_damage damage = check_read("3@8:one;3@20:two;3@32:six;");
    CHECK_INT(damage.offset, 44);
    CHECK_INT(damage.valid_after, 0);
}

TEST(damage_in_the_middle_is_not_a_torn_tail)
{
    make_three();
    for (off_t at = 20; at < 32; at++) {
        struct rlm_journal_damage damage;
        rlm_journal *j = NULL;
        rlm_error *err = NULL;
        change_byte(at, 0x55);
        damage = check_read("3@8:one;");
        CHECK_INT(damage.offset, 20);
        CHECK_INT(damage.lost_bytes, 24);
        CHECK_INT(damage.valid_after, 1);
        memset(&damage, 0, sizeof damage);
        CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, false, &j, &damage, &err),
                  RLM_E_CORRUPT);
        CHECK_CONTAINS(rlm_error_message(err), "byte 20");
        CHECK_CONTAINS(rlm_error_message(err), "24 bytes");
        CHECK_INT(damage.offset, 20);
        rlm_error_free(err);
        change_byte(at, 0x55);
        CHECK_INT(check_read("3@8:one;3@20:two;3@32:six;").offset, -1);
    }
    rlm_journal *j;
    change_byte(29, 1);
    CHECK_INT(rlm_journal_open(NULL, run_path(), NULL, true, &j, NULL, NULL), 0);
    append(j, "new");
    rlm_journal_close(j);
    CHECK_INT(check_read("3@8:one;3@20:new;").offset, -1);
}

TEST(a_record_is_valid_in_its_place_only)
{
    unsigned char bytes[12];
    make_three();
    int fd = open(file_path(), O_RDWR);
    CHECK_INT(pread(fd, bytes, 12, 20), 12);
    CHECK_INT(pwrite(fd, bytes, 12, 32), 12);
    close(fd);
    struct rlm_journal_damage damage = check_read("3@8:one;3@20:two;");
    CHECK_INT(damage.offset, 32);
    CHECK_INT(damage.valid_after, 0);
}

static int stop_at_second(
    void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    int *count = arg;
    return ++*count == 2 ? 5 : 0;
}

TEST(a_reader_can_stop)
{
    int count = 0;
    make_three();
    CHECK_INT(rlm_journal_read(run_path(), stop_at_second, &count, NULL, NULL), 5);
    CHECK_INT(count, 2);
}

/* ---- the search behind a bad record ---------------------------------------------------------- */

static void add_record(struct rlm_buf *b, size_t len, char fill)
{
    uint8_t header[RLM_RECORD_HEADER_BYTES];
    char *payload = malloc(len + 1);
    memset(payload, fill, len);
    rlm_record_frame(RLM_RECORD_NODE, (rlm_str){payload, len}, b->len, header);
    rlm_buf_add(b, header, sizeof header);
    rlm_buf_add(b, payload, len);
    free(payload);
}

static struct rlm_journal_scan scan(const struct rlm_buf *b)
{
    struct rlm_journal_scan found;
    CHECK_INT(rlm_journal_scan_bytes(b->ptr, b->len, NULL, NULL, &found, NULL), 0);
    return found;
}

TEST(valid_records_are_found_behind_damage_of_any_length)
{
    struct rlm_buf b = RLM_BUF(200u << 20);
    rlm_buf_add(&b, rlm_journal_magic, sizeof rlm_journal_magic);
    add_record(&b, 10, 'a');
    size_t bad = b.len;
    /* sizes around the tables' and the windows' edges */
    size_t sizes[] = {0,
                      1,
                      255,
                      256,
                      257,
                      4095,
                      4096,
                      4097,
                      RLM_RECORD_MAX_BYTES,
                      65536,
                      RLM_RECORD_MAX_BYTES - 1,
                      12345,
                      12345,
                      RLM_RECORD_MAX_BYTES,
                      RLM_RECORD_MAX_BYTES,
                      3};
    add_record(&b, 70000, 'b');
    size_t count = sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < count; i++) {
        if (i == 5) {
            rlm_buf_adds(&b, "noise between records");
        }
        add_record(&b, sizes[i], (char)('c' + i));
    }
    CHECK_INT(b.status, 0);
    b.ptr[bad + 100] ^= 1;
    struct rlm_journal_scan found = scan(&b);
    CHECK_INT(found.records, 1);
    CHECK_INT(found.end, bad);
    CHECK_INT(found.damage.offset, bad);
    CHECK_INT(found.damage.lost_bytes, b.len - bad);
    CHECK_INT(found.damage.valid_after, count);
    /* from a file, window by window, it is the same */
    FILE *f = tmpfile();
    struct rlm_journal_scan again;
    CHECK_INT(fwrite(b.ptr, 1, b.len, f), b.len);
    fflush(f);
    CHECK_INT(rlm_journal_scan_fd(fileno(f), b.len, NULL, NULL, &again, NULL), 0);
    CHECK(memcmp(&found, &again, sizeof found) == 0);
    /* a file that turns out to be shorter than it was */
    CHECK_INT(rlm_journal_scan_fd(fileno(f), b.len + 1000, NULL, NULL, &again, NULL), 0);
    fclose(f);
    /* one flipped bit more is one record less */
    b.ptr[b.len - 1] ^= 4;
    CHECK_INT(scan(&b).damage.valid_after, count - 1);
    rlm_buf_deinit(&b);
}

TEST(a_hostile_file_costs_no_more_than_its_length)
{
    /* At half of all places stands what could be a record, many of them of 900 KiB: looking at the
     * bytes of each would take hours. */
    enum { SIZE = 8 << 20 };
    char *bytes = malloc(SIZE);
    memcpy(bytes, rlm_journal_magic, 8);
    for (size_t i = 8; i < SIZE; i++) {
        bytes[i] = i % 10 < 5 ? '\0' : '\x0e';
    }
    struct rlm_journal_scan found;
    CHECK_INT(rlm_journal_scan_bytes(bytes, SIZE, NULL, NULL, &found, NULL), 0);
    CHECK_INT(found.damage.offset, 8);
    CHECK_INT(found.damage.valid_after, 0);
    free(bytes);
}

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
