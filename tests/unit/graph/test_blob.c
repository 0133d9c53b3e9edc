#include "blob_files.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void check_put(const char *directory)
{
    rlm_blobs *b = open_store(directory);
    const struct rlm_blob *blob = put(b, RLM_BLOB_TEXT, "h" EURO "llo");
    rlm_auto_buf struct rlm_buf out = RLM_BUF(1000);
    CHECK_TEXT(blob->id, "ab689ee99877717020dbd1831abcfa4852e60423804aa7a78415f2cea5740e16");
    CHECK_INT(blob->type, RLM_BLOB_TEXT);
    CHECK_INT(blob->size_bytes, 7);
    CHECK_INT(blob->chars, 5);
    CHECK_INT(blob->max_char, 0xFFFF);
    CHECK(put(b, RLM_BLOB_TEXT, "h" EURO "llo") == blob);
    CHECK(rlm_blobs_find(b, rlm_str_of(blob->id)) == blob);
    CHECK(rlm_blobs_find(b, RLM_STR("nothing")) == NULL);
    CHECK_INT(rlm_blobs_read(b, rlm_str_of(blob->id), &out, NULL), 0);
    CHECK_STR(rlm_buf_str(&out), "h" EURO "llo");
    CHECK_INT(rlm_blobs_read_range(b, rlm_str_of(blob->id), 5, 100, &out, NULL), 0);
    CHECK_STR(rlm_buf_str(&out), "h" EURO "llolo");
    CHECK_INT(rlm_blobs_read_range(b, rlm_str_of(blob->id), 1000, 1, &out, NULL), 0);
    CHECK_INT(out.len, 9);
    CHECK_INT(rlm_blobs_read(b, RLM_STR("../../../../etc/passwd"), &out, NULL), RLM_E_INVAL);
    char unknown[65];
    memset(unknown, 'a', 64);
    unknown[64] = '\0';
    CHECK_INT(rlm_blobs_read(b, rlm_str_of(unknown), &out, NULL), RLM_E_NOT_FOUND);
    /* a buffer's maximum holds */
    struct rlm_buf small = RLM_BUF(3);
    CHECK_INT(rlm_blobs_read(b, rlm_str_of(blob->id), &small, NULL), RLM_E_LIMIT);
    rlm_buf_deinit(&small);
    rlm_blobs_free(b);
}

TEST(a_value_on_disk_is_kept)
{
    check_put("blobs");
}

TEST(a_value_in_memory_is_kept)
{
    check_put(NULL);
}

TEST(files_are_read_only_and_stored_once)
{
    struct stat st;
    char path[200];
    rlm_blobs *b = open_store("blobs");
    const struct rlm_blob *blob = put(b, RLM_BLOB_BYTES, "value");
    put(b, RLM_BLOB_BYTES, "value");
    snprintf(path, sizeof path, "blobs/%s", blob->id);
    CHECK_INT(stat(file_of(path), &st), 0);
    CHECK_INT(st.st_mode & 07777, 0400);
    CHECK_INT(stat(file_of("blobs"), &st), 0);
    CHECK_INT(st.st_mode & 07777, 0700);
    CHECK_INT(count_files("blobs"), 1);
    CHECK_INT(rlm_blobs_disk_bytes(b), 5);
    /* the same bytes as a text are the same file, known as both */
    const struct rlm_blob *text = put(b, RLM_BLOB_TEXT, "value");
    CHECK_INT(text->type, RLM_BLOB_TEXT);
    CHECK_INT(blob->type, RLM_BLOB_BYTES);
    CHECK_INT(count_files("blobs"), 1);
    CHECK_INT(rlm_blobs_disk_bytes(b), 5);
    rlm_blobs_free(b);
}

