/* Runs are made, opened, locked and appended to. */
#include "run_files.h"

#include <sys/stat.h>
#include <sys/wait.h>

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

TEST(a_path_that_names_another_file_is_noticed)
{
    char moved[300];
    rlm_autoerr rlm_error *err = NULL;
    snprintf(moved, sizeof moved, "%s.moved", file_path());
    rlm_journal *j = create(NULL, false);
    append(j, "x");
    CHECK_INT(rlm_journal_check_place(j, NULL), 0);
    CHECK_INT(rename(file_path(), moved), 0);
    CHECK_INT(rlm_journal_check_place(j, &err), RLM_E_NOT_FOUND);
    CHECK(strstr(rlm_error_message(err), "removed"));
    int fd = open(file_path(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
    CHECK_INT(rlm_journal_check_place(j, NULL), RLM_E_NOT_FOUND);
    CHECK_INT(rename(moved, file_path()), 0);
    CHECK_INT(rlm_journal_check_place(j, NULL), 0);
    rlm_journal_close(j);
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
    char holder[400];
    snprintf(holder, sizeof holder, "%s is in use: process %ld writes it", run_path(),
             (long)getpid());
    CHECK_CONTAINS(rlm_error_message(err), holder);
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
