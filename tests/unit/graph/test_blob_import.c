/* Files that are taken in: whole, changing meanwhile, from a pipe. */
#include "blob_files.h"

#include <pthread.h>
#include <stdatomic.h>

static void check_import(rlm_blobs *b,
                         const char *bytes,
                         size_t len,
                         enum rlm_blob_type type,
                         enum rlm_blob_type expected,
                         int64_t bad_offset)
{
    struct rlm_blob facts;
    const struct rlm_blob *same;
    int64_t offset = 77;
    int fd = write_file("source", bytes, len);
    CHECK_INT(rlm_blobs_import(b, fd, type, NULL, &facts, &offset, NULL), 0);
    close(fd);
    CHECK_INT(facts.type, expected);
    CHECK_INT(facts.size_bytes, len);
    CHECK_INT(offset, bad_offset);
    CHECK(rlm_blobs_find(b, rlm_str_of(facts.id)) == NULL); /* not known before it is registered */
    CHECK_INT(rlm_blobs_register(b, &facts, NULL), 0);
    CHECK_INT(rlm_blobs_put(b, expected, (rlm_str){bytes, len}, &same, NULL), 0);
    CHECK(memcmp(&facts, same, sizeof facts) == 0);
    rlm_auto_buf struct rlm_buf out = RLM_BUF(len);
    CHECK_INT(rlm_blobs_read(b, rlm_str_of(facts.id), &out, NULL), 0);
    CHECK(out.len == len && (len == 0 || memcmp(out.ptr, bytes, len) == 0));
}

static void check_imports(rlm_blobs *b)
{
    enum { LARGE = 9 * 1024 * 1024 + 77 }; /* more than the buffers that two threads share */
    char *large = malloc(LARGE);
    uint32_t state = 1;
    for (size_t i = 0; i < LARGE; i++) {
        state = state * 1103515245 + 12345;
        large[i] = (char)('a' + (state >> 16) % 26);
    }
    check_import(b, "", 0, RLM_BLOB_AUTO, RLM_BLOB_TEXT, -1);
    check_import(b, "short", 5, RLM_BLOB_AUTO, RLM_BLOB_TEXT, -1);
    check_import(b, "sh\xFFrt", 5, RLM_BLOB_AUTO, RLM_BLOB_BYTES, 2);
    check_import(b, "ab\xE2\x82", 4, RLM_BLOB_AUTO, RLM_BLOB_BYTES, 2);
    check_import(b, "abc\xED\xB2\x80", 6, RLM_BLOB_AUTO, RLM_BLOB_BYTES, 3); /* not UTF-8 */
    check_import(b, "abd\xED\xB2\x80", 6, RLM_BLOB_TEXT, RLM_BLOB_TEXT, -1);
    check_import(b, large, LARGE, RLM_BLOB_AUTO, RLM_BLOB_TEXT, -1);
    large[LARGE - 5] = '\x80';
    check_import(b, large, LARGE, RLM_BLOB_AUTO, RLM_BLOB_BYTES, LARGE - 5);
    check_import(b, large + 1, LARGE - 1, RLM_BLOB_BYTES, RLM_BLOB_BYTES, -1);
    free(large);
}

TEST(files_are_imported)
{
    rlm_blobs *b = open_store("blobs");
    check_imports(b);
    rlm_blobs_free(b);
    b = open_store(NULL);
    check_imports(b);
    rlm_blobs_free(b);
}

TEST(an_import_that_fails_says_why_and_leaves_nothing)
{
    rlm_blobs *b = open_store("blobs");
    struct rlm_blob facts;
    rlm_error *err = NULL;
    int fd = write_file("source", "a\xFF", 2);
    CHECK_INT(rlm_blobs_import(b, fd, RLM_BLOB_TEXT, NULL, &facts, NULL, &err), RLM_E_PARSE);
    CHECK_CONTAINS(rlm_error_message(err), "byte 1");
    close(fd);
    rlm_error_free(err);
    err = NULL;
    fd = open(harness_directory(), O_RDONLY);
    CHECK_INT(rlm_blobs_import(b, fd, RLM_BLOB_AUTO, NULL, &facts, NULL, &err), RLM_E_INVAL);
    close(fd);
    rlm_error_free(err);
    err = NULL;
    fd = open(file_of("source"), O_WRONLY);
    CHECK_INT(rlm_blobs_import(b, fd, RLM_BLOB_BYTES, NULL, &facts, NULL, &err), RLM_E_IO);
    CHECK_INT(rlm_error_errno(err), EBADF);
    close(fd);
    rlm_error_free(err);
    CHECK_INT(count_files("blobs"), 0);
    rlm_blobs_free(b);
}

