/* A run in the directory of the test: written, damaged and read back. */
#pragma once

#include "graph/journal.h"

#include "harness.h"

#include <fcntl.h>
#include <unistd.h>

static inline const char *run_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/a.rlm", harness_directory());
    return path;
}

static inline const char *file_path(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/a.rlm/journal", harness_directory());
    return path;
}

static inline rlm_journal *create(rlm_loop *loop, bool sync)
{
    rlm_journal *j = NULL;
    CHECK_INT(rlm_journal_create(loop, run_path(), &(struct rlm_journal_options){sync}, &j, NULL),
              0);
    return j;
}

static inline void append(rlm_journal *j, const char *text)
{
    CHECK_INT(rlm_journal_append(j, RLM_RECORD_NODE, rlm_str_of(text), NULL), 0);
}

/* What a reading gives, as text: "kind@offset:payload;". */
static inline int
collect(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    struct rlm_buf *out = arg;
    rlm_buf_addf(out, "%d@%lld:", (int)kind, (long long)offset);
    rlm_buf_add_str(out, payload);
    rlm_buf_addc(out, ';');
    return 0;
}

static inline struct rlm_journal_damage check_read(const char *expected)
{
    struct rlm_journal_damage damage = {0};
    rlm_auto_buf struct rlm_buf out = RLM_BUF(1 << 20);
    CHECK_INT(rlm_journal_read(run_path(), collect, &out, &damage, NULL), 0);
    CHECK_STR(rlm_buf_str(&out), expected);
    return damage;
}

/* Three records of 12 bytes, at 8, 20 and 32, to 44. */
static inline void make_three(void)
{
    rlm_journal *j = create(NULL, false);
    append(j, "one");
    append(j, "two");
    append(j, "six");
    rlm_journal_close(j);
}

static inline void change_byte(off_t offset, unsigned char flip)
{
    unsigned char byte;
    int fd = open(file_path(), O_RDWR);
    CHECK_INT(pread(fd, &byte, 1, offset), 1);
    byte ^= flip;
    CHECK_INT(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}
