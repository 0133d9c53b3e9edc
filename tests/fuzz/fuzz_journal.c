/* A run's journal as bytes from a stranger: framing, the search behind damage, and (in a file) the
 * records down to the graph. The bytes after the first are the journal; the first says how CRCs are
 * treated, since no fuzzer guesses them. */
#include "fuzz.h"

#include "graph/graph.h"
#include "graph/journal_scan.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int
count_record(void *arg, enum rlm_record_kind kind, int64_t offset, rlm_str payload, rlm_error **err)
{
    uint64_t *sum = arg;
    for (size_t i = 0; i < payload.len; i++) {
        *sum += (uint8_t)payload.ptr[i];
    }
    return 0;
}

/* How long the record at `at` is by the plain definition; 0: none is there. */
static size_t valid_at(const uint8_t *bytes, size_t size, size_t at)
{
    uint8_t header[RLM_RECORD_HEADER_BYTES];
    if (size - at < sizeof header) {
        return 0;
    }
    size_t len = bytes[at] | (size_t)bytes[at + 1] << 8 | (size_t)bytes[at + 2] << 16 |
                 (size_t)bytes[at + 3] << 24;
    uint8_t kind = bytes[at + 8];
    if (len > size - at - sizeof header || len > RLM_RECORD_MAX_BYTES || kind == 0 ||
        kind >= RLM_RECORD_KIND_LIMIT) {
        return 0;
    }
    rlm_str payload = {(const char *)bytes + at + sizeof header, len};
    rlm_record_frame((enum rlm_record_kind)kind, payload, at, header);
    return memcmp(header, bytes + at, sizeof header) == 0 ? sizeof header + len : 0;
}

/* Every record, also behind damage, must be valid by the plain definition. */
static uint64_t count_plainly(const uint8_t *bytes, size_t size, size_t from)
{
    uint64_t count = 0;
    for (size_t at = from, len; at < size; at += len ? len : 1) {
        len = valid_at(bytes, size, at);
        count += len > 0;
    }
    return count;
}

/* Where the first place is that holds no record. */
static size_t end_plainly(const uint8_t *bytes, size_t size)
{
    size_t at = RLM_JOURNAL_MAGIC_BYTES;
    for (size_t len; at < size && (len = valid_at(bytes, size, at)) > 0;) {
        at += len;
    }
    return at;
}

/* Makes valid what has a plausible length and kind, from the start on. */
static void mend(uint8_t *bytes, size_t size)
{
    for (size_t at = RLM_JOURNAL_MAGIC_BYTES; at + RLM_RECORD_HEADER_BYTES <= size;) {
        size_t len = bytes[at] | (size_t)bytes[at + 1] << 8;
        bytes[at + 2] = bytes[at + 3] = 0;
        if (len > size - at - RLM_RECORD_HEADER_BYTES) {
            len = size - at - RLM_RECORD_HEADER_BYTES;
            bytes[at] = (uint8_t)len;
            bytes[at + 1] = (uint8_t)(len >> 8);
        }
        uint8_t kind = bytes[at + 8];
        kind = kind == 0 || kind >= RLM_RECORD_KIND_LIMIT ? RLM_RECORD_NODE : kind;
        rlm_str payload = {(const char *)bytes + at + RLM_RECORD_HEADER_BYTES, len};
        rlm_record_frame((enum rlm_record_kind)kind, payload, at, bytes + at);
        at += RLM_RECORD_HEADER_BYTES + len;
    }
}

static void load(const uint8_t *bytes, size_t size)
{
    static char path[64], file[80];
    if (!path[0]) {
        snprintf(path, sizeof path, "/tmp/rlm-fuzz-journal-%ld", (long)getpid());
        snprintf(file, sizeof file, "%s/journal", path);
    }
    mkdir(path, 0700);
    FILE *f = fopen(file, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f) != 0) {
        perror(file);
        abort();
    }
    rlm_graph *g = NULL;
    char *note = NULL;
    if (rlm_graph_load(path, &g, &note, NULL) == 0) {
        for (rlm_graph *at = g; at; at = rlm_graph_next(g, at)) {
            int turns = 0;
            for (size_t i = 0; i < at->nodes.len; i++) {
                turns += at->nodes.items[i]->type == RLM_LLM_OUTPUT;
            }
            fuzz_require(turns == at->turns, "another number of turns than replies");
        }
        rlm_graph_free(g);
        free(note);
    }
    unlink(file);
    rmdir(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rlm_journal_scan found;
    uint64_t sum = 0;
    if (size < 1 || size > 60000) {
        return 0;
    }
    uint8_t mode = data[0];
    uint8_t *bytes = malloc(size);
    if (!bytes) {
        return 0;
    }
    size--;
    memcpy(bytes, data + 1, size);
    if (mode & 1) {
        mend(bytes, size);
    }
    if (mode & 2 && size > 40) {
        bytes[20 + mode % 16] ^= 1; /* damage near the start, valid records behind it */
    }
    if (rlm_journal_scan_bytes(bytes, size, count_record, &sum, &found, NULL) == 0) {
        fuzz_require(found.end == end_plainly(bytes, size), "the records end elsewhere");
        fuzz_require(found.damage.offset < 0 || (uint64_t)found.damage.offset == found.end,
                     "damage is not where the records end");
        fuzz_require((found.damage.offset < 0) == (found.end == size),
                     "damage without a rest, or a rest "
                     "without damage");
        if (found.damage.offset >= 0) {
            fuzz_require((uint64_t)found.damage.valid_after ==
                             count_plainly(bytes, size, (size_t)found.end + 1),
                         "another number of records behind the damage");
        }
    }
    if (mode & 4) {
        load(bytes, size);
    }
    free(bytes);
    return 0;
}