struct changer {
    int fd;
    atomic_bool stop;
};

static void *keep_changing(void *arg)
{
    struct changer *c = arg;
    for (unsigned i = 0; !c->stop; i++) {
        char byte = (char)i;
        if (pwrite(c->fd, &byte, 1, (off_t)(i * 4099u % (8 * 1024 * 1024))) != 1) {
            break;
        }
    }
    return NULL;
}

TEST(what_is_hashed_is_what_is_stored_while_the_file_changes)
{
    rlm_blobs *b = open_store("blobs");
    enum { SIZE = 8 * 1024 * 1024 };
    char *zeros = calloc(1, SIZE);
    int fd = write_file("source", zeros, SIZE);
    for (int i = 0; i < 5; i++) {
        struct rlm_blob facts;
        char hash[65];
        pthread_t writer;
        struct changer changer = {.fd = fd};
        struct rlm_buf out = RLM_BUF(SIZE);
        CHECK_INT(pthread_create(&writer, NULL, keep_changing, &changer), 0);
        CHECK_INT(rlm_blobs_import(b, fd, RLM_BLOB_AUTO, NULL, &facts, NULL, NULL), 0);
        changer.stop = true;
        pthread_join(writer, NULL);
        CHECK_INT(rlm_blobs_read(b, rlm_str_of(facts.id), &out, NULL), 0);
        CHECK_INT(rlm_sha256_of(rlm_buf_str(&out), hash), 0);
        CHECK_TEXT(hash, facts.id);
        rlm_buf_deinit(&out);
    }
    close(fd);
    free(zeros);
    rlm_blobs_free(b);
}

static void *cut_short(void *arg)
{
    struct changer *c = arg;
    usleep(300);
    CHECK(ftruncate(c->fd, 1000) == 0);
    return NULL;
}

/* Taken in whole or refused, never in part. */
TEST(a_file_that_is_cut_while_it_is_imported_is_refused)
{
    rlm_blobs *b = open_store("blobs");
    enum { SIZE = 32 * 1024 * 1024 };
    char *zeros = calloc(1, SIZE);
    for (int i = 0; i < 20; i++) {
        struct rlm_blob facts;
        pthread_t cutter;
        rlm_error *err = NULL;
        struct changer changer = {.fd = write_file("source", zeros, SIZE)};
        CHECK_INT(pthread_create(&cutter, NULL, cut_short, &changer), 0);
        int r = rlm_blobs_import(b, changer.fd, RLM_BLOB_AUTO, NULL, &facts, NULL, &err);
        pthread_join(cutter, NULL);
        bool early = r == 0 && facts.size_bytes == 1000; /* it was short before it was looked at */
        CHECK(r == RLM_E_IO || (r == 0 && (early || facts.size_bytes == SIZE)));
        rlm_error_free(err);
        close(changer.fd);
    }
    free(zeros);
    rlm_blobs_free(b);
}

TEST(a_pipe_is_imported_to_its_end)
{
    int pipes[2];
    struct rlm_blob facts;
    rlm_blobs *b = open_store("blobs");
    CHECK_INT(pipe(pipes), 0);
    CHECK_INT(write(pipes[1], "piped", 5), 5);
    close(pipes[1]);
    CHECK_INT(rlm_blobs_import(b, pipes[0], RLM_BLOB_AUTO, NULL, &facts, NULL, NULL), 0);
    CHECK_INT(facts.size_bytes, 5);
    close(pipes[0]);
    rlm_blobs_free(b);
}
