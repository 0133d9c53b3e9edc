/* What is cut, what is refused, and what is found behind damage. */
#include "run_files.h"

#include "graph/journal_scan.h"

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