TEST(memory_is_sealed)
{
    int fd, width;
    bool ascii;
    rlm_blobs *b = open_store(NULL);
    const struct rlm_blob *texts[] = {put(b, RLM_BLOB_TEXT, "ascii"),
                                      put(b, RLM_BLOB_TEXT, "wide " EURO)};
    for (int i = 0; i < 2; i++) {
        CHECK_INT(rlm_blobs_open_mapped(b, texts[i], &fd, &width, &ascii, NULL), 0);
        CHECK(write(fd, "x", 1) < 0);
        CHECK(mmap(NULL, 5, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
        CHECK_INT(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
        close(fd);
    }
    CHECK_INT(rlm_blobs_disk_bytes(b), 0);
    rlm_blobs_free(b);
}

static void check_mapped(
    rlm_blobs *b, const char *text, int width, bool ascii, const void *expected, size_t len)
{
    int fd, got_width;
    bool got_ascii;
    char bytes[64];
    const struct rlm_blob *blob = put(b, RLM_BLOB_TEXT, text);
    for (int again = 0; again < 2; again++) {
        CHECK_INT(rlm_blobs_open_mapped(b, blob, &fd, &got_width, &got_ascii, NULL), 0);
        CHECK_INT(got_width, width);
        CHECK_INT(got_ascii, ascii);
        CHECK_INT(pread(fd, bytes, sizeof bytes, 0), len);
        CHECK(memcmp(bytes, expected, len) == 0);
        CHECK_INT(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
    }
}

static void check_widths(rlm_blobs *b)
{
    check_mapped(b, "abc", 1, true, "abc", 3);
    check_mapped(b, "caf\xC3\xA9", 1, false, "caf\xE9", 4);
    check_mapped(b, "a" EURO, 2, false, "a\0\xAC\x20", 4);
    check_mapped(b, "\xED\xB2\x80", 2, false, "\x80\xDC", 2);
    check_mapped(b, PACK "a", 4, false, "\xE6\xF4\x01\0a\0\0\0", 8);
}

TEST(texts_are_mapped_in_their_width)
{
    rlm_blobs *b = open_store("blobs");
    check_widths(b);
    CHECK_INT(count_files("blobs"), 5 + 4);
    rlm_blobs_free(b);
    b = open_store(NULL);
    check_widths(b);
    rlm_blobs_free(b);
}

TEST(a_wide_form_is_remade_and_looked_at_without_a_trace)
{
    int fd, width;
    bool ascii;
    char path[200];
    rlm_blobs *b = open_store("blobs");
    struct rlm_blob facts = *put(b, RLM_BLOB_TEXT, "a" EURO);
    CHECK_INT(rlm_blobs_open_mapped(b, &facts, &fd, &width, &ascii, NULL), 0);
    close(fd);
    CHECK_INT(count_files("blobs"), 2);
    rlm_blobs_free(b);
    b = open_store("blobs"); /* what is not synced is not trusted */
    CHECK_INT(count_files("blobs"), 1);
    rlm_blobs_free(b);
    CHECK_INT(rlm_blobs_open_to_view(file_of("blobs"), &b, NULL), 0);
    CHECK_INT(rlm_blobs_open_mapped(b, &facts, &fd, &width, &ascii, NULL), 0);
    CHECK_INT(lseek(fd, 0, SEEK_END), 4);
    close(fd);
    CHECK_INT(count_files("blobs"), 1);
    const struct rlm_blob *blob;
    CHECK_INT(rlm_blobs_put(b, RLM_BLOB_TEXT, RLM_STR("new"), &blob, NULL), 0);
    CHECK_INT(count_files("blobs"), 1); /* that one is in memory */
    rlm_blobs_free(b);
    /* a file that is not what the run says never becomes characters */
    snprintf(path, sizeof path, "blobs/%s", facts.id);
    CHECK_INT(chmod(file_of(path), 0600), 0);
    close(write_file(path,
                     "a"
                     "\xF0\x9F\x93",
                     4));
    b = open_store("blobs");
    CHECK_INT(rlm_blobs_open_mapped(b, &facts, &fd, &width, &ascii, NULL), RLM_E_CORRUPT);
    CHECK_INT(count_files("blobs"), 1);
    rlm_blobs_free(b);
}

/* A text whose characters lie across all borders of chunks; the caller frees it. */
static char *large_text(uint32_t top, size_t size, size_t *ret_len)
{
    char *text = malloc(size + 4);
    size_t len = 0;
    for (uint32_t state = top; text && len < size;) {
        state = state * 1103515245 + 12345;
        uint32_t c = (state >> 8) % 3 ? 'a' + (state >> 16) % 26 : (state >> 4) % (top + 1);
        len += rlm_utf8_encode(c >= 0xD800 && c < 0xE000 ? 'x' : c, text + len);
    }
    CHECK(text != NULL);
    *ret_len = len;
    return text;
}

static void check_large_mapped(rlm_blobs *b, const struct rlm_blob *blob, int width, rlm_str text)
{
    int fd, got_width;
    bool ascii;
    struct rlm_utf8_carry carry = {0};
    char *wide = malloc((text.len + 4) * (size_t)width);
    CHECK(wide != NULL);
    size_t len = rlm_utf8_widen(&carry, text.ptr, text.len, width, wide);
    CHECK_INT(rlm_blobs_open_mapped(b, blob, &fd, &got_width, &ascii, NULL), 0);
    CHECK_INT(got_width, width);
    CHECK_INT(lseek(fd, 0, SEEK_END), len);
    const char *mapped = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    CHECK(memcmp(mapped, wide, len) == 0);
    munmap((void *)(uintptr_t)mapped, len);
    close(fd);
    free(wide);
}

TEST(large_texts_are_mapped_as_if_widened_in_one_piece)
{
    enum { LARGE = 5 * 1024 * 1024 + 1 };
    static const uint32_t tops[] = {0xFF, 0xFFFF, 0x10FFFF};
    for (int i = 0; i < 3; i++) {
        size_t len;
        char *text = large_text(tops[i], LARGE, &len);
        struct rlm_blob facts;
        rlm_blobs *b = open_store("blobs"), *memory = open_store(NULL);
        int fd = write_file("source", text, len);
        CHECK_INT(rlm_blobs_import(b, fd, RLM_BLOB_AUTO, NULL, &facts, NULL, NULL), 0);
        CHECK_INT(rlm_blobs_import(memory, fd, RLM_BLOB_AUTO, NULL, &facts, NULL, NULL), 0);
        close(fd);
        CHECK_INT(rlm_blobs_register(b, &facts, NULL), 0);
        CHECK_INT(rlm_blobs_register(memory, &facts, NULL), 0);
        check_large_mapped(b, &facts, 1 << i, (rlm_str){text, len});
        check_large_mapped(memory, &facts, 1 << i, (rlm_str){text, len});
        rlm_blobs_free(memory);
        rlm_blobs_free(b);
        /* what a journal says is checked, and then gives the same */
        b = open_store("blobs");
        CHECK_INT(rlm_blobs_register(b, &facts, NULL), 0);
        check_large_mapped(b, &facts, 1 << i, (rlm_str){text, len});
        rlm_blobs_free(b);
        free(text);
    }
}

struct opener {
    rlm_blobs *blobs;
    const struct rlm_blob *blob;
    int result, fd;
};

static void *open_at_once(void *arg)
{
    struct opener *o = arg;
    int width;
    bool ascii;
    o->result = rlm_blobs_open_mapped(o->blobs, o->blob, &o->fd, &width, &ascii, NULL);
    return NULL;
}

TEST(threads_that_open_one_text_share_its_wide_form)
{
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        enum { OPENERS = 4 };
        size_t len;
        char *text = large_text(0xFFFF, 5 * 1024 * 1024, &len);
        const struct rlm_blob *blob;
        rlm_blobs *b = open_store(in_memory ? NULL : "blobs");
        pthread_t threads[OPENERS];
        struct opener openers[OPENERS];
        struct stat first, other;
        CHECK_INT(rlm_blobs_put(b, RLM_BLOB_TEXT, (rlm_str){text, len}, &blob, NULL), 0);
        for (int i = 0; i < OPENERS; i++) {
            openers[i] = (struct opener){.blobs = b, .blob = blob};
            CHECK_INT(pthread_create(&threads[i], NULL, open_at_once, &openers[i]), 0);
        }
        for (int i = 0; i < OPENERS; i++) {
            pthread_join(threads[i], NULL);
            CHECK_INT(openers[i].result, 0);
            CHECK_INT(fstat(openers[0].fd, &first), 0);
            CHECK_INT(fstat(openers[i].fd, &other), 0);
            CHECK_INT(other.st_ino, first.st_ino);
        }
        for (int i = 0; i < OPENERS; i++) {
            close(openers[i].fd);
        }
        rlm_blobs_free(b);
        free(text);
    }
}

static void check_damage(const struct rlm_blob *facts, off_t offset, const char *damage)
{
    int fd, width;
    bool ascii;
    char path[200], before[4];
    size_t len = strlen(damage);
    snprintf(path, sizeof path, "blobs/%s", facts->id);
    CHECK_INT(chmod(file_of(path), 0600), 0);
    int file = open(file_of(path), O_RDWR);
    CHECK_INT(pread(file, before, len, offset), len);
    CHECK_INT(pwrite(file, damage, len, offset), len);
    rlm_blobs *b = open_store("blobs");
    CHECK_INT(rlm_blobs_register(b, facts, NULL), 0);
    CHECK_INT(rlm_blobs_open_mapped(b, facts, &fd, &width, &ascii, NULL), RLM_E_CORRUPT);
    CHECK_INT(count_files("blobs"), 1);
    rlm_blobs_free(b);
    CHECK_INT(pwrite(file, before, len, offset), len);
    close(file);
}

TEST(damage_anywhere_in_a_large_text_is_found)
{
    enum { LARGE = 5 * 1024 * 1024 };
    char *text = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i += 2) {
        memcpy(text + i, "\xC3\xA9", 2);
    }
    const struct rlm_blob *blob;
    rlm_blobs *b = open_store("blobs");
    CHECK_INT(rlm_blobs_put(b, RLM_BLOB_TEXT, (rlm_str){text, LARGE}, &blob, NULL), 0);
    struct rlm_blob facts = *blob;
    rlm_blobs_free(b);
    free(text);
    static const off_t places[] = {0, 512 * 1024, LARGE / 2, LARGE - 512 * 1024, LARGE - 4};
    for (size_t i = 0; i < 5; i++) {
        check_damage(&facts, places[i], "aa");               /* a text of more characters */
        check_damage(&facts, places[i], "\xF0\x9F\x93\xA6"); /* of a greater width */
        check_damage(&facts, places[i], "\xE9");             /* none */
        check_damage(&facts, places[i], "\xC5\xA9");         /* as many, but of a greater width */
        check_damage(&facts, places[i], "\xA9\xA9");
    }
}

TEST(a_writer_takes_pieces)
{
    rlm_blobs *b = open_store("blobs");
    rlm_blob_writer *w;
    const struct rlm_blob *blob, *whole;
    char piece[1000];
    static char all[300 * sizeof piece];
    memset(piece, 'p', sizeof piece);
    memcpy(piece + 996, PACK, 4);
    for (int i = 0; i < 300; i++) {
        memcpy(all + (size_t)i * sizeof piece, piece, sizeof piece);
    }
    CHECK_INT(rlm_blob_writer_new(b, RLM_BLOB_TEXT, sizeof all, &w, NULL), 0);
    /* in pieces that cut characters, small and larger than what is gathered */
    size_t sizes[] = {1, 997, 1, 100000, 5, 70000, sizeof all}, at = 0;
    for (size_t i = 0; at < sizeof all; i++) {
        size_t len = sizes[i] < sizeof all - at ? sizes[i] : sizeof all - at;
        CHECK_INT(rlm_blob_writer_add(w, all + at, len, NULL), 0);
        at += len;
    }
    CHECK_INT(rlm_blob_writer_add(w, "x", 1, NULL), RLM_E_LIMIT);
    CHECK_INT(rlm_blob_writer_finish(w, &blob, NULL), 0);
    CHECK_INT(rlm_blobs_put(b, RLM_BLOB_TEXT, (rlm_str){all, sizeof all}, &whole, NULL), 0);
    CHECK(whole == blob);
    CHECK_INT(blob->chars, 300 * 997);
    CHECK_INT(blob->max_char, 0x10FFFF);
    CHECK_INT(count_files("blobs"), 1);
    rlm_blobs_free(b);
}

TEST(what_is_given_up_leaves_nothing)
{
    rlm_blobs *b = open_store("blobs");
    rlm_blob_writer *w;
    const struct rlm_blob *blob = NULL;
    rlm_error *err = NULL;
    CHECK_INT(rlm_blob_writer_new(b, RLM_BLOB_TEXT, 100, &w, NULL), 0);
    CHECK_INT(rlm_blob_writer_add(w, "ab\xFF", 3, NULL), 0);
    CHECK_INT(rlm_blob_writer_finish(w, &blob, &err), RLM_E_PARSE);
    CHECK_CONTAINS(rlm_error_message(err), "byte 2");
    rlm_error_free(err);
    CHECK_INT(rlm_blob_writer_new(b, RLM_BLOB_BYTES, 100, &w, NULL), 0);
    CHECK_INT(rlm_blob_writer_add(w, "ab", 2, NULL), 0);
    rlm_blob_writer_abort(w);
    CHECK_INT(rlm_blobs_put(b, RLM_BLOB_TEXT, RLM_STR("\xC3"), &blob, NULL), RLM_E_PARSE);
    CHECK(blob == NULL);
    CHECK_INT(count_files("blobs"), 0);
    CHECK_INT(rlm_blobs_disk_bytes(b), 0);
    /* what a killed process left goes at the next opening */
    close(write_file("blobs/.new-99-1", "part", 4));
    rlm_blobs_free(b);
    b = open_store("blobs");
    CHECK_INT(count_files("blobs"), 0);
    rlm_blobs_free(b);
}

TEST(a_directory_that_goes_is_told_of)
{
    rlm_blobs *b = open_store("blobs");
    const struct rlm_blob *blob = NULL;
    rlm_error *err = NULL;
    CHECK_INT(rmdir(file_of("blobs")), 0);
    CHECK_INT(rlm_blobs_put(b, RLM_BLOB_TEXT, RLM_STR("value"), &blob, &err), RLM_E_IO);
    CHECK_CONTAINS(rlm_error_message(err), "blobs was removed while it was in use");
    rlm_error_free(err);
    rlm_blobs_free(b);
}

TEST(a_blob_of_a_journal_must_be_there_and_whole)
{
    rlm_blobs *b = open_store("blobs");
    struct rlm_blob facts = *put(b, RLM_BLOB_TEXT, "value");
    rlm_blobs_free(b);
    b = open_store("blobs");
    CHECK(rlm_blobs_find(b, rlm_str_of(facts.id)) == NULL);
    CHECK_INT(rlm_blobs_disk_bytes(b), 5);
    CHECK_INT(rlm_blobs_register(b, &facts, NULL), 0);
    CHECK_INT(rlm_blobs_find(b, rlm_str_of(facts.id))->chars, 5);
    struct rlm_blob other = facts;
    other.id[0] = other.id[0] == 'f' ? 'e' : 'f';
    CHECK_INT(rlm_blobs_register(b, &other, NULL), RLM_E_NOT_FOUND);
    facts.size_bytes = 6;
    rlm_error *err = NULL;
    CHECK_INT(rlm_blobs_register(b, &facts, &err), RLM_E_CORRUPT);
    CHECK_CONTAINS(rlm_error_message(err), "5 bytes where the run says 6");
    rlm_error_free(err);
    memset(other.id, '.', 64);
    CHECK_INT(rlm_blobs_register(b, &other, NULL), RLM_E_INVAL);
    rlm_blobs_free(b);
}

TEST(a_blob_is_compared_with_its_name)
{
    enum { SIZE = 3 * 1024 * 1024 + 1 }; /* of several pieces */
    static const off_t places[] = {0, SIZE / 2, SIZE - 1};
    char *text = malloc(SIZE + 1), name[100];
    memset(text, 'x', SIZE);
    text[SIZE] = '\0';
    rlm_blobs *b = open_store("blobs");
    struct rlm_blob facts = *put(b, RLM_BLOB_TEXT, text);
    free(text);
    CHECK_INT(rlm_blobs_check(b, rlm_str_of(facts.id), NULL), 0);
    snprintf(name, sizeof name, "blobs/%s", facts.id);
    CHECK_INT(chmod(file_of(name), 0600), 0);
    int fd = open(file_of(name), O_WRONLY | O_CLOEXEC);
    for (size_t i = 0; i < 3; i++) {
        rlm_error *err = NULL;
        CHECK_INT(pwrite(fd, "y", 1, places[i]), 1);
        CHECK_INT(rlm_blobs_check(b, rlm_str_of(facts.id), &err), RLM_E_CORRUPT);
        CHECK_CONTAINS(rlm_error_message(err), facts.id);
        rlm_error_free(err);
        CHECK_INT(pwrite(fd, "x", 1, places[i]), 1);
        CHECK_INT(rlm_blobs_check(b, rlm_str_of(facts.id), NULL), 0);
    }
    close(fd);
    CHECK_INT(unlink(file_of(name)), 0);
    CHECK_INT(rlm_blobs_check(b, rlm_str_of(facts.id), NULL), RLM_E_NOT_FOUND);
    rlm_blobs_free(b);
}

TEST(a_sync_covers_all_since_the_last_and_what_was_found)
{
    rlm_blobs *b = open_store("blobs");
    CHECK(rlm_blobs_sync_begin(b) == NULL);
    put(b, RLM_BLOB_TEXT, "one");
    put(b, RLM_BLOB_TEXT, "two");
    rlm_blob_sync *s = rlm_blobs_sync_begin(b);
    CHECK(s != NULL);
    CHECK(rlm_blobs_sync_begin(b) == NULL);
    CHECK_INT(rlm_blobs_sync_run(s, NULL), 0);
    rlm_blobs_sync_end(s);
    CHECK(rlm_blobs_sync_begin(b) == NULL);
    char path[200];
    snprintf(path, sizeof path, "blobs/%s", put(b, RLM_BLOB_TEXT, "three")->id);
    CHECK_INT(unlink(file_of(path)), 0);
    rlm_error *err = NULL;
    s = rlm_blobs_sync_begin(b);
    CHECK_INT(rlm_blobs_sync_run(s, &err), RLM_E_IO);
    CHECK_CONTAINS(rlm_error_message(err), "blobs/");
    rlm_error_free(err);
    rlm_blobs_sync_end(s); /* it is still to be done */
    CHECK((s = rlm_blobs_sync_begin(b)) != NULL);
    rlm_blobs_sync_end(s);
    rlm_blobs_free(b);
    b = open_store("blobs");
    CHECK((s = rlm_blobs_sync_begin(b)) != NULL);
    CHECK_INT(rlm_blobs_sync_run(s, NULL), 0);
    rlm_blobs_sync_end(s);
    rlm_blobs_free(b);
    b = open_store(NULL);
    put(b, RLM_BLOB_TEXT, "one");
    CHECK(rlm_blobs_sync_begin(b) == NULL);
    rlm_blobs_free(b);
}
